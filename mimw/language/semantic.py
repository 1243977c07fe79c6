"""Type rules of the language on IR values: constants, broadcasting, casts, arithmetic, comparison, pointers.

Owns what Triton calls semantics: which type an expression has (by the rules of `promotion`) and which ops it becomes. Works on `Value`s and Python
numbers; knows neither the `tensor` class nor the frontend. Every function inserts at the current builder and raises
`CompilationError` at the builder's place.
"""

from __future__ import annotations

from math import prod
from typing import Union

from mimw.ir.builder import Builder, current_builder
from mimw.ir.core import Value
from mimw.ir.ops.arith import BitcastOp, CastOp
from mimw.ir.ops.memory import PtrAddOp
from mimw.ir.ops.tensor import BroadcastOp, ExpandDimsOp, SplatOp
from mimw.ir.types import (
    F16,
    F32,
    I1,
    I32,
    I64,
    U64,
    DType,
    Element,
    InflightType,
    MemDescType,
    PointerType,
    TensorType,
    Type,
    element_of,
    shape_of,
)
from mimw.language.errors import fail
from mimw.language.promotion import Number, check_number, number_dtype, promote, promote_number

Operand = Union[Value, int, float, bool]

SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "rem": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
}


def describe(x: object) -> str:
    """How messages name an operand: an IR type, or a Python constant."""
    return str(x.type) if isinstance(x, Value) else repr(x)


def element(x: Value) -> Element:
    """The element type of a value; an error for things that are no scalars, pointers or tiles."""
    t = x.type
    if isinstance(t, (DType, PointerType, TensorType)):
        return element_of(t)
    if isinstance(t, InflightType):
        fail(
            "in-flight",
            f"the {t.tensor} is still being written by async_dot",
            "wait for it first: x = ml.async_dot_wait(0, x)",
        )
    hint = "read the buffer first: ml.local_load(buf)" if isinstance(t, MemDescType) else None
    return fail("type-mismatch", f"a {t} is no value to compute with", hint)


def dtype_of(x: Value, what: str) -> DType:
    """The dtype of a value that must hold numbers."""
    e = element(x)
    if isinstance(e, PointerType):
        fail(
            "pointer-arithmetic",
            f"{what} does not take a pointer ({x.type})",
            "only pointer + int, pointer - int and comparisons exist",
        )
    return e


def constant(x: Number, t: Type) -> Value:
    """A Python number as a value of type `t` (range-checked)."""
    e = element_of(t)
    if isinstance(e, PointerType):
        fail("type-mismatch", f"the number {x} is not a pointer")
    check_number(x, e)
    return current_builder().constant(x, t)


def to_value(x: Operand) -> Value:
    """A value: itself, or a Python number by its own type."""
    return x if isinstance(x, Value) else constant(x, number_dtype(x))


def common_dtype(a: Operand, b: Operand, what: str, division: bool = False) -> DType:
    """The computation type of two operands, at least one of which is a value."""
    if isinstance(a, Value) and isinstance(b, Value):
        return promote(dtype_of(a, what), dtype_of(b, what), division)
    if isinstance(a, Value):
        assert not isinstance(b, Value)
        return promote_number(b, dtype_of(a, what), division)
    if isinstance(b, Value):
        return promote_number(a, dtype_of(b, what), division)
    return promote(number_dtype(a), number_dtype(b), division)


# Shapes.


MAX_ELEMENTS = 1 << 20
"""Of one tile, as in Triton: a larger one fits no machine's registers, and would keep the compiler busy for hours."""


