"""Lowerings of run-time assertions. Printing from the device needs a call into the driver's printf, which is not there yet."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane_builder import Lane
from mimw.codegen.lowering import ANY, Lowering, layout_of, lowers, unsupported
from mimw.ir.types import I1, TensorType

unsupported(
    "debug.device_print",
    ANY,
    "printing from the device is not there yet; run the kernel on NumPy arrays, where the tile simulator prints",
)


@lowers("debug.device_assert")
def lower_device_assert(ctx: Lowering, op: Any) -> None:
    """Trap in the threads that hold a false element."""
    b = ctx.b
    conditions = ctx.tile(op.cond)
    mask = ctx.tile(op.mask) if op.mask is not None else None
    inside = ctx.holes(layout_of(op.cond), op.cond.type.shape) if isinstance(op.cond.type, TensorType) else None
    failed: Lane | None = None
    for r, condition in enumerate(conditions):
        wrong = b.invert(condition)
        if mask is not None:
            wrong = b.op("and", I1, wrong, mask[r])
        guard = inside(r) if inside is not None else None
        if guard is not None:
            wrong = b.op("and", I1, wrong, guard)
        failed = wrong if failed is None else b.op("or", I1, failed, wrong)
    assert failed is not None
    b.trap(failed, f"device_assert: {op.message}")
