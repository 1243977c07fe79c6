# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""Happens-before for shared memory: vector clocks per warp, the last writer and readers of every granule, proxies.

Who can touch a cluster's shared memory is numbered by `Agents`. A warp's own clock advances with each release (barrier,
mbarrier arrive, proxy fence); the clock of an engine, a copier or a thread's bulk groups is the number of its group,
which a warp learns at the wait; the clock of an mbarrier is the number of its phase, which a warp learns when it sees the
phase complete. An access is a race when the earlier conflicting access of another agent has an epoch that this warp does
not know; a bulk copy in flight has an epoch that nobody can know. wgmma and bulk copies go through the async proxy: for
what threads wrote they ask a second clock, kept per thread, which holds only what the writing threads themselves fenced
before the release.

A release by some lanes of a warp speaks for these lanes alone, and for what the others did before the warp's last
bar.warp.sync (or barrier); so does a bulk store that one lane starts; what some lanes learned by a wait, the others know
after such a sync. Else lanes of one warp are taken as ordered: only races between warps are found. A granule is as small
as the narrowest shared access of the program, so that neighbours do not raise false alarms. Two unordered stores of the same bytes are
no race: compilers let all warps that hold a value write it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.agents import Agents
from mimw.sim.ptx.clocks import Clockwork
from mimw.sim.ptx.errors import SimulationError, describe
from mimw.sim.ptx.floats import Array

IN_FLIGHT = 1 << 30


