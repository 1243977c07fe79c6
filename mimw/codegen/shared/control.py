"""Lowerings of control flow: loops, branches, inlined bodies and their exits, to blocks with parameters.

Which parameters a value takes there is `carried_values.py`'s.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, LANE, Lane, is_integer
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Frame, Lowering, lowers, refuse
from mimw.codegen.machine import Block, Edge, Imm, Reg
from mimw.codegen.shared.carried_values import Carry, loop_exits, shared_bases
from mimw.diagnostics import InternalError
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Value
from mimw.ir.types import (
    I32,
    U32,
    U64,
    BarrierType,
    DType,
    InflightType,
    MemDescType,
)

# ----------------------------------------------------------------------------------------------------------------------- regions


def run_region(ctx: Lowering, block: IrBlock) -> list[Value] | None:
    """Lower a region's ops; the values that it yields, or None when it leaves otherwise (break, continue, return)."""
    ops = block.ops
    for op in ops[:-1]:
        ctx.lower(op)
        if not ctx.live:
            return None
    last = ops[-1]
    if last.name == "control.yield":
        return list(last.operands)
    ctx.lower(last)
    return None


def _to_frame(ctx: Lowering, frame: Frame, values: list[Value]) -> None:
    frame.reached = True
    ctx.jump(frame.block, frame.carry.arguments(ctx, values))


@lowers("control.break")
def lower_break(ctx: Lowering, op: Any) -> None:
    """Leave the innermost loop."""
    _to_frame(ctx, ctx.breaks[-1], op.values)


@lowers("control.continue")
def lower_continue(ctx: Lowering, op: Any) -> None:
    """Next trip of the innermost loop."""
    _to_frame(ctx, ctx.continues[-1], op.values)


@lowers("control.return")
def lower_return(ctx: Lowering, op: Any) -> None:
    """Leave the innermost inlined body, or the kernel."""
    if ctx.returns:
        _to_frame(ctx, ctx.returns[-1], op.values)
    else:
        ctx.leave()


@lowers("control.unreachable")
def lower_unreachable(ctx: Lowering, op: Any) -> None:
    """Nothing comes here."""
    ctx.leave()


@lowers("control.if")
def lower_if(ctx: Lowering, op: Any) -> None:
    """Two ways, one block after them."""
    b = ctx.b
    cond = ctx.scalar(op.cond)
    regions = [r.block for r in op.regions]
    if cond.reg is None:
        values = run_region(ctx, regions[0 if cond.off else 1])
        if values is not None:
            for result, value in zip(op.outs, values, strict=True):
                alias(ctx, result, value)
        return
    if cond.uniform == LANE and not b.branches_diverge:
        _run_both(ctx, op, cond, regions)
        return
    carry = Carry(ctx, [r.type for r in op.outs], [r.name for r in op.outs], [None] * len(op.outs))
    merge = Block("endif", carry.params)
    sides = [Block("then"), Block("else")]
    empty = [len(r.ops) == 1 and r.ops[0].name == "control.yield" for r in regions]
    edges: list[Edge] = []
    for side, region, trivial in zip(sides, regions, empty, strict=True):
        edges.append(Edge(merge, carry.arguments(ctx, list(region.ops[0].operands))) if trivial else Edge(side, []))
    ctx.branch(cond, edges[0], edges[1])
    reached = any(empty)
    for side, region, trivial in zip(sides, regions, empty, strict=True):
        if trivial:
            continue
        b.open_scope()
        ctx.place(side)
        values = run_region(ctx, region)
        if values is not None:
            reached = True
            ctx.jump(merge, carry.arguments(ctx, values))
        b.close_scope()
    if reached:
        ctx.place(merge)
        carry.bind(ctx, op.outs)
    else:
        ctx.live = False


def _run_both(ctx: Lowering, op: Any, cond: Lane, regions: list[IrBlock]) -> None:
    """Both sides, and each lane takes its own results: in combine functions, which touch no memory."""
    sides = [run_region(ctx, region) for region in regions]
    if sides[0] is None or sides[1] is None:
        raise refuse(op, ctx.target, "lanes of a warp would leave a combine function at different places")
    for result, yes, no in zip(op.outs, sides[0], sides[1], strict=True):
        ctx.set(result, [ctx.b.select(cond, x, y) for x, y in zip(ctx.tile(yes), ctx.tile(no), strict=True)])


