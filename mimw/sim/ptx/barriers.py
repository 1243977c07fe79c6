"""The waiting side of a running batch: named barriers, the cluster barrier of a lone CTA, mbarriers, in-flight groups.

Owns who has arrived, who sleeps, and which clocks pass from one to the other. Knows no instruction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.sanitizer import Sanitizer
from mimw.sim.ptx.state import DEAD, Machine

Clocks = tuple[Array, Array]


def merge(a: Clocks | None, b: Clocks) -> Clocks:
    """Both sets of clocks joined."""
    return b if a is None else (np.maximum(a[0], b[0]), np.maximum(a[1], b[1]))


class Barrier:
    """One phase of a named barrier (`threads` 0: the whole CTA)."""

    __slots__ = ("arrived", "clocks", "done", "threads", "waiting")

    def __init__(self) -> None:
        self.threads = 0
        self.arrived: list[int] = []
        self.waiting: list[int] = []
        self.clocks: Clocks | None = None
        self.done: Callable[[list[int]], None] | None = None


class MBarrier:
    """An mbarrier object: `phase` counts completed phases, `pending` arrivals and `tx` bytes are still missing in this one."""

    __slots__ = ("arriving", "clocks", "count", "init_epoch", "init_warp", "pending", "phase", "tx", "waiters")

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.phase = self.tx = 0
        self.waiters: set[int] = set()
        self.arriving: Clocks | None = None
        self.clocks: Clocks | None = None
        self.init_warp = self.init_epoch = 0


class WgmmaState:
    """A warp's wgmma groups: registers of the open one and of those committed, numbered from `epoch` on."""

    __slots__ = ("done", "fenced", "groups", "open")

    def __init__(self) -> None:
        self.fenced = False
        self.open: list[int] = []
        self.groups: list[list[int]] = []
        self.done = 0

    @property
    def epoch(self) -> int:
        """The number that the open group will have (the first is 1)."""
        return self.done + len(self.groups) + 1


