# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Exact floating point on NumPy arrays: rounding to any small format in any mode, single-rounded fma, flush and saturate.

Everything up to f32 goes through float64 *rounded to odd*: 53 bits are at least two more than twice any of these
precisions need, so that the final rounding is the only one that counts. f64 itself uses error-free transforms, and
exact fractions where these do not hold (directed modes, exponents near the ends). Knows no instruction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

# NumPy's stubs lose the dtype at every view and where: an array is Any to the type checker.
Array: TypeAlias = Any

NAN32 = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
NAN16 = np.array(0x7FFF, np.uint16).view(np.float16)
NAN64 = np.array(0x7FF8000000000000, np.uint64).view(np.float64)
TINY32 = np.float32(2.0**-126)


class Format:
    """A binary float format: precision with the hidden bit, exponent of the smallest normal, largest finite value."""

    __slots__ = ("bits", "emin", "has_inf", "max", "name", "p")

    def __init__(self, name: str, bits: int, p: int, emin: int, largest: float, has_inf: bool = True) -> None:
        self.name, self.bits, self.p, self.emin, self.max, self.has_inf = name, bits, p, emin, largest, has_inf


FORMATS: dict[str, Format] = {
    "f16": Format("f16", 16, 11, -14, 65504.0),
    "bf16": Format("bf16", 16, 8, -126, float.fromhex("0x1.fep127")),
    "f32": Format("f32", 32, 24, -126, float.fromhex("0x1.fffffep127")),
    "tf32": Format("tf32", 32, 11, -126, float.fromhex("0x1.ffcp127")),
    "e4m3": Format("e4m3", 8, 4, -6, 448.0, has_inf=False),
    "e5m2": Format("e5m2", 8, 3, -14, 57344.0),
}


def _half_away(y: Array) -> Array:
    """Round to integer, ties away from zero (the mode that PTX calls rna)."""
    whole = np.trunc(y)
    return np.where(np.abs(y - whole) >= 0.5, whole + np.copysign(1.0, y), whole)


_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil, "rna": _half_away,
}  # fmt: skip


def to_integer(x: Array, mode: str) -> Array:
    """x rounded to an integer value, in x's own dtype; mode rn, rz, rm, rp or rna."""
    return _TO_INTEGER[mode](x)


