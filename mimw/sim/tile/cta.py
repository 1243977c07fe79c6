"""What the tasks of a CTA have in common, and the CTAs of a cluster: shared memory, barriers, named barriers.

Allocations and barriers are known by the op that made them: what is "the same" in another CTA of the cluster is what that
CTA's run of the op has made. Knows no op.
"""

from __future__ import annotations

from mimw.diagnostics import Loc
from mimw.sim.errors import SimulationError
from mimw.sim.scheduler import Scheduler
from mimw.sim.tile.descriptor import Descriptor
from mimw.sim.tile.mbarrier import BarrierArray, ClusterBarrier, Mbarrier, NamedBarrier
from mimw.sim.tile.races import Known
from mimw.sim.tile.shared_memory import Allocation, Buffer, Use


class Cta:
    """One CTA: its place in the grid and its cluster, and its memory. `filled`: the last copy into it that counts on each barrier."""

    __slots__ = ("allocations", "barriers", "cluster", "filled", "maps", "name", "named", "pid", "rank")

    def __init__(self, pid: tuple[int, int, int], rank: int, cluster: Cluster) -> None:
        self.pid = pid
        self.name = f"CTA {pid}"
        self.rank = rank
        self.cluster = cluster
        self.allocations: dict[object, Allocation] = {}
        self.barriers: dict[object, BarrierArray] = {}
        self.named: dict[object, NamedBarrier] = {}
        self.maps: dict[tuple[int, int], Descriptor] = {}  # by room and slot
        self.filled: dict[Mbarrier, Use] = {}

    def leave(self) -> None:
        """All tasks of the cluster are done: raise when a copy into this CTA may outlive it, for all that any of them knows."""
        for barrier, use in self.filled.items():
            if self.cluster.known.get(use.mark.who, 0) >= use.mark.at:
                continue
            error = SimulationError(
                "unawaited-copy",
                f"{use.what} into {use.buffer} may still be under way when the kernel ends: nothing waits for this phase of {barrier}",
                use.loc,
                hint="wait for every copy that is started: as many trips of the consumer as of the producer",
                slot=str(use.buffer),
                barrier=str(barrier),
            )
            error.program, error.iteration, error.after = self.pid, use.mark.trips, use.mark.after
            raise error


class Cluster:
    """CTAs that run together and reach each other's shared memory. `order`: what tasks have handed over through global memory, by
    fences and atomics, in the whole grid. `known`: what the tasks that are done knew."""

    __slots__ = ("ctas", "known", "order", "scheduler", "sync")

    def __init__(self, scheduler: Scheduler, order: Known) -> None:
        self.scheduler = scheduler
        self.ctas: list[Cta] = []
        self.sync = ClusterBarrier()
        self.order = order
        self.known: Known = {}

    def peer(self, rank: int, loc: Loc) -> Cta:
        """The CTA with a rank."""
        if not 0 <= rank < len(self.ctas):
            raise SimulationError("cluster-rank", f"CTA rank {rank} in a cluster of {len(self.ctas)}", loc)
        return self.ctas[rank]

    def buffer_of(self, b: Buffer, rank: int, loc: Loc) -> Buffer:
        """The same view in another CTA; waits until that CTA has allocated it."""
        peer = self.peer(rank, loc)
        self.scheduler.block(Appears(peer, peer.allocations, b.alloc.key, str(b), loc))
        alloc = peer.allocations[b.alloc.key]
        return b if alloc is b.alloc else b.moved(alloc)

    def barrier_of(self, barrier: Mbarrier, rank: int, loc: Loc) -> Mbarrier:
        """The same barrier of another CTA; waits until that CTA has made it."""
        return self.barriers_of(barrier.array, rank, loc).items[barrier.index]

    def barriers_of(self, array: BarrierArray, rank: int, loc: Loc) -> BarrierArray:
        """The same array of barriers of another CTA; waits until that CTA has made it."""
        peer = self.peer(rank, loc)
        self.scheduler.block(Appears(peer, peer.barriers, array.key, array.name or "a barrier", loc))
        return peer.barriers[array.key]


class Appears:
    """The wait for another CTA's allocation or barriers to exist."""

    __slots__ = ("key", "loc", "peer", "table", "what")

    def __init__(
        self, peer: Cta, table: dict[object, Allocation] | dict[object, BarrierArray], key: object, what: str, loc: Loc
    ) -> None:
        self.peer = peer
        self.table = table
        self.key = key
        self.what = what
        self.loc = loc

    def ready(self) -> bool:
        """Whether it exists."""
        return self.key in self.table

    def describe(self) -> str:
        """For people."""
        return f"{self.what} of CTA {self.peer.rank} of the cluster, which has not allocated it"

    def hint(self) -> str | None:
        """For people."""
        return "every CTA of a cluster must allocate the same buffers and barriers"