def check_size(shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """Refuse a tile with too many elements; the shape."""
    if prod(shape) > MAX_ELEMENTS:
        text = f"{what}: a tile of shape {list(shape)} has {prod(shape)} elements; {MAX_ELEMENTS} is the most"
        fail("bad-shape", text, "let more programs share the work, or loop over smaller tiles")
    return shape


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The common shape: missing leading dimensions are 1, and a 1 stretches."""
    rank = max(len(a), len(b))
    pa = (1,) * (rank - len(a)) + a
    pb = (1,) * (rank - len(b)) + b
    out: list[int] = []
    for i, (x, y) in enumerate(zip(pa, pb, strict=True)):
        if x != y and x != 1 and y != 1:
            fail(
                "shape-mismatch",
                f"{what}: shapes {list(a)} and {list(b)} do not broadcast: {x} against {y} in dimension {i}",
            )
        out.append(max(x, y))
    return check_size(tuple(out), what)


def broadcast_to(x: Value, shape: tuple[int, ...], what: str = "broadcast") -> Value:
    """`x` in `shape`: splat of a scalar, leading dimensions added, ones stretched."""
    b = current_builder()
    have = shape_of(x.type)
    if have == shape:
        return x
    if not isinstance(x.type, TensorType):
        return b.insert(SplatOp(x, shape, loc=b.loc)).result
    if broadcast_shapes(have, shape, what) != shape:
        fail("shape-mismatch", f"{what}: shape {list(have)} does not broadcast to {list(shape)}")
    while len(have) < len(shape):
        x = b.insert(ExpandDimsOp(x, 0, loc=b.loc)).result
        have = (1, *have)
    if have == shape:
        return x
    return b.insert(BroadcastOp(x, shape, loc=b.loc)).result


def to_shape_and_dtype(x: Operand, shape: tuple[int, ...], d: DType, what: str) -> Value:
    """An operand cast to `d` and broadcast to `shape`; literals become constants of the whole shape at once."""
    if isinstance(x, Value):
        return broadcast_to(cast(x, d), shape, what)
    return constant(x, TensorType(shape, d) if shape else d)


def operand_shape(x: Operand) -> tuple[int, ...]:
    """The shape of an operand; () for numbers and scalars."""
    return shape_of(x.type) if isinstance(x, Value) else ()


def unify(a: Operand, b: Operand, d: DType, what: str) -> tuple[Value, Value]:
    """Both operands in type `d` and their common shape."""
    shape = broadcast_shapes(operand_shape(a), operand_shape(b), what)
    return to_shape_and_dtype(a, shape, d, what), to_shape_and_dtype(b, shape, d, what)


# Casts.


def cast(x: Value, d: Element, rounding: str = "rtne", bitcast: bool = False) -> Value:
    """`x` with elements of type `d`; no op when it has them already."""
    e = element(x)
    if e is d:
        return x
    b = current_builder()
    if bitcast:
        if isinstance(e, DType) and isinstance(d, DType) and e.primitive_bitwidth != d.primitive_bitwidth:
            fail("bad-cast", f"bitcast from {e} to {d}: the widths differ")
        return b.insert(BitcastOp(x, d, loc=b.loc)).result
    if isinstance(e, PointerType) and isinstance(d, PointerType):
        return b.insert(BitcastOp(x, d, loc=b.loc)).result
    if isinstance(e, PointerType) and d not in (I64, U64):
        fail("bad-cast", f"a pointer converts to int64 or uint64, not to {d}")
    if isinstance(d, PointerType) and e not in (I64, U64):
        fail("bad-cast", f"only int64 and uint64 convert to a pointer, not {e}")
    return b.insert(CastOp(x, d, rounding, loc=b.loc)).result


# Arithmetic.


def _is_pointer(x: Operand) -> bool:
    return isinstance(x, Value) and isinstance(element(x), PointerType)


def _computable(d: DType, what: str) -> DType:
    """i1 computes as i32; fp8 does not compute."""
    if d is I1:
        return I32
    if d.is_fp8():
        fail("fp8-arithmetic", f"{what} is not defined on {d}", "convert first: x.to(ml.float32)")
    return d


def _elementwise(name: str, *inputs: Value) -> Value:
    return current_builder().elementwise(name, *inputs)


def pointer_add(p: Value, offset: Operand, what: str = "+") -> Value:
    """Pointer plus integer offset in elements, broadcast to a common shape."""
    if not isinstance(offset, Value):
        if isinstance(offset, float):
            fail("pointer-arithmetic", f"pointer {what} {offset!r}: the offset is not an integer")
        offset = constant(int(offset), number_dtype(int(offset)))
    d = element(offset)
    if isinstance(d, PointerType) or d.is_floating():
        fail("pointer-arithmetic", f"{p.type} {what} {offset.type}: the offset is not an integer")
    if d is I1:
        offset = cast(offset, I32)
    shape = broadcast_shapes(shape_of(p.type), shape_of(offset.type), f"pointer {what} offset")
    b = current_builder()
    p, offset = broadcast_to(p, shape), broadcast_to(offset, shape)
    return b.insert(PtrAddOp(p, offset, loc=b.loc)).result


def binary(name: str, a: Operand, b: Operand) -> Value:
    """add, sub, mul on numbers; add and sub of an integer on pointers."""
    symbol = SYMBOLS.get(name, name)
    if name == "add" and (_is_pointer(a) or _is_pointer(b)):
        if _is_pointer(a) and _is_pointer(b):
            fail("pointer-arithmetic", "a pointer plus a pointer has no meaning")
        if _is_pointer(a):
            assert isinstance(a, Value)
            return pointer_add(a, b)
        assert isinstance(b, Value)
        return pointer_add(b, a)
    if name == "sub" and _is_pointer(a) and not _is_pointer(b):
        assert isinstance(a, Value)
        minus = negate(cast(b, I64) if dtype_of(b, "-").kind != "int" else b) if isinstance(b, Value) else -b
        return pointer_add(a, minus, "-")
    d = _computable(common_dtype(a, b, symbol), symbol)
    return _elementwise(f"arith.{name}", *unify(a, b, d, symbol))


def true_divide(a: Operand, b: Operand) -> Value:
    """`/`: integers as f32; f16 and bf16 give f32."""
    d = common_dtype(a, b, "/")
    if not d.is_floating() or _computable(d, "/").bits < 32:
        d = F32
    return _elementwise("arith.div", *unify(a, b, d, "/"))


def integer_divide(a: Operand, b: Operand) -> Value:
    """`//` on integers: truncates toward zero."""
    d = _computable(common_dtype(a, b, "//", division=True), "//")
    if d.is_floating():
        fail("type-mismatch", f"// takes integers, not {describe(a)} and {describe(b)}", "write ml.floor(x / y)")
    _refuse_zero(b, "//")
    return _elementwise("arith.div", *unify(a, b, d, "//"))


def remainder(a: Operand, b: Operand) -> Value:
    """`%`: sign of the dividend; C fmod for floats."""
    d = _computable(common_dtype(a, b, "%", division=True), "%")
    if not d.is_floating():
        _refuse_zero(b, "%")
    return _elementwise("arith.rem", *unify(a, b, d, "%"))


def _refuse_zero(b: Operand, what: str) -> None:
    if not isinstance(b, Value) and b == 0:
        fail("division-by-zero", f"{what} by the constant 0")


def bitwise(name: str, a: Operand, b: Operand) -> Value:
    """and, or, xor on integers and i1."""
    symbol = SYMBOLS[name]
    d = common_dtype(a, b, symbol)
    if d.is_floating():
        fail("type-mismatch", f"{symbol} takes integers, not {describe(a)} and {describe(b)}")
    return _elementwise(f"arith.{name}", *unify(a, b, d, symbol))


def shift(name: str, a: Operand, b: Operand) -> Value:
    """shl, shr; shr is arithmetic on signed types."""
    symbol = SYMBOLS[name]
    d = _computable(common_dtype(a, b, symbol), symbol)
    if d.is_floating():
        fail("type-mismatch", f"{symbol} takes integers, not {describe(a)} and {describe(b)}")
    if not isinstance(b, Value) and b < 0:
        fail("literal-range", f"a shift by {b}")
    return _elementwise(f"arith.{name}", *unify(a, b, d, symbol))


def compare(name: str, a: Operand, b: Operand) -> Value:
    """eq, ne, lt, le, gt, ge: i1 in the common shape."""
    if _is_pointer(a) or _is_pointer(b):
        if not (isinstance(a, Value) and isinstance(b, Value) and element(a) is element(b)):
            fail(
                "pointer-arithmetic",
                f"comparison of {describe(a)} and {describe(b)}",
                "cast a pointer with .to(ml.int64)",
            )
        shape = broadcast_shapes(shape_of(a.type), shape_of(b.type), "comparison")
        return _elementwise(f"arith.{name}", broadcast_to(a, shape), broadcast_to(b, shape))
    d = common_dtype(a, b, "comparison")
    if d.is_fp8():
        d = F16
    return _elementwise(f"arith.{name}", *unify(a, b, d, "comparison"))


def negate(x: Value) -> Value:
    """-x; i1 as i32."""
    d = _computable(dtype_of(x, "-"), "-")
    return _elementwise("arith.neg", cast(x, d))


def invert(x: Value) -> Value:
    """~x on integers; logical on i1."""
    if dtype_of(x, "~").is_floating():
        fail("type-mismatch", f"~ takes integers, not {x.type}")
    return _elementwise("arith.not", x)


def truth(x: Value, what: str) -> Value:
    """A scalar as i1 (not zero); tiles are refused, `what` names the construct that asks."""
    if isinstance(x.type, TensorType):
        fail(
            "tile-truth",
            f"{what} needs one truth value, not the {x.type}",
            "reduce it first, or use &, |, ~ and ml.where on tiles",
        )
    return as_bool(x)


def as_bool(x: Value) -> Value:
    """x != 0 in x's shape."""
    e = element(x)
    if e is I1:
        return x
    if isinstance(e, PointerType):
        return compare("ne", cast(x, U64), 0)
    return compare("ne", x, 0)


def select(cond: Operand, a: Operand, b: Operand) -> Value:
    """a where cond, else b; the three broadcast together, a and b are promoted."""
    c = as_bool(to_value(cond))
    shape = broadcast_shapes(broadcast_shapes(operand_shape(a), operand_shape(b), "where"), shape_of(c.type), "where")
    c = broadcast_to(c, shape, "where")
    if _is_pointer(a) or _is_pointer(b):
        if not (isinstance(a, Value) and isinstance(b, Value) and element(a) is element(b)):
            fail("type-mismatch", f"where of {describe(a)} and {describe(b)}")
        return _elementwise("arith.select", c, broadcast_to(a, shape), broadcast_to(b, shape))
    d = common_dtype(a, b, "where")
    return _elementwise(
        "arith.select", c, to_shape_and_dtype(a, shape, d, "where"), to_shape_and_dtype(b, shape, d, "where")
    )


__all__ = ["Builder", "Number", "Operand"]
