"""Arithmetic: the elementwise table, constants, casts.

What the declarations leave open is settled here: an integer divided by zero gives all bits set, as quotient and as
remainder (what the hardware gives); the smallest integer divided by -1 is itself, remainder 0. Of +0 and -0 the
smaller is -0. 16-bit and 8-bit floats are computed in f32 and rounded once, which for one sum, product, quotient or
root is the correct rounding; 8-bit results saturate.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from mimw.ir.core import OpBase
from mimw.ir.types import DType, PointerType, element_of, shape_of
from mimw.sim.tile.numerics import (
    Array,
    bits_of,
    float_to_int,
    from_bits,
    int_to_float,
    numpy_dtype,
    odd_sum,
    to_float,
    wide,
)
from mimw.sim.tile.registry import COMPUTES, computes


def _scalar(op: OpBase, i: int = 0) -> DType:
    e = element_of(op.operands[i].type)
    assert isinstance(e, DType)
    return e


def rounded(op: OpBase, fn: Callable[..., Array], *xs: Array) -> Array:
    """`fn` computed in f32 or f64 and rounded to the result's float type."""
    return to_float(np.asarray(fn(*[wide(x) for x in xs])), _result(op))


def _result(op: OpBase) -> DType:
    e = element_of(op.results[0].type)
    assert isinstance(e, DType)
    return e


def _numeric(name: str, fn: Callable[..., Array], of_ints: Callable[..., Array] | None = None) -> None:
    """Register an op whose float form is `fn` with one rounding and whose integer form is `of_ints`."""

    def run(op: OpBase, *xs: Array) -> Array:
        if _scalar(op).kind == "float":
            return rounded(op, fn, *xs)
        return (of_ints or fn)(*xs)

    COMPUTES[name] = run


def _plain(name: str, fn: Callable[..., Array]) -> None:
    def run(op: OpBase, *xs: Array) -> Array:
        return fn(*xs)

    COMPUTES[name] = run


def _comparison(name: str, fn: Callable[[Array, Array], Array]) -> None:
    def run(op: OpBase, a: Array, b: Array) -> Array:
        e = element_of(op.operands[0].type)
        return fn(wide(a), wide(b)) if isinstance(e, DType) and e.kind == "float" else fn(a, b)

    COMPUTES[name] = run


def _div(a: Array, b: Array) -> Array:
    """Integer quotient, truncated."""
    one, zero = b.dtype.type(1), b.dtype.type(0)
    special = b == zero
    minus = b == b.dtype.type(-1) if b.dtype.kind == "i" else np.zeros_like(special)
    safe = np.where(special | minus, one, b)
    q = np.floor_divide(a, safe)
    if b.dtype.kind == "i":
        inexact = np.remainder(a, safe) != 0
        q = np.where(inexact & ((a < zero) != (safe < zero)), q + one, q)
        q = np.where(minus, np.negative(a), q)
    return np.where(special, ~zero, q).astype(a.dtype)


def _rem(a: Array, b: Array) -> Array:
    """Integer remainder with the sign of the dividend."""
    one, zero = b.dtype.type(1), b.dtype.type(0)
    special = b == zero
    minus = b == b.dtype.type(-1) if b.dtype.kind == "i" else special
    r = np.fmod(a, np.where(special | minus, one, b))
    return np.where(special, ~zero, r).astype(a.dtype)


def _mulhi(a: Array, b: Array) -> Array:
    bits = a.dtype.itemsize * 8
    if bits < 64:
        double = np.dtype(np.int64 if a.dtype.kind == "i" else np.uint64)
        return np.asarray((a.astype(double) * b.astype(double)) >> double.type(bits)).astype(a.dtype)
    product = np.asarray(a.astype(object) * b.astype(object))
    return np.asarray(np.frompyfunc(lambda p: p >> 64, 1, 1)(product), object).astype(a.dtype)


_Pick = Callable[[Array, Array], Array]


def smaller(pick: _Pick) -> _Pick:
    """`pick` (fmin or minimum) with -0 below +0."""

    def picked(a: Array, b: Array) -> Array:
        return np.where(a == b, np.where(np.signbit(a), a, b), pick(a, b))

    return picked


def larger(pick: _Pick) -> _Pick:
    """`pick` (fmax or maximum) with +0 above -0."""

    def picked(a: Array, b: Array) -> Array:
        return np.where(a == b, np.where(np.signbit(a), b, a), pick(a, b))

    return picked


