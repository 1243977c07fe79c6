# pyright: basic
"""Layers that models are made of: norms, gates, losses, rotations, tables of rows, quantisation, counts, convolution. Tile layer only."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import mimw
import mimw.language as ml
from mimw.language.extra import libdevice
from tests.idioms.cases import case

rng = np.random.default_rng(34)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Normal numbers."""
    return rng.standard_normal(shape).astype(dtype)


@mimw.kernel
def rms_norm(
    x_ptr, gain_ptr, out_ptr, inverse_ptr, x_stride, out_stride, width, eps, shift,
    PRECISION: ml.constexpr, BLOCK: ml.constexpr,
):  # fmt: skip
    """out = x / sqrt(mean(x^2) + eps) * (gain + shift), a row a program: all in x's type ("own"), the quotient in f32 ("quotient"), or all ("wide")."""
    columns = ml.arange(0, BLOCK)
    inside = columns < width
    row = ml.program_id(0).to(ml.int64)
    gain = ml.load(gain_ptr + columns, mask=inside, other=0)
    x = ml.load(x_ptr + row * x_stride + columns, mask=inside, other=0)
    narrow = x.dtype
    if PRECISION == "own":
        eps, shift = eps.to(narrow), shift.to(narrow)
    else:
        x = x.to(ml.float32)
    inverse = ml.math.rsqrt(eps + ml.sum(x * x, axis=0) / width)
    x *= inverse
    if PRECISION == "wide":
        gain = gain.to(ml.float32)
    else:
        x = x.to(narrow)
    ml.store(out_ptr + row * out_stride + columns, (x * (gain + shift)).to(narrow), mask=inside)
    ml.store(inverse_ptr + row, inverse)


def norm_case(precision: str, tol: float) -> None:
    """List `rms_norm` of bf16 rows."""
    x, gain = normal(4, 100, dtype=ml_dtypes.bfloat16), normal(100, dtype=ml_dtypes.bfloat16)
    exact = x.astype(np.float64)
    inverse = 1 / np.sqrt((exact**2).mean(1) + 1e-5)
    case(
        f"rms_norm_{precision}",
        rms_norm,
        (4,),
        [x, gain, np.zeros((4, 104), x.dtype), np.zeros(4, np.float32), 100, 104, 100, 1e-5, 0.5],
        {2: np.pad(exact * inverse[:, None] * (gain.astype(np.float64) + 0.5), ((0, 0), (0, 4))), 3: inverse},
        {"PRECISION": precision, "BLOCK": 128},
        tol,
    )


norm_case("own", 3e-2)
norm_case("quotient", 2e-2)
norm_case("wide", 1e-2)


@mimw.kernel
def swish(x):
    """x times its logistic function."""
    return ml.sigmoid(x) * x


@mimw.kernel
def gated_rows(gate_ptr, x_ptr, out_ptr, stride, WIDTH: ml.constexpr, BLOCK: ml.constexpr):
    """out = swish(gate) * x, a row a program."""
    columns = ml.arange(0, BLOCK)
    begin = ml.program_id(0).to(ml.int64) * stride
    gate_ptr += begin
    gate = ml.load(gate_ptr + columns, mask=columns < WIDTH, other=0).to(ml.float32)
    x_ptr += begin
    x = ml.load(x_ptr + columns, mask=columns < WIDTH, other=0)
    out_ptr += begin
    ml.store(out_ptr + columns, x * swish(gate).cast(x.dtype), mask=columns < WIDTH)


gate, x = normal(3, 50), normal(3, 50)
swished = gate / (1 + np.exp(-gate.astype(np.float64)))
case("gated_rows", gated_rows, (3,), [gate, x, np.zeros_like(x), 50], {2: swished * x}, {"WIDTH": 50, "BLOCK": 64})


@mimw.kernel
def capped(x, cap):
    """`x` bent towards plus and minus `cap`; as it is without one."""
    if cap is None:
        return x
    return cap * libdevice.tanh(x / cap)


