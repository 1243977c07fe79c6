"""Races for global memory between CTAs and tasks: plain accesses of one byte, one of them a write, that nothing orders.

Kept only while a launch is checked, since it remembers two accesses of every byte of the caller's arrays: the last write and the last read. What
orders accesses is what orders those of shared memory (clocks: barriers, named barriers, the cluster's), and atomics and fences, which hand
on all that was known before. Atomics themselves, and volatile accesses, race with nobody. A finding is a warning: two CTAs may write the same
value on purpose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.diagnostics import Loc, Note
from mimw.sim.errors import SimulationError
from mimw.sim.tile.address_space import AddressSpace, Region
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.races import READ, WRITE, Clock, Mark, other_side

_DONE = {READ: "read", WRITE: "written"}


class _Shadow:
    """Of one region: the numbers of the marks that wrote and read each byte last; 0 for none."""

    __slots__ = ("read", "written")

    def __init__(self, size: int) -> None:
        self.written: Array = np.zeros(size, np.int32)
        self.read: Array = np.zeros(size, np.int32)


class GlobalRaces:
    """The accesses of one launch."""

    __slots__ = ("marks", "shadows")

    def __init__(self) -> None:
        self.marks: list[Mark | None] = [None]
        self.shadows: dict[Region, _Shadow] = {}

    def elements(
        self, memory: AddressSpace, clock: Clock, loc: Loc, kind: str, ptr: Array, mask: Array | None, size: int
    ) -> SimulationError | None:
        """A task reads or writes elements of `size` bytes through addresses; the finding, if any. Addresses are good."""
        at = ptr.reshape(-1) if mask is None else ptr.reshape(-1)[np.broadcast_to(mask, ptr.shape).reshape(-1)]
        found: SimulationError | None = None
        slots: Array = np.searchsorted(memory.bases, at, "right") - 1
        for slot in np.unique(slots):
            region = memory.regions[int(slot)]
            first: Array = at[slots == slot] - region.base
            where: Array = first if size == 1 else (first[:, None] + np.arange(size)).reshape(-1)
            found = self._access(region, where, clock, loc, kind) or found
        return found

    def block(self, memory: AddressSpace, clock: Clock, loc: Loc, kind: str, view: Array) -> SimulationError | None:
        """The same for a block that a copying engine reads or writes, a view of one of the arrays."""
        pointer = int(view.__array_interface__["data"][0])
        for low, high, region in memory.hosts:
            if low <= pointer < high and view.size:
                offsets: Array = np.arange(view.itemsize)
                for n, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
                    steps: Array = np.arange(0, int(n)) * int(stride)
                    offsets = np.asarray(np.add.outer(steps, offsets), np.int64).reshape(-1)
                return self._access(region, offsets + (pointer - low), clock, loc, kind)
        return None

    def _access(self, region: Region, where: Array, clock: Clock, loc: Loc, kind: str) -> SimulationError | None:
        shadow = self.shadows.get(region)
        if shadow is None:
            shadow = self.shadows[region] = _Shadow(len(region.bytes))
        found = self._unordered(shadow.written[where], clock)
        text = _race(region, kind, WRITE, found) if found is not None else None
        if kind == WRITE and text is None:
            found = self._unordered(shadow.read[where], clock)
            text = _race(region, kind, READ, found) if found is not None else None
        (shadow.written if kind == WRITE else shadow.read)[where] = self._mark(clock, loc)
        if text is not None:
            text.loc = loc
        return text

    def _mark(self, clock: Clock, loc: Loc) -> int:
        last = self.marks[-1]
        new = Mark(clock, clock.name, loc)
        same = last is not None and (last.who, last.at, last.trips) == (clock, new.at, new.trips) and last.loc is loc
        if not same:
            self.marks.append(new)
        return len(self.marks) - 1

    def _unordered(self, numbers: Array, clock: Clock) -> Mark | None:
        """One of the marks that the task does not know to be over."""
        present = np.zeros(len(self.marks), np.bool_)
        present[numbers] = True
        for n in np.nonzero(present)[0].tolist():
            mark = self.marks[n]
            if mark is not None and not mark.known_to(clock):
                return mark
        return None


def _race(region: Region, kind: str, other: str, mark: Mark) -> SimulationError:
    names = " and ".join(region.names)
    text = f"{names} is {_DONE[kind]} here and {_DONE[other]} by {mark.name} in the same place, and nothing says which comes first"
    note = Note(f"{mark.name} {'reads' if other == READ else 'writes'} it here{mark.when()}", mark.loc)
    hint = "give each its own place, use an atomic, or hand over by a barrier (between CTAs: an atomic on a flag behind the access)"
    facts: dict[str, Any] = {"array": names, "other": other_side(mark)}
    return SimulationError("global-race", text, notes=[note], hint=hint, severity="warning", **facts)
