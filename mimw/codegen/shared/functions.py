"""Mathematical functions of f32 from the primitive approximations, and of f64 by their own sequences.

f32: exp, log, sqrt and rsqrt are the target's approximations; sin and cos reduce by pi/2 in three parts (good to |x| of some 10^5) and
use polynomials; tanh and erf come from exp2. f64: argument reduction and Taylor polynomials in fma, errors of a few ulp.
"""

from __future__ import annotations

import math

from mimw.codegen.lane import Lane
from mimw.codegen.lane_builder import LaneBuilder
from mimw.ir.types import F32, F64, I32, I64, U32, U64, DType

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


def horner(b: LaneBuilder, x: Lane, coefficients: list[float]) -> Lane:
    """The polynomial with the given coefficients, highest power first."""
    dtype = x.dtype
    acc = b.const(dtype, coefficients[0])
    for c in coefficients[1:]:
        acc = b.op("fma", dtype, acc, x, b.const(dtype, c))
    return acc


def exp2_f32(b: LaneBuilder, x: Lane) -> Lane:
    """2**x."""
    return b.op("ex2_approx", F32, x)


def with_sign_of(b: LaneBuilder, magnitude: Lane, x: Lane) -> Lane:
    """A non-negative number with the sign of x."""
    dtype = x.dtype
    assert isinstance(dtype, DType)
    bits = U64 if dtype.bits == 64 else U32
    sign = b.op("and", bits, b.bitcast(x, bits), b.const(bits, 1 << (dtype.bits - 1)))
    return b.bitcast(b.op("or", bits, b.bitcast(magnitude, bits), sign), dtype)


# ------------------------------------------------------------------------------------------------------------------ f32

_PI_2 = (1.5703125, 4.83751296997070312e-4, 7.549789948768648e-8)
_SIN_F32 = [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]
_COS_F32 = [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2]


def sincos_f32(b: LaneBuilder, x: Lane, quarter: int) -> Lane:
    """sin(x + quarter * pi/2)."""
    k = b.op("rint", F32, b.op("mul", F32, x, b.const(F32, 2 / math.pi)))
    minus = b.op("neg", F32, k)
    r = x
    for part in _PI_2:
        r = b.op("fma", F32, minus, b.const(F32, part), r)
    z = b.op("mul", F32, r, r)
    sine = b.op("fma", F32, b.op("mul", F32, horner(b, z, _SIN_F32), z), r, r)
    even = b.op("fma", F32, z, b.const(F32, -0.5), b.const(F32, 1.0))
    cosine = b.op("fma", F32, b.op("mul", F32, horner(b, z, _COS_F32), z), z, even)
    n = b.plus(b.convert("rzi", k, I32), quarter)
    odd = b.compare("ne", b.bit_and(n, 1), b.const(I32, 0))
    down = b.compare("ne", b.bit_and(n, 2), b.const(I32, 0))
    value = b.select(odd, cosine, sine)
    return b.select(down, b.op("neg", F32, value), value)


def tanh_f32(b: LaneBuilder, x: Lane) -> Lane:
    """1 - 2 / (1 + e**(2|x|)) with the sign of x; a polynomial near zero."""
    size = b.op("abs", F32, x)
    power = exp2_f32(b, b.op("mul", F32, size, b.const(F32, 2 * LOG2E)))
    one = b.const(F32, 1.0)
    quotient = b.op("div_full", F32, b.const(F32, 2.0), b.op("add", F32, power, one))
    large = with_sign_of(b, b.op("sub", F32, one, quotient), x)
    z = b.op("mul", F32, x, x)
    small = b.op("fma", F32, b.op("mul", F32, horner(b, z, [62 / 2835, -17 / 315, 2 / 15, -1 / 3]), z), x, x)
    return b.select(b.compare("lt", size, b.const(F32, 0.3)), small, large)


_ERF = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592]
_ERF_SERIES = [-0.000854832, 0.0052239776, -0.0268661706, 0.1128379167, -0.3761263890, 1.1283791671]


def erf_f32(b: LaneBuilder, x: Lane) -> Lane:
    """Abramowitz and Stegun 7.1.26 (1.5e-7), and the Taylor series below 1/2."""
    size = b.op("abs", F32, x)
    one = b.const(F32, 1.0)
    t = b.op("div_full", F32, one, b.op("fma", F32, size, b.const(F32, 0.3275911), one))
    z = b.op("mul", F32, x, x)
    decay = exp2_f32(b, b.op("mul", F32, z, b.const(F32, -LOG2E)))
    tail = b.op("mul", F32, b.op("mul", F32, horner(b, t, _ERF), t), decay)
    large = with_sign_of(b, b.op("sub", F32, one, tail), x)
    small = b.op("mul", F32, horner(b, z, _ERF_SERIES), x)
    return b.select(b.compare("lt", size, b.const(F32, 0.5)), small, large)


# ------------------------------------------------------------------------------------------------------------------ f64


