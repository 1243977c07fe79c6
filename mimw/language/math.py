"""Mathematical functions, element by element.

f16 and bf16 arguments give their own type (computed in f32, rounded once); integers are computed as f32; fp8 is
refused. Error bounds are those of the ops' declarations.
"""

from __future__ import annotations

from mimw.ir.builder import current_builder
from mimw.ir.types import F32, F64
from mimw.language import semantic
from mimw.language.arith import abs, div_rn, fdiv, fma, umulhi
from mimw.language.core import TensorLike, as_value, method, tensor
from mimw.language.errors import fail

__all__ = [
    "abs",
    "ceil",
    "cos",
    "div_rn",
    "erf",
    "exp",
    "exp2",
    "fdiv",
    "floor",
    "fma",
    "log",
    "log2",
    "rint",
    "rsqrt",
    "sigmoid",
    "sin",
    "sqrt",
    "sqrt_rn",
    "tanh",
    "trunc",
    "umulhi",
]  # fmt: skip  (``ml.math.fma`` is how Triton's kernels call some of them)


def _unary(name: str, x: TensorLike, op: str = "", wide: bool = False) -> tensor:
    v = as_value(x, name)
    d = semantic.dtype_of(v, name)
    if d.is_fp8():
        fail("fp8-arithmetic", f"{name} is not defined on {d}", "convert first: x.to(ml.float32)")
    if not d.is_floating():
        v = semantic.cast(v, F64 if d.bits == 64 else F32)
    elif wide and d.bits < 32:
        v = semantic.cast(v, F32)
    return tensor(current_builder(name).elementwise(op or f"math.{name}", v))


@method
def exp(x: TensorLike) -> tensor:
    """e**x."""
    return _unary("exp", x)


@method
def exp2(x: TensorLike) -> tensor:
    """2**x."""
    return _unary("exp2", x)


@method
def log(x: TensorLike) -> tensor:
    """The natural logarithm."""
    return _unary("log", x)


@method
def log2(x: TensorLike) -> tensor:
    """The logarithm to base 2."""
    return _unary("log2", x)


@method
def sqrt(x: TensorLike) -> tensor:
    """The square root, fast; `sqrt_rn` is exact."""
    return _unary("sqrt", x)


@method
def sqrt_rn(x: TensorLike) -> tensor:
    """The correctly rounded square root (f32, f64)."""
    return _unary("sqrt_rn", x, wide=True)


@method
def rsqrt(x: TensorLike) -> tensor:
    """1 / sqrt(x)."""
    return _unary("rsqrt", x)


@method
def sin(x: TensorLike) -> tensor:
    """The sine of x in radians."""
    return _unary("sin", x)


@method
def cos(x: TensorLike) -> tensor:
    """The cosine of x in radians."""
    return _unary("cos", x)


@method
def tanh(x: TensorLike) -> tensor:
    """The hyperbolic tangent."""
    return _unary("tanh", x)


@method
def erf(x: TensorLike) -> tensor:
    """The error function."""
    return _unary("erf", x)


@method
def floor(x: TensorLike) -> tensor:
    """The largest integer not above x, as a float; integers are themselves."""
    return _rounding("floor", x)


@method
def ceil(x: TensorLike) -> tensor:
    """The smallest integer not below x, as a float; integers are themselves."""
    return _rounding("ceil", x)


@method
def rint(x: TensorLike) -> tensor:
    """The nearest integer, ties to even, as a float; integers are themselves."""
    return _rounding("rint", x)


@method
def trunc(x: TensorLike) -> tensor:
    """The integer part, as a float; integers are themselves."""
    return _rounding("trunc", x)


def _rounding(name: str, x: TensorLike) -> tensor:
    v = as_value(x, name)
    return _unary(name, x) if semantic.dtype_of(v, name).is_floating() else tensor(v)


@method
def sigmoid(x: TensorLike) -> tensor:
    """1 / (1 + exp(-x)); f16 and bf16 are computed and given in f32, as in Triton."""
    y = tensor(as_value(x, "sigmoid"))
    return 1 / (1 + exp(-y))
