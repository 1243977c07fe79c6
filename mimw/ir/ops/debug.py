"""Printing and assertions at run time, and the clock."""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result, variadic
from mimw.ir.types import I1, I64, Type, element_of


@op("debug.device_print", effects=[Effect("debug", "write")])
class DevicePrintOp(Op):
    """Print `prefix` and the operands' elements, one line an element, each with program id and index."""

    values: list[Value] = variadic()
    prefix: str = attr()
    hex: bool = attr_default(default=False)


@op("debug.device_assert", effects=[Effect("debug", "write")])
class DeviceAssertOp(Op):
    """Stop the kernel with `message` when a condition element is false (where `mask` is true)."""

    cond: Value = operand()
    mask: Value | None = optional()
    message: str = attr()

    def infer(self) -> list[Type]:
        if element_of(self.cond.type) is not I1:
            raise ValueError(f"device_assert takes i1, not {self.cond.type}")
        return []


@op("debug.clock", effects=[Effect("debug", "write")], layout="none")
class ClockOp(Op):
    """A counter that goes up (i64): cycles of the multiprocessor on a GPU, where each thread reads its own; ticks without a unit in the
    tile simulator. No condition may depend on it."""

    result: Value = result()

    def infer(self) -> list[Type]:
        return [I64]
