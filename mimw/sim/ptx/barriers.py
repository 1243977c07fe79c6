"""The waiting side of a running batch: named barriers, mbarriers, in-flight groups, and who sleeps for what.

Owns who has arrived and which clocks pass from one to the other; the cluster's part is in `cluster`. Knows no instruction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.ptx.clocks import Clocks, bits_of_lanes, merge
from mimw.sim.ptx.cluster import Clusters
from mimw.sim.ptx.engine import Engine
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.sanitizer import Sanitizer
from mimw.sim.ptx.state import DEAD, Machine

TX_LIMIT = (1 << 20) - 1


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
    """An mbarrier object: `phase` counts completed phases, `pending` arrivals and `tx` bytes are still missing in this one.

    `agent` is its column in the clocks, whose epochs are `base` (of earlier objects at the same place) plus phases.
    `fenced`: its initialisation is visible to the async proxy. `seen`: who has seen the phase before this one complete
    (warp, lanes as bits), and the warp's epoch then; `order` and `lanes`: how far warps and lanes are known to have come by
    those who arrived in this phase and by those whose copies landed.
    """

    __slots__ = (
        "agent", "arriving", "base", "clocks", "count", "cta", "fenced", "init_epoch", "init_lane", "init_warp", "lanes",
        "offset", "order", "pending", "phase", "seen", "tx", "waiters",
    )  # fmt: skip

    def __init__(self, count: int, cta: int, offset: int) -> None:
        self.count = self.pending = count
        self.cta, self.offset = cta, offset
        self.phase = self.tx = self.base = 0
        self.agent = 0
        self.fenced = False
        self.waiters: set[int] = set()
        self.arriving: Clocks | None = None
        self.clocks: Clocks | None = None
        self.init_warp = self.init_epoch = self.init_lane = 0
        self.seen: dict[tuple[int, int], int] = {}
        self.order: Array | None = None
        self.lanes: Array | None = None

    @property
    def epoch(self) -> int:
        """The epoch that whoever sees the current phase complete will know."""
        return self.base + self.phase + 1

    def hear(self, clocks: Clocks) -> None:
        """Whoever arrives, or started a copy that lands, brings word of how far warps and lanes had come."""
        self.order = clocks[3] if self.order is None else np.maximum(self.order, clocks[3])
        self.lanes = clocks[2] if self.lanes is None else np.maximum(self.lanes, clocks[2])

    def used(self) -> bool:
        """Whether anything has happened at it."""
        return bool(self.phase or self.tx or self.waiters or self.pending != self.count)

    def missing(self) -> str:
        """What the current phase lacks, in words."""
        if self.tx < 0:
            return f"{self.pending} arrivals are missing, {-self.tx} bytes more than expected have arrived"
        return f"{self.pending} arrivals and {self.tx} bytes are missing"


class WgmmaState:
    """A warp's wgmma groups: registers of the open one and of those committed, numbered from `epoch` on.

    `order`, `orders`: how far warps had come when the last wgmma of the open group, and of each committed one, was issued.
    """

    __slots__ = ("done", "fenced", "groups", "open", "order", "orders")

    def __init__(self) -> None:
        self.fenced = False
        self.open: list[int] = []
        self.groups: list[list[int]] = []
        self.order: Array | None = None
        self.orders: list[Array | None] = []
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
        self.reasons: dict[int, str | Callable[[], str]] = {}
        self.parked: Array = np.zeros((m.warps, 32), np.bool_)
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.mbarriers: dict[tuple[int, int], MBarrier] = {}
        self.flags: dict[int, Clocks] = {}
        self.votes: dict[int, tuple[int, int]] = {}
        self.wgmma: dict[int, WgmmaState] = {}
        self.copy_epoch: dict[int, int] = {}
        self.unfenced: list[MBarrier] = []
        self.expired: set[int] = set()
        self.overwritten: set[tuple[int, int]] = set()
        self.barrier_epochs: dict[tuple[int, int], int] = {}
        self.registers: dict[int, int] = {}
        self.free_registers: dict[int, int] = {}
        self.hungry: dict[int, set[int]] = {}
        self.engine = Engine()
        self.engine.moved = self.wake
        self.clusters = Clusters(self)

    def block(self, warp: int, lanes: Array, reason: str | Callable[[], str]) -> None:
        """Put lanes of a warp to sleep until `wake`; `reason` is what a deadlock report says."""
        self.blocked[warp] |= lanes
        self.reasons[warp] = reason

    def wake(self, warp: int) -> None:
        """Let the lanes of a warp try again, but for those that are parked at a barrier."""
        self.blocked[warp] = self.parked[warp]
        self.wakes += 1

    def park(self, warp: int, lanes: Array, reason: str | Callable[[], str]) -> None:
        """Put lanes of a warp to sleep until `release_lanes`."""
        self.parked[warp] |= lanes
        self.block(warp, lanes, reason)

    def release_lanes(self, warp: int, lanes: Array) -> None:
        """The barrier at which these lanes are parked is complete."""
        self.parked[warp] &= ~lanes
        self.blocked[warp] &= ~lanes
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
            if waits:
                self.san.warp_sync(np.array([warp]), np.ones((1, 32), np.bool_))
            bar.clocks = merge(bar.clocks, self.san.release(warp))
        if waits:
            bar.waiting.append(warp)
            reason = f"waits at barrier {ident} (count {threads or 'all'})"
            self.park(warp, self.pcs[warp] < DEAD, lambda: f"{reason}: {32 * len(bar.arrived)} threads have come")
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
            self.release_lanes(warp, self.parked[warp].copy())

    def exits(self, warps: Array) -> None:
        """Lanes of these warps have exited: barriers of the whole CTA may be complete now."""
        wpc = self.m.warps_per_cta
        for cta in sorted({int(w) // wpc for w in warps}):
            for key in [k for k, bar in self.barriers.items() if k[0] == cta and not bar.threads]:
                self._try_complete(*key)
            self.clusters.complete(self.clusters.barriers[cta // self.m.cluster])
            if (self.pcs[cta * wpc : (cta + 1) * wpc] >= DEAD).all():
                self._leave(cta)

    def _leave(self, cta: int) -> None:
        """A CTA is gone: nothing may still use its shared memory."""
        job = self.engine.busy_with(cta)
        for (warp, lane), groups in self.engine.bulk.items():
            unread = groups.unread() if warp // self.m.warps_per_cta == cta else []
            if unread:
                raise SimulationError(
                    "a thread exits without cp.async.bulk.wait_group: its bulk store may still read shared memory",
                    self.san.insts[unread[0].pc] if self.san is not None else None,
                    self.m.thread(warp, lane),
                )
        if job is not None:
            raise SimulationError(
                f"{self.m.cta_name(cta)} exits while a copy that {self.m.thread(job.warp, job.lane)} started still uses its"
                " shared memory: a wait is missing before the exit",
                self.san.insts[job.pc] if self.san is not None else None,
                self.m.cta_name(cta),
            )
        self.clusters.exit(cta)

    # -- mbarriers -----------------------------------------------------------------------------------------------

    def mbarrier_arrive(
        self, warp: int, lanes: Array, bar: MBarrier, count: int, drops: bool = False, copies: int | None = None,
        releases: bool = True,
    ) -> None:  # fmt: skip
        """`count` arrivals by lanes of a warp. `copies`: also publish the warp's cp.async groups up to that number."""
        if self.san is not None:
            clocks = self.san.release(warp, lanes)
            bar.hear(clocks)
            if copies is not None:
                copier = self.san.agents.copier(warp)
                clocks[0][copier] = max(int(clocks[0][copier]), copies)
            if releases or copies is not None:
                bar.arriving = merge(bar.arriving, clocks)
        bar.pending -= count
        if drops:
            bar.count -= count
        if bar.pending < 0:
            raise SimulationError(
                f"{-bar.pending} arrivals too many at the mbarrier at {bar.offset:#x} (count {bar.count})",
                where=self.m.warp_name(warp),
            )
        self.mbarrier_check(bar)

    def mbarrier_bytes(self, bar: MBarrier, count: int) -> None:
        """`count` more bytes are expected in this phase (negative: have arrived)."""
        bar.tx += count
        if abs(bar.tx) > TX_LIMIT:
            raise SimulationError(
                f"the mbarrier at {bar.offset:#x} counts {bar.tx} bytes: at most {TX_LIMIT} may be outstanding"
            )

    def mbarrier_check(self, bar: MBarrier) -> None:
        """Complete the phase when nothing is missing."""
        if bar.pending or bar.tx:
            return
        if self.san is not None:
            self._need_waiters_gone(bar)
            bar.clocks = bar.arriving if bar.clocks is None else bar.clocks if bar.arriving is None else merge(
                bar.clocks, bar.arriving
            )  # fmt: skip
            if bar.clocks is None or len(bar.clocks[0]) <= bar.agent:
                bar.clocks = merge(bar.clocks, self.san.nothing())
            bar.clocks[0][bar.agent] = bar.epoch
            if bar.order is not None:
                np.maximum(bar.clocks[3], bar.order, out=bar.clocks[3])
        bar.phase += 1
        bar.pending = bar.count
        bar.arriving = bar.order = bar.lanes = None
        bar.seen = {}
        for warp in bar.waiters:
            self.wake(warp)
        bar.waiters.clear()

    def expire_waits(self) -> bool:
        """Let every warp that waits for an mbarrier go on without success; says whether there was one."""
        found = False
        for bar in self.mbarriers.values():
            for warp in bar.waiters:
                found = True
                self.expired.add(warp)
                self.wake(warp)
            bar.waiters.clear()
        return found

    def _need_waiters_gone(self, bar: MBarrier) -> None:
        """A phase completes: all who waited for the one before must be known to have seen that, since parities repeat.

        Else a warp that polls late finds the parity it waited for gone again, and waits for ever, or for the wrong phase.
        """
        warps = self.m.cluster * self.m.warps_per_cta
        for (warp, lanes), epoch in bar.seen.items():
            at = warp % warps
            if bar.order is not None and bar.order[at] >= epoch:
                continue
            alone = [lane for lane in range(32) if lanes >> lane & 1]
            if bar.lanes is None or (bar.lanes[at, alone] < epoch).any():
                raise SimulationError(
                    f"a phase of the mbarrier at {bar.offset:#x} ends while {self.m.warp_name(warp)} may still wait for the one"
                    " before, whose parity comes back: nothing orders its wait before the arrivals (a sync of its task is missing)"
                )

    def mbarrier_observe(self, warp: int, lanes: Array, bar: MBarrier, acquires: bool = True) -> None:
        """Lanes of a warp saw a phase complete."""
        if self.san is None:
            return
        bar.seen[warp, bits_of_lanes(lanes)] = self.san.now(warp)
        if acquires and bar.clocks is not None:
            self.san.acquire(warp, bar.clocks, lanes)
