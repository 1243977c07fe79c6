"""Races for shared memory: what each task knows to be over, and who touched each view last.

A task's clock says how far it knows every task, and every mbarrier, to have come. An arrival hands the clock to the barrier, a wait that
passes takes it from there; a copy that counts on a barrier is over for those who have seen that phase. An access that meets
another one, one of the two writing, is a race when its task does not know that the other is over: whatever the schedule was in this run.

Knows no op and no machine. The threads of one task count as one: their syncs are the compiler's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mimw.diagnostics import Loc, Note
from mimw.sim.errors import Phase, SimulationError, Trips, after_phase, in_iteration

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
    """What one task knows; `name` is the task's in messages, `trips` where it is in its loops, `after` the phase that it has waited
    for last. One that does not `watch` finds no race: the task runs as the hardware would run it. `unfenced`: its plain writes that no proxy
    fence has followed yet; None where fences are not watched (the compiler puts them, behind what the simulator usually runs)."""

    __slots__ = ("after", "known", "name", "trips", "unfenced", "watch")

    def __init__(self, name: str, watch: bool = True, fences: bool = False) -> None:
        self.name = name
        self.watch = watch
        self.known: Known = {self: 1}
        self.trips: list[tuple[str, int]] = []
        self.after: Phase | None = None
        self.unfenced: list[Mark] | None = [] if fences else None

    def fork(self, name: str) -> Clock:
        """The clock of a task that starts now."""
        child = Clock(name, self.watch, self.unfenced is not None)
        child.trips = list(self.trips)
        self.release(child.known)
        return child

    def release(self, into: Known) -> None:
        """Hand over what this task has done so far; what it does next is not part of it."""
        join(into, self.known)
        self.known[self] += 1

    def fence(self) -> None:
        """A fence between the generic proxy and the asynchronous one: what this task wrote so far may be read by engines, by those
        who know of the fence."""
        for mark in self.unfenced or ():
            mark.fence = self.known[self]
        if self.unfenced is not None:
            self.unfenced = []

    def acquire(self, known: Known) -> None:
        """Learn what others have handed over."""
        join(self.known, known)


class Mark:
    """An access: by whom (a task, or the barrier that its end counts on), how far that one was, and where: `trips` and `after` as in
    the `clock` of the task, when it began. `fence`: of a plain write, how far the task was when it fenced it (0: not yet); else None."""

    __slots__ = ("after", "at", "fence", "loc", "name", "trips", "who")

    def __init__(self, clock: Clock, name: str, loc: Loc) -> None:
        self.who: object = clock
        self.at = clock.known[clock]
        self.name = name
        self.loc = loc
        self.trips: Trips = tuple(clock.trips)
        self.after = clock.after
        self.fence: int | None = None

    def plain(self, clock: Clock) -> Mark:
        """The mark, as one of a write through the generic proxy by `clock`'s task."""
        if clock.unfenced is not None:
            self.fence = 0
            clock.unfenced.append(self)
        return self

    def fenced_for(self, clock: Clock) -> bool:
        """Whether a task that knows the write to be over may have an engine touch what was written."""
        if self.fence is None:
            return True
        return self.fence > 0 and clock.known.get(self.who, 0) >= self.fence

    def known_to(self, clock: Clock) -> bool:
        """Whether a task knows that the access is over."""
        return clock.known.get(self.who, 0) >= self.at

    def when(self) -> str:
        """Loops and phase, for the end of a note."""
        return in_iteration(self.trips, ", ") + after_phase(self.after, ", ")


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
        for other, seen in self._seen.items():
            if not self._meet(key, b, other, seen.buffer):
                continue
            if seen.write is not None and not seen.write.known_to(clock):
                raise _race(b, kind, WRITE, seen.write)
            if kind == READ:
                continue
            for mark in seen.reads.values():
                if not mark.known_to(clock):
                    raise _race(b, kind, READ, mark)

    def check_fence(self, b: Buffer, what: str, clock: Clock) -> None:
        """Raise when an engine is to touch what was written through the generic proxy, with no fence behind the write."""
        key = _key(b)
        for other, seen in self._seen.items():
            mark = seen.write
            if mark is not None and not mark.fenced_for(clock) and self._meet(key, b, other, seen.buffer):
                text = f"{what} touches {b}, which {mark.name} has written with no fence_async_shared behind it"
                note = Note(f"{mark.name} writes it here{mark.when()}", mark.loc)
                raise SimulationError("missing-fence", text, notes=[note], slot=str(b), other=other_side(mark))

    def record(self, b: Buffer, kind: str, mark: Mark) -> None:
        """An access that is over."""
        seen = self._seen.setdefault(_key(b), _Seen(b))
        if kind == WRITE:
            seen.write = mark
            seen.reads.clear()
        else:
            seen.reads[mark.who] = mark

    def writers(self, b: Buffer) -> list[Note]:
        """Where another buffer was last written over a view."""
        key = _key(b)
        marks = [
            (seen.buffer, seen.write)
            for other, seen in self._seen.items()
            if seen.write is not None and seen.buffer.tag != b.tag and self._meet(key, b, other, seen.buffer)
        ]
        return [Note(f"{buffer} is written here by {mark.name}", mark.loc) for buffer, mark in marks[-2:]]

    def _meet(self, a_key: tuple[Any, ...], a: Buffer, b_key: tuple[Any, ...], b: Buffer) -> bool:
        if a_key == b_key:
            return True
        found = self._overlaps.get((a_key, b_key))
        if found is None:
            found = self._overlaps[a_key, b_key] = a.overlaps(b)
        return found


def _key(b: Buffer) -> tuple[Any, ...]:
    data = b.data
    return data.__array_interface__["data"][0], data.shape, data.strides, data.itemsize, b.tag


def _race(b: Buffer, kind: str, other: str, mark: Mark) -> SimulationError:
    did = {READ: "read", WRITE: "written"}
    text = f"{b} is {did[kind]} here and {did[other]} by {mark.name}, and nothing says which comes first"
    hint = "let the one that comes first arrive on a barrier behind its access, and the other wait for that phase in front of its own"
    note = Note(f"{mark.name} {'reads' if other == READ else 'writes'} it here{mark.when()}", mark.loc)
    return SimulationError("race", text, notes=[note], hint=hint, slot=str(b), other=other_side(mark))


def other_side(mark: Mark) -> dict[str, Any]:
    """A mark as a fact of an error."""
    after = {"barrier": mark.after[0], "phase": mark.after[1]} if mark.after is not None else None
    return {"who": mark.name, "iteration": [{"name": n, "value": v} for n, v in mark.trips], "after": after}
