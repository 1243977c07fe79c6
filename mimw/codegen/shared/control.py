"""Lowerings of control flow: loops, branches, inlined bodies, and their exits, to blocks with parameters.

A carried tile is one parameter a register; integers and pointers that share a register and differ by constants, in and out of the
loop, are carried once.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, lowers


@lowers("control.return")
def lower_return(ctx: Lowering, op: Any) -> None:
    """Leave the innermost inlined body, or the kernel."""
    if not ctx.returns:
        ctx.leave()
        return
    frame = ctx.returns[-1]
    frame.reached = True
    ctx.jump(frame.block, frame.carry.arguments(ctx, op.values))
