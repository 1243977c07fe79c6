"""Row kernels of models: softmax, norms, cross entropy, activations, dropout, attention-like scores, online softmax."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import Run, array, data, empty, exact, near, wide, zoo


def block_of(n: int) -> int:
    return mimw.next_power_of_2(n)


@mimw.kernel
def softmax_rows(x_ptr, out_ptr, x_stride, out_stride, width, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    columns = ml.arange(0, BLOCK)
    mask = columns < width
    x = ml.load(x_ptr + row * x_stride + columns, mask=mask, other=-float("inf")).to(ml.float32)
    e = ml.exp(x - ml.max(x, axis=0))
    y = e / ml.sum(e, axis=0)
    ml.store(out_ptr + row * out_stride + columns, y.to(out_ptr.dtype.element_ty), mask=mask)


def softmax_of(a: Any) -> Any:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@zoo(
    *[
        {"rows": r, "width": w, "dtype": d, "warps": k}
        for r, w, d, k in (
            (2, 1, "f32", 4),
            (3, 33, "bf16", 1),
            (0, 16, "f32", 4),
            (2, 781, "f32", 4),
            (2, 1000, "bf16", 8),
            (1, 2048, "f16", 16),
        )
    ],
    sm80=True,
)
def softmax_rows_case(rng: Any, rows: int, width: int, dtype: str, warps: int) -> Run:
    x = data(rng, (rows, width), dtype, strides=(width + 3, 1))
    out = empty((rows, width), dtype)
    want = softmax_of(wide(x))
    # exp: 4 ulp and |x| 2^-23; the sum of terms of one sign adds little; the fast divide 2 ulp.
    bound = want * 2.0**-19
    args = (x, out, width + 3, width, width)
    return Run(
        softmax_rows, (rows,), args, [(out, near(want, 0.5, bound))], {"BLOCK": block_of(width)}, num_warps=warps
    )


@mimw.kernel
def softmax_tile(x_ptr, out_ptr, rows, width, ROWS: ml.constexpr, COLS: ml.constexpr):
    r = (ml.program_id(0) * ROWS + ml.arange(0, ROWS))[:, None]
    c = ml.arange(0, COLS)[None, :]
    mask = (r < rows) & (c < width)
    x = ml.load(x_ptr + r * width + c, mask=mask, other=-1e30)
    ml.store(out_ptr + r * width + c, ml.softmax(x, 1), mask=mask)


@zoo(*[{"rows": r, "width": w, "tile": t} for r, w, t in ((5, 31, (4, 31)), (9, 96, (8, 96)), (3, 127, (2, 128)))])
def softmax_tile_case(rng: Any, rows: int, width: int, tile: tuple[int, int]) -> Run:
    x, out = data(rng, (rows, width), "f32"), empty((rows, width), "f32")
    want = softmax_of(wide(x))
    outputs = [(out, near(want, 1, want * 2.0**-19))]
    return Run(
        softmax_tile, (mimw.cdiv(rows, tile[0]),), (x, out, rows, width), outputs, {"ROWS": tile[0], "COLS": tile[1]}
    )


@mimw.kernel
def online_softmax(x_ptr, out_ptr, width, BLOCK: ml.constexpr):
    # Two passes over blocks of columns with a running maximum and sum.
    row = ml.program_id(0)
    biggest = -float("inf")
    total = 0.0
    for start in range(0, width, BLOCK):
        c = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + row * width + c, mask=c < width, other=-float("inf"))
        new = ml.maximum(biggest, ml.max(x, axis=0))
        total = total * ml.exp(biggest - new) + ml.sum(ml.exp(x - new), axis=0)
        biggest = new
    for start in range(0, width, BLOCK):
        c = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + row * width + c, mask=c < width, other=0.0)
        ml.store(out_ptr + row * width + c, ml.exp(x - biggest) / total, mask=c < width)


@zoo(*[{"rows": r, "width": w} for r, w in ((1, 5), (2, 127), (3, 500))])
def online_softmax_case(rng: Any, rows: int, width: int) -> Run:
    x, out = data(rng, (rows, width), "f32"), empty((rows, width), "f32")
    want = softmax_of(wide(x))
    return Run(online_softmax, (rows,), (x, out, width), [(out, near(want, 1, want * 2.0**-18))], {"BLOCK": 64})


@mimw.kernel
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, mean_ptr, rstd_ptr, width, eps, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    c = ml.arange(0, BLOCK)
    mask = c < width
    x = ml.load(x_ptr + row * width + c, mask=mask, other=0.0).to(ml.float32)
    mean = ml.sum(x, axis=0) / width
    centred = ml.where(mask, x - mean, 0.0)
    rstd = ml.rsqrt(ml.sum(centred * centred, axis=0) / width + eps)
    y = centred * rstd * ml.load(w_ptr + c, mask=mask, other=0.0) + ml.load(b_ptr + c, mask=mask, other=0.0)
    ml.store(out_ptr + row * width + c, y.to(out_ptr.dtype.element_ty), mask=mask)
    ml.store(mean_ptr + row, mean)
    ml.store(rstd_ptr + row, rstd)


@zoo(
    *[
        {"rows": r, "width": w, "dtype": d}
        for r, w, d in ((2, 3, "f32"), (3, 96, "f16"), (2, 1000, "bf16"), (0, 8, "f32"), (2, 192, "f32"))
    ],
    sm80=True,
)
def layer_norm_case(rng: Any, rows: int, width: int, dtype: str) -> Run:
    x, w, b = data(rng, (rows, width), dtype), data(rng, width, "f32"), data(rng, width, "f32")
    out, mean, rstd = empty((rows, width), dtype), empty(rows, "f32"), empty(rows, "f32")
    a = wide(x)
    m, v = a.mean(1), a.var(1)
    r = 1 / np.sqrt(v + float(np.float32(1e-5)))
    y = (a - m[:, None]) * r[:, None] * wide(w) + wide(b)
    size = np.abs(wide(w)) * (np.abs(a) + np.abs(a).mean(1)[:, None]) * r[:, None] + np.abs(wide(b)) if rows else y
    outputs = [(out, near(y, 0.5, size * 2e-6)), (mean, near(m, 1, 2e-6)), (rstd, near(r, 8, r**3 * 1e-5))]
    return Run(layer_norm, (rows,), (x, w, b, out, mean, rstd, width, 1e-5), outputs, {"BLOCK": block_of(width)})


@mimw.kernel
def rms_norm(x_ptr, w_ptr, out_ptr, width, eps, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    square = ml.zeros((BLOCK,), ml.float32)
    for start in range(0, width, BLOCK):
        c = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + row * width + c, mask=c < width, other=0.0).to(ml.float32)
        square += x * x
    scale = 1.0 / ml.sqrt(ml.sum(square, axis=0) / width + eps)
    for start in range(0, width, BLOCK):
        c = start + ml.arange(0, BLOCK)
        x = ml.load(x_ptr + row * width + c, mask=c < width, other=0.0).to(ml.float32)
        w = ml.load(w_ptr + c, mask=c < width, other=0.0).to(ml.float32)
        ml.store(out_ptr + row * width + c, (x * scale * w).to(out_ptr.dtype.element_ty), mask=c < width)


@zoo(*[{"rows": r, "width": w, "dtype": d} for r, w, d in ((1, 1, "f32"), (3, 127, "bf16"), (2, 600, "f16"))])
def rms_norm_case(rng: Any, rows: int, width: int, dtype: str) -> Run:
    x, w, out = data(rng, (rows, width), dtype), data(rng, width, dtype), empty((rows, width), dtype)
    a = wide(x)
    want = a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-6) * wide(w)
    return Run(
        rms_norm, (rows,), (x, w, out, width, 1e-6), [(out, near(want, 0.5, np.abs(want) * 4e-6))], {"BLOCK": 256}
    )


@mimw.kernel
def cross_entropy(logits_ptr, target_ptr, loss_ptr, grad_ptr, classes, ignore, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    target = ml.load(target_ptr + row)
    c = ml.arange(0, BLOCK)
    mask = c < classes
    grad = grad_ptr + row * classes + c
    if target == ignore:
        ml.store(grad, 0.0, mask=mask)
        ml.store(loss_ptr + row, 0.0)
        return
    x = ml.load(logits_ptr + row * classes + c, mask=mask, other=-float("inf")).to(ml.float32)
    biggest = ml.max(x, axis=0)
    e = ml.exp(x - biggest)
    total = ml.sum(e, axis=0)
    own = ml.load(logits_ptr + row * classes + target).to(ml.float32)
    ml.store(loss_ptr + row, ml.log(total) + biggest - own)
    ml.store(grad, e / total - ml.where(c == target, 1.0, 0.0), mask=mask)


@zoo(
    *[{"rows": r, "classes": c, "dtype": d} for r, c, d in ((2, 3, "f32"), (5, 33, "bf16"), (4, 1000, "f32"))],
    sm80=True,
)
def cross_entropy_case(rng: Any, rows: int, classes: int, dtype: str) -> Run:
    x, target = data(rng, (rows, classes), dtype), array(rng.integers(0, classes, rows), "i64")
    target[0] = -100
    loss, grad = empty(rows, "f32"), empty((rows, classes), "f32")
    p = softmax_of(wide(x))
    hot = np.arange(classes) == np.array(target)[:, None]
    ignored = np.array(target) == -100
    want_loss = np.where(ignored, 0, -np.log(np.where(hot, p, 1).prod(1)))
    want_grad = np.where(ignored[:, None], 0, p - hot)
    outputs = [(loss, near(want_loss, 4, 2e-6 * (1 + np.abs(wide(x)).max(1)))), (grad, near(want_grad, 1, 4e-6))]
    return Run(cross_entropy, (rows,), (x, target, loss, grad, classes, -100), outputs, {"BLOCK": block_of(classes)})


@mimw.kernel
def mix32(x):
    # A hash with good avalanche on 32 bits: shifts are logical on unsigned types.
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x


@mimw.kernel
def dropout(x_ptr, out_ptr, bits_ptr, n, seed, p, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    bits = mix32(offs.to(ml.uint32) + mix32(seed.to(ml.uint32)))
    keep = (bits >> 8).to(ml.float32) * (1.0 / 16777216) >= p
    x = ml.load(x_ptr + offs, mask=mask)
    ml.store(out_ptr + offs, ml.where(keep, x * 2.0, 0.0), mask=mask)
    ml.store(bits_ptr + offs, bits, mask=mask)


@zoo(*[{"n": n, "seed": s} for n, s in ((1, 2), (333, 12345))], sm80=True)
def dropout_case(rng: Any, n: int, seed: int) -> Run:
    x, out, bits = data(rng, n, "f32"), empty(n, "f32"), empty(n, "u32")

    def mix(v: int) -> int:
        v ^= v >> 16
        v = v * 0x7FEB352D & 0xFFFFFFFF
        v ^= v >> 15
        v = v * 0x846CA68B & 0xFFFFFFFF
        return v ^ v >> 16

    h = np.array([mix((i + mix(seed)) & 0xFFFFFFFF) for i in range(n)], np.uint32)
    keep = (h >> 8).astype(np.float32) / np.float32(16777216) >= np.float32(0.5)
    outputs = [(out, exact(np.where(keep, x * np.float32(2), np.float32(0)))), (bits, exact(h))]
    return Run(dropout, (mimw.cdiv(n, 128),), (x, out, bits, n, seed, 0.5), outputs, {"BLOCK": 128})


@mimw.kernel
def activate(x, KIND: ml.constexpr):
    if KIND == "relu":
        return ml.maximum(x, 0.0)
    if KIND == "silu":
        return x * ml.sigmoid(x)
    if KIND == "gelu":
        return 0.5 * x * (1.0 + ml.erf(x * 0.7071067811865476))
    ml.static_assert(KIND == "leaky", "unknown activation")
    return ml.where(x > 0.0, x, 0.01 * x)


@mimw.kernel
def gated_unit(x_ptr, out_ptr, width, KIND: ml.constexpr, BLOCK: ml.constexpr):
    # GLU: the first half of a row gates the second.
    row = ml.program_id(0)
    c = ml.arange(0, BLOCK)
    mask = c < width
    gate = ml.load(x_ptr + row * 2 * width + c, mask=mask).to(ml.float32)
    up = ml.load(x_ptr + row * 2 * width + width + c, mask=mask).to(ml.float32)
    ml.store(out_ptr + row * width + c, (activate(gate, KIND) * up).to(out_ptr.dtype.element_ty), mask=mask)


@zoo(
    *[
        {"kind": k, "width": w, "dtype": d}
        for k, w, d in (("relu", 31, "f16"), ("silu", 96, "f32"), ("gelu", 127, "bf16"), ("leaky", 33, "f32"))
    ],
    sm80=True,
)
def gated_unit_case(rng: Any, kind: str, width: int, dtype: str) -> Run:
    from math import erf

    x, out = data(rng, (3, 2 * width), dtype), empty((3, width), dtype)
    g, u = wide(x)[:, :width], wide(x)[:, width:]
    act = {
        "relu": lambda v: np.maximum(v, 0),
        "silu": lambda v: v / (1 + np.exp(-v)),
        "gelu": lambda v: 0.5 * v * (1 + np.vectorize(erf)(v * 0.7071067811865476)),
        "leaky": lambda v: np.where(v > 0, v, 0.01 * v),
    }[kind](g)
    want = act * u
    return Run(
        gated_unit,
        (3,),
        (x, out, width),
        [(out, near(want, 0.5, np.abs(g * u) * 3e-6))],
        {"KIND": kind, "BLOCK": block_of(width)},
    )


@mimw.kernel
def adam_step(p_ptr, g_ptr, m_ptr, v_ptr, n, lr, b1, b2, eps, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    p = ml.load(p_ptr + offs, mask=mask)
    g = ml.load(g_ptr + offs, mask=mask).to(ml.float32)
    m = b1 * ml.load(m_ptr + offs, mask=mask) + (1 - b1) * g
    v = b2 * ml.load(v_ptr + offs, mask=mask) + (1 - b2) * g * g
    ml.store(m_ptr + offs, m, mask=mask)
    ml.store(v_ptr + offs, v, mask=mask)
    ml.store(p_ptr + offs, p - lr * m / (ml.sqrt(v) + eps), mask=mask)


@zoo(*[{"n": n} for n in (1, 127, 300)])
def adam_step_case(rng: Any, n: int) -> Run:
    p, g = data(rng, n, "f32"), data(rng, n, "bf16")
    m, v = data(rng, n, "f32"), array(rng.uniform(0.5, 1.5, n), "f32")
    lr, b1, b2, eps = (float(np.float32(s)) for s in (0.01, 0.9, 0.99, 1e-8))
    wm = b1 * wide(m) + (1 - b1) * wide(g)
    wv = b2 * wide(v) + (1 - b2) * wide(g) ** 2
    wp = wide(p) - lr * wm / (np.sqrt(wv) + eps)
    outputs = [
        (p, near(wp, 1, 1e-6)),
        (m, near(wm, 2, 1e-6, engines_bitwise=True)),
        (v, near(wv, 2, 1e-6, engines_bitwise=True)),
    ]
    return Run(adam_step, (mimw.cdiv(n, 128),), (p, g, m, v, n, lr, b1, b2, eps), outputs, {"BLOCK": 128})


@mimw.kernel
def quantize_rows(x_ptr, q_ptr, scale_ptr, width, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    c = ml.arange(0, BLOCK)
    mask = c < width
    x = ml.load(x_ptr + row * width + c, mask=mask, other=0.0)
    scale = ml.div_rn(ml.max(ml.abs(x), axis=0), 448.0)
    ml.store(q_ptr + row * width + c, ml.div_rn(x, scale).to(ml.float8e4nv), mask=mask)
    ml.store(scale_ptr + row, scale)


@zoo(*[{"rows": 3, "width": w} for w in (1, 33, 176)], sm80=True)
def quantize_rows_case(rng: Any, rows: int, width: int) -> Run:
    from tests.zoo.casts import encode, from_codes

    x, q, scale = data(rng, (rows, width), "f32"), empty((rows, width), "e4m3"), empty(rows, "f32")
    s = (np.abs(x).max(1) / np.float32(448)).astype(np.float32)
    ratio = (x / s[:, None]).astype(np.float32)
    outputs = [(q, exact(from_codes(encode(ratio.astype(np.float64), "e4m3"), "e4m3"))), (scale, exact(s))]
    return Run(quantize_rows, (rows,), (x, q, scale, width), outputs, {"BLOCK": block_of(width)})


@mimw.kernel
def jagged_mean(values_ptr, offsets_ptr, out_ptr, width, ROWS: ml.constexpr, COLS: ml.constexpr):
    # Mean over the rows of each jagged sequence; some are empty.
    seq = ml.program_id(0)
    start = ml.load(offsets_ptr + seq)
    end = ml.load(offsets_ptr + seq + 1)
    c = ml.arange(0, COLS)
    if end <= start:
        ml.store(out_ptr + seq * width + c, ml.zeros((COLS,), ml.float32), mask=c < width)
        return
    total = ml.zeros((COLS,), ml.float32)
    for first in range(start, end, ROWS):
        r = first + ml.arange(0, ROWS)
        mask = (r < end)[:, None] & (c < width)[None, :]
        total += ml.sum(
            ml.load(values_ptr + r[:, None] * width + c[None, :], mask=mask, other=0.0).to(ml.float32), axis=0
        )
    ml.store(out_ptr + seq * width + c, total / (end - start), mask=c < width)


@zoo(*[{"width": w, "index": i} for w, i in ((1, "i32"), (33, "i32"), (16, "i64"))])
def jagged_mean_case(rng: Any, width: int, index: str) -> Run:
    lengths = np.array([3, 0, 1, 17, 0, 8])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    values, out = data(rng, (int(ends[-1]), width), "f16"), empty((6, width), "f32")
    a = wide(values)
    want = np.stack([a[s:e].mean(0) if e > s else np.zeros(width) for s, e in itertools.pairwise(ends)])
    outputs = [(out, near(want, 4, 2e-6))]
    return Run(
        jagged_mean, (6,), (values, array(ends, index), out, width), outputs, {"ROWS": 8, "COLS": block_of(width)}
    )
