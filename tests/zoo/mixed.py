"""Ops that want different layouts next to each other: products whose results are reduced, scanned, turned; tiles used both ways round.

These are the kernels that make layout inference, conversions, pipelining and accumulators meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.matmul import product
from tests.zoo.registry import Run, array, data, each, empty, exact, near, sizes, strides, wide, zoo

SQUARES = ((1, 4), (3, 1), (16, 4), (33, 4), (64, 8), (96, 4))


def whole(rng: Any, shape: tuple[int, ...], dtype: str, low: int = -4, high: int = 5) -> Any:
    """Small integers in any type: sums are exact, so that results compare bit by bit."""
    return array(rng.integers(low, high, shape), dtype)


@mimw.kernel
def symmetric_part(x_ptr, out_ptr, S: ml.constexpr):
    r = ml.arange(0, S)
    at = r[:, None] * S + r[None, :]
    x = ml.load(x_ptr + at)
    ml.store(out_ptr + at, x + x.T)


@zoo(
    *[
        {"s": s, "warps": w, "dtype": d}
        for (s, w), d in zip(SQUARES, ("i32", "f16", "i8", "f32", "bf16", "i64"), strict=True)
    ],
    sm80=True,
)
def symmetric_part_case(rng: Any, s: int, warps: int, dtype: str) -> Run:
    x, out = whole(rng, (s, s), dtype), empty((s, s), dtype)
    return Run(symmetric_part, (1,), (x, out), [(out, exact(wide(x) + wide(x).T))], {"S": s}, num_warps=warps)


@mimw.kernel
def marginals(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    # Row sums and column sums meet again in one tile.
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    x = ml.load(x_ptr + at)
    rows = ml.sum(x, axis=1)
    cols = ml.sum(x, axis=0)
    ml.store(out_ptr + at, x * ml.sum(cols, axis=0) - rows[:, None] * cols[None, :])


@zoo(*each("tile", ((1, 1), (3, 31), (32, 8), (16, 229), (33, 33), (2, 1000))), sm80=True)
def marginals_case(rng: Any, tile: tuple[int, int]) -> Run:
    x, out = whole(rng, tile, "i32"), empty(tile, "i32")
    want = x * x.sum() - np.outer(x.sum(1), x.sum(0))
    return Run(marginals, (1,), (x, out), [(out, exact(want))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def product_then_everything(
    a_ptr, b_ptr, c_ptr, rows_ptr, cols_ptr, scan_ptr, best_ptr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr
):
    m = ml.arange(0, M)
    n = ml.arange(0, N)
    k = ml.arange(0, K)
    c = ml.dot(ml.load(a_ptr + m[:, None] * K + k[None, :]), ml.load(b_ptr + k[:, None] * N + n[None, :]))
    ml.store(c_ptr + n[:, None] * M + m[None, :], c.T)
    ml.store(rows_ptr + m, ml.sum(c, axis=1))
    ml.store(cols_ptr + n, ml.max(c, axis=0))
    ml.store(scan_ptr + m[:, None] * N + n[None, :], ml.cumsum(c, axis=1))
    ml.store(best_ptr + m, ml.argmax(c, axis=1))


@zoo(
    *[
        {"size": s, "warps": w}
        for s, w in (((16, 16, 16), 4), ((64, 32, 16), 4), ((33, 24, 40), 2), ((64, 96, 32), 4), ((128, 64, 16), 8))
    ],
    sm80=True,
)
def product_then_everything_case(rng: Any, size: tuple[int, int, int], warps: int) -> Run:
    m, n, k = size
    a, b = whole(rng, (m, k), "bf16"), whole(rng, (k, n), "bf16")
    outs = [empty((n, m), "f32"), empty(m, "f32"), empty(n, "f32"), empty((m, n), "f32"), empty(m, "i32")]
    c = wide(a) @ wide(b)
    want = [c.T, c.sum(1), c.max(0), np.cumsum(c, 1), c.argmax(1)]
    outputs = [(o, exact(w)) for o, w in zip(outs, want, strict=True)]
    return Run(product_then_everything, (1,), (a, b, *outs), outputs, {"M": m, "N": n, "K": k}, num_warps=warps)


@mimw.kernel
def product_of_computed(x_ptr, y_ptr, out_ptr, M: ml.constexpr, K: ml.constexpr):
    # Operands that come from arithmetic, comparisons and reductions, not straight from memory.
    m = ml.arange(0, M)
    k = ml.arange(0, K)
    x = ml.load(x_ptr + m[:, None] * K + k[None, :])
    y = ml.load(y_ptr + k)
    a = ml.where(x > 0, x, -2 * x) + ml.max(x, axis=1)[:, None].to(x.dtype)
    b = ml.where(k[:, None] <= m[None, :], y[:, None], 0.0).to(x.dtype)
    ml.store(out_ptr + m[:, None] * M + m[None, :], ml.dot(a, b) + m[None, :])


@zoo(*[{"m": m, "k": k} for m, k in ((16, 16), (64, 32), (33, 48), (128, 16))], sm80=True)
def product_of_computed_case(rng: Any, m: int, k: int) -> Run:
    x, y, out = whole(rng, (m, k), "f16"), whole(rng, (k,), "f16"), empty((m, m), "f32")
    a = np.where(wide(x) > 0, wide(x), -2 * wide(x)) + wide(x).max(1, keepdims=True)
    b = np.where(np.arange(k)[:, None] <= np.arange(m)[None, :], wide(y)[:, None], 0)
    return Run(product_of_computed, (1,), (x, y, out), [(out, exact(a @ b + np.arange(m)))], {"M": m, "K": k})


@mimw.kernel
def product_with_exits(a_ptr, b_ptr, out_ptr, count, stop, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    # An accumulator carried through a loop with a break, a continue and a branch that sometimes skips the product.
    m = ml.arange(0, M)[:, None]
    n = ml.arange(0, N)[None, :]
    k = ml.arange(0, K)
    acc = ml.zeros((M, N), ml.float32)
    for i in range(count):
        flag = (i * 7) % 5
        if i == stop:
            break
        if flag == 1:
            continue
        a = ml.load(a_ptr + i * M * K + m * K + k[None, :])
        b = ml.load(b_ptr + i * K * N + k[:, None] * N + n)
        if flag == 3:
            acc = acc * 2.0
        else:
            acc = ml.dot(a, b, acc)
    ml.store(out_ptr + m * N + n, acc)


@zoo(
    *[{"count": c, "stop": s, "m": m} for c, s, m in ((0, 9, 16), (1, 9, 64), (6, 4, 64), (9, 99, 64), (7, 0, 33))],
    sm80=True,
)
def product_with_exits_case(rng: Any, count: int, stop: int, m: int) -> Run:
    n, k = 32, 16
    a, b, out = whole(rng, (max(count, 1), m, k), "f16"), whole(rng, (max(count, 1), k, n), "f16"), empty((m, n), "f32")
    acc = np.zeros((m, n))
    for i in range(count):
        if i == stop:
            break
        if i * 7 % 5 == 1:
            continue
        acc = acc * 2 if i * 7 % 5 == 3 else acc + wide(a[i]) @ wide(b[i])
    return Run(product_with_exits, (1,), (a, b, out, count, stop), [(out, exact(acc))], {"M": m, "N": n, "K": k})


@mimw.kernel
def swapped_accumulators(a_ptr, b_ptr, x_ptr, y_ptr, trips, S: ml.constexpr):
    # Two accumulators that change places each trip.
    r = ml.arange(0, S)
    at = r[:, None] * S + r[None, :]
    a = ml.load(a_ptr + at)
    b = ml.load(b_ptr + at)
    x = ml.zeros((S, S), ml.float32)
    y = ml.full((S, S), 1.0, ml.float32)
    for _ in range(trips):
        x, y = y, ml.dot(a, b, x)
    ml.store(x_ptr + at, x)
    ml.store(y_ptr + at, y)


@zoo(*[{"s": s, "trips": t} for s, t in ((16, 0), (16, 3), (64, 1), (64, 4))], sm80=True)
def swapped_accumulators_case(rng: Any, s: int, trips: int) -> Run:
    a, b, left, right = whole(rng, (s, s), "f16"), whole(rng, (s, s), "f16"), empty((s, s), "f32"), empty((s, s), "f32")
    x, y = np.zeros((s, s)), np.ones((s, s))
    for _ in range(trips):
        x, y = y, x + wide(a) @ wide(b)
    return Run(swapped_accumulators, (1,), (a, b, left, right, trips), [(left, exact(x)), (right, exact(y))], {"S": s})


@mimw.kernel
def power_iteration(a_ptr, out_ptr, trips, S: ml.constexpr):
    # The product becomes an operand of the next one: nothing can be fetched ahead.
    r = ml.arange(0, S)
    at = r[:, None] * S + r[None, :]
    a = ml.load(a_ptr + at)
    x = a
    for _ in range(trips):
        x = ml.dot(a, x).to(a.dtype)
    ml.store(out_ptr + at, x)


@zoo(*[{"s": s, "trips": t} for s, t in ((16, 0), (16, 4), (64, 2), (96, 3))], sm80=True)
def power_iteration_case(rng: Any, s: int, trips: int) -> Run:
    # A permutation with signs: powers stay exact.
    a = np.zeros((s, s))
    a[np.arange(s), rng.permutation(s)] = rng.choice([-1, 1], s)
    out = empty((s, s), "f16")
    return Run(
        power_iteration,
        (1,),
        (array(a, "f16"), out, trips),
        [(out, exact(np.linalg.matrix_power(a, trips + 1)))],
        {"S": s},
    )


@mimw.kernel
def grouped_rows(x_ptr, w_ptr, ends_ptr, out_ptr, groups, N, M: ml.constexpr, BLOCK_N: ml.constexpr, K: ml.constexpr):
    # Grouped product: a while loop finds the group of each tile of rows, rows past its end are masked.
    tile = ml.program_id(0)
    g = 0
    start = 0
    first = 0
    end = ml.load(ends_ptr)
    tiles = ml.cdiv(end, M)
    while tile >= first + tiles and g + 1 < groups:
        first += tiles
        start = end
        g += 1
        end = ml.load(ends_ptr + g)
        tiles = ml.cdiv(end - start, M)
    row = start + (tile - first) * M + ml.arange(0, M)
    n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    k = ml.arange(0, K)
    inside = row < end
    x = ml.load(x_ptr + row[:, None] * K + k[None, :], mask=inside[:, None], other=0.0)
    w = ml.load(w_ptr + g * K * N + k[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    ml.store(out_ptr + row[:, None] * N + n[None, :], ml.dot(x, w), mask=inside[:, None] & (n < N)[None, :])


@zoo(*[{"lengths": g, "n": n} for g, n in (((5,), 8), ((3, 0, 17), 33), ((16, 40, 1, 0, 7), 40))])
def grouped_rows_case(rng: Any, lengths: tuple[int, ...], n: int) -> Run:
    ends, k = np.cumsum(lengths), 32
    rows = int(ends[-1])
    x, w, out = whole(rng, (rows, k), "bf16"), whole(rng, (len(lengths), k, n), "bf16"), empty((rows, n), "f32")
    group = np.searchsorted(ends, np.arange(rows), side="right")
    want = np.einsum("rk,rkn->rn", wide(x), wide(w)[group])
    tiles = sum(mimw.cdiv(length, 16) for length in lengths)
    args = (x, w, array(ends, "i32"), out, len(lengths), n)
    return Run(grouped_rows, (tiles, mimw.cdiv(n, 32)), args, [(out, exact(want))], {"M": 16, "BLOCK_N": 32, "K": k})


@mimw.kernel
def gathered_product(x_ptr, index_ptr, w_ptr, out_ptr, n, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    # Rows fetched by index inside a loop over K: the pointers are data-dependent.
    row = ml.program_id(0) * M + ml.arange(0, M)
    index = ml.load(index_ptr + row, mask=row < n, other=0)
    cols = ml.arange(0, N)
    acc = ml.zeros((M, N), ml.float32)
    for start in range(0, K, 16):
        k = start + ml.arange(0, 16)
        x = ml.load(x_ptr + index[:, None] * K + k[None, :], mask=(row < n)[:, None], other=0.0)
        w = ml.load(w_ptr + k[:, None] * N + cols[None, :])
        acc = ml.dot(x, w, acc)
    ml.store(out_ptr + row[:, None] * N + cols[None, :], acc, mask=(row < n)[:, None])


@zoo(*[{"n": n, "k": k} for n, k in ((0, 16), (5, 16), (70, 64))], sm80=True)
def gathered_product_case(rng: Any, n: int, k: int) -> Run:
    x, w, index = whole(rng, (9, k), "f16"), whole(rng, (k, 32), "f16"), rng.integers(0, 9, n)
    out = empty((n, 32), "f32")
    want = wide(x)[index] @ wide(w)
    args = (x, array(index, "i64"), w, out, n)
    return Run(gathered_product, (mimw.cdiv(n, 64),), args, [(out, exact(want))], {"M": 64, "N": 32, "K": k})


@mimw.kernel
def two_loops(a_ptr, b_ptr, c_ptr, out_ptr, K, L, M: ml.constexpr, N: ml.constexpr, BLOCK_K: ml.constexpr):
    # Two pipelined loops after each other, with work on the accumulator between them.
    m = ml.arange(0, M)[:, None]
    n = ml.arange(0, N)[None, :]
    acc = ml.zeros((M, N), ml.float32)
    for start in range(0, K, BLOCK_K):
        k = start + ml.arange(0, BLOCK_K)
        acc = ml.dot(ml.load(a_ptr + m * K + k[None, :]), ml.load(b_ptr + k[:, None] * N + n), acc)
    acc = ml.maximum(acc, 0.0) - ml.max(acc, axis=1)[:, None]
    for start in range(0, L, BLOCK_K):
        k = start + ml.arange(0, BLOCK_K)
        acc = ml.dot(ml.load(c_ptr + m * L + k[None, :]), ml.load(b_ptr + k[:, None] * N + n), acc)
    ml.store(out_ptr + m * N + n, acc)


@zoo(
    *[
        {"k": k, "n": n, "stages": s}
        for k, n, s in (((16, 16), 16, 3), ((64, 32), 64, 3), ((96, 0), 32, 4), ((0, 48), 32, 2))
    ],
    sm80=True,
)
def two_loops_case(rng: Any, k: tuple[int, int], n: int, stages: int) -> Run:
    m = 64
    a, c = whole(rng, (m, k[0]), "f16"), whole(rng, (m, k[1]), "f16")
    b, out = whole(rng, (max(k), n), "f16"), empty((m, n), "f32")
    acc = wide(a) @ wide(b)[: k[0]]
    acc = np.maximum(acc, 0) - acc.max(1, keepdims=True) + wide(c) @ wide(b)[: k[1]]
    constants = {"M": m, "N": n, "BLOCK_K": 16}
    return Run(two_loops, (1,), (a, b, c, out, *k), [(out, exact(acc))], constants, num_stages=stages)


@mimw.kernel
def persistent_product(a_ptr, b_ptr, out_ptr, M, N, K, S: ml.constexpr, BLOCK_K: ml.constexpr):
    # Few programs walk all tiles: a product loop inside a loop, the accumulator starts anew each time.
    tiles_n = ml.cdiv(N, S)
    r = ml.arange(0, S)
    for tile in range(ml.program_id(0), ml.cdiv(M, S) * tiles_n, ml.num_programs(0)):
        m = (tile // tiles_n) * S + r
        n = (tile % tiles_n) * S + r
        acc = ml.zeros((S, S), ml.float32)
        for start in range(0, K, BLOCK_K):
            k = start + ml.arange(0, BLOCK_K)
            a = ml.load(a_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            b = ml.load(b_ptr + k[:, None] * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
            acc = ml.dot(a, b, acc)
        ml.store(out_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


@zoo(*[{"size": s, "tile": t} for s, t in (((16, 16, 16), 16), ((65, 130, 40), 64), ((100, 90, 100), 32))], sm80=True)
def persistent_product_case(rng: Any, size: tuple[int, int, int], tile: int) -> Run:
    m, n, k = size
    a, b, out = data(rng, (m, k), "bf16"), data(rng, (k, n), "bf16"), empty((m, n), "f32")
    return Run(
        persistent_product,
        (2,),
        (a, b, out, m, n, k),
        [(out, product(a, b, "ieee", "f32"))],
        {"S": tile, "BLOCK_K": 32},
    )


@mimw.kernel
def big_tile(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    # Many registers a thread, and a conversion through shared memory in pieces.
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    x = ml.load(x_ptr + at)
    y = x - ml.max(x, axis=0)[None, :]
    ml.store(out_ptr + ml.arange(0, N)[:, None] * M + ml.arange(0, M)[None, :], y.T)


@zoo(*[{"tile": t, "warps": w} for t, w in (((64, 128), 4), ((3, 1500), 2), ((128, 96), 8), ((229, 40), 4))])
def big_tile_case(rng: Any, tile: tuple[int, int], warps: int) -> Run:
    x, out = whole(rng, tile, "i32", -999, 999), empty((tile[1], tile[0]), "i32")
    return Run(
        big_tile, (1,), (x, out), [(out, exact((x - x.max(0)).T))], {"M": tile[0], "N": tile[1]}, num_warps=warps
    )


@mimw.kernel
def swap_strides(x_ptr, out_ptr, a, b, trips, S: ml.constexpr):
    # A stride of 1 is a constant at entry and a run-time value in the loop.
    r = ml.arange(0, S)
    total = ml.zeros((S, S), ml.int32)
    for i in range(trips):
        total += (i + 1) * ml.load(x_ptr + r[:, None] * a + r[None, :] * b)
        a, b = b, a
    ml.store(out_ptr + r[:, None] * S + r[None, :], total)


@zoo(
    *[{"s": s, "trips": t, "row_major": m} for s, t, m in ((1, 2, True), (17, 0, True), (17, 3, True), (32, 2, False))]
)
def swap_strides_case(rng: Any, s: int, trips: int, row_major: bool) -> Run:
    x = array(rng.integers(0, 99, (s, s)), "i32", strides=(s, 1) if row_major else (1, s))
    out = empty((s, s), "i32")
    want = sum(((i + 1) * (x if i % 2 == 0 else x.T) for i in range(trips)), np.zeros((s, s), np.int64))
    return Run(swap_strides, (1,), (x, out, *strides(x), trips), [(out, exact(want))], {"S": s})


@dataclass
class Cursor:
    """Where a scan stands."""

    at: Any
    depth: Any
    deepest: Any


@mimw.kernel
def step(c, token):
    if token == 1:
        c.depth += 1
    elif token == 2:
        c.depth -= 1
    if c.depth > c.deepest:
        c.deepest = c.depth
    c.at += 1
    return c


@mimw.kernel
def record_in_while(x_ptr, out_ptr, n):
    # Fields assigned in a nested kernel, in branches, in a while loop with an exit.
    c = Cursor(0, 0, 0)
    while c.at < n:
        c = step(c, ml.load(x_ptr + c.at))
        if c.depth < 0:
            break
    ml.store(out_ptr, c.at)
    ml.store(out_ptr + 1, c.depth)
    ml.store(out_ptr + 2, c.deepest)


@zoo(*sizes(0, 1, 6, 9))
def record_in_while_case(rng: Any, n: int) -> Run:
    x, out = array([1, 1, 0, 2, 1, 1, 2, 2, 2, 2, 1][:9], "i32"), empty(3, "i32")
    at = depth = deepest = 0
    while at < n and depth >= 0:
        depth += {0: 0, 1: 1, 2: -1}[int(x[at])]
        deepest, at = max(deepest, depth), at + 1
    return Run(record_in_while, (1,), (x, out, n), [(out, exact([at, depth, deepest]))])


@mimw.kernel
def sort_network(x_ptr, out_ptr, BLOCK: ml.constexpr):
    # Odd-even transposition by ranks: each element counts how many stand before it.
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    before = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (offs[None, :] < offs[:, None]))
    ml.store(out_ptr + ml.sum(before.to(ml.int32), axis=1), x)


@zoo(*[{"n": n, "dtype": d} for n, d in ((1, "f32"), (31, "i8"), (96, "f16"), (127, "bf16"))])
def sort_network_case(rng: Any, n: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(n, dtype)
    return Run(sort_network, (1,), (x, out), [(out, exact(np.sort(wide(x))))], {"BLOCK": n})


@mimw.kernel
def polar_parts(x_ptr, out_ptr, N: ml.constexpr):
    # Complex numbers as pairs: split, arithmetic, join, reduced over the pair.
    offs = ml.arange(0, N)[:, None] * 2 + ml.arange(0, 2)[None, :]
    x = ml.load(x_ptr + offs)
    re, im = ml.split(x)
    squared = ml.join(re * re - im * im, 2 * re * im)
    ml.store(out_ptr + offs, squared + ml.sum(x * x, axis=1)[:, None])


@zoo(*sizes(1, 33, 64, 192))
def polar_parts_case(rng: Any, n: int) -> Run:
    x, out = whole(rng, (n, 2), "f32", -99, 99), empty((n, 2), "f32")
    z = wide(x)
    want = np.stack([z[:, 0] ** 2 - z[:, 1] ** 2, 2 * z[:, 0] * z[:, 1]], 1) + (z**2).sum(1, keepdims=True)
    return Run(polar_parts, (1,), (x, out), [(out, exact(want))], {"N": n})


@mimw.kernel
def blockwise_scan(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    # A scan longer than a tile: the last element is carried from block to block.
    carry = 0.0
    for start in range(0, n, BLOCK):
        offs = start + ml.arange(0, BLOCK)
        y = ml.cumsum(ml.load(x_ptr + offs, mask=offs < n, other=0.0), axis=0) + carry
        ml.store(out_ptr + offs, y, mask=offs < n)
        carry = ml.sum(ml.where(ml.arange(0, BLOCK) == BLOCK - 1, y, 0.0), axis=0)


@zoo(*[{"n": n, "block": b} for n, b in ((0, 4), (1, 31), (500, 96), (300, 64))])
def blockwise_scan_case(rng: Any, n: int, block: int) -> Run:
    x, out = whole(rng, (n,), "f32"), empty(n, "f32")
    return Run(blockwise_scan, (1,), (x, out, n), [(out, exact(np.cumsum(wide(x))))], {"BLOCK": block})


@mimw.kernel
def stencil(x_ptr, out_ptr, rows, cols, M: ml.constexpr, N: ml.constexpr):
    # A 3 x 3 mean with clamped edges: nine loads whose offsets differ by constants, negative ones among them.
    r = ml.program_id(0) * M + ml.arange(0, M)
    c = ml.program_id(1) * N + ml.arange(0, N)
    mask = (r < rows)[:, None] & (c < cols)[None, :]
    total = ml.zeros((M, N), ml.float32)
    for dr in ml.static_range(-1, 2):
        for dc in ml.static_range(-1, 2):
            rr = ml.clamp(r + dr, 0, rows - 1)
            inside = ((c + dc >= 0) & (c + dc < cols))[None, :] & mask
            total += ml.load(x_ptr + rr[:, None] * cols + (c + dc)[None, :], mask=inside, other=0.0)
    ml.store(out_ptr + r[:, None] * cols + c[None, :], total, mask=mask)


@zoo(*[{"shape": s, "tile": t} for s, t in (((1, 1), (2, 4)), ((9, 33), (4, 32)), ((20, 50), (8, 31)))], sm80=True)
def stencil_case(rng: Any, shape: tuple[int, int], tile: tuple[int, int]) -> Run:
    x, out = whole(rng, shape, "f32"), empty(shape, "f32")
    padded = np.pad(np.pad(wide(x), ((1, 1), (0, 0)), mode="edge"), ((0, 0), (1, 1)))
    want = sum(padded[i : i + shape[0], j : j + shape[1]] for i in range(3) for j in range(3))
    grid = (mimw.cdiv(shape[0], tile[0]), mimw.cdiv(shape[1], tile[1]))
    return Run(stencil, grid, (x, out, *shape), [(out, exact(want))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def attention_backward_scores(q_ptr, k_ptr, do_ptr, v_ptr, dq_ptr, dk_ptr, S: ml.constexpr, D: ml.constexpr):
    # The products of a backward pass: one tile is used straight and transposed, in three products.
    r = ml.arange(0, S)
    d = ml.arange(0, D)
    at = r[:, None] * D + d[None, :]
    q = ml.load(q_ptr + at)
    k = ml.load(k_ptr + at)
    dp = ml.dot(ml.load(do_ptr + at), ml.trans(ml.load(v_ptr + at)))
    ds = (ml.dot(q, k.T) - dp).to(q.dtype)
    ml.store(dq_ptr + at, ml.dot(ds, k))
    ml.store(dk_ptr + at, ml.dot(ds.T, q))


@zoo(*[{"s": s, "d": d, "warps": w} for s, d, w in ((16, 16, 4), (64, 32, 4), (33, 16, 2), (64, 64, 8))], sm80=True)
def attention_backward_scores_case(rng: Any, s: int, d: int, warps: int) -> Run:
    q, k, do, v = (whole(rng, (s, d), "f16", -2, 3) for _ in range(4))
    dq, dk = empty((s, d), "f32"), empty((s, d), "f32")
    ds = wide(q) @ wide(k).T - wide(do) @ wide(v).T
    outputs = [(dq, exact(ds @ wide(k))), (dk, exact(ds.T @ wide(q)))]
    return Run(attention_backward_scores, (1,), (q, k, do, v, dq, dk), outputs, {"S": s, "D": d}, num_warps=warps)


@mimw.kernel
def block_scaled(a_ptr, b_ptr, sa_ptr, sb_ptr, out_ptr, K, M: ml.constexpr, N: ml.constexpr, BLOCK_K: ml.constexpr):
    # fp8 operands with a scale for each row and block of K: scaled between the products.
    m = ml.arange(0, M)
    n = ml.arange(0, N)
    acc = ml.zeros((M, N), ml.float32)
    for i in range(ml.cdiv(K, BLOCK_K)):
        k = i * BLOCK_K + ml.arange(0, BLOCK_K)
        a = ml.load(a_ptr + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        b = ml.load(b_ptr + n[None, :] * K + k[:, None], mask=(k < K)[:, None], other=0.0)
        sa = ml.load(sa_ptr + i * M + m)
        sb = ml.load(sb_ptr + i)
        acc += ml.dot(a, b) * (sa * sb)[:, None]
    ml.store(out_ptr + m[:, None] * N + n[None, :], acc)


@zoo(
    *[
        {"m": m, "n": n, "k": k, "dtype": d}
        for m, n, k, d in ((16, 16, 32, "e4m3"), (64, 32, 100, "e5m2"), (64, 64, 128, "e4m3"))
    ]
)
def block_scaled_case(rng: Any, m: int, n: int, k: int, dtype: str) -> Run:
    blocks = mimw.cdiv(k, 32)
    a, b = whole(rng, (m, k), dtype), whole(rng, (n, k), dtype)
    sa, sb = array(2.0 ** rng.integers(-2, 3, (blocks, m)), "f32"), array(2.0 ** rng.integers(-2, 3, blocks), "f32")
    out = empty((m, n), "f32")
    want = np.zeros((m, n))
    for i in range(blocks):
        part = slice(32 * i, 32 * i + 32)
        want += wide(a)[:, part] @ wide(b)[:, part].T * wide(sa)[i][:, None] * wide(sb)[i]
    outputs = [(out, near(want, 1, np.abs(want).max() * 2.0**-10))]
    return Run(block_scaled, (1,), (a, b, sa, sb, out, k), outputs, {"M": m, "N": n, "BLOCK_K": 32})
