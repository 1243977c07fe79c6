"""What runs along a sequence: a recurrence, sums to the end of a piece, causal products, attention to pages of a cache."""

# pyright: basic

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml
from tests.idioms.cases import case

rng = np.random.default_rng(12)


def normal(*shape: int, dtype=np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


@mimw.kernel
def then(gain, level, later_gain, later_level):
    """The map s -> gain * s + level, then the later one."""
    return later_gain * gain, later_level + later_gain * level


@mimw.kernel
def recurrence(gain_ptr, input_ptr, state_ptr, STEPS: ml.constexpr, CHANNELS: ml.constexpr):
    """state[t] = gain[t] * state[t - 1] + input[t] in every channel, from zero on."""
    at = CHANNELS * ml.arange(0, STEPS)[:, None] + ml.arange(0, CHANNELS)[None, :]
    maps = ml.load(gain_ptr + at), ml.load(input_ptr + at)
    ml.store(state_ptr + at, ml.associative_scan(maps, axis=0, combine_fn=then)[1])


gains, inputs = rng.uniform(0.1, 0.9, (32, 16)).astype(np.float32), normal(32, 16)
states = wide(inputs)
for step in range(1, 32):
    states[step] += gains[step] * states[step - 1]
case("recurrence", recurrence, (1,), [gains, inputs, inputs * 0], {2: states}, {"STEPS": 32, "CHANNELS": 16})


@mimw.kernel
def piece(ptr, length, batch, channel, start, CHANNELS: ml.constexpr, SIZE: ml.constexpr):
    """A pointer to SIZE steps of one channel of [batch, length, CHANNELS]."""
    return ml.make_block_ptr(ptr + batch * length * CHANNELS + channel, (length,), (CHANNELS,), (start,), (SIZE,), (0,))


@mimw.kernel(do_not_specialize=["length"])
def piece_sums(x_ptr, out_ptr, length, CHANNELS: ml.constexpr, SIZE: ml.constexpr, TO_END: ml.constexpr):
    """Sums along each piece of SIZE steps: from its first step up to each one, or with TO_END from each one to its last."""
    batch, channel = ml.program_id(0) // CHANNELS, ml.program_id(0) % CHANNELS
    start = ml.program_id(1) * SIZE
    x = ml.load(piece(x_ptr, length, batch, channel, start, CHANNELS, SIZE), boundary_check=(0,)).to(ml.float32)
    sums = ml.cumsum(x, axis=0)
    if TO_END:
        sums = x + (ml.sum(x, axis=0)[None] - sums)
    target = piece(out_ptr, length, batch, channel, start, CHANNELS, SIZE)
    ml.store(target, sums.to(target.dtype.element_ty), boundary_check=(0,))


x = normal(2, 40, 2, dtype=np.float16)
wanted = [np.flip(np.flip(wide(part), 1).cumsum(1), 1) for part in np.split(x, (16, 32), axis=1)]
case(
    "piece_sums", piece_sums, (4, 3), [x, x * 0, 40],
    {1: np.concatenate(wanted, 1)}, {"CHANNELS": 2, "SIZE": 16, "TO_END": True}, 2e-3,
)  # fmt: skip


@mimw.kernel
def whole(ptr, ROWS: ml.constexpr, COLUMNS: ml.constexpr):
    """A pointer to the matrix [ROWS, COLUMNS], as one block."""
    return ml.make_block_ptr(ptr, (ROWS, COLUMNS), (COLUMNS, 1), (0, 0), (ROWS, COLUMNS), (1, 0))


@mimw.kernel
def causal_product(
    q_ptr, k_ptr, v_ptr, decay_ptr, out_ptr, scale, STEPS: ml.constexpr, WIDTH: ml.constexpr, DECAYS: ml.constexpr
):
    """out[t] = the sum over s <= t of scale * (q[t] . k[s]) * v[s], with DECAYS times exp(decay[t] - decay[s])."""
    k_block = ml.make_block_ptr(k_ptr, (WIDTH, STEPS), (1, WIDTH), (0, 0), (WIDTH, STEPS), (0, 1))
    q = (scale * ml.load(whole(q_ptr, STEPS, WIDTH))).to(k_block.dtype.element_ty)
    step = ml.arange(0, STEPS)
    past = step[None, :] <= step[:, None]
    weights = ml.where(past, ml.dot(q, ml.load(k_block), allow_tf32=False), 0)
    if DECAYS:
        decay = ml.load(decay_ptr + step)
        weights *= ml.exp(ml.where(past, decay[:, None] - decay[None, :], 0.0))
    v = ml.load(whole(v_ptr, STEPS, WIDTH))
    ml.store(whole(out_ptr, STEPS, WIDTH), ml.dot(weights.to(v.dtype), v))


q, k, v = (normal(32, 32, dtype=np.float16) for _ in range(3))
fall = -np.cumsum(rng.uniform(0, 0.2, 32)).astype(np.float32)
products = np.tril(0.25 * wide(q) @ wide(k).T)
for name, decay, weights in (("plain", None, products), ("decay", fall, products * np.exp(fall[:, None] - fall))):
    case(
        f"causal_product_{name}", causal_product, (1,), [q, k, v, decay, np.zeros((32, 32), np.float32), 0.25],
        {4: weights @ wide(v)}, {"STEPS": 32, "WIDTH": 32, "DECAYS": decay is not None}, 1e-2,
    )  # fmt: skip


@mimw.kernel
def page_of(cache_ptr, number, SLOTS: ml.constexpr, WIDTH: ml.constexpr):
    """A page of a cache: [SLOTS, WIDTH]."""
    slot, inner = ml.arange(0, SLOTS)[:, None], ml.arange(0, WIDTH)[None, :]
    return ml.load(cache_ptr + (number * SLOTS + slot) * WIDTH + inner)


@mimw.kernel
def attend_pages(
    q_ptr, k_ptr, v_ptr, page_ptr, length_ptr, out_ptr, scale,
    MOST: ml.constexpr, SLOTS: ml.constexpr, WIDTH: ml.constexpr,
):  # fmt: skip
    """One query a request attends to the keys on the pages that the request's row of MOST numbers lists, in base 2."""
    request = ml.program_id(0)
    inner = ml.arange(0, WIDTH)
    q = ml.load(q_ptr + request * WIDTH + inner) * (scale * 1.4426950408889634)
    out = ml.zeros([WIDTH], ml.float32)
    total = 0.0
    top = float("-inf")
    left = ml.load(length_ptr + request)
    for i in range(ml.cdiv(left, SLOTS)):
        number = ml.load(page_ptr + request * MOST + i).to(ml.int64)
        scores = ml.sum(page_of(k_ptr, number, SLOTS, WIDTH) * q[None, :], 1)
        scores = ml.where(ml.arange(0, SLOTS) < left, scores, float("-inf"))
        before = top
        top = max(ml.max(scores, 0), before)
        fade, weights = ml.exp2(before - top), ml.exp2(scores - top)
        total = ml.sum(weights, 0) + fade * total
        out = ml.sum(page_of(v_ptr, number, SLOTS, WIDTH) * weights[:, None], 0) + fade * out
        left -= SLOTS
    ml.store(out_ptr + request * WIDTH + inner, out / total)


q, k, v = normal(2, 16), normal(6, 8, 16), normal(6, 8, 16)
pages, lengths = np.array([[3, 1, 0], [5, 2, 4]], np.int32), np.array([13, 24], np.int32)
wanted = []
for request, length in enumerate(lengths):
    keys, values = (wide(cache[pages[request]]).reshape(24, 16)[:length] for cache in (k, v))
    powers = np.exp(0.3 * keys @ wide(q[request]))
    wanted.append(powers @ values / powers.sum())
case(
    "attend_pages", attend_pages, (2,), [q, k, v, pages, lengths, q * 0, 0.3], {5: np.stack(wanted)},
    {"MOST": 3, "SLOTS": 8, "WIDTH": 16},
)  # fmt: skip
