"""The table from mnemonic to decoder, and what a decoder gives back.

A decoder looks once at an `Inst` and returns a step: a plain function of the executing group, or `Sync` (needs lanes or
warps to be together, may wait) or `Control` (chooses the next instruction). Families register themselves on import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.machine import Inst
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx

Plain = Callable[[Ctx], None]


class Sync:
    """A step that may have to wait: `ready` gives None (all) or one bool a warp; the others wait at this instruction.

    A warp that `ready` blocked (`Sim.block`) sleeps until it is woken; else it is tried again after the others ran.
    """

    __slots__ = ("ready", "run")

    def __init__(self, ready: Callable[[Ctx], Array | None], run: Plain) -> None:
        self.ready = ready
        self.run = run


class Control:
    """A step that returns the next position: one int for all executing lanes, or an array (n, 32)."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[Ctx], Any]) -> None:
        self.run = run


Step = Plain | Sync | Control
Decoder = Callable[[Sim, Inst, list[str]], Step]
DECODERS: dict[str, Decoder] = {}


def executes(*mnemonics: str) -> Callable[[Decoder], Decoder]:
    """Register a decoder for mnemonics (the opcode up to its first dot)."""

    def register(fn: Decoder) -> Decoder:
        for name in mnemonics:
            DECODERS[name] = fn
        return fn

    return register


def not_yet(what: str) -> SimulationError:
    """The error for a form that this simulator does not run yet."""
    return SimulationError(f"{what}: not yet in the PTX simulator")
