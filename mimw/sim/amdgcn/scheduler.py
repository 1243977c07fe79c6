# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Who runs next: waves at the same instruction together, those at the smallest index first.

Smallest first brings waves together again after branches and loops. A group that jumps back many times while others are
ready steps aside, so that whom it polls for can run. With a seed other than zero the group, and how long it runs, are
chosen at random. Barriers release a work-group when all its waves that have not ended wait. Nobody able to go on is a
deadlock; so is everybody going round with unchanged registers and memory. Where a program looks at the real time, that goes on instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.sim.amdgcn.errors import SimulationError, describe
from mimw.sim.amdgcn.ops.control import BARRIER, END
from mimw.sim.amdgcn.registry import Step
from mimw.sim.amdgcn.sim import Sim
from mimw.sim.amdgcn.state import Array, Ctx

_DEAD = 1 << 30
# Jumps back before a wave lets others run, and is looked at for a standstill.
_PATIENCE = 64
# Ticks (of 10 ns) that pass when nobody gets on in a program that looks at the clock.
_PAUSE = 2_000_000


class Scheduler:
    """Runs a batch to its end. `steps` counts group steps, `wave_instructions` waves times instructions."""

    def __init__(self, sim: Sim, steps: list[Step], entry: int, seed: int, max_steps: int) -> None:
        self.sim, self.code = sim, steps
        self.pc: Array = np.full(sim.m.waves, entry, np.int64)
        self.waiting: Array = np.zeros(sim.m.waves, np.bool_)
        self.aside: Array = np.zeros(sim.m.waves, np.bool_)
        self.rng = np.random.default_rng(seed) if seed else None
        self.max_steps = max_steps
        self.steps = 0
        self.wave_instructions = 0
        self.jumps: Array = np.zeros(sim.m.waves, np.int64)
        self.version = -1
        self.quiet = -1
        self.still: dict[int, int] = {}
        self.stuck: set[int] = set()

    def run(self) -> None:
        """Run until every wave has ended; `SimulationError` for a fault, a deadlock or too many steps."""
        while True:
            x, limit = self._pick()
            if x is None:
                return
            try:
                self._run_group(x, int(self.pc[x.waves[0]]), limit)
            except SimulationError as error:
                if error.inst is None:
                    error.inst = self.sim.program.insts[self.sim.index]
                if not error.where:
                    error.where = self.sim.m.wave_name(int(x.waves[0]))
                raise

    def _pick(self) -> tuple[Ctx | None, int]:
        """The next group, and the index at which it may meet others."""
        ready = ~self.waiting & (self.pc < _DEAD)
        if not ready.any():
            if (self.pc < _DEAD).any():
                self._deadlock("nobody can go on")
            return None, 0
        if not (ready & ~self.aside).any():
            self.aside[:] = False
            self._let_time_pass()
        choice = ready & ~self.aside
        places = np.unique(self.pc[choice])
        best = int(places[0]) if self.rng is None else int(self.rng.choice(places))
        rows = np.nonzero(ready & (self.pc == best))[0]
        later = places[places > best]
        limit = int(later[0]) if len(later) else _DEAD
        if self.rng is not None:
            limit = min(limit, best + int(self.rng.integers(1, 48)))
        mask = self.sim.m.exec[rows]
        return Ctx(rows, None if mask.all() else mask), limit

    def _run_group(self, x: Ctx, pc: int, limit: int) -> None:
        """Run the group from `pc` until it splits, waits, may meet others, or has gone round often."""
        sim, code, first = self.sim, self.code, self.steps
        while True:
            sim.index = pc
            sim.time += 1
            sim.lds.time = sim.time
            self.steps += 1
            target: Any = code[pc](x)
            if target is None:
                pc += 1
                if pc < limit:
                    continue
                break
            if not isinstance(target, int) or target < 0:
                self._leave(x, pc, target)
                break
            back, pc = target <= pc, target
            if (back and self._goes_round(x, pc)) or pc >= limit:
                break
        if target is None or (isinstance(target, int) and target >= 0):
            self.pc[x.sel] = pc
        self.wave_instructions += (self.steps - first) * x.n
        if self.steps > self.max_steps:
            raise SimulationError(f"stopped after {self.max_steps} steps: endless loop?", "deadlock")

    def _leave(self, x: Ctx, pc: int, target: Any) -> None:
        """The group splits, waits at a barrier, or ends."""
        if not isinstance(target, int):
            self.pc[x.sel] = target
            return
        if target == BARRIER:
            self.pc[x.sel] = pc + 1
            self.waiting[x.sel] = True
        else:
            assert target == END
            self.pc[x.sel] = _DEAD
            self.stuck.clear()
        for group in np.unique(self.sim.m.group_of[x.waves]).tolist():
            self._release(group)

    def _release(self, group: int) -> None:
        n = self.sim.m.waves_per_group
        rows = slice(group * n, (group + 1) * n)
        waiting = self.waiting[rows]
        if waiting.any() and (waiting | (self.pc[rows] >= _DEAD)).all():
            self.waiting[rows] = False
            self.sim.lds.barrier(group)

    def _let_time_pass(self) -> None:
        """All waves have gone round often since the last time: if memory is as it was, those who look at the clock find that time has passed."""
        version = self.sim.changes + self.sim.memory.changes
        if self.sim.reads_clock and version == self.quiet:
            self.sim.idle_time += _PAUSE
        self.quiet = version

    # -- standing still ------------------------------------------------------------------------------------------

    def _goes_round(self, x: Ctx, target: int) -> bool:
        """A jump back: whether the group has made so many that others go first. Raises when nobody makes progress."""
        self.jumps[x.sel] += 1
        if int(self.jumps[x.sel].max()) < _PATIENCE:
            return False
        self.jumps[x.sel] = 0
        self.aside[x.sel] = True
        self._look(x, target)
        running = np.nonzero(~self.waiting & (self.pc < _DEAD))[0].tolist()
        if all(w in self.stuck for w in running):
            self.pc[x.sel] = target
            self._deadlock("waves go round without any change")
        return True

    def _look(self, x: Ctx, target: int) -> None:
        """Compare the group's registers, and the version of memory, with those of its last time here."""
        m = self.sim.m
        version = self.sim.changes + self.sim.memory.changes
        if version != self.version:
            self.stuck.clear()
            self.version = version
        waves: list[int] = x.waves.tolist()
        for wave in waves:
            state = (target, version, m.vector[:, wave].tobytes(), m.scalar[:, wave].tobytes())
            digest = hash(state)
            if self.still.get(wave) == digest:
                self.stuck.add(wave)
            else:
                self.stuck.discard(wave)
            self.still[wave] = digest

    def _deadlock(self, what: str) -> None:
        insts, m = self.sim.program.insts, self.sim.m
        lines: list[str] = []
        alive = np.nonzero(self.pc < _DEAD)[0].tolist()
        for wave in alive[:16]:
            at, why = int(self.pc[wave]), "goes round"
            if self.waiting[wave]:
                at, why = at - 1, "waits at a barrier for the other waves of its work-group"
            lines.append(f"  {m.wave_name(wave)} {why}, at {describe(insts[at])}")
        more = f"\n  and {len(alive) - 16} more waves" if len(alive) > 16 else ""
        raise SimulationError(f"deadlock: {what}\n" + "\n".join(lines) + more, "deadlock")
