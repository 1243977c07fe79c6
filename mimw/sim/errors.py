"""What a simulator says of a program that does what no program may; the errors of the machines' simulators are kinds of this one.

Imports nothing but the shape of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mimw.diagnostics import Loc, Note, show_line

Trips = tuple[tuple[str, int], ...]
"""The loops around an op, outermost first: the variable's name and its value."""

Phase = tuple[str, int]
"""A barrier's name and the number of a phase of it."""


class SimulationError(Exception):
    """The simulated program went wrong at `loc`: `code` is a stable short name (``"out-of-bounds"``), `message` says
    what, `notes` name further places, `hint` says what to look for. A ``"warning"`` (`severity`) is left, never raised.

    `program` is the CTA's place in the grid, `task` the task's name where there are several, `iteration` the loops' variables, `after` the
    barrier and the phase of it that the task has waited for last; all set by the machine. `facts` are numbers by name for tools (``slot``,
    ``barrier``, ``phase``, ``waits``, ...); `kernel` and `seed` are set by who runs a kernel under several schedules.
    """

    def __init__(
        self,
        code: str,
        message: str,
        loc: Loc | None = None,
        *,
        notes: Sequence[Note] = (),
        hint: str | None = None,
        severity: str = "error",
        **facts: Any,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.loc = loc
        self.notes = list(notes)
        self.hint = hint
        self.severity = severity
        self.facts = facts
        self.program: tuple[int, int, int] | None = None
        self.task = ""
        self.iteration: Trips = ()
        self.after: Phase | None = None
        self.kernel = ""
        self.seed: int | None = None

    def __str__(self) -> str:
        where = f"{self.loc}: " if self.loc is not None else ""
        source = show_line(self.loc) if self.loc is not None else ""
        out = [f"{where}{self.severity}[{self.code}]: {self.message}{self._actor()}\n{source}"]
        site = self.loc.call_site if self.loc is not None else None
        while site is not None:
            out.append(f"{site}: note: called from here\n{show_line(site)}")
            site = site.call_site
        for note in self.notes:
            place = f"{note.loc}: " if note.loc is not None else ""
            out.append(f"{place}note: {note.text}\n{show_line(note.loc) if note.loc is not None else ''}")
        if self.hint:
            out.append(f"hint: {self.hint}\n")
        return "".join(out).rstrip("\n")

    def _actor(self) -> str:
        if self.program is None:
            return ""
        task = f", task {self.task!r}" if self.task else ""
        return f" [program {self.program}{task}{in_iteration(self.iteration, ', ')}{after_phase(self.after, ', ')}]"

    def to_json(self) -> dict[str, Any]:
        """Everything that is known, in JSON's types: `docs/simulators.md` lists the keys."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "location": _place(self.loc),
            "notes": [{"text": n.text, "location": _place(n.loc)} for n in self.notes],
            "hint": self.hint,
            "kernel": self.kernel,
            "program": list(self.program) if self.program is not None else None,
            "task": self.task,
            "iteration": [{"name": name, "value": value} for name, value in self.iteration],
            "after": {"barrier": self.after[0], "phase": self.after[1]} if self.after is not None else None,
            "seed": self.seed,
            **self.facts,
        }


class Instruction(Protocol):
    """What a machine's simulator runs: one instruction of its text or code."""

    @property
    def loc(self) -> Loc | None: ...


class MachineError(SimulationError):
    """What a simulator of a machine's own code says: `inst` is the instruction that was running (the run loop adds it; `loc` is its line), `where` the
    threads in words, empty when it concerns a whole warp. How an instruction is described is the machine's matter."""

    def __init__(self, code: str, message: str, inst: Instruction | None, where: str) -> None:
        super().__init__(code, message)
        self.where = where
        self.inst = inst

    @property
    def inst(self) -> Any:
        """The instruction that was running."""
        return self._inst

    @inst.setter
    def inst(self, inst: Instruction | None) -> None:
        self._inst = inst
        self.loc = inst.loc if inst is not None else None

    def describe(self) -> str:
        """The running instruction, for people."""
        raise NotImplementedError

    def __str__(self) -> str:
        out = self.message
        if self.where:
            out += f" [{self.where}]"
        if self.inst is not None:
            out += f"\n  at {self.describe()}"
        return out


def in_iteration(trips: Trips, before: str) -> str:
    """``i = 3, j = 0`` for messages, with something before it; nothing outside of loops."""
    return before + ", ".join(f"{name} = {value}" for name, value in trips) if trips else ""


def after_phase(after: Phase | None, before: str) -> str:
    """``after phase 2 of full[0]`` for messages, with something before it; nothing where no barrier was waited for."""
    return f"{before}after phase {after[1]} of {after[0]}" if after is not None else ""


def _place(loc: Loc | None) -> dict[str, Any] | None:
    """A place in the source, with the line's text."""
    if loc is None:
        return None
    text = show_line(loc).splitlines()
    out: dict[str, Any] = {
        "file": loc.file,
        "line": loc.line,
        "column": loc.col,
        "source": text[0].strip() if text else "",
    }
    if loc.call_site is not None:
        out["called_from"] = _place(loc.call_site)
    return out