def alias(ctx: Lowering, result: Value, value: Value) -> None:
    """Let a result be another value."""
    if isinstance(value.type, (MemDescType, BarrierType)):
        ctx.shared[result] = ctx.shared[value]
    elif isinstance(value.type, InflightType):
        ctx.inflight[result] = ctx.inflight[value]
    else:
        ctx.set(result, ctx.tile(value))


@lowers("control.inlined")
def lower_inlined(ctx: Lowering, op: Any) -> None:
    """The body; its returns go to the block after it."""
    b = ctx.b
    carry = Carry(ctx, [r.type for r in op.outs], [r.name for r in op.outs], [None] * len(op.outs))
    frame = Frame(Block("return", carry.params), carry)
    saved = ctx.breaks, ctx.continues
    ctx.breaks, ctx.continues = [], []
    ctx.returns.append(frame)
    b.open_scope()
    ctx.run_block(op.body.block)
    b.close_scope()
    ctx.returns.pop()
    ctx.breaks, ctx.continues = saved
    if frame.reached:
        ctx.place(frame.block)
        carry.bind(ctx, op.outs)
    else:
        ctx.live = False


# ------------------------------------------------------------------------------------------------------------------------- loops


class Trips:
    """How a `for` counts: whether it runs at all, the first counter, and the step at the end of a trip."""

    __slots__ = ("counted", "limit", "lower", "runs", "step")

    def __init__(self, ctx: Lowering, lower: Lane, upper: Lane, step: Lane) -> None:
        b = ctx.b
        self.lower = lower
        self.step = step
        self.counted: Lane | None = None
        self.limit: Lane | None = None
        if step.reg is None and lower.dtype is I32:
            self.runs = b.compare("lt" if step.off > 0 else "gt", lower, upper)
            if upper.reg is None:
                self.limit = b.const(I32, max(-(1 << 31), min((1 << 31) - 1, upper.off - step.off)))
            else:
                self.limit = b.op("subsat", I32, upper, step)
        else:
            self.runs, self.counted = _trip_count(b, lower, upper, step)

    def next(self, b: LaneBuilder, iv: Lane, left: Lane | None) -> tuple[Lane, Lane, Lane | None]:
        """(whether another trip follows, its induction value, trips left after it)."""
        again = b.plus(iv, self.step.off) if self.step.reg is None and is_integer(iv.dtype) else b.add(iv, self.step)
        if left is None:
            assert self.limit is not None
            return b.compare("lt" if self.step.off > 0 else "gt", iv, self.limit), again, None
        return (
            b.compare("gt", left, b.const(left.dtype, 1)),
            again,
            b.op("sub", left.dtype, left, b.const(left.dtype, 1)),
        )


def _trip_count(b: LaneBuilder, lower: Lane, upper: Lane, step: Lane) -> tuple[Lane, Lane]:
    """(runs at all, number of trips as unsigned): no sum here can wrap, whatever the bounds."""
    dtype = lower.dtype
    assert isinstance(dtype, DType)
    wide = U64 if dtype.bits == 64 else U32

    def unsigned(x: Lane) -> Lane:
        if dtype.bits >= 32:
            return b.bitcast(x, wide)
        return b.convert("int", x, wide) if x.reg is not None else b.const(wide, x.off)

    up_runs = b.compare("lt", lower, upper)
    distance = b.sub(unsigned(upper), unsigned(lower))
    stride = unsigned(step)
    runs = up_runs
    if dtype.kind == "int":
        up = b.compare("gt", step, b.const(dtype, 0))
        runs = b.select(up, up_runs, b.compare("gt", lower, upper))
        zero = b.const(wide, 0)
        distance = b.select(up, distance, b.sub(zero, distance))
        stride = b.select(up, stride, b.sub(zero, stride))
    count = b.plus(b.op("div", wide, b.plus(distance, -1), stride), 1)
    return runs, count


