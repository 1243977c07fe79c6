# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Small float formats of CDNA3 and CDNA4: bits to numbers and back.

Formats: f16, bf16, f32, f64; fp8 (e4m3) and bf8 (e5m2), which are the FNUZ kinds on gfx942 and the OCP kinds on gfx950;
fp6 (e2m3), bf6 (e3m2), fp4 (e2m1) and the exponent format e8m0 on gfx950 (OCP microscaling). `decode` gives float64
(exact), `encode` rounds once. Knows no instruction.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from mimw.sim.amdgcn.state import Array
from mimw.sim.ptx.floats import Format as Rounding
from mimw.sim.ptx.floats import round_to


class Format:
    """A format: bits, mantissa bits, bias, and which codes are special: ``ieee`` (infinities and NaN), ``fn`` (NaN only at
    the all-ones code), ``fnuz`` (the code of -0 is the only NaN), ``finite`` (none)."""

    __slots__ = ("bias", "bits", "largest", "mantissa", "name", "special")

    def __init__(self, name: str, bits: int, mantissa: int, bias: int, special: str, largest: float) -> None:
        self.name, self.bits, self.mantissa, self.bias = name, bits, mantissa, bias
        self.special, self.largest = special, largest


_SMALL = {
    "fp8_fnuz": Format("fp8_fnuz", 8, 3, 8, "fnuz", 240.0),
    "bf8_fnuz": Format("bf8_fnuz", 8, 2, 16, "fnuz", 57344.0),
    "fp8": Format("fp8", 8, 3, 7, "fn", 448.0),
    "bf8": Format("bf8", 8, 2, 15, "ieee", 57344.0),
    "fp6": Format("fp6", 6, 3, 1, "finite", 7.5),
    "bf6": Format("bf6", 6, 2, 3, "finite", 28.0),
    "fp4": Format("fp4", 4, 1, 1, "finite", 6.0),
}
_ROUNDINGS = {
    f.name: Rounding(f.name, f.bits, f.mantissa + 1, 1 - f.bias, f.largest, f.special == "ieee")
    for f in _SMALL.values()
}


def kind_on(arch: str, name: str) -> str:
    """The format that `fp8` or `bf8` means on a machine."""
    return f"{name}_fnuz" if arch == "gfx942" and name in ("fp8", "bf8") else name


@cache
def table(name: str) -> Array:
    """All values of a small format as float64, by code."""
    f = _SMALL[name]
    codes = np.arange(1 << f.bits)
    e, m = codes >> f.mantissa & ((1 << (f.bits - 1 - f.mantissa)) - 1), codes & ((1 << f.mantissa) - 1)
    value = np.where(
        e == 0, np.ldexp(m * 1.0, 1 - f.bias - f.mantissa), np.ldexp(1 + m / (1 << f.mantissa), e - f.bias)
    )
    top = (1 << (f.bits - 1)) - 1
    magnitude = codes & top
    if f.special == "fn":
        value = np.where(magnitude == top, np.nan, value)
    elif f.special == "ieee":
        full = ((1 << (f.bits - 1 - f.mantissa)) - 1) << f.mantissa
        value = np.where(magnitude == full, np.inf, np.where(magnitude > full, np.nan, value))
    value = np.where(codes > top, -value, value)
    if f.special == "fnuz":
        value[top + 1] = np.nan
    return value


def decode(name: str, raw: Array) -> Array:
    """Codes (unsigned integers) as float64."""
    if name == "f32":
        return raw.view(np.float32).astype(np.float64)
    if name == "f64":
        return raw.view(np.float64)
    if name == "f16":
        return raw.view(np.float16).astype(np.float64)
    if name == "bf16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if name == "e8m0":
        return np.where(raw == 255, np.nan, np.ldexp(1.0, raw.astype(np.int32) - 127))
    return table(name)[raw]


def encode(name: str, x: Array, saturate: bool = True) -> Array:
    """float64 to codes (uint8, uint16 or uint32), to nearest even. NaN becomes the format's NaN, or in a format without
    one the largest number.

    `saturate`: what is too large becomes the largest number; else infinity or NaN, as the format has it.
    """
    if name == "f32":
        return x.astype(np.float32).view(np.uint32)
    if name == "f16":
        return x.astype(np.float16).view(np.uint16)
    if name == "bf16":
        return bf16_bits(x)
    f = _SMALL[name]
    y = np.abs(round_to(x, _ROUNDINGS[name], "rn", satfinite=True))
    over = (
        np.abs(round_to(np.where(np.isfinite(x), x, 0.0), Rounding("", 8, f.mantissa + 1, 1 - f.bias, 1e30), "rn"))
        > f.largest
    )
    over |= np.isinf(x)
    code = magnitude_code(f, np.where(np.isnan(y), 0.0, y))
    top = (1 << (f.bits - 1)) - 1
    sign = np.where(np.signbit(x), top + 1, 0)
    if f.special == "fnuz":
        sign = np.where(code == 0, 0, sign)
    out = code | sign
    nan = {"fn": top, "ieee": top, "fnuz": top + 1, "finite": int(magnitude_code(f, np.array(f.largest)))}[f.special]
    if not saturate:
        inf = ((1 << (f.bits - 1 - f.mantissa)) - 1) << f.mantissa
        out = np.where(over, (inf | sign) if f.special == "ieee" else nan, out)
    elif f.special == "ieee" or f.special in ("fn", "fnuz"):
        out = np.where(over, int(magnitude_code(f, np.array(f.largest))) | sign, out)
    return np.where(np.isnan(x), nan, out).astype(np.uint8)


def magnitude_code(f: Format, y: Array) -> Array:
    """The code of a non-negative number that the format holds exactly."""
    _, e = np.frexp(y)
    e = np.maximum(np.where(y == 0, 1 - f.bias, e - 1), 1 - f.bias)
    man = np.ldexp(y, f.mantissa - e).astype(np.int64)
    return np.where(man < (1 << f.mantissa), man, ((e + f.bias) << f.mantissa) + man - (1 << f.mantissa))


def bf16_bits(x: Array) -> Array:
    """float64 or float32 to bf16 bits, rounded once to nearest even; NaN keeps its sign and upper payload, quiet."""
    y = round_to(x.astype(np.float64), Rounding("bf16", 16, 8, -126, float.fromhex("0x1.fep127")), "rn")
    high = (y.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), high)


def stochastic(name: str, x: Array, random: Array, saturate: bool = True) -> Array:
    """float32 values to codes, rounded up with a probability that `random` (uint32) decides: it is added below the kept bits.

    The source's mantissa is taken in units of 2^-32 of the result's last place and `random` is added before it is cut off.
    """
    f = Format("bf16", 16, 7, 127, "ieee", float.fromhex("0x1.fep127")) if name == "bf16" else None
    f = Format("f16", 16, 10, 15, "ieee", 65504.0) if name == "f16" else f or _SMALL[name]
    _, e = np.frexp(x)
    quantum = np.maximum(e - 1, 1 - f.bias) - f.mantissa
    scaled = np.ldexp(np.abs(x), -quantum)
    cut = np.floor(scaled + random.astype(np.float64) * 2.0**-32)
    y = np.copysign(np.ldexp(cut, quantum), x)
    return encode(name, np.where(np.isfinite(x), y, x), saturate)
