"""Flat bodies from lines of text, and back: for tests of the passes on physical registers."""

from __future__ import annotations

import re

from mimw.codegen.amdgcn.flat.expand import physical
from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.machine import Comment, Imm, Inst, Label, LabelRef, Operand, Reg, Symbol

Item = Inst | Label | Comment
_REGISTER = re.compile(r"(?:[sva](?:\d+|\[\d+:\d+\])|vcc|vcc_lo|vcc_hi|exec|m0)")


def body(text: str) -> list[Item]:
    """The items of a text: ``opcode a, b``, ``@s[0:1] opcode ..`` with a guard, ``name:`` a label."""
    return [_item(line.strip()) for line in text.splitlines() if line.strip()]


def _item(line: str) -> Item:
    if line.endswith(":"):
        return Label(line[:-1])
    guard = None
    if line.startswith("@"):
        word, _, line = line.partition(" ")
        guard = physical(word[1:])
    opcode, _, rest = line.partition(" ")
    operands = [_operand(word, opcode) for word in rest.split(", ")] if rest else []
    return Inst(opcode, operands, resolve(opcode).num_results, None, guard)


def _operand(word: str, opcode: str) -> Operand:
    if _REGISTER.fullmatch(word):
        return physical(word)
    if re.fullmatch(r"-?\d+", word):
        return Imm(int(word))
    return LabelRef(word) if opcode.startswith(("s_branch", "s_cbranch")) else Symbol(word)


def text(items: list[Item]) -> list[str]:
    """The lines of a body."""
    return [_line(item) for item in items]


def _line(item: Item) -> str:
    if isinstance(item, Label):
        return f"{item.name}:"
    if isinstance(item, Comment):
        return f"; {item.text}"
    words = [
        str(o.value) if isinstance(o, Imm) else o.name
        for o in item.operands
        if isinstance(o, (Imm, Reg, Symbol, LabelRef))
    ]
    return f"{item.opcode} {', '.join(words)}".strip()