class Sanitizer(Clockwork):
    """Clocks of all clusters of a batch and the access history of their shared memory (`stride` bytes a CTA)."""

    def __init__(self, clusters: int, agents: Agents, stride: int, granule: int) -> None:
        super().__init__(clusters, agents)
        self.granule = granule
        self.per_cta = stride // granule
        count = clusters * agents.ctas * self.per_cta
        self.write_agent: Array = np.zeros(count, np.int16)
        self.write_lane: Array = np.zeros(count, np.int8)
        self.write_epoch: Array = np.zeros(count, np.int32)
        self.write_pc: Array = np.zeros(count, np.int32)
        self.write_atomic: Array = np.zeros(count, np.bool_)
        own = agents.wpc + agents.groups
        self.read_epoch: Array = np.zeros((count, own), np.int32)
        self.read_pc: Array = np.zeros((count, own), np.int32)
        self.read_lane: Array = np.full((count, own), -1, np.int8)
        # The agent behind each column of the read history, by the rank of the CTA whose memory it is.
        self.column_agent: Array = np.array(
            [[*range(rank * agents.wpc, (rank + 1) * agents.wpc),
              *range(agents.warps + rank * agents.groups, agents.warps + (rank + 1) * agents.groups)]
             for rank in range(agents.ctas)]
        )  # fmt: skip
        self._extra: dict[int, int] = {}
        self.warp_name: Callable[[int], str] = str
        self.insts: list[Inst] = []
        self.tickets = 0

    # -- accesses by threads -------------------------------------------------------------------------------------

    def _granules(self, index: Array, width: int) -> Array:
        per = max(1, width // self.granule)
        first = index // self.granule
        return first[:, None] + np.arange(per) if per > 1 else first[:, None]

    def _column(self, agent: int, rank: int) -> int:
        """The column of the read history for an agent that reads memory of CTA `rank`; made when it is the first."""
        home = self.agents.home(agent)
        if home is not None and home[0] == rank:
            return home[1]
        found = self._extra.get(agent)
        if found is None:
            found = self._extra[agent] = self.column_agent.shape[1]
            more = np.full((self.agents.ctas, 1), agent)
            self.column_agent = np.concatenate([self.column_agent, more], axis=1)
            blank = np.zeros((len(self.read_epoch), 1), np.int32)
            self.read_epoch = np.concatenate([self.read_epoch, blank], axis=1)
            self.read_pc = np.concatenate([self.read_pc, blank], axis=1)
            self.read_lane = np.concatenate([self.read_lane, blank.astype(np.int8) - 1], axis=1)
        return found

    def _columns(self, agents: Array, first: Array) -> Array:
        """Read columns of one warp agent per lane; `first` holds a granule of each lane."""
        if self.agents.ctas == 1:
            return agents
        rank = first // self.per_cta % self.agents.ctas
        out = agents % self.agents.wpc
        for lane in np.nonzero(agents // self.agents.wpc != rank)[0].tolist():
            out[lane] = self._column(int(agents[lane]), int(rank[lane]))
        return out

    def read(self, rows: Array, lanes: Array, index: Array, width: int, pc: int, atomic: bool = False) -> None:
        """Threads (`rows`, `lanes`) read `width` bytes at byte offsets `index`."""
        g = self._granules(index, width)
        loan = self.lend(rows, lanes) if self.private else []
        self._need_writes_known(rows, g, pc, atomic)
        self.take_back(loan)
        if not atomic:
            agent = self.agents.warp(rows)
            column = self._columns(agent, g[:, 0])[:, None]
            epoch = self.clock[rows, agent][:, None]
            lane = lanes[:, None]
            alone = (self.read_epoch[g, column] != epoch) | (self.read_lane[g, column] == lane)
            self.read_epoch[g, column] = epoch
            self.read_pc[g, column] = pc
            self.read_lane[g, column] = np.where(alone, lane, -1)
            shared = self.read_lane[g, column] != lane
            if shared.any():
                where = np.broadcast_to(column, g.shape)[shared]
                self.read_lane[g[shared], where] = -1

    def write(
        self,
        rows: Array,
        lanes: Array,
        index: Array,
        width: int,
        pc: int,
        atomic: bool = False,
        epochs: Array | None = None,
        data: Callable[[], tuple[Array, Array]] | None = None,
    ) -> None:
        """Threads (`rows`, `lanes`) write. With `epochs` (one a lane) the writer is each warp's copier, at that group number.

        `data` gives the bytes that each lane writes, and those that are there: (lanes, width) uint8 both.
        """
        g = self._granules(index, width)
        loan = self.lend(rows, lanes) if self.private else []
        self._need_writes_known(rows, g, pc, atomic, data)
        self._need_reads_known(rows, g, pc)
        self.take_back(loan)
        agent = self.agents.warp(rows)
        epoch = self.clock[rows, agent]
        if epochs is not None:
            agent, epoch = agent + self.agents.warps + self.agents.engines, epochs
        self.write_agent[g] = agent[:, None]
        self.write_lane[g] = lanes[:, None]
        self.write_epoch[g] = epoch[:, None]
        self.write_pc[g] = pc
        self.write_atomic[g] = atomic
        clash = self.write_agent[g] != agent[:, None]
        if clash.any() and data is not None:
            clash &= self._differs_within(g, data()[0])
        if clash.any() and not atomic:
            lane, k = (int(v) for v in np.argwhere(clash)[0])
            self._race("write", int(rows[lane]), pc, "write", int(self.write_agent[g[lane, k]]), pc)

    def _differs_within(self, g: Array, new: Array) -> Array:
        """Whether what a lane writes to a granule is not what the last lane that writes it does: bool like `g`."""
        parts = new.reshape(*g.shape, -1)
        last = {int(granule): i for i, granule in enumerate(g.reshape(-1))}
        chosen = np.array([last[int(granule)] for granule in g.reshape(-1)])
        flat = parts.reshape(g.size, -1)
        return (flat != flat[chosen]).any(axis=1).reshape(g.shape)

    def _need_writes_known(
        self, rows: Array, g: Array, pc: int, atomic: bool, data: Callable[[], tuple[Array, Array]] | None = None
    ) -> None:
        agent, epoch = self.write_agent[g], self.write_epoch[g]
        bad = epoch > self.clock[rows[:, None], agent]
        if not bad.any():
            return
        if atomic:
            bad &= ~self.write_atomic[g]
        bad &= agent != self.agents.warp(rows)[:, None]
        bad &= epoch > self._lane_known(rows[:, None], agent, self.write_lane[g])
        if data is not None and bad.any():
            new, old = data()
            landed = agent < self.agents.warps
            bad &= ~landed | (new != old).reshape(*g.shape, -1).any(axis=2)
        if bad.any():
            lane, k = (int(v) for v in np.argwhere(bad)[0])
            kind = "atomic access" if atomic else "access"
            self._race(kind, int(rows[lane]), pc, "write", int(agent[lane, k]), int(self.write_pc[g[lane, k]]))

    def _need_reads_known(self, rows: Array, g: Array, pc: int, kind: str = "write") -> None:
        columns = self.column_agent[g[:, 0] // self.per_cta % self.agents.ctas]
        bad = self.read_epoch[g] > self.clock[rows[:, None], columns][:, None, :]
        if not bad.any():
            return
        bad &= columns[:, None, :] != self.agents.warp(rows)[:, None, None]
        bad &= self.read_epoch[g] > self._lane_known(rows[:, None, None], columns[:, None, :], self.read_lane[g])
        if bad.any():
            lane, k, column = (int(v) for v in np.argwhere(bad)[0])
            self._race(
                kind, int(rows[lane]), pc, "read", int(columns[lane, column]), int(self.read_pc[g[lane, k], column])
            )

    def _lane_known(self, rows: Array, agent: Array, lane: Array) -> Array:
        """What the warps `rows` know of single lanes of other warps; zero for other agents and for lane -1 (several)."""
        single = (agent < self.agents.warps) & (lane >= 0)
        return np.where(single, self.lane_clock[rows, np.where(single, agent, 0), np.where(single, lane, 0)], 0)

    def _race(self, kind: str, row: int, pc: int, other_kind: str, other: int, other_pc: int) -> None:
        who, hint = self.agents.describe(other)
        mine = self.agents.describe(row % self.agents.warps)[0]
        raise SimulationError(
            f"shared-memory race: this {kind} by {mine} and the earlier {other_kind} by {who},"
            f" {describe(self.insts[other_pc])}: {hint}",
            self.insts[pc],
            self.warp_name(row),
        )

    # -- accesses by engines -------------------------------------------------------------------------------------

    def async_read(
        self, rows: Array, index: Array, agent: int, epoch: int, pc: int, what: str = "wgmma", lane: int = -1
    ) -> None:
        """An engine reads 16-byte rows at `index` (in one CTA) for the warps `rows`, until `epoch` is waited for.

        `lane`: the one that started it; -1: all of each warp.
        """
        g = self._granules(index, 16)
        loan = self.lend(rows, np.array([lane])) if self.private and lane >= 0 else []
        self._need_fenced(rows, g, pc, what, "reads", lane)
        self.take_back(loan)
        column = self._column(agent, int(g[0, 0]) // self.per_cta % self.agents.ctas)
        self.read_epoch[g, column] = epoch
        self.read_pc[g, column] = pc

    def finished(self, index: Array, agent: int, epoch: int) -> None:
        """An engine that read 16-byte rows at `index` until nobody knew when has done so: known by `epoch` of its agent."""
        g = self._granules(index, 16)
        column = self._column(agent, int(g[0, 0]) // self.per_cta % self.agents.ctas)
        self.read_epoch[g, column] = epoch

    def async_write(
        self, row: int, lane: int, g: Array, agent: int, pc: int, what: str, adds: bool = False, proxied: bool = True
    ) -> int:
        """A copy that a thread starts will write the granules `g`; returns the ticket to give to `landed`.

        `adds`: it only adds to them (reductions may meet each other). `proxied`: through the async proxy.
        """
        rows = np.full(len(g), row)
        loan = self.lend(np.array([row]), np.array([lane])) if self.private else []
        if proxied:
            self._need_fenced(np.array([row]), g, pc, what, "writes", lane, adds)
        else:
            self._need_writes_known(rows, g, pc, adds)
        self._need_reads_known(rows, g, pc, what.removeprefix("the "))
        self.take_back(loan)
        self.tickets += 1
        self.write_agent[g], self.write_lane[g], self.write_pc[g] = agent, 0, pc
        self.write_epoch[g] = IN_FLIGHT + self.tickets
        self.write_atomic[g] = adds
        return IN_FLIGHT + self.tickets

    def granules(self, index: Array, width: int = 16) -> Array:
        """Granules (n, k) of `width` bytes at each of the byte offsets `index`."""
        return self._granules(index, width)

    def landed(self, g: Array, ticket: int, epoch: int) -> None:
        """The copy with that ticket has written `g`: known to whoever knows `epoch` of its agent."""
        mine = g[self.write_epoch[g] == ticket]
        self.write_epoch[mine] = epoch

    def _need_fenced(self, rows: Array, g: Array, pc: int, what: str, verb: str, lane: int, adds: bool = False) -> None:
        agent, written = self.write_agent[g], self.write_epoch[g]
        by_thread = (agent < self.agents.warps) | (agent >= self.agents.warps + self.agents.engines)
        by_thread &= agent < self.agents.static
        thread = np.where(by_thread, agent, 0)
        writer = self.write_lane[g]
        for row in rows.tolist():
            known: Array = np.where(by_thread, self.async_clock[row][thread, writer], self.clock[row][agent])
            bad: Array = written > known
            if adds:
                bad &= ~self.write_atomic[g]
            if not bad.any():
                continue
            own = (agent == row % self.agents.warps) & (True if lane < 0 else writer == lane)
            bad &= ~own | (written > self.fenced[row][writer])
            if not bad.any():
                continue
            at, k = (int(v) for v in np.argwhere(bad)[0])
            self._unfenced(row, int(g[at, k]), pc, what, verb)

    def _unfenced(self, row: int, granule: int, pc: int, what: str, verb: str) -> None:
        """Say why an engine that warp `row` starts does not see what was written to a granule."""
        other, by = int(self.write_agent[granule]), int(self.write_lane[granule])
        written, other_pc = self.write_epoch[granule], int(self.write_pc[granule])
        known = self.clock[row, other]
        if other < self.agents.warps:
            known = max(known, self.lane_clock[row, other, by])
        if written > known:
            self._race(what.removeprefix("the "), row, pc, "write", other, other_pc)
        earlier = describe(self.insts[other_pc])
        if other == row % self.agents.warps and written <= self.fenced[row, by]:
            text = f"{earlier} wrote in lane {by} of the same warp: bar.warp.sync after the fence is missing"
        else:
            text = f"{earlier} wrote through the generic proxy: fence.proxy.async by the writing threads before the barrier is missing"
        raise SimulationError(f"{what} {verb} bytes that {text}", self.insts[pc], self.warp_name(row))
