"""Lowerings of atomics on global memory.

Every element happens once: registers, lanes and warps that hold copies are masked, and get the owner's result by shuffles, or through
shared memory from another warp. What the ISA lacks (8 and 16-bit integers, min and max of floats, bf16 sums before sm_90) is a loop over
compare-and-swap. The CTA-wide meaning of release and acquire needs a barrier of the task before and after: each thread orders its own
accesses only. Sums of f32 flush subnormal numbers (PTX ISA, `atom`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import CTA, LANE, Lane, Tile, as_u32, bits_of
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Block, Edge, Imm, Operand, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.opcodes import register_class
from mimw.diagnostics import InternalError
from mimw.ir import layout as algebra
from mimw.ir.types import F16, F32, F64, I1, I32, U8, U16, U32, U64, DType, PointerType, TensorType, element_of

_WORDS = {16: U16, 32: U32, 64: U64}
_NATIVE_BITS = (32, 64)


class Atomic:
    """One atomic instruction (or loop) on one element: what it does, in which order, seen by whom."""

    __slots__ = ("b", "compare", "ctx", "dtype", "how", "kind", "returns")

    def __init__(self, ctx: Lowering, op: Any, kind: str, dtype: DType) -> None:
        self.ctx = ctx
        self.b = ptx_builder(ctx)
        self.kind = kind
        self.dtype = dtype
        self.returns = bool(op.result.users)
        self.how = f"{op.sem}.{op.scope}.global"

    def run(self, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        """The old element (zero where `guard` is false)."""
        opcode = self.instruction()
        if opcode is not None:
            return self._one(opcode, pointer, [value] if compare is None else [compare, value], guard)
        if bits_of(self.dtype) == 8:
            return self._byte_loop(pointer, value, compare, guard)
        return self._loop(pointer, lambda old: self._new(old, value), guard)

    def instruction(self) -> str | None:
        """The end of the opcode, where there is an instruction."""
        dtype, kind = self.dtype, self.kind
        bits = bits_of(dtype)
        if kind in ("xchg", "cas"):
            name = "exch" if kind == "xchg" else "cas"
            return f"{name}.b{bits}" if bits in _NATIVE_BITS or (bits == 16 and name == "cas") else None
        if dtype.kind == "float":
            if kind != "add" or bits == 8:
                return None
            if dtype in (F32, F64):
                return f"add.{dtype.name}"
            return f"add.noftz.{dtype.name}" if dtype is F16 or self.b.has_bf16 else None
        if bits not in _NATIVE_BITS:
            return None
        if kind in ("and", "or", "xor"):
            return f"{kind}.b{bits}"
        sign = "s" if dtype.kind == "int" else "u"
        return f"{kind}.{'u' if kind == 'add' and bits == 64 else sign}{bits}"

    # --------------------------------------------------------------------------------------------------- one instruction

    def _one(self, end: str, pointer: Lane, values: list[Lane], guard: Lane | None) -> Lane:
        b, dtype = self.b, self.dtype
        by_bits = ".b" in end
        held = _WORDS[bits_of(dtype)] if by_bits else dtype
        operands: list[Operand] = [b.address("global", pointer)]
        operands += [b.register(b.bitcast(v, held) if by_bits else v) for v in values]
        if not self.returns and self.kind != "cas" and self.kind != "xchg":
            order = {"acquire": "relaxed", "acq_rel": "release"}
            sem, rest = self.how.split(".", 1)
            b.emit(f"red.{order.get(sem, sem)}.{rest}.{end}", operands, 0, guard)
            return b.const_zero(dtype)
        cls = register_class(held)
        old = b.reg(cls)
        tied: list[Operand] | None = None
        if guard is not None and guard.reg is not None:
            tied = [Imm(0, cls if cls in ("f32", "f64") else "int")]
        if guard is not None and guard.reg is None and not guard.off:
            return b.const_zero(dtype)
        b.emit(f"atom.{self.how}.{end}", [old, *operands], 1, guard, tied)
        lane = Lane(held, old)
        return b.bitcast(lane, dtype) if by_bits else lane

    # ------------------------------------------------------------------------------------------------- compare-and-swap

    def _new(self, old: Lane, value: Lane) -> Lane:
        """What is stored over `old`, as bits of the element's own type."""
        b, dtype, kind = self.b, self.dtype, self.kind
        if kind == "xchg":
            return value
        if dtype.is_fp8():
            raise InternalError(f"atomic {kind} of {dtype}", b.loc)
        return b.op(kind, dtype, old, value)

    def _loop(self, pointer: Lane, make: Callable[[Lane], Lane], guard: Lane | None) -> Lane:
        """Try until nobody else came between; elements of 16, 32 or 64 bits."""
        b, dtype = self.b, self.dtype
        word = _WORDS[bits_of(dtype)]
        found = self._swap(word, pointer, lambda old: b.bitcast(make(b.bitcast(old, dtype)), word), guard)
        return b.bitcast(found, dtype)

    def _swap(self, word: DType, pointer: Lane, make: Callable[[Lane], Lane], guard: Lane | None) -> Lane:
        b, ctx = self.b, self.ctx
        address = b.address("global", pointer)
        cls = register_class(word)
        result = b.reg(cls)
        done = Block("swapped", [result])
        if guard is not None and guard.reg is None and not guard.off:
            return b.const_zero(word)
        if guard is not None and guard.reg is not None:
            wanted = Block("swap_if")
            b.block.term = Terminator([Edge(wanted, []), Edge(done, [Imm(0)])], b.register(guard), False, b.loc)
            ctx.place(wanted)
        b.open_scope()
        first = b.register(b.load("global", word, pointer, 1, None, None, "volatile")[0])
        expected = b.reg(cls)
        again = Block("swap", [expected])
        ctx.jump(again, [first])
        ctx.place(again)
        new = b.register(make(Lane(word, expected)))
        got = b.reg(cls)
        b.emit(f"atom.{self.how}.cas.b{word.bits}", [got, address, expected, new], 1)
        same = b.register(b.compare("eq", Lane(word, got), Lane(word, expected)))
        b.block.term = Terminator([Edge(done, [got]), Edge(again, [got])], same, False, b.loc)
        b.close_scope()
        ctx.place(done)
        return Lane(word, result)

    def _byte_loop(self, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        """An 8-bit element through the aligned 32-bit word around it."""
        b, dtype = self.b, self.dtype
        whole = b.register(pointer)
        low = b.pure("cvt.u32.u64", U32, [whole], LANE)
        shift = b.shift(b.bit_and(low, 3), 3)
        word = Lane(pointer.dtype, b.pure("and.b64", U64, [whole, Imm(-4)], LANE).reg)
        hole = b.op("not", U32, b.op("shl", U32, b.const(U32, 0xFF), shift))

        def byte_of(old: Lane) -> Lane:
            raw = b.bit_and(b.op("shr", U32, old, shift), 0xFF)
            return b.bitcast(b.convert("int", raw, U8), dtype)

        def make(old: Lane) -> Lane:
            mine = byte_of(old)
            new = (
                value if compare is None else b.select(b.compare("eq", _bits(b, mine), _bits(b, compare)), value, mine)
            )
            new = new if compare is not None else self._new(mine, value)
            raw = _bits(b, new)
            wide = b.const(U32, raw.off) if raw.reg is None else b.convert("int", raw, U32)
            return b.op("or", U32, b.op("and", U32, old, hole), b.op("shl", U32, wide, shift))

        return byte_of(self._swap(U32, word, make, guard))


def _bits(b: PtxBuilder, lane: Lane) -> Lane:
    """An 8-bit element as u8."""
    return b.bitcast(lane, U8)


# ----------------------------------------------------------------------------------------------------------------------- the ops


@lowers("atomic.rmw", target="nvidia")
def lower_rmw(ctx: Lowering, op: Any) -> None:
    """old = *ptr; *ptr = old kind value."""
    _lower(ctx, op, op.kind, op.value, None, op.mask)


@lowers("atomic.cas", target="nvidia")
def lower_cas(ctx: Lowering, op: Any) -> None:
    """Compare and swap."""
    _lower(ctx, op, "cas", op.value, op.compare, None)


def _lower(ctx: Lowering, op: Any, kind: str, value: Any, compare: Any, mask: Any) -> None:
    b = ptx_builder(ctx)
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PointerType)
    dtype = pointer.pointee
    is_bool = dtype is I1
    held = U8 if is_bool else dtype
    one = Atomic(ctx, op, kind, held)

    def bytes_(lanes: Tile | None) -> Tile | None:
        if lanes is None or not is_bool:
            return lanes
        return [b.select(x, b.const(U8, 1), b.const(U8, 0)) for x in lanes]

    pointers, values = ctx.tile(op.ptr), bytes_(ctx.tile(value))
    compares = bytes_(ctx.tile(compare) if compare is not None else None)
    masks = ctx.tile(mask) if mask is not None else None
    assert values is not None
    if op.sem in ("release", "acq_rel"):
        b.barrier()
    if isinstance(op.result.type, TensorType):
        out = _tile(ctx, op, one, pointers, values, compares, masks)
    else:
        first = ctx.is_thread(31, ctx.num_warps - 1)
        guard = b.both(first, masks[0] if masks is not None else None)
        old = one.run(pointers[0], values[0], compares[0] if compares is not None else None, guard)
        out = [_to_all(ctx, op, old)] if one.returns else [old]
    if op.sem in ("acquire", "acq_rel") and one.returns:
        b.barrier()
    if is_bool:
        out = [b.compare("ne", x, b.const(U8, 0)) for x in out]
    ctx.set(op.result, out)


