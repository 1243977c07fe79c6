"""Tiles that change shape: broadcast, transpose, reshape, join, split, cat, interleave, permute, expand."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import Run, array, data, each, empty, exact, near, wide, zoo

TILES = ((4, 8), (3, 31), (16, 96), (33, 5), (1, 127), (64, 64), (127, 3))


@mimw.kernel
def outer_sum(x_ptr, y_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)
    c = ml.arange(0, N)
    x = ml.load(x_ptr + r)
    y = ml.load(y_ptr + c)
    ml.store(out_ptr + r[:, None] * N + c[None, :], x[:, None] + y[None, :])


@zoo(
    *[{"tile": t, "dtype": d} for t, d in zip(TILES, ("i32", "f32", "i8", "f16", "bf16", "u16", "f64"), strict=True)],
    sm80=True,
)
def outer_sum_case(rng: Any, tile: tuple[int, int], dtype: str) -> Run:
    x, y, out = data(rng, tile[0], dtype), data(rng, tile[1], dtype), empty(tile, dtype)
    with np.errstate(all="ignore"):
        want = x[:, None] + y[None, :] if dtype[0] in "iu" else wide(x)[:, None] + wide(y)[None, :]
    if dtype in ("f16", "bf16"):
        want = want.astype(np.float32)
    return Run(outer_sum, (1,), (x, y, out), [(out, exact(want))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def transpose_tile(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)
    c = ml.arange(0, N)
    x = ml.load(x_ptr + r[:, None] * N + c[None, :])
    ml.store(out_ptr + c[:, None] * M + r[None, :], ml.trans(x))
    ml.store(out_ptr + M * N + c[:, None] * M + r[None, :], x.T)


@zoo(
    *[{"tile": t, "dtype": d} for t, d in zip(TILES, ("i32", "f16", "i8", "f32", "bf16", "f16", "i64"), strict=True)],
    sm80=True,
)
def transpose_tile_case(rng: Any, tile: tuple[int, int], dtype: str) -> Run:
    x, out = data(rng, tile, dtype), empty((2, tile[1], tile[0]), dtype)
    return Run(transpose_tile, (1,), (x, out), [(out, exact(np.stack([x.T, x.T])))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def reshape_tile(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr, P: ml.constexpr, Q: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :])
    y = ml.reshape(x, (P, Q))
    # Made visible in the tile's own coordinates: a wrong order would pair wrong elements.
    y = y * 1000 + ml.arange(0, P)[:, None] * Q + ml.arange(0, Q)[None, :]
    ml.store(out_ptr + ml.arange(0, P)[:, None] * Q + ml.arange(0, Q)[None, :], y)


@zoo(
    *[
        {"a": a, "b": b}
        for a, b in (
            ((4, 8), (8, 4)),
            ((3, 32), (96, 1)),
            ((6, 15), (10, 9)),
            ((1, 192), (64, 3)),
            ((31, 4), (2, 62)),
            ((64, 32), (16, 128)),
        )
    ],
    sm80=True,
)
def reshape_tile_case(rng: Any, a: tuple[int, int], b: tuple[int, int]) -> Run:
    x, out = data(rng, a, "i32"), empty(b, "i32")
    with np.errstate(all="ignore"):
        want = x.reshape(b) * np.int32(1000) + np.arange(b[0] * b[1], dtype=np.int32).reshape(b)
    return Run(reshape_tile, (1,), (x, out), [(out, exact(want))], {"M": a[0], "N": a[1], "P": b[0], "Q": b[1]})


@mimw.kernel
def flatten_and_back(x_ptr, out_ptr, A: ml.constexpr, B: ml.constexpr, C: ml.constexpr):
    offs = (
        ml.arange(0, A)[:, None, None] * (B * C) + ml.arange(0, B)[None, :, None] * C + ml.arange(0, C)[None, None, :]
    )
    x = ml.load(x_ptr + offs)
    flat = x.ravel() + ml.arange(0, A * B * C)
    ml.store(out_ptr + offs, flat.reshape(A, B, C))


@zoo(*each("shape", ((2, 4, 8), (3, 5, 7), (1, 33, 2), (4, 1, 31))))
def flatten_and_back_case(rng: Any, shape: tuple[int, int, int]) -> Run:
    x, out = data(rng, shape, "i32"), empty(shape, "i32")
    with np.errstate(all="ignore"):
        want = x + np.arange(x.size, dtype=np.int32).reshape(shape)
    return Run(flatten_and_back, (1,), (x, out), [(out, exact(want))], dict(zip("ABC", shape, strict=True)))


@mimw.kernel
def permute_tile(x_ptr, out_ptr, A: ml.constexpr, B: ml.constexpr, C: ml.constexpr, ORDER: ml.constexpr):
    a = ml.arange(0, A)[:, None, None]
    b = ml.arange(0, B)[None, :, None]
    c = ml.arange(0, C)[None, None, :]
    x = ml.permute(ml.load(x_ptr + (a * B + b) * C + c), ORDER)
    P: ml.constexpr = x.shape[0]
    Q: ml.constexpr = x.shape[1]
    R: ml.constexpr = x.shape[2]
    at = (ml.arange(0, P)[:, None, None] * Q + ml.arange(0, Q)[None, :, None]) * R + ml.arange(0, R)[None, None, :]
    ml.store(out_ptr + at, x)


@zoo(*[{"shape": (4, 3, 10), "order": o} for o in ((0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0))])
def permute_tile_case(rng: Any, shape: tuple[int, int, int], order: tuple[int, int, int]) -> Run:
    x = data(rng, shape, "f16")
    want = np.array(x).transpose(order)
    out = empty(want.shape, "f16")
    return Run(
        permute_tile, (1,), (x, out), [(out, exact(want))], {**dict(zip("ABC", shape, strict=True)), "ORDER": order}
    )


@mimw.kernel
def join_and_split(x_ptr, y_ptr, joined_ptr, even_ptr, odd_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    y = ml.load(y_ptr + offs)
    z = ml.join(x, y)
    ml.store(joined_ptr + offs[:, None] * 2 + ml.arange(0, 2)[None, :], z)
    a, b = ml.split(z + 1)
    ml.store(even_ptr + offs, a)
    ml.store(odd_ptr + offs, b)


@zoo(*[{"n": n, "dtype": d} for n, d in ((3, "i32"), (64, "f16"), (96, "i8"), (127, "f32"), (192, "i64"))], sm80=True)
def join_and_split_case(rng: Any, n: int, dtype: str) -> Run:
    x, y = data(rng, n, dtype), data(rng, n, dtype)
    joined, even, odd = empty((n, 2), dtype), empty(n, dtype), empty(n, dtype)
    one = x.dtype.type(1)
    with np.errstate(all="ignore"):
        outputs = [(joined, exact(np.stack([x, y], axis=1))), (even, exact(x + one)), (odd, exact(y + one))]
    return Run(join_and_split, (1,), (x, y, joined, even, odd), outputs, {"BLOCK": n})


@mimw.kernel
def interleave_rows(x_ptr, y_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    r = ml.arange(0, M)[:, None]
    c = ml.arange(0, N)[None, :]
    z = ml.interleave(ml.load(x_ptr + r * N + c), ml.load(y_ptr + r * N + c))
    ml.store(out_ptr + r * (2 * N) + ml.arange(0, 2 * N)[None, :], z)


@zoo(*each("tile", ((1, 1), (4, 16), (5, 31), (3, 96))))
def interleave_rows_case(rng: Any, tile: tuple[int, int]) -> Run:
    x, y, out = data(rng, tile, "bf16"), data(rng, tile, "bf16"), empty((tile[0], 2 * tile[1]), "bf16")
    want = np.stack([x, y], axis=2).reshape(out.shape)
    return Run(interleave_rows, (1,), (x, y, out), [(out, exact(want))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def concatenate(x_ptr, y_ptr, out_ptr, A: ml.constexpr, B: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, A))
    y = ml.load(y_ptr + ml.arange(0, B))
    z = ml.cat(x, y)
    offs = ml.arange(0, A + B)
    ml.store(out_ptr + offs, z + offs.to(z.dtype))


@zoo(
    *[
        {"a": a, "b": b, "dtype": d}
        for a, b, d in ((8, 8, "i32"), (1, 1, "i8"), (31, 64, "i16"), (96, 33, "i64"), (128, 128, "i32"))
    ]
)
def concatenate_case(rng: Any, a: int, b: int, dtype: str) -> Run:
    x, y, out = data(rng, a, dtype), data(rng, b, dtype), empty(a + b, dtype)
    with np.errstate(all="ignore"):
        want = np.concatenate([x, y]) + np.arange(a + b).astype(x.dtype)
    return Run(concatenate, (1,), (x, y, out), [(out, exact(want))], {"A": a, "B": b})


@mimw.kernel
def broadcast_and_expand(x_ptr, out_ptr, M: ml.constexpr, N: ml.constexpr):
    c = ml.arange(0, N)
    row = ml.expand_dims(ml.load(x_ptr + c), 0)
    tile = ml.broadcast_to(row, (M, N))
    a, b = ml.broadcast(tile, ml.full((M, 1), 2, ml.int32))
    z = a * b + ml.zeros((M, N), ml.int32) + ml.zeros_like(row)
    ml.store(out_ptr + ml.arange(0, M)[:, None] * N + c[None, :], z)


@zoo(*each("tile", ((1, 3), (8, 32), (31, 33))))
def broadcast_and_expand_case(rng: Any, tile: tuple[int, int]) -> Run:
    x, out = data(rng, tile[1], "i32"), empty(tile, "i32")
    with np.errstate(all="ignore"):
        want = np.broadcast_to(x * np.int32(2), tile)
    return Run(broadcast_and_expand, (1,), (x, out), [(out, exact(want))], {"M": tile[0], "N": tile[1]})


@mimw.kernel
def rotate_pairs(x_ptr, cos_ptr, sin_ptr, out_ptr, rows, ROWS: ml.constexpr, HALF: ml.constexpr):
    # Rotary embedding on interleaved pairs: reshape, split, join.
    r = (ml.program_id(0) * ROWS + ml.arange(0, ROWS))[:, None]
    c = ml.arange(0, 2 * HALF)[None, :]
    h = ml.arange(0, HALF)[None, :]
    mask = r < rows
    x = ml.load(x_ptr + r * (2 * HALF) + c, mask=mask, other=0.0)
    even, odd = ml.split(ml.reshape(x, (ROWS, HALF, 2)))
    cos = ml.load(cos_ptr + r * HALF + h, mask=mask, other=0.0)
    sin = ml.load(sin_ptr + r * HALF + h, mask=mask, other=0.0)
    out = ml.join(ml.fma(even, cos, -(odd * sin)), ml.fma(even, sin, odd * cos))
    ml.store(out_ptr + r * (2 * HALF) + c, ml.reshape(out, (ROWS, 2 * HALF)), mask=mask)


@zoo(*[{"rows": r, "half": h} for r, h in ((1, 1), (5, 8), (13, 48), (9, 31))], sm80=True)
def rotate_pairs_case(rng: Any, rows: int, half: int) -> Run:
    x = data(rng, (rows, 2 * half), "f32")
    angle = rng.standard_normal((rows, half))
    cos, sin = array(np.cos(angle), "f32"), array(np.sin(angle), "f32")
    a, b, c, s = wide(x)[:, ::2], wide(x)[:, 1::2], wide(cos), wide(sin)
    out = empty(x.shape, "f32")
    want = np.stack([a * c - b * s, a * s + b * c], axis=2).reshape(x.shape)
    size = np.stack([np.abs(a * c) + np.abs(b * s), np.abs(a * s) + np.abs(b * c)], axis=2).reshape(x.shape)
    outputs = [(out, near(want, 1, size * 2.0**-23, engines_bitwise=True))]
    return Run(rotate_pairs, (-(-rows // 4),), (x, cos, sin, out, rows), outputs, {"ROWS": 4, "HALF": half})