class Waiting:
    """Barriers and in-flight groups of a batch; `Sim` extends it."""

    def __init__(self, m: Machine, san: Sanitizer | None) -> None:
        self.m = m
        self.san = san
        self.pcs: Array = np.zeros((m.warps, 32), np.int64)
        self.blocked: Array = np.zeros((m.warps, 32), np.bool_)
        self.wakes = 0
        self.reasons: dict[int, str] = {}
        self.at_barrier: set[int] = set()
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.mbarriers: dict[tuple[int, int], MBarrier] = {}
        self.flags: dict[int, Clocks] = {}
        self.votes: dict[int, tuple[int, int]] = {}
        self.wgmma: dict[int, WgmmaState] = {}
        self.copy_epoch: dict[int, int] = {}
        self._cluster_phase: dict[int, int] = {}
        self._cluster_seen: dict[int, int] = {}
        self._cluster: dict[int, Barrier] = {}
        self._cluster_clocks: dict[int, Clocks] = {}

    def block(self, warp: int, lanes: Array, reason: str) -> None:
        """Put lanes of a warp to sleep; `reason` is what a deadlock report says."""
        self.blocked[warp] |= lanes
        self.reasons[warp] = reason

    def wake(self, warp: int) -> None:
        """Let a warp run again."""
        self.blocked[warp] = False
        self.reasons.pop(warp, None)
        self.wakes += 1

    def wgmma_of(self, warp: int) -> WgmmaState:
        """The warp's wgmma groups."""
        return self.wgmma.setdefault(warp, WgmmaState())

    # -- named barriers ------------------------------------------------------------------------------------------

    def join(
        self, warp: int, ident: int, threads: int, waits: bool, done: Callable[[list[int]], None] | None = None
    ) -> None:
        """Warp `warp` comes to named barrier `ident` (`threads` 0: all of the CTA) and completes it when it is the last."""
        if ident > 15:
            raise SimulationError(f"barrier id {ident}: only 0 to 15 exist")
        if threads % 32:
            raise SimulationError(f"barrier count {threads} is no multiple of the warp size")
        cta = warp // self.m.warps_per_cta
        bar = self.barriers.setdefault((cta, ident), Barrier())
        if bar.arrived and bar.threads != threads:
            raise SimulationError(
                f"barrier {ident} is used with {threads or 'all'} threads while others wait for {bar.threads or 'all'}"
            )
        if warp in bar.arrived:
            raise SimulationError(
                f"the warp arrives twice at barrier {ident} in one phase", where=self.m.warp_name(warp)
            )
        bar.threads, bar.done = threads, done
        bar.arrived.append(warp)
        if self.san is not None:
            bar.clocks = merge(bar.clocks, self.san.release(warp))
        if waits:
            bar.waiting.append(warp)
            self.at_barrier.add(warp)
            self.block(warp, self.pcs[warp] < DEAD, f"waits at barrier {ident} (count {threads or 'all'})")
        self._try_complete(cta, ident)

    def _exited(self, cta: int) -> list[int]:
        first = cta * self.m.warps_per_cta
        gone = (self.pcs[first : first + self.m.warps_per_cta] >= DEAD).all(axis=1)
        return [first + int(i) for i in np.nonzero(gone)[0]]

    def _try_complete(self, cta: int, ident: int) -> None:
        bar = self.barriers[cta, ident]
        needed = bar.threads // 32
        if not bar.threads:
            needed = self.m.warps_per_cta - sum(warp not in bar.arrived for warp in self._exited(cta))
        if not bar.arrived or len(bar.arrived) < needed:
            return
        del self.barriers[cta, ident]
        if bar.done is not None:
            bar.done(bar.arrived)
        for warp in bar.waiting:
            if self.san is not None and bar.clocks is not None:
                self.san.acquire(warp, bar.clocks)
            self.at_barrier.discard(warp)
            self.wake(warp)

    def exits(self, warps: Array) -> None:
        """Lanes of these warps have exited: barriers of the whole CTA may be complete now."""
        for cta in {int(w) // self.m.warps_per_cta for w in warps}:
            for key in [k for k, bar in self.barriers.items() if k[0] == cta and not bar.threads]:
                self._try_complete(*key)
            if cta in self._cluster:
                self._cluster_complete(cta)

    # -- the cluster barrier, for clusters of one CTA ------------------------------------------------------------

    def cluster_arrive(self, warp: int) -> None:
        """barrier.cluster.arrive."""
        cta = warp // self.m.warps_per_cta
        bar = self._cluster.setdefault(cta, Barrier())
        if warp in bar.arrived:
            raise SimulationError("the warp arrives twice at the cluster barrier", where=self.m.warp_name(warp))
        bar.arrived.append(warp)
        self._cluster_seen[warp] = self._cluster_phase.get(cta, 0)
        if self.san is not None:
            bar.clocks = merge(bar.clocks, self.san.release(warp))
        self._cluster_complete(cta)

    def _cluster_complete(self, cta: int) -> None:
        bar = self._cluster[cta]
        gone = [warp for warp in self._exited(cta) if warp not in bar.arrived]
        if not bar.arrived or len(bar.arrived) < self.m.warps_per_cta - len(gone):
            return
        self._cluster_phase[cta] = self._cluster_phase.get(cta, 0) + 1
        self._cluster[cta] = Barrier()
        if bar.clocks is not None:
            self._cluster_clocks[cta] = bar.clocks
        for warp in bar.waiting:
            self.at_barrier.discard(warp)
            if bar.clocks is not None and self.san is not None:
                self.san.acquire(warp, bar.clocks)
            self.wake(warp)

    def cluster_wait(self, warp: int) -> None:
        """barrier.cluster.wait."""
        cta = warp // self.m.warps_per_cta
        seen = self._cluster_seen.get(warp)
        if seen is None:
            raise SimulationError("barrier.cluster.wait without arrive", where=self.m.warp_name(warp))
        if seen < self._cluster_phase.get(cta, 0):
            if self.san is not None and cta in self._cluster_clocks:
                self.san.acquire(warp, self._cluster_clocks[cta])
            return
        self._cluster[cta].waiting.append(warp)
        self.at_barrier.add(warp)
        self.block(warp, self.pcs[warp] < DEAD, "waits at the cluster barrier")

    # -- mbarriers -----------------------------------------------------------------------------------------------

    def mbarrier_arrive(
        self, warp: int, offset: int, bar: MBarrier, count: int, drops: bool = False, copies: int | None = None
    ) -> None:
        """`count` arrivals by a warp. `copies`: also publish the warp's cp.async groups up to that number."""
        if self.san is not None:
            clocks = self.san.release(warp)
            if copies is not None:
                clocks[0][self.san.copier(warp)] = max(int(clocks[0][self.san.copier(warp)]), copies)
            bar.arriving = merge(bar.arriving, clocks)
        bar.pending -= count
        if drops:
            bar.count -= count
        if bar.pending < 0:
            raise SimulationError(
                f"{-bar.pending} arrivals too many at the mbarrier at {offset:#x} (count {bar.count})",
                where=self.m.warp_name(warp),
            )
        self.mbarrier_check(bar)

    def mbarrier_check(self, bar: MBarrier) -> None:
        """Complete the phase when nothing is missing."""
        if bar.pending or bar.tx:
            return
        bar.phase += 1
        bar.pending = bar.count
        if bar.arriving is not None:
            bar.clocks = merge(bar.clocks, bar.arriving)
        bar.arriving = None
        for warp in bar.waiters:
            if warp not in self.at_barrier:
                self.wake(warp)
        bar.waiters.clear()

    def mbarrier_observe(self, warp: int, bar: MBarrier) -> None:
        """The warp saw a phase complete."""
        if self.san is not None and bar.clocks is not None:
            self.san.acquire(warp, bar.clocks)
