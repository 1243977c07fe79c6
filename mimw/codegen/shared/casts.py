"""Casts between all pairs of types, as the op's documentation says: rounding, saturation, 8-bit floats on every target.

A cast that the target has in one instruction is that instruction; the others are made of such. Double rounding is avoided by
rounding to odd on the way (f32 has at least two more bits than any 16- or 8-bit type).
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.float_bits import decode
from mimw.codegen.lane import Lane, LazyTile, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared import fp8
from mimw.ir.types import BF16, F16, F32, F64, I1, I32, I64, U32, U64, DType, Element, PointerType, element_of


def cast(b: LaneBuilder, lane: Lane, to: Element, rounding: str = "rtne", saturate: bool = True) -> Lane:
    """One lane as another type."""
    source = lane.dtype
    if source is to:
        return lane
    if isinstance(to, PointerType) or isinstance(source, PointerType):
        return _cast_pointer(b, lane, to)
    if to is I1:
        return _to_bool(b, lane)
    if source is I1:
        one = b.const(to, 1)
        return b.select(lane, one, b.const(to, 0))
    if to.kind == "float":
        if lane.reg is None and to.bits >= 32:
            value = decode(lane.off, source) if source.kind == "float" else lane.off
            found = b.const(to, value)
            if decode(found.off, to) == value:  # exact, so that no rounding mode matters
                return found
        return _to_float(b, lane, to, "rz" if rounding == "rtz" else "rn", saturate)
    if source.kind == "float":
        return _float_to_int(b, lane, to)
    return _int_to_int(b, lane, to)


def cast_tile(b: LaneBuilder, tile: Tile, to: Element, rounding: str = "rtne", saturate: bool = True) -> list[Lane]:
    """A tile as another type; narrowing to 16- and 8-bit floats goes by pairs so that results come out packed."""
    source = tile[0].dtype
    if source is to:
        return list(tile)
    how = "rz" if rounding == "rtz" else "rn"
    if (
        isinstance(to, DType)
        and isinstance(source, DType)
        and len(tile) % 2 == 0
        and to.kind == "float"
        and to.bits < 32
    ):
        out = _cast_packed(b, tile, to, how, saturate)
        if out is not None:
            return out
    if (
        isinstance(source, DType)
        and source.is_fp8()
        and isinstance(to, DType)
        and to.kind == "float"
        and len(tile) % 2 == 0
    ):
        pairs = [_widened_pair(b, tile[i], tile[i + 1], to is F16) for i in range(0, len(tile), 2)]
        return [x if x.dtype is to else cast(b, x, to, rounding) for pair in pairs for x in pair]
    return [cast(b, x, to, rounding, saturate) for x in tile]


def _widened_pair(b: LaneBuilder, lo: Lane, hi: Lane, as_f16: bool) -> tuple[Lane, Lane]:
    """Two 8-bit floats as f16, or where that is nearer as f32."""
    assert isinstance(lo.dtype, DType)
    constant = lo.reg is None and hi.reg is None
    found = None if as_f16 or constant or not b.reads_fp8(lo.dtype) else b.floats_from_bytes(lo, hi)
    return found or fp8.pair_to_f16(b, lo, hi)


def _cast_packed(b: LaneBuilder, tile: Tile, to: DType, how: str, saturate: bool) -> list[Lane] | None:
    if tile[0].dtype is I1:
        return None
    if to.bits == 16 and not (tile[0].dtype is F64 or (to is F16 and tile[0].dtype is not F32)):
        wide = _tile_as_f32(b, tile)
        out: list[Lane] = []
        for lo, hi in zip(wide[::2], wide[1::2], strict=True):
            pair = b.convert_pair(how, lo, hi, to)
            if pair is None:
                return None
            out += pair
        return out
    if to.bits == 8:
        wide = _tile_as_f32(b, tile)
        return fp8.tile_from_f32(b, wide, to, how, saturate)
    return None


def _tile_as_f32(b: LaneBuilder, tile: Tile) -> list[Lane]:
    """As `_to_f32_odd`, 8-bit floats two at a time."""
    source = tile[0].dtype
    if isinstance(source, DType) and source.is_fp8():
        return cast_tile(b, tile, F32)
    return [_to_f32_odd(b, x) for x in tile]


def _cast_pointer(b: LaneBuilder, lane: Lane, to: Element) -> Lane:
    if isinstance(to, PointerType) and not isinstance(lane.dtype, PointerType):
        return b.bitcast(_int_to_int(b, lane, U64), to)
    wide = b.bitcast(lane, U64)
    return wide if isinstance(to, PointerType) or to is U64 else cast(b, wide, to)


def _to_bool(b: LaneBuilder, lane: Lane) -> Lane:
    dtype = lane.dtype
    assert isinstance(dtype, DType)
    if dtype.kind == "float" and (dtype.bits == 8 or not b.supports("compare", dtype)):
        lane = cast(b, lane, F32)
    zero = b.const(lane.dtype, 0)
    return b.compare("ne", lane, zero)


def _int_to_int(b: LaneBuilder, lane: Lane, to: DType) -> Lane:
    source = lane.dtype
    assert isinstance(source, DType)
    if lane.reg is None:
        return b.const(to, lane.off)
    if source.bits == to.bits:
        return b.bitcast(lane, to)
    if to.bits == 64:
        return b.widen(lane, to)
    return b.convert("int", lane, to)


def _float_to_int(b: LaneBuilder, lane: Lane, to: DType) -> Lane:
    """Toward zero, saturated; NaN becomes 0."""
    if lane.dtype is not F32 and lane.dtype is not F64:
        lane = cast(b, lane, F32)
    value = b.convert("rzi", lane, to)
    if lane.dtype is F64 or to.bits == 64:  # the instruction gives another number for NaN in these forms
        is_nan = b.compare("nan", lane, lane)
        value = b.select(is_nan, b.const(to, 0), value)
    return value


def _to_float(b: LaneBuilder, lane: Lane, to: DType, how: str, saturate: bool) -> Lane:
    source = lane.dtype
    if to.bits == 8:
        return fp8.from_f32(b, _to_f32_odd(b, lane), to, how, saturate)
    if isinstance(source, DType) and source.is_fp8():
        lane = fp8.to_f16(b, lane)
        source = F16
        if to is F16:
            return lane
    if source is BF16:
        wide = bf16_to_f32(b, lane)
        return wide if to is F32 else _to_float(b, wide, to, how, saturate)
    for rounding in (how, "exact"):
        if b.converts(rounding, source, to):
            return b.convert(rounding, lane, to)
    return b.convert(how, _to_f32_odd(b, lane), to)


def bf16_to_f32(b: LaneBuilder, lane: Lane) -> Lane:
    """Exact: the bits move up by 16."""
    if lane.reg is None:
        return b.const_bits(F32, lane.off << 16)
    return b.bf16_to_f32(lane)


def _to_f32_odd(b: LaneBuilder, lane: Lane) -> Lane:
    """A value as f32, so that rounding the result to a 16- or 8-bit type gives what rounding the value itself would."""
    source = lane.dtype
    if source is F32:
        return lane
    assert isinstance(source, DType)
    if source.kind == "float" and source is not F64:
        return cast(b, lane, F32)
    if source.kind != "float" and source.bits <= 16:
        return b.convert("rn", lane, F32)
    cut = b.convert("rz", lane, F32)
    if source is F64:
        # Overflow: rz gives the largest finite number, which still rounds to what infinity would in every narrower type... save
        # for an infinite source, which converts to itself.
        back = b.convert("exact", cut, F64)
        inexact = b.compare("ne", back, lane)
        is_nan = b.compare("nan", lane, lane)
        inexact = b.op("and", I1, inexact, b.invert(is_nan))
    else:
        back = b.convert("rzi", cut, source)
        inexact = b.compare("ne", back, lane)
    bits = b.bitcast(cut, U32)
    odd = b.op("or", U32, bits, b.const(U32, 1))
    return b.bitcast(b.select(inexact, odd, bits), F32)


@lowers("arith.cast")
def lower_cast(ctx: Lowering, op: Any) -> None:
    """A cast of a scalar or a tile."""
    b = ctx.b
    tile = ctx.tile(op.src)
    to = op.dtype
    source = element_of(op.src.type)
    if to is I1 and len(tile) > 1 and source is not I1:
        ctx.set(op.result, LazyTile(len(tile), lambda i: cast(b, tile[i], I1)))
        return
    if source in (I32, U32) and to in (I64, U64):
        ctx.set(op.result, widened(ctx, op.src, to, 1))
        return
    ctx.set(op.result, cast_tile(b, tile, to, op.rounding, op.saturate))


@lowers("arith.bitcast")
def lower_bitcast(ctx: Lowering, op: Any) -> None:
    """The same bits."""
    ctx.set(op.result, [ctx.b.bitcast(x, op.dtype) for x in ctx.tile(op.src)])


def widened(ctx: Lowering, value: Any, to: Element, scale: int) -> list[Lane]:
    """A 32-bit integer tile extended to 64 bits, times a constant, its constants kept apart where nothing can have wrapped.

    ``sext(base + c)`` is ``sext(base) + c`` when neither sum leaves 32 bits: for the whole tile if its range says so, else inside
    a run that starts at a multiple of its length.
    """
    b = ctx.b
    tile = ctx.tile(value)
    if all(x.reg is None or not x.off for x in tile):
        return [_widen(b, x, to, scale) for x in tile]
    fact = ctx.facts.of(value)
    low, high = (-(1 << 31), (1 << 31) - 1) if element_of(value.type) is I32 else (0, (1 << 32) - 1)
    offs = [x.off for x in tile if x.reg is not None]
    lo, hi = fact.lo, fact.hi
    if lo is not None and hi is not None and lo - max(offs) >= low and hi - min(offs) <= high:
        return [_split(b, x, to, scale, x.off) for x in tile]
    run = _aligned_run(ctx, value, fact)
    out: list[Lane] = []
    for i, x in enumerate(tile):
        first = tile[i - i % run]
        step = x.off - first.off
        if x.reg is first.reg and 0 <= step < run:
            whole = _widen(b, first, to, scale)
            out.append(b.plus(whole, step * scale))
        else:
            out.append(_widen(b, x, to, scale))
    return out


def _split(b: LaneBuilder, lane: Lane, to: Element, scale: int, off: int) -> Lane:
    if lane.reg is None:
        return b.const(to, lane.off * scale)
    return b.plus(_widen(b, b.base(lane), to, scale), off * scale)


def _widen(b: LaneBuilder, lane: Lane, to: Element, scale: int) -> Lane:
    if lane.reg is None:
        return b.const(to, lane.off * scale)
    dtype = lane.dtype
    assert isinstance(dtype, DType)
    if scale != 1 and dtype.bits == 32:
        return b.widen_scaled(lane, to, scale)
    wide = b.widen(lane, to)
    return wide if scale == 1 else b.times(wide, scale)


def _aligned_run(ctx: Lowering, value: Any, fact: Any) -> int:
    """Neighbouring registers whose values count up from a multiple of the run's length."""
    layout = getattr(value.type, "layout", None)
    if layout is None or not layout.reg:
        return 1
    dim = next((d for d, x in enumerate(layout.reg[0]) if x == 1), None)
    if dim is None:
        return 1
    run = min(layout.contiguity(dim), fact.contiguity[dim])
    divisor = fact.divisor[dim]
    return max(1, min(run, divisor & -divisor))
