"""Lowering of `memory.local_count`: one ``ds_add_u32`` an element, by its owner."""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder_memory import shared_address
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.shared_views import indexed
from mimw.ir import layout as algebra
from mimw.ir.types import I32


@lowers("memory.local_count", target="amd")
def lower_local_count(ctx: Lowering, op: Any) -> None:
    """Add one at each index."""
    b = amdgcn_builder(ctx)
    layout = layout_of(op.indices)
    place = indexed(ctx, op.dst, layout, 0, 4)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.indices.type.shape)
    indices = ctx.tile(op.indices)
    mask = ctx.tile(op.mask) if op.mask is not None else None
    low = (1 << len(layout.reg)) - 1
    one = b.vector(b.const(I32, 1))
    for r in range(layout.num_regs):
        if r & low & registers:
            continue
        guard = b.both(b.both(owner, inside(r)), mask[r] if mask is not None else None)
        if guard is None or guard.reg is not None or guard.off:
            address, offset = shared_address(b, place(r, indices[r]))
            b.emit("ds_add_u32", [address, one, *offset], 0, guard if guard is None or guard.reg is not None else None)
