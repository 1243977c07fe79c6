"""Shared memory: allocations, views of them, and who still uses them asynchronously.

An allocation knows of each byte whether it was ever written, and by which of the buffers that share it; and it keeps the *uses* under
way: copies that still write a view, engines (tensor core, TMA) that still read one. A use ends when the program has waited for it, not when the engine
happens to be done: so that touching a view too early is an error under every schedule that gets there. Reading what was
never written gives poison, and a warning by whoever reads; what another buffer was written over is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mimw.diagnostics import Loc, Note
from mimw.ir.overlap import Place
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import DType
from mimw.sim.errors import SimulationError
from mimw.sim.tile.mbarrier import Mbarrier
from mimw.sim.tile.numerics import Array, numpy_dtype, poison
from mimw.sim.tile.races import READ, WRITE, Clock, History, Mark, other_side


class Allocation:
    """Bytes of one CTA's shared memory: `raw`, `state` (0: never written, else the `tag` of the buffer that was), `uses` under way and the
    `history` of those that are over, `names` of the buffers by tag (empty: there is only one).
    `key` is what made it, alike in all CTAs."""

    __slots__ = ("history", "key", "names", "raw", "state", "uses")

    def __init__(self, shape: tuple[int, ...], d: DType, key: object) -> None:
        self.names: dict[int, str] = {}
        self.raw: Array = np.ascontiguousarray(poison(shape, d)).reshape(-1).view(np.uint8)
        self.state: Array = np.zeros(len(self.raw), np.uint8)
        self.uses: list[Use] = []
        self.history = History()
        self.key = key


class Buffer:
    """A view of an allocation: `data` is an array over its bytes. `tag` says which of the buffers that share the allocation it belongs to,
    `place` where the slots of a ring lie when not in order."""

    __slots__ = ("alloc", "data", "name", "place", "tag")

    def __init__(self, data: Array, alloc: Allocation, name: str, tag: int = 1, place: Place | None = None) -> None:
        self.data = data
        self.alloc = alloc
        self.name = name
        self.tag = tag
        self.place = place

    @staticmethod
    def new(shape: tuple[int, ...], d: DType, name: str, key: object = None) -> Buffer:
        """A fresh allocation full of poison."""
        alloc = Allocation(shape, d, key)
        return Buffer(alloc.raw.view(numpy_dtype(d)).reshape(shape), alloc, name)

    def state(self) -> Array:
        """Which bytes were written: the view's shape, and the bytes of an element as last dimension."""
        return self._over(self.alloc.state, np.dtype(np.uint8), True)

    def _over(self, raw: Array, dtype: np.dtype[Any], split: bool) -> Array:
        data = self.data
        offset = data.__array_interface__["data"][0] - self.alloc.raw.__array_interface__["data"][0]
        if split:
            return np.ndarray((*data.shape, data.itemsize), dtype, raw, offset, (*data.strides, 1))
        return np.ndarray(data.shape, dtype, raw, offset, data.strides)

    def moved(self, alloc: Allocation) -> Buffer:
        """The same view of another CTA's allocation."""
        return Buffer(self._over(alloc.raw, self.data.dtype, False), alloc, self.name, self.tag, self.place)

    def slot(self, index: int) -> Buffer:
        """The view at `index` of the first dimension."""
        count = self.place.slots if self.place is not None else len(self.data)
        if not 0 <= index < count:
            raise SimulationError("slot-out-of-range", f"slot {index} of {self}, which has {count}")
        name = f"{self.name}[{index}]" if self.name else ""
        at = self.place.turn(index) if self.place is not None else index
        return Buffer(self.data[at, ...], self.alloc, name, self.tag)

    def transposed(self, order: Sequence[int]) -> Buffer:
        """The view with permuted dimensions."""
        return Buffer(self.data.transpose(order), self.alloc, self.name, self.tag)

    def box(self, offsets: Sequence[int], shape: Sequence[int]) -> Buffer:
        """`shape` elements from `offsets`."""
        for at, n, size in zip(offsets, shape, self.data.shape, strict=True):
            if at < 0 or at + n > size:
                have = list(self.data.shape)
                raise SimulationError(
                    "slice-out-of-range", f"{list(shape)} elements from {list(offsets)} of {self}, which has {have}"
                )
        part = tuple(slice(at, at + n) for at, n in zip(offsets, shape, strict=True))
        return Buffer(self.data[(*part, ...)], self.alloc, self.name, self.tag)

    def reinterpreted(self, shape: tuple[int, ...], d: DType, layout: SharedLayout | None, start: int) -> Buffer:
        """The view of the same bytes (row-major) as `shape` elements of `d`, `start` of them in; `layout` has plain strides."""
        if not self.data.flags.c_contiguous:
            raise SimulationError(
                "reinterpret", f"{self} is not contiguous: it cannot be looked at as {list(shape)} {d}"
            )
        flat = self.data.reshape(-1).view(numpy_dtype(d))[start:]
        if layout is None:
            return Buffer(flat[: int(np.prod(shape))].reshape(shape), self.alloc, self.name, self.tag)
        steps = [b[0] if b else s for b, s in zip(layout.bases, layout.strides, strict=True)]
        strides = [n * flat.itemsize for n in steps]
        # Not as_strided: it does not know float8_e5m2.
        strided: Array = np.ndarray(shape, flat.dtype, buffer=flat.view(np.uint8), strides=strides)
        return Buffer(strided, self.alloc, self.name, self.tag)

    def overlaps(self, other: Buffer) -> bool:
        """Whether two views have a byte in common."""
        if self.alloc is not other.alloc or not np.may_share_memory(self.data, other.data):
            return False
        seen = np.zeros_like(self.alloc.state)
        one = np.dtype(np.uint8)
        self._over(seen, one, True)[...] = 1
        return bool(other._over(seen, one, True).any())

    def __str__(self) -> str:
        return self.name or "a buffer"


