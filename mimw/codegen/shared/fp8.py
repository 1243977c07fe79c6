"""8-bit floats in integer arithmetic, for targets without conversion instructions, and by instruction where there is one.

Both formats go to f16 exactly and come from f32 with one rounding. e5m2 is the upper half of an f16; e4m3 has its exponent moved by 8
and no infinity.
"""

from __future__ import annotations

from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.ir.types import F16, F32, U8, U16, U32, DType

_NAN = 0x7F


def to_f16(b: LaneBuilder, lane: Lane) -> Lane:
    """An 8-bit float as f16, exactly."""
    return pair_to_f16(b, lane, b.const_bits(lane.dtype, 0))[0] if b.fp8_instructions() else _soft_to_f16(b, lane)  # type: ignore[arg-type]


def pair_to_f16(b: LaneBuilder, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
    """Two 8-bit floats as f16, exactly."""
    if b.fp8_instructions():
        return b.halves_from_bytes(lo, hi)
    return _soft_to_f16(b, lo), _soft_to_f16(b, hi)


def _soft_to_f16(b: LaneBuilder, lane: Lane) -> Lane:
    dtype = lane.dtype
    assert isinstance(dtype, DType)
    word = b.convert("int", b.bitcast(lane, U8), U32)
    if dtype.exponent == 5:
        return b.bitcast(b.convert("int", b.shift(word, 8), U16), F16)
    magnitude = b.bit_and(word, 0x7F)
    sign = b.shift(b.bit_and(word, 0x80), 8)
    scaled = b.bitcast(b.convert("int", b.shift(magnitude, 7), U16), F16)
    value = b.bitcast(b.op("mul", F16, scaled, b.const(F16, 256.0)), U16)
    is_nan = b.compare("eq", magnitude, b.const(U32, _NAN))
    value = b.select(is_nan, b.const(U16, 0x7FFF), value)
    return b.bitcast(b.op("or", U16, value, b.convert("int", sign, U16)), F16)


def tile_from_f32(b: LaneBuilder, tile: Tile, to: DType, how: str, saturate: bool) -> list[Lane]:
    """f32 lanes as 8-bit floats."""
    if how == "rn" and saturate and b.fp8_instructions() and len(tile) % 2 == 0:
        out: list[Lane] = []
        step = 4 if len(tile) % 4 == 0 else 2
        for i in range(0, len(tile), step):
            out += b.bytes_from_f32(tile[i : i + step], to)
        return out
    return [from_f32(b, x, to, how, saturate) for x in tile]


def from_f32(b: LaneBuilder, lane: Lane, to: DType, how: str, saturate: bool) -> Lane:
    """One f32 as an 8-bit float."""
    if how == "rn" and saturate and b.fp8_instructions():
        return b.bytes_from_f32([lane, b.const(F32, 0.0)], to)[0]
    return _soft_from_f32(b, lane, to, how, saturate)


def _soft_from_f32(b: LaneBuilder, lane: Lane, to: DType, how: str, saturate: bool) -> Lane:
    m = to.mantissa
    bias = (1 << (to.exponent - 1)) - 1
    drop = 23 - m
    largest = 0x7E if to.exponent == 4 else 0x7B
    overflow = _NAN if to.exponent == 4 else 0x7C
    bits = b.bitcast(lane, U32)
    magnitude = b.bit_and(bits, 0x7FFFFFFF)
    absolute = b.bitcast(magnitude, F32)
    normal = magnitude
    if how == "rn":
        last = b.bit_and(b.shift(magnitude, -drop), 1)
        normal = b.add(b.plus(magnitude, (1 << (drop - 1)) - 1), last)
    normal = b.plus(b.shift(normal, -drop), -((127 - bias) << m))
    # Below the smallest normal number: count units of 2^(1 - bias - m). Adding 2^(23 + 1 - bias - m) leaves them in the low bits.
    magic = 2.0 ** (23 + 1 - bias - m)
    if how == "rn":
        small = b.bit_and(b.bitcast(b.op("add", F32, absolute, b.const(F32, magic)), U32), 0xFF)
    else:
        small = b.convert("rzi", b.op("mul", F32, absolute, b.const(F32, 2.0 ** (bias + m - 1))), U32)
    is_small = b.compare("lt", absolute, b.const(F32, 2.0 ** (1 - bias)))
    value = b.select(is_small, small, normal)
    too_large = b.compare("gt", value, b.const(U32, largest))
    if saturate:
        value = b.select(too_large, b.const(U32, largest), value)
    elif how == "rn":
        value = b.select(too_large, b.const(U32, overflow), value)
    else:  # toward zero a finite number stays finite
        infinite = b.compare("eq", magnitude, b.const(U32, 0x7F800000))
        value = b.select(too_large, b.const(U32, largest), value)
        value = b.select(infinite, b.const(U32, overflow), value)
    sign = b.bit_and(b.shift(bits, -24), 0x80)
    value = b.op("or", U32, value, sign)
    is_nan = b.compare("nan", lane, lane)
    value = b.select(is_nan, b.const(U32, _NAN), value)
    return b.bitcast(b.convert("int", value, U8), to)
