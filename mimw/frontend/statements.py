"""Statements other than loops: assignment, branches, return, assert, expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mimw.diagnostics import Note
from mimw.frontend import regions, scope
from mimw.frontend.conditions import truth
from mimw.frontend.expressions import apply_binary, get_attribute, is_constant, iterable
from mimw.frontend.tracer import Flow, NeedsRegion, Tracer
from mimw.ir.ops.control import ReturnOp
from mimw.language import debug
from mimw.language.core import constexpr, explain, tensor


def visit_expr(t: Tracer, node: ast.Expr) -> Flow:
    if isinstance(node.value, ast.Constant):
        return Flow.NEXT  # a docstring, or ...
    t.expr(node.value)
    return Flow.NEXT


def visit_pass(t: Tracer, node: ast.Pass) -> Flow:
    return Flow.NEXT


def visit_assign(t: Tracer, node: ast.Assign) -> Flow:
    value = t.expr(node.value)
    for target in node.targets:
        assign_target(t, target, value)
    return Flow.NEXT


def assign_target(t: Tracer, target: ast.expr, value: Any) -> None:
    """Bind a value to a name, a tuple of targets, or a record's field."""
    if isinstance(target, ast.Name):
        t.assign(target.id, value, target)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for e in target.elts:
            if isinstance(e, ast.Starred):
                t.error("unsupported-syntax", "a starred target", e, "name each part, or index the tuple")
        items = iterable(t, value, target)
        if len(items) != len(target.elts):
            t.error("unpack", f"{len(items)} values for {len(target.elts)} names", target)
        for e, v in zip(target.elts, items, strict=True):
            assign_target(t, e, v)
    elif isinstance(target, ast.Attribute):
        _assign_field(t, target, value)
    elif isinstance(target, ast.Subscript):
        t.error(
            "unsupported-syntax",
            "assignment to an element",
            target,
            "tiles and tuples do not change; use ml.where, or ml.store to memory",
        )
    else:
        t.error("unsupported-syntax", f"assignment to {type(target).__name__}", target)


def _assign_field(t: Tracer, target: ast.Attribute, value: Any) -> None:
    obj = t.expr(target.value)
    if not scope.is_dataclass(obj):
        hint = "make it a dataclass (not frozen); a NamedTuple is changed with _replace"
        t.error("bad-assignment", f"fields of {explain(obj)} cannot be assigned", target, hint)
    cls = scope.class_of(obj)
    if target.attr not in cls.__dataclass_fields__:
        t.error("unknown-attribute", f"{type(obj).__name__} has no field {target.attr}", target)
    if cls.__dataclass_params__.frozen:
        t.error(
            "bad-assignment",
            f"{type(obj).__name__} is a frozen dataclass",
            target,
            "make a new one, or leave frozen=True away",
        )
    torn = t.torn.place(obj)
    if torn is not None:
        t.error(
            "aliased-record",
            f"{target.attr} is assigned in a record that may be, or not, the one that another name holds",
            target,
            "make a new record instead of a second name for one",
            [Note("here a name was bound to one of several records at run time", torn)],
        )
    t.adopt(obj)
    object.__setattr__(obj, target.attr, value)
    t.frame.assigned[(id(obj), target.attr)] = t.loc(target)
    if isinstance(value, tensor):
        if not value.value.name:
            value.value.name = target.attr
    else:
        t.adopt(value)


def visit_annassign(t: Tracer, node: ast.AnnAssign) -> Flow:
    if node.value is None:
        return Flow.NEXT
    value = t.expr(node.value)
    annotation = t.expr(node.annotation) if isinstance(node.annotation, (ast.Name, ast.Attribute)) else None
    if annotation is constexpr and not is_constant(value):
        t.error("constexpr-needed", f"an ml.constexpr is assigned {explain(value)}", node.value)
    assign_target(t, node.target, value)
    return Flow.NEXT


def visit_augassign(t: Tracer, node: ast.AugAssign) -> Flow:
    target = node.target
    if isinstance(target, ast.Name):
        left = t.expr(ast.copy_location(ast.Name(target.id, ast.Load()), target))
    elif isinstance(target, ast.Attribute):
        left = get_attribute(t, t.expr(target.value), target.attr, target)
    else:
        t.error(
            "unsupported-syntax",
            "assignment to an element",
            target,
            "tiles and tuples do not change; use ml.where, or ml.store to memory",
        )
    assign_target(t, target, apply_binary(t, type(node.op), left, t.expr(node.value), node))
    return Flow.NEXT


def visit_if(t: Tracer, node: ast.If) -> Flow:
    cond = t.expr(node.test)
    known = truth(t, cond, "if")
    if isinstance(known, bool):
        return t.body(node.body if known else node.orelse)
    return regions.branch(t, known, lambda: t.body(node.body), lambda: t.body(node.orelse), True)


def visit_return(t: Tracer, node: ast.Return) -> Flow:
    frame = t.frame
    for context in frame.contexts:
        if context.kind == "task":
            hint = "put the rest of the body under if"
            t.error("return-in-task", "return inside a task", node, hint, [Note("the task", context.loc)])
    value = None if node.value is None else t.expr(node.value)
    if frame.site is None:
        if value is not None:
            t.error(
                "kernel-returns",
                "a kernel that is launched returns nothing",
                node,
                "store the result through a pointer",
            )
        t.builder.insert(ReturnOp([], loc=t.builder.loc))
        return Flow.LEFT
    if frame.inlined is None:
        if any(c.kind != "static" for c in frame.contexts):
            raise NeedsRegion(frame)
        frame.returned = value
        return Flow.RETURN
    frame.inlined.append(t.terminate("return", ReturnOp([], loc=t.builder.loc), value))
    return Flow.LEFT


def visit_assert(t: Tracer, node: ast.Assert) -> Flow:
    cond = t.expr(node.test)
    message = "" if node.msg is None else t.expr(node.msg)
    if isinstance(cond, tensor):
        debug.device_assert(cond, message)
    elif not truth(t, cond, "assert"):
        t.error("static-assert", f"assertion failed: {message}" if message else "assertion failed", node)
    return Flow.NEXT


STATEMENTS: dict[type[ast.AST], Callable[[Tracer, Any], Flow]] = {
    ast.Expr: visit_expr,
    ast.Pass: visit_pass,
    ast.Assign: visit_assign,
    ast.AnnAssign: visit_annassign,
    ast.AugAssign: visit_augassign,
    ast.If: visit_if,
    ast.Return: visit_return,
    ast.Assert: visit_assert,
}
