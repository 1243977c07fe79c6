"""What kernels for AMD print: the records that they leave in memory, and the lines made of them.

A kernel that prints or asserts has ``extra["prints"]``: its ``texts`` (C formats of one line each) and whether it ``asserts``. It ends in three hidden
parameters:

* ``print_records``: memory of the host that the device writes through to, `WORDS` words of 32 bits, zero at first;
* ``print_state``: `STATE` bytes of the device's memory, zero at first: u32 words claimed, u32 records that found no room, u32 assertions that
  failed in so many threads, u32 0;
* ``print_texts``: i32, the number of the kernel's first text among those that the reader knows.

A record is one word, the number of its text plus 1, written last, then the values that the text's conversions take, low words first. Records
lie one behind the other; a word that is 0 where one would begin ends them for now. Must not know a driver: `print_buffer` launches such kernels.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from mimw.diagnostics import LaunchError, Loc

WORDS = 1 << 18
STATE = 16
_CONVERSION = re.compile(r"%%|%(0\d+)?(ll)?([duxf])")
_PACKED = {"d": "i", "lld": "q", "u": "I", "llu": "Q", "x": "I", "llx": "Q", "f": "d"}


class Line:
    """A text's layout: `size` in words, header included, and `show`, which makes the line of a record's values."""

    __slots__ = ("_fields", "_format", "size")

    def __init__(self, text: str) -> None:
        kinds = [(found[2] or "") + found[3] for found in _CONVERSION.finditer(text) if found[3]]
        self._fields = struct.Struct("<" + "".join(_PACKED[kind] for kind in kinds))
        self._format = _CONVERSION.sub(_python_conversion, text)
        self.size = 1 + self._fields.size // 4

    def show(self, memory: bytes, at: int) -> str:
        """The line, from the values at a byte of the memory."""
        return self._format % self._fields.unpack_from(memory, at)


def _python_conversion(found: re.Match[str]) -> str:
    """A conversion as Python writes it, whose integers have no size."""
    return found[0] if found[3] is None else f"%{found[1] or ''}{found[3]}"


class Texts:
    """Texts by number, those of several kernels one behind the other."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._first: dict[tuple[str, ...], int] = {}

    def number_of(self, texts: Sequence[str]) -> int:
        """The number of the first of a kernel's texts, which are added if they are new."""
        key = tuple(texts)
        found = self._first.get(key)
        if found is None:
            found = self._first[key] = len(self._lines)
            self._lines += [Line(text) for text in key]
        return found

    def read(self, fetch: Callable[[int, int], bytes], start: int) -> tuple[list[str], int]:
        """(what the records from word `start` on say, without the end of the line; the word after them). `fetch` gives so many words from one
        on."""
        out: list[str] = []
        while start < WORDS:
            (number,) = struct.unpack("<I", fetch(start, 1))
            if not 0 < number <= len(self._lines):
                break
            line = self._lines[number - 1]
            out.append(line.show(fetch(start, line.size), 4).removesuffix("\n"))
            start += line.size
        return out, start


def read_all(prints: dict[str, Any], memory: bytes) -> list[str]:
    """The lines in the whole memory of one kernel whose ``print_texts`` was 0, as the simulator of machine code leaves it."""
    texts = Texts()
    texts.number_of(prints["texts"])
    return texts.read(lambda at, count: memory[4 * at : 4 * (at + count)], 0)[0]


def assertion_error(head: str, lines: Sequence[str], failed: int, loc: Loc) -> LaunchError:
    """The error of a launch (`head` names it) whose assertions failed in so many threads; `lines` are what it has printed."""
    told = next((line for line in lines if ": assertion failed" in line), "an assertion failed")
    more = f" (and in {failed - 1} more threads)" if failed > 1 else ""
    hint = "what the launch has written is worth nothing"
    return LaunchError("device-assert", f"{head}: {told}{more}", loc, hint=hint)
