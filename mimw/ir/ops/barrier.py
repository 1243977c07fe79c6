"""Synchronisation among the threads of a CTA."""

from __future__ import annotations

from mimw.ir.opdef import Effect, Op, op

_ORDER = Effect("shared", "write")


@op("barrier.cta_sync", effects=[_ORDER], layout="none")
class CtaSyncOp(Op):
    """All threads of the CTA meet; shared memory written before is visible after."""


@op("barrier.fence_async_shared", effects=[_ORDER], layout="none")
class FenceAsyncSharedOp(Op):
    """Order this thread's generic accesses to shared memory before later accesses of the async proxy (wgmma, TMA)."""