@mimw.kernel
def logits(x_ptr, start, classes, cap, BLOCK: ml.constexpr):
    """A block of a row of logits: its columns, which of them there are, and the numbers (anything where there are none)."""
    columns = start + ml.arange(0, BLOCK)
    inside = columns < classes
    return columns, inside, capped(ml.load(x_ptr + columns, inside, other=0.0).cast(ml.float32), cap)


@mimw.kernel
def clear(x_ptr, count, BLOCK: ml.constexpr):
    """Zeros into `count` elements."""
    for start in range(0, count, BLOCK):
        ml.store(x_ptr + start + ml.arange(0, BLOCK), 0.0, mask=ml.arange(0, BLOCK) < count - start)


@mimw.kernel
def label_loss(
    x_ptr, label_ptr, loss_ptr, x_stride, label_stride, loss_stride, classes, labelled, ignored, cap,
    SMOOTHING: ml.constexpr, REDUCTION: ml.constexpr, BLOCK: ml.constexpr,
):  # fmt: skip
    """Cross-entropy of a row of logits with its label, of which every class gets an equal part of SMOOTHING; the row becomes its gradient."""
    row = ml.program_id(0).to(ml.int64)
    label = ml.load(label_ptr + row * label_stride)
    x_ptr += row * x_stride
    if label == ignored:
        clear(x_ptr, classes, BLOCK)
        return
    share = 1.0 / labelled if REDUCTION == "mean" else 1.0
    even = SMOOTHING / classes
    towards = (1 - SMOOTHING) * capped(ml.load(x_ptr + label).cast(ml.float32), cap)
    lse = float("-inf")
    total = 0.0
    for start in range(0, classes, BLOCK):
        _, inside, z = logits(x_ptr, start, classes, cap, BLOCK)
        if SMOOTHING > 0:
            total += ml.sum(ml.where(inside, z, 0.0))
        z = ml.where(inside, z, float("-inf"))
        peak = ml.maximum(lse, ml.max(z))
        lse = peak + ml.log(ml.exp(lse - peak) + ml.sum(ml.exp(z - peak)))
    ml.debug_barrier()  # the row is overwritten from here on
    for start in range(0, classes, BLOCK):
        columns, inside, z = logits(x_ptr, start, classes, cap, BLOCK)
        slope = ml.exp(z - lse) - even - ml.where(columns == label, 1 - SMOOTHING, 0.0)
        if cap is not None:
            slope *= 1.0 - (z / cap) * (z / cap)
        ml.store(x_ptr + columns, share * slope, mask=inside)
    ml.store(loss_ptr + row * loss_stride, share * (lse - towards - even * total))


def loss_case(name: str, cap: float | None, smoothing: float, reduction: str) -> None:
    """List `label_loss` for four rows, one of them without a label."""
    x, labels = normal(4, 100), np.array([3, 50, -100, 99], np.int64)
    bent = np.tanh(x.astype(np.float64) / cap) if cap else x.astype(np.float64)
    z, bend = (cap * bent, 1 - bent**2) if cap else (bent, 1)
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    target = np.full((4, 100), smoothing / 100)
    target[np.arange(4), labels] += 1 - smoothing
    factor = np.where(labels >= 0, 1 / 3 if reduction == "mean" else 1, 0)
    case(
        name,
        label_loss,
        (4,),
        [x, labels, np.zeros(4, np.float32), 100, 1, 1, 100, 3, -100, cap],
        {0: (np.exp(logs) - target) * bend * factor[:, None], 2: -(target * logs).sum(1) * factor},
        {"SMOOTHING": smoothing, "REDUCTION": reduction, "BLOCK": 64},
    )


loss_case("label_loss", None, 0.0, "mean")
loss_case("label_loss_smoothed", 2.0, 0.1, "sum")


