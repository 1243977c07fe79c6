"""Calls: functions of the language, other kernels (inlined), plain Python functions and builtins on constants,
records.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from mimw.diagnostics import Loc
from mimw.frontend import regions, scope
from mimw.frontend.expressions import BoundKernel, is_constant, iterable
from mimw.frontend.local_functions import LocalFunction
from mimw.frontend.python_calls import BUILTINS, call_python, construct
from mimw.frontend.scope import Frame
from mimw.frontend.source import KernelFunction, source_of
from mimw.frontend.tracer import Flow, NeedsRegion, Tracer
from mimw.language.core import constexpr, explain, tensor
from mimw.language.errors import fail
from mimw.language.handles import traced
from mimw.language.not_yet import NotYet

MAX_DEPTH = 64


def visit_call(t: Tracer, node: ast.Call) -> Any:
    fn = t.expr(node.func)
    args: list[Any] = []
    for a in node.args:
        if isinstance(a, ast.Starred):
            args.extend(iterable(t, t.expr(a.value), a))
        else:
            args.append(t.expr(a))
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        if k.arg is None:
            t.error("unsupported-syntax", "a ** argument", k.value, "name the keywords")
        kwargs[k.arg] = t.expr(k.value)
    return call(t, fn, args, kwargs, node)


def call(t: Tracer, fn: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    """Call a trace-time object."""
    if isinstance(fn, KernelFunction):
        return inline(t, fn.fn, args, kwargs, node)
    if isinstance(fn, BoundKernel):
        return inline(t, fn.kernel.fn, [fn.receiver, *args], kwargs, node)
    if isinstance(fn, LocalFunction):
        return inline(t, fn.fn, args, kwargs, node, fn.outer)
    if isinstance(fn, NotYet):
        return fn(*args, **kwargs)
    if isinstance(fn, tensor):
        t.error("not-callable", f"{explain(fn)} is not a function", node)
    if is_language(fn):
        return call_language(t, fn, args, kwargs, node)
    try:
        special = BUILTINS.get(fn)
    except TypeError:
        special = None
    if special is not None:
        return special(t, args, kwargs, node)
    if isinstance(fn, type):
        return construct(t, fn, args, kwargs, node)
    return call_python(t, fn, args, kwargs, node)


def is_language(fn: Any) -> bool:
    """Whether an object is a function or class of `mimw.language`."""
    if isinstance(fn, partial):
        fn = fn.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if isinstance(fn, MethodType) and isinstance(fn.__self__, (tensor, traced)):
        return True
    return isinstance(fn, (FunctionType, type)) and fn.__module__.startswith("mimw.language")  # pyright: ignore[reportUnknownMemberType]


def call_language(t: Tracer, fn: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    """Call a function of the language; a wrong argument list becomes an error with the function's name."""
    name = getattr(fn, "__name__", None) or fn.func.__name__
    if fn is tensor:
        t.error("not-callable", "tensors are made by functions such as ml.zeros, not by calling ml.tensor", node)
    for a in [*args, *kwargs.values()]:
        if isinstance(a, scope.Undefined):
            t.refuse_undefined("an argument", a, node)
    wrong = _signature_fault(fn, args, kwargs)
    if wrong:
        t.error("bad-call", f"{name}: {wrong}", node)
    if fn is constexpr:
        return _constant(t, [*args, *kwargs.values()][0], node)
    return fn(*args, **kwargs)


def _constant(t: Tracer, value: Any, node: ast.AST) -> Any:
    """`ml.constexpr(value)` in a kernel: names hold the constants themselves."""
    if not is_constant(value):
        t.error("constexpr-needed", f"ml.constexpr() of {explain(value)}", node)
    return constexpr(value).value


