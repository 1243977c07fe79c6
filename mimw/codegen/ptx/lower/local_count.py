"""Lowering of `memory.local_count`: one `red.shared` an element, by its owner."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Imm
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.local_count import counted_places


@lowers("memory.local_count", target="nvidia")
def lower_local_count(ctx: Lowering, op: Any) -> None:
    """Add one at each index."""
    b = ptx_builder(ctx)
    for place, guard in counted_places(ctx, op):
        b.emit("red.relaxed.cta.shared::cta.add.u32", [b.address("shared", place), Imm(1)], 0, guard)
