"""Lowering of inline assembly: the text's instructions, on new registers for each group of elements.

Registers that the text writes again get new ones, as SSA wants; that leaves out guarded instructions and branches (`inline_text`).
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import LANE, Lane, Tile
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Addr, Not, Operand, Pair, Reg, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.inline_text import InlineText, read_inline_text
from mimw.codegen.ptx.isa import form_of, supports
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.diagnostics import CompilationError
from mimw.ir.asm_text import registers_of, split_constraints
from mimw.ir.types import F32, F64, U16, U32, U64, DType

_TYPES = {"h": U16, "r": U32, "l": U64, "f": F32, "d": F64}


def _read_text(ctx: Lowering, op: Any) -> InlineText:
    """The text, on this target; the user's error where that cannot be."""
    try:
        text = read_inline_text(op.text, op.constraints)
        for inst in text.insts:
            if not supports(form_of(inst), ctx.target):
                raise ValueError(f"{ctx.target.name} has no {inst.opcode}")
    except ValueError as error:
        raise CompilationError("inline-asm", f"inline assembly: {error}", op.loc) from None
    return text


def _emit(b: PtxBuilder, text: InlineText, inputs: list[Operand]) -> list[Reg]:
    """Append the instructions; the registers of the results."""
    now: dict[Reg, Operand] = dict(zip(text.ins, inputs, strict=True))
    for inst in text.insts:
        sources = [_read(x, now) for x in inst.operands[inst.num_results :]]
        written = [_write(x, now) for x in inst.operands[: inst.num_results]]
        b.emit(inst.opcode, [*written, *sources], inst.num_results)
    found = [now[reg] for reg in text.outs]
    return [reg for reg in found if isinstance(reg, Reg)]


def _read(x: Operand, now: dict[Reg, Operand]) -> Operand:
    if isinstance(x, Reg):
        return now[x]
    if isinstance(x, Vec):
        return Vec([_read(i, now) for i in x.items])
    if isinstance(x, Not):
        reg = _read(x.reg, now)
        return Not(reg) if isinstance(reg, Reg) else reg
    if isinstance(x, Addr) and isinstance(x.base, Reg):
        base: Any = _read(x.base, now)
        return Addr(base, x.offset, None if x.coords is None else [_read(c, now) for c in x.coords])
    return x


def _write(x: Operand, now: dict[Reg, Operand]) -> Operand:
    if isinstance(x, Reg):
        now[x] = fresh = Reg(x.cls)
        return fresh
    if isinstance(x, Vec):
        return Vec([_write(i, now) for i in x.items])
    if isinstance(x, Pair):
        first: Any = _write(x.first, now)
        second: Any = _write(x.second, now)
        return Pair(first, second)
    return x


@lowers("inline.asm", target="nvidia")
@lowers("inline.asm_volatile", target="nvidia")
def lower_inline_asm(ctx: Lowering, op: Any) -> None:
    """The text once for each `pack` elements of a thread."""
    b = ptx_builder(ctx)
    text = _read_text(ctx, op)
    out_letters, in_letters = split_constraints(op.constraints)
    tiles: list[Tile] = [ctx.tile(v) for v in op.operands]
    count = len(tiles[0]) if tiles else 1
    results: list[list[Lane]] = [[] for _ in op.outs]
    for at in range(0, count, op.pack):
        picked = [min(i, count - 1) for i in range(at, at + op.pack)]
        inputs: list[Operand] = []
        letters = in_letters
        for tile in tiles:
            regs = _inputs(b, [tile[i] for i in picked], op.pack, letters)
            letters = letters[len(regs) :]
            inputs += regs
        regs = _emit(b, text, inputs)
        letters = out_letters
        for out, dtype in zip(results, op.dtypes, strict=True):
            lanes, used = _outputs(b, regs, dtype, op.pack, letters)
            regs, letters = regs[used:], letters[used:]
            out += lanes
    for value, lanes in zip(op.outs, results, strict=True):
        ctx.set(value, lanes[:count])


def _inputs(b: PtxBuilder, lanes: list[Lane], pack: int, letters: str) -> list[Operand]:
    """Elements in the registers that their constraints ask for."""
    dtype: Any = lanes[0].dtype
    count = registers_of(dtype.bits, pack, letters)
    each = pack // count
    kind = _TYPES[letters[0]]
    return [b.register(_joined(b, lanes[i : i + each], kind)) for i in range(0, pack, each)]


def _joined(b: PtxBuilder, lanes: list[Lane], kind: DType) -> Lane:
    """Elements that fill one register of type `kind`, the first lowest."""
    if len(lanes) == 1:
        return lanes[0] if lanes[0].dtype is kind else b.bitcast(lanes[0], kind)
    if kind.bits == 64:
        half = len(lanes) // 2
        parts = [b.register(_joined(b, part, U32)) for part in (lanes[:half], lanes[half:])]
        wide = b.reg("b64")
        b.emit("mov.b64", [wide, Vec([*parts])], 1)
        return _seen_as(b, Lane(U64, wide), kind)
    word = b.word_lane(lanes)
    if kind.bits == 16:
        return b.pure("cvt.u16.u32", U16, [b.register(word)], LANE)
    return _seen_as(b, word, kind)


def _seen_as(b: PtxBuilder, lane: Lane, dtype: DType) -> Lane:
    return lane if lane.dtype is dtype else b.bitcast(lane, dtype)


def _outputs(b: PtxBuilder, regs: list[Reg], dtype: DType, pack: int, letters: str) -> tuple[list[Lane], int]:
    """The elements of one result in the first of these registers; how many registers those are."""
    count = registers_of(dtype.bits, pack, letters)
    lanes: list[Lane] = []
    for reg in regs[:count]:
        lanes += _parted(b, reg, _TYPES[letters[0]], dtype, pack // count)
    return lanes, count


def _parted(b: PtxBuilder, reg: Reg, kind: DType, dtype: DType, count: int) -> list[Lane]:
    """The elements of `dtype` in one register of type `kind`."""
    word = Lane(kind, reg)
    if count == 1:
        return [_seen_as(b, word, dtype)]
    if kind.bits == 64:
        halves = [b.reg("b32"), b.reg("b32")]
        b.emit("mov.b64", [Vec([*halves]), reg], 1)
        return [lane for half in halves for lane in _parted(b, half, U32, dtype, count // 2)]
    if kind.bits == 16:
        return b.unword(b.pure("cvt.u32.u16", U32, [reg], LANE), dtype, count)
    return b.unword(_seen_as(b, word, U32), dtype, count)
