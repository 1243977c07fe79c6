"""What an op's result is when it can be known from its operands alone: constants and identities that are exact.

`simplify(op, b)` gives a value to use in place of the op's result, or None. New ops go through the builder `b`, right before the op. Integers follow the
declarations (wrap, truncating division, clamped shifts); floats are folded only where the result is exact for every input, so neither
x + 0 nor x * 0 is.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.ir.builder import Builder, wrap
from mimw.ir.core import OpBase, Value
from mimw.ir.opdef import ElementwiseOp
from mimw.ir.ops.arith import ConstantOp
from mimw.ir.ops.memory import PtrAddOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.types import DType, PointerType, TensorType, element_of

Number = int | float | bool


def constant_of(v: Value) -> Number | None:
    """The number that a scalar or a tile is everywhere, when an `arith.constant` says so."""
    op = v.defining_op
    return op.attrs["value"] if isinstance(op, ConstantOp) else None


def simplify(op: OpBase, b: Builder) -> Value | None:
    """A value for the op's only result, or None."""
    name = op.spec.name
    special = _SPECIAL.get(name)
    if special is not None:
        return special(op, b)
    if isinstance(op, ElementwiseOp):
        return _elementwise(op, b)
    return None


# ------------------------------------------------------------------------------------------------- elementwise ops


def _elementwise(op: ElementwiseOp, b: Builder) -> Value | None:
    operands = op.operands
    numbers = [constant_of(v) for v in operands]
    result = op.result.type
    e = element_of(operands[-1].type)
    if isinstance(e, DType) and e.kind != "float":
        if all(n is not None for n in numbers):
            folded = fold(op.spec.name, [int(n) for n in numbers if n is not None], e)
            if folded is not None:
                return b.constant(folded, result)
        found = _integer_identity(op, numbers, b)
    else:
        found = _other_identity(op, numbers)
    return found if found is not None else _of_splats(op, b)


def fold(name: str, n: list[int], dtype: DType) -> Number | None:
    """An integer (or bool) op on numbers, as the declarations say; None for ops that this does not know."""
    handler = _FOLD.get(name)
    if handler is None or (name in ("arith.div", "arith.rem") and n[1] == 0):
        return None
    value = handler(n, dtype)
    return bool(value) if name in _COMPARE else wrap(value, dtype)


