"""The one error of the AMDGCN simulator, and how it tells which instruction and which wave it speaks of.

Knows nothing of execution: who raises adds what it knows.
"""

from __future__ import annotations

from mimw.sim import errors
from mimw.sim.amdgcn.decode import Inst

CODE = "amdgcn-fault"


class SimulationError(errors.SimulationError):
    """A program did what the ISA does not allow, or what this simulator cannot run.

    `message` says what; `kind` is a short word for the check that spoke (``"wait"``, ``"race"``, ``"hazard"``,
    ``"bounds"``, ``"uninitialised"``, ``"deadlock"``, ``"unsupported"``, ``"program"``); `inst` is the instruction that was
    running (the run loop adds it), `where` the wave or lane in words.
    """

    def __init__(self, message: str, kind: str = "program", inst: Inst | None = None, where: str = "") -> None:
        super().__init__(CODE, message)
        self.kind = kind
        self.where = where
        self.inst = inst

    @property
    def inst(self) -> Inst | None:
        """The instruction that was running."""
        return self._inst

    @inst.setter
    def inst(self, inst: Inst | None) -> None:
        self._inst = inst
        self.loc = inst.loc if inst is not None else None

    def __str__(self) -> str:
        out = self.message
        if self.where:
            out += f" [{self.where}]"
        if self.inst is not None:
            out += f"\n  at {describe(self.inst)}"
        return out


def describe(inst: Inst) -> str:
    """The instruction's text, and where it stands: its source place, line of the text, or address."""
    place = str(inst.loc) if inst.loc is not None else f"line {inst.line}" if inst.line else f"{inst.address:#x}"
    return f"`{inst.text}` ({place})"


def not_yet(what: str) -> SimulationError:
    """The error for a form that this simulator does not run."""
    return SimulationError(f"{what}: not yet in the AMDGCN simulator", "unsupported")
