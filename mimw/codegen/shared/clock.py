"""What code may do with the clock on every target: each thread reads its own, so nothing that all threads decide together may depend on it."""

from __future__ import annotations

from typing import Any

from mimw.diagnostics import CompilationError, Note
from mimw.ir.core import OpBase, Value
from mimw.ir.ops.control import ForOp, IfOp, WhileOp


def check_decides_nothing(clock: Any) -> None:
    """Refuse a clock that reaches a condition or a loop's bounds, through arithmetic and carried values."""
    todo: list[Value] = [clock.result]
    seen = {clock.result}
    while todo:
        v = todo.pop()
        for user in dict.fromkeys(v.users):
            if _decides(user, v):
                raise CompilationError(
                    "unsupported",
                    "a condition depends on the clock, which each thread reads for itself",
                    user.loc,
                    notes=[Note("the clock is read here", clock.loc)],
                    hint="store the difference of two readings, or print it",
                )
            found = [w for w in _carries(user) if w not in seen]
            seen.update(found)
            todo += found


def _decides(user: OpBase, v: Value) -> bool:
    if isinstance(user, IfOp):
        return True
    if isinstance(user, ForOp) and v in user.operands[:3]:
        return True
    above = user.parent.parent_op if user.parent is not None else None
    condition = isinstance(above, WhileOp) and above.condition.block is user.parent
    return condition and user.spec.terminator


def _carries(user: OpBase) -> list[Value]:
    """The values that may carry what an op takes: its results, a loop's arguments, what a terminator gives to the op around it."""
    out = list(user.results)
    for region in user.regions:
        out += region.block.args
    if user.spec.terminator and user.parent is not None and user.parent.parent_op is not None:
        above = user.parent.parent_op
        out += above.results
        for region in above.regions:
            out += region.block.args
    return out