def _signature_fault(fn: Any, args: list[Any], kwargs: dict[str, Any]) -> str:
    """What is wrong with an argument list, "" when it fits. Fast on the code object; no `inspect`."""
    count = len(args)
    if isinstance(fn, partial):
        fn = fn.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        count += 1
    if isinstance(fn, type):
        fn = fn.__init__
        count += 1
    if isinstance(fn, MethodType):
        fn = fn.__func__
        count += 1
    if not isinstance(fn, FunctionType):
        return ""
    code = fn.__code__
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    if count > len(positional) and not code.co_flags & 4:
        return f"{count} positional arguments, it takes {len(positional)}"
    taken = positional[:count]
    for k in kwargs:
        if k in taken:
            return f"the argument {k} is given twice"
        if k not in positional and k not in keyword_only and not code.co_flags & 8:
            return (
                f"no parameter is named {k}; it has {', '.join(p for p in (*positional, *keyword_only) if p != 'self')}"
            )
    defaults = len(fn.__defaults__ or ())
    missing = [p for p in positional[count : len(positional) - defaults] if p not in kwargs]
    missing += [p for p in keyword_only if p not in kwargs and p not in (fn.__kwdefaults__ or {})]
    return f"the argument {missing[0]} is missing" if missing else ""


# Kernels.


def inline(
    t: Tracer,
    fn: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    node: ast.AST,
    outer: Frame | None = None,
) -> Any:
    """Trace the body of another kernel, or of a function in `outer`, in place; the value that it returns."""
    site = t.loc(node)
    names = bind(t, fn, args, kwargs, node)
    if t.depth >= MAX_DEPTH or _active(t, fn) > 8:
        t.error(
            "recursion",
            f"{fn.__name__} calls itself without end",
            node,
            "kernels are inlined: recursion must end at compile time",
        )
    mark = t.mark()
    try:
        return run(t, fn, names, site, False, outer)
    except NeedsRegion as e:
        if e.frame.fn is not fn or e.frame.site is not site:
            raise
    t.rollback(mark)
    return run(t, fn, names, site, True, outer)


def _active(t: Tracer, fn: Callable[..., Any]) -> int:
    count = 0
    frame: Frame | None = t.frame
    while frame is not None:
        count += frame.fn.__code__ is fn.__code__
        frame = frame.caller
    return count


def run(
    t: Tracer, fn: Callable[..., Any], names: dict[str, Any], site: Loc | None, in_region: bool, outer: Frame | None
) -> Any:
    """Trace a function's body in a frame of its own."""
    caller = t.frame
    frame = Frame(fn, source_of(fn), site)
    frame.caller = caller
    frame.outer = outer
    frame.names = dict(names)
    saved_loc = t.builder.loc
    t.frame = frame
    t.depth += 1
    try:
        for v in names.values():
            t.adopt(v)
        body = frame.source.tree.body
        if in_region:
            return regions.inlined(t, lambda: t.body(body), fn.__name__)
        flow = t.body(body)
        return frame.returned if flow is Flow.RETURN else None if flow is not Flow.LEFT else _never(t, fn)
    finally:
        t.frame = caller
        t.depth -= 1
        t.builder.loc = saved_loc


def _never(t: Tracer, fn: Callable[..., Any]) -> Any:
    return fail("no-return", f"{fn.__name__} never returns")


def bind(t: Tracer, fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> dict[str, Any]:
    """Arguments to parameters of a kernel.

    As in Triton, whose attention tutorial relies on it, an `ml.constexpr` parameter of a kernel that is called takes a run-time
    value too; where the body needs a constant, that place is refused.
    """
    fault = _signature_fault(fn, args, kwargs)
    if fault:
        t.error("bad-call", f"{fn.__name__}: {fault}", node)
    code = fn.__code__
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    names: dict[str, Any] = dict(zip(positional, args, strict=False))
    if code.co_flags & 4:
        names[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]] = tuple(args[len(positional) :])
    if code.co_flags & 8:
        t.error("unsupported-syntax", f"{fn.__name__} has a ** parameter", node, "name its parameters")
    names.update(kwargs)
    defaults = fn.__defaults__ or ()
    for p, v in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
        names.setdefault(p, v)
    for p in keyword_only:
        names.setdefault(p, (fn.__kwdefaults__ or {}).get(p))
    for p in list(names):
        v = names[p]
        if isinstance(v, constexpr):
            names[p] = v.value
    return names


CALLS: dict[type[ast.AST], Callable[[Tracer, Any], Any]] = {ast.Call: visit_call}
