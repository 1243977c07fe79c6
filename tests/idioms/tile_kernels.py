# pyright: basic
"""Kernels of the tile layer as people write them: rows dealt out to programs, products, norms of rows and their gradient, locks, combine functions."""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml
from mimw.kernels.gemm_parts import tile_position
from mimw.language.extra import libdevice
from tests.idioms.cases import case
from tests.language.test_sorting import philox

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    """Random numbers in f32."""
    return rng.standard_normal(shape).astype(np.float32)


@mimw.kernel
def thin_out(x, y, n, rate, seed, SPAN: ml.constexpr):
    """Drop a share `rate` of n elements at random; the others grow, so that the mean stays."""
    at = ml.arange(0, SPAN) + SPAN * ml.program_id(axis=0)
    dropped = ml.rand(seed, at) < rate
    grown = ml.load(x + at, mask=at < n) / (1 - rate)
    ml.store(y + at, ml.where(dropped, 0.0, grown), mask=at < n)


def thin_out_case() -> None:
    """Elements past n stay as they are."""
    x, n, rate, seed = normal(320), 300, 0.375, 7
    words = np.array([philox([i, 0, 0, 0], [seed, 0])[0] for i in range(n)], np.uint32).view(np.int32)
    uniform = np.where(words < 0, ~words, words) / 2.0**31
    want = np.append(np.where(uniform < rate, 0, x[:n] / (1.0 - rate)), np.full(20, 5.0))
    case("thin out", thin_out, (3,), [x, np.full_like(x, 5), n, rate, seed], {1: want}, {"SPAN": 128})


@mimw.kernel
def soften_rows(x, y, logs, x_step, y_step, height, width, SPAN: ml.constexpr, STAGES: ml.constexpr):
    """Softmax of every row, and the logarithm of its denominator; the programs deal the rows out among themselves."""
    column = ml.arange(0, SPAN)
    inside = column < width
    for row in ml.range(ml.program_id(0), height, ml.num_programs(0), num_stages=STAGES):
        logits = ml.load(x + (row * x_step + column), mask=inside, other=-float("inf"))
        top = ml.max(logits, axis=0)
        log = top + ml.log(ml.sum(ml.exp(logits - top), axis=0))
        ml.store(logs + row, log)
        ml.store(y + (row * y_step + column), ml.exp(logits - log), mask=inside)


def soften_rows_case() -> None:
    """The rows of the result lie farther apart."""
    x = normal(5, 100)
    logs = np.log(np.exp(x.astype(np.float64)).sum(1))
    want = np.zeros((5, 112))
    want[:, :100] = np.exp(x - logs[:, None])
    args = [x, np.zeros((5, 112), np.float32), np.zeros(5, np.float32), 100, 112, 5, 100]
    case("soften rows", soften_rows, (2,), args, {1: want, 2: logs}, {"SPAN": 128, "STAGES": 2})


@mimw.kernel
def leaky(x):
    """x, and a hundredth of it below zero."""
    return ml.maximum(x, 0.01 * x)


@mimw.kernel
def crossings(x, rows, columns, row_step, column_step):
    """Addresses of the elements where rows and columns of x cross."""
    return x + (rows * row_step)[:, None] + (columns * column_step)[None, :]


@mimw.kernel
def inner_products(left, right, left_step, right_step, K, SLICE: ml.constexpr):
    """Sums over K of products of the elements at two tiles of addresses, which go on by their steps from slice to slice."""
    remaining = K
    sums = ml.zeros((left.shape[0], right.shape[1]), dtype=ml.float32)
    for _ in range(ml.cdiv(K, SLICE)):
        inside = ml.arange(0, SLICE) < remaining
        remaining -= SLICE
        sums = ml.dot(ml.load(left, inside[None, :], 0.0), ml.load(right, inside[:, None], 0.0), sums)
        left, right = left + left_step, right + right_step
    return sums


