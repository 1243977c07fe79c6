"""Register allocation: every value of an SSA function gets physical registers, or a place in memory.

Owns the budgets, the order in which groups (`groups`) are placed, and the choice of what is spilled (`spill` and `accumulators` rewrite). The widest
groups are placed first, each at the lowest place where nothing else is live at once; live ranges have holes, so the narrow ones fill
them. Where a group finds no place, the cheapest of what stands in its way is spilled (or the group itself), and all is done again.

Scalars are placed before vectors, because spilled scalars live in lanes of vector registers. Vector values go to accumulation registers
where the machine has some left beyond the vector registers, then to scratch memory.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.accumulators import ToAccumulators
from mimw.codegen.amdgcn.allocation.frame import Frame
from mimw.codegen.amdgcn.allocation.groups import Group, Groups
from mimw.codegen.amdgcn.allocation.liveness import Liveness
from mimw.codegen.amdgcn.allocation.rewriter import touches
from mimw.codegen.amdgcn.allocation.spill import ToMemory
from mimw.codegen.amdgcn.registers import SCALARS
from mimw.codegen.amdgcn.ssa.prepare import entries_first
from mimw.codegen.machine import Function, Inst, Reg
from mimw.diagnostics import InternalError

ROUNDS = 60
"""Spilling rounds before we give up: each leaves only ranges that are shorter, so that a few are always enough."""

INFINITE = float("inf")


class Budget:
    """How many registers a wave may use: scalar, vector and accumulation ones."""

    __slots__ = ("a", "s", "v")

    def __init__(self, s: int, v: int, a: int) -> None:
        self.s = s
        self.v = v
        self.a = a

    def of(self, file: str) -> int:
        """The size of a file."""
        return self.s if file == "s" else self.v if file == "v" else self.a


def budget(waves: int, occupancy: int = 1) -> Budget:
    """What a wave may use when `occupancy` workgroups of `waves` waves share a compute unit.

    A unit has four SIMDs with 512 registers a lane each, which their waves share in steps of 8; a wave names at most 256 vector and 256
    accumulation registers (CDNA3 ISA, section 3.6).
    """
    resident = max(1, -(-waves * occupancy // 4))
    total = min(512, 512 // resident // 8 * 8)
    return Budget(SCALARS, min(256, total), max(0, total - 256))


class Allocation:
    """The outcome: `fn` (with spill code), its liveness and groups with places, and the frame."""

    __slots__ = ("budget", "fn", "frame", "groups", "live", "reserved", "used")

    def __init__(self, fn: Function, live: Liveness, groups: Groups, frame: Frame, limits: Budget) -> None:
        self.fn = fn
        self.live = live
        self.groups = groups
        self.frame = frame
        self.budget = limits
        self.used: dict[str, list[int]] = {}
        self.reserved: list[int] = []


def allocate(fn: Function, limits: Budget) -> Allocation:
    """Give every value of `fn` a place. Changes `fn` when it spills."""
    frame = Frame()
    temps: set[Reg] = set()
    for _ in range(ROUNDS):
        live = Liveness(fn)
        groups = Groups(live)
        _costs(live, groups, temps)
        found = Allocation(fn, live, groups, frame, limits)
        for file in "sva":
            size = limits.of(file)
            found.used[file] = [0] * size
            if file == "v":
                _reserve(found, frame.lane_registers + _spares(groups))
            victims = _Filler(found.used[file], [g for g in groups.all if g.file == file]).run()
            if victims:
                chosen = {id(group): group for group in victims}
                if file == "v" and limits.a:
                    ToAccumulators(live, groups, chosen, temps).run()
                else:
                    ToMemory(live, groups, chosen, frame, temps).run()
                entries_first(fn)
                break
        else:
            return found
    raise InternalError(f"no registers for {fn.name} after {ROUNDS} rounds of spilling")


def _spares(groups: Groups) -> int:
    """One vector register to copy accumulation registers through, where there are such."""
    return 1 if any(group.file == "a" for group in groups.all) else 0


def _reserve(found: Allocation, count: int) -> None:
    """Keep vector registers free of values, behind the one that holds the thread's index when the wave starts."""
    busy = found.used["v"]
    if count >= len(busy):
        raise InternalError(f"{found.fn.name} spills more scalars than {len(busy)} vector registers hold")
    found.reserved = list(range(1, 1 + count))
    for unit in found.reserved:
        busy[unit] = -1


def _costs(live: Liveness, groups: Groups, temps: set[Reg]) -> None:
    """What it would cost to spill each group: its reads and writes, weighted by loop depth, for each point that becomes free.

    Groups that hold nothing but temporaries of spilling may not be spilled again.
    """
    for block in live.blocks:
        weight = 8.0 ** live.depth[id(block)]
        for inst in block.insts:
            if isinstance(inst, Inst):
                for reg in touches(live, inst):
                    _charge(live, groups, reg, weight)
        for reg in live.end_reads(block):
            _charge(live, groups, reg, weight)
    for group in groups.all:
        group.cost /= sum(points.bit_count() for points in group.lives.values()) or 1
        if all(live.owner[atom] in temps for atoms in group.cells.values() for atom in atoms):
            group.cost = INFINITE


