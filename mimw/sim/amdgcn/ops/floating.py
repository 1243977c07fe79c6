# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Floating-point arithmetic of the vector unit: f32, f16, f64, and the steps of a division.

Sums, products and fma are IEEE with one rounding to nearest even. The transcendental unit is modelled as correctly rounded:
the ISA states 1 ulp for exp, log, rcp, rsq, sqrt and sin/cos of f32 (sin and cos absolutely, of one revolution), and that
they treat denormals as zero. Formulas of div_scale, div_fmas and div_fixup are the ISA's, but for a slip of the document (`div_scale`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mimw.sim.amdgcn.decode import VCC, Reg
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.ops.vector import Function, masked, row, rows, vector_step
from mimw.sim.amdgcn.registry import Step, executes
from mimw.sim.amdgcn.state import Array, Ctx
from mimw.sim.ptx.floats import fma64, fma_odd

TINY = np.float32(2.0**-126)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """a*b + c of float32 arrays with one rounding."""
    return fma_odd(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64)).astype(np.float32)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """a*b + c of float16 arrays with one rounding."""
    return fma_odd(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64)).astype(np.float16)


def smaller(a: Array, b: Array) -> Array:
    """IEEE minNum: of a number and a NaN the number; -0 is below +0."""
    out = np.fmin(a, b)
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), a, b), out) if zeros.any() else out


def larger(a: Array, b: Array) -> Array:
    """IEEE maxNum: of a number and a NaN the number; +0 is above -0."""
    out = np.fmax(a, b)
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), b, a), out) if zeros.any() else out


def median(a: Array, b: Array, c: Array) -> Array:
    """v_med3: the middle of three; with a NaN, the smallest of all."""
    bad = np.isnan(a) | np.isnan(b) | np.isnan(c)
    middle = larger(smaller(a, b), smaller(larger(a, b), c))
    return np.where(bad, smaller(smaller(a, b), c), middle)


def nan_smaller(a: Array, b: Array) -> Array:
    """IEEE 754-2019 minimum: NaN wins."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, smaller(a, b))


def nan_larger(a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximum: NaN wins."""
    return np.where(np.isnan(a) | np.isnan(b), a + b, larger(a, b))


def ftz(x: Array) -> Array:
    """float32 denormals become zeros of their sign."""
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def transcendental(fn: Function) -> Function:
    """A float32 function computed in float64 and rounded once, denormals flushed on both sides."""
    return lambda a: ftz(fn(ftz(a).astype(np.float64)).astype(np.float32))


def _sine(fn: Function) -> Function:
    def compute(a: Array) -> Array:
        turns = a.astype(np.float64)
        out = fn(2 * np.pi * (turns - np.floor(turns)))
        return np.where(np.isinf(a), np.nan, np.where(np.abs(a) > 256, fn(0 * turns), out))

    return compute


def _fract(a: Array) -> Array:
    below = np.nextafter(a.dtype.type(1), a.dtype.type(0))
    return np.where(np.isinf(a), a.dtype.type(np.nan), np.minimum(a - np.floor(a), below))


def _mantissa(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def _exponent(a: Array) -> Array:
    return np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)


for _size, _fma in (("f32", fma32), ("f16", fma16), ("f64", lambda a, b, c: fma64(a, b, c, "rn"))):
    _two, _three = f"{_size} {_size}", f"{_size} {_size} {_size}"
    rows(
        {
            f"v_add_{_size}": lambda a, b: a + b,
            f"v_sub_{_size}": lambda a, b: a - b,
            f"v_subrev_{_size}": lambda a, b: b - a,
            f"v_mul_{_size}": lambda a, b: a * b,
            f"v_min_{_size}": smaller,
            f"v_max_{_size}": larger,
        },
        _size,
        _two,
    )
    row(f"v_fma_{_size}", _size, _three, _fma, keep_high=True)
    rows(
        {
            f"v_floor_{_size}": np.floor,
            f"v_ceil_{_size}": np.ceil,
            f"v_trunc_{_size}": np.trunc,
            f"v_rndne_{_size}": np.rint,
            f"v_fract_{_size}": _fract,
            f"v_frexp_mant_{_size}": _mantissa,
        },
        _size,
        _size,
    )
    if _size != "f64":
        for _name, _fn in (
            ("min3", lambda a, b, c: smaller(smaller(a, b), c)),
            ("max3", lambda a, b, c: larger(larger(a, b), c)),
            ("med3", median),
            ("minimum3", lambda a, b, c: nan_smaller(nan_smaller(a, b), c)),
            ("maximum3", lambda a, b, c: nan_larger(nan_larger(a, b), c)),
        ):
            row(f"v_{_name}_{_size}", _size, _three, _fn, keep_high=True)
