"""Expressions: names, constants, operators, attributes, subscripts, f-strings."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from mimw.diagnostics import Note
from mimw.frontend import scope
from mimw.frontend.source import KernelFunction
from mimw.frontend.tracer import Tracer
from mimw.ir.types import DType, MemDescType, PointerType, TensorType
from mimw.language import control, semantic
from mimw.language.core import constexpr, explain, is_tuple, tensor, unwrap
from mimw.language.handles import traced

_operators: Any = operator  # its functions are partly untyped
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _operators.add,
    ast.Sub: _operators.sub,
    ast.Mult: _operators.mul,
    ast.Div: _operators.truediv,
    ast.FloorDiv: _operators.floordiv,
    ast.Mod: _operators.mod,
    ast.Pow: _operators.pow,
    ast.LShift: _operators.lshift,
    ast.RShift: _operators.rshift,
    ast.BitAnd: _operators.and_,
    ast.BitOr: _operators.or_,
    ast.BitXor: _operators.xor,
    ast.MatMult: _operators.matmul,
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def is_constant(x: Any) -> bool:
    """Whether a trace-time object holds no run-time value."""
    if isinstance(x, tuple):
        return all(map(is_constant, x))  # pyright: ignore[reportUnknownArgumentType]
    if scope.is_dataclass(x):
        return all(is_constant(getattr(x, f)) for f in scope.field_names(x))
    return not isinstance(x, tensor)


def visit_constant(t: Tracer, node: ast.Constant) -> Any:
    if isinstance(node.value, (complex, bytes)) or node.value is ...:
        t.error("unsupported-syntax", f"the constant {node.value!r} has no meaning in a kernel", node)
    return node.value


def visit_name(t: Tracer, node: ast.Name) -> Any:
    frame = t.frame
    try:
        while t.frame.outer is not None and node.id not in t.frame.names and node.id not in t.frame.locals:
            t.frame = t.frame.outer  # a function inside a kernel sees the kernel's names
        return _named(t, node)
    finally:
        t.frame = frame


def _named(t: Tracer, node: ast.Name) -> Any:
    name = node.id
    frame = t.frame
    if name in frame.names:
        return t.read(name, node)
    if name in frame.locals:
        t.error(
            "undefined-name", f"{name} is used before it is assigned", node, "assign it on every way that leads here"
        )
    fn = frame.fn
    code = fn.__code__
    if name in code.co_freevars:
        cell = (fn.__closure__ or ())[code.co_freevars.index(name)]
        try:
            return captured(t, cell.cell_contents, name, node)
        except ValueError:
            t.error("undefined-name", f"{name} of the enclosing function is not assigned yet", node)
    if name in fn.__globals__:
        return captured(t, fn.__globals__[name], name, node)
    if hasattr(builtins, name):
        return getattr(builtins, name)
    return t.error("undefined-name", f"the name {name} is not defined", node, _similar(t, name))


def _similar(t: Tracer, name: str) -> str | None:
    from difflib import get_close_matches

    close = get_close_matches(name, [*t.frame.names, *t.frame.fn.__globals__], 1)
    return f"did you mean {close[0]}?" if close else None


def captured(t: Tracer, value: Any, name: str, node: ast.AST) -> Any:
    """A global or closure variable: constants, functions, modules and types only."""
    value = constexpr(value).value
    if allowed_capture(value):
        return value
    hint = "pass it as an argument; constants are numbers, strings, dtypes, and tuples of them"
    if callable(value):
        hint = "call functions of mimw.language, or other kernels"
    what = type(value).__name__
    return t.error(
        "captured-global", f"{name} is a {what} from outside the kernel, which is not a constant", node, hint
    )


def allowed_capture(value: Any) -> bool:
    """Whether a kernel may read this object from outside: it cannot change behind the compiled kernel's back."""
    if value is None or isinstance(value, (bool, int, float, str, DType, PointerType, TensorType, MemDescType)):
        return True
    if isinstance(value, (FunctionType, BuiltinFunctionType, ModuleType, type, KernelFunction, constexpr)):
        return True
    if is_tuple(value):
        return all(map(allowed_capture, value))
    cls = scope.class_of(value)
    return hasattr(cls, "__members__") or cls.__module__.startswith(("mimw.", "typing"))  # the first: an enum's member


def visit_binop(t: Tracer, node: ast.BinOp) -> Any:
    left = t.expr(node.left)
    right = t.expr(node.right)
    return apply_binary(t, type(node.op), left, right, node)


