"""What the tile simulator says of a program that does what no program may.

Imports nothing but the shape of messages.
"""

from __future__ import annotations

from mimw.diagnostics import Loc, show_line


class SimulationError(Exception):
    """The simulated program went wrong at `loc`: `code` is a stable short name (``"out-of-bounds"``), `message` says
    what.

    `program` is the CTA's place in the grid, set by the machine.
    """

    def __init__(self, code: str, message: str, loc: Loc | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.loc = loc
        self.program: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        where = f"{self.loc}: " if self.loc is not None else ""
        source = f"\n{show_line(self.loc)}" if self.loc is not None else ""
        program = f" [program {self.program}]" if self.program is not None else ""
        return f"{where}error[{self.code}]: {self.message}{program}{source}".rstrip("\n")
