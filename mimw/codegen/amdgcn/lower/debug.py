"""Run-time assertions and the clock on AMD. Printing itself is the shared lowering's: `builder.printing` writes what it shows.

A wave that fails an assertion leaves a record, counts itself, and sets the CTA's *mark*, a word of shared memory. Then the waves of the task
meet, look at the mark, and end if it is set, so that none comes to what the assertion protects. Waves of other tasks end where they wait next
(`watch`). The kernel ends in order, the context lives on, and the launch raises: a trap would abort the whole process.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower import watch
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import WARP, Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared.clock import check_decides_nothing
from mimw.codegen.shared.debug import tell_failures
from mimw.ir.types import I64


@lowers("debug.device_assert", target="amd")
def lower_device_assert(ctx: Lowering, op: Any) -> None:
    """Tell of the failures, then end the task's waves if there are any."""
    b = amdgcn_builder(ctx)
    failed = tell_failures(ctx, op)
    watch.mark(ctx, failed)
    b.barrier()
    watch.end_if_marked(ctx)


@lowers("debug.clock", target="amd")
def lower_clock(ctx: Lowering, op: Any) -> None:
    """s_memtime: cycles of the wave's compute unit."""
    check_decides_nothing(op)
    b = amdgcn_builder(ctx)
    ticks = b.reg("s64")
    b.emit("s_memtime", [ticks], 1)
    ctx.set(op.result, [Lane(I64, ticks, uniform=WARP)])