def apply_binary(t: Tracer, op: type[ast.operator], left: Any, right: Any, node: ast.AST) -> Any:
    """A binary operator on trace-time objects; Python's own meaning between constants."""
    for side in (left, right):
        if not isinstance(side, tensor) and not is_constant(side) and not isinstance(side, tuple):
            t.error("type-mismatch", f"{symbol_of(op)} does not take {explain(side)}", node)
    try:
        return BINARY[op](left, right)
    except ZeroDivisionError:
        t.error("division-by-zero", f"{symbol_of(op)} by the constant 0", node)
    except (TypeError, OverflowError, ValueError) as e:
        t.error("type-mismatch", f"{symbol_of(op)} of {explain(left)} and {explain(right)}: {e}", node)


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.MatMult: "@",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def symbol_of(op: type[ast.AST]) -> str:
    """How an operator is written."""
    return _SYMBOLS[op]


def visit_unaryop(t: Tracer, node: ast.UnaryOp) -> Any:
    x = t.expr(node.operand)
    if isinstance(node.op, ast.Not):
        if isinstance(x, tensor):
            by_element = isinstance(x.value.type, TensorType)  # as in Triton
            return tensor(
                semantic.compare("eq", x.value, 0)
                if by_element
                else t.builder.elementwise("arith.not", semantic.truth(x.value, "not"))
            )
        return not x
    try:
        return UNARY[type(node.op)](x)
    except TypeError:
        return t.error("type-mismatch", f"{symbol_of(type(node.op))} does not take {explain(x)}", node)


# Structure.


def visit_tuple(t: Tracer, node: ast.Tuple | ast.List) -> Any:
    out: list[Any] = []
    for e in node.elts:
        if isinstance(e, ast.Starred):
            out.extend(iterable(t, t.expr(e.value), e))
        else:
            out.append(t.expr(e))
    return tuple(out)


def visit_comprehension(t: Tracer, node: ast.ListComp) -> Any:
    """``[f(i) for i in range(n)]``, n constant: unrolled, a tuple. The variable is the comprehension's own."""
    if len(node.generators) != 1 or node.generators[0].ifs or not isinstance(node.generators[0].target, ast.Name):
        hint = "write a loop over ml.static_range"
        t.error("unsupported-syntax", "a comprehension has one for, over single items, and no if", node, hint)
    one = node.generators[0]
    over = t.expr(one.iter)
    if (
        isinstance(over, control.range)
        and over.step
        and all(isinstance(x, int) for x in (over.start, over.stop, over.step))
    ):
        over = range(over.start, over.stop, over.step)
    items = iterable(t, over, one.iter)
    frame, name = t.frame, node.generators[0].target.id
    was = name in frame.names
    hidden = frame.names.get(name)
    out: list[Any] = []
    for item in items:
        frame.names[name] = item
        out.append(t.expr(node.elt))
    frame.names.pop(name, None)
    if was:
        frame.names[name] = hidden
    return tuple(out)


def iterable(t: Tracer, x: Any, node: ast.AST) -> list[Any]:
    """The items of something that has a length at compile time."""
    if isinstance(x, tensor) or not isinstance(x, (tuple, range, list)):
        values = getattr(x, "values", None)
        if isinstance(values, tuple):
            return list(values)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        t.error("bad-iteration", f"{explain(x)} cannot be iterated or unpacked at compile time", node)
    return [unwrap(v) for v in x]  # pyright: ignore[reportUnknownVariableType]


def visit_attribute(t: Tracer, node: ast.Attribute) -> Any:
    obj = t.expr(node.value)
    return get_attribute(t, obj, node.attr, node)


class BoundKernel:
    """A method of a record that is a kernel: called with the record first."""

    __slots__ = ("kernel", "receiver")

    def __init__(self, kernel: KernelFunction, receiver: Any) -> None:
        self.kernel = kernel
        self.receiver = receiver


def get_attribute(t: Tracer, obj: Any, name: str, node: ast.AST) -> Any:
    """obj.name on a trace-time object."""
    if isinstance(obj, tensor) and name in ("value",):
        t.error("unknown-attribute", f"a tile has no attribute {name}", node)
    if not isinstance(obj, (tensor, type)):
        found = getattr(scope.class_of(obj), name, None)
        if isinstance(found, KernelFunction):
            return BoundKernel(found, obj)
    try:
        value = getattr(obj, name)
    except AttributeError:
        if name == "value" and (obj is None or isinstance(obj, (bool, int, float, str, tuple, DType))):
            return obj  # pyright: ignore[reportUnknownVariableType]  # constexprs are the constants that they stand for
        what = explain(obj)
        if isinstance(obj, ModuleType):
            what = f"the module {obj.__name__}"
        t.error("unknown-attribute", f"{what} has no attribute {name}", node, _similar_attribute(obj, name))
    if isinstance(value, scope.Deferred):
        return value.force()
    if isinstance(value, scope.Undefined):
        t.refuse_undefined(name, value, node)
    if isinstance(obj, ModuleType):
        return captured(t, value, f"{obj.__name__}.{name}", node)
    return unwrap(value)


