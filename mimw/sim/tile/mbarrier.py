"""Barriers as state machines: mbarriers (arrivals, bytes, phases), named barriers, the cluster's barrier; and waiting for them.

An mbarrier's phase is complete when all arrivals have come and all announced bytes have landed; `phase` counts complete
phases, and ``wait(p)`` goes on once the phase of parity p is over: a fresh barrier lets ``wait(1)`` pass. The words are
the ISA's ("mbarrier object": pending count, tx-count within 2^20 - 1). Knows no op.
"""

from __future__ import annotations

from typing import Any

from mimw.diagnostics import Loc
from mimw.sim.errors import SimulationError
from mimw.sim.tile.races import Clock, Known, join

_LIMIT = (1 << 20) - 1  # of arrivals and of bytes under way


class BarrierArray:
    """The mbarriers that one op made; `per_thread` ones are arrived on by every thread of a task. `key` is alike in all CTAs."""

    __slots__ = ("items", "key", "name", "per_thread", "rank")

    def __init__(self, key: object, name: str, count: int, arrive_count: int, per_thread: bool, rank: int) -> None:
        self.key = key
        self.name = name
        self.per_thread = per_thread
        self.rank = rank
        self.items = [Mbarrier(self, i, arrive_count) for i in range(max(1, count))]

    def at(self, index: int) -> Mbarrier:
        """One barrier."""
        if not 0 <= index < len(self.items):
            text = f"barrier {index} of {self.name or 'an array'}, which has {len(self.items)}"
            raise SimulationError("barrier-out-of-range", text)
        return self.items[index]

    def end(self, loc: Loc) -> None:
        """The op that made them runs once more: nothing may hang on them any more."""
        for b in self.items:
            if b.arrivals or b.expected != b.landed or b.copies or b.waiters:
                text = f"{b} is made anew while it is in use: {b.state()}"
                hint = "make barriers once, outside of loops, and let their phases go on counting"
                raise SimulationError("barrier-live", text, loc, hint=hint, barrier=str(b), phase=b.phase)


class Mbarrier:
    """One mbarrier of a CTA. `arrivals` and `expected` and `landed` are those of the phase under way, `handed` what those who arrived know.

    `released` is what they knew in all complete phases, and that these are complete. `copies` under way will count on it, `waiters` are
    tasks that wait.
    """

    __slots__ = (
        "arrivals", "array", "copies", "count", "expected", "handed", "index", "landed", "phase", "released", "waiters",
    )  # fmt: skip

    def __init__(self, array: BarrierArray, index: int, count: int) -> None:
        if not 1 <= count <= _LIMIT:
            raise SimulationError("barrier-count", f"a barrier of {count} arrivals: 1 to {_LIMIT} are legal")
        self.array = array
        self.index = index
        self.count = count
        self.arrivals = 0
        self.expected = 0
        self.landed = 0
        self.phase = 0
        self.copies = 0
        self.waiters = 0
        self.handed: Known = {}
        self.released: Known = {}

    def __str__(self) -> str:
        return f"{self.array.name or 'barrier'}[{self.index}]"

    def state(self) -> str:
        """Phases, arrivals and bytes, for people."""
        size = f", {self.landed} of {self.expected} bytes" if self.expected or self.landed else ""
        return f"{self.phase} phases complete, in the one under way {self.arrivals} of {self.count} arrivals{size}"

    def arrive(self, count: int, clock: Clock) -> None:
        """Arrivals of a task in the phase under way."""
        if not 1 <= count <= _LIMIT:
            raise SimulationError("barrier-count", f"{count} arrivals at once on {self}")
        if self.arrivals + count > self.count:
            text = f"{self} takes {self.count} arrivals a phase, this one makes {self.arrivals + count} in phase {self.phase}"
            hint = "one arrival too many, or arrive_count is too small"
            raise SimulationError("barrier-overrun", text, hint=hint, barrier=str(self), phase=self.phase)
        self.arrivals += count
        clock.release(self.handed)
        self._settle()

    def expect(self, count: int) -> None:
        """Announce bytes to the phase under way."""
        if count < 0 or self.expected - self.landed + count > _LIMIT:
            text = f"{self} has more than {_LIMIT} bytes under way"
            raise SimulationError("barrier-bytes", text, barrier=str(self), phase=self.phase)
        self.expected += count

    def land(self, count: int) -> None:
        """Bytes of a copy have landed."""
        self.landed += count
        if self.landed - self.expected > _LIMIT:
            text = f"{self.landed} bytes landed on {self}, {self.expected} were expected"
            raise SimulationError("barrier-bytes", text, barrier=str(self), phase=self.phase)
        self._settle()

    def _settle(self) -> None:
        if self.arrivals == self.count and self.expected == self.landed:
            self.phase += 1
            self.arrivals = self.expected = self.landed = 0
            join(self.released, self.handed)
            self.released[self] = self.phase
            self.handed = {}

    def passed(self, phase: int) -> bool:
        """Whether the phase of this parity is complete."""
        return (self.phase ^ phase) & 1 == 1


