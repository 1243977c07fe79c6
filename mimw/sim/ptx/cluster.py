"""What ties the CTAs of a cluster together: the cluster barrier, accesses to each other's memory, and who may exit when.

A CTA may exit once it knows that nobody touches its shared memory any more: every access by another CTA and every bulk
copy into it is noted here and must be known to one of its warps (through an mbarrier or the cluster barrier) at its exit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mimw.sim.ptx.clocks import Clocks, merge
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.state import DEAD

if TYPE_CHECKING:
    from mimw.sim.ptx.barriers import Waiting


class ClusterBarrier:
    """The barrier of one cluster: `phase` counts completed phases, `seen` is each thread's phase at its arrival."""

    __slots__ = ("arrived", "clocks", "order", "pending", "pending_order", "phase", "rows", "seen", "waiting")

    def __init__(self, rows: slice, warps: int) -> None:
        self.rows = rows
        self.phase = 0
        self.arrived: Array = np.zeros((warps, 32), np.bool_)
        self.seen: Array = np.full((warps, 32), -1)
        self.waiting: Array = np.zeros((warps, 32), np.bool_)
        # What the completed phase passes on, and what the arrivals of the open one have brought: memory, mere order.
        self.clocks: Clocks | None = None
        self.order: Clocks | None = None
        self.pending: Clocks | None = None
        self.pending_order: Clocks | None = None


class Clusters:
    """All clusters of a batch. `exited` holds CTAs (batch indices) whose threads are all gone."""

    def __init__(self, s: Waiting) -> None:
        self.s = s
        size = s.m.cluster * s.m.warps_per_cta
        self.size = size
        self.barriers = [ClusterBarrier(slice(at, at + size), size) for at in range(0, s.m.warps, size)]
        self.exited: set[int] = set()
        self.touched: dict[int, dict[int, tuple[int, int]]] = {}
        self.order: dict[int, Clocks] = {}

    # -- the barrier ---------------------------------------------------------------------------------------------

    def arrive(self, warp: int, lanes: Array, releases: bool) -> None:
        """barrier.cluster.arrive by some lanes of a warp."""
        bar = self.barriers[warp // self.size]
        at = warp - bar.rows.start
        if (lanes & (bar.seen[at] >= 0)).any():
            raise SimulationError(
                "barrier.cluster.arrive twice without barrier.cluster.wait between", where=self.s.m.warp_name(warp)
            )
        bar.arrived[at] |= lanes
        bar.seen[at][lanes] = bar.phase
        if self.s.san is not None:
            clocks = self.s.san.release(warp, lanes)
            bar.pending_order = merge(bar.pending_order, clocks)
            if releases:
                bar.pending = merge(bar.pending, clocks)
        self.complete(bar)

    def complete(self, bar: ClusterBarrier) -> None:
        """End the phase when all threads that have not exited have arrived."""
        if not bar.arrived.any() or (~bar.arrived & (self.s.pcs[bar.rows] < DEAD)).any():
            return
        bar.phase += 1
        bar.arrived[:] = False
        bar.clocks, bar.order, bar.pending, bar.pending_order = bar.pending, bar.pending_order, None, None
        for at in np.nonzero(bar.waiting.any(axis=1))[0].tolist():
            warp, lanes = bar.rows.start + at, bar.waiting[at].copy()
            bar.waiting[at] = False
            self.s.release_lanes(warp, lanes)
            self._pass(bar, warp, lanes)

    def _pass(self, bar: ClusterBarrier, warp: int, lanes: Array) -> None:
        bar.seen[warp - bar.rows.start][lanes] = -1
        if self.s.san is None:
            return
        if bar.clocks is not None:
            self.s.san.acquire(warp, bar.clocks, lanes)
        if bar.order is not None:
            cta = warp // self.s.m.warps_per_cta
            self.order[cta] = merge(self.order.get(cta), bar.order)

    def wait(self, warp: int, lanes: Array) -> None:
        """barrier.cluster.wait by some lanes of a warp."""
        bar = self.barriers[warp // self.size]
        at = warp - bar.rows.start
        if (lanes & (bar.seen[at] < 0)).any():
            raise SimulationError("barrier.cluster.wait without barrier.cluster.arrive", where=self.s.m.warp_name(warp))
        done = lanes & (bar.seen[at] < bar.phase)
        if done.any():
            self._pass(bar, warp, done)
        rest = lanes & ~done
        if rest.any():
            bar.waiting[at] |= rest
            self.s.park(warp, rest, lambda: f"waits at the cluster barrier (phase {bar.phase}: {self._missing(bar)})")

    def _missing(self, bar: ClusterBarrier) -> str:
        late = np.nonzero((~bar.arrived & (self.s.pcs[bar.rows] < DEAD)).any(axis=1))[0]
        names = ", ".join(self.s.m.warp_name(bar.rows.start + at) for at in late.tolist()[:4])
        return f"{names}{' and others' if len(late) > 4 else ''} have not arrived"

    # -- each other's memory -------------------------------------------------------------------------------------

    def touch(self, cta: int, agent: int, epoch: int, pc: int) -> None:
        """Agent `agent` reads, writes or signals in CTA `cta` at its epoch `epoch`."""
        if cta in self.exited:
            raise SimulationError(
                f"{self.s.m.cta_name(cta)} has exited: its shared memory and barriers are gone."
                " A cluster barrier of all threads before the exit is missing"
            )
        marks = self.touched.setdefault(cta, {})
        if epoch >= marks.get(agent, (0, 0))[0]:
            marks[agent] = (epoch, pc)

    def touch_from(self, warp: int, cta: int, pc: int) -> None:
        """A thread of `warp` accesses the memory of CTA `cta`."""
        if cta != warp // self.s.m.warps_per_cta:
            san = self.s.san
            self.touch(cta, warp % self.size, san.now(warp) if san is not None else 0, pc)

    def exit(self, cta: int) -> None:
        """All threads of a CTA have gone: check that nobody still uses its memory."""
        if cta in self.exited:
            return
        self.exited.add(cta)
        wpc = self.s.m.warps_per_cta
        san = self.s.san
        if san is None:
            return
        known = san.known_by(slice(cta * wpc, (cta + 1) * wpc))
        if cta in self.order:
            extra = self.order[cta][0]
            np.maximum(known[: len(extra)], extra, out=known[: len(extra)])
        for agent, (epoch, pc) in self.touched.get(cta, {}).items():
            if epoch > known[agent]:
                who, _ = san.agents.describe(agent)
                raise SimulationError(
                    f"{self.s.m.cta_name(cta)} exits without knowing that {who} has finished with its shared memory:"
                    f" a wait{' or the cluster barrier of all threads' if self.s.m.cluster > 1 else ''} is missing",
                    san.insts[pc],
                    self.s.m.cta_name(cta),
                )
