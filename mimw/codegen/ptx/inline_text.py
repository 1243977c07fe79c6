"""Inline assembly as instructions: reads a text, and checks it as ptxas would, so that faults are told at the user's line.

Both who emits the text and who simulates it read it here. Knows nothing of elements, tiles and targets.
"""

from __future__ import annotations

import re

from mimw.codegen.machine import Addr, Inst, Label, Not, Operand, Pair, Reg, Symbol, Vec
from mimw.codegen.ptx.isa import CONTROL, misfit, resolve
from mimw.codegen.ptx.lexer import PtxSyntaxError
from mimw.codegen.ptx.parser import parse
from mimw.ir.asm_text import entry_text, split_constraints

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


class InlineText:
    """A text that is fine: `insts` in order, on registers of its own; `outs` and `ins` are its operands'."""

    __slots__ = ("ins", "insts", "outs")

    def __init__(self, insts: list[Inst], outs: list[Reg], ins: list[Reg]) -> None:
        self.insts = insts
        self.outs = outs
        self.ins = ins

    def addresses(self) -> str:
        """The first opcode that reads or writes memory; empty where none does."""
        return next((i.opcode for i in self.insts if any(isinstance(x, Addr) for x in i.operands)), "")


def read_inline_text(text: str, constraints: str) -> InlineText:
    """The instructions of a text, in a straight line; ValueError says what is wrong with it."""
    _check_braces(text)
    out_letters, in_letters = split_constraints(constraints)
    try:
        entry = parse(entry_text(text, out_letters, in_letters)).entries[0]
    except PtxSyntaxError as error:
        raise ValueError(error.message) from None
    insts: list[Inst] = []
    for item in entry.body[:-1]:  # the last one is the entry's ret
        if isinstance(item, Label) or (
            isinstance(item, Inst) and (item.guard or resolve(item.opcode).effects & CONTROL)
        ):
            raise ValueError("labels, branches and guarded instructions cannot be used: choose with selp")
        if isinstance(item, Inst):
            insts.append(item)
    names = {reg.name: reg for reg in entry.regs}
    outs = [names[f"asm_o{i}"] for i in range(len(out_letters))]
    ins = [names[f"asm_i{i}"] for i in range(len(in_letters))]
    _check(insts, outs, ins)
    return InlineText(insts, outs, ins)


def _check_braces(text: str) -> None:
    depth = 0
    for brace in re.findall("[{}]", _COMMENTS.sub("", text)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            raise ValueError("it closes a brace that it did not open")
    if depth:
        raise ValueError("it opens a brace that it does not close")


def _check(insts: list[Inst], outs: list[Reg], ins: list[Reg]) -> None:
    """Operands fit their instructions; what is read was written; results are written."""
    shown = {reg: f"${i}" for i, reg in enumerate([*outs, *ins])}
    written = set(ins)
    for inst in insts:
        for x in inst.operands:
            _check_symbols(x)
        wrong = misfit(inst)
        if wrong:
            raise ValueError(wrong)
        for x in inst.operands[inst.num_results :]:
            for reg in registers(x):
                if reg not in written:
                    raise ValueError(f"{shown.get(reg, reg.name)} is read before it is written")
        for x in inst.operands[: inst.num_results]:
            written.update(registers(x))
    for reg in outs:
        if reg not in written:
            raise ValueError(f"nothing writes {shown[reg]}")


def _check_symbols(x: Operand) -> None:
    for part in x.items if isinstance(x, Vec) else [x.base] if isinstance(x, Addr) else [x]:
        if isinstance(part, Symbol):
            raise ValueError(f"{part.name} is not declared")


def registers(x: Operand) -> list[Reg]:
    """The registers in an operand."""
    if isinstance(x, Reg):
        return [x]
    if isinstance(x, Vec):
        return [reg for item in x.items for reg in registers(item)]
    if isinstance(x, Not):
        return [x.reg]
    if isinstance(x, Pair):
        return [reg for part in (x.first, x.second) for reg in registers(part)]
    if isinstance(x, Addr):
        return [reg for part in (x.base, *(x.coords or ())) for reg in registers(part)]
    return []
