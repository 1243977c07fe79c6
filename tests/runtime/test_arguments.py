"""Rounding of bf16 scalars."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.runtime.arguments import bf16_bits


def value_of(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


@given(st.floats(width=32, allow_nan=False))
def test_bf16_of_f32_agrees_with_ml_dtypes(value: float):
    assert bf16_bits(value) == int(np.float32(value).astype(ml_dtypes.bfloat16).view(np.uint16))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_bf16_of_f64_is_the_nearest(value: float):
    bits = bf16_bits(value)
    assert (bits >> 15) == (math.copysign(1.0, value) < 0)
    got = abs(value_of(bits))
    if math.isinf(got):  # the midpoint between the largest finite value and the next power of two
        assert abs(value) >= value_of(0x7F7F) + 2.0**119
        return
    magnitude = bits & 0x7FFF
    above = value_of(magnitude + 1) if magnitude < 0x7F7F else value_of(0x7F7F) + 2.0**120
    below = value_of(magnitude - 1) if magnitude else -above
    assert below + got <= 2 * abs(value) <= got + above


@given(st.integers(0, 0x7F7E), st.sampled_from([-1, 0, 1]))
def test_bf16_midpoints(magnitude: int, nudge: int):
    """Rounded once from f64: just off the midpoint goes to the nearer side, the midpoint to the even one."""
    middle = (value_of(magnitude) + value_of(magnitude + 1)) / 2
    value = middle if nudge == 0 else math.nextafter(middle, math.inf * nudge)
    want = magnitude + (magnitude & 1 if nudge == 0 else nudge > 0)
    assert bf16_bits(value) == want
    assert bf16_bits(-value) == want | 0x8000


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.0, 0),
        (-0.0, 0x8000),
        (math.inf, 0x7F80),
        (-math.inf, 0xFF80),
        (math.nan, 0x7FC0),
        (1e300, 0x7F80),
        (5e-324, 0),
    ],
)
def test_bf16_ends(value: float, bits: int):
    assert bf16_bits(value) == bits
