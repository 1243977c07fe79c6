"""The pass: looks at every barrier's uses (`static`), then plays the tasks' barrier operations through (`play`). Changes nothing.

What is wrong for certain is an error; what only looks wrong is a warning (`warn`), most of them by `suspects`. Stands after `task_partition` (it needs the
numbers of named barriers, and tasks that compute their own scalars) and before buffers get layouts.
"""

from __future__ import annotations

from mimw.ir.core import Module
from mimw.ir.ops.async_copy import TmaStoreOp
from mimw.ir.ops.barrier import BarrierAllocOp, NamedArriveOp, NamedWaitOp
from mimw.passes.protocol import play, static, suspects
from mimw.target import Target

NAME = "protocol"


def run(module: Module, target: Target) -> None:
    """Raise `CompilationError` at the first thing that cannot work."""
    fn = module.function
    if not any(isinstance(op, (BarrierAllocOp, NamedWaitOp, NamedArriveOp, TmaStoreOp)) for op in fn.walk()):
        return
    static.check(module)
    play.check(fn)
    suspects.check(module)
