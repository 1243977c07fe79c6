"""Asynchronous copies from global to shared memory: the data lands when its group is waited for, not before."""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import load_tile, operand_fields
from mimw.sim.tile.registry import executes


@executes("async_copy.load")
def _load(m: Machine, op: OpBase) -> None:
    ptr, target, mask, other = operand_fields(op)
    assert ptr is not None and target is not None
    m.shared.start_copy(m.env[target], load_tile(m, op, ptr, mask, other))


@executes("async_copy.commit_group")
def _commit_group(m: Machine, op: OpBase) -> None:
    m.shared.commit()


@executes("async_copy.wait_group")
def _wait_group(m: Machine, op: OpBase) -> None:
    m.shared.wait_copies(op.attrs["pendings"])
