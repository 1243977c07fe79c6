"""Lowering of `memory.local_count`: one `red.shared` an element, by its owner."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Imm
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.shared_views import indexed
from mimw.ir import layout as algebra


@lowers("memory.local_count", target="nvidia")
def lower_local_count(ctx: Lowering, op: Any) -> None:
    """Add one at each index."""
    b = ptx_builder(ctx)
    layout = layout_of(op.indices)
    place = indexed(ctx, op.dst, layout, 0, 4)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.indices.type.shape)
    indices = ctx.tile(op.indices)
    mask = ctx.tile(op.mask) if op.mask is not None else None
    low = (1 << len(layout.reg)) - 1
    for r in range(layout.num_regs):
        if r & low & registers:
            continue
        guard = b.both(b.both(owner, inside(r)), mask[r] if mask is not None else None)
        if guard is None or guard.reg is not None or guard.off:
            b.emit("red.relaxed.cta.shared::cta.add.u32", [b.address("shared", place(r, indices[r])), Imm(1)], 0, guard)
