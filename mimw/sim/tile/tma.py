"""The TMA engine: what it does once a copy was started. The ops are in `async_copy` and `cluster`.

A load lands and counts its bytes when the scheduler says so; a store reads shared memory at one such moment and writes global memory
at a later one. Bytes count for the whole block, holes included.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.ir.core import OpBase
from mimw.sim.errors import SimulationError
from mimw.sim.tile.in_flight import Store
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.mbarrier import Mbarrier
from mimw.sim.tile.memory import read_buffer
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.shared_memory import READ, WRITE, Buffer, Use, land

_COPY = "a TMA copy"
_STORE = "a TMA store"


def start_load(
    m: Machine, op: OpBase, targets: list[tuple[Buffer, Mbarrier]], size: int, values: Callable[[], Array], what: str
) -> None:
    """Start a copy whose `values` land in every target at one moment; `size` bytes then count on each target's barrier."""
    uses = [Use(b, WRITE, _COPY, f"a barrier_wait for {at}", op.loc, m.clock, at).begin() for b, at in targets]
    trips = tuple(m.clock.trips)
    for (_, barrier), use in zip(targets, uses, strict=True):
        barrier.copies += 1
        if size:
            m.cta.cluster.ctas[barrier.array.rank].filled[barrier] = use

    def finish() -> None:
        block = values()
        for use, (buffer, barrier) in zip(uses, targets, strict=True):
            use.end()
            land(buffer, block)
            barrier.copies -= 1
            try:
                barrier.land(size)
            except SimulationError as e:
                m.blame(e)
                e.iteration = trips
                raise

    m.scheduler.post(what, op.loc, finish, size=size)
    m.scheduler.pause()


def flat(b: Buffer, size: int) -> Buffer:
    """The first `size` bytes of a contiguous buffer."""
    if size % 16 or size < 0:
        raise SimulationError("bulk-size", f"a bulk copy of {size} bytes: a multiple of 16 is needed")
    if not b.data.flags.c_contiguous or size > b.data.nbytes:
        raise SimulationError(
            "bulk-size", f"a bulk copy of {size} bytes does not fit {b} of {b.data.nbytes} contiguous bytes"
        )
    return Buffer(b.data.reshape(-1).view(np.uint8)[:size], b.alloc, b.name, b.tag)


def start_store(m: Machine, op: OpBase, source: Buffer, write: Callable[[Array], None], what: str) -> None:
    """Start a bulk store: `write` puts the values read from `source` into global memory."""
    use = Use(source, READ, _STORE, "an async_descriptor_store_wait", op.loc, m.clock).begin()
    values: list[Array] = []

    def take() -> None:
        values.append(read_buffer(m, op, source))

    def finish() -> None:
        m.scheduler.progress += 1
        write(values[0])

    # Nobody may write the source before it was waited for, so that it may be read now: else it is an error, if any are looked for.
    if m.clock.watch:
        take()
    read = m.scheduler.post(f"{what} (read)", op.loc, None if m.clock.watch else take, size=source.data.nbytes)
    written = m.scheduler.post(f"{what} (write)", op.loc, finish, read, source.data.nbytes)
    m.in_flight.stores.append(Store(read, written, use))
    m.scheduler.pause()
