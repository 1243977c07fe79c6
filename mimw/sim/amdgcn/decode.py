"""Text of AMDGCN instructions, in LLVM's syntax, to `Inst` objects.

Owns the reading of operands and modifiers: what the assembler takes, and what the disassembler prints. Assumes text that
an assembler accepted or will judge elsewhere; what it cannot read raises `DecodeError`. Knows no instruction's meaning.
"""

from __future__ import annotations

import re

from mimw.diagnostics import Loc

# Numbers of the scalar registers that have names (ISA section "Scalar operands"); the first 102 are general.
VCC, FLAT_SCRATCH, XNACK_MASK, TTMP, M0, EXEC = 106, 102, 104, 108, 124, 126
_NAMED = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "flat_scratch": (FLAT_SCRATCH, 2), "flat_scratch_lo": (FLAT_SCRATCH, 1),
    "flat_scratch_hi": (FLAT_SCRATCH + 1, 1), "xnack_mask": (XNACK_MASK, 2), "xnack_mask_lo": (XNACK_MASK, 1),
    "xnack_mask_hi": (XNACK_MASK + 1, 1),
}  # fmt: skip
FLAGS = frozenset(["offen", "idxen", "addr64", "lds", "sc0", "sc1", "nt", "glc", "slc", "clamp", "gds", "tfe"])
_MODIFIER = re.compile(r"[a-z_][a-z_0-9]*:\S.*")
_REGISTER = re.compile(r"(ttmp|acc|[vsa])(?:(\d+)|\[(\d+)(?::(\d+))?\])")
_ENCODING = re.compile(r"_(e32|e64|dpp|sdwa|e64_dpp)$")
_SOURCE = re.compile(r"(\S+\.py):(\d+)(?::(\d+))?")
# Mnemonics that end like an encoding suffix but are whole names.
_NO_SUFFIX = frozenset(["v_cvt_f32_e32"])


class DecodeError(Exception):
    """Text that is no instruction in LLVM's syntax."""


class Reg:
    """`count` registers from number `first` of file 's', 'v' or 'a', with the sign modifiers of a source operand."""

    __slots__ = ("absolute", "count", "file", "first", "neg", "sext")

    def __init__(
        self, file: str, first: int, count: int = 1, neg: bool = False, absolute: bool = False, sext: bool = False
    ) -> None:
        self.file, self.first, self.count = file, first, count
        self.neg, self.absolute, self.sext = neg, absolute, sext

    def __repr__(self) -> str:
        return (
            f"{self.file}{self.first}"
            if self.count == 1
            else f"{self.file}[{self.first}:{self.first + self.count - 1}]"
        )


class Const:
    """A constant: an int (also hexadecimal literals), or a float, which takes the type of the operand that it stands in."""

    __slots__ = ("absolute", "neg", "value")

    def __init__(self, value: int | float, neg: bool = False, absolute: bool = False) -> None:
        self.value, self.neg, self.absolute = value, neg, absolute

    def __repr__(self) -> str:
        return repr(self.value)


class Word:
    """Anything else: `off`, `null`, `scc`, a label, `hwreg(...)`, `vmcnt(0)`; `neg` and `absolute` as for registers."""

    __slots__ = ("absolute", "neg", "text")

    def __init__(self, text: str, neg: bool = False, absolute: bool = False) -> None:
        self.text, self.neg, self.absolute = text, neg, absolute

    def __repr__(self) -> str:
        return self.text


Operand = Reg | Const | Word


