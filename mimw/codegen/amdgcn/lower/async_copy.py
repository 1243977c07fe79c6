"""Copies from global to shared memory by threads, through registers.

The loads are made where a copy starts, the stores put off to the next wait, barrier or end of a block: what stands between hides the
memory's latency. A wait for groups finds nothing in flight.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.memory import access_of, cache_words, guards
from mimw.codegen.shared.shared_memory import memdesc, store_tile
from mimw.ir import layout as algebra
from mimw.ir.types import I1, U8


@lowers("async_copy.load", target="amd")
def lower_async_load(ctx: Lowering, op: Any) -> None:
    """Start copying a tile."""
    b = amdgcn_builder(ctx)
    t, shared = memdesc(ctx, op.dst)
    dtype = U8 if t.dtype is I1 else t.dtype
    layout = layout_of(op.ptr)
    place = ctx.shared[op.dst]
    width = access_of(ctx, op.ptr, op.mask, dtype.bits).width
    unmasked = guards(ctx, op.ptr, op.mask)
    pointers = ctx.tile(op.ptr)
    other = ctx.tile(op.other) if op.other is not None else None
    copies = algebra.owner_mask(layout)[0] & (1 << len(layout.reg)) - 1
    moved: list[Lane] = []
    for r in range(0, layout.num_regs, width):
        if r & copies:  # a register that repeats an earlier one is not stored
            moved += moved[r & ~copies : (r & ~copies) + width]
            continue
        rest = other[r : r + width] if other is not None else None
        moved += b.load("global", dtype, pointers[r], width, unmasked(r), rest, cache_words(op))
    b.put_off(lambda: store_tile(ctx, place, shared, layout, t.shape, moved))


@lowers("async_copy.commit_group", "async_copy.wait_group", target="amd")
def lower_group(ctx: Lowering, op: Any) -> None:
    """What was put off is done."""
    if op.name == "async_copy.wait_group":
        amdgcn_builder(ctx).finish_copies()
