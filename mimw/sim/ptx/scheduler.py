"""Who runs next: the lanes at the smallest position first, warps at the same position together.

Min-position order reconverges structured code: lanes that left a branch, loop or early exit wait at the later place
until the others arrive. Lanes that poll step aside (`Sim.yielded`) so that whom they poll for can run. With a seed other
than zero the position is chosen at random among those that warps stand at, and copies in flight move at any time; with
seed 0 they move, the oldest first, when no warp can.

Time (`%globaltimer`) stands still while anybody gets on. In a program that reads it, it goes on when nobody does: polls of mbarriers
then come back without success, as on a device, so that waits that give up can be run. After `_PATIENCE` such turns it is a deadlock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.sim.ptx.errors import SimulationError, describe
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.program import Program
from mimw.sim.ptx.registry import Control, Sync
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import DEAD, Ctx

_LATE = 1 << 28
# With a seed: the chance that an engine moves before a group of warps does.
_ENGINE_SHARE = 0.25
# Nanoseconds that pass when all wait, or poll; and how often that may happen.
_WAITING, _POLLING = 10_000_000, 100_000
_PATIENCE = 10_000


class Scheduler:
    """Runs the batch of `s` to its end. `steps` counts group steps, `warp_instructions` warps times instructions."""

    def __init__(self, s: Sim, program: Program, seed: int, max_steps: int) -> None:
        self.s = s
        self.program = program
        self.rng = np.random.default_rng(seed) if seed else None
        self.max_steps = max_steps
        self.steps = 0
        self.warp_instructions = 0
        self.progress = True
        self.patience = _PATIENCE if s.m.reads_clock else 0

    def run(self) -> None:
        """Run until every lane has exited; `SimulationError` for a fault, a deadlock or too many steps."""
        s = self.s
        while True:
            x, pc = self._pick()
            if x is None:
                return
            try:
                self._run_group(x, pc)
            except SimulationError as error:
                if error.inst is None and s.pc < len(s.insts):
                    error.inst = s.insts[s.pc]
                if not error.where:
                    error.where = s.m.warp_name(int(x.warps[0]))
                raise

    def _pick(self) -> tuple[Ctx | None, int]:
        s, jobs = self.s, self.s.engine.jobs
        if self.rng is not None and jobs and self.rng.random() < _ENGINE_SHARE:
            self._advance()
        while True:
            key = np.where(s.blocked, DEAD, s.pcs)
            if s.any_yield:
                key = np.where(s.yielded & (key < DEAD), key + _LATE, key)
            nearest = key.min(axis=1)
            best = int(nearest.min())
            if best < _LATE:
                break
            if jobs:
                self._advance()
            elif best >= DEAD:
                if not (s.pcs < DEAD).any():
                    return None, 0
                self._let_time_pass()
            elif not self.progress:
                self._deadlock()
            else:
                self.progress = False
                s.yielded[:] = False
                s.polling[:] = False
                s.any_yield = False
                s.m.pass_time(_POLLING)
        if self.rng is not None:
            best = int(self.rng.choice(np.unique(nearest[nearest < _LATE])))
        rows = np.nonzero((nearest == best) | ((nearest == best + _LATE) & ~s.polling))[0]
        lanes = (s.pcs[rows] == best) & ~s.blocked[rows]
        if s.any_yield:
            s.yielded[rows] &= ~lanes
            s.polling[rows] = False
        whole = len(rows) == len(nearest) or bool((nearest >= DEAD).sum() + len(rows) == len(nearest))
        if lanes.all():
            return Ctx(rows, None, whole), best
        if whole:
            whole = bool((lanes | (key[rows] >= DEAD)).all())
        return Ctx(rows, lanes, whole), best

    def _let_time_pass(self) -> None:
        """Nobody can go on: waits for mbarriers that look at the clock come back, else it is a deadlock."""
        s = self.s
        if not self.patience or not s.expire_waits():
            self._deadlock()
        self.patience -= 1
        s.m.pass_time(_WAITING)

    def _advance(self) -> None:
        """One step of one copy in flight."""
        s = self.s
        job = s.engine.choose(self.rng)
        s.pc = job.pc
        self.progress = True
        try:
            s.engine.advance(job)
        except SimulationError as error:
            if error.inst is None:
                error.inst = s.insts[job.pc]
            error.where = error.where or s.m.thread(job.warp, job.lane)
            raise

    def _run_group(self, x: Ctx, pc: int) -> None:
        """Run the group from `pc`; of a warp one of whose lanes polls, all that stand together step aside."""
        self._go(x, pc)
        s = self.s
        if s.any_yield and (found := s.polling[x.warps]).any():
            s.yielded[x.warps[found]] |= x.active()[found]

    def _go(self, x: Ctx, pc: int) -> None:
        """Run the group from `pc` until it splits, waits, or may meet others."""
        s, steps, run_end, leader = self.s, self.program.steps, self.program.run_end, self.program.leader
        wakes = s.wakes
        first = True
        while True:
            if leader[pc] and not first and (not x.whole or s.wakes != wakes):
                self._put(x, pc)
                return
            first = False
            end = run_end[pc]
            for at in range(pc, end):
                s.pc = at
                steps[at](x)  # type: ignore[operator]
            self._count(x, end - pc)
            if end != pc:
                pc = end
                continue
            s.pc = pc
            step = steps[pc]
            self._count(x, 1)
            if isinstance(step, Sync):
                if not self._sync(x, step, pc) or s.wakes != wakes:
                    return
                pc += 1
                continue
            assert isinstance(step, Control)
            target: Any = step.run(x)
            self.progress = True
            if not isinstance(target, int) or target >= DEAD or not x.whole or s.wakes != wakes:
                self._put(x, target)
                if not isinstance(target, int) or target >= DEAD:
                    s.exits(x.warps)
                return
            pc = target

    def _sync(self, x: Ctx, step: Sync, pc: int) -> bool:
        """Run a waiting step for the warps that are ready; True when the whole group goes on."""
        s = self.s
        wakes = s.wakes
        ready = step.ready(x)
        if ready is None or ready.all():
            self._put(x, pc + 1)
            step.run(x)
            self.progress = True
            return not s.blocked[x.warps].any() and x.whole and s.wakes == wakes
        late = ~ready
        self._put(x, pc)
        rest = x.warps[late]
        lanes = x.active()[late] & ~s.blocked[rest]
        if lanes.any():
            s.yielded[rest] |= lanes
            s.any_yield = True
        if ready.any():
            now = Ctx(x.warps[ready], None if x.mask is None else x.mask[ready])
            self._put(now, pc + 1)
            step.run(now)
            self.progress = True
        return False

    def _put(self, x: Ctx, target: Any) -> None:
        if x.mask is None:
            self.s.pcs[x.sel] = target
        else:
            self.s.pcs[x.warps] = np.where(x.mask, target, self.s.pcs[x.warps])

    def _count(self, x: Ctx, count: int) -> None:
        self.steps += count
        self.warp_instructions += count * x.n
        if count and self.steps > self.max_steps:
            raise SimulationError(f"stopped after {self.max_steps} steps: endless loop?")

    def _deadlock(self) -> None:
        s = self.s
        alive: Array = np.nonzero((s.pcs < DEAD).any(axis=1))[0]
        lines: list[str] = []
        for warp in alive.tolist()[:16]:
            held = s.pcs[warp][s.blocked[warp] & (s.pcs[warp] < DEAD)]
            at = int(held.min() if len(held) else s.pcs[warp].min()) - int(s.parked[warp].any())
            asleep = bool((s.blocked[warp] & (s.pcs[warp] < DEAD)).any())
            reason = s.reasons.get(warp, "") if asleep else ""
            reason = reason() if callable(reason) else reason
            reason = reason or "waits for its other lanes, or warps of its group, to come to the same place"
            lines.append(f"  {s.m.warp_name(warp)} {reason}, at {describe(s.insts[at])}")
        more = f"\n  and {len(alive) - 16} more warps" if len(alive) > 16 else ""
        raise SimulationError("deadlock: nobody can go on\n" + "\n".join(lines) + more)
