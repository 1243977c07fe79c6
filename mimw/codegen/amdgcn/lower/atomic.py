"""One element of an atomic on global memory; who does which is `shared/atomic.py`'s.

What the ISA lacks (8- and 16-bit elements, min and max of f32) is a loop over compare-and-swap that goes on while any lane has to try
again. Memory order follows LLVM's memory model for gfx942: a release writes back the L2 lines that others may not see
(``buffer_wbl2``) and waits, an acquire drops what caches hold (``buffer_inv``); ``sc1`` is the scope of the device, with ``sc0`` the system's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.amdgcn.builder.memory import global_address
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import LANE, Lane, bits_of
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Block, Edge, Imm, Operand, Symbol, Terminator
from mimw.codegen.shared.atomic import lower_atomic
from mimw.codegen.shared.casts import cast
from mimw.diagnostics import InternalError
from mimw.ir.types import F32, F64, I1, I64, U8, U16, U32, U64, DType

_SCOPES: dict[str, tuple[str, ...]] = {"cta": (), "cluster": ("sc1",), "gpu": ("sc1",), "sys": ("sc0", "sc1")}


class Atomic:
    """One atomic instruction (or loop) on one element: what it does, in which order, seen by whom."""

    __slots__ = ("b", "ctx", "dtype", "kind", "returns", "scope")

    def __init__(self, ctx: Lowering, kind: str, dtype: DType, returns: bool, scope: str) -> None:
        self.ctx = ctx
        self.b = amdgcn_builder(ctx)
        self.kind = kind
        self.dtype = dtype
        self.returns = returns
        self.scope = scope

    def publish(self) -> None:
        """What this wave wrote is where the scope can see it."""
        words: list[Operand] = [Symbol(w) for w in _SCOPES[self.scope]]
        if words:
            self.b.emit("buffer_wbl2", words)
        self.b.emit("p_wait_vm", [Imm(0)])

    def settle(self) -> None:
        """The answers of this wave's atomics are there: what other waves read behind the next barrier is what they acquire."""
        self.b.emit("p_wait_vm", [Imm(0)])

    def refresh(self) -> None:
        """What this wave's caches hold may be old."""
        words: list[Operand] = [Symbol(w) for w in _SCOPES[self.scope]]
        if words:
            self.b.emit("buffer_inv", words)

    def run(self, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        """The old element (zero where `guard` is false)."""
        b, dtype = self.b, self.dtype
        if guard is not None and guard.reg is None:
            if not guard.off:
                return Lane(dtype, None)
            guard = None
        name = self.instruction()
        if name is not None:
            return self._one(name, pointer, value, compare, guard)
        if bits_of(dtype) < 32:
            return self._narrow_loop(pointer, value, compare, guard)
        word = U64 if bits_of(dtype) == 64 else U32
        found = self._swap(word, pointer, lambda old: b.bitcast(self._new(b.bitcast(old, dtype), value), word), guard)
        return b.bitcast(found, dtype)

    def instruction(self) -> str | None:
        """The middle of the mnemonic, where there is an instruction."""
        dtype, kind = self.dtype, self.kind
        bits = bits_of(dtype)
        if bits < 32:
            return None
        wide = "_x2" if bits == 64 else ""
        if kind in ("xchg", "cas"):
            return ("swap" if kind == "xchg" else "cmpswap") + wide
        if dtype is F64:
            return f"{kind}_f64" if kind in ("add", "min", "max") else None
        if dtype is F32:
            return "add_f32" if kind == "add" else None
        if kind in ("min", "max"):
            kind = ("s" if dtype.kind == "int" else "u") + kind
        return kind + wide

    def _one(self, name: str, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        b, dtype = self.b, self.dtype
        data = b.tuple_of([value] if compare is None else [value, compare])
        place, base, offset = global_address(b, pointer)
        modifiers: list[Operand] = [*offset, *([Symbol("sc1")] if self.scope == "sys" else [])]
        if not self.returns:
            b.emit(f"global_atomic_{name}", [place, data, base, *modifiers], 0, guard)
            return Lane(dtype, None)
        old = b.reg(f"v{max(32, bits_of(dtype))}")
        tied = [b.tuple_of([b.const(U32, 0)] * (bits_of(dtype) // 32))] if guard is not None else None
        b.emit(f"global_atomic_{name}_rtn", [old, place, data, base, *modifiers], 1, guard, tied)
        return Lane(dtype, old)

    # ------------------------------------------------------------------------------------------------- compare-and-swap

    def _new(self, old: Lane, value: Lane) -> Lane:
        """What is stored over `old`."""
        b, dtype, kind = self.b, self.dtype, self.kind
        if kind == "xchg":
            return value
        if dtype.is_fp8():
            raise InternalError(f"atomic {kind} of {dtype}", b.loc)
        return b.op(kind, dtype, old, value)

    def _swap(self, word: DType, pointer: Lane, make: Callable[[Lane], Lane], guard: Lane | None) -> Lane:
        """Try until nobody else came between, in all lanes; those that are done wait with what they found."""
        b, ctx = self.b, self.ctx
        place, base, offset = global_address(b, pointer)
        first = b.load("global", word, pointer, 1, guard, None, "volatile")[0]
        todo, expected = b.parameter(I1), b.parameter(word)
        again, done = Block("swap", [todo, expected]), Block("swapped", [result := b.parameter(word)])
        start = b.register(guard) if guard is not None else Imm(-1)
        ctx.jump(again, [start, b.vector(first)])
        b.open_loop()
        ctx.place(again)
        new = make(Lane(word, expected))
        got = b.reg(expected.cls)
        name = "global_atomic_cmpswap_x2_rtn" if word is U64 else "global_atomic_cmpswap_rtn"
        data = b.tuple_of([new, Lane(word, expected)])
        b.emit(name, [got, place, data, base, *offset], 1, Lane(I1, todo), [expected])
        other = b.compare("ne", Lane(word, got), Lane(word, expected))
        left = b.op("and", I1, Lane(I1, todo), other)
        cond = b.register(b.any_lane(left))
        b.block.term = Terminator([Edge(again, [b.register(left), got]), Edge(done, [got])], cond, True, b.loc)
        b.close_loop()
        ctx.place(done)
        return Lane(word, result)

    def _narrow_loop(self, pointer: Lane, value: Lane, compare: Lane | None, guard: Lane | None) -> Lane:
        """An 8- or 16-bit element through the aligned 32-bit word around it."""
        b, dtype = self.b, self.dtype
        bits = bits_of(dtype)
        raw = U8 if bits == 8 else U16
        whole = Lane(I64, b.register(pointer), uniform=pointer.uniform)
        low = b.words(whole)[0]
        shift = b.shift(b.bit_and(low, 3), 3)
        word = Lane(pointer.dtype, b.register(b.bit_and(whole, -4)), uniform=LANE)
        hole = b.op("not", U32, b.op("shl", U32, b.const(U32, (1 << bits) - 1), shift))

        def element_of(old: Lane) -> Lane:
            field = b.bit_and(b.op("shr", U32, old, shift), (1 << bits) - 1)
            return b.bitcast(b.convert("int", field, raw), dtype)

        def make(old: Lane) -> Lane:
            mine = element_of(old)
            if compare is None:
                new = self._narrow_new(mine, value)
            else:
                same = b.compare("eq", b.bitcast(mine, raw), b.bitcast(compare, raw))
                new = b.select(same, value, mine)
            bits_ = b.bitcast(new, raw)
            wide = b.const(U32, bits_.off) if bits_.reg is None else b.convert("int", bits_, U32)
            return b.op("or", U32, b.op("and", U32, old, hole), b.op("shl", U32, wide, shift))

        return element_of(self._swap(U32, word, make, guard))

    def _narrow_new(self, old: Lane, value: Lane) -> Lane:
        """As `_new`; types without arithmetic through f32."""
        half = self.dtype.kind == "float" and not self.dtype.is_fp8()
        from_f32 = half and self.kind != "xchg" and not self.b.supports(self.kind, self.dtype)
        if not from_f32:
            return self._new(old, value)
        b = self.b
        return cast(b, b.op(self.kind, F32, cast(b, old, F32), cast(b, value, F32)), self.dtype)


@lowers("atomic.rmw", target="amd")
def lower_rmw(ctx: Lowering, op: Any) -> None:
    """old = *ptr; *ptr = old kind value."""
    returns = bool(op.result.users)
    lower_atomic(ctx, op, lambda held: Atomic(ctx, op.kind, held, returns, op.scope), op.value, None, op.mask)


@lowers("atomic.cas", target="amd")
def lower_cas(ctx: Lowering, op: Any) -> None:
    """Compare and swap."""
    returns = bool(op.result.users)
    lower_atomic(ctx, op, lambda held: Atomic(ctx, "cas", held, returns, op.scope), op.value, op.compare, None)
