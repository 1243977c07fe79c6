"""Bits of float constants, against ml_dtypes and NumPy."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.codegen.float_bits import decode, encode
from mimw.ir.types import BF16, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64, DType

NUMPY = {
    F16: (np.float16, np.uint16),
    BF16: (ml_dtypes.bfloat16, np.uint16),
    F32: (np.float32, np.uint32),
    F64: (np.float64, np.uint64),
    F8E4M3: (ml_dtypes.float8_e4m3fn, np.uint8),
    F8E5M2: (ml_dtypes.float8_e5m2, np.uint8),
    F8E4M3FNUZ: (ml_dtypes.float8_e4m3fnuz, np.uint8),
    F8E5M2FNUZ: (ml_dtypes.float8_e5m2fnuz, np.uint8),
}


@pytest.mark.parametrize("dtype", list(NUMPY), ids=str)
@given(value=st.floats(allow_nan=False) | st.floats(-500, 500) | st.floats(-1e-4, 1e-4))
def test_encode_rounds_as_numpy(dtype: DType, value: float) -> None:
    kind, bits = NUMPY[dtype]
    with np.errstate(over="ignore"):
        # ml_dtypes goes through f32; give it a number that f32 holds, so that it rounds once.
        value = value if dtype in (F16, F32, F64) else float(np.float32(value))
        want = int(np.array(value, np.float64).astype(kind).view(bits))
    got = encode(value, dtype)
    if math.isnan(decode(want, dtype)):
        assert math.isnan(decode(got, dtype))
    else:
        assert got == want


@pytest.mark.parametrize("dtype", [d for d in NUMPY if d.bits <= 16], ids=str)
def test_decode_inverts_encode_on_every_pattern(dtype: DType) -> None:
    kind, bits = NUMPY[dtype]
    patterns = np.arange(1 << dtype.bits).astype(bits)
    values = patterns.view(kind).astype(np.float64)
    for pattern, want in zip(patterns.tolist(), values.tolist(), strict=True):
        got = decode(pattern, dtype)
        if math.isnan(want):
            assert math.isnan(got) and math.isnan(decode(encode(got, dtype), dtype))
        else:
            assert got == want and encode(got, dtype) == pattern
