"""Clusters: ranks, the barrier of all, and what one CTA writes into another's shared memory."""

from __future__ import annotations

import numpy as np

from mimw.ir.core import OpBase
from mimw.ir.ops.cluster import AsyncRemoteCopyOp, AsyncRemoteStoreOp, RemoteStoreOp
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.mbarrier import ClusterWait, Mbarrier
from mimw.sim.tile.memory import read_buffer
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.registry import executes
from mimw.sim.tile.shared_memory import READ, Buffer, Use, write
from mimw.sim.tile.tma import start_load


@executes("cluster.cta_rank")
def _cta_rank(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], np.array(m.cta.rank, np.int32))


@executes("cluster.size")
def _size(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], np.array(len(m.cta.cluster.ctas), np.int32))


def meet(m: Machine, op: OpBase) -> None:
    """Wait for all tasks of all CTAs of the cluster."""
    barrier = m.cta.cluster.sync
    m.scheduler.pause()
    m.scheduler.block(ClusterWait(barrier, barrier.arrive(m.clock), op.loc))
    m.clock.acquire(barrier.released)


@executes("cluster.sync")
def _sync(m: Machine, op: OpBase) -> None:
    meet(m, op)


@executes("cluster.remote_store")
def _remote_store(m: Machine, op: RemoteStoreOp) -> None:
    target = m.cta.cluster.buffer_of(m.env[op.dst], int(m.env[op.cta]), op.loc)
    m.scheduler.pause()
    write(target, m.env[op.src], m.clock, op.loc)


@executes("cluster.async_remote_store")
def _async_remote_store(m: Machine, op: AsyncRemoteStoreOp) -> None:
    target, barrier = _remote(m, op, m.env[op.dst], m.env[op.barrier], int(m.env[op.cta]))
    values = m.env[op.src]
    start_load(m, op, [(target, barrier)], target.data.nbytes, lambda: values, "remote store")


@executes("cluster.async_remote_copy")
def _async_remote_copy(m: Machine, op: AsyncRemoteCopyOp) -> None:
    source: Buffer = m.env[op.src]
    target, barrier = _remote(m, op, m.env[op.dst], m.env[op.barrier], int(m.env[op.cta]))
    use = Use(source, READ, "a remote copy", f"a wait for {barrier}", op.loc, m.clock, barrier).begin()
    values = read_buffer(m, op, source)

    def landing() -> Array:
        use.end()
        return values

    start_load(m, op, [(target, barrier)], target.data.nbytes, landing, "remote copy")


def _remote(m: Machine, op: OpBase, buffer: Buffer, barrier: Mbarrier, rank: int) -> tuple[Buffer, Mbarrier]:
    cluster = m.cta.cluster
    return cluster.buffer_of(buffer, rank, op.loc), cluster.barrier_of(barrier, rank, op.loc)
