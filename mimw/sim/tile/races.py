"""Races for shared memory: what each task knows to be over, and who touched each view last.

A task's clock says how far it knows every task, and every mbarrier, to have come. An arrival hands the clock to the barrier, a wait that
passes takes it from there; a copy that counts on a barrier is over for those who have seen that phase. An access that meets
another one, one of the two writing, is a race when its task does not know that the other is over: whatever the schedule was in this run.

Knows no op and no machine. The threads of one task count as one: their syncs are the compiler's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mimw.diagnostics import Loc, Note
from mimw.sim.errors import SimulationError

if TYPE_CHECKING:
    from mimw.sim.tile.shared_memory import Buffer

READ, WRITE = "read", "write"

Known = dict[object, int]


def join(into: Known, other: Known) -> None:
    """Know what both know."""
    for who, at in other.items():
        if into.get(who, 0) < at:
            into[who] = at


class Clock:
    """What one task knows; `name` is the task's in messages."""

    __slots__ = ("known", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: Known = {self: 1}

    def fork(self, name: str) -> Clock:
        """The clock of a task that starts now."""
        child = Clock(name)
        self.release(child.known)
        return child

    def release(self, into: Known) -> None:
        """Hand over what this task has done so far; what it does next is not part of it."""
        join(into, self.known)
        self.known[self] += 1

    def acquire(self, known: Known) -> None:
        """Learn what others have handed over."""
        join(self.known, known)


class Mark:
    """An access: by whom (a task, or the barrier that its end counts on), how far that one was, and where."""

    __slots__ = ("at", "loc", "name", "who")

    def __init__(self, who: object, at: int, name: str, loc: Loc) -> None:
        self.who = who
        self.at = at
        self.name = name
        self.loc = loc


class _Seen:
    """The last write of a view and the reads since, one a reader."""

    __slots__ = ("buffer", "reads", "write")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.write: Mark | None = None
        self.reads: dict[object, Mark] = {}


class History:
    """Who touched the views of one allocation."""

    __slots__ = ("_overlaps", "_seen")

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], _Seen] = {}
        self._overlaps: dict[tuple[Any, Any], bool] = {}

    def check(self, b: Buffer, kind: str, clock: Clock) -> None:
        """Raise when an access of `kind` by `clock`'s task races with one that was."""
        key = _key(b)
        known = clock.known
        for other, seen in self._seen.items():
            if not self._meet(key, b, other, seen.buffer):
                continue
            if seen.write is not None and known.get(seen.write.who, 0) < seen.write.at:
                raise _race(b, kind, WRITE, seen.write)
            if kind == READ:
                continue
            for mark in seen.reads.values():
                if known.get(mark.who, 0) < mark.at:
                    raise _race(b, kind, READ, mark)

    def record(self, b: Buffer, kind: str, mark: Mark) -> None:
        """An access that is over."""
        seen = self._seen.setdefault(_key(b), _Seen(b))
        if kind == WRITE:
            seen.write = mark
            seen.reads.clear()
        else:
            seen.reads[mark.who] = mark

    def _meet(self, a_key: tuple[Any, ...], a: Buffer, b_key: tuple[Any, ...], b: Buffer) -> bool:
        if a_key == b_key:
            return True
        found = self._overlaps.get((a_key, b_key))
        if found is None:
            found = self._overlaps[a_key, b_key] = a.overlaps(b)
        return found


def _key(b: Buffer) -> tuple[Any, ...]:
    data = b.data
    return data.__array_interface__["data"][0], data.shape, data.strides, data.itemsize


def _race(b: Buffer, kind: str, other: str, mark: Mark) -> SimulationError:
    did = {READ: "read", WRITE: "written"}
    text = f"{b} is {did[kind]} here and {did[other]} by {mark.name}, and nothing says which comes first"
    hint = "let the one that comes first arrive on a barrier behind its access, and the other wait for that phase in front of its own"
    return SimulationError(
        "race", text, notes=[Note(f"{mark.name} {'reads' if other == READ else 'writes'} it here", mark.loc)], hint=hint
    )
