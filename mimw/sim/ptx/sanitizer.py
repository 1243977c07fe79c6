"""Happens-before for shared memory: vector clocks per warp, the last writer and readers of every granule, proxies.

Agents of a CTA are its warps, one engine per warp group (wgmma's asynchronous reads) and one copier per warp
(cp.async's writes). A warp's own clock advances with each release (barrier, mbarrier arrive, proxy fence); an engine's
clock is the number of its group, which a warp learns at the wait. An access is a race when the earlier conflicting
access of another agent has an epoch that this warp does not know. wgmma reads through the async proxy: it asks a second
clock, kept per thread, which holds only what the writing threads themselves fenced before the release.

A granule is as small as the narrowest shared access of the program, so that neighbours do not raise false alarms.
Lanes of one warp are taken as ordered: only races between warps are found.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.errors import SimulationError, describe
from mimw.sim.ptx.floats import Array


class Sanitizer:
    """Clocks of all CTAs of a batch and the access history of their shared memory (`total` bytes in all)."""

    def __init__(self, ctas: int, warps_per_cta: int, total: int, granule: int) -> None:
        self.wpc = warps_per_cta
        self.groups = (warps_per_cta + 3) // 4
        self.agents = warps_per_cta * 2 + self.groups
        self.granule = granule
        count = total // granule
        self.clock: Array = np.zeros((ctas * warps_per_cta, self.agents), np.int32)
        self.async_clock: Array = np.zeros((len(self.clock), self.agents, 32), np.int32)
        self.write_agent: Array = np.zeros(count, np.int16)
        self.write_lane: Array = np.zeros(count, np.int8)
        self.write_epoch: Array = np.zeros(count, np.int32)
        self.write_pc: Array = np.zeros(count, np.int32)
        self.write_atomic: Array = np.zeros(count, np.bool_)
        readers = warps_per_cta + self.groups
        self.read_epoch: Array = np.zeros((count, readers), np.int32)
        self.read_pc: Array = np.zeros((count, readers), np.int32)
        self.warp_name: Callable[[int], str] = str
        self.insts: list[Inst] = []
        self.reset()

    def reset(self) -> None:
        """Forget the history; every warp's own clock starts at one (zero means never)."""
        self.clock[:] = 0
        self.async_clock[:] = 0
        own = np.arange(len(self.clock))
        self.clock[own, own % self.wpc] = 1
        self.write_epoch[:] = 0
        self.read_epoch[:] = 0
        self.write_atomic[:] = False

    # -- accesses ------------------------------------------------------------------------------------------------

    def _granules(self, index: Array, width: int) -> Array:
        per = max(1, width // self.granule)
        first = index // self.granule
        return first[:, None] + np.arange(per) if per > 1 else first[:, None]

    def read(self, rows: Array, index: Array, width: int, pc: int, atomic: bool = False) -> None:
        """Warps `rows` (one a lane) read `width` bytes at byte offsets `index`."""
        g = self._granules(index, width)
        self._need_writes_known(rows, g, pc, atomic)
        if not atomic:
            agent = rows % self.wpc
            self.read_epoch[g, agent[:, None]] = self.clock[rows, agent][:, None]
            self.read_pc[g, agent[:, None]] = pc

    def write(
        self,
        rows: Array,
        lanes: Array,
        index: Array,
        width: int,
        pc: int,
        atomic: bool = False,
        epochs: Array | None = None,
    ) -> None:
        """Threads (`rows`, `lanes`) write. With `epochs` (one a lane) the writer is each warp's copier, at that group number."""
        g = self._granules(index, width)
        self._need_writes_known(rows, g, pc, atomic)
        self._need_reads_known(rows, g, pc)
        agent = rows % self.wpc
        epoch = self.clock[rows, agent]
        if epochs is not None:
            agent, epoch = agent + self.wpc + self.groups, epochs
        self.write_agent[g] = agent[:, None]
        self.write_lane[g] = lanes[:, None]
        self.write_epoch[g] = epoch[:, None]
        self.write_pc[g] = pc
        self.write_atomic[g] = atomic
        clash = self.write_agent[g] != agent[:, None]
        if clash.any() and not atomic:
            lane, k = (int(v) for v in np.argwhere(clash)[0])
            self._race("write", int(rows[lane]), pc, "write", int(self.write_agent[g[lane, k]]), pc)

    def _need_writes_known(self, rows: Array, g: Array, pc: int, atomic: bool) -> None:
        agent, epoch = self.write_agent[g], self.write_epoch[g]
        bad = epoch > self.clock[rows[:, None], agent]
        if not bad.any():
            return
        if atomic:
            bad &= ~self.write_atomic[g]
        bad &= agent != (rows % self.wpc)[:, None]
        if bad.any():
            lane, k = (int(v) for v in np.argwhere(bad)[0])
            kind = "atomic access" if atomic else "access"
            self._race(kind, int(rows[lane]), pc, "write", int(agent[lane, k]), int(self.write_pc[g[lane, k]]))

    def _need_reads_known(self, rows: Array, g: Array, pc: int) -> None:
        readers = self.read_epoch.shape[1]
        known = self.clock[rows][:, None, :readers]
        bad = self.read_epoch[g] > known
        if not bad.any():
            return
        bad[np.arange(len(rows)), :, rows % self.wpc] = False
        if bad.any():
            lane, k, agent = (int(v) for v in np.argwhere(bad)[0])
            self._race("write", int(rows[lane]), pc, "read", agent, int(self.read_pc[g[lane, k], agent]))

    def _race(self, kind: str, row: int, pc: int, other_kind: str, other: int, other_pc: int) -> None:
        earlier = self.insts[other_pc]
        if other < self.wpc:
            who, hint = f"warp {other}", "no barrier lies between them"
        elif other < self.wpc + self.groups:
            who, hint = f"the wgmma of warp group {other - self.wpc}", "wgmma.wait_group (and a barrier) is missing"
        else:
            who, hint = (
                f"the cp.async of warp {other - self.wpc - self.groups}",
                ("cp.async.wait_group (and, for another warp, a barrier) is missing"),
            )
        raise SimulationError(
            f"shared-memory race: this {kind} by warp {row % self.wpc} and the earlier {other_kind} by {who},"
            f" {describe(earlier)}: {hint}",
            self.insts[pc],
            self.warp_name(row),
        )

    def async_read(self, rows: Array, index: Array, group: int, epoch: int, pc: int) -> None:
        """The engine of warp group `group` reads 16-byte rows at `index` for the warps `rows`, until `epoch` is waited for."""
        g = self._granules(index, 16)
        agent, written = self.write_agent[g], self.write_epoch[g]
        for row in rows.tolist():
            bad = written > self.async_clock[row][agent, self.write_lane[g]]
            if not bad.any():
                continue
            lane, k = (int(v) for v in np.argwhere(bad)[0])
            other, other_pc = int(agent[lane, k]), int(self.write_pc[g[lane, k]])
            if written[lane, k] > self.clock[row][other]:
                self._race("wgmma read", row, pc, "write", other, other_pc)
            raise SimulationError(
                f"wgmma reads bytes that {describe(self.insts[other_pc])} wrote through the generic proxy:"
                " fence.proxy.async by the writing threads before the barrier is missing",
                self.insts[pc],
                self.warp_name(row),
            )
        column = self.wpc + group
        self.read_epoch[g, column] = epoch
        self.read_pc[g, column] = pc

    # -- synchronisation -----------------------------------------------------------------------------------------

    def release(self, row: int) -> tuple[Array, Array]:
        """The clocks that warp `row` publishes; its later accesses are no longer covered by them."""
        out = self.clock[row].copy(), self.async_clock[row].copy()
        self.clock[row, row % self.wpc] += 1
        return out

    def acquire(self, row: int, clocks: tuple[Array, Array]) -> None:
        """Warp `row` learns published clocks."""
        np.maximum(self.clock[row], clocks[0], out=self.clock[row])
        np.maximum(self.async_clock[row], clocks[1], out=self.async_clock[row])

    def copier(self, row: int) -> int:
        """The clock column of a warp's cp.async engine."""
        return row % self.wpc + self.wpc + self.groups

    def fence_async(self, rows: Array, lanes: Array) -> None:
        """fence.proxy.async: what these threads (lanes: (rows, 32) bool) and their copiers wrote, the async proxy sees."""
        own = rows % self.wpc
        for column in (own, own + self.wpc + self.groups):
            known = self.clock[rows, column][:, None]
            self.async_clock[rows, column] = np.where(lanes, known, self.async_clock[rows, column])
        self.clock[rows, own] += 1

    def learn(self, row: int, copier: bool, epoch: int) -> None:
        """Warp `row` waited for its copier's (or its warp group engine's) group `epoch`."""
        column = self.copier(row) if copier else self.wpc + row % self.wpc // 4
        self.clock[row, column] = max(int(self.clock[row, column]), epoch)
