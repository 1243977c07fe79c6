"""Tasks: each region of a partition runs as an agent of its own, the default one on the agent that came to it."""

from __future__ import annotations

import numpy as np

from mimw.diagnostics import InternalError
from mimw.ir.core import Block, OpBase
from mimw.ir.ops.task import PartitionOp
from mimw.sim.tile.cluster import meet
from mimw.sim.tile.machine import YIELD, Machine
from mimw.sim.tile.registry import executes


@executes("task.partition")
def _partition(m: Machine, op: PartitionOp) -> None:
    if len(m.cta.cluster.ctas) > 1:
        meet(m, op)  # no task starts before all barriers of the cluster are made
    specs = op.specs()
    names = [s.name for s in specs]
    for spec, region in list(zip(specs, op.bodies, strict=True))[1:]:
        name = f"{spec.name}.{spec.replica}" if names.count(spec.name) > 1 else spec.name
        start_task(m.fork(name, spec.num_warps, spec.replica), region.block)
    m.task = specs[0].name
    m.clock.name = m.agent_name
    m.scheduler.rename(m.agent_name)
    exit = m.run_block(op.bodies[0].block)
    if exit.kind != YIELD:
        raise InternalError(f"a task ends in {exit.kind}", op.loc)


def start_task(m: Machine, block: Block) -> None:
    """Run a block as an agent of its own."""
    sync = m.cta.cluster.sync
    sync.join()
    m.scheduler.add(m.agent_name, lambda: m.run_body(block), sync.leave, group=m.cta.name, trips=m.clock.trips)


@executes("task.replica_id")
def _replica_id(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], np.array(m.replica, np.int32))
