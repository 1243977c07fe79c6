"""Copies from global to shared memory by threads, through registers.

The loads are made where a copy starts, the stores put off to the next wait, barrier or end of a block: what stands between hides the
memory's latency. A wait for groups finds nothing in flight.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.addressing import Placement, vector_groups
from mimw.codegen.shared.memory import access_of, cache_words, guards
from mimw.codegen.shared.shared_memory import memdesc
from mimw.ir import layout as algebra
from mimw.ir.types import I1, U8


@lowers("async_copy.load", target="amd")
def lower_async_load(ctx: Lowering, op: Any) -> None:
    """Start copying a tile."""
    b = amdgcn_builder(ctx)
    t, shared = memdesc(ctx, op.dst)
    dtype = U8 if t.dtype is I1 else t.dtype
    size = dtype.itemsize
    layout = layout_of(op.ptr)
    placement = Placement(layout, shared, size, ctx.shared[op.dst].mix)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    low = (1 << len(layout.reg)) - 1
    free = [r for r in range(layout.num_regs) if not r & low & registers]
    width = min(access_of(ctx, op.ptr, op.mask, 8 * size).width, max(1, ctx.shared[op.dst].align // size))
    bits = placement.unit_bits(t.shape, width)
    if bits != list(range(len(bits))):
        bits = []
    unmasked = guards(ctx, op.ptr, op.mask)
    inside = ctx.holes(layout, t.shape)
    pointers = ctx.tile(op.ptr)
    other = ctx.tile(op.other) if op.other is not None else None
    coords = layout.reg_coords()
    moved: list[tuple[int, list[Lane]]] = []
    for group in vector_groups(placement, bits, free):
        r = group[0]
        rest = [other[i] for i in group] if other is not None else None
        moved.append((r, b.load("global", dtype, pointers[r], len(group), unmasked(r), rest, cache_words(op))))
    base = ctx.shared[op.dst].address

    def store() -> None:
        for r, values in moved:
            b.store("shared", placement.address(ctx, base, coords[r]), values, b.both(owner, inside(r)), "")

    b.put_off(store)


@lowers("async_copy.commit_group", "async_copy.wait_group", target="amd")
def lower_group(ctx: Lowering, op: Any) -> None:
    """What was put off is done."""
    if op.name == "async_copy.wait_group":
        amdgcn_builder(ctx).finish_copies()
