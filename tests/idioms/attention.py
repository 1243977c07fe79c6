# pyright: basic
"""Attention, forwards and backwards, and products through block pointers. Written only in the tile layer."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import mimw
import mimw.language as ml
from tests.idioms.cases import case

rng = np.random.default_rng(21)


def normal(*shape: int) -> np.ndarray:
    """Normal numbers, in fp16."""
    return rng.standard_normal(shape).astype(np.float16)


@mimw.kernel
def fold(
    q, k_ptr, v_ptr, token_stride, first, limit, rows: ml.constexpr, peak, mass, total, scale,
    SPAN: ml.constexpr, SIDES: ml.constexpr, WEIGHTS: ml.constexpr,
):  # fmt: skip
    """Fold the keys from `first` to `limit` into softmaxes of base 2, one a row: peak, mass (relative to the peak) and weighted sum of values.

    Hidden keys get a finite score: a row may meet a tile of hidden keys alone before it sees one. `rows` is a tile, for all its annotation.
    """
    features = ml.arange(0, q.shape[1])
    for start in range(first, limit, SPAN):
        start = ml.multiple_of(start, SPAN)
        keys = start + ml.arange(0, SPAN)
        scores = scale * ml.dot(q, ml.load(k_ptr + features[:, None] + keys[None, :] * token_stride))
        if SIDES == 1:
            scores += ml.where(keys[None, :] <= rows[:, None], 0, -1.0e6)
        elif SIDES == 2:
            scores += ml.where(keys[None, :] >= rows[:, None], 0, -1.0e6)
        higher = ml.maximum(peak, ml.max(scores, 1))
        shrink = ml.math.exp2(peak - higher)
        weights = ml.math.exp2(scores - higher[:, None])
        values = ml.load(v_ptr + keys[:, None] * token_stride + features[None, :])
        total = ml.dot(weights.to(WEIGHTS), values, total * shrink[:, None])
        mass, peak = mass * shrink + ml.sum(weights, 1), higher
    return peak, mass, total


@mimw.kernel
def attention(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, tokens, heads, batch_stride, head_stride, token_stride, scale,
    FEATURES: ml.constexpr, ROWS: ml.constexpr, SPAN: ml.constexpr, SIDES: ml.constexpr,
):  # fmt: skip
    """softmax(scale * q @ k^T) @ v, and the logarithms of the sums; a token sees itself and those of SIDES: 1 earlier, 2 later, 3 both."""
    ml.static_assert(ROWS % SPAN == 0, "tiles of rows begin and end with tiles of keys")
    LOG2E: ml.constexpr = 1.4426950408889634
    WEIGHTS: ml.constexpr = ml.float8e5 if v_ptr.dtype.element_ty == ml.float8e5 else ml.float16
    plane = ml.program_id(1).to(ml.int64)
    begin = plane // heads * batch_stride + plane % heads * head_stride
    k_ptr, v_ptr = k_ptr + begin, v_ptr + begin

    top = ml.program_id(0) * ROWS
    rows = top + ml.arange(0, ROWS)
    at = begin + rows[:, None] * token_stride + ml.arange(0, FEATURES)[None, :]
    q = ml.load(q_ptr + at)
    scale *= LOG2E
    peak = ml.full([ROWS], -float("inf"), ml.float32)
    mass = ml.zeros([ROWS], ml.float32)
    total = ml.zeros([ROWS, FEATURES], ml.float32)
    if SIDES & 1:
        peak, mass, total = fold(
            q, k_ptr, v_ptr, token_stride, 0, top, rows, peak, mass, total, scale, SPAN, 3, WEIGHTS
        )  # fmt: skip
    below = top + ROWS
    peak, mass, total = fold(
        q, k_ptr, v_ptr, token_stride, top, below, rows, peak, mass, total, scale, SPAN, SIDES, WEIGHTS
    )  # fmt: skip
    if SIDES & 2:
        peak, mass, total = fold(
            q, k_ptr, v_ptr, token_stride, below, tokens, rows, peak, mass, total, scale, SPAN, 3, WEIGHTS
        )  # fmt: skip
    ml.store(out_ptr + at, (total / mass[:, None]).to(out_ptr.type.element_ty))
    ml.store(lse_ptr + plane * tokens + rows, (peak + ml.math.log2(mass)) / LOG2E)


def attention_case(name: str, batch: int, heads: int, sides: int, values: type, tol: float) -> None:
    """List `attention` on arrays [batch, token, head, feature]."""
    tokens, features, scale = 128, 64, 0.25
    strides = tokens * heads * features, features, heads * features
    q, k, v = (normal(batch, tokens, heads, features) for _ in range(3))
    v = v.astype(values)
    seen = np.ones((tokens, tokens), bool)
    seen = {1: np.tril(seen), 2: np.triu(seen), 3: seen}[sides]
    scores = scale * np.einsum("bmhf,bnhf->bhmn", q.astype(np.float64), k.astype(np.float64))
    weights = np.where(seen, np.exp(scores), 0)
    mass = weights.sum(-1, keepdims=True)
    case(
        name,
        attention,
        (2, batch * heads),
        [q, k, v, np.zeros_like(q), np.zeros(mass.shape[:3], np.float32), tokens, heads, *strides, scale],
        {3: np.einsum("bhmn,bnhf->bmhf", weights / mass, v.astype(np.float64)), 4: np.log(mass[..., 0])},
        {"FEATURES": features, "ROWS": 64, "SPAN": 32, "SIDES": sides},
        tol,
    )


attention_case("attention_earlier", 1, 2, 1, np.float16, 2e-3)
attention_case("attention_later", 2, 1, 2, np.float16, 2e-3)
attention_case("attention_fp8_values", 1, 1, 3, ml_dtypes.float8_e5m2, 8e-2)  # weights of three significant bits


@mimw.kernel
def attention_gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, tokens, token_stride, scale,
    FEATURES: ml.constexpr, KEYS: ml.constexpr, ROWS: ml.constexpr,
):  # fmt: skip
    """Gradients of KEYS keys and values of causal attention; `delta` is the sum of out * dout over each row."""
    ml.static_assert(KEYS % ROWS == 0)
    row = ml.program_id(0) * KEYS
    keys = row + ml.arange(0, KEYS)
    features = ml.arange(0, FEATURES)
    at = keys[:, None] * token_stride + features[None, :]
    k, v = ml.load(k_ptr + at), ml.load(v_ptr + at)
    dk = dv = ml.zeros([KEYS, FEATURES], ml.float32)
    q_at = q_ptr + (row + ml.arange(0, ROWS))[:, None] * token_stride + features[None, :]
    dout_at = dout_ptr + (row + ml.arange(0, ROWS))[:, None] * token_stride + features[None, :]
    for below in ml.static_range(2):  # tiles of queries on the diagonal, then those below it
        for _ in range((tokens - row) // ROWS if below else KEYS // ROWS):
            rows = row + ml.arange(0, ROWS)
            q, dout = ml.load(q_at), ml.load(dout_at)
            weights = ml.exp(scale * ml.dot(q, ml.trans(k)) - ml.load(lse_ptr + rows)[:, None])
            if not below:
                weights = ml.where(keys[None, :] <= rows[:, None], weights, 0.0)
            slopes = ml.dot(dout, ml.trans(v)) - ml.load(delta_ptr + rows)[:, None]
            dk += ml.dot(ml.trans((weights * slopes).to(q.dtype)), q)
            dv = ml.dot(ml.trans(weights.to(q.dtype)), dout, dv)
            q_at, dout_at, row = q_at + ROWS * token_stride, dout_at + ROWS * token_stride, row + ROWS
    dk *= scale
    ml.store(dk_ptr + at, dk)
    ml.store(dv_ptr + at, dv)


def gradients_case(tokens: int, features: int, scale: float) -> None:
    """List `attention_gradients`, with the gradients of exact arithmetic."""
    arrays = [normal(tokens, features) * np.float16(0.3) for _ in range(4)]
    q, k, v, dout = (x.astype(np.float64) for x in arrays)
    weights = np.tril(np.exp(scale * q @ k.T))
    mass = weights.sum(1, keepdims=True)
    weights /= mass
    delta = (weights @ v * dout).sum(1, keepdims=True)
    slopes = weights * (dout @ v.T - delta)
    sums = np.log(mass).astype(np.float32), delta.astype(np.float32)
    case(
        "attention_gradients",
        attention_gradients,
        (tokens // 64,),
        [*arrays, *np.zeros((2, tokens, features), np.float16), *sums, tokens, features, scale],
        {4: scale * slopes.T @ q, 5: weights.T @ dout},
        {"FEATURES": features, "KEYS": 64, "ROWS": 32},
        2e-3,
    )


gradients_case(128, 64, 0.5)


@mimw.kernel
def gram(x_ptr, out_ptr, count, width, x_stride, out_stride, SIDE: ml.constexpr, DEPTH: ml.constexpr):
    """out = x @ x^T for `count` rows of `width`: each factor of a tile is a block of x, the second one seen by columns."""
    top, left = ml.program_id(0) * SIDE, ml.program_id(1) * SIDE
    upright = ml.make_block_ptr(x_ptr, (count, width), (x_stride, 1), (top, 0), (SIDE, DEPTH), (1, 0))
    flat = ml.make_block_ptr(
        base=x_ptr, shape=(width, count), strides=(1, x_stride), offsets=(0, left), block_shape=(DEPTH, SIDE), order=(0, 1)
    )  # fmt: skip
    total = ml.zeros((SIDE, SIDE), ml.float32)
    for _ in range(ml.cdiv(width, DEPTH)):
        factor = ml.load(upright, boundary_check=(0, 1), padding_option="zero")
        total = ml.dot(factor, ml.load(flat, boundary_check=(1, 0)), total)
        upright, flat = ml.advance(upright, (0, DEPTH)), ml.advance(flat, (DEPTH, 0))
    out = ml.make_block_ptr(out_ptr, (count, count), (out_stride, 1), (top, left), (SIDE, SIDE), (1, 0))
    ml.store(out, total.to(out_ptr.dtype.element_ty), boundary_check=(0, 1))


x = normal(90, 88)
product = x[:, :75].astype(np.float64) @ x[:, :75].astype(np.float64).T
case(
    "gram_by_block_pointers",
    gram,
    (2, 2),
    [x, np.zeros((90, 90), np.float32), 90, 75, 88, 90],
    {1: product},
    {"SIDE": 64, "DEPTH": 32},
    1e-3,
)
