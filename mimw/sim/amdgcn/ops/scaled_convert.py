# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Conversions with a scale between f32, f16, bf16 and the 8-, 6- and 4-bit floats of CDNA4 (v_cvt_scalef32_*).

The scale operand is an f32 of which only the exponent counts: 2^(exponent field - 127). Up: the small number times the
scale; down: the number divided by it, rounded once (to nearest even, or by random bits for `sr`), saturated.
op_sel picks the byte or word of the source (its first two bits) or of the result (the bits after the sources).
"""

from __future__ import annotations

import re

import numpy as np

from mimw.sim.amdgcn.formats import decode, encode, stochastic
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.lds_access import join_bits, split_bits
from mimw.sim.amdgcn.registry import Step, family
from mimw.sim.amdgcn.state import Array, Ctx

_U32 = np.uint32
_BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "f32": 32, "f16": 16, "bf16": 16}


def _scale(d: Operands, index: int) -> Getter:
    """The factor, (n, 64) float64 or what broadcasts."""
    get = d.src(index, "b32", 3)
    return lambda x: decode("e8m0", (get(x) >> _U32(23)) & _U32(0xFF))


def _elements(words: Array, kind: str) -> Array:
    """(..., words) uint32 to (..., elements) float64."""
    raw = np.ascontiguousarray(words)
    if kind == "f32":
        return raw.view(np.float32).astype(np.float64)
    if kind in ("f16", "bf16"):
        return decode(kind, raw.view(np.uint16))
    return decode(kind, split_bits(raw, _BITS[kind]))


def _packed(values: Array, kind: str) -> Array:
    """(..., elements) float64 of f32, f16 or bf16 to (..., words) uint32."""
    return np.ascontiguousarray(encode(kind, values)).view(_U32)


def _code(kind: str, values: Array, random: Array | None) -> Array:
    """Numbers to codes of a small format, saturated."""
    return (encode(kind, values) if random is None else stochastic(kind, values, random)).astype(_U32)


@family(r"v_cvt_scalef32_(pk_)?(f32|f16|bf16)_(fp8|bf8|fp4)")
def _up(d: Operands, match: re.Match[str]) -> Step:
    pair, wide, small = bool(match[1]), match[2], match[3]
    bits, count = d.inst.bits("op_sel", 4, 0), 2 if match[1] else 1
    step = 16 if pair and small != "fp4" else 8
    shift = _U32(16 * bits[0] if step == 16 else 8 * (bits[0] + 2 * bits[1]))
    source, scale = d.src(1, "b32", 3), _scale(d, 2)

    def values(x: Ctx) -> Array:
        raw = x.full(source(x) >> shift)[..., None]
        return _elements(raw, small)[..., :count] * x.full(scale(x))[..., None]

    if not pair and wide != "f32":
        return _half_result(d, values, wide, bits[2])
    put = d.words_dst(d.op(0), count * _BITS[wide] // 32)
    return lambda x: put(x, np.moveaxis(_packed(values(x), wide), -1, 0))


def _half_result(d: Operands, values: Getter, kind: str, high: int) -> Step:
    """One f16 into a half of the register; the other half is kept."""
    put, slot, shift = d.dst(0, "b32"), d.vector_slot(0), _U32(16 * high)
    kept = _U32(0xFFFF if high else 0xFFFF0000)
    return lambda x: put(x, d.m.vector[slot][x.sel] & kept | encode(kind, values(x)[..., 0]).astype(_U32) << shift)


@family(r"v_cvt_scalef32_pk32_(f32|f16|bf16)_(fp6|bf6)")
def _up32(d: Operands, match: re.Match[str]) -> Step:
    wide, small = match[1], match[2]
    source, scale, put = d.words(d.op(1), 6), _scale(d, 2), d.words_dst(d.op(0), _BITS[wide])

    def run(x: Ctx) -> None:
        values = _elements(np.moveaxis(source(x), 0, -1), small) * x.full(scale(x))[..., None]
        put(x, np.moveaxis(_packed(values, wide), -1, 0))

    return run


@family(r"v_cvt_scalef32_(sr_)?(pk_)?(fp8|bf8|fp4)_(f32|f16|bf16)")
def _down(d: Operands, match: re.Match[str]) -> Step:
    random, pair, small, wide = bool(match[1]), bool(match[2]), match[3], match[4]
    separate = pair and wide == "f32" and not random
    used = 2 if separate else 1
    sources = [d.words(d.op(1), 2 if pair and wide == "f32" and random else 1)]
    sources += [d.words(d.op(2), 1)] if separate else []
    seed = d.src(1 + used, "b32", 3) if random else None
    scale = _scale(d, 1 + used + int(random))
    bits = d.inst.bits("op_sel", 4, 0)
    word = pair and small != "fp4"
    given = d.inst.mods.get("op_sel")
    place = (
        16 * (given[-1] if isinstance(given, list) and len(given) > 2 else 0) if word else 8 * (bits[2] + 2 * bits[3])
    )
    shift, field = _U32(place), _U32((0xFFFF if word else 0xFF) << place)
    put, slot, count = d.dst(0, "b32"), d.vector_slot(0), 2 if pair else 1

    def run(x: Ctx) -> None:
        words = np.concatenate([np.broadcast_to(get(x), (len(get(x)), x.n, 64)) for get in sources])
        values = _elements(np.moveaxis(words, 0, -1), wide)[..., :count] / x.full(scale(x))[..., None]
        codes = _code(small, values, x.full(seed(x))[..., None] if seed is not None else None)
        width = _BITS[small]
        out = sum(codes[..., k] << _U32(width * k) for k in range(count))
        put(x, d.m.vector[slot][x.sel] & ~field | out << shift & field)

    return run


@family(r"v_cvt_scalef32_(sr_)?pk32_(fp6|bf6)_(f32|f16|bf16)")
def _down32(d: Operands, match: re.Match[str]) -> Step:
    random, small, wide = bool(match[1]), match[2], match[3]
    source, put = d.words(d.op(1), _BITS[wide]), d.words_dst(d.op(0), 6)
    seed = d.src(2, "b32", 3) if random else None
    scale = _scale(d, 2 + int(random))

    def run(x: Ctx) -> None:
        values = _elements(np.moveaxis(source(x), 0, -1), wide) / x.full(scale(x))[..., None]
        codes = _code(small, values, x.full(seed(x))[..., None] if seed is not None else None)
        put(x, np.moveaxis(join_bits(codes, 6), -1, 0))

    return run
