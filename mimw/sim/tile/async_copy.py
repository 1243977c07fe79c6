"""Asynchronous copies: by threads (the data lands when its group is waited for, not before), and by the TMA engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mimw.ir.core import OpBase, Value
from mimw.ir.ops.async_copy import (
    BlockLoadOp,
    BlockStoreOp,
    BulkLoadOp,
    BulkStoreOp,
    MadeDescriptorOp,
    MakeDescriptorOp,
    TmaLoadOp,
    TmaStoreOp,
)
from mimw.ir.types import U8
from mimw.sim.agents import JobsWait
from mimw.sim.errors import SimulationError
from mimw.sim.tile.combine import combined
from mimw.sim.tile.descriptor import Descriptor
from mimw.sim.tile.in_flight import Copy, all_but
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.mbarrier import Mbarrier
from mimw.sim.tile.memory import load_tile, operand_fields
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.registry import executes
from mimw.sim.tile.shared_memory import READ, WRITE, Buffer, Use, land
from mimw.sim.tile.tma import flat, start_load, start_store


@executes("async_copy.load")
def _load(m: Machine, op: OpBase) -> None:
    ptr, target, mask, other = operand_fields(op)
    assert ptr is not None and target is not None
    use = Use(m.env[target], WRITE, "an asynchronous copy", "a wait_group", op.loc, m.clock, plain=True).begin()
    values = load_tile(m, op, ptr, mask, other)
    finish = None if m.clock.watch else lambda: land(use.buffer, values)
    job = m.scheduler.post("cp.async", op.loc, finish, size=values.nbytes)
    m.in_flight.started.append(Copy(job, use, values))


@executes("async_copy.commit_group")
def _commit_group(m: Machine, op: OpBase) -> None:
    m.in_flight.groups.append(m.in_flight.started)
    m.in_flight.started = []


@executes("async_copy.wait_group")
def _wait_group(m: Machine, op: OpBase) -> None:
    groups = m.in_flight.groups
    count = all_but(len(groups), op.attrs["pendings"])
    copies = [copy for group in groups[:count] for copy in group]
    m.scheduler.block(JobsWait([c.job for c in copies], "asynchronous copies", op.loc))
    del groups[:count]
    for copy in copies:
        copy.complete()


# -- the TMA engine -----------------------------------------------------------------------------------------------------


@executes("async_copy.make_descriptor")
def _make_descriptor(m: Machine, op: MakeDescriptorOp) -> None:
    numbers = [int(m.env[v]) for v in op.shape]
    rank = len(numbers) // 2
    made = Descriptor(int(m.env[op.ptr]), numbers[:rank], numbers[rank:], op.type, op.padding)
    m.env[op.result] = m.cta.maps[op.room, _slot(m, op)] = made


def _slot(m: Machine, op: MakeDescriptorOp | MadeDescriptorOp) -> int:
    return int(m.env[op.slot]) if op.slot is not None else 0


@executes("async_copy.made_descriptor")
def _made_descriptor(m: Machine, op: MadeDescriptorOp) -> None:
    found = m.cta.maps.get((op.room, _slot(m, op)))
    if found is None:
        raise SimulationError("descriptor", f"no descriptor was made in slot {_slot(m, op)}")
    m.env[op.result] = found


def _coords(m: Machine, values: Sequence[Value]) -> list[int]:
    return [int(m.env[v]) for v in values]


def _on(m: Machine, pred: Value | None) -> bool:
    return pred is None or bool(m.env[pred])


def _own(m: Machine, barrier: Mbarrier) -> Mbarrier:
    if barrier.array.rank != m.cta.rank:
        raise SimulationError(
            "remote-barrier", f"a copy into this CTA cannot count on {barrier} of CTA {barrier.array.rank}"
        )
    return barrier


@executes("async_copy.tma_load")
def _tma_load(m: Machine, op: TmaLoadOp) -> None:
    if not _on(m, op.pred):
        return
    desc: Descriptor = m.env[op.desc]
    coords = _coords(m, op.coords)
    buffer: Buffer = m.env[op.dst]
    barrier = _own(m, m.env[op.barrier])
    targets = [(buffer, barrier)]
    if op.multicast is not None:
        mask, cluster = int(m.env[op.multicast]), m.cta.cluster
        if not 0 < mask < 1 << len(cluster.ctas):
            raise SimulationError("multicast-mask", f"multicast to CTAs {mask:#b} of a cluster of {len(cluster.ctas)}")
        ranks = [r for r in range(len(cluster.ctas)) if mask >> r & 1]
        targets = [(cluster.buffer_of(buffer, r, op.loc), cluster.barrier_of(barrier, r, op.loc)) for r in ranks]
    view, place = desc.view(m.memory, coords, "load")
    m.touch_block(op, READ, view)
    start_load(m, op, targets, desc.bytes, lambda: desc.filled(view, place), "TMA load")


@executes("async_copy.prefetch_descriptor")
def _prefetch_descriptor(m: Machine, op: OpBase) -> None:
    return None


@executes("async_copy.tma_prefetch")
def _tma_prefetch(m: Machine, op: OpBase) -> None:
    return None


def _aligned(address: int) -> int:
    if address % 16:
        raise SimulationError("misaligned", f"a bulk copy at address {address:#x}, which is not a multiple of 16")
    return address


@executes("async_copy.bulk_load")
def _bulk_load(m: Machine, op: BulkLoadOp) -> None:
    if not _on(m, op.pred):
        return
    size, address = int(m.env[op.bytes]), _aligned(int(m.env[op.ptr]))
    target = flat(m.env[op.dst], size)
    barrier = _own(m, m.env[op.barrier])

    source = m.memory.box(address, U8, (size,), (1,), "load") if size else np.zeros(0, np.uint8)
    m.touch_block(op, READ, source)
    start_load(m, op, [(target, barrier)], size, lambda: source, "bulk load")


def _writer(m: Machine, op: TmaStoreOp | BlockStoreOp) -> Callable[[Array], None]:
    """What puts a block where an op says."""
    desc: Descriptor = m.env[op.desc]
    view, place = desc.view(m.memory, _coords(m, op.coords), "store")

    def write(values: Array) -> None:
        if view is not None:
            new = values[place]
            view[...] = combined(op.reduce, view.copy(), new, desc.dtype) if op.reduce else new
            if not op.reduce:
                m.touch_block(op, WRITE, view)

    return write


@executes("async_copy.tma_store")
def _tma_store(m: Machine, op: TmaStoreOp) -> None:
    start_store(m, op, m.env[op.src], _writer(m, op), f"TMA store {op.reduce}".rstrip())


@executes("async_copy.block_load")
def _block_load(m: Machine, op: BlockLoadOp) -> None:
    desc: Descriptor = m.env[op.desc]
    view, place = desc.view(m.memory, _coords(m, op.coords), "load")
    m.touch_block(op, READ, view)
    m.set(op.result, desc.filled(view, place))


@executes("async_copy.block_store")
def _block_store(m: Machine, op: BlockStoreOp) -> None:
    _writer(m, op)(m.env[op.value])
    m.scheduler.progress += 1


@executes("async_copy.bulk_store")
def _bulk_store(m: Machine, op: BulkStoreOp) -> None:
    size, address = int(m.env[op.bytes]), _aligned(int(m.env[op.ptr]))
    source = flat(m.env[op.src], size)
    target = m.memory.box(address, U8, (size,), (1,), "store") if size else np.zeros(0, np.uint8)

    def write(values: Array) -> None:
        target[...] = values
        m.touch_block(op, WRITE, target)

    start_store(m, op, source, write, "bulk store")


@executes("async_copy.tma_store_wait")
def _tma_store_wait(m: Machine, op: OpBase) -> None:
    stores = m.in_flight.stores
    count = all_but(len(stores), op.attrs["pendings"])
    whole: bool = op.attrs["whole"]
    jobs = [s.written if whole else s.read for s in stores[:count]]
    m.scheduler.block(JobsWait(jobs, "bulk stores", op.loc))
    for s in stores[:count]:
        s.use.end()
    while stores and count and stores[0].written.done:
        del stores[0]
        count -= 1