def _similar_attribute(obj: Any, name: str) -> str | None:
    from difflib import get_close_matches

    from_tile = (
        ["shape", "dtype", "T", "to", "sum", "max", "min", "reshape", "trans"] if isinstance(obj, tensor) else []
    )
    close = get_close_matches(name, [*from_tile, *(n for n in dir(obj) if not n.startswith("_"))], 1)
    return f"did you mean {close[0]}?" if close else None


def visit_subscript(t: Tracer, node: ast.Subscript) -> Any:
    obj = t.expr(node.value)
    index = t.expr(node.slice)
    if isinstance(obj, tensor):
        if isinstance(obj.value.type, PointerType):
            t.error("bad-index", "a pointer is not indexed", node, "write ml.load(pointer + index)")
        return obj[index]
    if isinstance(obj, traced) and hasattr(scope.class_of(obj), "__getitem__"):
        return scope.class_of(obj).__getitem__(obj, index)
    if isinstance(obj, KernelFunction):
        t.error("unsupported-syntax", "a kernel cannot be launched inside a kernel", node, "call it: it is inlined")
    if isinstance(index, tensor):
        t.error(
            "constexpr-needed",
            f"{explain(obj)} is indexed by a run-time value",
            node,
            "index with constants, or loop with ml.static_range",
        )
    if not isinstance(obj, (tuple, str, range)):
        if isinstance(obj, type):
            return obj
        t.error("bad-index", f"{explain(obj)} is not indexed", node)
    try:
        return unwrap(obj[index])  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    except (IndexError, TypeError) as e:
        hint = None if obj else "the shape of a pointer or scalar is (): pass an array's sizes as arguments"
        return t.error("bad-index", f"{e}", node, hint, [Note(f"it has {len(obj)} items")])  # pyright: ignore[reportUnknownArgumentType]


def visit_slice(t: Tracer, node: ast.Slice) -> Any:
    lower, upper, step = (None if e is None else t.expr(e) for e in (node.lower, node.upper, node.step))
    for v, e in ((lower, node.lower), (upper, node.upper), (step, node.step)):
        if isinstance(v, tensor):
            t.error("constexpr-needed", "a slice bound is a run-time value", e or node)
    return slice(lower, upper, step)


def visit_joined_str(t: Tracer, node: ast.JoinedStr) -> Any:
    return "".join(str(t.expr(v)) for v in node.values)


def visit_formatted(t: Tracer, node: ast.FormattedValue) -> Any:
    x = t.expr(node.value)
    if isinstance(x, tensor):
        t.error(
            "constexpr-needed",
            f"an f-string shows constants only, not {explain(x)}",
            node.value,
            "write ml.device_print('x', x)",
        )
    shown: Any = {115: str, 114: repr, 97: ascii}[node.conversion](x) if node.conversion > 0 else x
    spec = "" if node.format_spec is None else t.expr(node.format_spec)
    try:
        return format(shown, spec)
    except (TypeError, ValueError) as e:
        return t.error("type-mismatch", f"f-string: {e}", node)


def visit_named(t: Tracer, node: ast.NamedExpr) -> Any:
    value = t.expr(node.value)
    t.assign(node.target.id, value, node.target)
    return value


def visit_starred(t: Tracer, node: ast.Starred) -> Any:
    return t.error("unsupported-syntax", "a starred expression stands only in calls and tuples", node)


EXPRESSIONS: dict[type[ast.AST], Callable[[Tracer, Any], Any]] = {
    ast.Constant: visit_constant,
    ast.Name: visit_name,
    ast.BinOp: visit_binop,
    ast.UnaryOp: visit_unaryop,
    ast.Tuple: visit_tuple,
    ast.List: visit_tuple,
    ast.ListComp: visit_comprehension,
    ast.Attribute: visit_attribute,
    ast.Subscript: visit_subscript,
    ast.Slice: visit_slice,
    ast.JoinedStr: visit_joined_str,
    ast.FormattedValue: visit_formatted,
    ast.NamedExpr: visit_named,
    ast.Starred: visit_starred,
}
