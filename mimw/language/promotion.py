"""Type rules: the type of a number, the type in which two operands are computed, and which types hold all values of others.

Owns what Triton calls promotion. Pure functions of types and Python numbers; `semantic` applies them to values.
"""

from __future__ import annotations

from typing import Union

from mimw.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    U32,
    U64,
    DType,
    InflightType,
    TensorType,
    Type,
    element_of,
    shape_of,
)
from mimw.language.errors import fail

Number = Union[int, float, bool]


def int_bounds(d: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if d.kind == "bool":
        return 0, 1
    if d.kind == "uint":
        return 0, (1 << d.bits) - 1
    return -(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1


def number_dtype(x: Number) -> DType:
    """The type of a Python number that no tile gives a type: i1, the first of i32/u32/i64/u64 that fits, f32 (f64
    past its range).
    """
    if isinstance(x, bool):
        return I1
    if isinstance(x, int):
        for d in (I32, U32, I64, U64):
            low, high = int_bounds(d)
            if low <= x <= high:
                return d
        fail("literal-range", f"{x} does not fit any integer type")
    finite = x == x and x not in (float("inf"), float("-inf"))
    return F64 if finite and abs(x) > 3.4028235677973366e38 else F32


def check_number(x: object, d: DType) -> None:
    """Refuse a Python number that `d` cannot hold."""
    if isinstance(x, bool) or not isinstance(x, int) or d.kind == "float":
        return
    low, high = int_bounds(d)
    if not low <= x <= high:
        fail(
            "literal-range",
            f"{x} does not fit {d} ({low} to {high})",
            "cast the other side to a wider type, as in x.to(ml.int64)",
        )


def _kind_rank(d: DType) -> int:
    return 0 if d.kind == "bool" else 1 if d.kind in ("int", "uint") else 2


def _promote_ints(a: DType, b: DType) -> DType:
    """Higher width wins; at equal width unsigned wins; i1 is the lowest."""
    if a is b:
        return a
    wa = 1 if a is I1 else a.bits
    wb = 1 if b is I1 else b.bits
    if wa != wb:
        return a if wa > wb else b
    return a if a.kind == "uint" else b


def promote(a: DType, b: DType, division: bool = False) -> DType:
    """The type in which an operation on `a` and `b` is computed (Triton's rules; f16 with bf16 gives f32)."""
    if a.is_floating() or b.is_floating():
        if a is F64 or b is F64:
            return F64
        if a is F32 or b is F32:
            return F32
        if {a, b} == {F16, BF16}:
            return F32
        for half in (F16, BF16):
            if a is half or b is half:
                other = b if a is half else a
                if division or (half is BF16 and other is not BF16):
                    return F32
                return half
        return a if a is b else F16
    if division and a is not I1 and b is not I1 and a.kind != b.kind:
        fail("signedness", f"division of {a} and {b}: one is signed, the other is not", "cast one side with .to(...)")
    return _promote_ints(a, b)


def promote_number(x: Number, d: DType, division: bool) -> DType:
    """The common type of a literal and a tile of `d`: the tile's, when the literal's kind is not above it."""
    own = number_dtype(x)
    if _kind_rank(own) <= _kind_rank(d):
        return F32 if division and d in (F16, BF16) else d
    return promote(own, d, division)


def exact_common(a: Type, b: Type) -> Type | None:
    """The narrowest of the two types that holds all values of both, when one of them does (same shape); else None."""
    if a is b:
        return a
    for wide, narrow in ((a, b), (b, a)):
        if isinstance(wide, InflightType) and wide.tensor is narrow:
            return wide
    if shape_of(a) != shape_of(b) or not isinstance(a, (DType, TensorType)) or not isinstance(b, (DType, TensorType)):
        return None
    x, y = element_of(a), element_of(b)
    if not isinstance(x, DType) or not isinstance(y, DType):
        return None
    if holds(x, y):
        return a
    return b if holds(y, x) else None


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide` and the kinds agree (int in int, float in float)."""
    if wide.kind == "float":
        roomy = narrow.kind == "float" and wide.mantissa >= narrow.mantissa and wide.exponent >= narrow.exponent
        return wide is narrow or (roomy and wide.bits > narrow.bits)
    if wide.kind == "bool" or narrow.kind in ("float", "bool"):
        return False
    low, high = int_bounds(wide)
    a, b = int_bounds(narrow)
    return low <= a and b <= high
