"""The state of a running batch: machine, memory, sanitizer, barriers, and where each lane stands.

Decoders close over one `Sim`; the scheduler drives it. Knows no instruction.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.barriers import Waiting
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import GlobalMemory, Memory
from mimw.sim.ptx.sanitizer import Sanitizer
from mimw.sim.ptx.state import DEAD, Ctx, Machine
from mimw.sim.ptx.tensor_map import TensorMap


class Sim(Waiting):
    """`pcs` (warps, 32): each lane's next instruction, `DEAD` after exit. `blocked`: asleep until woken.
    `yielded`: runs only after all others; `polling`: the warps among them that stepped aside.
    `pc`: the instruction that executes now. `params`: bytes by parameter name.
    `output`: what was printed, in pieces. `strict`: see `run_ptx`."""

    def __init__(self, m: Machine, mem: Memory, world: GlobalMemory, san: Sanitizer | None) -> None:
        super().__init__(m, san)
        self.mem = mem
        self.world = world
        self.strict = True
        self.pc = 0
        self.insts: list[Inst] = []
        self.labels: dict[str, int] = {}
        self.params: dict[str, bytes] = {}
        self.maps: dict[bytes, TensorMap] = {}
        self.map_edits: dict[int, int] = {}
        self.map_acquires: dict[tuple[int, int], int] = {}
        self.yielded: Array = np.zeros((m.warps, 32), np.bool_)
        self.polling: Array = np.zeros(m.warps, np.bool_)
        self.any_yield = False
        self.fences: Counter[str] = Counter()
        self.output: list[str] = []
        self.carry: Array = np.zeros((m.warps, 32), np.bool_)

    def live(self, x: Ctx) -> Array:
        """The lanes of the group's warps that have not exited, (n, 32)."""
        return self.pcs[x.warps] < DEAD

    def step_aside(self, x: Ctx) -> None:
        """The executing lanes poll for something: let all others run first.

        The scheduler extends this to the lanes of their warps that stand with them: one lane polls for many.
        """
        self.polling[x.warps] = True
        if x.mask is None:
            self.yielded[x.warps] = True
        else:
            self.yielded[x.warps] |= x.mask
        self.any_yield = True
        self.wakes += 1
