"""Lowering of `memory.local_count`: one ``ds_add_u32`` an element, by its owner."""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.memory import shared_address
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared.local_count import counted_places
from mimw.ir.types import I32


@lowers("memory.local_count", target="amd")
def lower_local_count(ctx: Lowering, op: Any) -> None:
    """Add one at each index."""
    b = amdgcn_builder(ctx)
    one = b.vector(b.const(I32, 1))
    for place, guard in counted_places(ctx, op):
        address, offset = shared_address(b, place)
        b.emit("ds_add_u32", [address, one, *offset], 0, guard)
