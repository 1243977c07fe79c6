"""Fused multiply-adds of types that AMD's machines have none for."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import mimw
import mimw.language as ml
from tests.amdgcn_kit import same_on_amd


@mimw.kernel
def fma(x_ptr, y_ptr, z_ptr, out_ptr, N: ml.constexpr):
    at = ml.arange(0, N)
    ml.store(out_ptr + at, ml.fma(ml.load(x_ptr + at), ml.load(y_ptr + at), ml.load(z_ptr + at)))


def test_bf16_is_rounded_once() -> None:
    """Sums that f32 would round to the middle between two bf16, from either side, and all kinds of numbers."""
    rng = np.random.default_rng(0)
    n = 512
    x, y, z = (np.ldexp(rng.standard_normal(n), rng.integers(-30, 30, n)) for _ in range(3))
    z[::2] = np.ldexp(x[::2] * y[::2], rng.integers(-40, 40, n // 2))
    x[:8], y[:8] = 1 + 2.0**-7, [1 + 2.0**-1, -1 - 2.0**-1] * 4  # of 1.1 and 1.0000001: in the middle
    z[:8] = [2.0**-40, 2.0**-40, -(2.0**-40), -(2.0**-40), 0, 0, np.inf, -np.inf]
    x[8:12], y[8:12], z[8:12] = [3e38, 1e-30, 1, -1], [3e38, 1e-30, 1, 1], [-1, 1e-38, -1, 1]
    args = [v.astype(ml_dtypes.bfloat16) for v in (x, y, z)]
    out = same_on_amd(fma, (1,), [*args, np.zeros(n, ml_dtypes.bfloat16)], N=n, seeds=(0,))[3]
    wide = [v.astype(np.float64) for v in args]
    with np.errstate(over="ignore"):
        plain = (wide[0] * wide[1] + wide[2]).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert (out[:4] != plain[:4]).any()
