"""Lowerings of barriers."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, lowers


@lowers("barrier.cta_sync")
def lower_cta_sync(ctx: Lowering, op: Any) -> None:
    """All threads meet."""
    del op
    ctx.b.barrier()
