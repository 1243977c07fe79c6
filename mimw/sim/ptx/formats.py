"""Bits to numbers and back: f16, bf16, tf32, fp8 and packed pairs as the unsigned integers that registers hold.

`decode` always gives float64 (every format here fits exactly); `encode` rounds once, in any mode. Knows no instruction.
"""

from __future__ import annotations

import numpy as np

from mimw.sim.ptx.floats import FORMATS, NAN16, NAN32, Array, round_to


def _fp8_table(exp_bits: int, man_bits: int, bias: int, ieee: bool) -> Array:
    out = np.empty(256, np.float64)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        e = (code >> man_bits) & ((1 << exp_bits) - 1)
        m = code & ((1 << man_bits) - 1)
        if ieee and e == (1 << exp_bits) - 1:
            out[code] = sign * np.inf if m == 0 else np.nan
        elif not ieee and code & 0x7F == 0x7F:
            out[code] = np.nan
        elif e == 0:
            out[code] = sign * m * 2.0 ** (1 - bias - man_bits)
        else:
            out[code] = sign * (1 + m / (1 << man_bits)) * 2.0 ** (e - bias)
    return out


FP8 = {"e4m3": _fp8_table(4, 3, 7, False), "e5m2": _fp8_table(5, 2, 15, True)}


def bf16_to_f32(raw: Array) -> Array:
    """uint16 bf16 bits to float32 (exact)."""
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """float32 to bf16 bits (uint16), to nearest even; NaN is 0x7fff."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    out = ((bits + up) >> np.uint32(16)).astype(np.uint16)
    bad = np.isnan(x)
    return np.where(bad, np.uint16(0x7FFF), out) if bad.any() else out


def decode(kind: str, raw: Array) -> Array:
    """Register bits of type `kind` (unsigned array, or float for f32 and f64) as float64."""
    if kind == "f64":
        return raw.view(np.float64)
    if kind == "f32":
        return raw.view(np.float32).astype(np.float64)
    if kind == "tf32":
        # The tensor core reads the upper 19 bits of the word and ignores the rest.
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind == "f16":
        return raw.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return bf16_to_f32(raw.view(np.uint16)).astype(np.float64)
    return FP8[kind][raw]


def encode(kind: str, x: Array, mode: str = "rn", satfinite: bool = False) -> Array:
    """float64 to the bits of `kind` (unsigned array of its width), rounded once; NaN becomes the canonical NaN."""
    if kind == "f64":
        return np.ascontiguousarray(x).view(np.uint64)
    if kind in ("f32", "tf32"):
        fast = mode == "rn" and kind == "f32" and not satfinite
        y = x.astype(np.float32) if fast else round_to(x, FORMATS[kind], mode, satfinite).astype(np.float32)
        return np.where(np.isnan(x), NAN32, y).view(np.uint32)
    if kind == "f16":
        fast = mode == "rn" and not satfinite
        y = x.astype(np.float16) if fast else round_to(x, FORMATS[kind], mode, satfinite).astype(np.float16)
        return np.where(np.isnan(x), NAN16, y).view(np.uint16)
    if kind == "bf16":
        y = round_to(x, FORMATS[kind], mode, satfinite).astype(np.float32)
        high = (np.ascontiguousarray(y).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return np.where(np.isnan(x), np.uint16(0x7FFF), high)
    return _encode_fp8(kind, x, mode)


def _encode_fp8(kind: str, x: Array, mode: str) -> Array:
    fmt = FORMATS[kind]
    man_bits, bias = (3, 7) if kind == "e4m3" else (2, 15)
    y = np.abs(round_to(x, fmt, mode, satfinite=True))
    _, e = np.frexp(y)
    e = np.maximum(np.where(y == 0, fmt.emin, e - 1), fmt.emin)
    man = np.ldexp(np.where(np.isnan(y), 0.0, y), man_bits - e).astype(np.int64)
    code = np.where(man < (1 << man_bits), man, ((e + bias) << man_bits) + man - (1 << man_bits))
    code = code | np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), 0x7F, code).astype(np.uint8)
