"""Loads and stores: masks and `other`, strides, transposes, tails, gathers, scalars, 64-bit addresses, empty inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import DTYPES, Run, array, data, each, empty, exact, sizes, strides, zoo


@mimw.kernel
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offsets = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offsets < n
    ml.store(out_ptr + offsets, ml.load(x_ptr + offsets, mask=mask) + ml.load(y_ptr + offsets, mask=mask), mask=mask)


@zoo(*sizes(0, 1, 33, 1000, 1024), *[{"n": 999, "warps": w} for w in (1, 2, 8, 16)], sm80=True)
def vector_add_case(rng: Any, n: int, warps: int = 4) -> Run:
    x, y, out = data(rng, n, "f32"), data(rng, n, "f32"), empty(n, "f32")
    return Run(vector_add, (mimw.cdiv(n, 256),), (x, y, out, n), [(out, exact(x + y))], {"BLOCK": 256}, num_warps=warps)


@mimw.kernel
def masked_other(x_ptr, out_ptr, n, m, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs, mask=offs < n, other=7)
    ml.store(out_ptr + offs, x, mask=offs < m)


@zoo(
    *[
        {"n": n, "m": m, "dtype": d}
        for n, m, d in (
            (0, 5, "i32"),
            (0, 0, "f16"),
            (5, 96, "u8"),
            (96, 33, "f32"),
            (31, 96, "bf16"),
            (95, 1, "f64"),
            (64, 64, "e5m2"),
            (40, 90, "i64"),
        )
    ],
    sm80=True,
)
def masked_other_case(rng: Any, n: int, m: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(96, dtype)
    want = np.array(out)
    filled = np.concatenate([x, np.full(96 - n, 7).astype(DTYPES[dtype])])
    want[:m] = filled[:m]
    return Run(masked_other, (1,), (x, out, n, m), [(out, exact(want))], {"BLOCK": 96})


@mimw.kernel
def empty_rows(x_ptr, out_ptr, rows, cols, ROWS: ml.constexpr, COLS: ml.constexpr):
    # Launched with programs that have nothing to do.
    r = ml.program_id(0) * ROWS + ml.arange(0, ROWS)[:, None]
    c = ml.arange(0, COLS)[None, :]
    mask = (r < rows) & (c < cols)
    ml.store(out_ptr + r * cols + c, ml.load(x_ptr + r * cols + c, mask=mask), mask=mask)


@zoo(*[{"rows": r, "cols": c} for r, c in ((0, 0), (0, 16), (16, 0), (1, 1), (5, 31))])
def empty_rows_case(rng: Any, rows: int, cols: int) -> Run:
    x, out = data(rng, (rows, cols), "i16"), empty((rows, cols), "i16")
    return Run(empty_rows, (3,), (x, out, rows, cols), [(out, exact(x))], {"ROWS": 8, "COLS": 32})


@mimw.kernel
def partial_store(x_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.load(x_ptr + offs), mask=offs % 3 == 0)


@zoo(*each("dtype", ("i8", "f16", "f32", "i64"), n=99))
def partial_store_case(rng: Any, dtype: str, n: int) -> Run:
    x, out = data(rng, n, dtype), empty(n, dtype)
    want = np.array(out)
    want[::3] = x[::3]
    return Run(partial_store, (1,), (x, out), [(out, exact(want))], {"BLOCK": n})


@mimw.kernel
def grid_stride_copy(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    step = ml.num_programs(0) * BLOCK
    for start in range(ml.program_id(0) * BLOCK, n, step):
        offs = start + ml.arange(0, BLOCK)
        ml.store(out_ptr + offs, ml.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@zoo(
    *[
        {"n": n, "dtype": d}
        for n, d in ((0, "f32"), (1, "i8"), (1000, "bf16"), (1003, "u8"), (2000, "f16"), (1777, "i64"))
    ],
    sm80=True,
)
def grid_stride_copy_case(rng: Any, n: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(n, dtype)
    return Run(grid_stride_copy, (3,), (x, out, n), [(out, exact(x))], {"BLOCK": 128})


@mimw.kernel
def vector_tail(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    # n is a multiple of nothing: the last vector is cut by the mask.
    offs = ml.multiple_of(ml.max_contiguous(ml.program_id(0) * BLOCK + ml.arange(0, BLOCK), BLOCK), BLOCK)
    mask = offs < n
    ml.store(out_ptr + offs, ml.load(x_ptr + offs, mask=mask, other=0), mask=mask)


@zoo(*[{"n": n, "dtype": d} for d in ("i8", "f16", "i32") for n in (257, 511, 515, 1023)])
def vector_tail_case(rng: Any, n: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(n, dtype)
    return Run(vector_tail, (mimw.cdiv(n, 512),), (x, out, n), [(out, exact(x))], {"BLOCK": 512}, num_warps=1)


@mimw.kernel
def misaligned_copy(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@zoo(
    *[
        {"a": a, "b": b, "dtype": d}
        for a, b, d in ((1, 0, "f32"), (0, 3, "i8"), (1, 1, "bf16"), (5, 2, "u8"), (1, 0, "f64"))
    ]
)
def misaligned_copy_case(rng: Any, a: int, b: int, dtype: str) -> Run:
    n = 272
    x, out = data(rng, n, dtype, offset=a), empty(n, dtype, offset=b)
    return Run(misaligned_copy, (2,), (x, out, n), [(out, exact(x))], {"BLOCK": 256})


@mimw.kernel
def strided_copy(x_ptr, out_ptr, rows, cols, sxr, sxc, sor, soc, ROWS: ml.constexpr, COLS: ml.constexpr):
    r = (ml.program_id(0) * ROWS + ml.arange(0, ROWS))[:, None]
    c = (ml.program_id(1) * COLS + ml.arange(0, COLS))[None, :]
    mask = (r < rows) & (c < cols)
    x = ml.load(x_ptr + r * sxr + c * sxc, mask=mask)
    ml.store(out_ptr + r * sor + c * soc, x, mask=mask)


SHAPES = [
    {"shape": (1, 1), "tile": (1, 1)},
    {"shape": (31, 33), "tile": (32, 32)},
    {"shape": (7, 96), "tile": (3, 96)},
    {"shape": (33, 127), "tile": (31, 64)},
    {"shape": (50, 192), "tile": (16, 176)},
    {"shape": (3, 1000), "tile": (2, 1000)},
    {"shape": (0, 9), "tile": (4, 16)},
]


@zoo(
    *[dict(s, dtype=d) for s, d in zip(SHAPES, ("f32", "bf16", "i8", "f16", "f32", "i16", "f64"), strict=True)],
    sm80=True,
)
def rows_copy_case(rng: Any, shape: tuple[int, int], tile: tuple[int, int], dtype: str) -> Run:
    rows, cols = shape
    x = data(rng, shape, dtype, strides=(cols + 5, 1))
    out = empty(shape, dtype, strides=(cols + 16, 1))
    grid = (mimw.cdiv(rows, tile[0]), mimw.cdiv(cols, tile[1]))
    args = (x, out, rows, cols, *strides(x), *strides(out))
    return Run(strided_copy, grid, args, [(out, exact(x))], {"ROWS": tile[0], "COLS": tile[1]})


@zoo(
    *[dict(s, dtype=d) for s, d in zip(SHAPES, ("i8", "f16", "f32", "bf16", "i64", "u8", "f32"), strict=True)],
    sm80=True,
)
def transpose_copy_case(rng: Any, shape: tuple[int, int], tile: tuple[int, int], dtype: str) -> Run:
    rows, cols = shape
    x = data(rng, shape, dtype, strides=(1, max(rows, 1)))
    out = empty(shape, dtype)
    grid = (mimw.cdiv(rows, tile[0]), mimw.cdiv(cols, tile[1]))
    args = (x, out, rows, cols, *strides(x), *strides(out))
    return Run(strided_copy, grid, args, [(out, exact(x))], {"ROWS": tile[0], "COLS": tile[1]})


@zoo(*[dict(s, dtype="f32") for s in SHAPES[:5]])
def every_second_case(rng: Any, shape: tuple[int, int], tile: tuple[int, int], dtype: str) -> Run:
    rows, cols = shape
    base = data(rng, (2 * rows, 3 * cols), dtype)
    x = base[1::2, 2::3]
    out = empty(shape, dtype, strides=(2 * cols + 3, 2))
    grid = (mimw.cdiv(rows, tile[0]), mimw.cdiv(cols, tile[1]))
    args = (x, out, rows, cols, *strides(x), *strides(out))
    return Run(strided_copy, grid, args, [(out, exact(x))], {"ROWS": tile[0], "COLS": tile[1]})


@mimw.kernel
def reverse(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + (n - 1 - offs), ml.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@zoo(*sizes(1, 31, 127))
def reverse_case(rng: Any, n: int) -> Run:
    x, out = data(rng, n, "bf16"), empty(n, "bf16")
    return Run(reverse, (1,), (x, out, n), [(out, exact(x[::-1]))], {"BLOCK": 128})


@mimw.kernel
def gather_rows(table_ptr, index_ptr, out_ptr, rows, width, ROWS: ml.constexpr, COLS: ml.constexpr):
    r = ml.program_id(0) * ROWS + ml.arange(0, ROWS)
    c = ml.arange(0, COLS)
    index = ml.load(index_ptr + r, mask=r < rows, other=-1)
    mask = (index >= 0)[:, None] & (c < width)[None, :]
    x = ml.load(table_ptr + index[:, None] * width + c[None, :], mask=mask, other=0.0)
    ml.store(out_ptr + r[:, None] * width + c[None, :], x, mask=(r < rows)[:, None] & (c < width)[None, :])


@zoo(
    *[
        {"rows": r, "width": w, "index": i}
        for r, w, i in ((1, 1, "i32"), (19, 33, "i64"), (40, 100, "i32"), (0, 8, "i32"))
    ],
    sm80=True,
)
def gather_rows_case(rng: Any, rows: int, width: int, index: str) -> Run:
    table = data(rng, (11, width), "f16")
    chosen = array(rng.integers(-1, 11, rows), index)
    out = empty((rows, width), "f16")
    want = np.where((np.array(chosen) >= 0)[:, None], table[np.maximum(chosen, 0)], 0).astype(np.float16)
    args = (table, chosen, out, rows, width)
    return Run(
        gather_rows,
        (mimw.cdiv(rows, 16),),
        args,
        [(out, exact(want))],
        {"ROWS": 16, "COLS": mimw.next_power_of_2(width)},
    )


@mimw.kernel
def scatter(x_ptr, index_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + ml.load(index_ptr + offs), ml.load(x_ptr + offs))


@zoo(*sizes(3, 176))
def scatter_case(rng: Any, n: int) -> Run:
    x, order, out = data(rng, n, "i8"), rng.permutation(n), empty(n, "i8")
    want = np.empty(n, np.int8)
    want[order] = x
    return Run(scatter, (1,), (x, array(order, "u32"), out), [(out, exact(want))], {"BLOCK": n})


@mimw.kernel
def pointer_chase(next_ptr, out_ptr, start, steps):
    at = start
    for i in range(steps):
        ml.store(out_ptr + i, at)
        at = ml.load(next_ptr + at)


@zoo(*[{"steps": s} for s in (0, 1, 7, 30)])
def pointer_chase_case(rng: Any, steps: int) -> Run:
    n = 32
    link = rng.permutation(n)
    out = empty(30, "i32")
    want, at = np.array(out), 5
    for i in range(steps):
        want[i], at = at, link[at]
    return Run(pointer_chase, (1,), (array(link, "i32"), out, 5, steps), [(out, exact(want))])


@mimw.kernel
def scalar_load_store(x_ptr, out_ptr, n):
    i = ml.program_id(0)
    if i < n:
        a = ml.load(x_ptr + i)
        b = ml.load(x_ptr + n - 1 - i, mask=i > 0, other=0)
        ml.store(out_ptr + i, a + b)


@zoo(*[{"n": n, "dtype": d} for n, d in ((1, "i32"), (7, "f32"), (5, "i64"), (6, "u8"), (4, "f64"))], sm80=True)
def scalar_load_store_case(rng: Any, n: int, dtype: str) -> Run:
    x, out = data(rng, n, dtype), empty(n, dtype)
    other = np.array(x[::-1])
    other[0] = 0
    with np.errstate(all="ignore"):
        return Run(scalar_load_store, (n + 2,), (x, out, n), [(out, exact(x + other))])


@mimw.kernel
def probe_i64_offset(out_ptr, wrapped_ptr, idx, stride):
    # 319 x 7,864,320 leaves i32: the product wraps there, and does not in i64.
    ml.store(out_ptr, idx.to(ml.int64) * stride)
    ml.store(wrapped_ptr, idx * stride)


@zoo({})
def probe_i64_offset_case(rng: Any) -> Run:
    out, wrapped = empty(1, "i64"), empty(1, "i32")
    product = 319 * 7_864_320
    outputs = [(out, exact([product])), (wrapped, exact([product - 2**32]))]
    return Run(probe_i64_offset, (1,), (out, wrapped, 319, 7_864_320), outputs)


@mimw.kernel
def far_pointer(x_ptr, out_ptr, far, BLOCK: ml.constexpr):
    # There and back by more than 2^31 elements: only the sum is an address.
    offs = ml.arange(0, BLOCK)
    away = x_ptr + offs.to(ml.int64) * far
    ml.store(out_ptr + offs, ml.load(away - offs.to(ml.int64) * (far - 1)))
    block = out_ptr + BLOCK + far
    ml.store(block + offs - far, ml.load(x_ptr + offs))


@zoo(*[{"far": f, "dtype": d} for f, d in ((2**31, "f32"), (3 * 2**31 + 7, "i8"), (-(2**33), "i64"))], sm80=True)
def far_pointer_case(rng: Any, far: int, dtype: str) -> Run:
    n = 48
    x, out = data(rng, n, dtype), empty(2 * n, dtype)
    return Run(far_pointer, (1,), (x, out, far), [(out, exact(np.concatenate([x, x])))], {"BLOCK": n})


@mimw.kernel
def widened_offsets(x_ptr, out_ptr, big, BLOCK: ml.constexpr):
    # ptr + i32 widens before it is scaled by the element size: 2^29 f64 elements are 2^32 bytes.
    offs = ml.arange(0, BLOCK)
    p = x_ptr + big
    p = p + big
    p = p - big
    ml.store(out_ptr + offs, ml.load(p - big + offs))


@zoo(*each("dtype", ("f64", "i64", "f32")))
def widened_offsets_case(rng: Any, dtype: str) -> Run:
    x, out = data(rng, 31, dtype), empty(31, dtype)
    return Run(widened_offsets, (1,), (x, out, 2**29 + 3), [(out, exact(x))], {"BLOCK": 31})


@mimw.kernel
def tile_scheduler(out_ptr, tiles, heads, batch):
    # The index arithmetic of a tile scheduler at long context: more than 2^31 tiles.
    last = tiles.to(ml.int64) * heads * batch - 1
    ml.store(out_ptr + 0, last // (tiles.to(ml.int64) * heads))
    ml.store(out_ptr + 1, last // tiles % heads)
    ml.store(out_ptr + 2, last % tiles)
    ml.store(out_ptr + 3, last)


@zoo({})
def tile_scheduler_case(rng: Any) -> Run:
    tiles, heads, batch = 1 << 20, 129, 64
    out = empty(4, "i64")
    want = [batch - 1, heads - 1, tiles - 1, tiles * heads * batch - 1]
    return Run(tile_scheduler, (1,), (out, tiles, heads, batch), [(out, exact(want))])


@mimw.kernel
def bool_memory(x_ptr, y_ptr, and_ptr, count_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    y = ml.load(y_ptr + offs)
    both = x & ~y
    ml.store(and_ptr + offs, both)
    ml.store(count_ptr, ml.sum(ml.where(both, 1, 0), axis=0))


@zoo(*sizes(3, 96, 192))
def bool_memory_case(rng: Any, n: int) -> Run:
    x, y, out, count = data(rng, n, "bool"), data(rng, n, "bool"), empty(n, "bool"), empty(1, "i32")
    want = x & ~y
    return Run(bool_memory, (1,), (x, y, out, count), [(out, exact(want)), (count, exact([want.sum()]))], {"BLOCK": n})


@mimw.kernel
def in_place(x_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    ml.store(x_ptr + offs, ml.load(x_ptr + offs, mask=mask) + 1, mask=mask)


@zoo(*sizes(1, 300))
def in_place_case(rng: Any, n: int) -> Run:
    x = array(rng.integers(0, 100, n), "i32")
    return Run(in_place, (mimw.cdiv(n, 64),), (x, n), [(x, exact(np.array(x) + 1))], {"BLOCK": 64}, num_warps=2)


@mimw.kernel
def overlapping_views(a_ptr, b_ptr, n, BLOCK: ml.constexpr):
    # a and b are halves of one array: swap them.
    offs = ml.arange(0, BLOCK)
    a = ml.load(a_ptr + offs, mask=offs < n)
    b = ml.load(b_ptr + offs, mask=offs < n)
    ml.store(a_ptr + offs, b, mask=offs < n)
    ml.store(b_ptr + offs, a, mask=offs < n)


@zoo(*sizes(33, 64))
def overlapping_views_case(rng: Any, n: int) -> Run:
    both = data(rng, 2 * n, "f32")
    a, b = both[:n], both[n:]
    return Run(overlapping_views, (1,), (a, b, n), [(a, exact(np.array(b))), (b, exact(np.array(a)))], {"BLOCK": 64})


@mimw.kernel
def grid_of_three(out_ptr, nx, ny):
    x = ml.program_id(0)
    y = ml.program_id(1)
    z = ml.program_id(2)
    at = (z * ny + y) * nx + x
    ml.store(out_ptr + at, at + 1000 * ml.num_programs(0) + 100000 * ml.num_programs(2) * ml.num_programs(1))


@zoo(*each("grid", ((1, 1, 1), (3, 2, 5))))
def grid_of_three_case(rng: Any, grid: tuple[int, int, int]) -> Run:
    n = grid[0] * grid[1] * grid[2]
    out = empty(n, "i32")
    want = np.arange(n) + 1000 * grid[0] + 100000 * grid[2] * grid[1]
    return Run(grid_of_three, grid, (out, grid[0], grid[1]), [(out, exact(want))], num_warps=1)


@mimw.kernel
def cache_hints(x_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    a = ml.load(x_ptr + offs, cache_modifier=".ca", eviction_policy="evict_last")
    b = ml.load(x_ptr + offs, cache_modifier=".cg", eviction_policy="evict_first")
    c = ml.load(x_ptr + offs, volatile=True)
    ml.store(out_ptr + offs, a + b + c, cache_modifier=".cs")


@zoo(*sizes(128, 33))
def cache_hints_case(rng: Any, n: int) -> Run:
    x, out = data(rng, 2 * n, "i32"), empty(2 * n, "i32")
    with np.errstate(all="ignore"):
        return Run(cache_hints, (2,), (x, out), [(out, exact(x * np.int32(3)))], {"BLOCK": n})
