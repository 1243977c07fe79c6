"""Small things that Triton's kernels say: questions to types, `tl.math`, comprehensions, products of f32 in three parts."""

from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as tl
from tests.language.engines_kit import both

TARGETS = ("sm_90a", "sm_80")


@mimw.kernel
def asked(x, o, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.static_assert(v.dtype.is_fp32() and v.dtype.is_floating() and not v.dtype.is_int() and not v.dtype.is_fp16())
    tl.static_assert(
        x.type.element_ty.is_fp32() and x.dtype.is_ptr() and x.dtype.scalar.is_ptr() and not x.dtype.is_block()
    )
    tl.static_assert(at.dtype.is_int32() and not at.dtype.is_int64() and (at > 0).dtype.is_int1())
    tl.static_assert(v.type.is_block() and v.type.shape[0] == N and v.type.element_ty == tl.float32)
    tl.static_assert(v.dtype.scalar == tl.float32 and v.type.scalar == tl.float32 and not v.dtype.is_block())
    tl.static_assert(
        not tl.bfloat16.is_fp32() and tl.bfloat16.is_bf16() and tl.float64.is_fp64() and tl.uint32.is_uint32()
    )
    tl.static_assert(tl.int8.is_int8() and tl.int16.is_int16() and not tl.uint8.is_int8())
    parts = [v * k for k in tl.static_range(3)]
    k = 10
    more = [k + 1 for k in (1, 2, 3)]  # the comprehension's own k
    tl.store(o + at, tl.math.fma(parts[0] + parts[1], 2.0, parts[2]) + tl.math.abs(v) + k + sum_of(*more))


@mimw.kernel
def sum_of(a, b, c):
    return a + b + c


def test_names() -> None:
    x = np.linspace(-4, 4, 32).astype(np.float32)
    got = both(asked, (1,), [x, x * 0], TARGETS, N=32)
    np.testing.assert_allclose(got[1], 4 * x + np.abs(x) + 10 + 9, rtol=1e-6)


@mimw.kernel
def product(a, b, c, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    tl.store(o + at, tl.dot(x, y, tl.load(c + at), input_precision=PRECISION))


def test_three_products() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 64, 32, 64
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    size = np.abs(a) @ np.abs(b)
    errors = {}
    for precision in ("tf32", "tf32x3"):
        out = np.zeros_like(c)
        product[(1,)](a, b, c, out, M=m, N=n, K=k, PRECISION=precision)
        errors[precision] = (np.abs(out - want) / size).max()
    assert errors["tf32x3"] < 2**-20 < 2**-13 < errors["tf32"] * 4
    texts = product.compile(
        dict.fromkeys(("a", "b", "c", "o"), "*f32:16"), {"M": m, "N": n, "K": k, "PRECISION": "tf32x3"}, target="sm_90a"
    )
    assert [r["text"] for r in texts.metadata.extra["remarks"] if r["kind"] == "dot"] == ["wgmma"] * 3


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_three_products_of_what_is_not_finite(bad: float) -> None:
    a, b = np.ones((16, 16), np.float32), np.full((16, 16), 1.1, np.float32)
    a[3, 5] = bad
    out = np.zeros_like(a)
    product[(1,)](a, b, out * 0, out, M=16, N=16, K=16, PRECISION="tf32x3")
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