def _shift_count(a: Array, b: Array) -> tuple[Array, Array]:
    """The count within the width, and which counts reach it (negative ones are huge)."""
    width = a.dtype.itemsize * 8
    count = bits_of(b)
    return np.minimum(count, count.dtype.type(width - 1)).astype(a.dtype), count >= count.dtype.type(width)


def _shl(a: Array, b: Array) -> Array:
    count, over = _shift_count(a, b)
    return np.where(over, a.dtype.type(0), np.left_shift(a, count)).astype(a.dtype)


def _shr(a: Array, b: Array) -> Array:
    count, over = _shift_count(a, b)
    filled = np.right_shift(a, count)  # by width - 1 at most: for a signed value already the sign
    return filled if a.dtype.kind == "i" else np.where(over, a.dtype.type(0), filled).astype(a.dtype)


def _fma_f64(a: float, b: float, c: float) -> float:
    plain = a * b + c
    if not all(np.isfinite(v) for v in (a, b, c)):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain if a * b == 0 or plain == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


@computes("arith.fma")
def _fma(op: OpBase, a: Array, b: Array, c: Array) -> Array:
    d = _result(op)
    if d.bits == 64:
        return np.asarray(np.frompyfunc(_fma_f64, 3, 1)(a, b, c)).astype(np.float64)
    exact = odd_sum(np.asarray(a.astype(np.float64) * b.astype(np.float64)), c.astype(np.float64))
    return to_float(exact, d)


_numeric("arith.add", np.add)
_numeric("arith.sub", np.subtract)
_numeric("arith.mul", np.multiply)
_plain("arith.mulhi", _mulhi)
_numeric("arith.div", np.divide, _div)
_numeric("arith.div_rn", np.divide)
_numeric("arith.rem", np.fmod, _rem)
_numeric("arith.minnum", smaller(np.fmin), np.minimum)
_numeric("arith.maxnum", larger(np.fmax), np.maximum)
_numeric("arith.minimum", smaller(np.minimum))
_numeric("arith.maximum", larger(np.maximum))
_plain("arith.and", np.bitwise_and)
_plain("arith.or", np.bitwise_or)
_plain("arith.xor", np.bitwise_xor)
_plain("arith.shl", _shl)
_plain("arith.shr", _shr)
_plain("arith.not", np.invert)
_numeric("arith.neg", np.negative)
_numeric("arith.abs", np.abs)
_comparison("arith.eq", np.equal)
_comparison("arith.ne", np.not_equal)
_comparison("arith.lt", np.less)
_comparison("arith.le", np.less_equal)
_comparison("arith.gt", np.greater)
_comparison("arith.ge", np.greater_equal)
_plain("arith.select", np.where)


@computes("arith.constant")
def _constant(op: OpBase) -> Array:
    value: Any = op.attrs["value"]
    t = op.results[0].type
    e = element_of(t)
    if isinstance(e, PointerType):
        one = np.array(int(value), np.int64)
    elif e.kind == "float":
        one = to_float(np.array(float(value), np.float64), e)
    elif e.kind == "bool":
        one = np.array(bool(value))
    else:
        bits = int(value) & ((1 << e.bits) - 1)
        one = np.array(bits, f"uint{e.bits}").view(numpy_dtype(e))
    return np.full(shape_of(t), one, one.dtype)


@computes("arith.cast")
def _cast(op: OpBase, x: Array) -> Array:
    src, dst = element_of(op.operands[0].type), element_of(op.results[0].type)
    if isinstance(src, PointerType) or isinstance(dst, PointerType):
        return x.astype(numpy_dtype(dst))
    if dst.kind == "bool":
        return (wide(x) if src.kind == "float" else x) != 0
    if dst.kind != "float":
        return float_to_int(x, dst) if src.kind == "float" else x.astype(numpy_dtype(dst))
    if src.kind != "float":
        return int_to_float(x, dst)
    return to_float(x, dst, saturate=op.attrs["saturate"], toward_zero=op.attrs["rounding"] == "rtz")


@computes("arith.bitcast")
def _bitcast(op: OpBase, x: Array) -> Array:
    dst = element_of(op.results[0].type)
    if isinstance(dst, PointerType):
        return x
    bits = bits_of(x)
    return bits != 0 if dst.kind == "bool" else from_bits(bits, numpy_dtype(dst))


@computes("arith.hint")
def _hint(op: OpBase, x: Array) -> Array:
    return x


__all__ = ["rounded"]