@mimw.kernel
def rotate(
    x_ptr, cos_ptr, sin_ptr, x_stride, angle_stride, tokens,
    HEADS: ml.constexpr, FEATURES: ml.constexpr, PADDED_HEADS: ml.constexpr, PADDED_HALF: ml.constexpr, BACK: ml.constexpr = False,
):  # fmt: skip
    """Turn feature i with feature FEATURES / 2 + i of each head by the token's angle i, in place; BACK turns the other way."""
    HALF: ml.constexpr = FEATURES // 2
    token = ml.program_id(0).to(ml.int64)
    feature = ml.arange(0, PADDED_HALF)
    angles = token % tokens * angle_stride + feature
    cos = ml.load(cos_ptr + angles, mask=feature < HALF, other=0)
    sin = ml.load(sin_ptr + angles, mask=feature < HALF, other=0)
    if not BACK:
        sin = -sin
    heads = ml.arange(0, PADDED_HEADS)[:, None]
    inside = (feature[None, :] < HALF) & (heads < HEADS)
    low_at = x_ptr + token * x_stride + heads * FEATURES + feature[None, :]
    high_at = low_at + HALF
    low = ml.load(low_at, mask=inside, other=0).to(cos.dtype)
    high = ml.load(high_at, mask=inside, other=0).to(cos.dtype)
    ml.store(low_at, low * cos + high * sin, mask=inside)
    ml.store(high_at, high * cos - low * sin, mask=inside)


def rotation_case(name: str, **constants: bool) -> None:
    """List `rotate` for two sequences of three tokens, as products of complex numbers."""
    x, angles = normal(6, 3, 24), normal(3, 12)
    turn = np.exp((-1j if constants else 1j) * np.tile(angles.astype(np.float64), (2, 1)))[:, None]
    turned = (x[..., :12] + 1j * x[..., 12:]) * turn
    case(
        name,
        rotate,
        (6,),
        [x, np.cos(angles), np.sin(angles), 72, 12, 3],
        {0: np.concatenate([turned.real, turned.imag], -1)},
        {"HEADS": 3, "FEATURES": 24, "PADDED_HEADS": 4, "PADDED_HALF": 16, **constants},
    )


rotation_case("rotate")
rotation_case("rotate_back", BACK=True)


@mimw.kernel
def first_largest(x_ptr, place_ptr, rows, width, ROWS: ml.constexpr, BLOCK: ml.constexpr):
    """Where each row's largest element is; the first one where several are."""
    row = ml.program_id(0) * ROWS + ml.arange(0, ROWS)
    largest = ml.full([ROWS], value=-float("inf"), dtype=ml.float32)
    place = ml.full([ROWS], value=0, dtype=ml.int64)
    for start in range(0, width, BLOCK):
        column = start + ml.arange(0, BLOCK)
        inside = row[:, None] < rows and column[None, :] < width
        block = ml.load(x_ptr + (row[:, None] * width + column[None, :]), mask=inside, other=float("-inf"))
        top, at = ml.max(block.to(ml.float32), 1, return_indices=True, return_indices_tie_break_left=True)
        place = ml.where(top > largest, at + start, place)
        largest = ml.maximum(top, largest)
    ml.store(place_ptr + row, place, mask=row < rows)


x = rng.integers(0, 9, (5, 100)).astype(np.float16)  # with ties, in a block and across blocks
case(
    "first_largest",
    first_largest,
    (2,),
    [x, np.zeros(5, np.int64), 5, 100],
    {1: x.argmax(1)},
    {"ROWS": 4, "BLOCK": 32},
)


@mimw.kernel
def take_row(table_ptr, take_ptr, out_ptr, WIDTH: ml.constexpr, BLOCK: ml.constexpr):
    """out[i] = table[take[i]], a row a program."""
    columns = ml.arange(0, BLOCK)
    i = ml.program_id(0)
    inside = columns < WIDTH
    take_ptr += i
    table_ptr += ml.load(take_ptr) * WIDTH
    ml.store(out_ptr + i * WIDTH + columns, ml.load(table_ptr + columns, inside, other=0.0), inside)


