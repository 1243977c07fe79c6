"""Triton kernels around tensor cores, of our own: matrix products by pointers and by descriptors, attention, convolution as a product."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="needs the extra `peers`")
import triton.language as tl  # noqa: E402


@triton.jit
def matmul(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
           SUM: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at = a + rows[:, None] * am + k[None, :] * ak
    bt = b + k[:, None] * bk + columns[None, :] * bn
    total = tl.zeros((BM, BN), SUM)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(at, mask=(rows[:, None] < M) & (k[None, :] < left), other=0.0)
        y = tl.load(bt, mask=(k[:, None] < left) & (columns[None, :] < N), other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=SUM)
        at += BK * ak
        bt += BK * bk
    out = c + rows[:, None] * cm + columns[None, :] * cn
    tl.store(out, total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def described_matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr, STAGES: tl.constexpr,
                     SPECIALIZE: tl.constexpr):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, num_stages=STAGES, warp_specialize=SPECIALIZE):
        x = a.load([row, k])
        if TRANSPOSED:
            total = tl.dot(x, b.load([column, k]).T, total)
        else:
            total = tl.dot(x, b.load([k, column]), total)
    if SPECIALIZE:  # Triton 3.6 does not split stores by descriptors between its consumers
        at = (row + tl.arange(0, BM))[:, None] * N + (column + tl.arange(0, BN))[None, :]
        tl.store(c + at, total.to(c.dtype.element_ty))
    else:
        c.store([row, column], total.to(c.dtype))


@triton.jit
def self_described_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The kernel makes its descriptors; programs walk over tiles."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([row, k]), right.load([k, column]), total)
        out.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def reducing_store(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Every program adds its tile to the same place by a reducing copy."""
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(out, [BM, N], [N, 1], [BM, BN])
    target.atomic_add([0, tl.program_id(1) * BN], source.load([tl.program_id(0) * BM, tl.program_id(1) * BN]))


@triton.jit
def gathered_rows(x, rows, out, N, BM: tl.constexpr, BN: tl.constexpr):
    at = tl.load(rows + tl.arange(0, BM))
    i = tl.arange(0, BN)
    v = tl.load(x + at[:, None] * N + i[None, :])
    tl.store(out + tl.arange(0, BM)[:, None] * N + i[None, :], v)


@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Online softmax over blocks of keys; q, k, v, out are (heads, length, D)."""
    start, head = tl.program_id(0) * BM, tl.program_id(1)
    rows, d = start + tl.arange(0, BM), tl.arange(0, D)
    base = head * length * D
    query = tl.load(q + base + rows[:, None] * D + d[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for at in range(0, start + BM if CAUSAL else length, BN):
        columns = at + tl.arange(0, BN)
        key = tl.load(k + base + columns[None, :] * D + d[:, None])
        s = tl.dot(query, key) * scale
        if CAUSAL:
            s = tl.where(rows[:, None] >= columns[None, :], s, -1.0e6)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        weight = weight * shrink + tl.sum(p, 1)
        total = total * shrink[:, None]
        total = tl.dot(p.to(v.dtype.element_ty), tl.load(v + base + columns[:, None] * D + d[None, :]), total)
        top = higher
    tl.store(out + base + rows[:, None] * D + d[None, :], (total / weight[:, None]).to(out.dtype.element_ty))


@triton.jit
def described_attention(
    q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, SPECIALIZE: tl.constexpr
):
    """The same with descriptors of (heads * length, D), without a mask."""
    start = tl.program_id(1) * length + tl.program_id(0) * BM
    query = q.load([start, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for at in tl.range(0, length, BN, warp_specialize=SPECIALIZE):
        s = tl.dot(query, k.load([tl.program_id(1) * length + at, 0]).T) * scale
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        weight = weight * shrink + tl.sum(p, 1)
        total = tl.dot(p.to(v.dtype), v.load([tl.program_id(1) * length + at, 0]), total * shrink[:, None])
        top = higher
    if SPECIALIZE:
        at = (start + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty))
    else:
        out.store([start, 0], (total / weight[:, None]).to(out.dtype))


@triton.jit
def convolution(
    x, w, out, H, W, C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, F: tl.constexpr, BLOCK: tl.constexpr
):
    """A 2-D convolution as products: x (H, W, C), w (KH, KW, C, F), out (H, W, F), borders of zeros."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // W, at % W
    c, f = tl.arange(0, C), tl.arange(0, F)
    total = tl.zeros((BLOCK, F), tl.float32)
    for tap in range(KH * KW):
        r, s = row + tap // KW - KH // 2, column + tap % KW - KW // 2
        inside = (r >= 0) & (r < H) & (s >= 0) & (s < W)
        left = tl.load(x + (r * W + s)[:, None] * C + c[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(left, tl.load(w + tap * C * F + c[:, None] * F + f[None, :]), total)
    tl.store(out + at[:, None] * F + f[None, :], total, mask=(at < H * W)[:, None])
