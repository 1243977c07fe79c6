"""AMDGCN text, as the printer writes it, back to a flat function and the facts of its descriptor.

Reads physical registers, constants, modifiers, labels and the directives of the kernel descriptor; drops comments. What else LLVM's
assembler takes (expressions, macros, other sections) is an error. Text of other compilers is the simulator's business.
"""

from __future__ import annotations

import re

from mimw.codegen.amdgcn.isa import Row, Slot, resolve, rows
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.machine import FlatFunction, Imm, Inst, Label, LabelRef, Not, Operand, Reg, Symbol

_TARGET = re.compile(r'\.amdgcn_target\s+"[\w-]+--(\w+)"')
_LABEL = re.compile(r"([\w.$]+):$")
_REGISTER = re.compile(r"([svam])(?:(\d+)|\[(\d+):(\d+)\])$")
_SPECIAL = {
    "vcc": "s64", "exec": "s64", "vcc_lo": "s32", "vcc_hi": "s32", "exec_lo": "s32", "exec_hi": "s32", "m0": "s32",
    "flat_scratch": "s64", "scc": "s32",
}  # fmt: skip
_FLOATS = {
    "0.5": (0x3F000000, 0x3FE0, 0x3800), "1.0": (0x3F800000, 0x3FF0, 0x3C00), "2.0": (0x40000000, 0x4000, 0x4000),
    "4.0": (0x40800000, 0x4010, 0x4400), "0.15915494": (0x3E22F983, 0x3FC4, 0x3118),
}  # fmt: skip
_FACTS = {
    "group_segment_fixed_size": "lds_bytes", "private_segment_fixed_size": "scratch_bytes", "kernarg_size": "kernarg_bytes",
    "next_free_sgpr": "sgprs",
}  # fmt: skip


class ParseError(ValueError):
    """The text is not what the printer writes; `line` is 1-based."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


def parse_module(text: str) -> AmdgcnModule:
    """The module of a printed text. Of the facts only those that the directives say (no arguments, no threads)."""
    return _Parser(text).run()


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.number = 0
        self.target = ""
        self.facts = KernelFacts()
        self.function: FlatFunction | None = None
        self.regs: dict[str, Reg] = {}
        self.inside = False
        self.vgprs = self.accum = 0

    def run(self) -> AmdgcnModule:
        for number, raw in enumerate(self.lines, 1):
            self.number = number
            line = raw.partition(";")[0].strip()
            if line:
                self.line(line)
        if self.function is None or not self.target:
            raise self.error("no kernel, or no target")
        self.function.regs = list(self.regs.values())
        self.facts.vgprs = min(self.vgprs, self.accum)
        self.facts.agprs = max(0, self.vgprs - self.accum)
        return AmdgcnModule(self.target, self.function, self.facts)

    def error(self, message: str) -> ParseError:
        return ParseError(self.number, message)

    def line(self, line: str) -> None:
        if line.startswith(".") and not line.endswith(":"):
            self.directive(line)
            return
        label = _LABEL.match(line)
        if label is not None:
            self.label(label[1])
        elif self.function is None or not self.inside:
            raise self.error(f"an instruction outside of a kernel: {line}")
        else:
            self.function.body.append(self.instruction(line))

    def label(self, name: str) -> None:
        if self.function is None or name == self.function.name:
            self.function = self.function or FlatFunction(name, [])
            self.inside = True
        elif name.startswith(".Lend_"):
            self.inside = False
        else:
            self.function.body.append(Label(name))

    def directive(self, line: str) -> None:
        found = _TARGET.match(line)
        if found is not None:
            self.target = found[1]
            return
        word, _, value = line.partition(" ")
        name = word.removeprefix(".amdhsa_")
        if word == ".type":
            self.function = FlatFunction(value.partition(",")[0], [])
        elif name in _FACTS:
            setattr(self.facts, _FACTS[name], int(value))
        elif name == "next_free_vgpr":
            self.vgprs = int(value)
        elif name == "accum_offset":
            self.accum = int(value)
        elif name.startswith("system_sgpr_workgroup_id_"):
            others = self.facts.workgroup_ids.replace(name[-1], "")
            self.facts.workgroup_ids = "".join(sorted(others + (name[-1] if int(value) else "")))

    # ---------------------------------------------------------------------------------------------------- instructions

    def instruction(self, line: str) -> Inst:
        mnemonic, _, rest = line.partition(" ")
        texts = _operands(rest)
        row = self.row(mnemonic, texts)
        if row.suffix:
            texts.remove(row.suffix)
        if mnemonic == "s_waitcnt":
            return Inst(mnemonic, [Symbol(t) for t in texts])
        count = len(row.slots)
        if len(texts) < count:
            raise self.error(f"{mnemonic} takes {count} operands")
        operands: list[Operand] = [self.operand(t, s) for t, s in zip(texts, row.slots, strict=False)]
        return Inst(row.name, [*operands, *(Symbol(t) for t in texts[count:])], row.num_results)

    def row(self, mnemonic: str, texts: list[str]) -> Row:
        """The row; those that print like another one by what follows them."""
        for ending, suffix in (("_rtn", "sc0"), ("_lds", "lds")):
            if suffix in texts and mnemonic + ending in rows() and rows()[mnemonic + ending].suffix == suffix:
                return resolve(mnemonic + ending)
        return resolve(mnemonic)

    def operand(self, text: str, slot: Slot) -> Operand:
        if slot.kind == "L":
            return LabelRef(text)
        if slot.kind == "T" or text == "off":
            return Symbol(text)
        if text.startswith("-") and text[1:2] in "vas":
            return Not(self.register(text[1:]))
        if text.lstrip("-")[:1].isdigit():
            return _constant(text, slot)
        return self.register(text)

    def register(self, text: str) -> Reg:
        found = self.regs.get(text)
        if found is None:
            match = _REGISTER.match(text)
            if match is None and text not in _SPECIAL:
                raise self.error(f"{text} is no register")
            cls = _SPECIAL.get(text, "")
            if match is not None:
                count = 1 if match[2] else int(match[4]) - int(match[3]) + 1
                cls = f"{match[1]}{32 * count}"
            found = self.regs[text] = Reg(cls, name=text)
        return found


def _operands(text: str) -> list[str]:
    """Operands and modifiers, split at commas and blanks outside of brackets and parentheses."""
    out: list[str] = []
    depth, word = 0, ""
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c in ", " and not depth:
            out += [word] if word else []
            word = ""
        else:
            word += c
    return [*out, word] if word else out


def _constant(text: str, slot: Slot) -> Imm:
    negative = text.startswith("-")
    known = _FLOATS.get(text.removeprefix("-"))
    if known is not None:
        wide = slot.bits == 64
        bits = known[1] << 48 if wide else known[0]
        return Imm(bits | (1 << (63 if wide else 31) if negative else 0), f"f{slot.bits}")
    return Imm(int(text, 0))
