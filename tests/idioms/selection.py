"""What a kernel chooses: terms while compiling, an order by a network, rows by their expert, four bits of a word."""

# pyright: basic

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

import mimw
import mimw.language as ml
from mimw.language.extra import libdevice
from tests.idioms.cases import case

rng = np.random.default_rng(11)


def normal(*shape: int, dtype=np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


@mimw.kernel
def polynomial(x, COEFFICIENTS: ml.constexpr):
    """The sum of COEFFICIENTS[i] * x**i; a coefficient of zero costs no sum."""
    DEGREE = ml.constexpr(len(COEFFICIENTS) - 1)
    ml.static_assert(DEGREE < 8, "a short polynomial")
    power = ml.full(x.shape, 1, ml.float32)
    total = ml.zeros_like(power)
    for i in ml.static_range(0, len(COEFFICIENTS)):
        if COEFFICIENTS[i]:
            total += power * COEFFICIENTS[i]
        if i < DEGREE.value:
            power *= x
    return total


@mimw.kernel
def gate(x_ptr, y_ptr, out_ptr, SIZE: ml.constexpr, COEFFICIENTS: ml.constexpr):
    """out = x * y * (1 + tanh(polynomial(x))) / 2, and one more than that in the upper half."""
    MIDDLE: ml.constexpr = ml.constexpr(SIZE // 2)
    ml.static_print("elements", SIZE)
    at = ml.arange(0, SIZE)
    x = ml.load(x_ptr + at).to(ml.float32)
    share = libdevice.tanh(polynomial(x, COEFFICIENTS)) * 0.5 + 0.5
    out = (x * share).cast(out_ptr.dtype.element_ty) * ml.load(y_ptr + at)
    if SIZE.value > 4:
        out += (at >= MIDDLE.value).to(out.dtype)
    ml.store(out_ptr + at, out)


x, y = normal(64, dtype=np.float16), normal(64, dtype=np.float16)
series = (0.0, math.sqrt(2 / math.pi), 0.0, 0.044715 * math.sqrt(2 / math.pi))
wanted = wide(x) * (1 + np.tanh(series[1] * wide(x) + series[3] * wide(x) ** 3)) / 2 * wide(y) + (np.arange(64) >= 32)
case("gate", gate, (1,), [x, y, x * 0], {2: wanted}, {"SIZE": 64, "COEFFICIENTS": series}, 4e-3)


@mimw.kernel
def bits_of(x):
    """The bits of x, of 16 or 32, as integers."""
    NARROW: ml.constexpr = ml.constexpr(x.dtype.primitive_bitwidth) == 16
    return x.to(ml.int16 if NARROW else ml.int32, bitcast=True)


@mimw.kernel
def partners(x, PAIRS: ml.constexpr):
    """For every integer the other one of its pair, in the middle dimension of PAIRS: the sum of both less itself."""
    halves = ml.reshape(x, PAIRS)
    both = ml.broadcast_to(ml.sum(halves, 1)[:, None, :], PAIRS)
    return ml.reshape(both - halves, x.shape).to(x.dtype)


@mimw.kernel
def exchange(keys, places, falling, DISTANCE: ml.constexpr):
    """Order the pairs at DISTANCE: downwards where `falling` (a tensor or a constant)."""
    pairs: ml.constexpr = [keys.numel // (2 * DISTANCE), 2, DISTANCE]
    side = ml.reshape(ml.broadcast_to(ml.arange(0, 2)[None, :, None], pairs), keys.shape)
    bits = bits_of(keys)
    facing = partners(bits, pairs)
    other = facing.to(keys.dtype, bitcast=True)
    moves = ml.where((side == 0) != falling, other < keys, other > keys)
    places += ml.where(moves, partners(places, pairs) - places, 0)
    return (bits ^ ml.where(moves, bits ^ facing, ml.zeros_like(bits))).to(keys.dtype, bitcast=True), places


@mimw.kernel
def sort(keys, LOG_SIZE: ml.constexpr, descending: ml.constexpr = False):
    """Keys in order, and where each was: runs of doubled length, by turns rising and falling."""
    ml.static_assert(keys.numel == 2**LOG_SIZE)
    index = ml.arange(0, keys.numel)
    places = index
    for run in ml.static_range(1, LOG_SIZE + 1):
        falling = descending if run == LOG_SIZE else ((index >> run) & 1) != 0
        for step in ml.static_range(run):
            keys, places = exchange(keys, places, falling, 2 ** (run - 1 - step))
    return keys, places


@mimw.kernel
def sorted_row(x_ptr, keys_ptr, places_ptr, LOG_SIZE: ml.constexpr, DOWN: ml.constexpr):
    at = ml.arange(0, 2**LOG_SIZE)
    keys, places = sort(ml.load(x_ptr + at), LOG_SIZE, descending=DOWN)
    ml.store(places_ptr + at, places)
    ml.store(keys_ptr + at, keys)


for dtype, log, down in ((np.float32, 4, False), (np.float16, 3, True)):
    x = normal(2**log, dtype=dtype)
    x[3] = -np.inf
    order = np.argsort(-x if down else x)
    args = [x, np.zeros_like(x), np.zeros(2**log, np.int32)]
    named = {"LOG_SIZE": log, "DOWN": down}
    case(f"sort_{dtype.__name__}", sorted_row, (1,), args, {1: x[order], 2: order}, named)


@mimw.kernel
def either(p, q):
    return p | q


@mimw.kernel
def lowest(x_ptr, low_ptr, place_ptr, limit, ROWS: ml.constexpr, COLUMNS: ml.constexpr):
    """Each row's least element; its place, or -1 in rows without an element above the limit."""
    rows = ml.arange(0, ROWS)
    x = ml.load(x_ptr + rows[:, None] * COLUMNS + ml.arange(0, COLUMNS)[None, :])
    low, place = ml.min(x, 1, return_indices=True, keep_dims=True)
    ml.store(low_ptr + rows[:, None], low)
    high = ml.reduce(x > limit, axis=1, combine_fn=either)
    ml.store(place_ptr + rows, ml.where(high, place.reshape(ROWS), -1))


x = normal(8, 16)
case(
    "lowest", lowest, (1,), [x, np.zeros(8, np.float32), np.zeros(8, np.int32), 1.5],
    {1: x.min(1), 2: np.where((x > 1.5).any(1), x.argmin(1), -1)}, {"ROWS": 8, "COLUMNS": 16},
)  # fmt: skip


@mimw.kernel
def one_place(x_ptr, out_ptr, SIZE: ml.constexpr):
    """Numbers, then their indices through the same shared memory."""
    place = ml.storage_alias_spec(storage=ml.storage_kind.smem)
    indices = ml.local_alloc((SIZE,), ml.int32, ml.constexpr(1), ml.storage_kind.smem, reuse=place)
    numbers = ml.local_alloc((SIZE,), ml.float32, ml.constexpr(1), ml.storage_kind.smem, reuse=place)
    at = ml.arange(0, SIZE)
    ml.local_store(numbers[0], ml.load(x_ptr + at))
    x = ml.local_load(ml.local_view(numbers, 0))
    ml.local_store(indices[0], at * at)
    ml.store(out_ptr + at, x - ml.local_load(indices[0]))


x = normal(64)
case("one_place", one_place, (1,), [x, x * 0], {1: x - np.arange(64) ** 2}, {"SIZE": 64}, targets=("sm_90a",))


@mimw.kernel
def by_expert(
    x_ptr, w_ptr, out_ptr, route_ptr, expert_ptr, routes, width, depth,
    ROWS: ml.constexpr, COLUMNS: ml.constexpr, STEP: ml.constexpr, CHOICES: ml.constexpr, KIND: ml.constexpr,
):  # fmt: skip
    """Row r of the output is row r // CHOICES of x times its expert's transposed weights. All rows of a tile have one expert; -1 marks an
    idle tile, a route past the last one a row that pads."""
    tile = ml.program_id(axis=1)
    expert = ml.load(expert_ptr + tile)
    if expert < 0:
        return
    route = ml.load(route_ptr + tile * ROWS + ml.arange(0, ROWS).to(ml.int64))
    column = ml.program_id(axis=0) * COLUMNS + ml.arange(0, COLUMNS)
    inner = ml.arange(0, STEP)
    x_row = x_ptr + (route // CHOICES)[:, None] * depth
    w_row = w_ptr + expert.to(ml.int64) * width * depth + (column % width)[None, :] * depth
    real = (route < routes)[:, None]
    sums = ml.zeros((ROWS, COLUMNS), ml.float32)
    for done in range(0, depth, STEP):
        k = done + inner
        w = ml.load(w_row + k[:, None], mask=k[:, None] < depth, other=0.0)
        sums = ml.dot(ml.load(x_row + k[None, :], mask=real & (k < depth)[None, :], other=0.0), w, sums)
    ml.store(out_ptr + route[:, None] * width + column[None, :], sums.to(KIND), mask=real & (column < width)[None, :])


tokens, weights = normal(8, 56, dtype=ml_dtypes.bfloat16), normal(2, 24, 56, dtype=ml_dtypes.bfloat16)
chosen = rng.integers(0, 2, 16)
routes = np.full((3, 16), 16, np.int32)
for tile, expert in ((0, 1), (2, 0)):
    mine = np.flatnonzero(chosen == expert)
    routes[tile, : len(mine)] = mine
wanted = np.stack([wide(weights[e]) @ wide(tokens[r // 2]) for r, e in enumerate(chosen)])
case(
    "by_expert", by_expert, (1, 3),
    [tokens, weights, np.zeros((16, 24), tokens.dtype), routes, np.array([1, -1, 0], np.int32), 16, 24, 56], {2: wanted},
    {"ROWS": 16, "COLUMNS": 32, "STEP": 32, "CHOICES": 2, "KIND": ml.bfloat16}, 3e-2,
)  # fmt: skip


@mimw.kernel
def nibbles(words, place):
    """The signed number at `place` of eight in each word, kept as itself plus 8."""
    return ((words >> (place * 4)) & 0xF) - 8


@mimw.kernel
def packed_product(
    x_ptr, words_ptr, scale_ptr, out_ptr, height, width, depth,
    ROWS: ml.constexpr, COLUMNS: ml.constexpr, STEP: ml.constexpr, PARTS: ml.constexpr,
):  # fmt: skip
    """out (zero before, when PARTS > 1) = x times 4-bit numbers times their column's scale; PARTS programs take turns along the depth."""
    tiles_m, tiles_n = ml.cdiv(height, ROWS), ml.cdiv(width, COLUMNS)
    tile = ml.program_id(0)
    m, n = ml.swizzle2d(tile // tiles_n, tile % tiles_n, tiles_m, tiles_n, 2)
    row, column = m * ROWS + ml.arange(0, ROWS), n * COLUMNS + ml.arange(0, COLUMNS)
    x_row = ml.max_contiguous(ml.multiple_of(row % height, 16), 16)
    w_column = ml.max_contiguous(ml.multiple_of(column % width, 16), 16)
    zero = ml.zeros((1, 1), dtype=out_ptr.dtype.element_ty)
    sums = ml.zeros((ROWS, COLUMNS), dtype=ml.float32)
    for turn in range(ml.cdiv(depth, STEP * PARTS)):
        k = (turn * PARTS + ml.program_id(1)) * STEP + ml.arange(0, STEP)
        x_at = x_ptr + x_row[:, None] * depth + k[None, :]
        x = ml.load(x_at, mask=k[None, :] < depth, other=zero.to(x_ptr.dtype.element_ty))
        words_at = words_ptr + (k // 8)[:, None] * width + w_column[None, :]
        words = ml.load(words_at, mask=(k < depth)[:, None], other=zero.to(ml.int32))
        sums += ml.dot(x, nibbles(words, (k % 8)[:, None]).to(x.dtype), out_dtype=ml.float32)
    sums *= ml.load(scale_ptr + w_column)[None, :]
    inside = (row < height)[:, None] & (column < width)[None, :]
    at = out_ptr + row[:, None] * width + column[None, :]
    if PARTS > 1:
        ml.atomic_add(at, sums, mask=inside)
    else:
        ml.store(at, sums, mask=inside)


x, scales = normal(48, 96, dtype=np.float16), normal(64, dtype=np.float16)
numbers = rng.integers(-8, 8, (96, 64))
words = ((numbers + 8).reshape(12, 8, 64) << np.arange(0, 32, 4)[:, None]).sum(1).astype(np.uint32).view(np.int32)
for parts in (1, 2):
    case(
        f"packed_product_{parts}", packed_product, (4, parts), [x, words, scales, np.zeros((48, 64), np.float32), 48, 64, 96],
        {3: wide(x) @ (numbers * wide(scales))}, {"ROWS": 32, "COLUMNS": 32, "STEP": 32, "PARTS": parts}, 3e-3,
    )  # fmt: skip
