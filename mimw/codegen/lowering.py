"""The table of lowerings, and the state that they share.

Owns `lowers` (the one way to enter a lowering), `unsupported`, and `Lowering`: where each IR value lives, the scratch arithmetic on
thread coordinates, the dispatch over ops. Knows no op beyond their names and no instruction: those are in `shared/` (for all targets)
and in each target's `lower/`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mimw.codegen.lane import CTA, LANE, Lane, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.machine import Block, Edge, Imm, Reg, Terminator
from mimw.diagnostics import CompilationError, InternalError, Loc
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Function, OpBase, Value
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.types import I32, U32, TensorType
from mimw.target import Target


class FactsLike(Protocol):
    """The side table of integer facts."""

    def of(self, value: Value) -> Any:
        """The fact of a value."""
        ...


Lower = Callable[["Lowering", Any], None]

ANY = "any"
_TABLE: dict[tuple[str, str], Lower] = {}
_REASONS: dict[tuple[str, str], str] = {}


def lowers(*names: str, target: str = ANY) -> Callable[[Lower], Lower]:
    """Enter a function as the lowering of ops: for every target, or one vendor's ("nvidia") instruction set."""

    def enter(fn: Lower) -> Lower:
        for name in names:
            _TABLE[name, target] = fn
        return fn

    return enter


def unsupported(name: str, target: str, reason: str) -> None:
    """Declare that an op has no lowering on a target (vendor or name), and why; using it is an error at the user's line."""
    _REASONS[name, target] = reason


def lowering_of(name: str, target: Target) -> Lower | None:
    """The lowering of an op on a target; None when there is none."""
    return _TABLE.get((name, target.vendor)) or _TABLE.get((name, ANY))


def reason_of(name: str, target: Target) -> str | None:
    """Why an op is declared unsupported on a target."""
    return _REASONS.get((name, target.name)) or _REASONS.get((name, target.vendor)) or _REASONS.get((name, ANY))


def refuse(op: OpBase, target: Target, reason: str, hint: str | None = None) -> CompilationError:
    """The error of an op that the target cannot do, at the user's line."""
    return CompilationError("unsupported", f"{op.name} is not supported on {target.name}: {reason}", op.loc, hint=hint)


class Shared:
    """A memdesc (or barrier) at run time: the byte address of its first element (u32), and the layout of a buffer whose type has none.

    `mix`: the part of the address, in bytes, whose bits the swizzle mixes with those of elements: an element at offset x of the layout
    lies at ``address - mix + (mix ^ x)``. Not 0 only in slices; hardware that swizzles addresses itself needs the address alone.
    `align`: bytes that divide what views have added to the buffer's address, which bounds the width of an access. `linear`: the address
    is also where the hardware's own swizzle starts from, so that engines can use the view.
    """

    __slots__ = ("address", "align", "layout", "linear", "mix")

    def __init__(
        self, address: Lane, layout: SharedLayout | None = None, mix: int = 0, align: int = 1024, linear: bool = True
    ) -> None:
        self.address = address
        self.linear = linear
        self.layout = layout
        self.mix = mix
        self.align = align


