"""Lowering of inline assembly: the text's instructions, on new registers for each group of elements.

The text is read by the PTX parser, so that what the instruction table does not know is refused here and not by ptxas. Registers that it writes
again get new ones, as SSA wants; that leaves out guarded instructions and branches.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Addr, Inst, Label, Not, Operand, Pair, Reg, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.isa import CONTROL, resolve
from mimw.codegen.ptx.lexer import PtxSyntaxError
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.parser import parse
from mimw.diagnostics import CompilationError, Loc
from mimw.ir.asm_text import entry_text, registers_of, split_constraints
from mimw.ir.types import F32, F64, U16, U32, U64, DType

_TYPES = {"h": U16, "r": U32, "l": U64, "f": F32, "d": F64}


class _Text:
    """A text as instructions: `outs` and `ins` are its operands."""

    def __init__(self, op: Any) -> None:
        self.loc: Loc = op.loc
        self.out_letters, self.in_letters = split_constraints(op.constraints)
        try:
            entry = parse(entry_text(op.text, self.out_letters, self.in_letters)).entries[0]
        except PtxSyntaxError as error:
            raise self.wrong(error.message) from None
        except ValueError as error:
            raise self.wrong(str(error)) from None
        names = {reg.name: reg for reg in entry.regs}
        self.outs = [names[f"asm_o{i}"] for i in range(len(self.out_letters))]
        self.ins = [names[f"asm_i{i}"] for i in range(len(self.in_letters))]
        self.insts: list[Inst] = []
        for item in entry.body[:-1]:  # the last one is the entry's ret
            if isinstance(item, Label) or (
                isinstance(item, Inst) and (item.guard or resolve(item.opcode).effects == CONTROL)
            ):
                raise self.wrong("labels, branches and guarded instructions cannot be used", "choose with selp")
            if isinstance(item, Inst):
                self.insts.append(item)

    def wrong(self, text: str, hint: str | None = None) -> CompilationError:
        return CompilationError("inline-asm", f"inline assembly: {text}", self.loc, hint=hint)

    def emit(self, b: PtxBuilder, inputs: list[Operand]) -> list[Reg]:
        """Append the instructions; the registers of the results."""
        now: dict[Reg, Operand] = dict(zip(self.ins, inputs, strict=True))
        for inst in self.insts:
            sources = [self._read(x, now) for x in inst.operands[inst.num_results :]]
            written = [self._write(x, now) for x in inst.operands[: inst.num_results]]
            b.emit(inst.opcode, [*written, *sources], inst.num_results)
        found = [now.get(reg) for reg in self.outs]
        for i, reg in enumerate(found):
            if not isinstance(reg, Reg):
                raise self.wrong(f"nothing writes ${i}")
        return [reg for reg in found if isinstance(reg, Reg)]

    def _read(self, x: Operand, now: dict[Reg, Operand]) -> Operand:
        if isinstance(x, Reg):
            if x not in now:
                raise self.wrong(f"{x.name} is read before it is written")
            return now[x]
        if isinstance(x, Vec):
            return Vec([self._read(i, now) for i in x.items])
        if isinstance(x, Not):
            reg = self._read(x.reg, now)
            return Not(reg) if isinstance(reg, Reg) else reg
        if isinstance(x, Addr) and isinstance(x.base, Reg):
            base: Any = self._read(x.base, now)
            return Addr(base, x.offset, None if x.coords is None else [self._read(c, now) for c in x.coords])
        return x

    def _write(self, x: Operand, now: dict[Reg, Operand]) -> Operand:
        if isinstance(x, Reg):
            now[x] = fresh = Reg(x.cls)
            return fresh
        if isinstance(x, Vec):
            return Vec([self._write(i, now) for i in x.items])
        if isinstance(x, Pair):
            first: Any = self._write(x.first, now)
            second: Any = self._write(x.second, now)
            return Pair(first, second)
        return x


@lowers("inline.asm", target="nvidia")
@lowers("inline.asm_volatile", target="nvidia")
def lower_inline_asm(ctx: Lowering, op: Any) -> None:
    """The text once for each `pack` elements of a thread."""
    b = ptx_builder(ctx)
    text = _Text(op)
    tiles: list[Tile] = [ctx.tile(v) for v in op.operands]
    count = len(tiles[0]) if tiles else 1
    results: list[list[Lane]] = [[] for _ in op.outs]
    for at in range(0, count, op.pack):
        picked = [min(i, count - 1) for i in range(at, at + op.pack)]
        inputs: list[Operand] = []
        letters = text.in_letters
        for tile in tiles:
            regs = _inputs(b, [tile[i] for i in picked], op.pack, letters)
            letters = letters[len(regs) :]
            inputs += regs
        regs = text.emit(b, inputs)
        letters = text.out_letters
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
    out: list[Operand] = []
    for i in range(0, pack, each):
        if each > 1:
            out.append(b.register(b.word_lane(lanes[i : i + each])))
        else:
            out.append(b.register(_seen_as(b, lanes[i], _TYPES[letters[0]])))
    return out


def _seen_as(b: PtxBuilder, lane: Lane, dtype: DType) -> Lane:
    return lane if lane.dtype is dtype else b.bitcast(lane, dtype)


def _outputs(b: PtxBuilder, regs: list[Reg], dtype: DType, pack: int, letters: str) -> tuple[list[Lane], int]:
    """The elements of one result in the first of these registers; how many registers those are."""
    count = registers_of(dtype.bits, pack, letters)
    each = pack // count
    lanes: list[Lane] = []
    for reg in regs[:count]:
        word = Lane(_TYPES[letters[0]], reg)
        lanes += b.unword(word, dtype, each) if each > 1 else [_seen_as(b, word, dtype)]
    return lanes, count
