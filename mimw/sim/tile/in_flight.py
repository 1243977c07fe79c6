"""What one task has started and not yet waited for: groups of cp.async copies, products, bulk stores.

Each wait of the language covers all but the youngest `pendings` groups of its kind.
"""

from __future__ import annotations

from mimw.sim.agents import Job
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.shared_memory import Use, land


class Copy:
    """A copy by threads: its values land when its group is waited for; where nobody watches, when the copy is done."""

    __slots__ = ("job", "use", "values")

    def __init__(self, job: Job, use: Use, values: Array) -> None:
        self.job = job
        self.use = use
        self.values = values

    def complete(self) -> None:
        """The program has waited for it."""
        self.use.end()
        if self.use.clock.watch:
            land(self.use.buffer, self.values)


class Product:
    """An asynchronous product, with the uses of its operands."""

    __slots__ = ("job", "uses")

    def __init__(self, job: Job, uses: list[Use]) -> None:
        self.job = job
        self.uses = uses


class Store:
    """A bulk store: `read` is done when it has read shared memory, `written` when global memory has it."""

    __slots__ = ("read", "use", "written")

    def __init__(self, read: Job, written: Job, use: Use) -> None:
        self.read = read
        self.written = written
        self.use = use


class InFlight:
    """The queues of one task, oldest first."""

    __slots__ = ("groups", "products", "started", "stores")

    def __init__(self) -> None:
        self.started: list[Copy] = []
        self.groups: list[list[Copy]] = []
        self.products: list[Product] = []
        self.stores: list[Store] = []


def all_but(count: int, pendings: int) -> int:
    """How many of `count` groups a wait covers that leaves `pendings`."""
    return max(0, count - pendings)
