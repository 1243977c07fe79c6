"""Asynchronous copies by threads from global to shared memory: the data lands when its group is waited for, not before."""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.sim.scheduler import JobsWait
from mimw.sim.tile.in_flight import Copy, all_but
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import load_tile, operand_fields
from mimw.sim.tile.registry import executes
from mimw.sim.tile.shared_memory import WRITE, Use


@executes("async_copy.load")
def _load(m: Machine, op: OpBase) -> None:
    ptr, target, mask, other = operand_fields(op)
    assert ptr is not None and target is not None
    use = Use(m.env[target], WRITE, "an asynchronous copy", "a wait_group", op.loc).begin()
    values = load_tile(m, op, ptr, mask, other)
    m.in_flight.started.append(Copy(m.scheduler.post("cp.async", op.loc), use, values))


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
