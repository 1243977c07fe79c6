"""8-bit floats: by instruction where the target has one for the format, else in integer and f16 arithmetic.

Every format goes to f16 exactly and comes from f32 with one rounding. f8e5m2 is the upper half of an f16; f8e4m3 has its exponent moved by 8 and
no infinity. The FNUZ kinds have a bias one larger than these, neither infinity nor -0, and NaN where -0 would be.
"""

from __future__ import annotations

from mimw.codegen.float_bits import decode
from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.ir.types import F16, F32, U8, U32, DType


def to_f16(b: LaneBuilder, lane: Lane) -> Lane:
    """An 8-bit float as f16, exactly."""
    dtype = _dtype(lane)
    if lane.reg is None:
        return b.const(F16, decode(lane.off & 0xFF, dtype))
    return pair_to_f16(b, lane, b.const_bits(dtype, 0))[0]


def pair_to_f16(b: LaneBuilder, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
    """Two 8-bit floats as f16, exactly."""
    dtype = _dtype(lo)
    if lo.reg is None and hi.reg is None:
        return to_f16(b, lo), to_f16(b, hi)
    if b.reads_fp8(dtype):
        return b.halves_from_bytes(lo, hi)
    word = b.upper_bytes(lo, hi)
    if dtype.fnuz:
        return _halves(b, _without_minus_zero(b, word, _soft_fnuz(b, word, dtype)))
    return _halves(b, word) if dtype.exponent == 5 else _soft_e4m3(b, word)


def _dtype(lane: Lane) -> DType:
    assert isinstance(lane.dtype, DType)
    return lane.dtype


def _halves(b: LaneBuilder, word: Lane) -> tuple[Lane, Lane]:
    lo, hi = b.unword(word, F16, 2)
    return lo, hi


def _times(b: LaneBuilder, pair: tuple[Lane, Lane], factor: float) -> tuple[Lane, Lane]:
    c = b.const(F16, factor)
    return b.packed_op("mul", F16, [pair, (c, c)])


# The functions below take a u32 whose halves hold an 8-bit float each, in their upper bytes.


def _soft_e4m3(b: LaneBuilder, word: Lane) -> tuple[Lane, Lane]:
    small = _halves(b, b.shift_below_signs(word))  # the value times 2^-8
    value = _times(b, small, 256.0)
    # NaN alone, which stands for 480, becomes infinite here (448 does not), and then infinity times 0 is added to it.
    probe = _times(b, small, 256.0 * 140)
    zero = b.const(F16, 0.0)
    return b.packed_op("fma", F16, [probe, (zero, zero), value])


def _soft_fnuz(b: LaneBuilder, word: Lane, dtype: DType) -> Lane:
    """The bits of both f16; -0 for NaN."""
    if dtype.exponent == 4:
        return b.word_lane(_times(b, _halves(b, b.shift_below_signs(word)), 128.0))
    # As f16 the value is twice as large: one less in the exponent, or where that is 0 or 1 everything shifted right.
    shifted = b.bit_and(b.shift(word, -1), 0x3F803F80)
    large = b.bit_and(b.plus(b.bit_and(word, 0x7F007F00), 0x78007800), 0x80008000)
    everywhere = b.sub(large, b.shift(large, -15))  # the bits below those of `large`
    more = b.sub(b.op("and", U32, shifted, everywhere), b.shift(large, -5))
    return b.op("or", U32, b.add(shifted, more), b.bit_and(word, 0x80008000))


def _without_minus_zero(b: LaneBuilder, word: Lane, value: Lane) -> Lane:
    """`value` with NaN in the halves where `word` has the code of -0."""
    number = b.plus(b.bit_and(word, 0x7F007F00), 0x7F007F00)  # tells by the sign bits
    bad = b.bit_and(b.op("and", U32, word, b.op("not", U32, number)), 0x80008000)
    return b.op("or", U32, value, b.sub(bad, b.shift(bad, -7)))


def tile_from_f32(b: LaneBuilder, tile: Tile, to: DType, how: str, saturate: bool) -> list[Lane]:
    """f32 lanes as 8-bit floats."""
    if how == "rn" and saturate and b.makes_fp8(to) and len(tile) % 2 == 0:
        out: list[Lane] = []
        step = 4 if len(tile) % 4 == 0 else 2
        for i in range(0, len(tile), step):
            out += b.bytes_from_f32(tile[i : i + step], to)
        return out
    return [from_f32(b, x, to, how, saturate) for x in tile]


def from_f32(b: LaneBuilder, lane: Lane, to: DType, how: str, saturate: bool) -> Lane:
    """One f32 as an 8-bit float."""
    if how == "rn" and saturate and b.makes_fp8(to):
        return b.bytes_from_f32([lane, b.const(F32, 0.0)], to)[0]
    return _soft_from_f32(b, lane, to, how, saturate)


def _special_codes(to: DType) -> tuple[int, int, int]:
    """The largest finite number, what overflows without saturation, NaN."""
    if to.fnuz:
        return 0x7F, 0x80, 0x80
    return (0x7E, 0x7F, 0x7F) if to.exponent == 4 else (0x7B, 0x7C, 0x7F)


def _soft_from_f32(b: LaneBuilder, lane: Lane, to: DType, how: str, saturate: bool) -> Lane:
    m, bias = to.mantissa, to.bias
    drop = 23 - m
    largest, overflow, nan = (b.const(U32, code) for code in _special_codes(to))
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
    too_large = b.compare("gt", value, largest)
    if saturate:
        value = b.select(too_large, largest, value)
    elif how == "rn":
        value = b.select(too_large, overflow, value)
    else:  # toward zero a finite number stays finite
        infinite = b.compare("eq", magnitude, b.const(U32, 0x7F800000))
        value = b.select(too_large, largest, value)
        value = b.select(infinite, overflow, value)
    sign = b.bit_and(b.shift(bits, -24), 0x80)
    if to.fnuz:
        sign = b.select(b.compare("eq", value, b.const(U32, 0)), b.const(U32, 0), sign)
    value = b.op("or", U32, value, sign)
    is_nan = b.compare("nan", lane, lane)
    value = b.select(is_nan, nan, value)
    return b.bitcast(b.convert("int", value, U8), to)