@mimw.kernel
def add_rows(table_ptr, put_ptr, x_ptr, count, width, factor, ROWS: ml.constexpr, COLUMNS: ml.constexpr):
    """table[put[i]] += factor * x[i]; rows may be named several times."""
    i = (ml.program_id(0) * ROWS + ml.arange(0, ROWS))[:, None]
    column = (ml.program_id(1) * COLUMNS + ml.arange(0, COLUMNS))[None, :]
    inside = column < width and i < count
    x = ml.load(x_ptr + i * width + column, mask=inside, other=0.0)
    put = ml.load(put_ptr + i, mask=i < count, other=0)
    ml.atomic_add(table_ptr + put * width + column, factor * x, mask=inside, sem="relaxed")


table, x = normal(10, 20), normal(6, 20)
places = np.array([7, 2, 7, 0, 9, 7], np.int64)
case(
    "take_row",
    take_row,
    (6,),
    [table, places, np.zeros_like(x)],
    {2: table[places]},
    {"WIDTH": 20, "BLOCK": 32},
    0.0,
)
added = table.astype(np.float64)
np.add.at(added, places, 2.5 * x.astype(np.float64))
case("add_rows", add_rows, (2, 2), [table, places, x, 6, 20, 2.5], {0: added}, {"ROWS": 4, "COLUMNS": 16})


@mimw.kernel
def quantise_row(x_ptr, out_ptr, scale_ptr, x_stride, out_stride, width, least, lowest, highest, BLOCK: ml.constexpr):
    """x as `out` times one scale a row, its largest element becoming `highest`; integers are rounded, halves away from zero."""
    columns = ml.arange(0, BLOCK)
    row = ml.program_id(0)
    x = ml.load(x_ptr + row * x_stride + columns, mask=columns < width, other=0.0).to(ml.float32)
    scale = ml.maximum(least, ml.max(ml.abs(x))) / highest
    x = ml.clamp(x / scale, lowest, highest)
    if out_ptr.dtype.element_ty == ml.int8:
        x = ml.where(x < 0, ml.ceil(x - 0.5), ml.floor(x + 0.5))
    ml.store(out_ptr + row * out_stride + columns, x.to(out_ptr.dtype.element_ty), mask=columns < width)
    ml.store(scale_ptr + row, scale)


def quantisation_case(name: str, kind: Any, highest: float) -> None:
    """List `quantise_row`: all its numbers exactly, since none of x lies near the middle between two."""
    x = normal(3, 60)
    scale = np.abs(x.astype(np.float64)).max(1, keepdims=True) / highest
    exact = x / scale
    exact = (np.sign(exact) * np.floor(np.abs(exact) + 0.5) if kind is np.int8 else exact).astype(kind)
    case(
        name,
        quantise_row,
        (3,),
        [x, np.zeros((3, 60), kind), np.zeros(3, np.float32), 60, 60, 60, 1e-10, -highest, highest],
        {1: exact, 2: scale[:, 0]},
        {"BLOCK": 64},
        1e-6,
    )


quantisation_case("quantise_int8", np.int8, 127.0)
quantisation_case("quantise_fp8", ml_dtypes.float8_e4m3fn, 448.0)


@mimw.kernel
def dense(base, COUNT: ml.constexpr, ROWS: ml.constexpr, COLUMNS: ml.constexpr):
    """Pointers to all of a dense array [COUNT, ROWS, COLUMNS]."""
    rows = ml.arange(0, COUNT)[:, None, None] * ROWS + ml.arange(0, ROWS)[None, :, None]
    return base + rows * COLUMNS + ml.arange(0, COLUMNS)[None, None, :]


