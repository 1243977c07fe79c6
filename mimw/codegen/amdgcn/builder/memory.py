"""Global and shared memory as AMDGCN instructions: addresses, accesses of 1 to 16 bytes, guards.

A global address is a scalar pair plus a 32-bit vector offset plus a constant (`point` says where), or a vector pair plus a constant; a
shared one is a vector register plus a constant. A guarded access is masked by EXEC; what a guarded load leaves where its guard is false
stands in the result already (a tie). Loads from a base and an offset go through a buffer resource, guarded ones if they leave zeros: where the guard is
false the offset is out of range, which costs one instruction and no zeros beforehand. Stores keep to EXEC, which costs them less.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.buffer import HALF, resource
from mimw.codegen.amdgcn.builder.core import Core, is_scalar, signed64
from mimw.codegen.amdgcn.builder.opcodes import LOADS, SHARED, STORES, is_float, is_signed, register_class
from mimw.codegen.lane import CTA, LANE, Lane, Tile, bits_of, wrap_int
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.machine import Imm, Operand, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import I32, I64, U32, U64, Element

GLOBAL_OFFSET = range(-(1 << 12), 1 << 12)
"""What the immediate of a global access holds; of a shared one: 0 to 65535."""
SHARED_OFFSET = range(1 << 16)
BUFFER_OFFSET = 1 << 12
"""Below this is the immediate of a buffer access."""

OUT_OF_RANGE = Imm(0xC0800000, "f32")
"""An offset beyond `HALF` that costs nothing: the bits of -4.0."""

# How a cache modifier of the language reads here. Cached everywhere is the default.
_CACHE = {
    "": (), "volatile": ("sc0", "sc1"), "ca": (), "wb": (), "cg": ("sc0",), "cs": ("nt",), "cv": ("sc0", "sc1"), "wt": ("sc0", "sc1"),
    "L1::evict_first": ("nt",), "L1::evict_last": (), "L1::evict_unchanged": (), "L1::no_allocate": ("nt",),
}  # fmt: skip


def modifiers(how: str) -> list[Operand]:
    """The modifiers of a global access."""
    words = _CACHE.get(how)
    if words is None:
        raise InternalError(f"unknown cache modifier {how!r}")
    return [Symbol(w) for w in words]


def point(b: Core, base: Lane, offset: Lane, scale: int, reach: int) -> Lane:
    """A pointer plus a lane's offset times a constant, in [0, reach): the sum, known by its parts where the pointer is uniform.

    Accesses take the parts, and then nothing needs the sum.
    """
    if base.uniform == LANE:
        return LaneBuilder.point(b, base, offset, scale, reach)
    origin = b.scalar_register(base)
    place = b.vector(b.times(Lane(U32, b.register(offset), uniform=offset.uniform), scale))
    whole = b.valu(
        "v_lshl_add_u64", base.dtype, b.wide(Lane(U32, place), b.const(U32, 0), U64), Imm(0), origin, uniform=LANE
    )
    b.splits[b.reg_of(whole)] = (origin, place, reach)
    return whole


def global_address(b: Core, lane: Lane) -> tuple[Operand, Operand, list[Operand]]:
    """(vector address, scalar base or ``off``, offset) of a pointer."""
    split = b.splits.get(lane.reg) if lane.reg is not None else None
    if split is not None:
        return _split_address(b, split[0], split[1], signed64(wrap_int(lane.off, I64)))
    off = signed64(wrap_int(lane.off, I64))
    if off not in GLOBAL_OFFSET or lane.reg is None:
        low = off % 4096 if lane.reg is not None else 0
        lane = Lane(
            lane.dtype,
            b.register(Lane(lane.dtype, lane.reg, lane.off - low, uniform=lane.uniform)),
            uniform=lane.uniform,
        )
        off = low
    place: list[Operand] = [Symbol(f"offset:{off}")] if off else []
    reg = b.reg_of(lane)
    if is_scalar(reg):
        return b.vector(b.const(I32, 0)), reg, place
    return reg, Symbol("off"), place


def _split_address(b: Core, base: Reg, place: Reg, off: int) -> tuple[Operand, Operand, list[Operand]]:
    """As `global_address`; what the immediate cannot hold goes to the base, in whole pages."""
    low = off if off in GLOBAL_OFFSET else off % 4096
    origin = Lane(U64, base, off - low, uniform=CTA)
    return place, b.scalar_register(origin), [Symbol(f"offset:{low}")] if low else []


def shared_address(b: Core, lane: Lane) -> tuple[Reg, list[Operand]]:
    """(vector address, offset) of a place in shared memory; what the immediate cannot hold goes to the register, the same for all neighbours."""
    off = wrap_int(lane.off, U32)
    low = off % len(SHARED_OFFSET)
    base = b.vector(Lane(lane.dtype, lane.reg, off - low, uniform=lane.uniform))
    return base, [Symbol(f"offset:{low}")] if low else []


def load(
    b: Core, space: str, dtype: Element, address: Lane, count: int, guard: Lane | None, other: Tile | None, how: str
) -> list[Lane]:
    """`count` neighbouring elements in one access."""
    if guard is not None and guard.reg is None:
        if not guard.off:
            return list(other) if other is not None else [Lane(dtype, None, uniform=CTA)] * count
        guard = None
    size = bits_of(dtype) // 8 * count
    reg = Reg(f"v{max(32, 8 * size)}", b.hint)
    if space == "global" and (guard is None or _leaves_zeros(other)):
        buffer = _buffer_operands(b, address, size, guard)
        if buffer is not None:
            opcode = f"buffer_load_{_narrow(LOADS[size], dtype, size, count)}"
            b.emit(opcode, [reg, *buffer, *modifiers(how)], 1)
            return _elements(b, reg, dtype, count)
    tied: list[Operand | None] | None = None
    if guard is not None:
        tied = [_initial(b, dtype, count, other)]
    if space == "shared":
        place, offset = shared_address(b, address)
        b.emit(f"ds_read_{_narrow(SHARED[size], dtype, size, count)}", [reg, place, *offset], 1, guard, tied)
    else:
        vector, base, offset = global_address(b, address)
        opcode = f"global_load_{_narrow(LOADS[size], dtype, size, count)}"
        b.emit(opcode, [reg, vector, base, *offset, *modifiers(how)], 1, guard, tied)
    return _elements(b, reg, dtype, count)


def _leaves_zeros(other: Tile | None) -> bool:
    return other is None or all(x.reg is None and not x.off for x in other)


def in_range_where(b: Core, address: Lane, size: int, guard: Lane | None) -> tuple[Reg, Reg, int] | None:
    """Offset, resource and further constant offset of an access of `size` bytes that is out of range where the guard is false; None where the
    pointer is not known by its parts, or might be out of range elsewhere. An access without guard is a valid one in every lane, and with it
    its base."""
    split = b.splits.get(address.reg) if address.reg is not None else None
    off = signed64(wrap_int(address.off, I64))
    if split is None or off < 0 or split[2] + off + size > HALF:
        return None
    base, place, _ = split
    if guard is not None:
        place = b.reg_of(b.valu("v_cndmask_b32", U32, OUT_OF_RANGE, place, b.register(guard), uniform=LANE))
    return place, resource(b, Lane(U64, base, uniform=CTA), wild=guard is not None), off


def _buffer_operands(b: Core, address: Lane, size: int, guard: Lane | None) -> list[Operand] | None:
    """Operands and modifiers of an access as `in_range_where` says; None where it has none."""
    found = in_range_where(b, address, size, guard)
    if found is None:
        return None
    place, words, off = found
    low = off % BUFFER_OFFSET
    rest: Operand = b.scalar_register(b.const(U32, off - low)) if off != low else Imm(0)
    return [place, words, rest, Symbol("offen"), *([Symbol(f"offset:{low}")] if low else [])]


def _narrow(name: str, dtype: Element, size: int, count: int) -> str:
    """Signed loads of one narrow element."""
    if size >= 4 or count > 1 or not is_signed(dtype):
        return name
    return {"ubyte": "sbyte", "ushort": "sshort", "u8": "i8", "u16": "i16"}[name]


def _elements(b: Core, reg: Reg, dtype: Element, count: int) -> list[Lane]:
    """The elements of a tuple that was loaded."""
    bits = bits_of(dtype)
    whole = count * max(bits, 8)
    if count == 1:
        return [Lane(dtype, reg)]
    if bits >= 32:
        cls = register_class(dtype, scalar=False)
        return [b.pure("p_part", dtype, [reg, Imm(i * bits // 32)], LANE, cls) for i in range(count)]
    words = (
        [reg]
        if whole <= 32
        else [b.reg_of(b.pure("p_part", U32, [reg, Imm(i)], LANE, "v32")) for i in range(whole // 32)]
    )
    per = 32 // bits
    return [Lane(dtype, words[i // per], 0, i % per) for i in range(count)]


def _initial(b: Core, dtype: Element, count: int, other: Tile | None) -> Operand:
    """What a guarded load leaves where its guard is false."""
    if other is None:
        zeros = max(1, bits_of(dtype) * count // 32)
        return b.tuple_of([b.const(U32, 0)] * zeros)
    return _data(b, other)


def _data(b: Core, values: Tile) -> Reg:
    """Neighbouring elements as the tuple of an access."""
    bits = bits_of(values[0].dtype)
    if bits >= 32:
        return b.tuple_of(values)
    if len(values) == 1:
        return b.vector(values[0])
    per = 32 // bits
    if len(values) < per:
        return b.packed(values)
    words = [Lane(U32, b.packed(values[i : i + per])) for i in range(0, len(values), per)]
    return b.tuple_of(words)


def store(b: Core, space: str, address: Lane, values: Tile, guard: Lane | None, how: str) -> None:
    """Neighbouring elements in one access."""
    if guard is not None and guard.reg is None:
        if not guard.off:
            return
        guard = None
    first = values[0]
    size = bits_of(first.dtype) // 8 * len(values)
    high = (
        len(values) == 1
        and bits_of(first.dtype) == 16
        and is_float(first.dtype)
        and first.part == 1
        and not is_scalar(first)
    )
    data = b.reg_of(first) if high else _data(b, values)
    if space == "shared":
        place, offset = shared_address(b, address)
        name = "b16_d16_hi" if high else SHARED[size].replace("u", "b")
        b.emit(f"ds_write_{name}", [place, data, *offset], 0, guard)
        return
    vector, base, offset = global_address(b, address)
    name = "short_d16_hi" if high else STORES[size]
    b.emit(f"global_store_{name}", [vector, data, base, *offset, *modifiers(how)], 0, guard)
