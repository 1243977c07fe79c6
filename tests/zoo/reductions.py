"""Reductions and scans: every usual function and the user's own, along each axis, odd sizes, ties, NaN, replicated tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import DTYPES, Run, Want, array, data, each, empty, exact, is_float, near, sizes, wide, zoo

ODD = (1, 3, 31, 33, 96, 127, 176, 192, 1000)


@mimw.kernel
def sum_all(x_ptr, out_ptr, BLOCK: ml.constexpr):
    ml.store(out_ptr, ml.sum(ml.load(x_ptr + ml.arange(0, BLOCK)), axis=0))


@zoo(
    *sizes(*ODD),
    *[{"n": 100, "dtype": d} for d in ("i8", "u16", "i64", "f64", "bool")],
    *[{"n": 192, "warps": w} for w in (1, 2, 8, 16)],
    sm80=True,
)
def sum_all_case(rng: Any, n: int, dtype: str = "i32", warps: int = 4) -> Run:
    x = data(rng, n, dtype)
    to = {"i8": "i32", "u16": "u32", "bool": "i32"}.get(dtype, dtype)
    out = empty(1, to)
    if dtype == "f64":
        want = near([wide(x).sum()], 1, n * 2.0**-52 * np.abs(x).sum())
    else:
        want = exact(np.array([x.astype(DTYPES[to]).sum(dtype=DTYPES[to])]))
    return Run(sum_all, (1,), (x, out), [(out, want)], {"BLOCK": n}, num_warps=warps)


@mimw.kernel
def reduce_2d(x_ptr, sum_ptr, max_ptr, min_ptr, M: ml.constexpr, N: ml.constexpr, AXIS: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :])
    s = ml.sum(x, axis=AXIS)
    at = ml.arange(0, s.shape[0])
    ml.store(sum_ptr + at, s)
    ml.store(max_ptr + at, ml.max(x, axis=AXIS))
    ml.store(min_ptr + at, x.min(axis=AXIS))


TILES = ((1, 1), (3, 31), (8, 32), (33, 7), (16, 96), (2, 127), (176, 3), (64, 64))


@zoo(
    *[
        {"tile": t, "axis": a, "dtype": d}
        for t, d in zip(TILES, ("i32", "f32", "i64", "f16", "i32", "f32", "i32", "f32"), strict=True)
        for a in (0, 1)
    ],
    sm80=True,
)
def reduce_2d_case(rng: Any, tile: tuple[int, int], axis: int, dtype: str) -> Run:
    x = data(rng, tile, dtype)
    n = tile[1 - axis]
    total, high, low = empty(n, dtype), empty(n, dtype), empty(n, dtype)
    if is_float(dtype):
        step = 2.0 ** (-10 if dtype == "f16" else -23)
        first: Want = near(wide(x).sum(axis), 1, np.abs(wide(x)).sum(axis) * step * (tile[axis] - 1))
    else:
        first = exact(x.sum(axis, dtype=x.dtype))
    outputs = [(total, first), (high, exact(x.max(axis))), (low, exact(x.min(axis)))]
    return Run(reduce_2d, (1,), (x, total, high, low), outputs, {"M": tile[0], "N": tile[1], "AXIS": axis})


@mimw.kernel
def reduce_none(x_ptr, out_ptr, keep_ptr, M: ml.constexpr, N: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :])
    ml.store(out_ptr, ml.sum(x))
    ml.store(out_ptr + 1, ml.max(x))
    # keep_dims: the result broadcasts against the tile.
    centred = x - ml.max(x, axis=1, keep_dims=True) + ml.sum(x, keep_dims=True)
    ml.store(keep_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :], centred)


@zoo(*each("tile", TILES))
def reduce_none_case(rng: Any, tile: tuple[int, int]) -> Run:
    x, out, keep = array(rng.integers(-999, 999, tile), "i32"), empty(2, "i32"), empty(tile, "i32")
    want = x - x.max(1, keepdims=True) + x.sum()
    outputs = [(out, exact([x.sum(), x.max()])), (keep, exact(want))]
    return Run(reduce_none, (1,), (x, out, keep), outputs, {"M": tile[0], "N": tile[1]})


@mimw.kernel
def replicated_sum(x_ptr, out_ptr, cols_ptr, M: ml.constexpr, N: ml.constexpr):
    # The row stands in all M rows of the tile, in registers or lanes that hold copies: each copy must count M times, not more.
    row = ml.load(x_ptr + ml.arange(0, N))
    tile = ml.broadcast_to(row[None, :], (M, N))
    ml.store(out_ptr, ml.sum(tile))
    ml.store(cols_ptr + ml.arange(0, N), ml.sum(tile, axis=0))
    ml.store(out_ptr + 1, ml.sum(ml.full((M, N), 1, ml.int32)))


@zoo(*each("tile", ((1, 1), (2, 3), (8, 16), (31, 33), (5, 192), (127, 2))), sm80=True)
def replicated_sum_case(rng: Any, tile: tuple[int, int]) -> Run:
    m, n = tile
    x, out, cols = array(rng.integers(-99, 99, n), "i32"), empty(2, "i32"), empty(n, "i32")
    outputs = [(out, exact([m * x.sum(), m * n])), (cols, exact(m * x))]
    return Run(replicated_sum, (1,), (x, out, cols), outputs, {"M": m, "N": n})


@mimw.kernel
def arg_extremes(x_ptr, imax_ptr, imin_ptr, value_ptr, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)
    x = ml.load(x_ptr + r[:, None] * N + ml.arange(0, N)[None, :])
    ml.store(imax_ptr + r, ml.argmax(x, axis=1))
    ml.store(imin_ptr + r, ml.argmin(x, axis=1))
    value, index = ml.max(x, axis=1, return_indices=True)
    ml.store(value_ptr + r, value)
    ml.store(imax_ptr + M + r, index)


@zoo(
    *[
        {"tile": t, "dtype": d}
        for t, d in zip(TILES, ("i32", "f32", "i64", "f32", "i8", "f64", "i32", "u32"), strict=True)
    ],
    sm80=True,
)
def arg_extremes_case(rng: Any, tile: tuple[int, int], dtype: str) -> Run:
    # Few distinct values: ties everywhere, the smallest index wins.
    x = array(rng.integers(0, 5, tile), dtype)
    high, low, value = empty((2, tile[0]), "i32"), empty(tile[0], "i32"), empty(tile[0], dtype)
    best = x.argmax(1)
    outputs = [(high, exact(np.stack([best, best]))), (low, exact(x.argmin(1))), (value, exact(x.max(1)))]
    return Run(arg_extremes, (1,), (x, high, low, value), outputs, {"M": tile[0], "N": tile[1]})


@mimw.kernel
def arg_flat(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :])
    ml.store(out_ptr, ml.argmax(x, axis=None))
    ml.store(out_ptr + 1, ml.argmin(ml.reshape(x, (M * N,)), axis=0))


@zoo(*each("tile", ((1, 3), (7, 9), (16, 32))))
def arg_flat_case(rng: Any, tile: tuple[int, int]) -> Run:
    x, out = array(rng.integers(0, 9, tile), "f32"), empty(2, "i32")
    return Run(arg_flat, (1,), (x, out), [(out, exact([x.argmax(), x.argmin()]))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def maximum_propagating(a, b):
    return ml.maximum(a, b, propagate_nan=ml.PropagateNan.ALL)


@mimw.kernel
def reduce_nan(x_ptr, max_ptr, min_ptr, all_ptr, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)
    x = ml.load(x_ptr + r[:, None] * N + ml.arange(0, N)[None, :])
    ml.store(max_ptr + r, ml.max(x, axis=1))
    ml.store(min_ptr + r, ml.min(x, axis=1))
    ml.store(all_ptr + r, ml.reduce(x, 1, maximum_propagating))


@zoo(*each("n", (3, 8, 33)))
def reduce_nan_case(rng: Any, n: int) -> Run:
    x = rng.standard_normal((6, n)).astype(np.float32)
    x[0, 0] = x[1, -1] = x[5, n // 2] = np.nan
    x[2] = np.nan
    x[3, 0], x[3, -1], x[4], x[5, 0] = np.inf, -np.inf, -np.inf, np.inf
    high, low, every = empty(6, "f32"), empty(6, "f32"), empty(6, "f32")
    outputs = [
        (high, exact(np.fmax.reduce(x, 1))),
        (low, exact(np.fmin.reduce(x, 1))),
        (every, exact(np.maximum.reduce(x, 1))),
    ]
    return Run(reduce_nan, (1,), (array(x, "f32"), high, low, every), outputs, {"M": 6, "N": n})


@mimw.kernel
def either(a, b):
    return a | b


@mimw.kernel
def custom_reduce(x_ptr, out_ptr, BLOCK: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, BLOCK))
    ml.store(out_ptr, ml.reduce(x, 0, either))
    ml.store(out_ptr + 1, ml.xor_sum(x, axis=0))


@zoo(*[{"n": n, "dtype": d} for n, d in ((1, "u32"), (31, "i64"), (96, "u32"), (1000, "i32"))])
def custom_reduce_case(rng: Any, n: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(2, dtype)
    x &= rng.integers(0, 2**20, n).astype(x.dtype)
    return Run(
        custom_reduce, (1,), (x, out), [(out, exact([np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]))], {"BLOCK": n}
    )


@mimw.kernel
def combine_welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    delta = mean_b - mean_a
    count = count_a + count_b
    share = ml.where(count == 0.0, 0.0, count_b / count)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * count_a * share, count


@mimw.kernel
def welford(x_ptr, mean_ptr, var_ptr, n, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)
    c = ml.arange(0, N)[None, :]
    mask = c < n
    x = ml.load(x_ptr + r[:, None] * n + c, mask=mask, other=0.0)
    count = ml.where(mask, 1.0, 0.0) + ml.zeros_like(x)
    mean, m2, total = ml.reduce((x, ml.zeros_like(x), count), 1, combine_welford)
    ml.store(mean_ptr + r, mean)
    ml.store(var_ptr + r, m2 / total)


@zoo(*[{"m": m, "n": n, "block": b} for m, n, b in ((1, 1, 4), (3, 33, 64), (7, 100, 100), (4, 500, 512))])
def welford_case(rng: Any, m: int, n: int, block: int) -> Run:
    x = array(rng.standard_normal((m, n)) + 3, "f32")
    mean, var = empty(m, "f32"), empty(m, "f32")
    a = wide(x)
    outputs = [(mean, near(a.mean(1), 8, 2e-6)), (var, near(a.var(1), 16, 1e-5))]
    return Run(welford, (1,), (x, mean, var, n), outputs, {"M": m, "N": block})


@mimw.kernel
def reduce_3d(x_ptr, out_ptr, A: ml.constexpr, B: ml.constexpr, C: ml.constexpr):
    a = ml.arange(0, A)
    c = ml.arange(0, C)
    x = ml.load(x_ptr + (a[:, None, None] * B + ml.arange(0, B)[None, :, None]) * C + c[None, None, :])
    ml.store(out_ptr + a[:, None] * C + c[None, :], ml.sum(x, axis=1))


@zoo(*each("shape", ((2, 4, 8), (3, 7, 5), (1, 33, 4))))
def reduce_3d_case(rng: Any, shape: tuple[int, int, int]) -> Run:
    x, out = data(rng, shape, "i32"), empty((shape[0], shape[2]), "i32")
    return Run(
        reduce_3d, (1,), (x, out), [(out, exact(x.sum(1, dtype=np.int32)))], dict(zip("ABC", shape, strict=True))
    )


@mimw.kernel
def accumulate_then_reduce(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    total = ml.zeros((BLOCK,), ml.int64)
    for start in range(0, n, BLOCK):
        offs = start + ml.arange(0, BLOCK)
        total += ml.load(x_ptr + offs, mask=offs < n, other=0)
    ml.store(out_ptr, ml.sum(total, axis=0))


@zoo(*sizes(0, 1, 100, 1000))
def accumulate_then_reduce_case(rng: Any, n: int) -> Run:
    x, out = data(rng, n, "i32"), empty(1, "i64")
    return Run(accumulate_then_reduce, (1,), (x, out, n), [(out, exact([x.sum(dtype=np.int64)]))], {"BLOCK": 96})


@mimw.kernel
def histogram(x_ptr, out_ptr, n, BINS: ml.constexpr, BLOCK: ml.constexpr):
    bins = ml.arange(0, BINS)
    counts = ml.zeros((BINS,), ml.int32)
    for start in range(0, n, BLOCK):
        offs = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + offs, mask=offs < n, other=-1)
        counts += ml.sum((x[:, None] == bins[None, :]).to(ml.int32), axis=0)
    ml.store(out_ptr + bins, counts)


@zoo(*[{"n": n, "bins": b} for n, b in ((1, 1), (100, 10), (200, 33))])
def histogram_case(rng: Any, n: int, bins: int) -> Run:
    x, out = array(rng.integers(0, bins, n), "i32"), empty(bins, "i32")
    return Run(
        histogram, (1,), (x, out, n), [(out, exact(np.bincount(x, minlength=bins)))], {"BINS": bins, "BLOCK": 32}
    )


# Scans.


@mimw.kernel
def running_sum(x_ptr, out_ptr, back_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    ml.store(out_ptr + offs, ml.cumsum(x, axis=0))
    ml.store(back_ptr + offs, ml.cumsum(x, axis=0, reverse=True))


@zoo(
    *sizes(*ODD),
    *[{"n": 96, "dtype": d} for d in ("bool", "i8", "i64", "u32")],
    *[{"n": 200, "warps": w} for w in (1, 2, 8)],
    sm80=True,
)
def running_sum_case(rng: Any, n: int, dtype: str = "i32", warps: int = 4) -> Run:
    x = data(rng, n, dtype)
    to = {"bool": "i32", "i8": "i32"}.get(dtype, dtype)
    out, back = empty(n, to), empty(n, to)
    y = x.astype(DTYPES[to])
    forward, backward = np.cumsum(y, dtype=y.dtype), np.cumsum(y[::-1], dtype=y.dtype)[::-1]
    return Run(
        running_sum,
        (1,),
        (x, out, back),
        [(out, exact(forward)), (back, exact(backward))],
        {"BLOCK": n},
        num_warps=warps,
    )


@mimw.kernel
def scan_2d(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr, AXIS: ml.constexpr, REVERSE: ml.constexpr):
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    ml.store(out_ptr + at, ml.cumsum(ml.load(x_ptr + at), axis=AXIS, reverse=REVERSE))


@zoo(
    *[
        {"tile": t, "axis": a, "reverse": r}
        for t, a, r in (
            ((1, 1), 0, False),
            ((4, 32), 1, False),
            ((4, 32), 0, True),
            ((33, 5), 0, False),
            ((3, 127), 1, True),
            ((64, 16), 0, False),
            ((7, 96), 1, False),
        )
    ]
)
def scan_2d_case(rng: Any, tile: tuple[int, int], axis: int, reverse: bool) -> Run:
    x, out = data(rng, tile, "i32"), empty(tile, "i32")
    y = np.flip(np.array(x), axis) if reverse else x
    want = np.cumsum(y, axis, dtype=np.int32)
    want = np.flip(want, axis) if reverse else want
    return Run(
        scan_2d, (1,), (x, out), [(out, exact(want))], {"M": tile[0], "N": tile[1], "AXIS": axis, "REVERSE": reverse}
    )


@mimw.kernel
def float_scan(x_ptr, sum_ptr, prod_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    ml.store(sum_ptr + offs, ml.cumsum(x, axis=0))
    ml.store(prod_ptr + offs, ml.cumprod(x, axis=0))


@zoo(*sizes(3, 33, 176))
def float_scan_case(rng: Any, n: int) -> Run:
    x = array(rng.uniform(0.9, 1.1, n) * rng.choice([-1, 1], n), "f32")
    total, product = empty(n, "f32"), empty(n, "f32")
    a = wide(x)
    p = np.cumprod(a)
    outputs = [
        (total, near(np.cumsum(a), 1, np.cumsum(np.abs(a)) * n * 2.0**-24)),
        (product, near(p, 1, np.abs(p) * n * 2.0**-24)),
    ]
    return Run(float_scan, (1,), (x, total, product), outputs, {"BLOCK": n})


@mimw.kernel
def affine(a0, b0, a1, b1):
    return a1 * a0, a1 * b0 + b1


@mimw.kernel
def linear_recurrence(a_ptr, b_ptr, out_ptr, BLOCK: ml.constexpr):
    # h[t] = a[t] * h[t-1] + b[t]: associative, not commutative.
    offs = ml.arange(0, BLOCK)
    _, h = ml.associative_scan((ml.load(a_ptr + offs), ml.load(b_ptr + offs)), 0, affine)
    ml.store(out_ptr + offs, h)


@zoo(*sizes(1, 31, 96, 192), sm80=True)
def linear_recurrence_case(rng: Any, n: int) -> Run:
    a, b, out = data(rng, n, "i32"), data(rng, n, "i32"), empty(n, "i32")
    want, h = [], 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        h = (x * h + y) & 0xFFFFFFFF
        want.append(h)
    return Run(
        linear_recurrence, (1,), (a, b, out), [(out, exact(np.array(want, np.uint32).view(np.int32)))], {"BLOCK": n}
    )


@mimw.kernel
def take_last_set(v0, set0, v1, set1):
    return ml.where(set1, v1, v0), set0 | set1


@mimw.kernel
def fill_forward(x_ptr, valid_ptr, out_ptr, REVERSE: ml.constexpr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    valid = ml.load(valid_ptr + offs)
    filled, _ = ml.associative_scan((ml.where(valid, x, 0.0), valid), 0, take_last_set, reverse=REVERSE)
    ml.store(out_ptr + offs, filled)


@zoo(*[{"n": n, "reverse": r} for n in (3, 33, 127) for r in (False, True)])
def fill_forward_case(rng: Any, n: int, reverse: bool) -> Run:
    x, valid, out = data(rng, n, "f32"), data(rng, n, "bool"), empty(n, "f32")
    want, last = np.zeros(n, np.float32), np.float32(0)
    for i in range(n)[::-1] if reverse else range(n):
        last = x[i] if valid[i] else last
        want[i] = last
    return Run(fill_forward, (1,), (x, valid, out), [(out, exact(want))], {"REVERSE": reverse, "BLOCK": n})


@mimw.kernel
def compact(x_ptr, out_ptr, count_ptr, BLOCK: ml.constexpr):
    # Stream compaction: the running count of what is kept gives the place.
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    keep = x > 0
    place = ml.cumsum(keep.to(ml.int32), axis=0) - 1
    ml.store(out_ptr + place, x, mask=keep)
    ml.store(count_ptr, ml.sum(keep, axis=0))


@zoo(*sizes(1, 96, 200))
def compact_case(rng: Any, n: int) -> Run:
    x, out, count = data(rng, n, "i16"), empty(n, "i16"), empty(1, "i32")
    kept = x[x > 0]
    want = np.array(out)
    want[: len(kept)] = kept
    return Run(compact, (1,), (x, out, count), [(out, exact(want)), (count, exact([len(kept)]))], {"BLOCK": n})


@mimw.kernel
def scalar_reduce_loop(x_ptr, out_ptr, rows, N: ml.constexpr):
    best = -1
    at = 0
    for r in range(rows):
        s = ml.max(ml.load(x_ptr + r * N + ml.arange(0, N)), axis=0)
        if s > best:
            best = s
            at = r
    ml.store(out_ptr, best)
    ml.store(out_ptr + 1, at)


@zoo(*[{"rows": r, "n": n} for r, n in ((0, 4), (1, 3), (9, 33))])
def scalar_reduce_loop_case(rng: Any, rows: int, n: int) -> Run:
    x, out = array(rng.integers(0, 1000, (rows, n)), "i32"), empty(2, "i32")
    best = [int(x.max()), int(x.max(1).argmax())] if rows else [-1, 0]
    return Run(scalar_reduce_loop, (1,), (x, out, rows), [(out, exact(best))], {"N": n})
