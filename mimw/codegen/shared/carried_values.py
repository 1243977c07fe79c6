"""How values go around loops and out of branches: as parameters of blocks.

A carried tile is one parameter a register (packed elements stay packed). Integer and pointer tiles whose registers differ by
constants, and which a loop only moves as a whole, are carried as one parameter for each distinct base. Lowers no op.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, LANE, Lane, Tile, bits_of, is_integer
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Inflight, Lowering, Shared
from mimw.codegen.machine import Imm, Reg
from mimw.diagnostics import InternalError
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Value
from mimw.ir.types import (
    I1,
    U32,
    BarrierType,
    InflightType,
    MemDescType,
    TensorDescType,
    TensorType,
    Type,
    element_of,
)


class Slot:
    """How one value is carried: its parameters, the lanes that read them, and for shared bases each lane's (parameter, constant)."""

    __slots__ = ("affine", "lanes", "params", "type")

    def __init__(self, type: Type, params: list[Reg], lanes: list[Lane], affine: list[tuple[int, int]] | None) -> None:
        self.type = type
        self.params = params
        self.lanes = lanes
        self.affine = affine


class Carry:
    """The parameters of a block for a list of values."""

    __slots__ = ("params", "slots")

    def __init__(self, ctx: Lowering, types: list[Type], names: list[str], like: list[Tile | None]) -> None:
        """`like[i]`, where given, is a tile whose shared bases value i has too."""
        self.slots = [_slot(ctx, t, name, tile) for t, name, tile in zip(types, names, like, strict=True)]
        self.params = [p for s in self.slots for p in s.params]

    def bind(self, ctx: Lowering, values: list[Value]) -> None:
        """Let the values live in the parameters."""
        for slot, value in zip(self.slots, values, strict=True):
            bind(ctx, value, slot)

    def arguments(self, ctx: Lowering, values: list[Value]) -> list[Reg | Imm]:
        """The arguments of a jump that gives the parameters these values."""
        out: list[Reg | Imm] = []
        for slot, value in zip(self.slots, values, strict=True):
            out += _slot_arguments(ctx, slot, value)
        return out


def bind(ctx: Lowering, value: Value, slot: Slot) -> None:
    """Say that a value lives in a slot's parameters."""
    if isinstance(slot.type, (MemDescType, BarrierType)):
        ctx.shared[value] = Shared(slot.lanes[0])
    elif isinstance(slot.type, InflightType):
        ctx.inflight[value] = Inflight(slot.lanes)
    else:
        ctx.set(value, slot.lanes)