row("v_frexp_exp_i32_f32", "i32", "f32", lambda a: _exponent(a).astype(np.int32))
row("v_frexp_exp_i16_f16", "i16", "f16", lambda a: _exponent(a).astype(np.int16))
row("v_frexp_exp_i32_f64", "i32", "f64", lambda a: _exponent(a).astype(np.int32))
row(
    "v_ldexp_f32",
    "f32",
    "f32 i32",
    lambda a, b: np.ldexp(a.astype(np.float64), np.clip(b, -400, 400)).astype(np.float32),
)
row("v_ldexp_f16", "f16", "f16 i16", lambda a, b: np.ldexp(a.astype(np.float64), b.astype(np.int32)).astype(np.float16))
row("v_ldexp_f64", "f64", "f64 i32", lambda a, b: _ldexp64(a, b))
row("v_mul_legacy_f32", "f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))


def _ldexp64(a: Array, b: Array) -> Array:
    """Through an extended precision that has the exponents, so that a result is rounded once."""
    return np.ldexp(a.astype(np.longdouble), np.clip(b, -4400, 4400)).astype(np.float64)


_TRANSCENDENTAL: dict[str, Function] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda a: 1 / a,
    "rsq": lambda a: 1 / np.sqrt(a),
    "sqrt": np.sqrt,
    "sin": _sine(np.sin),
    "cos": _sine(np.cos),
}


def _half_of(fn: Function) -> Function:
    return lambda a: fn(a.astype(np.float64)).astype(np.float16)


for _name, _fn in _TRANSCENDENTAL.items():
    row(f"v_{_name}_f32", "f32", "f32", transcendental(_fn))
    row(f"v_{_name}_f16", "f16", "f16", _half_of(_fn))
row("v_rcp_iflag_f32", "f32", "f32", transcendental(_TRANSCENDENTAL["rcp"]))
row("v_exp_legacy_f32", "f32", "f32", transcendental(np.exp2))
row("v_log_legacy_f32", "f32", "f32", transcendental(np.log2))
# f64: the ISA's rcp and rsq are approximations of about 2^-14 (rcp) meant for Newton steps; correctly rounded here.
row("v_rcp_f64", "f64", "f64", lambda a: 1 / a)
row("v_rsq_f64", "f64", "f64", lambda a: 1 / np.sqrt(a))
row("v_sqrt_f64", "f64", "f64", np.sqrt)