@mimw.kernel
def product_of_batch(a_ptr, b_ptr, c_ptr, COUNT: ml.constexpr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    """c[i] = a[i] @ b[i] in one product of three dimensions."""
    product = ml.dot(ml.load(dense(a_ptr, COUNT, M, K)), ml.load(dense(b_ptr, COUNT, K, N)))
    ml.store(dense(c_ptr, COUNT, M, N), product)


a, b = normal(4, 16, 32, dtype=np.float16), normal(4, 32, 16, dtype=np.float16)
case(
    "product_of_batch",
    product_of_batch,
    (1,),
    [a, b, np.zeros((4, 16, 16), np.float32)],
    {2: a.astype(np.float64) @ b.astype(np.float64)},
    {"COUNT": 4, "M": 16, "N": 16, "K": 32},
    1e-3,
)


@mimw.kernel
def count_values(x_ptr, counts_ptr, n, VALUES: ml.constexpr, BLOCK: ml.constexpr):
    """Add to counts how often each of 0 to VALUES - 1 is among n numbers."""
    i = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    x = ml.load(x_ptr + i, mask=i < n, other=-1)
    ml.atomic_add(counts_ptr + ml.arange(0, VALUES), ml.histogram(x, VALUES, i < n))


x = rng.integers(0, 16, 200).astype(np.int32)
case(
    "count_values",
    count_values,
    (2,),
    [x, np.ones(16, np.int32), 200],
    {1: np.bincount(x, minlength=16) + 1},
    {"VALUES": 16, "BLOCK": 128},
)


@mimw.kernel
def digits(number, base):
    """`number` without its last digit in `base`, and that digit."""
    return number // base, number % base


@mimw.kernel
def convolve(
    x_ptr, taps_ptr, out_ptr, images, height, width, channels, outputs,
    HIGH: ml.constexpr, WIDE: ml.constexpr, PIXELS: ml.constexpr, OUTPUTS: ml.constexpr, DEPTH: ml.constexpr,
):  # fmt: skip
    """Images [image, row, column, channel] under taps [HIGH, WIDE, channel, output], edges padded with zeros: as one product over taps and channels."""
    pixel = ml.program_id(0) * PIXELS + ml.arange(0, PIXELS)[:, None]
    output = ml.program_id(1) * OUTPUTS + ml.arange(0, OUTPUTS)[None, :]
    line, column = digits(pixel, width)
    row = line % height
    depth = HIGH * WIDE * channels
    total = ml.zeros((PIXELS, OUTPUTS), ml.float32)
    for start in range(0, depth, DEPTH):
        index = start + ml.arange(0, DEPTH)
        tap, channel = digits(index[None, :], channels)
        down, right = digits(tap, WIDE)
        down, right = down - HIGH // 2, right - WIDE // 2
        on_image = (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
        at = ((line + down) * width + column + right) * channels + channel
        inside = on_image & (pixel < images * height * width) & (index[None, :] < depth)
        x = ml.load(x_ptr + at, mask=inside, other=0.0)
        inside = (index[:, None] < depth) & (output < outputs)
        taps = ml.load(taps_ptr + index[:, None] * outputs + output, mask=inside, other=0.0)
        total += ml.dot(x, taps, allow_tf32=False)
    ml.store(out_ptr + pixel * outputs + output, total, mask=(pixel < images * height * width) & (output < outputs))


x, taps = normal(2, 4, 5, 3), normal(3, 3, 3, 8)
windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))
case(
    "convolve",
    convolve,
    (2, 1),
    [x, taps, np.zeros((2, 4, 5, 8), np.float32), 2, 4, 5, 3, 8],
    {2: np.einsum("nijchw,hwco->nijo", windows.astype(np.float64), taps.astype(np.float64))},
    {"HIGH": 3, "WIDE": 3, "PIXELS": 32, "OUTPUTS": 16, "DEPTH": 16},
)