@mimw.kernel
def product(
    x, x_row, x_column, y, y_row, y_column, out, out_row, out_column, M, N, K,
    HEIGHT: ml.constexpr, WIDTH: ml.constexpr, SLICE: ml.constexpr, BAND: ml.constexpr, FINISH: ml.constexpr,
):  # fmt: skip
    """out = FINISH(x @ y); what lies past an edge is read at the other end instead, and not stored."""
    tile_m, tile_n = tile_position(ml.program_id(0), ml.cdiv(M, HEIGHT), ml.cdiv(N, WIDTH), BAND)
    ml.assume((tile_m >= 0) & (x_row > 0))
    ml.assume(tile_n >= 0)
    k, m = ml.arange(0, SLICE), ml.arange(0, HEIGHT) + tile_m * HEIGHT
    n = ml.arange(0, WIDTH) + tile_n * WIDTH
    left, right = crossings(x, m % M, k, x_row, x_column), crossings(y, k, n % N, y_row, y_column)
    sums = inner_products(left, right, SLICE * x_column, SLICE * y_row, K, SLICE)
    if FINISH == "leaky":
        sums = leaky(sums)
    kept = (m < M)[:, None] & (n < N)[None, :]
    ml.store(crossings(out, m, n, out_row, out_column), sums.to(ml.float16), mask=kept)


def product_case() -> None:
    """Three rows of two tiles, the last band one row high."""
    x, y = normal(130, 80).astype(np.float16), normal(80, 72).astype(np.float16)
    want = x.astype(np.float64) @ y.astype(np.float64)
    args = [x, 80, 1, y, 72, 1, np.zeros((130, 72), np.float16), 72, 1, 130, 72, 80]
    sizes = {"HEIGHT": 64, "WIDTH": 64, "SLICE": 32, "BAND": 2, "FINISH": "leaky"}
    case("product", product, (6,), args, {6: np.maximum(want, 0.01 * want)}, sizes, 2e-3)


@mimw.kernel
def joined(count, mean, spread, more, its_mean, its_spread):
    """Size, mean and sum of squared distances from the mean (Welford) of two groups taken as one; either may be empty."""
    total = count + more
    centre = mean + (its_mean - mean) * (more / ml.maximum(total, 1.0))
    spread += its_spread + more * (its_mean - mean) * (its_mean - centre)
    return total, centre, spread


@mimw.kernel
def moments(x, width, SPAN: ml.constexpr):
    """Mean and variance of a row."""
    none = ml.zeros([SPAN], dtype=ml.float32)
    groups = (none, none, none)
    for start in range(0, width, SPAN):
        at = start + ml.arange(0, SPAN)
        single = ml.load(x + at, mask=at < width, other=0.0).to(ml.float32)
        groups = joined(groups[0], groups[1], groups[2], (at < width).to(ml.float32), single, none)
    count, mean, spread = ml.reduce(groups, axis=0, combine_fn=joined)
    return mean, spread / count


@mimw.kernel
def normalise(x, y, gain, bias, means, scales, step, width, epsilon, SPAN: ml.constexpr, CENTRED: ml.constexpr):
    """Divide each row by its deviation from its mean, or if not CENTRED from zero; then gain and bias of the columns."""
    row = ml.program_id(0)
    x, y = x + step * row, y + step * row
    mean, square = moments(x, width, SPAN)
    shift = 0
    if CENTRED:
        shift = mean
    else:
        square += mean * mean
    scale = 1 / ml.sqrt(square + epsilon)
    for start in range(0, width, SPAN):
        at = start + ml.arange(0, SPAN)
        inside = at < width
        unit = (ml.load(x + at, mask=inside).to(ml.float32) - shift) * scale
        ml.store(y + at, unit * ml.load(gain + at, mask=inside) + ml.load(bias + at, mask=inside), mask=inside)
    ml.store(scales + row, scale)
    ml.store(means + row, mean)


@mimw.kernel
def enter(gate):
    """Wait until nobody is past the gate."""
    while ml.atomic_cas(gate, 0, 1) != 0:
        pass


@mimw.kernel
def leave(gate):
    """Let the next one in, once every thread has written."""
    ml.debug_barrier()
    ml.atomic_xchg(gate, 0)


@mimw.kernel
def collect(sums, part, inside, begun):
    """Add a part to sums in memory, whatever these hold if not begun."""
    if begun:
        part += ml.load(sums, mask=inside)
    ml.store(sums, part, mask=inside)


