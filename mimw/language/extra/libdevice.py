"""libdevice: mathematical functions that the language itself does not have, by the names of NVIDIA's library, on every target.

Made of the language's own functions, so that all engines compute the same. f32; 16-bit floats are computed in f32 and rounded once, integers count as
f32. f64 only where a function of the language stands behind the name. Bounds are relative and for f32, as measured in the tests; the coefficients are
least-squares fits of our own (weighted for the relative error), good to 2^-24.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from mimw.ir.types import F32, F64, I1, I32, U32, DType
from mimw.language import semantic
from mimw.language.arith import abs, clamp, div_rn, fdiv, fma, maximum, minimum, umulhi, where
from mimw.language.core import TensorLike, as_value, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.math import (
    ceil,
    cos,
    erf,
    exp,
    exp2,
    floor,
    log,
    log2,
    rint,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    tanh,
    trunc,
)

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clz", "copysign", "cos", "cosh", "div_rn", "erf", "exp",
    "exp10", "exp2", "expm1", "fabs", "fast_cosf", "fast_dividef", "fast_exp10f", "fast_expf", "fast_log10f", "fast_log2f", "fast_logf",
    "fast_powf", "fast_sinf", "fast_tanf", "fast_tanhf", "ffs", "finitef", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "isfinited", "isinf",
    "isnan", "log", "log10", "log1p", "log2", "mulhi", "nearbyint", "popc", "pow", "rint", "round", "rsqrt", "saturatef", "signbit", "sin", "sinh",
    "sqrt", "sqrt_rn", "tan", "tanh", "trunc",
]  # fmt: skip

fabs = abs
fmax = maximum
fmin = minimum
mulhi = umulhi
nearbyint = rint
fast_dividef = fdiv
fast_expf = exp
fast_logf = log
fast_log2f = log2
fast_sinf = sin
fast_cosf = cos
fast_tanhf = tanh

_PI = 3.14159265358979
_LN2 = 0.693147180559945
_INF = float("inf")
_ASIN = (0.16666753590106964, 0.07495241612195969, 0.045477092266082764, 0.0241476409137249, 0.042218491435050964)
_ATAN = (-0.33332952857017517, 0.19977866113185883, -0.13879138231277466, 0.08057838678359985)
_SINH = (0.1666666716337204, 0.008333350531756878, 0.0001983606634894386, 2.8174399631097913e-06)
_EXPM1 = (0.5000000596046448, 0.1666666865348816, 0.04166531190276146, 0.008333082310855389, 0.0013997540809214115, 0.0001999049272853881)  # fmt: skip
_LOG1P = (0.6666666269302368, 0.40000930428504944, 0.28503739833831787, 0.24148233234882355)


def _f32(x: TensorLike, name: str) -> tensor:
    """The argument in f32."""
    v = as_value(x, f"libdevice.{name}")
    d = semantic.dtype_of(v, f"libdevice.{name}")
    if d.is_fp8():
        fail("fp8-arithmetic", f"libdevice.{name} is not defined on {d}", "convert first: x.to(ml.float32)")
    if d is F64:
        fail("not-yet", f"libdevice.{name}: f64 is not there yet", "convert first: x.to(ml.float32)")
    return tensor(semantic.cast(v, F32))


def _as(result: tensor, x: TensorLike) -> tensor:
    """A result in the type of the argument, where that is a float."""
    d = semantic.element(as_value(x, "libdevice"))
    return result.to(d) if isinstance(d, DType) and d.is_floating() else result


def _poly(z: tensor, coefficients: Sequence[float]) -> Any:
    """sum of c[i] * z**i, by fma."""
    return reduce(lambda high, low: fma(high, z, low), reversed(coefficients[:-1]), z * 0.0 + coefficients[-1])


def _bits(x: tensor) -> tensor:
    return x.to(U32, bitcast=True)


# Questions, signs, rounding.


def isnan(x: TensorLike) -> tensor:
    """Whether x is no number: int1."""
    v = tensor(as_value(x, "libdevice.isnan"))
    return v != v


def isinf(x: TensorLike) -> tensor:
    """Whether x is infinite: int1."""
    return abs(x) == _INF


def isfinited(x: TensorLike) -> tensor:
    """Whether x is a finite number: int1."""
    return abs(x) < _INF


finitef = isfinited


def signbit(x: TensorLike) -> tensor:
    """Whether the sign of x is a minus (that of -0.0 too): int32, 0 or 1."""
    return (_bits(_f32(x, "signbit")) >> 31).to(I32)


def copysign(x: TensorLike, y: TensorLike) -> tensor:
    """|x| with the sign of y."""
    return _as(_signed(_f32(x, "copysign"), _f32(y, "copysign")), x)


def _signed(x: tensor, y: tensor) -> tensor:
    return ((_bits(x) & 0x7FFFFFFF) | (_bits(y) & 0x80000000)).to(F32, bitcast=True)


def round(x: TensorLike) -> tensor:
    """The nearest integer, halves away from zero, as a float."""
    v = _f32(x, "round")
    whole = trunc(v)
    return _as(_signed(abs(whole) + where(abs(v - whole) >= 0.5, 1.0, 0.0), v), x)


def saturatef(x: TensorLike) -> tensor:
    """x held between 0 and 1."""
    return clamp(x, 0.0, 1.0)


def fmod(x: TensorLike, y: TensorLike) -> tensor:
    """The remainder of x / y with the sign of x, exact: ``x % y``."""
    return tensor(semantic.remainder(as_value(x, "libdevice.fmod"), as_value(y, "libdevice.fmod")))


# Exponentials and logarithms.


def _exp(x: tensor, below: tensor | float = 0.0) -> tensor:
    """e**x * 2**below with the error of exp2 for all finite x."""
    return _split_exp(x, 1.44269504088896, 0.693145751953125, 1.42860677e-06, below)


def _split_exp(x: tensor, scale: float, high: float, low: float, below: tensor | float) -> tensor:
    """exp2(x * scale + below). The power of two is split off exactly: `high` + `low` is 1 / `scale`, and `high` has few bits."""
    n = rint(x * scale)
    r = fma(n, -low, fma(n, -high, x))
    half = floor(n * 0.5)  # in two steps, so that the extremes are reached
    return exp2(r * scale) * exp2(half) * exp2(n - half + below)


def _within(x: tensor, low: float, high: float) -> tensor:
    """x held between two numbers, NaN being itself."""
    return where(x < low, low, where(x > high, high, x))


def exp10(x: TensorLike) -> tensor:
    """10**x: 2^-21."""
    v = _within(_f32(x, "exp10"), -60.0, 60.0)
    return _as(_split_exp(v, 3.32192809488736, 0.301025390625, 4.60503898e-06, 0.0), x)


fast_exp10f = exp10


def expm1(x: TensorLike) -> tensor:
    """e**x - 1, also near 0: 2^-21."""
    v = _f32(x, "expm1")
    near = where(v == 0, v, fma(v * v, _poly(v, _EXPM1), v))
    return _as(where(abs(v) < 0.5, near, _exp(_within(v, -30.0, 90.0)) - 1.0), x)


def log10(x: TensorLike) -> tensor:
    """The logarithm to base 10; near 1 2^-22 absolute."""
    return _as(log2(_f32(x, "log10")) * 0.301029995663981, x)


fast_log10f = log10


def log1p(x: TensorLike) -> tensor:
    """log(1 + x), also near 0: 2^-20."""
    return _as(_log1p(_f32(x, "log1p")), x)


def _log1p(v: tensor) -> tensor:
    s = v / (v + 2.0)
    near = fma(s * (s * s), _poly(s * s, _LOG1P), s + s)
    u = v + 1.0
    lost = where((u < 2.0**24) & (u > 0), (v - (u - 1.0)) / u, 0.0)
    return where(abs(v) < 0.375, near, log(u) + lost)


def pow(x: TensorLike, y: TensorLike) -> tensor:
    """x**y: 2^-22. Powers by constant whole numbers up to 64 are products; others go through f64.

    As in C: 1 for y = 0, the sign of x for odd y, NaN for x < 0 and y no integer.
    """
    n = unwrap(y)
    v = _f32(x, "pow")
    if isinstance(n, (int, float)) and n == int(n) and 0 <= n <= 64:
        return _as(_power(v, int(n)), x)
    e = _f32(y, "pow")
    size = exp2(e.to(F64) * log2(abs(v).to(F64))).to(F32)
    whole = (trunc(e) == e) | isinf(e)
    odd = whole & (abs(e) < 2.0**24) & (fmod(e, 2.0) != 0)
    out = where((v < 0) & odd, -size, where((v < 0) & (v > -_INF) & ~whole, float("nan"), size))
    out = where((v == 0) & odd, _signed(size, v), out)
    return _as(where((e == 0) | (v == 1) | ((v == -1) & isinf(e)), 1.0, out), x)


def _power(v: tensor, n: int) -> tensor:
    """By repeated squaring."""
    out: Any = None
    while n:
        if n & 1:
            out = v if out is None else out * v
        n >>= 1
        if n:
            v = v * v
    return where(v == v, 1.0, 1.0) if out is None else out  # x**0 is 1 for NaN too


fast_powf = pow


def cbrt(x: TensorLike) -> tensor:
    """The cube root: 2^-22."""
    v = _f32(x, "cbrt")
    small = abs(v) < 1.17549435e-38  # of denormals exp2 and log2 know nothing
    a = abs(v) * where(small, 2.0**24, 1.0)
    first = exp2(log2(a) * 0.333333333333333)
    better = (first - (first * first * first - a) / (3.0 * first * first)) * where(small, 2.0**-8, 1.0)
    return _as(_signed(where((a == 0) | ~(a < _INF), a, better), v), x)


def hypot(x: TensorLike, y: TensorLike) -> tensor:
    """sqrt(x*x + y*y) without overflow: 2^-22."""
    a, b = abs(_f32(x, "hypot")), abs(_f32(y, "hypot"))
    large, small = maximum(a, b), minimum(a, b)
    ratio = small / where(large > 0, large, 1.0)
    out = where(large == _INF, _INF, large * sqrt_rn(fma(ratio, ratio, 1.0)))
    return _as(where((isnan(a) | isnan(b)) & ~(large == _INF), float("nan"), out), x)


# Trigonometric and hyperbolic functions.


def tan(x: TensorLike) -> tensor:
    """sin(x) / cos(x), with their error."""
    v = _f32(x, "tan")
    return _as(sin(v) / cos(v), x)


fast_tanf = tan


def asin(x: TensorLike) -> tensor:
    """The arc sine: 2^-21."""
    v = _f32(x, "asin")
    return _as(_signed(_asin(abs(v)), v), x)


def _asin(a: tensor) -> tensor:
    """The arc sine of what is not negative."""
    far = a > 0.5
    z = where(far, fma(a, -0.5, 0.5), a * a)
    s = where(far, sqrt_rn(z), a)
    near = fma(s * z, _poly(z, _ASIN), s)
    return where(far, _PI / 2 - 2.0 * near, near)


def acos(x: TensorLike) -> tensor:
    """The arc cosine: 2^-21."""
    v = _f32(x, "acos")
    a = abs(v)
    s = sqrt_rn(fma(a, -0.5, 0.5))
    far = 2.0 * fma(s * (s * s), _poly(s * s, _ASIN), s)
    near = _PI / 2 - _signed(_asin(a), v)
    return _as(where(a > 0.5, where(v > 0, far, _PI - far), near), x)


def atan(x: TensorLike) -> tensor:
    """The arc tangent: 2^-21."""
    v = _f32(x, "atan")
    a = abs(v)
    inverse = 1.0 / where(a > 1.0, a, 1.0)
    return _as(_signed(where(a > 1.0, _PI / 2 - _atan(inverse), _atan(a)), v), x)


def _atan(a: tensor) -> tensor:
    """The arc tangent of numbers from 0 to 1 (of others something)."""
    far = a > 0.414213562
    t = where(far, (a - 1.0) / (a + 1.0), a)
    z = t * t
    return where(far, _PI / 4, 0.0) + fma(t * z, _poly(z, _ATAN), t)


def atan2(y: TensorLike, x: TensorLike) -> tensor:
    """The angle of the point (x, y), from -pi to pi: 2^-21. Signs of zeros and infinities count as in C."""
    u, v = _f32(x, "atan2"), _f32(y, "atan2")
    a, b = abs(u), abs(v)
    large, small = maximum(a, b), minimum(a, b)
    ratio = where(small == _INF, 1.0, small / where(large > 0, large, 1.0))
    angle = _atan(ratio)
    angle = where(b > a, _PI / 2 - angle, angle)
    angle = where(_bits(u) >> 31 != 0, _PI - angle, angle)
    return _as(where(isnan(u) | isnan(v), float("nan"), _signed(angle, v)), y)


def sinh(x: TensorLike) -> tensor:
    """The hyperbolic sine: 2^-20."""
    v = _f32(x, "sinh")
    a = abs(v)
    z = v * v
    near = fma(v * z, _poly(z, _SINH), v)
    half = _exp(_within(a, 0.0, 100.0), -1.0)
    return _as(where(a < 1.0, near, _signed(half - 0.25 / half, v)), x)


def cosh(x: TensorLike) -> tensor:
    """The hyperbolic cosine: 2^-20."""
    half = _exp(_within(abs(_f32(x, "cosh")), 0.0, 100.0), -1.0)
    return _as(half + 0.25 / half, x)


def asinh(x: TensorLike) -> tensor:
    """The inverse hyperbolic sine: 2^-20."""
    v = _f32(x, "asinh")
    a = abs(v)
    z = a * a
    near = _log1p(a + z / (1.0 + sqrt_rn(z + 1.0)))
    return _as(_signed(where(a > 1e9, log(a) + _LN2, near), v), x)


def acosh(x: TensorLike) -> tensor:
    """The inverse hyperbolic cosine: 2^-20; NaN below 1."""
    v = _f32(x, "acosh")
    t = v - 1.0
    return _as(where(v > 1e9, log(v) + _LN2, _log1p(t + sqrt_rn(2.0 * t + t * t))), x)


def atanh(x: TensorLike) -> tensor:
    """The inverse hyperbolic tangent: 2^-20; NaN beyond 1."""
    v = _f32(x, "atanh")
    a = abs(v)
    return _as(_signed(0.5 * _log1p(2.0 * a / (1.0 - a)), v), x)


# Bits of integers.


def _words(x: TensorLike, name: str) -> tensor:
    v = as_value(x, f"libdevice.{name}")
    d = semantic.dtype_of(v, f"libdevice.{name}")
    if d is I1 or d.is_floating() or d.bits != 32:
        fail("type-mismatch", f"libdevice.{name} takes integers of 32 bits, not {v.type}")
    return tensor(v).to(U32, bitcast=True)


def popc(x: TensorLike) -> tensor:
    """How many bits of a 32-bit integer are set: int32."""
    v = _words(x, "popc")
    v = v - ((v >> 1) & 0x55555555)
    v = (v & 0x33333333) + ((v >> 2) & 0x33333333)
    return ((((v + (v >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(I32)


def clz(x: TensorLike) -> tensor:
    """How many leading bits of a 32-bit integer are zero: int32, 32 for 0."""
    v = _words(x, "clz")
    for by in (1, 2, 4, 8, 16):
        v = v | (v >> by)
    return 32 - popc(v)


def ffs(x: TensorLike) -> tensor:
    """The place of the lowest set bit of a 32-bit integer, counted from 1: int32, 0 for 0."""
    v = _words(x, "ffs")
    return where(v == 0, 0, 1 + popc(~v & (v - 1)))
