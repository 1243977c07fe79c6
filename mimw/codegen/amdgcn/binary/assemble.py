"""AMDGCN text to machine code, and back, by LLVM.

Owns: `assemble`, `disassemble`, and the mapping of LLVM's errors to the source line that the text names: the last
comment ``; FILE:LINE`` or ``; FILE:LINE:COLUMN`` at or above the refused line, or the line's entry in a table of places
passed along. Knows no machine IR. The code object around the machine code is `code_object.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mimw.codegen.amdgcn.binary import llvm
from mimw.codegen.amdgcn.binary.elf import STT_FUNC, Elf
from mimw.diagnostics import InternalError, Loc
from mimw.target import get_target

_MESSAGE = re.compile(r"<inline asm>:(\d+):(\d+): (.*)")
_PLACE = re.compile(r";\s*([^;\s][^;]*?):(\d+)(?::(\d+))?\s*$")
_FUNCTION = re.compile(r"^\s*\.type\s+.*@function")

Places = Sequence[Loc | None]


class Assembled:
    """What LLVM made of a text.

    `code`: the bytes of `.text`, without the padding that LLVM adds after the last function. `symbols`: functions and
    labels that the object names -> (offset in `code`, size in bytes, 0 where the text gives none). `object`: LLVM's ELF
    object. `warnings`: LLVM's texts.
    """

    __slots__ = ("code", "object", "symbols", "warnings")

    def __init__(self, code: bytes, symbols: dict[str, tuple[int, int]], obj: bytes, warnings: list[str]) -> None:
        self.code = code
        self.symbols = symbols
        self.object = obj
        self.warnings = warnings


class AssemblerError(InternalError):
    """LLVM refused the text. `line` is the first refused line, 1-based (0: none named), `messages` are LLVM's, all of them."""

    def __init__(self, message: str, loc: Loc | None, line: int, messages: Sequence[str]) -> None:
        super().__init__(message, loc)
        self.line = line
        self.messages = list(messages)


class Decoded:
    """One instruction of machine code: `address` and `size` in bytes, `text` as LLVM writes it, "" for no instruction."""

    __slots__ = ("address", "size", "text")

    def __init__(self, address: int, size: int, text: str) -> None:
        self.address = address
        self.size = size
        self.text = text

    def __repr__(self) -> str:
        return f"{self.address:#x}: {self.text or '(no instruction)'}"


def assemble(text: str, target_name: str, places: Places | None = None) -> Assembled:
    """Assemble a text for ``"gfx942"``; `places[i]` is the source of line i + 1.

    `AssemblerError` with the user's line when LLVM refuses the text or it refers to what it does not define,
    `InternalError` when there is no LLVM.
    """
    try:
        obj, warnings = llvm.assemble_text(text, _cpu(target_name))
    except llvm.LlvmRefusal as refusal:
        raise _refused(text, refusal.messages, places) from None
    elf = Elf(obj)
    section = elf.section(".text")
    if section is None:
        raise InternalError("LLVM's object has no .text")
    for table, patched in elf.relocations():
        if patched.index == section.index:
            names = ", ".join(s.name for s in elf.symbols() if not s.defined) or table.name
            raise AssemblerError(f"the text refers to symbols that it does not define: {names}", None, 0, [])
    symbols = {s.name: (s.value, s.size) for s in elf.symbols() if s.section == section.index}
    ends = [s.value + s.size for s in elf.symbols() if s.section == section.index and s.kind == STT_FUNC and s.size]
    return Assembled(section.data[: max(ends)] if ends else section.data, symbols, obj, warnings)


def disassemble(code: bytes, target_name: str, address: int = 0) -> list[Decoded]:
    """The instructions of machine code that starts at `address`; targets of branches stay numbers, as LLVM writes them."""
    return [
        Decoded(where, size, text) for where, text, size in llvm.disassemble_bytes(code, _cpu(target_name), address)
    ]


def _cpu(target_name: str) -> str:
    """LLVM's name of the processor; it would take an unknown one for a generic machine, so that is refused here."""
    target = get_target(target_name)
    if target.vendor != "amd":
        raise ValueError(f"{target_name} is no target of AMD's")
    return target.name


def _refused(text: str, messages: Sequence[str], places: Places | None) -> AssemblerError:
    lines = text.splitlines()
    first: int | None = None
    told: list[str] = []
    for message in messages:
        match = _MESSAGE.search(message)
        if match is None:
            told.append(message.strip())
            continue
        number = int(match[1])
        first = number if first is None else first
        source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        told.append(f"line {number}: {match[3].strip()}\n    {source}")
    line = first or 0
    loc = nearest_loc(text, line, places) if line else None
    return AssemblerError("LLVM refused the AMDGCN text\n" + "\n".join(told), loc, line, messages)


def nearest_loc(text: str, line: int, places: Places | None = None) -> Loc | None:
    """The source place of a line (1-based) of the text, or None: see the module's docstring."""
    if places is not None:
        known = [p for p in places[:line] if p is not None]
        return known[-1] if known else None
    for words in reversed(text.splitlines()[:line]):
        match = _PLACE.search(words)
        if match is not None:
            return Loc(match[1], int(match[2]), int(match[3] or 1))
        if _FUNCTION.match(words):
            return None
    return None