@mimw.kernel
def normalise_gradient(
    x, gain, means, scales, dy, dx, gain_sums, bias_sums, gates, step, width, SHARES: ml.constexpr, SPAN: ml.constexpr
):
    """dx of `normalise` if centred; the gradients of gain and bias in SHARES sums, each with a gate and a mark that it is begun."""
    column = ml.arange(0, SPAN)
    inside = column < width
    row = ml.program_id(0)
    at = row * step + column
    scale = ml.load(scales + row)
    above = ml.load(dy + at, mask=inside, other=0).to(ml.float32)
    distance = ml.load(x + at, mask=inside).to(ml.float32) - ml.load(means + row)
    unit = ml.where(inside, distance * scale, 0.0)
    pull = ml.where(inside, above * ml.load(gain + column, mask=inside), 0.0)
    level, along = ml.sum(pull, axis=0) / width, ml.sum(pull * unit, axis=0) / width
    ml.store(dx + at, scale * (pull - level - along * unit), mask=inside)

    share = row % SHARES
    gate = gates + 2 * share
    first = share * width + column
    enter(gate)
    begun = ml.load(gate + 1)
    if begun == 0:
        ml.atomic_xchg(gate + 1, 1)
    collect(gain_sums + first, above * unit, inside, begun)
    collect(bias_sums + first, above, inside, begun)
    leave(gate)


def normalise_cases() -> None:
    """Five rows; two gates for their gradients."""
    rows, width = 5, 200
    x, dy = (normal(rows, width).astype(np.float16) for _ in range(2))
    gain, bias = normal(width), normal(width)
    exact, above = x.astype(np.float64), dy.astype(np.float64)
    mean = exact.mean(1, keepdims=True)
    scale = 1 / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    unit = (exact - mean) * scale
    nothing = np.zeros(rows, np.float32)
    args = [x, np.zeros_like(x), gain, bias, nothing, nothing, width, width, 1e-5]
    want = {1: unit * gain + bias, 4: mean[:, 0], 5: scale[:, 0]}
    case("normalise", normalise, (rows,), args, want, {"SPAN": 64, "CENTRED": True}, 3e-3)
    flat = 1 / np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)
    want = {1: exact * flat * gain + bias, 5: flat[:, 0]}
    case("normalise about zero", normalise, (rows,), args, want, {"SPAN": 64, "CENTRED": False}, 3e-3)

    pull = gain * above
    level, along = (p.mean(1, keepdims=True) for p in (pull, pull * unit))
    sums = [np.stack([p[s::2].sum(0) for s in range(2)]) for p in (above * unit, above)]
    unset = np.full((2, width), np.nan, np.float32)
    saved = [s[:, 0].astype(np.float32) for s in (mean, scale)]
    args = [x, gain, *saved, dy, np.zeros_like(x), unset, unset, np.zeros(4, np.int32), width, width]
    want = {5: scale * (pull - level - along * unit), 6: sums[0], 7: sums[1], 8: np.array([0, 1, 0, 1])}
    case("normalise gradient", normalise_gradient, (rows,), args, want, {"SHARES": 2, "SPAN": 256}, 3e-3)


@mimw.kernel
def heap_arcs(x, y, N: ml.constexpr):
    """Running sums of twice the arc sines of N numbers, on top of the largest arc."""
    at = ml.arange(0, N)
    arcs = libdevice.asin(ml.load(x + at))

    def plus(p, q):
        return p + q

    heap = ml.associative_scan(2.0 * arcs, 0, plus)
    ml.store(y + at, ml.reduce(arcs, 0, lambda p, q: ml.maximum(p, q)) + heap)


def heap_arcs_case() -> None:
    """Numbers between -1 and 1."""
    x = rng.uniform(-1, 1, 64).astype(np.float32)
    arcs = np.arcsin(x.astype(np.float64))
    case("heap arcs", heap_arcs, (1,), [x, np.zeros_like(x)], {1: np.cumsum(2 * arcs) + arcs.max()}, {"N": 64})


for listed in (thin_out_case, soften_rows_case, product_case, normalise_cases, heap_arcs_case):
    listed()
