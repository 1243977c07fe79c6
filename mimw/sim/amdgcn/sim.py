"""What steps share while a batch of work-groups runs: registers, memory, waits, LDS, and where execution stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mimw.sim.amdgcn.program import KernelInfo, Program
from mimw.sim.amdgcn.state import Machine

if TYPE_CHECKING:
    from mimw.sim.amdgcn.lds import Lds
    from mimw.sim.amdgcn.memory import Memory
    from mimw.sim.amdgcn.waits import Waits


class Sim:
    """One batch. `flushes`: some wave's MODE turns denormals into zeros; `changes` counts stores that changed memory.
    `reads_clock`: the program looks at the real time, of which `idle_time` ticks have passed while nobody got on."""

    __slots__ = (
        "arch",
        "changes",
        "flushes",
        "fp16_overflow",
        "idle_time",
        "index",
        "info",
        "lds",
        "m",
        "memory",
        "program",
        "reads_clock",
        "time",
        "waits",
    )

    def __init__(self, program: Program, info: KernelInfo, machine: Machine) -> None:
        self.program, self.info, self.m = program, info, machine
        self.arch = program.arch
        self.index = 0
        self.flushes = False
        self.changes = 0
        self.reads_clock = False
        self.idle_time = 0
        self.fp16_overflow = False
        self.time = 0
        self.waits: Waits
        self.lds: Lds
        self.memory: Memory
