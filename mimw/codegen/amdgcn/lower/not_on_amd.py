"""Ops that AMDGCN code does not have, each with its reason: using one is an error at the user's line. And ops that mean nothing there."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, lowers, refuse, unsupported

_TASKS = "warp-specialised tasks need barriers that count arrivals in hardware, which CDNA has not"
_TMA = "there is no engine that copies blocks by descriptor"
_CLUSTER = "there are no clusters of CTAs"
_BARRIER = "there are no barriers in shared memory that count arrivals"

REASONS: dict[str, str] = {
    **dict.fromkeys(("task.partition", "task.replica_id"), _TASKS),
    **dict.fromkeys(
        (
            "async_copy.block_load", "async_copy.block_store", "async_copy.make_descriptor", "async_copy.tma_load",
            "async_copy.tma_prefetch", "async_copy.made_descriptor", "async_copy.prefetch_descriptor",
            "async_copy.tma_store", "async_copy.tma_store_wait", "async_copy.bulk_load",
            "async_copy.bulk_store",
        ),
        _TMA,
    ),
    **dict.fromkeys(
        (
            "cluster.async_remote_copy", "cluster.async_remote_store", "cluster.cta_rank", "cluster.remote_store", "cluster.size",
            "cluster.sync", "barrier.remote_view",
        ),
        _CLUSTER,
    ),
    **dict.fromkeys(
        (
            "barrier.alloc", "barrier.arrive", "barrier.expect", "barrier.fence", "barrier.fence_async_shared",
            "barrier.named_arrive", "barrier.named_wait", "barrier.parity", "barrier.view", "barrier.wait",
        ),
        _BARRIER,
    ),
    "debug.clock": "the clock is not supported yet",
    **dict.fromkeys(
        ("mma.as_inflight", "mma.async_dot", "mma.async_dot_wait"), "products do not run on their own: use dot"
    ),
}  # fmt: skip

for _name, _reason in REASONS.items():
    unsupported(_name, "amd", _reason)


@lowers("debug.device_print", "debug.device_assert", target="amd")
def refuse_printing(ctx: Lowering, op: Any) -> None:
    """There is no printf behind the driver."""
    raise refuse(
        op, ctx.target, "printing is not supported yet", "run the kernel on NumPy arrays: the tile simulator prints"
    )


@lowers("memory.prefetch", target="amd")
def lower_prefetch(ctx: Lowering, op: Any) -> None:
    """Nothing: there is no such instruction, and no value depends on it."""
    del ctx, op