def exp2_f64(b: LaneBuilder, x: Lane, natural: bool) -> Lane:
    """2**x, or e**x when `natural`."""
    limited = b.op("max", F64, b.op("min", F64, x, b.const(F64, 1100.0)), b.const(F64, -1200.0))
    scaled = b.op("mul", F64, limited, b.const(F64, LOG2E)) if natural else limited
    k = b.op("rint", F64, scaled)
    minus = b.op("neg", F64, k)
    if natural:
        r = b.op("fma", F64, minus, b.const(F64, 0.6931471803691238), limited)
        r = b.op("fma", F64, minus, b.const(F64, 1.9082149292705877e-10), r)
    else:
        r = b.op("mul", F64, b.op("add", F64, limited, minus), b.const(F64, LN2))
    value = horner(b, r, [1 / math.factorial(n) for n in range(13, -1, -1)])
    n = b.convert("rzi", k, I64)
    half = b.op("shr", I64, n, b.const(I64, 1))
    value = b.op("mul", F64, value, _power(b, half))
    value = b.op("mul", F64, value, _power(b, b.op("sub", I64, n, half)))
    return b.select(b.compare("nan", x, x), x, value)


def _power(b: LaneBuilder, n: Lane) -> Lane:
    """2**n for n inside the normal range."""
    return b.bitcast(b.op("shl", I64, b.plus(n, 1023), b.const(I64, 52)), F64)


def log_f64(b: LaneBuilder, x: Lane, scale: float) -> Lane:
    """ln(x) times `scale`."""
    tiny = b.compare("lt", x, b.const(F64, 2.0**-1022))
    whole = b.select(tiny, b.op("mul", F64, x, b.const(F64, 2.0**54)), x)
    bits = b.bitcast(whole, I64)
    # Cut at sqrt(2)/2, so that the mantissa lies around 1.
    shifted = b.op("sub", I64, bits, b.const(I64, 0x3FE6A09E667F3BCD))
    n = b.op("shr", I64, shifted, b.const(I64, 52))
    mantissa = b.bitcast(b.op("sub", I64, bits, b.op("shl", I64, n, b.const(I64, 52))), F64)
    n = b.select(tiny, b.plus(n, -54), n)
    one = b.const(F64, 1.0)
    s = b.op("div_rn", F64, b.op("sub", F64, mantissa, one), b.op("add", F64, mantissa, one))
    z = b.op("mul", F64, s, s)
    series = horner(b, z, [2 / (2 * k + 1) for k in range(10, 0, -1)])
    small = b.op("fma", F64, b.op("mul", F64, series, z), s, b.op("add", F64, s, s))
    power = b.convert("rn", n, F64)
    if scale == 1.0:
        value = b.op("fma", F64, power, b.const(F64, 1.9082149292705877e-10), small)
        value = b.op("fma", F64, power, b.const(F64, 0.6931471803691238), value)
    else:
        value = b.op("fma", F64, small, b.const(F64, scale), power)
    zero = b.const(F64, 0.0)
    value = b.select(b.compare("eq", x, zero), b.const(F64, -math.inf), value)
    value = b.select(b.compare("eq", x, b.const(F64, math.inf)), x, value)
    good = b.compare("ge", x, zero)
    return b.select(good, value, b.const(F64, math.nan))


_PI_2_F64 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


def sincos_f64(b: LaneBuilder, x: Lane, quarter: int) -> Lane:
    """sin(x + quarter * pi/2)."""
    k = b.op("rint", F64, b.op("mul", F64, x, b.const(F64, 2 / math.pi)))
    minus = b.op("neg", F64, k)
    r = x
    for part in _PI_2_F64:
        r = b.op("fma", F64, minus, b.const(F64, part), r)
    z = b.op("mul", F64, r, r)
    odd_terms = [(-1) ** n / math.factorial(2 * n + 1) for n in range(9, 0, -1)]
    even_terms = [(-1) ** n / math.factorial(2 * n) for n in range(9, -1, -1)]
    sine = b.op("fma", F64, b.op("mul", F64, horner(b, z, odd_terms), z), r, r)
    cosine = horner(b, z, even_terms)
    n = b.plus(b.convert("rzi", k, I64), quarter)
    odd = b.compare("ne", b.bit_and(n, 1), b.const(I64, 0))
    down = b.compare("ne", b.bit_and(n, 2), b.const(I64, 0))
    value = b.select(odd, cosine, sine)
    return b.select(down, b.op("neg", F64, value), value)


def tanh_f64(b: LaneBuilder, x: Lane) -> Lane:
    """1 - 2 / (1 + e**(2|x|)) with the sign of x; a polynomial near zero."""
    size = b.op("abs", F64, x)
    power = exp2_f64(b, b.op("add", F64, size, size), natural=True)
    one = b.const(F64, 1.0)
    quotient = b.op("div_rn", F64, b.const(F64, 2.0), b.op("add", F64, power, one))
    large = with_sign_of(b, b.op("sub", F64, one, quotient), x)
    z = b.op("mul", F64, x, x)
    terms = [21844 / 6081075, -1382 / 155925, 62 / 2835, -17 / 315, 2 / 15, -1 / 3]
    small = b.op("fma", F64, b.op("mul", F64, horner(b, z, terms), z), x, x)
    return b.select(b.compare("lt", size, b.const(F64, 0.02)), small, large)
