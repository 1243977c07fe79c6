"""Numbers as the language defines them: NumPy types of the scalar types, and conversions that round once.

Anything narrower than f64 is rounded from a float64, or from a float32 *rounded to odd*: such a value keeps in its
last bit that something was cut off, so that the rounding that follows is the only one that counts. Knows no op.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mimw.ir.types import F16, F32, F64, DType, Element, PointerType

Array = NDArray[Any]

_EXTENSION: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
_NUMPY: dict[str, np.dtype[Any]] = {}
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_LARGEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f8e4m3fnuz": 240.0, "f8e5m2fnuz": 57344.0}


def numpy_dtype(e: Element) -> np.dtype[Any]:
    """The NumPy type that holds values of an element type; pointers are int64 addresses."""
    if isinstance(e, PointerType):
        return np.dtype(np.int64)
    found = _NUMPY.get(e.numpy_name)
    if found is None:
        found = _NUMPY[e.numpy_name] = np.dtype(_EXTENSION.get(e.numpy_name, e.numpy_name))
    return found


def bits_of(x: Array) -> Array:
    """The bits of each element as unsigned integers, same shape."""
    return np.ascontiguousarray(x).view(_UNSIGNED[x.dtype.itemsize]).reshape(x.shape)


def from_bits(bits: Array, dtype: np.dtype[Any]) -> Array:
    """The reverse of `bits_of`."""
    return np.ascontiguousarray(bits).view(dtype).reshape(bits.shape)


def odd_f32(x: Array) -> Array:
    """float64 rounded to odd float32: exact, or the neighbour with an odd last bit (on overflow the largest number)."""
    x = np.asarray(x, np.float64)
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = bits_of(near)
    bits = np.where(np.abs(back) > np.abs(x), bits - np.uint32(1), bits)
    inexact = (back != x) & ~np.isnan(x)
    return from_bits(np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32), np.dtype(np.float32))


def odd_sum(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd (finite sums; infinities and NaN as IEEE says)."""
    s = np.asarray(a + b)
    part = s - a
    rest = np.asarray((a - (s - part)) + (b - part))
    bits = bits_of(s)
    inexact = (rest != 0) & np.isfinite(s) & np.isfinite(rest)
    # The rest's sign says on which side of s the true sum lies: of s and that neighbour one is odd.
    toward_zero = np.signbit(rest) != np.signbit(s)
    even = (bits & np.uint64(1)) == 0
    moved = np.where(even & inexact, np.where(toward_zero, bits - np.uint64(1), bits + np.uint64(1)), bits)
    return from_bits(moved, np.dtype(np.float64))


def to_float(x: Array, d: DType, *, saturate: bool = True, toward_zero: bool = False) -> Array:
    """Floats of any width to the float type `d`, rounded once: to nearest even, or toward zero.

    With `saturate` an 8-bit float that overflows (or is infinite) is the largest finite one; without, f8e5m2 gives
    infinity and the others NaN, toward zero for infinities only.
    """
    target = numpy_dtype(d)
    if x.dtype == target:
        return x
    wide = x
    if x.dtype == np.float64 and d not in (F64, F32, F16):
        wide = odd_f32(x)
    elif x.dtype.itemsize < 4:
        wide = x.astype(np.float32)
    if d.is_fp8() and (saturate or toward_zero):
        largest = np.float32(_LARGEST[d.name])
        kept = np.isnan(wide) if saturate else ~np.isfinite(wide)
        wide = np.where(kept, wide, np.clip(wide, -largest, largest)).astype(np.float32)
    out = np.asarray(wide).astype(target)
    return _cut(out, wide, d) if toward_zero else out


def _cut(out: Array, exact: Array, d: DType) -> Array:
    """Undo a rounding away from zero. What has no -0 gets 0 for it."""
    away = np.abs(out.astype(np.float64)) > np.abs(exact.astype(np.float64))
    bits = bits_of(out)
    cut = bits - bits.dtype.type(1)
    if d.fnuz:
        cut = np.where(cut == 0x80, 0, cut)
    return from_bits(np.where(away, cut, bits).astype(bits.dtype), out.dtype)


def float_to_int(x: Array, d: DType) -> Array:
    """Truncate toward zero and saturate; NaN gives 0."""
    target = numpy_dtype(d)
    info = np.iinfo(target)
    whole = np.trunc(x.astype(np.float64))
    whole = np.where(np.isnan(whole), 0.0, whole)
    low, high = float(info.min), float(info.max)
    # float(2**63 - 1) is 2**63, which the cast could not take: what reaches it is set by hand.
    over, under = whole >= high, whole <= low
    safe = np.where(over | under, 0.0, whole)
    out = safe.astype(target)
    out = np.where(over, target.type(info.max), out)
    return np.where(under, target.type(info.min), out).astype(target)


def int_to_float(x: Array, d: DType) -> Array:
    """Integers (or bools) to floats, rounded once to nearest even (8-bit floats saturate)."""
    if x.dtype.itemsize < 8 or d is F64 or d is F32:
        return to_float(x.astype(np.float64 if x.dtype.itemsize < 8 else numpy_dtype(d)), d)
    # 64-bit integers have more bits than float64: keep 52 of them and whether any of the rest is set.
    one, shift = x.dtype.type(1), x.dtype.type(12)
    low = (x & x.dtype.type(0xFFF)) != 0
    kept = np.right_shift(x, shift)
    jammed: Array = np.left_shift(np.where(low, kept | one, kept).astype(x.dtype), shift)
    big = np.abs(x.astype(np.float64)) >= 2.0**53
    return to_float(np.where(big, jammed, x).astype(np.float64), d)


def wide(x: Array) -> Array:
    """Floats in the type that arithmetic is done in: f64 stays, everything narrower is f32."""
    return x if x.dtype.itemsize >= 4 else x.astype(np.float32)


def round_tf32(x: Array) -> Array:
    """float32 rounded to 10 mantissa bits, ties away from zero (cvt.rna.tf32.f32)."""
    bits = bits_of(x)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), from_bits(rounded, np.dtype(np.float32)), x).astype(np.float32)


def flush(x: Array) -> Array:
    """float32 with denormals replaced by zeros of their sign."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def poison(shape: tuple[int, ...], e: Element) -> Array:
    """What memory holds that nothing was written to: NaN, or bytes 0xCB."""
    target = numpy_dtype(e)
    if isinstance(e, DType) and e.kind == "float":
        return np.full(shape, np.nan, target)
    if target == np.bool_:
        return np.ones(shape, np.bool_)
    return np.full((*shape, target.itemsize), 0xCB, np.uint8).view(target).reshape(shape)
