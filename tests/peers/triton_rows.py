"""Triton kernels without products, of our own: element by element, rows, reductions, scans, atomics, shuffles between threads."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="needs the extra `peers`")
import triton.language as tl  # noqa: E402


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def layer_norm(x, w, b, out, mean_out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    mask = i < columns
    v = tl.load(x + row * columns + i, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / columns
    d = tl.where(mask, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(d * d, 0) / columns + eps)
    y = d * scale * tl.load(w + i, mask=mask) + tl.load(b + i, mask=mask)
    tl.store(out + row * columns + i, y, mask=mask)
    tl.store(mean_out + row, mean)


@triton.jit
def elementary(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1.0)
    a = tl.abs(v) + 0.5
    y = tl.exp2(-a) + tl.log2(a) + tl.log(a) + tl.sin(v) * tl.cos(v) + tl.sqrt(a) + tl.rsqrt(a) + tl.erf(v)
    y += tl.floor(v) + tl.ceil(v) + tl.fma(v, v, 1.0) + tl.sigmoid(v) + tl.math.div_rn(v, a) + tl.math.sqrt_rn(a)
    y = tl.where(v > 1.0, tl.minimum(y, 3.0), tl.maximum(y, -2.0))
    tl.store(out + i, y, mask=i < n)


@triton.jit
def integers(x, y, out, wide, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=1)
    b = tl.load(y + i, mask=i < n, other=1)
    v = (a // b) * 3 + (a % b) - ((a << 3) ^ (b >> 2)) + (a & b) + (~a | b) + tl.umulhi(a, b)
    tl.store(out + i, v, mask=i < n)
    w = a.to(tl.int64) * b.to(tl.int64) + (a.to(tl.int64) << 20) // (b.to(tl.int64) * 7 + 1)
    tl.store(wide + i, w, mask=i < n)


@triton.jit
def casts(x, f16, bf16, e4m3, e5m2, i8, back, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(f16 + i, v.to(tl.float16))
    tl.store(bf16 + i, v.to(tl.bfloat16))
    small = v.to(tl.float8e4nv)
    tl.store(e4m3 + i, small)
    wide = v.to(tl.float8e5)
    tl.store(e5m2 + i, wide)
    tl.store(i8 + i, v.to(tl.int8))
    tl.store(back + i, small.to(tl.float32) + wide.to(tl.float16).to(tl.float32))


@triton.jit
def truncating_cast(x, f16, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(f16 + i, tl.load(x + i, mask=i < n).to(tl.float16, fp_downcast_rounding="rtz"), mask=i < n)


@triton.jit
def reductions(x, sums, maxima, places, parity, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, i = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    v = tl.load(x + r[:, None] * columns + i[None, :], mask=i[None, :] < columns, other=0.0)
    tl.store(sums + i, tl.sum(v, 0), mask=i < columns)
    tl.store(maxima + r, tl.max(v, 1))
    tl.store(places + r, tl.argmin(v, 1))
    tl.store(parity + r, tl.xor_sum(v.to(tl.int32), 1))


@triton.jit
def _both(a_value, a_scale, b_value, b_scale):
    return a_value * b_scale + b_value, a_scale * b_scale


@triton.jit
def scans(x, sums, products, linear, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r, i = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    at = r[:, None] * BLOCK + i[None, :]
    v = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(v, 1))
    tl.store(products + at, tl.cumprod(1.0 + v * 0.01, 0, reverse=True))
    value, _ = tl.associative_scan((v, tl.full((ROWS, BLOCK), 0.5, tl.float32)), 1, _both)
    tl.store(linear + at, value)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    found = tl.histogram(v, BINS, mask=i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), found)


@triton.jit
def atomics(x, keys, sums, largest, smallest, bits, old, halves, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    key = tl.load(keys + i, mask=mask, other=0)
    v = tl.load(x + i, mask=mask, other=0)
    tl.atomic_add(sums + key, v.to(tl.float32), mask=mask)
    tl.atomic_max(largest + key, v, mask=mask)
    tl.atomic_min(smallest + key, v.to(tl.float32), mask=mask)
    tl.atomic_or(bits + key, 1 << (v & 31), mask=mask)
    before = tl.atomic_xchg(old + i, v, mask=mask)
    tl.atomic_add(halves + key, (before + 1).to(tl.float16), mask=mask)


@triton.jit
def turns(lock, total, n):
    """Programs add to one place, each in its turn."""
    me = tl.program_id(0)
    while tl.atomic_cas(lock, me, -1) != me:
        pass
    tl.store(total, tl.load(total) * 2 + me)
    tl.debug_barrier()
    tl.atomic_xchg(lock, me + 1)


@triton.jit
def gather_rows(x, indices, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, i = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = r[:, None] * COLUMNS + i[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(indices + at), 0))


@triton.jit
def shapes(x, out, turned, parts, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + at)
    tl.store(turned + tl.arange(0, C)[:, None] * R + tl.arange(0, R)[None, :], tl.trans(v))
    even, odd = tl.split(tl.reshape(v, (R, C // 2, 2)))
    half = tl.arange(0, R)[:, None] * (C // 2) + tl.arange(0, C // 2)[None, :]
    tl.store(parts + half, even - odd)
    tl.store(out + at, tl.reshape(tl.join(odd, even), (R, C)) + tl.flip(v, 1))


@triton.jit
def sort_rows(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), 1))


@triton.jit
def dropout(x, out, seed, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > 0.25
    tl.store(out + i, tl.where(keep, tl.load(x + i, mask=i < n) / 0.75, 0.0), mask=i < n)


@triton.jit
def collatz(x, out, n, BLOCK: tl.constexpr):
    """Loops and branches that depend on the data."""
    i = tl.program_id(0)
    v = tl.load(x + i)
    steps = 0
    while v != 1:
        if v % 2 == 0:
            v = v // 2
        else:
            v = 3 * v + 1
        steps += 1
    tl.store(out + i, steps)


@triton.jit
def convolution(x, w, out, H, W, KH: tl.constexpr, KW: tl.constexpr, BLOCK: tl.constexpr):
    """A direct 2-D convolution of one channel, borders of zeros."""
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for a in tl.static_range(KH):
        for b in range(KW):
            r, c = row + a - KH // 2, i + b - KW // 2
            inside = (r >= 0) & (r < H) & (c >= 0) & (c < W)
            total += tl.load(x + r * W + c, mask=inside, other=0.0) * tl.load(w + a * KW + b)
    tl.store(out + row * W + i, total, mask=i < W)
