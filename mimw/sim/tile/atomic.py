"""Atomics on global memory: the elements of a tile one after another, each at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mimw.ir.ops.atomic import AtomicCasOp, AtomicRmwOp
from mimw.sim.tile.combine import combined
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import pointee
from mimw.sim.tile.numerics import Array, bits_of, numpy_dtype
from mimw.sim.tile.registry import executes


def rounds(address: Array) -> Iterator[Array]:
    """The positions of a flat array of addresses, in rounds that hold each address once, in order of position."""
    order = np.argsort(address, kind="stable")
    same = address[order]
    first = np.r_[True, same[1:] != same[:-1]] if len(same) else np.zeros(0, np.bool_)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(same)), 0)) if len(same) else order
    turn = np.arange(len(same)) - starts
    for n in range(int(turn.max()) + 1 if len(turn) else 0):
        yield np.sort(order[turn == n])


@executes("atomic.rmw")
def _rmw(m: Machine, op: AtomicRmwOp) -> None:
    m.scheduler.poll(op.loc)
    m.clock.acquire(m.cta.cluster.order)
    m.clock.release(m.cta.cluster.order)
    d = pointee(op.ptr)
    shape = np.shape(m.env[op.ptr])
    at, new = m.env[op.ptr].reshape(-1), m.env[op.value].reshape(-1)
    on = np.ones(len(at), np.bool_) if op.mask is None else m.env[op.mask].reshape(-1)
    if m.wrapped:
        m.check_wraps(op, op.ptr, on.reshape(shape))
    olds = np.zeros(len(at), numpy_dtype(d))
    index = np.nonzero(on)[0]
    for part in rounds(at[index]):
        where = index[part]
        old = m.memory.load(at[where], d, None, olds[where])
        olds[where] = old
        m.memory.store(at[where], d, combined(op.kind, old, new[where], d), None)
        m.scheduler.progress += 1
    m.set(op.result, olds.reshape(shape))


@executes("atomic.cas")
def _cas(m: Machine, op: AtomicCasOp) -> None:
    m.scheduler.poll(op.loc)
    m.clock.acquire(m.cta.cluster.order)
    m.clock.release(m.cta.cluster.order)
    d = pointee(op.ptr)
    shape = np.shape(m.env[op.ptr])
    if m.wrapped:
        m.check_wraps(op, op.ptr, None)
    at, want, new = (m.env[v].reshape(-1) for v in (op.ptr, op.compare, op.value))
    olds = np.zeros(len(at), numpy_dtype(d))
    for where in rounds(at):
        old = m.memory.load(at[where], d, None, olds[where])
        olds[where] = old
        equal = bits_of(old) == bits_of(want[where])
        if equal.any():
            m.memory.store(at[where], d, np.where(equal, new[where], old), None)
            m.scheduler.progress += 1
    m.set(op.result, olds.reshape(shape))
