"""Shared memory of one CTA: buffers, views of them, copies and matrix products that are still under way.

A buffer knows of each element whether it was never written, is written, or is the target of a copy under way. Reading
what a copy still writes is an error; reading what was never written gives poison and a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimw.diagnostics import InternalError
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import DType
from mimw.sim.errors import SimulationError
from mimw.sim.tile.numerics import Array, poison

UNWRITTEN, WRITTEN, IN_FLIGHT = 0, 1, 2


class Buffer:
    """A view of an allocation: `data` and `state` are views of equal shape, `root` is the allocation's own array."""

    __slots__ = ("data", "name", "root", "state")

    def __init__(self, data: Array, state: Array, root: Array, name: str) -> None:
        self.data = data
        self.state = state
        self.root = root
        self.name = name

    @staticmethod
    def new(shape: tuple[int, ...], d: DType, name: str) -> Buffer:
        """A fresh allocation full of poison."""
        data = poison(shape, d)
        return Buffer(data, np.zeros(shape, np.uint8), data, name)

    def slot(self, index: int) -> Buffer:
        """The view at `index` of the first dimension."""
        if not 0 <= index < len(self.data):
            raise SimulationError("slot-out-of-range", f"slot {index} of {self}, which has {len(self.data)}")
        return Buffer(self.data[index], self.state[index], self.root, self.name)

    def transposed(self, order: Sequence[int]) -> Buffer:
        """The view with permuted dimensions."""
        return Buffer(self.data.transpose(order), self.state.transpose(order), self.root, self.name)

    def reinterpreted(self, shape: tuple[int, ...], layout: SharedLayout, start: int) -> Buffer:
        """The view of the same row-major elements under another shape, `start` elements in; `layout` has plain strides.

        InternalError when it would leave the source, or when the source is not row-major itself.
        """
        steps = [b[0] if b else s for b, s in zip(layout.bases, layout.strides, strict=True)]
        last = start + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        if not self.data.flags.c_contiguous or last >= self.data.size:
            raise InternalError(f"{self} of {self.data.shape} is seen as {shape} by strides {steps} from {start}")

        def view(a: Array) -> Array:
            flat = a.reshape(-1)[start:]
            strides = [n * flat.itemsize for n in steps]
            return np.lib.stride_tricks.as_strided(flat, shape, strides)

        return Buffer(view(self.data), view(self.state), self.root, self.name)

    def overlaps(self, other: Buffer) -> bool:
        """Whether two views have an element in common."""
        return self.root is other.root and bool(np.shares_memory(self.state, other.state))

    def __str__(self) -> str:
        return self.name or "a buffer"


class Copy:
    """A copy under way: its values land when its group is waited for."""

    __slots__ = ("target", "values")

    def __init__(self, target: Buffer, values: Array) -> None:
        self.target = target
        self.values = values


class InflightTile:
    """The result of an asynchronous product; `value` may be looked at only after a wait."""

    __slots__ = ("value",)

    def __init__(self, value: Array) -> None:
        self.value = value


class SharedMemory:
    """What is under way in one CTA."""

    __slots__ = ("groups", "products", "started")

    def __init__(self) -> None:
        self.started: list[Copy] = []
        self.groups: list[list[Copy]] = []
        self.products: list[list[Buffer]] = []

    def read(self, b: Buffer) -> tuple[Array, bool]:
        """A copy of a view's elements, and whether some were never written."""
        if (b.state == IN_FLIGHT).any():
            raise SimulationError(
                "read-before-wait",
                f"{b} is read while an asynchronous copy into it is under way: a wait_group is missing",
            )
        return b.data.copy(), bool((b.state == UNWRITTEN).any())

    def write(self, b: Buffer, values: Array) -> None:
        """Write a view."""
        self.check_write(b)
        b.data[...] = values
        b.state[...] = WRITTEN

    def check_write(self, b: Buffer) -> None:
        """Raise when something under way still uses the view."""
        if (b.state == IN_FLIGHT).any():
            raise SimulationError(
                "write-before-wait", f"{b} is written while an asynchronous copy into it is under way"
            )
        for buffers in self.products:
            if any(b.overlaps(other) for other in buffers):
                raise SimulationError(
                    "write-before-wait",
                    f"{b} is written while an asynchronous dot still reads it: an async_dot_wait is missing",
                )

    def start_copy(self, target: Buffer, values: Array) -> None:
        """Start a copy into a view."""
        self.check_write(target)
        target.state[...] = IN_FLIGHT
        self.started.append(Copy(target, values))

    def commit(self) -> None:
        """Close the group of copies started since the last commit."""
        self.groups.append(self.started)
        self.started = []

    def wait_copies(self, pendings: int) -> None:
        """Land all groups but the youngest `pendings`."""
        while len(self.groups) > pendings:
            for copy in self.groups.pop(0):
                copy.target.data[...] = copy.values
                copy.target.state[...] = WRITTEN

    def wait_products(self, pendings: int) -> None:
        """Finish all products but the youngest `pendings`."""
        if len(self.products) > pendings:
            del self.products[: len(self.products) - pendings]