class PhaseWait:
    """Waiting for a phase of an mbarrier."""

    __slots__ = ("barrier", "loc", "phase")

    def __init__(self, barrier: Mbarrier, phase: int, loc: Loc) -> None:
        self.barrier = barrier
        self.phase = phase
        self.loc = loc

    def ready(self) -> bool:
        """Whether the phase is complete."""
        return self.barrier.passed(self.phase)

    def describe(self) -> str:
        """For people: barrier, phase, arrivals and bytes."""
        b = self.barrier
        where = "" if b.array.rank == 0 else f" of CTA {b.array.rank}"
        return f"phase {self.phase} (parity {self.phase & 1}) of {b}{where}: {b.state()}"

    def facts(self) -> dict[str, Any]:
        """The numbers, for tools."""
        b = self.barrier
        return {
            "barrier": str(b),
            "cta": b.array.rank,
            "parity": self.phase & 1,
            "phases_complete": b.phase,
            "arrivals": b.arrivals,
            "arrive_count": b.count,
            "bytes": b.landed,
            "expected_bytes": b.expected,
        }

    def hint(self) -> str | None:
        """What the numbers say."""
        b = self.barrier
        if b.arrivals == b.count and b.expected != b.landed:
            return f"{b} was told to expect {b.expected} bytes, its copies bring {b.landed}"
        if b.arrivals < b.count and b.landed > b.expected:
            return (
                f"{b.landed} bytes landed on {b}, but only {b.expected} were expected: barrier_expect_bytes is missing"
            )
        if b.phase == 0 and not b.arrivals and not b.landed and self.phase & 1 == 0:
            return f"nothing has ever arrived on {b}: one that waits before the first arrival (a producer for an empty slot) waits for phase 1"
        if 0 < b.arrivals < b.count:
            return f"{b} gets {b.arrivals} of its {b.count} arrivals: arrive_count does not fit the tasks that arrive"
        return None


class NamedBarrier:
    """A hardware barrier of a CTA: `arrived` threads of `count` in the generation under way."""

    __slots__ = ("arrived", "count", "generation", "handed", "name", "released")

    count: int

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.arrived = 0
        self.generation = 0
        self.handed: Known = {}
        self.released: Known = {}

    def arrive(self, threads: int, count: int, clock: Clock) -> None:
        """`threads` threads of a task come to a barrier of `count`."""
        if count % 32 or count <= 0:
            raise SimulationError("named-barrier-count", f"{count} threads at {self.name}: a multiple of 32 is needed")
        if self.arrived and count != self.count:
            text = f"{self.name} is used with {count} threads, and with {self.count} by those that wait at it"
            raise SimulationError("named-barrier-count", text)
        self.count = count
        if self.arrived + threads > count:
            text = f"{self.arrived + threads} threads come to {self.name}, which takes {count}"
            raise SimulationError("named-barrier-count", text)
        self.arrived += threads
        clock.release(self.handed)
        if self.arrived == count:
            join(self.released, self.handed)
            self.handed = {}
            self.arrived = 0
            self.generation += 1


class NamedWait:
    """Waiting for the generation under way of a named barrier."""

    __slots__ = ("barrier", "generation", "loc")

    def __init__(self, barrier: NamedBarrier, generation: int, loc: Loc) -> None:
        self.barrier = barrier
        self.generation = generation
        self.loc = loc

    def ready(self) -> bool:
        """Whether all threads have come."""
        return self.barrier.generation > self.generation

    def describe(self) -> str:
        """For people."""
        return f"{self.barrier.name}: {self.barrier.arrived} of {self.barrier.count} threads"

    def hint(self) -> str | None:
        """What the numbers say."""
        b = self.barrier
        return f"{b.name} gets {b.arrived} of its {b.count} threads: the count is that of all warps that wait and arrive, times 32"


class ClusterBarrier:
    """All tasks of all CTAs meet: of `members` living ones `arrived` have come."""

    __slots__ = ("arrived", "generation", "members", "released")

    def __init__(self) -> None:
        self.members = 0
        self.arrived = 0
        self.generation = 0
        self.released: Known = {}

    def join(self) -> None:
        """A task begins."""
        self.members += 1

    def leave(self) -> None:
        """A task is done: it counts as arrived from now on."""
        self.members -= 1
        self._settle()

    def arrive(self, clock: Clock) -> int:
        """A task comes; the generation that it waits for to pass."""
        at = self.generation
        clock.release(self.released)
        self.arrived += 1
        self._settle()
        return at

    def _settle(self) -> None:
        if self.members and self.arrived == self.members:
            self.arrived = 0
            self.generation += 1


class ClusterWait:
    """Waiting for everybody at the cluster's barrier."""

    __slots__ = ("barrier", "generation", "loc")

    def __init__(self, barrier: ClusterBarrier, generation: int, loc: Loc) -> None:
        self.barrier = barrier
        self.generation = generation
        self.loc = loc

    def ready(self) -> bool:
        """Whether all have come."""
        return self.barrier.generation > self.generation

    def describe(self) -> str:
        """For people."""
        return f"the cluster's barrier: {self.barrier.arrived} of {self.barrier.members} tasks"

    def hint(self) -> str | None:
        """For people."""
        return "every task of every CTA that still runs must come to a cluster barrier"
