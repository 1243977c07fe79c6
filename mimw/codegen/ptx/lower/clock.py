"""Lowering of the clock: a special register."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import LANE, Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Reg, Special
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.clock import check_decides_nothing
from mimw.ir.types import I64


@lowers("debug.clock", target="nvidia")
def lower_clock(ctx: Lowering, op: Any) -> None:
    """%clock64."""
    check_decides_nothing(op)
    reg = Reg("b64", "clock")
    ptx_builder(ctx).emit("mov.u64", [reg, Special("%clock64")], 1)
    ctx.set(op.result, [Lane(I64, reg, uniform=LANE)])