@executes("v_fmac_f32", "v_fmac_f16", "v_fmac_f64", "v_mac_f32")
def _fmac(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    put, a, b, c = d.dst(0, kind), d.src(1, kind, 0), d.src(2, kind, 1), d.src(0, kind, 3)
    fn = {"f32": fma32, "f16": fma16, "f64": lambda p, q, r: fma64(p, q, r, "rn")}[kind]
    return masked(d, lambda x: put(x, fn(a(x), b(x), c(x))))


@executes("v_fmaak_f32", "v_fmaak_f16", "v_fmamk_f32", "v_fmamk_f16")
def _fma_literal(d: Operands) -> Step:
    """The literal stands where the text has it: both are a product of the first two and a sum with the third."""
    kind = d.inst.mnemonic[-3:]
    return vector_step(d, kind, [kind] * 3, fma32 if kind == "f32" else fma16)


# --- division


def _biased(x: Array, bias: int) -> Array:
    """The exponent field of finite values; denormals and zero have 0."""
    e = np.frexp(x)[1] - 1 + bias
    return np.where(x == 0, 0, np.maximum(e, 0))


def div_scale(s0: Array, s1: Array, s2: Array, wide: bool) -> tuple[Array, Array]:
    """(result, VCC) of v_div_scale: s1 is the denominator, s2 the numerator, s0 the one of both that is scaled.

    Where the inverse of the denominator and the quotient are denormal, the document scales the denominator up. It is above 2^126 then
    (f64: 2^1022) and would overflow, and v_div_fmas scales the quotient down: only down makes the recipe of the document divide.
    """
    dtype = s0.dtype
    bias, gap, by, tiny_exponent = (1023, 768, 128, 53) if wide else (127, 96, 64, 23)
    tiny = np.finfo(dtype).tiny

    def denormal(v: Array) -> Array:
        return (v != 0) & (np.abs(v) < tiny)

    def scaled(v: Array, power: int) -> Array:
        return np.ldexp(v, power).astype(dtype)

    up, down = scaled(s0, by), scaled(s0, -by)
    inverse, quotient = 1 / s1.astype(np.longdouble), s2.astype(np.longdouble) / s1.astype(np.longdouble)
    conditions = [
        (s1 == 0) | (s2 == 0),
        _biased(s2, bias) - _biased(s1, bias) >= gap,
        denormal(s1),
        denormal(inverse) & denormal(quotient),
        denormal(inverse),
        denormal(quotient),
        _biased(s2, bias) <= tiny_exponent,
    ]
    is_den, is_num = s0 == s1, s0 == s2
    results = [
        np.full(s0.shape, np.nan, dtype),
        np.where(is_den, up, s0),
        up,
        np.where(is_den, down, s0),
        down,
        np.where(is_num, up, s0),
        up,
    ]
    flags = [False, True, False, True, False, True, False]
    vcc = np.select(conditions, [np.full(s0.shape, f) for f in flags], default=np.zeros(s0.shape, np.bool_))
    return np.select(conditions, results, default=s0).astype(dtype), vcc


def div_fixup(quotient: Array, den: Array, num: Array) -> Array:
    """v_div_fixup: the special cases of num / den, else the quotient with the right sign."""
    dtype = quotient.dtype
    bias = {2: 15, 4: 127, 8: 1023}[dtype.itemsize]
    negative = np.signbit(den) ^ np.signbit(num)
    sign = np.where(negative, dtype.type(-1), dtype.type(1))
    inf, zero, nan = dtype.type(np.inf), dtype.type(0), dtype.type(np.nan)
    limits = {2: -(1 << 20), 4: -150, 8: -1075}[dtype.itemsize]
    under = _biased(num, bias) - _biased(den, bias) < limits
    # A quotient that overflowed on the way arrives as NaN.
    out = np.where(np.isnan(quotient), inf, np.abs(quotient)) * sign
    out = np.where(under, zero * sign, out)
    out = np.where(np.isinf(den) | (num == 0), zero * sign, out)
    out = np.where((den == 0) | np.isinf(num), inf * sign, out)
    out = np.where(((den == 0) & (num == 0)) | (np.isinf(den) & np.isinf(num)), nan, out)
    out = np.where(np.isnan(den), den, out)
    return np.where(np.isnan(num), num, out).astype(dtype)


@executes("v_div_scale_f32", "v_div_scale_f64")
def _div_scale(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    put, put_mask = d.dst(0, kind), d.mask_dst(d.op(1))
    a, b, c = d.src(2, kind, 0), d.src(3, kind, 1), d.src(4, kind, 2)

    def run(x: Ctx) -> None:
        s0, s1, s2 = (x.full(v(x)) for v in (a, b, c))
        out, vcc = div_scale(s0, s1, s2, kind == "f64")
        put(x, out)
        put_mask(x, vcc)

    return run


@executes("v_div_fmas_f32", "v_div_fmas_f64")
def _div_fmas(d: Operands) -> Step:
    """fma; where VCC is set it is scaled back: up where the third operand's exponent is positive, else down."""
    kind = d.inst.mnemonic[-3:]
    put, a, b, c = d.dst(0, kind), d.src(1, kind, 0), d.src(2, kind, 1), d.src(3, kind, 2)
    vcc = d.mask_src(Reg("s", VCC, 2))
    power = 64 if kind == "f32" else 128

    def run(x: Ctx) -> None:
        p, q, r = a(x), b(x), c(x)
        scale = np.where(vcc(x), np.where(np.abs(r) >= 2, power, -power), 0)
        if kind == "f32":
            exact = fma_odd(p.astype(np.float64), q.astype(np.float64), r.astype(np.float64))
            put(x, np.ldexp(exact, scale).astype(np.float32))
        else:
            put(x, _fma_scaled_down(p, q, r, np.ldexp(fma64(p, q, r, "rn"), scale), scale))

    return run


def _fma_scaled_down(a: Array, b: Array, c: Array, twice: Array, scale: Array) -> Array:
    """(a * b + c) * 2^scale rounded once; `twice` is that rounded twice, which differs where the result is denormal."""
    a, b, c, twice, scale = np.broadcast_arrays(a, b, c, twice, scale)
    small = (scale < 0) & (np.abs(twice) <= np.finfo(np.float64).tiny)
    small &= np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (twice != 0)
    out = twice.copy()
    for i in zip(*np.nonzero(small), strict=True):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        out[i] = float(exact / (1 << -int(scale[i])))
    return out


for _kind in ("f32", "f64", "f16"):
    row(f"v_div_fixup_{_kind}", _kind, f"{_kind} {_kind} {_kind}", div_fixup, keep_high=True)
