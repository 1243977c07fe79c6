"""Ops that AMDGCN code does not have, each with its reason: using one is an error at the user's line. And ops that mean nothing there."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, lowers, unsupported
from mimw.ir.types import I32

_PASSES = "passes make copies, or loads and stores, of it"
_CLUSTER = "there are no clusters of CTAs, each has its own shared memory and barriers only"
_PRODUCTS = "passes make a product of it that is done at once"

REASONS: dict[str, str] = {
    **dict.fromkeys(("async_copy.block_load", "async_copy.block_store"), _PASSES),
    **dict.fromkeys(
        (
            "cluster.async_remote_copy", "cluster.async_remote_store", "cluster.remote_store", "cluster.sync", "barrier.remote_view",
        ),
        _CLUSTER,
    ),
    **dict.fromkeys(("inline.asm", "inline.asm_volatile"), "the text is PTX"),
    **dict.fromkeys(("mma.as_inflight", "mma.async_dot", "mma.async_dot_wait"), _PRODUCTS),
}  # fmt: skip

for _name, _reason in REASONS.items():
    unsupported(_name, "amd", _reason)


@lowers("memory.prefetch", target="amd")
def lower_prefetch(ctx: Lowering, op: Any) -> None:
    """Nothing: there is no such instruction, and no value depends on it."""
    del ctx, op


@lowers("cluster.cta_rank", target="amd")
def lower_cta_rank(ctx: Lowering, op: Any) -> None:
    """0: every CTA is a cluster of its own."""
    ctx.set(op.result, [ctx.b.const(I32, 0)])


@lowers("cluster.size", target="amd")
def lower_cluster_size(ctx: Lowering, op: Any) -> None:
    """1."""
    ctx.set(op.result, [ctx.b.const(I32, 1)])
