"""Functions that a kernel defines inside itself: lambdas and nested `def`s, for `ml.reduce` and its kin, or to be called.

As in Python they see the names of the function around them as these are when they are called. They are traced in place, as kernels that are
called are. What a combine function computes with from outside of it is not checked here: that is the reduction's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from mimw.frontend.scope import Frame
from mimw.frontend.source import Source, remember
from mimw.frontend.tracer import Flow, Tracer


class LocalFunction:
    """A function defined in a kernel, and the frame whose names it sees."""

    __slots__ = ("fn", "outer")
    SAID = "a function"

    def __init__(self, fn: Callable[..., Any], outer: Frame) -> None:
        self.fn = fn
        self.outer = outer


def visit_lambda(t: Tracer, node: ast.Lambda) -> LocalFunction:
    """``lambda a, b: a + b``."""
    body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
    return _make(t, node, node.args, "<lambda>", body)


def visit_function(t: Tracer, node: ast.FunctionDef) -> Flow:
    """A nested ``def``: binds its name."""
    if node.decorator_list:
        hint = "leave it away: a function inside a kernel is inlined where it is called"
        t.error("unsupported-syntax", "a decorator on a function inside a kernel", node.decorator_list[0], hint)
    t.assign(node.name, _make(t, node, node.args, node.name, node.body), node)
    return Flow.NEXT


def _make(t: Tracer, node: ast.AST, args: ast.arguments, name: str, body: list[ast.stmt]) -> LocalFunction:
    for inside in body:
        for bad in ast.walk(inside):
            if isinstance(bad, ast.Nonlocal):
                t.error("unsupported-syntax", "nonlocal cannot be used in a kernel", bad, "return the new value")
    defaults = [t.expr(d) for d in args.defaults]
    keyword_defaults = {
        a.arg: t.expr(d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None
    }
    fn = FunctionType(_code(t, node, args, name, body), t.frame.fn.__globals__, name, tuple(defaults))
    fn.__module__ = t.frame.fn.__module__
    fn.__kwdefaults__ = keyword_defaults
    return LocalFunction(fn, t.frame)


def _code(t: Tracer, node: ast.AST, args: ast.arguments, name: str, body: list[ast.stmt]) -> CodeType:
    """Python's own code for the function, which tells its parameters and locals, once a node; its source is kept with it."""
    code = t.local_code.get(node)
    if code is None:
        plain = ast.arguments(
            [ast.arg(a.arg) for a in args.posonlyargs],
            [ast.arg(a.arg) for a in args.args],
            args.vararg and ast.arg(args.vararg.arg),
            [ast.arg(a.arg) for a in args.kwonlyargs],
            [None for _ in args.kwonlyargs],
            args.kwarg and ast.arg(args.kwarg.arg),
            [],
        )
        module = ast.parse("def local(): ...")
        made = module.body[0]
        assert isinstance(made, ast.FunctionDef)
        made.args, made.body = plain, body
        ast.fix_missing_locations(module)
        constants = compile(module, t.frame.source.file, "exec").co_consts
        code = next(c for c in constants if isinstance(c, CodeType)).replace(co_name=name)
        t.local_code[node] = code
        around = t.frame.source
        remember(code, Source(around.file, name, made, around.shift, around.lines, around.first_line))
    return code