class Use:
    """An engine's use of a view under way. `what` says it in a message (``"an asynchronous dot"``), `remedy` what ends it.

    `clock` is that of the task which started it. With a `barrier`, its end counts there, and who has seen that phase knows of it; else
    the task itself waits for the end. A `plain` one goes through the generic proxy, as the task's own accesses do.
    """

    __slots__ = ("barrier", "buffer", "clock", "kind", "loc", "mark", "plain", "remedy", "what")

    def __init__(
        self,
        buffer: Buffer,
        kind: str,
        what: str,
        remedy: str,
        loc: Loc,
        clock: Clock,
        barrier: Mbarrier | None = None,
        plain: bool = False,
    ) -> None:
        self.buffer = buffer
        self.kind = kind
        self.what = what
        self.remedy = remedy
        self.loc = loc
        self.clock = clock
        self.barrier = barrier
        self.plain = plain
        self.mark = Mark(clock, f"{what} of {clock.name}", loc)

    def begin(self) -> Use:
        """Check that the view is free for it, and register."""
        if self.kind == READ:
            check_read(self.buffer, self.clock)
        else:
            check_write(self.buffer, self.clock)
        if not self.plain and self.clock.unfenced is not None:
            self.buffer.alloc.history.check_fence(self.buffer, self.what, self.clock)
        self.buffer.alloc.uses.append(self)
        return self

    def end(self) -> None:
        """The program has waited for it (or the engine's own completion is what counts)."""
        uses = self.buffer.alloc.uses
        if self not in uses:
            return
        uses.remove(self)
        mark = self.mark
        mark.at = self.clock.known[self.clock]
        if self.barrier is not None:
            mark.who, mark.at = self.barrier, self.barrier.phase + 1
        if self.plain:
            mark.plain(self.clock)
        self.buffer.alloc.history.record(self.buffer, self.kind, mark)

    def started(self) -> Note:
        """Where it was started, for an error."""
        return Note(f"{self.what} was started here{self.mark.when()}", self.loc)


def touched(b: Buffer, kind: str, clock: Clock, loc: Loc) -> None:
    """A task has read or written the view itself."""
    if clock.watch:
        mark = Mark(clock, clock.name, loc)
        b.alloc.history.record(b, kind, mark.plain(clock) if kind == WRITE else mark)


def check_read(b: Buffer, clock: Clock) -> None:
    """Raise when a copy under way still writes the view, or one that the task does not know to be over has."""
    if not clock.watch:
        return
    for use in b.alloc.uses:
        if use.kind == WRITE and b.overlaps(use.buffer):
            text = f"{b} is read while {use.what} into it is under way (read before its copy has landed): {use.remedy} is missing"
            raise _under_way("read-before-wait", text, b, use)
    b.alloc.history.check(b, READ, clock)


def check_write(b: Buffer, clock: Clock) -> None:
    """Raise when something under way still uses the view, or may for all the task knows."""
    if not clock.watch:
        return
    for use in b.alloc.uses:
        if not b.overlaps(use.buffer):
            continue
        if use.kind == WRITE:
            text = f"{b} is written while {use.what} into it is under way: {use.remedy} is missing"
        else:
            text = f"{b} is written while {use.what} still reads it: {use.remedy} is missing"
        raise _under_way("write-before-wait", text, b, use)
    b.alloc.history.check(b, WRITE, clock)


def _under_way(code: str, text: str, b: Buffer, use: Use) -> SimulationError:
    bar: dict[str, Any] = {"barrier": str(use.barrier), "phase": use.barrier.phase} if use.barrier is not None else {}
    return SimulationError(code, text, notes=[use.started()], slot=str(b), other=other_side(use.mark), **bar)


def read(b: Buffer, clock: Clock, loc: Loc) -> tuple[Array, bool]:
    """A copy of a view's elements, and whether some were never written."""
    check_read(b, clock)
    state = b.state()
    if b.alloc.names:
        check_own(b, state)
    touched(b, READ, clock, loc)
    return b.data.copy(), not state.all()


def check_own(b: Buffer, state: Array) -> None:
    """Raise when some bytes of the view, of which `state` is given, were last written as another buffer."""
    foreign = state[(state != 0) & (state != b.tag)]
    if not len(foreign):
        return
    other = b.alloc.names.get(int(foreign[0]), "another buffer")
    raise SimulationError(
        "overwritten",
        f"{b} is read, but {other}, which shares its memory, was written over it",
        notes=b.alloc.history.writers(b),
        hint="write it again, or let the two lie apart (a distinct reuse_group, or memory of its own)",
    )


def write(b: Buffer, values: Array, clock: Clock, loc: Loc) -> None:
    """Write a view."""
    check_write(b, clock)
    touched(b, WRITE, clock, loc)
    land(b, values)


def land(b: Buffer, values: Array) -> None:
    """Write a view, whoever uses it."""
    b.data[...] = values
    b.state()[...] = b.tag


class InflightTile:
    """The result of an asynchronous product; `value` may be looked at only after a wait."""

    __slots__ = ("value",)

    def __init__(self, value: Array) -> None:
        self.value = value