def _truncating(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _shift_left(n: list[int], t: DType) -> int:
    count = n[1] & ((1 << t.bits) - 1)
    return 0 if count >= t.bits else n[0] << count


def _shift_right(n: list[int], t: DType) -> int:
    count = n[1] & ((1 << t.bits) - 1)
    return n[0] >> min(count, t.bits)


def _not(n: list[int], t: DType) -> int:
    return int(not n[0]) if t.kind == "bool" else ~n[0]


_FOLD: dict[str, Callable[[list[int], DType], int]] = {
    "arith.add": lambda n, t: n[0] + n[1],
    "arith.sub": lambda n, t: n[0] - n[1],
    "arith.mul": lambda n, t: n[0] * n[1],
    "arith.mulhi": lambda n, t: (n[0] * n[1]) >> t.bits,
    "arith.div": lambda n, t: _truncating(n[0], n[1]),
    "arith.rem": lambda n, t: n[0] - _truncating(n[0], n[1]) * n[1],
    "arith.minnum": lambda n, t: min(n),
    "arith.maxnum": lambda n, t: max(n),
    "arith.and": lambda n, t: n[0] & n[1],
    "arith.or": lambda n, t: n[0] | n[1],
    "arith.xor": lambda n, t: n[0] ^ n[1],
    "arith.shl": _shift_left,
    "arith.shr": _shift_right,
    "arith.neg": lambda n, t: -n[0],
    "arith.not": _not,
    "arith.abs": lambda n, t: abs(n[0]),
    "arith.eq": lambda n, t: n[0] == n[1],
    "arith.ne": lambda n, t: n[0] != n[1],
    "arith.lt": lambda n, t: n[0] < n[1],
    "arith.le": lambda n, t: n[0] <= n[1],
    "arith.gt": lambda n, t: n[0] > n[1],
    "arith.ge": lambda n, t: n[0] >= n[1],
    "arith.select": lambda n, t: n[1] if n[0] else n[2],
}
_COMPARE = {"arith.eq", "arith.ne", "arith.lt", "arith.le", "arith.gt", "arith.ge"}
_ALWAYS_EQUAL = {
    "arith.eq": True,
    "arith.le": True,
    "arith.ge": True,
    "arith.ne": False,
    "arith.lt": False,
    "arith.gt": False,
}


def _integer_identity(op: ElementwiseOp, numbers: list[Number | None], b: Builder) -> Value | None:
    name, v = op.spec.name, op.operands
    if name == "arith.select":
        return _select(op, numbers)
    if len(v) != 2:
        return _undone(op)
    x, y = v
    e = element_of(x.type)
    assert isinstance(e, DType)
    ones = 1 if e.kind == "bool" else (1 << e.bits) - 1
    for i, n in ((0, numbers[0]), (1, numbers[1])):
        other = v[1 - i]
        if n is None:
            continue
        k = int(n)
        commutes = name in ("arith.add", "arith.mul", "arith.or", "arith.xor", "arith.and")
        if not commutes and i == 0:
            continue
        if k == 0 and name in ("arith.add", "arith.sub", "arith.or", "arith.xor", "arith.shl", "arith.shr"):
            return other
        if k == 0 and name in ("arith.mul", "arith.and"):
            return b.constant(0, op.result.type)
        if k == 1 and name in ("arith.mul", "arith.div"):
            return other
        if k == 1 and name == "arith.rem":
            return b.constant(0, op.result.type)
        if k & ones == ones and name in ("arith.and", "arith.or"):
            return other if name == "arith.and" else v[i]
    if x is y:
        return _on_itself(op, b)
    return None


def _on_itself(op: ElementwiseOp, b: Builder) -> Value | None:
    name = op.spec.name
    if name in _ALWAYS_EQUAL:
        return b.constant(_ALWAYS_EQUAL[name], op.result.type)
    if name in ("arith.sub", "arith.xor"):
        return b.constant(0, op.result.type)
    if name in ("arith.and", "arith.or", "arith.minnum", "arith.maxnum"):
        return op.operands[0]
    return None


def _other_identity(op: ElementwiseOp, numbers: list[Number | None]) -> Value | None:
    """Floats and pointers."""
    name, v = op.spec.name, op.operands
    if name == "arith.select":
        return _select(op, numbers)
    if len(v) == 2:
        x, y = numbers
        if name == "arith.mul" and (y == 1.0 or x == 1.0):
            return v[0] if y == 1.0 else v[1]
        if name in ("arith.div", "arith.div_rn") and y == 1.0:
            return v[0]
        if name == "arith.sub" and isinstance(y, float) and repr(y) == "0.0":
            return v[0]
    return _undone(op)


def _select(op: ElementwiseOp, numbers: list[Number | None]) -> Value | None:
    cond, x, y = op.operands
    if numbers[0] is not None:
        return x if numbers[0] else y
    del cond
    return x if x is y else None


def _undone(op: ElementwiseOp) -> Value | None:
    """neg(neg x), not(not x)."""
    inner = op.operands[0].defining_op
    if op.spec.name in ("arith.neg", "arith.not") and inner is not None and inner.spec.name == op.spec.name:
        return inner.operands[0]
    return None


def _of_splats(op: OpBase, b: Builder) -> Value | None:
    """An op on tiles that are the same everywhere is done once, on scalars."""
    t = op.results[0].type
    if not isinstance(t, TensorType):
        return None
    scalars: list[Value | Number] = []
    for v in op.operands:
        s = _scalar_behind(v)
        if s is None:
            return None
        scalars.append(s)
    if not any(isinstance(s, Value) for s in scalars):
        return None  # constants only: nothing to gain
    values = [
        s if isinstance(s, Value) else b.constant(s, element_of(v.type))
        for s, v in zip(scalars, op.operands, strict=True)
    ]
    if isinstance(op, PtrAddOp):
        scalar = b.insert(PtrAddOp(*values, loc=op.loc)).result
    else:
        scalar = b.elementwise(op.spec.name, *values)
    scalar.name = op.results[0].name
    return b.insert(SplatOp(scalar, t.shape, loc=op.loc)).result


def _scalar_behind(v: Value) -> Value | Number | None:
    op = v.defining_op
    if isinstance(op, SplatOp):
        return op.src
    return op.value if isinstance(op, ConstantOp) else None


# ------------------------------------------------------------------------------------------------------- other ops


def _cast(op: OpBase, b: Builder) -> Value | None:
    src, out = op.operands[0], op.results[0].type
    if src.type is out:
        return src
    target = element_of(out)
    n = constant_of(src)
    if n is not None and isinstance(target, DType):
        folded = _cast_number(n, element_of(src.type), target)
        if folded is not None:
            return b.constant(folded, out)
    inner = src.defining_op
    if inner is not None and inner.spec.name == "arith.cast":
        origin = inner.operands[0]
        if origin.type is out and _exact(element_of(out), element_of(src.type)):
            return origin
    return None


def _cast_number(n: Number, source: object, target: DType) -> Number | None:
    if isinstance(source, DType) and source.kind != "float":
        k = int(n)
        if target.kind == "float":
            return float(k) if abs(k) <= 1 << (target.mantissa + 1) and target.bits >= 16 and abs(k) <= 32768 else None
        return k != 0 if target.kind == "bool" else wrap(k, target)
    if target.kind == "float" and float(n).is_integer() and abs(n) <= min(1 << (target.mantissa + 1), 256):
        unsigned = target.fnuz or (isinstance(source, DType) and source.fnuz)  # no -0
        return abs(float(n)) if unsigned and not n else float(n)
    return None


def _exact(narrow: object, wide: object) -> bool:
    """Whether every value of `narrow` comes back unchanged from `wide`."""
    if not isinstance(narrow, DType) or not isinstance(wide, DType):
        return False
    if narrow.kind == "float" or wide.kind == "float":
        both = narrow.kind == wide.kind == "float"
        return both and wide.mantissa >= narrow.mantissa and wide.exponent >= narrow.exponent and narrow.bits >= 16
    return narrow.kind != "bool" and wide.kind != "bool" and wide.bits >= narrow.bits


def _splat(op: OpBase, b: Builder) -> Value | None:
    n = constant_of(op.operands[0])
    return None if n is None else b.constant(n, op.results[0].type)


def _reshaped(op: OpBase, b: Builder) -> Value | None:
    """expand_dims, broadcast, trans, reshape of something that is the same everywhere."""
    src, out = op.operands[0], op.results[0].type
    if src.type is out and op.spec.name == "tensor.broadcast":
        return src
    assert isinstance(out, TensorType)
    n = constant_of(src)
    if n is not None:
        return b.constant(n, out)
    inner = src.defining_op
    if isinstance(inner, SplatOp):
        return b.insert(SplatOp(inner.src, out.shape, loc=op.loc)).result
    if op.spec.name == "tensor.trans" and tuple(op.attrs["order"]) == tuple(range(out.rank)):
        return src
    if op.spec.name == "tensor.reshape" and src.type is out:
        return src
    return None


def _ptr_add(op: OpBase, b: Builder) -> Value | None:
    ptr, offset = op.operands
    if constant_of(offset) == 0:
        return ptr
    return _of_splats(op, b)


def _bitcast(op: OpBase, b: Builder) -> Value | None:
    src = op.operands[0]
    return src if src.type is op.results[0].type else None


def _hint(op: OpBase, b: Builder) -> Value | None:
    """A hint on a constant says nothing new."""
    src = op.operands[0]
    return src if constant_of(src) is not None and not isinstance(element_of(src.type), PointerType) else None


_SPECIAL: dict[str, Callable[[OpBase, Builder], Value | None]] = {
    "arith.cast": _cast,
    "arith.bitcast": _bitcast,
    "arith.hint": _hint,
    "tensor.splat": _splat,
    "tensor.expand_dims": _reshaped,
    "tensor.broadcast": _reshaped,
    "tensor.trans": _reshaped,
    "tensor.reshape": _reshaped,
    "memory.ptr_add": _ptr_add,
}