def _slot(ctx: Lowering, t: Type, name: str, like: Tile | None) -> Slot:
    b = ctx.b
    b.hint = name or b.hint
    if isinstance(t, (MemDescType, BarrierType, TensorDescType)):
        words = b.descriptor_words(len(t.block_shape)) if isinstance(t, TensorDescType) else [U32]
        regs = [b.parameter(word, CTA) for word in words]
        return Slot(t, regs, [Lane(w, reg, uniform=CTA) for w, reg in zip(words, regs, strict=True)], None)
    tile = t.tensor if isinstance(t, InflightType) else t
    dtype = element_of(tile)
    count = tile.layout.num_regs if isinstance(tile, TensorType) and tile.layout is not None else 1
    uniform = CTA if count == 1 and not isinstance(tile, TensorType) and not ctx.in_combine else LANE
    if like is not None and is_integer(dtype):
        return _affine_slot(b, t, dtype, like, uniform)
    per = 32 // bits_of(dtype) if dtype is not I1 and bits_of(dtype) < 32 else 1
    if per > 1 and count % per == 0:
        words = [b.parameter(U32) for _ in range(count // per)]
        return Slot(t, words, [Lane(dtype, words[i // per], 0, i % per) for i in range(count)], None)
    params = [b.parameter(dtype, uniform) for _ in range(count)]
    return Slot(t, params, [Lane(dtype, p, uniform=uniform) for p in params], None)


def _affine_slot(b: LaneBuilder, t: Type, dtype: Any, like: Tile, uniform: int) -> Slot:
    params: list[Reg] = []
    index: dict[Reg | None, tuple[int, int]] = {}
    affine: list[tuple[int, int]] = []
    lanes: list[Lane] = []
    for lane in like:
        at = index.get(lane.reg)
        if at is None:
            at = index[lane.reg] = (len(params), lane.off)
            params.append(b.parameter(dtype, uniform))
        step = lane.off - at[1]
        affine.append((at[0], step))
        lanes.append(Lane(dtype, params[at[0]], step, uniform=uniform))
    return Slot(t, params, lanes, affine)


def _slot_arguments(ctx: Lowering, slot: Slot, value: Value) -> list[Reg | Imm]:
    b = ctx.b
    if isinstance(slot.type, (MemDescType, BarrierType)):
        return [b.jump_argument(ctx.shared[value].address, slot.params[0])]
    if isinstance(slot.type, InflightType):
        tile: Tile = ctx.inflight[value].lanes
    else:
        tile = ctx.tile(value)
    if slot.affine is not None:
        return _affine_arguments(b, slot, tile)
    per = len(tile) // len(slot.params)
    if per > 1:
        return [b.word(tile[i : i + per]) for i in range(0, len(tile), per)]
    return [b.jump_argument(x, p) for x, p in zip(tile, slot.params, strict=True)]


def _affine_arguments(b: LaneBuilder, slot: Slot, tile: Tile) -> list[Reg | Imm]:
    first: list[Lane | None] = [None] * len(slot.params)
    assert slot.affine is not None
    for lane, (index, step) in zip(tile, slot.affine, strict=True):
        start = b.plus(lane, -step)
        known = first[index]
        if known is None:
            first[index] = start
        elif known.key() != start.key():
            raise InternalError("a carried tile lost its shared bases", b.loc)
    return [b.jump_argument(x, p) for x, p in zip(first, slot.params, strict=True) if x is not None]


_MOVES = {"memory.ptr_add": (0,), "arith.add": (0, 1), "arith.sub": (0,)}


def _only_moves(value: Value, arg: Value) -> bool:
    """Whether a value is `arg` plus what is the same for all its elements."""
    while value is not arg:
        op = value.defining_op
        if op is None or op.name not in _MOVES:
            return False
        for i in _MOVES[op.name]:
            other = op.operands[1 - i]
            same = not isinstance(other.type, TensorType) or (
                other.defining_op is not None and other.defining_op.name in ("tensor.splat", "arith.constant")
            )
            if same:
                value = op.operands[i]
                break
        else:
            return False
    return True


def loop_exits(block: IrBlock, found: dict[str, list[list[Value]]]) -> None:
    """The values of every yield, continue and break that belong to a loop's body."""
    for op in block.ops:
        if op.name in ("control.continue", "control.break"):
            found[op.name].append(list(op.operands))
        elif op.name not in ("control.for", "control.while"):
            for region in op.regions:
                loop_exits(region.block, found)


def shared_bases(ctx: Lowering, op: Any, args: list[Value]) -> list[Tile | None]:
    """For each carried value the tile whose bases it shares all through the loop, or None."""
    found: dict[str, list[list[Value]]] = {"control.continue": [], "control.break": []}
    loop_exits(op.body.block, found)
    last = op.body.block.terminator
    nexts = found["control.continue"] + found["control.break"]
    if last is not None and last.name == "control.yield":
        nexts.append(list(last.operands))
    out: list[Tile | None] = []
    for i, (init, arg) in enumerate(zip(op.inits, args, strict=True)):
        t = init.type
        fits = isinstance(t, TensorType) and is_integer(t.element) and all(_only_moves(n[i], arg) for n in nexts)
        out.append(ctx.tile(init) if fits else None)
    return out
