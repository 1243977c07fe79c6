"""Loops: unrolled at compile time (tuples, static_range), or run-time `control.for` and `control.while`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mimw.diagnostics import Note
from mimw.frontend import scope
from mimw.frontend.carried import Attempt, close_edges, finish, first_guess, initial_values, repeat, unchanged
from mimw.frontend.conditions import truth
from mimw.frontend.expressions import iterable
from mimw.frontend.regions import convert
from mimw.frontend.scope import Context, Deferred, Edge, Key, Undefined
from mimw.frontend.statements import assign_target
from mimw.frontend.tracer import Flow, Tracer
from mimw.ir.core import OpBase, Region, Value
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, UnreachableOp, WhileOp, YieldOp
from mimw.ir.types import I1, I32, DType, Type
from mimw.language import control, promotion, semantic
from mimw.language.core import explain, tensor
from mimw.language.errors import fail


def visit_break(t: Tracer, node: ast.Break) -> Flow:
    return _leave(t, node, Flow.BREAK)


def visit_continue(t: Tracer, node: ast.Continue) -> Flow:
    return _leave(t, node, Flow.CONTINUE)


def _leave(t: Tracer, node: ast.stmt, flow: Flow) -> Flow:
    word = "break" if flow is Flow.BREAK else "continue"
    under_if = False
    for context in reversed(t.frame.contexts):
        if context.kind == "if":
            under_if = True
        elif context.kind == "static":
            if under_if:
                t.error(
                    "dynamic-exit-of-unrolled-loop",
                    f"{word} under a run-time condition inside a loop that is unrolled",
                    node,
                    "loop with range() or ml.range(), which run on the device",
                    [Note("the unrolled loop", context.loc)],
                )
            return flow
        elif context.kind == "task":
            t.error("unsupported-syntax", f"{word} out of a task", node, None, [Note("the task", context.loc)])
        else:
            op = BreakOp([], loc=t.builder.loc) if flow is Flow.BREAK else ContinueOp([], loc=t.builder.loc)
            context.edges.append(t.terminate(word, op))
            return Flow.LEFT
    return t.error("unsupported-syntax", f"{word} outside a loop", node)


# Unrolled loops.


def unroll(t: Tracer, node: ast.For, items: list[Any]) -> Flow:
    """A loop over constants: the body once for each item."""
    for item in items:
        assign_target(t, node.target, item)
        t.frame.contexts.append(Context("static", t.builder.loc))
        flow = t.body(node.body)
        t.frame.contexts.pop()
        if flow is Flow.BREAK:
            return Flow.NEXT
        if flow in (Flow.RETURN, Flow.LEFT):
            return flow
    return t.body(node.orelse)


# for.


def _refuse_else(t: Tracer, node: ast.For | ast.While) -> None:
    if node.orelse:
        hint = "set a flag before break and test it after the loop"
        t.error("unsupported-syntax", "else on a run-time loop", node.orelse[0], hint)


def visit_for(t: Tracer, node: ast.For) -> Flow:
    it = t.expr(node.iter)
    if isinstance(it, range):
        it = control.range(it.start, it.stop, it.step)
    if not isinstance(it, control.range):
        return unroll(t, node, iterable(t, it, node.iter))
    if it.warp_specialize:
        t.remark(
            "tasks",
            "warp_specialize changes nothing: all warps run this loop; write tasks to part the work (docs/mimw.md)",
        )
    _refuse_else(t, node)
    if not isinstance(node.target, ast.Name):
        t.error("unpack", "the items of a range are single integers", node.target)
    return _dynamic_for(t, node, it, node.target)


def _bounds(t: Tracer, it: control.range, node: ast.For) -> tuple[Value, Value, Value]:
    """Start, stop, step as values of one integer type: i32, or wider when one of them is."""
    items = [it.start, it.stop, it.step]
    d: DType | None = None
    for x, word in zip(items, ("start", "stop", "step"), strict=True):
        if isinstance(x, tensor):
            own = x.value.type
            if not isinstance(own, DType) or own.is_floating():
                t.error("range-type", f"the {word} of a range is an integer scalar, not {own}", node.iter)
            own = promotion.promote(own, I32) if own is I1 or own.bits < 32 else own
        elif isinstance(x, bool) or not isinstance(x, int):
            t.error("range-type", f"the {word} of a range is an integer, not {explain(x)}", node.iter)
        else:
            continue
        d = own if d is None else promotion.promote(d, own)
    if not isinstance(it.step, tensor) and it.step == 0:
        t.error("range-type", "the step of a range is 0", node.iter)
    for x in items:
        if not isinstance(x, tensor) and (d is None or not scope.fits(x, d)):
            own = promotion.number_dtype(x)
            d = own if d is None else promotion.promote(d, own)
    assert d is not None
    values = [semantic.cast(x.value, d) if isinstance(x, tensor) else t.builder.constant(x, d) for x in items]
    return values[0], values[1], values[2]


def _dynamic_for(t: Tracer, node: ast.For, it: control.range, target: ast.Name) -> Flow:
    if (
        all(isinstance(x, int) for x in (it.start, it.stop, it.step))
        and it.step
        and not len(range(it.start, it.stop, it.step))
    ):
        return Flow.NEXT  # never runs; Python would not look at the body either
    name = target.id
    lower, upper, step = _bounds(t, it, node)
    loc = t.builder.loc
    base = t.capture()
    carried = first_guess(t, base, node.body, {name})
    regions: list[Region] = []

    def once() -> Attempt:
        region = t.region()
        regions[:] = [region]
        context = Context("loop", loc)
        region.block.add_arg(lower.type, name)
        bound = carried.enter(t, region.block)
        t.frame.contexts.append(context)
        with t.builder.at(region.block):
            t.assign(name, tensor(region.block.args[0]), target)
            flow = t.body(node.body)
            if flow is not Flow.LEFT:
                op = YieldOp([], loc=loc)
                context.edges.append(t.terminate("yield", op))
        t.frame.contexts.pop()
        t.restore(base)
        return Attempt([bound], context.edges)

    attempt = repeat(t, node, carried, {name}, once)
    close_edges(t, carried, attempt.edges)
    inits = initial_values(t, carried)
    op = t.builder.insert(ForOp(lower, upper, step, inits, regions[0], it.num_stages, it.unroll, loc=loc))
    t.attach(regions)
    finish(t, carried, op, attempt.edges)
    t.frame.names[name] = _last_index(t, op, base.slots.get(name), attempt.edges, name)
    t.frame.assigned[name] = t.loc(target)
    return Flow.NEXT


def _last_index(t: Tracer, op: ForOp, before: Any, edges: list[Edge], name: str) -> Deferred:
    """The loop variable after the loop: carried only if something reads it. Without a trip it keeps its value, or
    is the start.
    """

    def make() -> tensor:
        ty = op.lower.type
        init = op.lower
        before_now = scope.settle(before)
        if before_now is not None and not isinstance(before_now, Undefined):
            if not scope.fits(before_now, ty):
                fail(
                    "carried-type",
                    f"{name} is {scope.type_name(before_now)} before the loop and {ty} in it",
                    "rename one of them",
                )
            if isinstance(before_now, tensor):
                init = _outside(t, op, before_now, ty)
            else:
                init = _before(t, op, lambda: t.builder.constant(before_now, ty))
        op.append_operands([init])
        op.body.block.add_arg(ty)
        for e in edges:
            value = scope.settle(e.state.slots[name])
            assert e.terminator is not None
            saved = t.builder.block, t.builder.anchor
            t.builder.block, t.builder.anchor = e.block, e.terminator
            v = value.value if isinstance(value, tensor) and value.value.type is ty else None
            if v is None:
                if not scope.fits(value, ty):
                    fail(
                        "carried-type",
                        f"{name} is {ty} as loop variable and {scope.type_name(value)} after an assignment",
                    )
                v = convert(t, value, ty)
            t.builder.block, t.builder.anchor = saved
            e.terminator.append_operands([v])
        return tensor(op.add_result(ty, name))

    return Deferred(make)


def _before(t: Tracer, op: OpBase, make: Callable[[], Value]) -> Value:
    saved = t.builder.block, t.builder.anchor
    assert op.parent is not None
    t.builder.block, t.builder.anchor = op.parent, op
    out = make()
    t.builder.block, t.builder.anchor = saved
    return out


def _outside(t: Tracer, op: OpBase, x: tensor, ty: Type) -> Value:
    return x.value if x.value.type is ty else _before(t, op, lambda: convert(t, x, ty))


# while.


def visit_while(t: Tracer, node: ast.While) -> Flow:
    _refuse_else(t, node)
    if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
        t.error(
            "unsupported-syntax",
            "':=' in the condition of a while",
            node.test,
            "assign before the loop and at the end of its body",
        )
    loc = t.builder.loc
    base = t.capture()
    carried = first_guess(t, base, node.body, set())
    regions: list[Region] = []
    never = endless = False
    mark = t.mark()

    def once() -> Attempt:
        nonlocal never, endless
        condition, body = t.region(), t.region()
        regions[:] = [condition, body]
        first = carried.enter(t, condition.block)
        before = t.capture().slots
        with t.builder.at(condition.block):
            test = truth(t, t.expr(node.test), "while")
            never = test is False
            endless = test is True
            if isinstance(test, bool):
                test = t.builder.constant(test, I1)
            t.builder.insert(YieldOp([test], loc=loc))
        _refuse_changes(t, before, node)
        t.restore(base)
        if never:
            return Attempt([first], [])
        context = Context("loop", loc)
        bound = carried.enter(t, body.block)
        t.frame.contexts.append(context)
        with t.builder.at(body.block):
            flow = t.body(node.body)
            if flow is not Flow.LEFT:
                context.edges.append(t.terminate("yield", YieldOp([], loc=loc)))
        t.frame.contexts.pop()
        t.restore(base)
        return Attempt([first, bound], context.edges)

    attempt = repeat(t, node, carried, set(), once)
    if never:
        t.rollback(mark)
        return Flow.NEXT
    close_edges(t, carried, attempt.edges)
    inits = initial_values(t, carried)
    op = t.builder.insert(WhileOp(inits, regions[0], regions[1], loc=loc))
    t.attach(regions)
    finish(t, carried, op, attempt.edges)
    if endless and not any(e.kind == "break" for e in attempt.edges):
        t.builder.insert(UnreachableOp(loc=loc))
        return Flow.LEFT
    return Flow.NEXT


def _refuse_changes(t: Tracer, before: dict[Key, Any], node: ast.While) -> None:
    """The condition's own region hands nothing but its truth value on: it must not assign fields of records."""
    after = t.capture().slots
    for key, v in before.items():
        if isinstance(key, tuple) and not unchanged(v, after[key]):
            hint = "compute it before the loop and at the end of its body"
            t.error("unsupported-syntax", f"the condition of a while assigns {t.slot_name(key)}", node.test, hint)


LOOPS: dict[type[ast.AST], Callable[[Tracer, Any], Flow]] = {
    ast.For: visit_for,
    ast.While: visit_while,
    ast.Break: visit_break,
    ast.Continue: visit_continue,
}
