"""Triton kernels for AMD's machines, of our own: products of scaled 8- and 4-bit numbers; atomics (those on f16 do not compile there)."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="needs the extra `peers`")
tl = pytest.importorskip("triton.language")


@triton.jit
def scaled_product(
    a,
    sa,
    b,
    sb,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PACK: tl.constexpr,
    KIND_A: tl.constexpr,
    KIND_B: tl.constexpr,
):
    """a (M, K) and b (N, K) row by row, PACK elements a byte; one scale for 32 elements."""
    m, n = tl.arange(0, M), tl.arange(0, N)
    k, s = tl.arange(0, K // PACK), tl.arange(0, K // 32)
    left = tl.load(a + m[:, None] * (K // PACK) + k[None, :])
    right = tl.load(b + k[:, None] + n[None, :] * (K // PACK))
    left_scale = tl.load(sa + m[:, None] * (K // 32) + s[None, :])
    right_scale = tl.load(sb + n[:, None] * (K // 32) + s[None, :])
    out = tl.dot_scaled(left, left_scale, KIND_A, right, right_scale, KIND_B)
    tl.store(c + m[:, None] * N + n[None, :], out)


@triton.jit
def word_atomics(x, keys, sums, largest, smallest, bits, old, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    value = tl.load(x + i, mask=inside, other=0)
    key = tl.load(keys + i, mask=inside, other=0)
    tl.atomic_add(sums + key, value.to(tl.float32), mask=inside)
    tl.atomic_max(largest + key, value, mask=inside)
    tl.atomic_min(smallest + key, value.to(tl.float32), mask=inside)
    tl.atomic_or(bits + key, (1 << (value & 31)).to(tl.int32), mask=inside)
    before = tl.atomic_xchg(old + i, value, mask=inside)
    tl.store(keys + i, before, mask=inside)
