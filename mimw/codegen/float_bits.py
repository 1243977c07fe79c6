"""The bits of floating-point constants, for every float type of the language. Pure integer arithmetic, no NumPy (import time)."""

from __future__ import annotations

import math
import struct

from mimw.ir.types import DType


def encode(value: float, dtype: DType) -> int:
    """The bits of `value` as `dtype`, rounded to nearest even. Overflow gives infinity (8-bit floats that have none: NaN)."""
    if dtype.bits == 64:
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    m, e = dtype.mantissa, dtype.exponent
    sign = (1 << (m + e)) if math.copysign(1.0, value) < 0 else 0
    top = (1 << e) - 1
    nan, largest = _nan_and_largest(dtype)
    if math.isnan(value):
        return nan
    infinity = (top << m) | sign if largest + 1 == top << m else nan
    if math.isinf(value):
        return infinity
    if value == 0:
        return 0 if dtype.fnuz else sign
    bias = dtype.bias
    fraction, power = math.frexp(abs(value))  # 0.5 <= fraction < 1
    exponent = max(power - 1, 1 - bias)
    scaled = math.ldexp(fraction, power - exponent + m)  # in units of the last place; exact
    units = int(scaled)
    rest = scaled - units
    if rest > 0.5 or (rest == 0.5 and units & 1):
        units += 1
    bits = units + ((exponent + bias - 1) << m)  # a carry out of the mantissa moves the exponent up by itself
    if bits > largest:
        return infinity
    return 0 if dtype.fnuz and not bits else sign | bits


def _nan_and_largest(dtype: DType) -> tuple[int, int]:
    """The code of a NaN, and that of the largest finite number."""
    m, e = dtype.mantissa, dtype.exponent
    top = (1 << e) - 1
    every = (1 << (m + e)) - 1
    if dtype.fnuz:
        return every + 1, every
    if dtype.bits == 8:
        return every, every - 1 if e == 4 else (top << m) - 1
    return top << m | 1 << (m - 1), (top << m) - 1


def decode(bits: int, dtype: DType) -> float:
    """The value of a bit pattern of `dtype`."""
    if dtype.bits == 64:
        return struct.unpack("<d", struct.pack("<Q", bits))[0]
    m, e = dtype.mantissa, dtype.exponent
    if dtype.fnuz and bits == 0x80:
        return math.nan
    sign = -1.0 if bits >> (m + e) & 1 else 1.0
    exponent = bits >> m & ((1 << e) - 1)
    mantissa = bits & ((1 << m) - 1)
    bias = dtype.bias
    if exponent == (1 << e) - 1 and not dtype.fnuz:
        if dtype.bits == 8 and e == 4:
            if mantissa == (1 << m) - 1:
                return math.nan
        else:
            return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - m)
    return sign * math.ldexp(mantissa | 1 << m, exponent - bias - m)
