"""Synchronisation among the threads of a CTA: nothing to do here, since a tile op is one step of the whole CTA."""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.registry import executes


@executes("barrier.cta_sync")
def _cta_sync(m: Machine, op: OpBase) -> None:
    return None


@executes("barrier.fence_async_shared")
def _fence_async_shared(m: Machine, op: OpBase) -> None:
    return None