@lowers("control.for")
def lower_for(ctx: Lowering, op: Any) -> None:
    """A loop that tests at its end; the first test stands before it."""
    b = ctx.b
    iv_arg, *args = op.body.block.args
    trips = Trips(ctx, ctx.scalar(op.lower), ctx.scalar(op.upper), ctx.scalar(op.step))
    types, names = [a.type for a in args], [a.name or r.name for a, r in zip(args, op.outs, strict=True)]
    bases = shared_bases(ctx, op, args)
    carry = Carry(ctx, types, names, bases)
    b.hint = iv_arg.name or "i"
    bounds = (ctx.scalar(v) for v in (op.lower, op.upper, op.step))
    uniform = LANE if ctx.in_combine and any(x.uniform == LANE for x in bounds) else CTA
    iv_reg = b.parameter(iv_arg.type, uniform)
    iv = Lane(iv_arg.type, iv_reg, uniform=uniform)
    head = [iv_reg]
    start: list[Reg | Imm] = [b.jump_argument(trips.lower, iv_reg)]
    left: Lane | None = None
    if trips.counted is not None:
        b.hint = "trips"
        left = Lane(trips.counted.dtype, b.parameter(trips.counted.dtype, uniform), uniform=uniform)
        assert left.reg is not None
        head.append(left.reg)
        start.append(b.jump_argument(trips.counted, left.reg))
    body = Block("loop", [*head, *carry.params])
    body.nounroll = op.unroll == 1
    leave = Carry(ctx, types, [r.name or n for r, n in zip(op.outs, names, strict=True)], bases)
    exit_frame = Frame(Block("endloop", leave.params), leave)
    inits = carry.arguments(ctx, op.inits)
    ctx.branch(trips.runs, Edge(body, [*start, *inits]), Edge(exit_frame.block, leave.arguments(ctx, op.inits)))
    b.open_loop()
    ctx.place(body)
    ctx.set(iv_arg, [iv])
    carry.bind(ctx, args)
    values = _run_body(ctx, op.body.block, exit_frame, lambda: Carry(ctx, types, names, bases))
    if values is not None:
        more, again, rest = trips.next(b, iv, left)
        b.hint = iv_arg.name or "i"
        following: list[Reg | Imm] = [b.jump_argument(again, iv_reg)]
        if rest is not None:
            following.append(b.jump_argument(rest, head[1]))
        following += _carried(ctx, carry, values)
        ctx.branch(more, Edge(body, following), Edge(exit_frame.block, _carried(ctx, leave, values)))
    b.close_loop()
    ctx.place(exit_frame.block)
    leave.bind(ctx, op.outs)


def _carried(ctx: Lowering, carry: Carry, values: list[Value] | Carry) -> list[Reg | Imm]:
    """Arguments from IR values, or from the parameters of another carry of the same shape."""
    if isinstance(values, Carry):
        return [p for s in values.slots for p in s.params]
    return carry.arguments(ctx, values)


def _run_body(ctx: Lowering, block: IrBlock, exit_frame: Frame, make: Any) -> list[Value] | Carry | None:
    """Lower a loop's body with its exits; the next carried values, as IR values or parameters of the latch."""
    continues = _has_continue(block)
    latch = make() if continues else None
    frame = Frame(Block("continue", latch.params if latch is not None else []), latch)
    ctx.breaks.append(exit_frame)
    ctx.continues.append(frame)
    values = run_region(ctx, block)
    ctx.breaks.pop()
    ctx.continues.pop()
    if not frame.reached:
        return values
    if values is not None:
        ctx.jump(frame.block, frame.carry.arguments(ctx, values))
    ctx.place(frame.block)
    return frame.carry


def _has_continue(block: IrBlock) -> bool:
    found: dict[str, list[list[Value]]] = {"control.continue": [], "control.break": []}
    loop_exits(block, found)
    return bool(found["control.continue"])


@lowers("control.while")
def lower_while(ctx: Lowering, op: Any) -> None:
    """The condition stands in the loop's head."""
    b = ctx.b
    args = op.body.block.args
    types, names = [a.type for a in args], [a.name or r.name for a, r in zip(args, op.outs, strict=True)]
    bases = shared_bases(ctx, op, args)
    carry = Carry(ctx, types, names, bases)
    head = Block("while", carry.params)
    head.nounroll = True
    leave = Carry(ctx, types, [r.name or n for r, n in zip(op.outs, names, strict=True)], bases)
    exit_frame = Frame(Block("endwhile", leave.params), leave)
    ctx.jump(head, carry.arguments(ctx, op.inits))
    b.open_loop()
    ctx.place(head)
    condition = op.condition.block
    carry.bind(ctx, condition.args)
    carry.bind(ctx, args)
    found = run_region(ctx, condition)
    if found is None:
        raise InternalError("the condition of a while does not yield", op.loc)
    body = Block("body")
    ctx.branch(ctx.scalar(found[0]), Edge(body, []), Edge(exit_frame.block, leave.arguments(ctx, list(args))))
    ctx.place(body)
    values = _run_body(ctx, op.body.block, exit_frame, lambda: Carry(ctx, types, names, bases))
    if values is not None:
        ctx.jump(head, _carried(ctx, carry, values))
    b.close_loop()
    ctx.place(exit_frame.block)
    leave.bind(ctx, op.outs)