def round_to(x: Array, fmt: Format, mode: str, satfinite: bool = False) -> Array:
    """float64 x rounded to `fmt` (gradual underflow) and returned as float64.

    Overflow gives infinity or the largest finite number as the mode says; with `satfinite`, or in a format without
    infinities, always the largest finite number. NaN stays NaN.
    """
    _, e = np.frexp(x)
    quantum = np.maximum(e - 1, fmt.emin) - (fmt.p - 1)
    out = np.ldexp(_TO_INTEGER[mode](np.ldexp(x, -quantum)), quantum)
    over = np.abs(out) > fmt.max
    if not over.any():
        return out
    if satfinite or not fmt.has_inf:
        return np.where(over, np.copysign(fmt.max, out), out)
    big = np.full_like(out, np.inf) if mode in ("rn", "rna") else np.full_like(out, fmt.max)
    if mode == "rp":
        big = np.where(out > 0, np.inf, fmt.max)
    elif mode == "rm":
        big = np.where(out < 0, np.inf, fmt.max)
    return np.where(over & ~np.isinf(x), np.copysign(big, out), out)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b = s + err exactly (float64, Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def odd(s: Array, err: Array) -> Array:
    """The sum s + err rounded to odd: where err is not zero, s or its neighbour on err's side, whichever is odd."""
    inexact = (err != 0) & np.isfinite(err) & np.isfinite(s)
    if not inexact.any():
        return s
    bits = np.ascontiguousarray(s).view(np.int64)
    step = np.where((err > 0) == (s > 0), 1, -1)
    return np.where(inexact & ((bits & 1) == 0), bits + step, bits).view(np.float64)


def fma_odd(a: Array, b: Array, c: Array) -> Array:
    """a*b + c for float64 arrays whose product is exact (operands of at most 26 bits), rounded to odd."""
    return odd(*two_sum(a * b, c))


def int64_odd(a: Array) -> Array:
    """A 64-bit integer array (signed or unsigned) as float64 rounded to odd."""
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return odd(*two_sum(high, low))


def nudge(s: Array, err: Array, mode: str) -> Array:
    """s = RN(s + err) turned into the float64 rounding of s + err in `mode`."""
    if mode == "rn":
        return s
    up = (err > 0) & ((s < 0) if mode == "rz" else np.bool_(mode == "rp"))
    down = (err < 0) & ((s > 0) if mode == "rz" else np.bool_(mode == "rm"))
    return np.where(up, np.nextafter(s, np.inf), np.where(down, np.nextafter(s, -np.inf), s))


def _fraction_to_f64(value: Fraction, mode: str, zero_sign: float) -> float:
    """An exact value rounded to f64 in `mode`; an exact zero gets `zero_sign`."""
    if value == 0:
        return math.copysign(0.0, zero_sign)
    negative, mag = value < 0, abs(value)
    e = mag.numerator.bit_length() - mag.denominator.bit_length()
    if Fraction(2) ** e > mag:
        e -= 1
    quantum = max(e, -1022) - 52
    scaled = mag / Fraction(2) ** quantum
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    away = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if away is None:
        away = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    if rest and away:
        whole += 1
    try:
        out = math.ldexp(float(whole), quantum)
    except OverflowError:
        out = math.inf
    if math.isinf(out) and (mode == "rz" or (mode == "rm" and not negative) or (mode == "rp" and negative)):
        out = float.fromhex("0x1.fffffffffffffp1023")
    return -out if negative else out


def _exact_lane(a: float, b: float, c: float, mode: str) -> float:
    plain = a * b + c
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        same = math.copysign(1.0, a) * math.copysign(1.0, b) == math.copysign(1.0, c)
        sign = math.copysign(1.0, c) if same else (-1.0 if mode == "rm" else 1.0)
        return math.copysign(0.0, sign)
    return _fraction_to_f64(exact, mode, 1.0)


def _exact(fn: Callable[..., float], *args: Array) -> Array:
    full = np.broadcast_arrays(*args)
    out = np.empty(full[0].shape, np.float64)
    flat = out.reshape(-1)
    for i, lane in enumerate(zip(*(f.reshape(-1).tolist() for f in full), strict=False)):
        flat[i] = fn(*lane)
    return out


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b = p + err exactly, for exponents that stay away from the ends (Dekker, Veltkamp)."""
    p = a * b
    ta, tb = a * 134217729.0, b * 134217729.0
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def fma64(a: Array, b: Array, c: Array, mode: str) -> Array:
    """a*b + c in float64 with one rounding in `mode` (Boldo and Melquiond for rn; exact fractions for the rest)."""
    a, b, c = np.broadcast_arrays(a, b, c)
    if mode != "rn":
        return _exact(lambda x, y, z: _exact_lane(x, y, z, mode), a, b, c)
    uh, ul = _two_product(a, b)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    out = vh + odd(*two_sum(tl, vl))
    size = [np.where(v == 0, 0, np.frexp(v)[1]) for v in (a, b, c)]
    safe = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    for e in (*size, size[0] + size[1]):
        safe &= np.abs(e) < 400
    if not safe.all():
        out = out.copy()
        bad = ~safe
        out[bad] = _exact(lambda x, y, z: _exact_lane(x, y, z, "rn"), a[bad], b[bad], c[bad])
    return out


def mul64(a: Array, b: Array, mode: str) -> Array:
    """a*b in float64, rounded in `mode`."""
    if mode == "rn":
        return a * b

    def lane(x: float, y: float) -> float:
        if not (math.isfinite(x) and math.isfinite(y)):
            return x * y
        return _fraction_to_f64(Fraction(x) * Fraction(y), mode, math.copysign(1.0, x) * math.copysign(1.0, y))

    return _exact(lane, a, b)


def div64(a: Array, b: Array, mode: str) -> Array:
    """a/b in float64, rounded in `mode`."""
    if mode == "rn":
        return a / b

    def lane(x: float, y: float) -> float:
        if not (math.isfinite(x) and math.isfinite(y)) or y == 0:
            return float(np.float64(x) / np.float64(y))
        return _fraction_to_f64(Fraction(x) / Fraction(y), mode, math.copysign(1.0, x) * math.copysign(1.0, y))

    return _exact(lane, a, b)


def sqrt64(a: Array, mode: str) -> Array:
    """sqrt(a) in float64, rounded in `mode`."""
    root = np.sqrt(a)
    if mode == "rn":
        return root

    def excess(x: float, r: float) -> float:
        """The sign of sqrt(x) - r."""
        if not math.isfinite(r) or x == 0:
            return 0.0
        gap = Fraction(x) - Fraction(r) ** 2
        return (gap > 0) - (gap < 0)

    return nudge(root, _exact(excess, a, root), mode)


def flush(x: Array) -> Array:
    """float32 subnormals become zero of the same sign (.ftz)."""
    small = np.abs(x) < TINY32
    return np.where(small, np.copysign(np.float32(0), x), x) if small.any() else x


def flush64(x: Array) -> Array:
    """float64 subnormals become zero of the same sign."""
    return np.where(np.abs(x) < 2.0**-1022, np.copysign(0.0, x), x)


def saturate(x: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes +0 (.sat). Same dtype."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.where(x > zero, np.minimum(x, one), zero)


def canonical(x: Array) -> Array:
    """NaN results of f32 and f16 instructions are the canonical NaN; f64 keeps what NumPy made."""
    bad = np.isnan(x)
    if not bad.any():
        return x
    return np.where(bad, NAN32 if x.dtype == np.float32 else NAN16 if x.dtype == np.float16 else NAN64, x)