class Inflight:
    """A tile that an asynchronous product is writing: its registers, and the register operands that must not be touched either."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: list[Lane]) -> None:
        self.lanes = lanes


class Frame:
    """A place that break, continue or return jump to: block, the IR types of its parameters, how lanes become arguments."""

    __slots__ = ("block", "carry", "reached")

    def __init__(self, block: Block, carry: Any) -> None:
        self.block = block
        self.carry = carry
        self.reached = False


class Lowering:
    """The state of one kernel's lowering.

    `num_warps` are those of the task that is being lowered, `leader` is true in the one thread that speaks for it (None: nothing asks),
    `maps` is where tensor maps that the kernel makes lie, as far as the task knows it, `hang` what a build that explains hangs keeps,
    `before_leave` emits what has to be done before a thread ends, `exit` is the block that all threads meet in (None: they just end).
    """

    def __init__(self, function: Function, target: Target, facts: FactsLike, builder: LaneBuilder) -> None:
        self.function = function
        self.target = target
        self.facts = facts
        self.b = builder
        self.lanes: dict[Value, Tile] = {}
        self.shared: dict[Value, Shared] = {}
        self.inflight: dict[Value, Inflight] = {}
        self.in_combine = 0
        self.blocks: list[Block] = [builder.block]
        self.breaks: list[Frame] = []
        self.continues: list[Frame] = []
        self.returns: list[Frame] = []
        self.live = True
        self.num_warps = function.num_warps
        self.warp_size = target.warp_size
        self.warp_bits = target.warp_size.bit_length() - 1
        self.leader: Lane | None = None
        self.maps: Lane | None = None
        self.hang: Any = None
        self.before_leave: Callable[[], None] | None = None
        self.exit: Block | None = None
        self._table: dict[str, Lower] = {}
        self._line = 0

    # ----------------------------------------------------------------------------------------------------------- ops

    def run_block(self, block: IrBlock) -> None:
        """Lower the ops of a block, terminator included."""
        for op in block.ops:
            self.lower(op)
            if not self.live:
                return

    def lower(self, op: OpBase) -> None:
        """Lower one op."""
        name = op.name
        fn = self._table.get(name)
        if fn is None:
            fn = self._table[name] = self._find(op)
        builder = self.b
        loc = op.loc
        builder.loc = loc
        if loc.line != self._line and loc.line:
            self._line = loc.line
            self._comment(loc)
        results = op.results
        builder.hint = results[0].name if results else ""
        fn(self, op)

    def _find(self, op: OpBase) -> Lower:
        fn = lowering_of(op.name, self.target)
        if fn is None:
            reason = reason_of(op.name, self.target)
            if reason is None:
                raise InternalError(f"{op.name} has no lowering for {self.target.name}", op.loc)
            raise refuse(op, self.target, reason)
        return fn

    def _comment(self, loc: Loc) -> None:
        text = linecache.getline(loc.file, loc.line).strip()
        if text:
            self.b.comment(f"{text}")

    # -------------------------------------------------------------------------------------------------------- values

    def tile(self, value: Value) -> Tile:
        """The lanes of a scalar or tensor value."""
        return self.lanes[value]

    def scalar(self, value: Value) -> Lane:
        """The lane of a scalar value."""
        return self.lanes[value][0]

    def set(self, value: Value, lanes: Tile) -> None:
        """Say where a value lives."""
        self.lanes[value] = lanes

    def layout(self, value: Value) -> Layout:
        """The register layout of a tensor value."""
        return layout_of(value)

    # --------------------------------------------------------------------------------------------------- coordinates

    def linear(self, bases: tuple[int, ...]) -> Lane:
        """The XOR of `bases[i]` over the set bits i of the thread index (lanes low, warps above), as u32: the thread's part of
        a coordinate or offset."""
        b = self.b
        if not any(bases):
            return b.const(U32, 0)
        return b.once(("linear", bases), lambda: self._linear(bases))

    def _linear(self, bases: tuple[int, ...]) -> Lane:
        b = self.b
        hint, b.hint = b.hint, "t"
        tid = b.thread_id()
        tid = Lane(U32, tid.reg, uniform=tid.uniform)
        whole = self.warp_size * self.num_warps - 1
        diagonals: dict[int, int] = {}
        for bit, value in enumerate(bases):
            rest = value
            while rest:
                low = rest & -rest
                shift = low.bit_length() - 1 - bit
                diagonals[shift] = diagonals.get(shift, 0) | 1 << bit
                rest ^= low
        total: Lane | None = None
        for shift, mask in sorted(diagonals.items()):
            part = tid if mask == whole else b.bit_and(tid, mask)
            part = b.shift(part, shift)
            total = part if total is None else b.op("xor", U32, total, part)
        b.hint = hint
        assert total is not None
        return total

    def thread_bases(self, layout: Layout, component: Callable[[tuple[int, ...]], int]) -> tuple[int, ...]:
        """Bases for `linear`: a number for every lane and warp basis vector of a layout."""
        return tuple(component(v) for v in (*layout.lane, *layout.warp))

    def coordinates(self, layout: Layout, dim: int) -> list[Lane]:
        """The coordinate along `dim` of every register, as i32."""
        b = self.b
        bases = self.thread_bases(layout, lambda v: v[dim])
        thread = self.linear(bases)
        thread = Lane(I32, thread.reg, thread.off, uniform=thread.uniform)
        span = 0
        for x in bases:
            span |= x
        below = (1 << layout.dims[dim][0]) - 1
        out: list[Lane] = []
        for c in layout.reg_coords():
            x = c[dim]
            mixed = x & below & span
            lane = b.op("xor", I32, thread, b.const(I32, mixed)) if mixed else thread
            out.append(b.plus(lane, x - mixed))
        return out

    def holes(self, layout: Layout, shape: Sequence[int]) -> Callable[[int], Lane | None]:
        """A function: register -> i1 that is true where its coordinates are inside `shape` (None: always)."""
        b = self.b
        padded = [d for d in range(layout.rank) if layout.shape_padded[d] > shape[d]]
        if not padded:
            return lambda r: None
        coordinates = {d: self.coordinates(layout, d) for d in padded}
        spans = {d: self._most(layout, d) for d in padded}
        registers = layout.reg_coords()

        def inside(r: int) -> Lane | None:
            guard: Lane | None = None
            for d in padded:
                if (registers[r][d] | spans[d]) < shape[d] and layout.additive():
                    continue
                guard = b.both(guard, self.below(coordinates[d][r], shape[d]))
            return guard

        return inside

    def below(self, lane: Lane, limit: int) -> Lane:
        """lane < limit for a coordinate and a constant: the lane's constant moves to the other side."""
        b = self.b
        if lane.reg is None:
            return b.compare("lt", lane, b.const(I32, limit))
        return b.compare("lt", b.base(lane), b.const(I32, limit - lane.off))

    def _most(self, layout: Layout, dim: int) -> int:
        span = 0
        for v in (*layout.lane, *layout.warp):
            span |= v[dim]
        return span

    def is_thread(self, lane_mask: int, warp_mask: int) -> Lane | None:
        """i1: the masked bits of the thread index are zero; None when the masks are empty."""
        mask = lane_mask | warp_mask << self.warp_bits
        if not mask:
            return None
        b = self.b
        tid = b.thread_id()
        if mask == self.warp_size * self.num_warps - 1:
            return b.compare("eq", tid, b.const(I32, 0))
        return b.compare("eq", b.bit_and(tid, mask), b.const(I32, 0))

    def first_thread(self) -> Lane | None:
        """i1: this is the first thread of the task (without tasks: of the CTA)."""
        return self.is_thread(self.warp_size - 1, self.num_warps - 1)

    # -------------------------------------------------------------------------------------------------- control flow

    def place(self, block: Block) -> None:
        """Continue lowering in `block`, which comes next in the text."""
        self.blocks.append(block)
        self.b.block = block
        self.live = True

    def jump(self, block: Block, args: list[Reg | Imm]) -> None:
        """End the current block with a jump."""
        self.b.close_block()
        self.b.block.term = Terminator([Edge(block, args)], loc=self.b.loc)
        self.live = False

    def branch(self, cond: Lane, yes: Edge, no: Edge) -> None:
        """End the current block with a two-way branch."""
        self.b.close_block()
        if cond.reg is None:
            edge = yes if cond.off else no
            self.b.block.term = Terminator([edge], loc=self.b.loc)
        elif cond.uniform == LANE and not self.b.branches_diverge:
            raise CompilationError(
                "unsupported",
                f"lanes of a warp would branch differently, which {self.target.name} code does not do",
                self.b.loc,
            )
        else:
            self.b.block.term = Terminator([yes, no], self.b.register(cond), cond.uniform == CTA, self.b.loc)
        self.live = False

    def leave(self) -> None:
        """End the current block with a return, or in the block that all threads end in."""
        if self.before_leave is not None:
            self.before_leave()
        if self.exit is not None:
            self.jump(self.exit, [])
            return
        self.b.close_block()
        self.b.block.term = Terminator([], loc=self.b.loc)
        self.live = False


def layout_of(value: Value) -> Layout:
    """The layout of a tensor value; `InternalError` when inference gave none."""
    t = value.type
    if not isinstance(t, TensorType) or t.layout is None:
        raise InternalError(f"{t} has no layout at lowering")
    return t.layout
