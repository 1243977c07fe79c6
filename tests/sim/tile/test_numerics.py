"""Rounding against exact fractions: every conversion and fma rounds once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.types import BF16, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64, I8, I32, I64, U8, U64, DType
from mimw.sim.tile.numerics import (
    float_to_int,
    flush,
    int_to_float,
    numpy_dtype,
    odd_f32,
    odd_sum,
    poison,
    round_tf32,
    to_float,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
NARROW = [F16, BF16, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F32]
LARGEST = {
    F16: 65504.0, BF16: 2.0**127 * (2 - 2.0**-7), F8E4M3: 448.0, F8E5M2: 57344.0, F8E4M3FNUZ: 240.0, F8E5M2FNUZ: 57344.0,
    F32: 2.0**127 * (2 - 2.0**-23),
}  # fmt: skip


def nearest(x: Fraction, d: DType) -> Fraction | None:
    """x rounded to nearest even in `d`, by exact arithmetic; None where it overflows."""
    if x == 0:
        return Fraction(0)
    magnitude = abs(x)
    e = 0
    while Fraction(2) ** (e + 1) <= magnitude:
        e += 1
    while Fraction(2) ** e > magnitude:
        e -= 1
    smallest = 2 - (1 << (d.exponent - 1)) - (d in (F8E4M3FNUZ, F8E5M2FNUZ))
    unit = Fraction(2) ** (max(e, smallest) - d.mantissa)
    q = magnitude / unit
    whole = math.floor(q)
    rest = q - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    out = whole * unit
    if out > Fraction(LARGEST[d]):
        return None
    return out if x > 0 else -out


def _agrees(got: float, exact: Fraction, d: DType, saturate: bool = True) -> None:
    want = nearest(exact, d)
    if want is None:
        overflow = LARGEST[d] if d.is_fp8() and saturate else math.nan if d.is_fp8() and d is not F8E5M2 else math.inf
        want_f = math.copysign(overflow, float(exact > 0) - 0.5)
        assert got == want_f or (math.isnan(want_f) and math.isnan(got)), (exact, got)
    else:
        assert Fraction(got) == want, (float(exact), got, float(want))


finite = st.floats(allow_nan=False, allow_infinity=False)
near_ties = st.builds(
    lambda m, k, e, s: math.ldexp((2 * m + 1) + s * 2.0**-k, e),
    st.integers(0, 4095),
    st.integers(1, 40),
    st.integers(-160, 130),
    st.sampled_from([-1, 0, 1]),
)


@pytest.mark.parametrize("d", NARROW, ids=str)
@given(x=st.one_of(finite, near_ties, st.floats(-500, 500)))
def test_from_f64(d: DType, x: float) -> None:
    _agrees(float(to_float(np.array([x]), d)[0]), Fraction(x), d)
    if d.is_fp8():
        _agrees(float(to_float(np.array([x]), d, saturate=False)[0]), Fraction(x), d, saturate=False)


@pytest.mark.parametrize("d", [F16, BF16, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ], ids=str)
@given(x=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_from_f32_and_toward_zero(d: DType, x: float) -> None:
    source = np.array([x], np.float32)
    _agrees(float(to_float(source, d)[0]), Fraction(x), d)
    cut = float(to_float(source, d, toward_zero=True)[0])
    assert abs(cut) <= abs(x)
    near = nearest(Fraction(x), d)
    assert abs(Fraction(cut)) <= abs(near) if near is not None else abs(cut) == LARGEST[d]
    above = np.nextafter(np.array(cut, numpy_dtype(d)), np.array(math.copysign(LARGEST[d], x or 1), numpy_dtype(d)))
    assert abs(float(above)) > abs(x) or abs(cut) in (abs(x), LARGEST[d])


@pytest.mark.parametrize("d", [F32, F16, BF16, F8E4M3, F8E4M3FNUZ], ids=str)
@given(
    x=st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.builds(lambda m, s: (m << s) + 1, st.integers(0, 2**40), st.integers(0, 22)),
    )
)
def test_from_i64(d: DType, x: int) -> None:
    _agrees(float(int_to_float(np.array([x], np.int64), d)[0]), Fraction(x), d)


@given(x=st.integers(0, 2**64 - 1))
def test_from_u64(x: int) -> None:
    for d in (F32, F16, BF16):
        _agrees(float(int_to_float(np.array([x], np.uint64), d)[0]), Fraction(x), d)
    assert float(int_to_float(np.array([x], np.uint64), F64)[0]) == float(x)


@pytest.mark.parametrize("d", [F32, F16, BF16], ids=str)
@given(values=st.tuples(*[st.floats(allow_nan=False, allow_infinity=False, width=32)] * 3))
def test_fma(d: DType, values: tuple[float, float, float]) -> None:
    a, b, c = (float(to_float(np.array([v], np.float32), d)[0]) for v in values)
    if not all(map(math.isfinite, (a, b, c))):
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = to_float(odd_sum(np.array([a * b]), np.array([c])), d)
    _agrees(float(got[0]), exact, d)


@given(st.one_of(finite, near_ties))
def test_odd_f32(x: float) -> None:
    got = odd_f32(np.array([x]))
    if float(got[0]) != x:
        assert got.view(np.uint32)[0] & 1
        below, above = np.nextafter(got, np.float32(-np.inf)), np.nextafter(got, np.float32(np.inf))
        assert float(below[0]) < x < float(above[0]) or abs(x) > LARGEST[F32]


def test_float_to_int_saturates() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -2.9, 127.5, -128.9, 255.9, -0.5])
    assert float_to_int(x, I8).tolist() == [0, 127, -128, 127, -128, 2, -2, 127, -128, 127, 0]
    assert float_to_int(x, U8).tolist() == [0, 255, 0, 255, 0, 2, 0, 127, 0, 255, 0]
    big = np.array([2.0**63, 2.0**63 - 1024, -(2.0**63), 2.0**64, 2.0**31])
    assert float_to_int(big, I64).tolist() == [2**63 - 1, 2**63 - 1024, -(2**63), 2**63 - 1, 2**31]
    assert float_to_int(big, U64).tolist() == [2**63, 2**63 - 1024, 0, 2**64 - 1, 2**31]
    assert float_to_int(big, I32).tolist() == [2**31 - 1, 2**31 - 1, -(2**31), 2**31 - 1, 2**31 - 1]


def test_fp8_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 449.0, -1e9, 464.0], np.float32)
    e4 = to_float(x, F8E4M3).astype(np.float32)
    assert np.isnan(e4[0]) and e4[1:].tolist() == [448, -448, 448, -448, 448]
    e5 = to_float(x, F8E5M2, saturate=False).astype(np.float32)
    assert e5[1:3].tolist() == [np.inf, -np.inf]


def test_tf32_rounds_ties_away() -> None:
    one = np.float32(1)
    tie = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-11 - 2.0**-23, 1 + 3 * 2.0**-11], np.float32)
    assert round_tf32(tie).tolist() == [1 + 2.0**-10, -1 - 2.0**-10, 1.0, 1 + 2 * 2.0**-10]
    assert round_tf32(np.array([one, np.inf], np.float32)).tolist() == [1.0, np.inf]
    assert np.isnan(round_tf32(np.array([np.nan], np.float32)))[0]


def test_flush_and_poison() -> None:
    x = np.array([1e-40, -1e-40, 2.0**-126, 0.0], np.float32)
    assert flush(x).tolist() == [0.0, 0.0, 2.0**-126, 0.0] and np.signbit(flush(x))[1]
    assert np.isnan(poison((3,), F16).astype(np.float32)).all()
    assert poison((2,), I32).view(np.uint32).tolist() == [0xCBCBCBCB] * 2
