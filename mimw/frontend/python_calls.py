"""Calls of Python's own: records, builtins, plain functions on constants."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from mimw.diagnostics import CompilationError
from mimw.frontend.expressions import get_attribute, is_constant, iterable
from mimw.frontend.tracer import Tracer
from mimw.language import control, debug
from mimw.language.core import METHODS, constexpr, explain, is_tuple, tensor, unwrap


def construct(t: Tracer, cls: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    """Make a record: a dataclass or named tuple of values."""
    record = hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
    if not record:
        t.error(
            "not-callable",
            f"{cls.__name__} cannot be made in a kernel",
            node,
            "dataclasses and NamedTuples of values can",
        )
    try:
        out = cls(*args, **kwargs)
    except TypeError as e:
        t.error("bad-call", str(e).replace("__init__()", cls.__name__).replace("__new__()", cls.__name__), node)
    t.adopt(out)
    return out


def call_python(t: Tracer, fn: Any, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    """A plain Python function: run at compile time, on constants only."""
    name = getattr(fn, "__name__", explain(fn))
    if not isinstance(fn, (FunctionType, BuiltinFunctionType, MethodType)) and not callable(fn):
        t.error("not-callable", f"{explain(fn)} is not a function", node)
    if isinstance(fn, BuiltinFunctionType) and not _is_pure(fn):
        hint = (
            "a kernel runs on the device; compute it before the launch and pass it, as ml.constexpr if it is a constant"
        )
        t.error("unsupported-call", f"{name}() cannot be called in a kernel", node, hint)
    for a in [*args, *kwargs.values()]:
        if not is_constant(a):
            hint = (
                _ML_FOR_MATH.get(name)
                if getattr(fn, "__module__", "") == "math"
                else "decorate it with @mimw.kernel to inline it"
            )
            t.error("unsupported-call", f"{name} is a Python function, called with {_first_runtime(a)}", node, hint)
    try:
        return fn(*args, **kwargs)
    except CompilationError:
        raise
    except Exception as e:
        return t.error("python-call", f"{name} raised {type(e).__name__}: {e}", node)


def _is_pure(fn: BuiltinFunctionType) -> bool:
    """Whether a function written in C may run while compiling: it only computes. Opening files, reading clocks, random numbers do more."""
    owner: Any = fn.__self__
    if fn.__module__ == "numpy":
        return fn.__name__ not in ("fromfile", "frombuffer")
    if isinstance(owner, ModuleType):
        return owner.__name__ in _PURE_MODULES or (owner.__name__ == "builtins" and fn.__name__ in _PURE)
    return isinstance(owner, _PURE_OWNERS) or owner in _PURE_OWNERS or fn.__name__ in _READERS


_PURE_MODULES = ("math", "cmath", "_operator", "_bisect", "_struct", "_functools", "itertools")
_PURE_OWNERS = (str, bytes, int, float, complex, tuple, frozenset, range)
_READERS = ("get", "items", "keys", "values", "index", "count", "copy", "item", "tolist")
_PURE = {
    "abs",
    "len",
    "min",
    "max",
    "sum",
    "round",
    "pow",
    "divmod",
    "hash",
    "repr",
    "chr",
    "ord",
    "hex",
    "bin",
    "any",
    "all",
    "sorted",
    "format",
    "hasattr",
    "callable",
}
_ML_FOR_MATH = {
    n: f"write ml.{n}(x)" for n in ("exp", "log", "log2", "exp2", "sqrt", "sin", "cos", "tanh", "erf", "floor", "ceil")
}


def _first_runtime(x: Any) -> str:
    return explain(x) if isinstance(x, tensor) else "a run-time value"


Special = Callable[[Tracer, list[Any], dict[str, Any], ast.AST], Any]


def _fold(name: str, function: str) -> Special:
    def special(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
        if len(args) == 1 and is_tuple(args[0]):
            args = list(args[0])
        if kwargs or not args:
            t.error("bad-call", f"{name}() takes values only", node)
        out = args[0]
        for a in args[1:]:
            if isinstance(out, tensor) or isinstance(a, tensor):
                out = METHODS[function](out, a)
            else:
                out = getattr(builtins, name)(out, a)
        if len(args) == 1 and isinstance(out, tensor):
            t.error("bad-call", f"{name}() of one tile", node, f"write ml.{name}(x, axis)")
        return out

    return special


def _abs(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    return abs(args[0]) if len(args) == 1 and not kwargs else t.error("bad-call", "abs() takes one value", node)


def _len(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    if len(args) != 1 or not isinstance(args[0], (tuple, str, range)):
        t.error(
            "bad-call", f"len() of {explain(args[0]) if args else 'nothing'}", node, "a tile's sizes are in x.shape"
        )
    return len(args[0])  # pyright: ignore[reportUnknownArgumentType]


def _isinstance(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    if len(args) != 2:
        t.error("bad-call", "isinstance() takes an object and a type", node)
    classes = args[1] if is_tuple(args[1]) else (args[1],)
    if constexpr in classes and is_constant(args[0]):
        return True
    return isinstance(args[0], tuple(c for c in classes if isinstance(c, type)))


def _number(cls: type) -> Special:
    def special(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
        if len(args) == 1 and isinstance(args[0], tensor):
            to = {"int": "int32", "float": "float32", "bool": "int1"}.get(cls.__name__, "...")
            t.error(
                "constexpr-needed",
                f"{cls.__name__}() needs a constant, not {explain(args[0])}",
                node,
                f"write x.to(ml.{to})",
            )
        try:
            return cls(*args, **kwargs)
        except (TypeError, ValueError) as e:
            return t.error("bad-call", f"{cls.__name__}(): {e}", node)

    return special


def _range(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    if kwargs or not 1 <= len(args) <= 3:
        t.error("bad-call", "range() takes start, stop, step", node)
    return control.range(*args)


def _print(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    """`device_print`, as in Triton."""
    if not args or not isinstance(unwrap(args[0]), str) or set(kwargs) - {"hex"}:
        t.error(
            "bad-call",
            "print() in a kernel takes a prefix, then values to print on the device",
            node,
            "write print('x', x); ml.static_print prints constants while compiling",
        )
    debug.device_print(*args, **kwargs)


def _tuple(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    return tuple(iterable(t, args[0], node)) if args else ()


def _zip(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    return tuple(zip(*(iterable(t, a, node) for a in args), strict=False))


def _enumerate(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    start = args[1] if len(args) > 1 else kwargs.get("start", 0)
    return tuple(enumerate(iterable(t, args[0], node), start))


def _reversed(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    return tuple(reversed(iterable(t, args[0], node)))


def _getattr(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    if len(args) < 2 or not isinstance(args[1], str):
        t.error("bad-call", "getattr() takes an object and a name", node)
    if len(args) == 3 and not hasattr(args[0], args[1]):
        return args[2]
    return get_attribute(t, args[0], args[1], node)


def _type(t: Tracer, args: list[Any], kwargs: dict[str, Any], node: ast.AST) -> Any:
    return t.error(
        "unsupported-call", "type() in a kernel", node, "x.dtype and x.shape say what a tile is; isinstance works"
    )


BUILTINS: dict[Any, Special] = {
    min: _fold("min", "minimum"),
    max: _fold("max", "maximum"),
    abs: _abs,
    len: _len,
    isinstance: _isinstance,
    int: _number(int),
    float: _number(float),
    bool: _number(bool),
    str: _number(str),
    range: _range,
    print: _print,
    tuple: _tuple,
    list: _tuple,
    zip: _zip,
    enumerate: _enumerate,
    reversed: _reversed,
    getattr: _getattr,
    type: _type,
}
