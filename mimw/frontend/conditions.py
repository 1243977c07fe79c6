"""Conditions: truth values, and / or, comparisons and their chains, conditional expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from mimw.frontend import regions
from mimw.frontend.expressions import is_constant, symbol_of
from mimw.frontend.source import KernelFunction
from mimw.frontend.tracer import Tracer
from mimw.ir.core import Value
from mimw.ir.types import I1, DType, PointerType, TensorType
from mimw.language import semantic
from mimw.language.arith import logical_and, logical_or
from mimw.language.core import explain, tensor
from mimw.language.errors import fail

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def truth(t: Tracer, x: Any, what: str) -> Any:
    """A condition: a Python bool when it is known, else an i1 value."""
    if isinstance(x, tensor):
        return semantic.truth(x.value, what)
    try:
        return bool(x)
    except TypeError:
        return fail("type-mismatch", f"{what} does not take {explain(x)}")


def _cheap(node: ast.expr) -> bool:
    """Whether evaluating an expression although Python would not is unobservable: no calls, no bindings."""
    return not any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in ast.walk(node))


def logical(t: Tracer, left: Value, right: Callable[[], Any], conjunction: bool, cheap: bool, what: str) -> Any:
    """left and/or right for an i1 scalar `left`: evaluated at once when that is unobservable, else under a run-time
    `if`.
    """

    def evaluate() -> Any:
        x = truth(t, right(), what)
        return x if isinstance(x, bool) else tensor(x)

    if cheap:
        other = right()
        if is_tile(other):
            return by_element(tensor(left), other, conjunction)
        x = truth(t, other, what)
        if isinstance(x, bool):
            return tensor(left) if x == conjunction else x
        return tensor(t.builder.elementwise("arith.and" if conjunction else "arith.or", left, x))
    if conjunction:
        return regions.branch(t, left, evaluate, lambda: False, False)
    return regions.branch(t, left, lambda: True, evaluate, False)


def is_tile(x: Any) -> bool:
    """Whether a trace-time object is a tile of run-time values."""
    return isinstance(x, tensor) and isinstance(x.value.type, TensorType)


def by_element(left: Any, right: Any, conjunction: bool) -> tensor:
    """and/or where a tile takes part: of each two elements, as in Triton; both sides are computed."""
    return logical_and(left, right) if conjunction else logical_or(left, right)


def visit_boolop(t: Tracer, node: ast.BoolOp) -> Any:
    conjunction = isinstance(node.op, ast.And)
    return _boolop(t, node.values, conjunction, "and" if conjunction else "or")


def _boolop(t: Tracer, values: list[ast.expr], conjunction: bool, what: str) -> Any:
    left = t.expr(values[0])
    if len(values) == 1:
        return left
    if not isinstance(left, tensor):
        if bool(left) != conjunction:
            return left
        return _boolop(t, values[1:], conjunction, what)
    if is_tile(left):
        return by_element(left, _boolop(t, values[1:], conjunction, what), conjunction)
    cheap = all(map(_cheap, values[1:]))
    return logical(
        t, semantic.truth(left.value, what), lambda: _boolop(t, values[1:], conjunction, what), conjunction, cheap, what
    )


def visit_compare(t: Tracer, node: ast.Compare) -> Any:
    return _compare(t, node, t.expr(node.left), 0)


def _compare(t: Tracer, node: ast.Compare, left: Any, at: int) -> Any:
    """One link of a comparison chain and those after it; each operand is evaluated once."""
    right = t.expr(node.comparators[at])
    here = compare_once(t, node.ops[at], left, right, node)
    if at + 1 == len(node.ops):
        return here
    if not isinstance(here, tensor):
        return _compare(t, node, right, at + 1) if here else here
    if isinstance(here.value.type, TensorType) or here.value.type is not I1:
        return here & _as_mask(_compare(t, node, right, at + 1))
    rest_is_cheap = all(map(_cheap, node.comparators[at + 1 :]))
    if not rest_is_cheap:
        return logical(t, here.value, lambda: _compare(t, node, right, at + 1), True, False, "a comparison chain")
    rest = _compare(t, node, right, at + 1)
    return here & _as_mask(rest)


def _as_mask(x: Any) -> Any:
    return x if isinstance(x, tensor) else bool(x)


def compare_once(t: Tracer, op: ast.cmpop, left: Any, right: Any, node: ast.AST) -> Any:
    """One comparison."""
    if isinstance(op, (ast.Is, ast.IsNot)):
        if left is not None and right is not None and not _identity_ok(left, right):
            t.error("type-mismatch", "'is' compares with None, or dtypes and other constants", node, "write ==")
        same = left is right
        return same if isinstance(op, ast.Is) else not same
    if isinstance(op, (ast.In, ast.NotIn)):
        if not is_constant(left) or not is_constant(right):
            t.error("constexpr-needed", "'in' needs constants", node, "compare with == and |")
        try:
            found = left in right
        except TypeError:
            t.error("type-mismatch", f"'in' of {explain(left)} and {explain(right)}", node)
        return found if isinstance(op, ast.In) else not found
    if isinstance(left, tensor) or isinstance(right, tensor):
        for side in (left, right):
            if side is None or isinstance(side, str):
                t.error("type-mismatch", f"comparison of {explain(left)} and {explain(right)}", node)
    elif not is_constant(left) or not is_constant(right):
        t.error("type-mismatch", f"comparison of {explain(left)} and {explain(right)}", node, "compare their parts")
    try:
        return COMPARE[type(op)](left, right)
    except TypeError as e:
        return t.error("type-mismatch", f"{symbol_of(type(op))}: {e}", node)


def _identity_ok(left: Any, right: Any) -> bool:
    plain = (bool, DType, PointerType, TensorType, type, KernelFunction)
    return isinstance(left, plain) and isinstance(right, plain)


def visit_ifexp(t: Tracer, node: ast.IfExp) -> Any:
    cond = t.expr(node.test)
    if isinstance(cond, tensor) and isinstance(cond.value.type, TensorType):
        t.error(
            "tile-truth",
            f"a conditional expression needs one truth value, not the {cond.value.type}",
            node.test,
            "write ml.where(cond, a, b)",
        )
    known = truth(t, cond, "a conditional expression")
    if isinstance(known, bool):
        return t.expr(node.body if known else node.orelse)
    return regions.branch(t, known, lambda: t.expr(node.body), lambda: t.expr(node.orelse), False)


CONDITIONS: dict[type[ast.AST], Callable[[Tracer, Any], Any]] = {
    ast.BoolOp: visit_boolop,
    ast.Compare: visit_compare,
    ast.IfExp: visit_ifexp,
}
