"""One element of an atomic on global memory; who does which is `shared/atomic.py`'s.

What the ISA lacks (8 and 16-bit integers, min and max of floats, bf16 sums before sm_90) is a loop over compare-and-swap. Sums of f32
flush subnormal numbers (PTX ISA, `atom`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import LANE, Lane, bits_of
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Block, Edge, Imm, Operand, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.opcodes import register_class
from mimw.codegen.shared.atomic import lower_atomic
from mimw.diagnostics import InternalError
from mimw.ir.types import F16, F32, F64, U8, U16, U32, U64, DType

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

    def publish(self) -> None:
        """The instruction itself releases."""

    def settle(self) -> None:
        """Nothing: an acquire is done before what follows it in its thread."""

    def refresh(self) -> None:
        """The instruction itself acquires."""

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
    lower_atomic(ctx, op, lambda held: Atomic(ctx, op, op.kind, held), op.value, None, op.mask)


@lowers("atomic.cas", target="nvidia")
def lower_cas(ctx: Lowering, op: Any) -> None:
    """Compare and swap."""
    lower_atomic(ctx, op, lambda held: Atomic(ctx, op, "cas", held), op.value, op.compare, None)