def _to_all(ctx: Lowering, op: Any, old: Lane) -> Lane:
    """A scalar result from the first thread to all threads of the task."""
    b = ptx_builder(ctx)
    if ctx.num_warps == 1:
        lane = b.shuffle_from(old, b.const(I32, 0))
    else:
        place = b.plus(b.shared_base(), _scratch(op))
        b.store("shared", place, [old], ctx.is_thread(31, ctx.num_warps - 1), "")
        b.barrier()
        lane = b.load("shared", old.dtype, place, 1, None, None, "")[0]
    return Lane(lane.dtype, lane.reg, lane.off, lane.part, CTA)


def _scratch(op: Any) -> int:
    at = op.attrs.get("scratch", -1)
    if at < 0:
        raise InternalError("an atomic without scratch memory", op.loc)
    return at


def _tile(
    ctx: Lowering, op: Any, one: Atomic, pointers: Tile, values: Tile, compares: Tile | None, masks: Tile | None
) -> list[Lane]:
    """Every element by its owner; its copies get the result afterwards."""
    b = ptx_builder(ctx)
    layout = layout_of(op.result)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    for copies, vectors in ((lanes, layout.lane), (warps, layout.warp)):
        if any(copies >> i & 1 and any(v) for i, v in enumerate(vectors)):
            raise InternalError(f"atomics on copies in other registers: {layout}", op.loc)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.result.type.shape)
    low = (1 << len(layout.reg)) - 1
    found: dict[int, Lane] = {}
    for r in range(layout.num_regs):
        if r & low & registers:
            continue
        guard = b.both(b.both(owner, inside(r)), masks[r] if masks is not None else None)
        found[r] = one.run(pointers[r], values[r], compares[r] if compares is not None else None, guard)
    if one.returns and warps:
        found = _through_shared(ctx, op, found, lanes | warps << 5)
    elif one.returns and lanes:
        source = b.bit_and(b.thread_id(), 31 & ~lanes)
        found = {r: b.shuffle_from(x, source) for r, x in found.items()}
    out: list[Lane] = []
    coords = layout.reg_coords()
    first = {coords[r]: x for r, x in found.items()}
    for r in range(layout.num_regs):
        out.append(found.get(r) or first[coords[r]])
    return out


def _through_shared(ctx: Lowering, op: Any, found: dict[int, Lane], copies: int) -> dict[int, Lane]:
    """The owners' results to all who hold copies: a slot for each register and each thread that owns something."""
    b = ptx_builder(ctx)
    dtype = next(iter(found.values())).dtype
    size = bits_of(dtype) // 8
    bases: list[int] = []
    owners = 1
    for bit in range((32 * ctx.num_warps).bit_length() - 1):
        bases.append(0 if copies >> bit & 1 else owners * size)
        owners <<= 0 if copies >> bit & 1 else 1
    place = b.plus(b.add(b.shared_base(), as_u32(ctx.linear(tuple(bases)))), _scratch(op))
    owner = ctx.is_thread(copies & 31, copies >> 5)
    for i, lane in enumerate(found.values()):
        b.store("shared", b.plus(place, i * owners * size), [lane], owner, "")
    b.barrier()
    return {
        r: b.load("shared", dtype, b.plus(place, i * owners * size), 1, None, None, "")[0] for i, r in enumerate(found)
    }
