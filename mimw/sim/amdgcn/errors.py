"""The one error of the AMDGCN simulator, and how it tells which instruction and which wave it speaks of.

Knows nothing of execution: who raises adds what it knows.
"""

from __future__ import annotations

from mimw.sim.amdgcn.decode import Inst
from mimw.sim.errors import MachineError

CODE = "amdgcn-fault"


class SimulationError(MachineError):
    """A program did what the ISA does not allow, or what this simulator cannot run.

    `message` says what; `kind` is a short word for the check that spoke (``"wait"``, ``"race"``, ``"hazard"``,
    ``"bounds"``, ``"uninitialised"``, ``"deadlock"``, ``"unsupported"``, ``"program"``); `inst` is the instruction that was
    running, `where` the wave or lane in words.
    """

    def __init__(self, message: str, kind: str = "program", inst: Inst | None = None, where: str = "") -> None:
        super().__init__(CODE, message, inst, where)
        self.kind = kind

    def describe(self) -> str:
        """The instruction's text, and where it stands."""
        return describe(self.inst)


def describe(inst: Inst) -> str:
    """The instruction's text, and where it stands: its source place, line of the text, or address."""
    place = str(inst.loc) if inst.loc is not None else f"line {inst.line}" if inst.line else f"{inst.address:#x}"
    return f"`{inst.text}` ({place})"


def not_yet(what: str) -> SimulationError:
    """The error for a form that this simulator does not run."""
    return SimulationError(f"{what}: not yet in the AMDGCN simulator", "unsupported")