def _charge(live: Liveness, groups: Groups, reg: Reg, weight: float) -> None:
    atoms = live.of(reg)
    groups.group_of[atoms[0]].cost += weight * len(atoms)


class _Filler:
    """Places the groups of one file; what finds no room ends in `victims`."""

    def __init__(self, busy: list[int], groups: list[Group]) -> None:
        self.busy = busy
        self.groups = groups
        self.placed: list[list[tuple[int, int, int, Group]]] = [[] for _ in busy]
        """For each register those who stand there: (first point, point behind the last, all points as bits, group)."""
        self.victims: list[Group] = []

    def run(self) -> list[Group]:
        """Place all groups; returns those to be spilled."""
        for group in sorted(self.groups, key=_rank):
            self._place(group)
        return self.victims

    def _place(self, group: Group) -> None:
        places = self._places(group)
        if group.wanted is not None and group.wanted in places and self._fits(group, group.wanted):
            self._put(group, group.wanted)
            return
        place = self._first_fit(group, places)
        if place is None:
            self._make_room(group)
        else:
            self._put(group, place)

    def _first_fit(self, group: Group, places: range) -> int | None:
        """The lowest place where nothing is in the way."""
        busy = self.busy
        if len(group.lives) == 1:
            ((offset, live),) = group.lives.items()
            for place in places:
                if not busy[place + offset] & live:
                    return place
            return None
        cells = list(group.lives.items())
        for place in places:
            for offset, live in cells:
                if busy[place + offset] & live:
                    break
            else:
                return place
        return None

    def _places(self, group: Group) -> range:
        """Where a group may stand, whether or not there is something."""
        first = -group.low
        first += (group.residue - first) % group.modulus
        return range(first, len(self.busy) - group.high, group.modulus)

    def _fits(self, group: Group, place: int) -> bool:
        busy = self.busy
        return all(not busy[place + offset] & live for offset, live in group.lives.items())

    def _put(self, group: Group, place: int) -> None:
        group.place = place
        for offset, live in group.lives.items():
            self.busy[place + offset] |= live
            self.placed[place + offset].append((*_span(live), live, group))

    def _make_room(self, group: Group) -> None:
        """Spill the cheapest set of groups that stand in one place, or this one where that is cheaper."""
        best, best_cost, best_place = None, group.cost, 0
        cells = [(offset, *_span(live), live) for offset, live in group.lives.items()]
        for place in self._places(group):
            found = self._in_the_way(cells, place, best_cost)
            if found is not None:
                (best, best_cost), best_place = found, place
        if best is None:
            if group.cost == INFINITE:
                raise InternalError(f"{group.width} registers for one instruction find no place among {len(self.busy)}")
            self.victims.append(group)
            return
        for other in best:
            self._take(other)
        self._put(group, best_place)

    def _in_the_way(
        self, cells: list[tuple[int, int, int, int]], place: int, limit: float
    ) -> tuple[list[Group], float] | None:
        """The groups that are live at once with one of these `cells` (offset, first point, point behind the last, all points) if that stands at
        `place`, and what they cost; None where one is no group, or the costs come to `limit`."""
        found: dict[int, Group] = {}
        cost = 0.0
        for offset, first, behind, live in cells:
            if self.busy[place + offset] < 0:
                return None
            for start, end, points, other in self.placed[place + offset]:
                # Points are tens of thousands of bits in large kernels: most others end before, or start behind.
                if start < behind and first < end and id(other) not in found and points & live:
                    found[id(other)] = other
                    cost += other.cost
                    if cost >= limit:
                        return None
        return list(found.values()), cost

    def _take(self, group: Group) -> None:
        assert group.place is not None
        for offset in group.lives:
            unit = group.place + offset
            self.placed[unit] = [there for there in self.placed[unit] if there[3] is not group]
            self.busy[unit] = 0
            for _, _, points, _ in self.placed[unit]:
                self.busy[unit] |= points
        group.place = None
        self.victims.append(group)


def _span(live: int) -> tuple[int, int]:
    """The first of the points that are set, and the one behind the last."""
    return (live & -live).bit_length() - 1, live.bit_length()


def _rank(group: Group) -> tuple[int, int, int]:
    """What may not be spilled comes first, then what has a place already, then the widest; each by start."""
    start = min((live & -live).bit_length() for live in group.lives.values())
    first = 0 if group.cost == INFINITE else 1 if group.wanted is not None else 2
    return (first, -group.width if group.width > 1 else 0, start)
