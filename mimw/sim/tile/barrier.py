"""Barriers: mbarriers, named barriers, fences. What orders the threads of one task does nothing here: a tile op is one step of the
whole task."""

from __future__ import annotations

import numpy as np

from mimw.ir.core import OpBase, Value
from mimw.ir.ops.barrier import (
    BarrierAllocOp,
    BarrierArriveOp,
    BarrierExpectOp,
    BarrierParityOp,
    BarrierRemoteViewOp,
    BarrierViewOp,
    BarrierWaitOp,
    NamedArriveOp,
    NamedWaitOp,
)
from mimw.sim.errors import SimulationError
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.mbarrier import BarrierArray, Mbarrier, NamedBarrier, NamedWait, PhaseWait
from mimw.sim.tile.registry import executes

_IDS = 16  # hardware barriers of a CTA


@executes("barrier.cta_sync")
def _cta_sync(m: Machine, op: OpBase) -> None:
    return None


@executes("barrier.fence_async_shared")
def _fence_async_shared(m: Machine, op: OpBase) -> None:
    m.clock.fence()


@executes("barrier.fence")
def _fence(m: Machine, op: OpBase) -> None:
    m.clock.release(m.cta.cluster.order)


@executes("barrier.alloc")
def _alloc(m: Machine, op: BarrierAllocOp) -> None:
    t = op.type
    before = m.cta.barriers.get(op)
    if before is not None:
        before.end(op.loc)
    array = BarrierArray(op, op.result.name, t.count, t.arrive_count, op.per_thread, m.cta.rank)
    m.cta.barriers[op] = array
    m.env[op.result] = array.items[0] if t.count == 0 else array


@executes("barrier.view")
def _view(m: Machine, op: BarrierViewOp) -> None:
    m.env[op.result] = m.env[op.barriers].at(int(m.env[op.index]))


@executes("barrier.remote_view")
def _remote_view(m: Machine, op: BarrierRemoteViewOp) -> None:
    mine, rank = m.env[op.barriers], int(m.env[op.cta])
    cluster = m.cta.cluster
    if isinstance(mine, Mbarrier):
        m.env[op.result] = cluster.barrier_of(mine, rank, op.loc)
    else:
        m.env[op.result] = cluster.barriers_of(mine, rank, op.loc)


def _on(m: Machine, pred: Value | None) -> bool:
    return pred is None or bool(m.env[pred])


@executes("barrier.wait")
def _wait(m: Machine, op: BarrierWaitOp) -> None:
    if _on(m, op.pred):
        barrier: Mbarrier = m.env[op.barrier]
        barrier.waiters += 1
        m.scheduler.block(PhaseWait(barrier, int(m.env[op.phase]), op.loc))
        barrier.waiters -= 1
        m.clock.acquire(barrier.released)
        if barrier.phase:  # else it is fresh: nothing was waited for
            m.clock.after = (str(barrier), barrier.phase - 1)


@executes("barrier.parity")
def _parity(m: Machine, op: BarrierParityOp) -> None:
    m.env[op.result] = np.int32(m.env[op.barrier].phase & 1)


@executes("barrier.arrive")
def _arrive(m: Machine, op: BarrierArriveOp) -> None:
    if not _on(m, op.pred):
        return
    barrier: Mbarrier = m.env[op.barrier]
    m.scheduler.pause()
    barrier.arrive(op.count * (32 * m.num_warps if barrier.array.per_thread else 1), m.clock)


@executes("barrier.expect")
def _expect(m: Machine, op: BarrierExpectOp) -> None:
    if not _on(m, op.pred):
        return
    barrier: Mbarrier = m.env[op.barrier]
    m.scheduler.pause()
    barrier.expect(op.bytes)
    barrier.arrive(1, m.clock)


def _named(m: Machine, op: NamedWaitOp | NamedArriveOp) -> NamedBarrier:
    """The hardware barrier that an op names: by a number, or (before ids are allotted) by a symbol."""
    number = int(m.env[op.id]) if op.id is not None else op.number
    symbol = op.name_hint if op.id is None and number < 0 else ""
    if not symbol and not 0 <= number < _IDS:
        raise SimulationError("named-barrier-id", f"named barrier {number}: ids are 0 to {_IDS - 1}")
    key: object = symbol or number
    found = m.cta.named.get(key)
    if found is None:
        text = f"named barrier {symbol!r}" if symbol else f"named barrier {number}"
        found = m.cta.named[key] = NamedBarrier(text)
    return found


@executes("barrier.named_wait")
def _named_wait(m: Machine, op: NamedWaitOp) -> None:
    barrier = _named(m, op)
    m.scheduler.pause()
    generation = barrier.generation
    barrier.arrive(32 * m.num_warps, op.count, m.clock)
    m.scheduler.block(NamedWait(barrier, generation, op.loc))
    m.clock.acquire(barrier.released)


@executes("barrier.named_arrive")
def _named_arrive(m: Machine, op: NamedArriveOp) -> None:
    m.scheduler.pause()
    _named(m, op).arrive(32 * m.num_warps, op.count, m.clock)
