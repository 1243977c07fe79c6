"""What a simulator says of a program that does what no program may; the PTX simulator's error is a kind of this one.

Imports nothing but the shape of messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.diagnostics import Loc, Note, show_line


class SimulationError(Exception):
    """The simulated program went wrong at `loc`: `code` is a stable short name (``"out-of-bounds"``), `message` says
    what, `notes` name further places, `hint` says what to look for.

    `program` is the CTA's place in the grid, `task` the task's name where there are several; both set by the machine.
    """

    def __init__(
        self,
        code: str,
        message: str,
        loc: Loc | None = None,
        *,
        notes: Sequence[Note] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.loc = loc
        self.notes = list(notes)
        self.hint = hint
        self.program: tuple[int, int, int] | None = None
        self.task = ""

    def __str__(self) -> str:
        where = f"{self.loc}: " if self.loc is not None else ""
        source = show_line(self.loc) if self.loc is not None else ""
        task = f", task {self.task!r}" if self.task else ""
        program = f" [program {self.program}{task}]" if self.program is not None else ""
        out = [f"{where}error[{self.code}]: {self.message}{program}\n{source}"]
        for note in self.notes:
            place = f"{note.loc}: " if note.loc is not None else ""
            out.append(f"{place}note: {note.text}\n{show_line(note.loc) if note.loc is not None else ''}")
        if self.hint:
            out.append(f"hint: {self.hint}\n")
        return "".join(out).rstrip("\n")
