"""Elementwise arithmetic beyond the operators: casts, selection, extrema, exact division, and small integer helpers."""

from __future__ import annotations

from enum import Enum
from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.types import F16, F32, I1, U32, U64, DType, Element, PointerType
from mimw.language import promotion, semantic
from mimw.language.core import TensorLike, as_value, const_bool, const_str, explain, method, operand, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.semantic import Operand


class PropagateNan(Enum):
    """What maximum, minimum and clamp do with NaN: NONE prefers the number, ALL gives NaN."""

    NONE = 0
    ALL = 1


@method
def cast(input: TensorLike, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """`input` with elements of `dtype`. Floats round to nearest even, or toward zero with
    ``fp_downcast_rounding="rtz"``.

    float to int truncates toward zero; anything to int1 is ``!= 0``; `bitcast` keeps the bits (equal widths).
    """
    d: Any = unwrap(dtype)
    if not isinstance(d, (DType, PointerType)):
        fail("bad-argument", f"cast: {explain(d)} is not a dtype")
    rounding = "rtne"
    raw = operand(input, "cast")
    if isinstance(raw, (int, float)) and isinstance(d, DType) and not unwrap(bitcast):
        if isinstance(raw, float) and not d.is_floating():
            if raw != raw or raw in (float("inf"), float("-inf")):
                fail("bad-cast", f"cast: {raw} to {d}")
            raw = int(raw)
        return tensor(current_builder("cast").constant(raw, d))
    v = as_value(input, "cast")
    if fp_downcast_rounding is not None:
        rounding = const_str(fp_downcast_rounding, "cast: fp_downcast_rounding", ("rtne", "rtz"))
        s = semantic.element(v)
        if not (
            isinstance(s, DType) and isinstance(d, DType) and s.is_floating() and d.is_floating() and d.bits < s.bits
        ):
            fail("bad-cast", f"cast: fp_downcast_rounding is for a float cast to a narrower one, not {s} to {d}")
    return tensor(semantic.cast(v, d, rounding, const_bool(bitcast, "cast: bitcast")))


@method
def to(input: TensorLike, dtype: Element, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """The method form of `cast`: ``x.to(ml.float16)``."""
    return cast(input, dtype, fp_downcast_rounding, bitcast)


def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> tensor:
    """`x` where `condition` holds, else `y`; the three broadcast together. Both sides are computed."""
    return tensor(semantic.select(operand(condition, "where"), operand(x, "where"), operand(y, "where")))


def _extremum(name: str, x: TensorLike, y: TensorLike, propagate_nan: PropagateNan) -> tensor:
    a, b = operand(x, name), operand(y, name)
    d = semantic.common_dtype(a, b, name)
    if d.is_fp8():
        d = F16
    mode = unwrap(propagate_nan)
    if not isinstance(mode, PropagateNan):
        fail("bad-argument", f"{name}: propagate_nan is ml.PropagateNan.NONE or ml.PropagateNan.ALL")
    op = f"arith.{name}" if mode is PropagateNan.ALL and d.is_floating() else f"arith.{name[:3]}num"
    return tensor(current_builder(name).elementwise(op, *semantic.unify(a, b, d, name)))


@method
def maximum(x: TensorLike, y: TensorLike, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The larger element. With NONE a NaN loses against a number; with ALL it wins."""
    return _extremum("maximum", x, y, propagate_nan)


@method
def minimum(x: TensorLike, y: TensorLike, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """The smaller element. With NONE a NaN loses against a number; with ALL it wins."""
    return _extremum("minimum", x, y, propagate_nan)


def clamp(x: TensorLike, min: TensorLike, max: TensorLike, propagate_nan: PropagateNan = PropagateNan.NONE) -> tensor:
    """`x` held between `min` and `max`; where min > max the result is `max`."""
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)


def _float_pair(name: str, x: TensorLike, y: TensorLike) -> tuple[Any, Any]:
    a, b = operand(x, name), operand(y, name)
    d = semantic.common_dtype(a, b, name)
    if not d.is_floating() or d.bits < 32:
        d = F32
    return semantic.unify(a, b, d, name)


def fdiv(x: TensorLike, y: TensorLike, ieee_rounding: bool = False) -> tensor:
    """x / y for floats; correctly rounded with `ieee_rounding`."""
    name = "arith.div_rn" if const_bool(ieee_rounding, "fdiv: ieee_rounding") else "arith.div"
    return tensor(current_builder("fdiv").elementwise(name, *_float_pair("fdiv", x, y)))


def div_rn(x: TensorLike, y: TensorLike) -> tensor:
    """The correctly rounded quotient (f32, f64)."""
    return tensor(current_builder("div_rn").elementwise("arith.div_rn", *_float_pair("div_rn", x, y)))


def fma(x: TensorLike, y: TensorLike, z: TensorLike) -> tensor:
    """x * y + z with one rounding (floats)."""
    a, b, c = operand(x, "fma"), operand(y, "fma"), operand(z, "fma")
    d = _common3(a, b, c)
    if not d.is_floating() or d.is_fp8():
        fail("type-mismatch", f"fma takes floats, not {d}")
    shape = semantic.broadcast_shapes(semantic.operand_shape(a), semantic.operand_shape(b), "fma")
    shape = semantic.broadcast_shapes(shape, semantic.operand_shape(c), "fma")
    return tensor(
        current_builder("fma").elementwise(
            "arith.fma", *(semantic.to_shape_and_dtype(v, shape, d, "fma") for v in (a, b, c))
        )
    )


def _common3(a: Operand, b: Operand, c: Operand) -> DType:
    values = [v for v in (a, b, c) if not isinstance(v, (int, float))]
    if not values:
        return F32
    d = semantic.dtype_of(values[0], "fma")
    for v in values[1:]:
        d = promotion.promote(d, semantic.dtype_of(v, "fma"))
    return d


def umulhi(x: TensorLike, y: TensorLike) -> tensor:
    """The high half of the double-width product of int32, uint32, int64 or uint64, as unsigned numbers."""
    a, b = operand(x, "umulhi"), operand(y, "umulhi")
    d = semantic.common_dtype(a, b, "umulhi")
    if d.is_floating() or d.bits not in (32, 64) or d is I1:
        fail("type-mismatch", f"umulhi takes 32 and 64 bit integers, not {d}")
    u = U64 if d.bits == 64 else U32
    p, q = semantic.unify(a, b, d, "umulhi")
    out = current_builder("umulhi").elementwise("arith.mulhi", semantic.cast(p, u), semantic.cast(q, u))
    return tensor(semantic.cast(out, d))


@method
def abs(x: TensorLike) -> tensor:
    """The absolute value; unsigned numbers are themselves, the smallest signed integer stays itself."""
    v = as_value(x, "abs")
    d = semantic.dtype_of(v, "abs")
    if d.kind in ("uint", "bool"):
        return tensor(v)
    if d.is_fp8():
        fail("fp8-arithmetic", f"abs is not defined on {d}", "convert first: x.to(ml.float32)")
    return tensor(current_builder("abs").elementwise("arith.abs", v))


def _plain(x: Any) -> int | None:
    x = unwrap(x)
    return int(x) if isinstance(x, int) else None


@method
def cdiv(x: TensorLike, div: TensorLike) -> Any:
    """(x + div - 1) // div: the number of blocks of size `div` that cover `x`. Constant for constants."""
    a, b = _plain(x), _plain(div)
    if a is not None and b is not None:
        if b == 0:
            fail("division-by-zero", "cdiv by the constant 0")
        return -(-a // b)
    for v in (x, div):
        if isinstance(v, tensor) and semantic.dtype_of(v.value, "cdiv").is_floating():
            fail("type-mismatch", f"cdiv takes integers, not {v.type}")
    if b is not None:
        return (_tensor(x) + (b - 1)) // b
    d = _tensor(div)
    return (x + (d - 1)) // d


def _tensor(x: TensorLike) -> tensor:
    return x if isinstance(x, tensor) else tensor(as_value(x, "cdiv"))


def swizzle2d(
    i: TensorLike, j: TensorLike, size_i: TensorLike, size_j: TensorLike, size_g: TensorLike
) -> tuple[Any, Any]:
    """Row-major indices (i, j) of a size_i x size_j grid to column-major order inside groups of `size_g` rows."""
    ij = i * size_j + j  # type: ignore[operator]
    size_gj = size_g * size_j  # type: ignore[operator]
    group = ij // size_gj
    off_i = group * size_g
    left = size_i - off_i  # type: ignore[operator]
    rows: Any = minimum(left, size_g) if isinstance(left, tensor) or isinstance(size_g, tensor) else min(left, size_g)
    within = ij % size_gj
    return off_i + within % rows, within // rows


@method
def logical_and(x: TensorLike, y: TensorLike) -> tensor:
    """(x != 0) & (y != 0), element by element."""
    return tensor(
        semantic.bitwise(
            "and", semantic.as_bool(as_value(x, "logical_and")), semantic.as_bool(as_value(y, "logical_and"))
        )
    )


@method
def logical_or(x: TensorLike, y: TensorLike) -> tensor:
    """(x != 0) | (y != 0), element by element."""
    return tensor(
        semantic.bitwise("or", semantic.as_bool(as_value(x, "logical_or")), semantic.as_bool(as_value(y, "logical_or")))
    )


def next_power_of_2(n: int) -> int:
    """The smallest power of two not below the constant `n`."""
    n = int(unwrap(n))
    return 1 << max(0, (n - 1).bit_length())
