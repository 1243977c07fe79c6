"""Lowerings of global memory: pointer arithmetic, loads and stores of tiles and scalars.

The width of an access follows from the layout (how many neighbours a thread holds) and from facts (alignment, contiguity, constancy of
the mask). Holes of padded layouts are masked, and copies are not stored twice.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from mimw.codegen.lane import CTA, Lane, Tile, bits_of
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Reg
from mimw.codegen.shared.casts import widened
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.types import I1, I32, U8, U32, PointerType, TensorType, element_of


@lowers("memory.ptr_add")
def lower_ptr_add(ctx: Lowering, op: Any) -> None:
    """base + offset * size, in 64 bits; constants stay apart for the immediates of accesses."""
    b = ctx.b
    pointer = element_of(op.result.type)
    assert isinstance(pointer, PointerType)
    size = pointer.pointee.itemsize
    offset = element_of(op.offset.type)
    reach = _reach(ctx, op.offset, size) if b.takes_bases else 0
    if reach:
        lanes = zip(ctx.tile(op.ptr), _apart(b, ctx.tile(op.offset)), strict=True)
        ctx.set(op.result, [b.plus(_point(b, p, x, size, reach), more * size) for p, (x, more) in lanes])
        return
    if offset in (I32, U32):
        offsets = widened(ctx, op.offset, pointer, size)
    else:
        offsets = [b.times(b.widen(x, pointer), size) for x in ctx.tile(op.offset)]
    ctx.set(op.result, [b.op("add", pointer, p, o) for p, o in zip(ctx.tile(op.ptr), offsets, strict=True)])


def _reach(ctx: Lowering, offset: Value, size: int) -> int:
    """The bytes from a pointer on that a tile of 32-bit offsets reaches, where they provably lie in [0, 2^31); else 0."""
    fact = ctx.facts.of(offset)
    if element_of(offset.type) not in (I32, U32) or not isinstance(offset.type, TensorType):
        return 0
    if fact.lo is None or fact.hi is None or fact.lo < 0 or (fact.hi + 1) * size > 1 << 31:
        return 0
    return (fact.hi + 1) * size


def _apart(b: LaneBuilder, tile: Tile) -> list[tuple[Lane, int]]:
    """Lanes as a lane that is one of the tile plus a number from 0 on, few different lanes."""
    least: dict[Reg, int] = {}
    for x in tile:
        if x.reg is not None:
            least[x.reg] = min(x.off, least.get(x.reg, x.off))
    return [(b.const(x.dtype, 0), x.off) if x.reg is None else
            (b.plus(x, least[x.reg] - x.off), x.off - least[x.reg]) for x in tile]  # fmt: skip


def _point(b: LaneBuilder, base: Lane, offset: Lane, size: int, reach: int) -> Lane:
    return base if offset.reg is None else b.point(base, offset, size, reach)


class Access:
    """How a tile is accessed: runs of `width` neighbouring registers along `dim`."""

    __slots__ = ("dim", "width")

    def __init__(self, width: int, dim: int) -> None:
        self.width = width
        self.dim = dim


def access_of(ctx: Lowering, ptr: Value, mask: Value | None, elem_bits: int, most: int = 16) -> Access:
    """The widest access that layout and facts allow, at most `most` bytes."""
    layout = layout_of(ptr)
    assert isinstance(ptr.type, TensorType)
    shape = ptr.type.shape
    if not layout.reg:
        return Access(1, 0)
    dim = next((d for d, x in enumerate(layout.reg[0]) if x == 1), None)
    if dim is None or sum(layout.reg[0]) != 1:
        return Access(1, 0)
    fact = ctx.facts.of(ptr)
    size = elem_bits // 8
    divisor = fact.divisor[dim]
    aligned = max(1, (divisor & -divisor) // size)
    width = min(layout.contiguity(dim), fact.contiguity[dim], aligned, max(1, most // size))
    if mask is not None:
        width = min(width, ctx.facts.of(mask).constancy[dim])
    if layout.shape_padded[dim] != shape[dim]:
        width = gcd(width, shape[dim])
    return Access(1 << (width.bit_length() - 1), dim)


def cache_words(op: Any) -> str:
    """The modifiers of an access, in the order of the text."""
    if getattr(op, "volatile", False):
        return "volatile"
    if op.eviction and op.eviction != "evict_normal":
        return "L1::" + op.eviction
    return op.cache


def guards(ctx: Lowering, ptr: Value, mask: Value | None) -> Any:
    """register -> i1 or None: inside the tile and unmasked."""
    b = ctx.b
    inside = ctx.holes(layout_of(ptr), ptr.type.shape)  # type: ignore[union-attr]
    tile = ctx.tile(mask) if mask is not None else None

    def guard(r: int) -> Lane | None:
        m = tile[r] if tile is not None else None
        if m is not None and m.reg is None and m.off:
            m = None
        return b.both(inside(r), m)

    return guard


@lowers("memory.load")
def lower_load(ctx: Lowering, op: Any) -> None:
    """A tile or scalar from global memory."""
    if isinstance(op.result.type, TensorType):
        ctx.set(op.result, load_tile(ctx, op))
        return
    pointee = element_of(op.result.type)
    mask = ctx.scalar(op.mask) if op.mask is not None else None
    other = list(ctx.tile(op.other)) if op.other is not None else None
    found = _load(ctx, pointee, ctx.scalar(op.ptr), 1, mask, other, cache_words(op))
    for lane in found:
        lane.uniform = CTA
    ctx.set(op.result, found)


def load_tile(ctx: Lowering, op: Any) -> list[Lane]:
    """The lanes of a tile that is loaded."""
    pointee = element_of(op.result.type)
    access = access_of(ctx, op.ptr, op.mask, bits_of(pointee))
    pointers = ctx.tile(op.ptr)
    other = ctx.tile(op.other) if op.other is not None else None
    guard = guards(ctx, op.ptr, op.mask)
    how = cache_words(op)
    width = access.width
    layout = layout_of(op.ptr)
    copies = algebra.owner_mask(layout)[0]
    out: list[Lane] = []
    low = (1 << len(layout.reg)) - 1
    for r in range(0, layout.num_regs, width):
        if r & low & copies:  # a register that repeats an earlier one
            first = r & ~(low & copies)
            same = all(pointers[first + i].key() == pointers[r + i].key() for i in range(width))
            if same and not getattr(op, "volatile", False):
                out += out[first : first + width]
                continue
        part = other[r : r + width] if other is not None else None
        out += _load(ctx, pointee, pointers[r], width, guard(r), part, how)
    return out


def _load(
    ctx: Lowering, dtype: Any, address: Lane, count: int, guard: Lane | None, other: Tile | None, how: str
) -> list[Lane]:
    if dtype is not I1:
        return ctx.b.load("global", dtype, address, count, guard, other, how)
    b = ctx.b
    if other is not None:
        other = [b.select(x, b.const(U8, 1), b.const(U8, 0)) for x in other]
    bytes_ = b.load("global", U8, address, count, guard, other, how)
    return [b.compare("ne", x, b.const(U8, 0)) for x in bytes_]


@lowers("memory.store")
def lower_store(ctx: Lowering, op: Any) -> None:
    """A tile or scalar to global memory, by one owner an element."""
    b = ctx.b
    dtype = element_of(op.value.type)
    if not isinstance(op.value.type, TensorType):
        first = ctx.first_thread()
        mask = ctx.scalar(op.mask) if op.mask is not None else None
        b.store("global", ctx.scalar(op.ptr), as_memory(ctx, ctx.tile(op.value)), b.both(first, mask), cache_words(op))
        return
    access = access_of(ctx, op.ptr, op.mask, bits_of(dtype))
    layout = layout_of(op.ptr)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    low = (1 << len(layout.reg)) - 1
    guard = guards(ctx, op.ptr, op.mask)
    pointers, values = ctx.tile(op.ptr), ctx.tile(op.value)
    how = cache_words(op)
    width = access.width
    for r in range(0, layout.num_regs, width):
        if r & low & registers:
            continue
        b.store("global", pointers[r], as_memory(ctx, values[r : r + width]), b.both(owner, guard(r)), how)


def as_memory(ctx: Lowering, lanes: Tile) -> list[Lane]:
    """Lanes as they lie in memory: i1 as bytes."""
    lanes = list(lanes)
    if lanes[0].dtype is not I1:
        return lanes
    b = ctx.b
    return [b.select(x, b.const(U8, 1), b.const(U8, 0)) for x in lanes]
