"""What `memory.local_count` adds to, whatever the target's atomic: the place of each element, under its guard.

Each element is counted once, by the thread and register that own it; holes are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of
from mimw.codegen.shared.shared_views import indexed
from mimw.ir import layout as algebra


def counted_places(ctx: Lowering, op: Any) -> Iterator[tuple[Lane, Lane | None]]:
    """(address in shared memory, guard) of each element that this thread may own; None: it does so always."""
    layout = layout_of(op.indices)
    place = indexed(ctx, op.dst, layout, 0, 4)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.indices.type.shape)
    indices = ctx.tile(op.indices)
    mask = ctx.tile(op.mask) if op.mask is not None else None
    copies = registers & ((1 << len(layout.reg)) - 1)
    for r in range(layout.num_regs):
        if r & copies:
            continue
        guard = ctx.b.both(ctx.b.both(owner, inside(r)), mask[r] if mask is not None else None)
        if guard is None or guard.reg is not None:
            yield place(r, indices[r]), guard
        elif guard.off:
            yield place(r, indices[r]), None
