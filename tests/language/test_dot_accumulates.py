"""What products add to: sums cut into exact parts, accumulators that the loop looks at, products of products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.language.engines_kit import both


def operand(n: int, dtype: Any, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (n, n)).astype(dtype)


@mimw.kernel
def in_parts(a, b, c, times, N: ml.constexpr, MOST: ml.constexpr):
    at = ml.arange(0, N)[:, None] * N + ml.arange(0, N)[None, :]
    acc = ml.full((N, N), 1.0, ml.float32)
    for _ in range(times):
        acc = ml.dot(ml.load(a + at), ml.load(b + at), acc, max_num_imprecise_acc=MOST)
    ml.store(c + at, acc)


@pytest.mark.parametrize("most", [16, 32, 64, 100, 128])
def test_fp8_sums_in_parts(most: int) -> None:
    """What was there before is added once, however many parts there are."""
    a, b = operand(128, ml_dtypes.float8_e4m3fn, 0), operand(128, ml_dtypes.float8_e4m3fn, 1)
    args = [a, b, np.zeros((128, 128), np.float32), 2]
    got = both(in_parts, (1,), args, ("sm_89",), schedules=1, N=128, MOST=most, num_warps=8)
    np.testing.assert_array_equal(got[2], 1 + 2 * (a.astype(np.float32) @ b.astype(np.float32)))


@mimw.kernel
def looked_at(a, b, c, n, N: ml.constexpr):
    at = ml.arange(0, N)[:, None] * N + ml.arange(0, N)[None, :]
    acc = ml.zeros((N, N), ml.float32)
    before = ml.zeros((N, N), ml.float32)
    for i in range(n):
        new = acc + ml.dot(ml.load(a + at), ml.load(b + at))
        before += acc  # also after the product has begun
        if i == 1:
            continue
        acc = new
    x = ml.load(b + at)
    ml.store(c + at, before + ml.dot(acc.to(ml.float16), x) + ml.dot(x, x))


def test_accumulators_that_are_looked_at() -> None:
    a, b = operand(32, np.float16, 0), operand(32, np.float16, 1)
    args = [a, b, np.zeros((32, 32), np.float32), 4]
    got = both(looked_at, (1,), args, ("sm_90a", "sm_80"), schedules=1, N=32)
    p, x = a.astype(np.float32) @ b.astype(np.float32), b.astype(np.float32)
    np.testing.assert_array_equal(got[2], (0 + 1 + 1 + 2) * p + 3 * p @ x + x @ x)
