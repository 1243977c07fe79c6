"""Integer division for AMD, by constants (powers of two and others) and by values, at the ends of the ranges."""

from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.amdgcn_kit import run_compiled

CONSTANTS = (1, 2, 3, 5, 7, 12, 64, 100, 641, 65537, 1000003, 2**30, 2**31 - 1)


@mimw.kernel
def by_constant(x_ptr, q_ptr, r_ptr, C: ml.constexpr, N: ml.constexpr):
    at = ml.arange(0, N)
    x = ml.load(x_ptr + at)
    ml.store(q_ptr + at, x // C)
    ml.store(r_ptr + at, x % C)


@mimw.kernel
def scalar_by_constant(x, y, q_ptr, C: ml.constexpr):
    ml.store(q_ptr, x // C)
    ml.store(q_ptr + 1, x % C)
    ml.store(q_ptr + 2, x // y)
    ml.store(q_ptr + 3, x % y)


def _numbers(dtype: np.dtype, n: int) -> np.ndarray:
    info = np.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3]
    rest = np.random.default_rng(0).integers(info.min, info.max, n - len(ends), dtype=dtype, endpoint=True)
    return np.concatenate([np.array(ends, dtype), rest])


def _truncated(x: int, y: int) -> tuple[int, int]:
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return q, x - q * y


@pytest.mark.parametrize("dtype", ["i32", "u32", "i8", "u16", "i64"])
@pytest.mark.parametrize("constant", CONSTANTS)
def test_quotients_by_constants(dtype: str, constant: int) -> None:
    element = np.dtype({"i32": "int32", "u32": "uint32", "i8": "int8", "u16": "uint16", "i64": "int64"}[dtype])
    if constant > np.iinfo(element).max:
        constant = constant % 97 + 1
    n = 256
    x = _numbers(element, n)
    q, r = np.zeros(n, element), np.zeros(n, element)
    kernel = by_constant.compile([f"*{dtype}"] * 3, {"C": constant, "N": n}, target="gfx942")
    run_compiled(kernel, (1,), [x, q, r])
    want = [_truncated(int(v), constant) for v in x]
    np.testing.assert_array_equal(q, np.array([w[0] for w in want], element))
    np.testing.assert_array_equal(r, np.array([w[1] for w in want], element))


@pytest.mark.parametrize(("x", "y"), [(-7, 3), (2**31 - 1, 10), (-(2**31), 9), (5, -2), (0, 11)])
def test_scalars_divide_on_the_scalar_unit(x: int, y: int) -> None:
    out = np.zeros(4, np.int32)
    kernel = scalar_by_constant.compile(["i32", "i32", "*i32"], {"C": 13}, target="gfx950")
    run_compiled(kernel, (1,), [x, y, out])
    assert tuple(int(v) for v in out) == (*_truncated(x, 13), *_truncated(x, y))


@mimw.kernel
def exact_quotients(x_ptr, y_ptr, q_ptr, N: ml.constexpr):
    at = ml.arange(0, N)
    ml.store(q_ptr + at, ml.div_rn(ml.load(x_ptr + at), ml.load(y_ptr + at)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_of_floats_are_rounded_once_at_all_magnitudes(dtype: str) -> None:
    """Denormal quotients, and divisors whose inverse is denormal, too."""
    info = np.finfo(dtype)
    ends = [float(v) for v in (info.max, info.max / 2, info.tiny, info.smallest_subnormal, info.tiny / 3)]
    ends = [0.0, 1.0, 3.0, *ends, float("inf"), float("nan")]
    x, y = (v.ravel() for v in np.meshgrid(ends, [v * sign for v in ends for sign in (1, -1)]))
    rng = np.random.default_rng(1)
    n, most = 512, info.maxexp - 1
    x, y = (
        np.concatenate([v, np.ldexp(rng.standard_normal(n - v.size), rng.integers(-most, most, n - v.size))])
        for v in (x, y)
    )
    x, y = x.astype(dtype), y.astype(dtype)
    with np.errstate(all="ignore"):
        want = x / y
    q = np.zeros(n, dtype)
    kernel = exact_quotients.compile([f"*f{info.bits}:16"] * 3, {"N": n}, target="gfx942")
    run_compiled(kernel, (1,), [x, y, q])
    same = (q.view(np.uint8) == want.view(np.uint8)).reshape(n, -1).all(1)
    assert (same | (np.isnan(q) & np.isnan(want))).all()
