"""Control flow: structured loops and branches, and the program's place in the grid.

Bodies end in `yield`, `break`, `continue` or `return`, at any `if` depth:

- `yield` gives an `if` its results, a loop body its next carried values, a combine function its result.
- `break` leaves the innermost loop with the loop's results; `continue` goes on with the next carried values.
- `return` leaves the innermost `control.inlined` with its results, or the kernel (no values).

An `if` whose two sides both leave (break, continue, return) has no results and nothing runs after it in its block; the block
still ends in a terminator: `control.unreachable`. All conditions and bounds are scalars, so the whole CTA takes one way.
"""

from __future__ import annotations

from mimw.ir.core import Region, Value
from mimw.ir.opdef import Op, attr, attr_default, op, operand, region, result, results, variadic
from mimw.ir.types import I1, I32, DType, Type


@op("control.program_id", layout="none")
class ProgramIdOp(Op):
    """The CTA's index in the grid along `axis` (0, 1, 2), i32."""

    axis: int = attr(choices=(0, 1, 2))
    result: Value = result()

    def infer(self) -> list[Type]:
        return [I32]


@op("control.num_programs", layout="none")
class NumProgramsOp(Op):
    """The grid's size along `axis`, i32."""

    axis: int = attr(choices=(0, 1, 2))
    result: Value = result()

    def infer(self) -> list[Type]:
        return [I32]


@op("control.for")
class ForOp(Op):
    """for iv in range(lower, upper, step) with carried values.

    The body's block arguments are iv and the carried values; results are the carried values after the last trip (or those of a
    `break`). The step is not zero and may be negative. `num_stages` asks for software pipelining (0: the kernel's default),
    `unroll` for a factor.
    """

    lower: Value = operand()
    upper: Value = operand()
    step: Value = operand()
    inits: list[Value] = variadic()
    body: Region = region()
    num_stages: int = attr_default(default=0)
    unroll: int = attr_default(default=1)
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        t = self.lower.type
        if (
            not isinstance(t, DType)
            or t.kind not in ("int", "uint")
            or self.upper.type is not t
            or self.step.type is not t
        ):
            raise ValueError(f"for: bounds {t}, {self.upper.type}, {self.step.type} are not one integer type")
        return [v.type for v in self.inits]


@op("control.while")
class WhileOp(Op):
    """while condition: body. Both regions take the carried values; `condition` yields one i1, `body` the next carried values."""

    inits: list[Value] = variadic()
    condition: Region = region()
    body: Region = region()
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        return [v.type for v in self.inits]


@op("control.if")
class IfOp(Op):
    """Run `then` or `orelse`. `types` are the result types, yielded by each side that does not leave."""

    cond: Value = operand()
    then: Region = region()
    orelse: Region = region()
    types: tuple[Type, ...] = attr_default(default=())
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        if self.cond.type is not I1:
            raise ValueError(f"if: the condition is {self.cond.type}, not i1")
        return list(self.types)


@op("control.inlined")
class InlinedOp(Op):
    """The body of an inlined function that returns from inside branches or loops; `return` gives the results."""

    body: Region = region()
    types: tuple[Type, ...] = attr_default(default=())
    callee: str = attr_default(default="")
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        return list(self.types)


@op("control.yield", terminator=True, layout="none")
class YieldOp(Op):
    """Hand values to the op around."""

    values: list[Value] = variadic()


@op("control.break", terminator=True, layout="none")
class BreakOp(Op):
    """Leave the innermost loop; the values are the loop's results."""

    values: list[Value] = variadic()


@op("control.continue", terminator=True, layout="none")
class ContinueOp(Op):
    """Next trip of the innermost loop with these carried values."""

    values: list[Value] = variadic()


@op("control.return", terminator=True, layout="none")
class ReturnOp(Op):
    """Leave the innermost `control.inlined` with its results, or the kernel."""

    values: list[Value] = variadic()


@op("control.unreachable", terminator=True, layout="none")
class UnreachableOp(Op):
    """Nothing comes here: the op before left on every path."""