class Inst:
    """One instruction. `mnemonic` without the encoding suffix (kept in `encoding`: e32, e64, dpp, sdwa or ''), modifiers
    by name in `mods` (True for flags), `address` in bytes, `line` of the text (0: disassembled), `loc` in the source."""

    __slots__ = ("address", "encoding", "line", "loc", "mnemonic", "mods", "operands", "size", "text")

    def __init__(self, text: str, address: int = 0, size: int = 4, line: int = 0, loc: Loc | None = None) -> None:
        self.text = " ".join(text.split())
        self.address, self.size, self.line, self.loc = address, size, line, loc
        name, _, rest = self.text.partition(" ")
        found = None if name in _NO_SUFFIX else _ENCODING.search(name)
        self.encoding = found[1] if found else ""
        self.mnemonic = name[: found.start()] if found else name
        self.operands: list[Operand] = []
        self.mods: dict[str, bool | int | str | list[int]] = {}
        self._read(rest)

    def __repr__(self) -> str:
        return self.text

    def flag(self, name: str) -> bool:
        """Whether a flag such as ``sc0`` is there."""
        return bool(self.mods.get(name, False))

    def number(self, name: str, default: int = 0) -> int:
        """A modifier's number (``offset:16``)."""
        value = self.mods.get(name, default)
        if not isinstance(value, int):
            raise DecodeError(f"{name}:{value} in `{self.text}`")
        return int(value)

    def bits(self, name: str, count: int, default: int) -> list[int]:
        """A modifier's list of `count` bits (``op_sel_hi:[1,0]``)."""
        value = self.mods.get(name)
        if value is None:
            return [default] * count
        if not isinstance(value, list):
            raise DecodeError(f"{name}:{value} in `{self.text}`")
        return value + [default] * (count - len(value))

    def _read(self, rest: str) -> None:
        pieces = _split(rest, ",")
        for i, piece in enumerate(pieces):
            words = _split(piece, " ")
            if i < len(pieces) - 1 and len(words) == 1:
                self.operands.append(operand(words[0]))
                continue
            for word in words:
                self._operand_or_modifier(word)

    def _operand_or_modifier(self, word: str) -> None:
        if word in FLAGS:
            self.mods[word] = True
        elif _MODIFIER.fullmatch(word) and not word.startswith(("neg(", "abs(")):
            name, _, value = word.partition(":")
            self.mods[name] = _modifier_value(value)
        else:
            self.operands.append(operand(word))


def _modifier_value(value: str) -> int | str | list[int]:
    if value.startswith("["):
        return [int(item, 0) for item in value[1:-1].split(",")]
    try:
        return int(value, 0)
    except ValueError:
        return value


def _split(text: str, at: str) -> list[str]:
    """Split at a character that stands outside brackets, parentheses and bars."""
    out, depth, bars = [""], 0, False
    for ch in text.strip():
        if ch in "([":
            depth += 1
        elif ch in ")]":
            depth -= 1
        elif ch == "|":
            bars = not bars
        if ch == at and depth == 0 and not bars:
            out.append("")
        else:
            out[-1] += ch
    return [piece.strip() for piece in out if piece.strip()]


def operand(text: str) -> Operand:
    """One operand with its sign modifiers: ``-|v1|``, ``abs(s2)``, ``sext(v3)``, ``neg(1.0)``."""
    neg = absolute = sext = False
    while True:
        if text.startswith("neg(") and text.endswith(")"):
            neg, text = True, text[4:-1]
        elif text.startswith("abs(") and text.endswith(")"):
            absolute, text = True, text[4:-1]
        elif text.startswith("sext(") and text.endswith(")"):
            sext, text = True, text[5:-1]
        elif (text.startswith("-") and text[1:2].isalpha()) or text.startswith("-|"):
            neg, text = True, text[1:]
        elif len(text) > 2 and text[0] == text[-1] == "|":
            absolute, text = True, text[1:-1]
        else:
            break
    if text in _NAMED:
        first, count = _NAMED[text]
        return Reg("s", first, count, neg, absolute, sext)
    found = _REGISTER.fullmatch(text)
    if found:
        first = int(found[2] or found[3])
        count = int(found[4] or first) - first + 1
        file = {"ttmp": "s", "acc": "a"}.get(found[1], found[1])
        return Reg(file, first + (TTMP if found[1] == "ttmp" else 0), count, neg, absolute, sext)
    if re.fullmatch(r"-?(\d+\.\d*|\.\d+)(e[-+]?\d+)?", text):
        return Const(float(text), neg, absolute)
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
        return Const(int(text, 0), neg, absolute)
    return Word(text, neg, absolute)


def source_of(comment: str) -> Loc | None:
    """The Python place that a comment names (``kernel.py:12:5``), or None."""
    found = _SOURCE.search(comment)
    return Loc(found[1], int(found[2]), int(found[3] or 1)) if found else None
