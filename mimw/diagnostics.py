"""Where things are in the user's source, and how faults are told.

Two kinds of error only: `CompilationError` (the user can fix it) and `InternalError` (ours); `MimwWarning` for what only looks wrong. `LaunchError` is the
`CompilationError` of a launch: its place is the call. Imports nothing from the project.

The shape of every message::

    kernel.py:14:9: error[code]: what is wrong
        x = ml.load(p)
            ^
    kernel.py:9:5: note: why, with its own line
        p = q + 1
        ^
    hint: what to write instead
"""

from __future__ import annotations

import linecache
import re
import warnings


class Loc:
    """A place in a source file: file, 1-based line, 1-based column, optional end column, and the call it was inlined at."""

    __slots__ = ("call_site", "col", "end_col", "file", "line")

    def __init__(self, file: str, line: int, col: int = 1, end_col: int = 0, call_site: Loc | None = None) -> None:
        self.file = file
        self.line = line
        self.col = col
        self.end_col = end_col
        self.call_site = call_site

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"

    def __repr__(self) -> str:
        return f"Loc({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loc) and (self.file, self.line, self.col) == (other.file, other.line, other.col)

    def __hash__(self) -> int:
        return hash((self.file, self.line, self.col))


UNKNOWN = Loc("<unknown>", 0, 0)


def show_line(loc: Loc) -> str:
    """The source line with a caret line under it, indented by four; empty when the source is not at hand."""
    text = linecache.getline(loc.file, loc.line).rstrip("\n")
    if not text.strip():
        return ""
    width = max(1, loc.end_col - loc.col) if loc.end_col else 1
    column = max(1, loc.col)
    shift = len(text) - len(text.lstrip())
    pad = max(0, column - 1 - shift)
    width = min(width, max(1, len(text) - column + 1))
    return f"    {text.strip()}\n    {' ' * pad}{'^' * width}\n"


class Note:
    """A remark that belongs to an error, with the line that it speaks of (or none)."""

    __slots__ = ("loc", "text")

    def __init__(self, text: str, loc: Loc | None = None) -> None:
        self.text = text
        self.loc = loc


class CompilationError(Exception):
    """A fault in the user's program.

    `code` is a stable short name (``"type-mismatch"``; docs/errors.md lists all), `loc` the place, `notes` further lines,
    `hint` what to do about it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        loc: Loc | None = None,
        *,
        notes: list[Note] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.loc = loc or UNKNOWN
        self.notes = notes or []
        self.hint = hint

    def __str__(self) -> str:
        where = "" if self.loc is UNKNOWN else f"{self.loc}: "
        out = [f"{where}error[{self.code}]: {self.message}\n{show_line(self.loc)}"]
        site = self.loc.call_site
        while site is not None:
            out.append(f"{site}: note: called from here\n{show_line(site)}")
            site = site.call_site
        for note in self.notes:
            if note.loc is None:
                out.append(f"note: {note.text}\n")
            else:
                out.append(f"{note.loc}: note: {note.text}\n{show_line(note.loc)}")
        if self.hint:
            out.append(f"hint: {self.hint}\n")
        return "".join(out).rstrip("\n")


class LaunchError(CompilationError):
    """A fault in a launch: wrong arguments, grid, device, or a refusal by the driver. Its place is the call."""


class MimwWarning(UserWarning):
    """What only looks wrong in the user's program: told through Python's `warnings`, at the kernel's line. A comment
    ``# mimw: ignore[code]`` at that line silences it."""

    def __init__(
        self, code: str, message: str, loc: Loc, *, notes: list[Note] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.loc = loc
        self.notes = notes or []
        self.hint = hint

    def __str__(self) -> str:
        places = [f" ({n.text}: line {n.loc.line})" for n in self.notes if n.loc is not None]
        hint = f"; {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{''.join(places)}{hint}; silence it by # mimw: ignore[{self.code}]"


def warn(warning: MimwWarning) -> bool:
    """Tell a warning, unless the line that it speaks of (or one that this was inlined at) silences it; whether it was told."""
    loc: Loc | None = warning.loc
    while loc is not None:
        if warning.code in silenced_codes(linecache.getline(loc.file, loc.line)):
            return False
        loc = loc.call_site
    warnings.warn_explicit(warning, MimwWarning, warning.loc.file, warning.loc.line)
    return True


def silenced_codes(line: str) -> list[str]:
    """The codes in a source line's ``# mimw: ignore[one, two]``."""
    found = re.search(r"#\s*mimw:\s*ignore\[([^\]]*)\]", line)
    return [code.strip() for code in found[1].split(",")] if found else []


class InternalError(Exception):
    """A fault in mimw itself. `dump` names the file that holds the IR at that moment, when there is one."""

    def __init__(self, message: str, loc: Loc | None = None, dump: str | None = None) -> None:
        where = f"{loc}: " if loc is not None else ""
        tail = f"\nthe program at that moment is in {dump}" if dump else ""
        line = show_line(loc) if loc is not None else ""
        super().__init__(f"{where}internal error: {message}\n{line}This is a bug in mimw, not in your kernel.{tail}")
        self.loc = loc
        self.dump = dump
