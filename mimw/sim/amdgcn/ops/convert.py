# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Conversions between integers, f16, bf16, f32, f64 and the 8-bit floats (FNUZ on gfx942, OCP on gfx950).

Float to integer truncates (or rounds as the name says) and saturates; NaN gives 0. The scaled conversions of CDNA4 are in
`scaled_convert`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.formats import bf16_bits, decode, encode, kind_on, stochastic
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.vector import Function, masked, row, rows, vector_step
from mimw.sim.amdgcn.registry import Step, executes
from mimw.sim.amdgcn.state import Array, Ctx
from mimw.sim.ptx.floats import FORMATS, round_to

_U32 = np.uint32


def to_integer(dtype: type, rounding: Callable[[Array], Array] = np.trunc) -> Function:
    """Floats to an integer type: rounded, saturated, NaN to 0."""
    info = np.iinfo(dtype)

    def convert(a: Array) -> Array:
        wide = np.nan_to_num(rounding(a.astype(np.float64)), nan=0.0, posinf=1e300, neginf=-1e300)
        return np.clip(wide, info.min, info.max).astype(dtype)

    return convert


row("v_cvt_f32_i32", "f32", "i32", lambda a: a.astype(np.float32))
row("v_cvt_f32_u32", "f32", "u32", lambda a: a.astype(np.float32))
row("v_cvt_i32_f32", "i32", "f32", to_integer(np.int32))
row("v_cvt_u32_f32", "u32", "f32", to_integer(np.uint32))
row("v_cvt_rpi_i32_f32", "i32", "f32", to_integer(np.int32, lambda a: np.floor(a + 0.5)))
row("v_cvt_flr_i32_f32", "i32", "f32", to_integer(np.int32, np.floor))
row("v_cvt_f64_f32", "f64", "f32", lambda a: a.astype(np.float64))
row("v_cvt_f32_f64", "f32", "f64", lambda a: a.astype(np.float32))
row("v_cvt_f64_i32", "f64", "i32", lambda a: a.astype(np.float64))
row("v_cvt_f64_u32", "f64", "u32", lambda a: a.astype(np.float64))
row("v_cvt_i32_f64", "i32", "f64", to_integer(np.int32))
row("v_cvt_u32_f64", "u32", "f64", to_integer(np.uint32))
row("v_cvt_f16_f32", "f16", "f32", lambda a: a.astype(np.float16))
row("v_cvt_f32_f16", "f32", "f16", lambda a: a.astype(np.float32))
row("v_cvt_f16_u16", "f16", "u16", lambda a: a.astype(np.float32).astype(np.float16))
row("v_cvt_f16_i16", "f16", "i16", lambda a: a.astype(np.float32).astype(np.float16))
row("v_cvt_u16_f16", "u16", "f16", to_integer(np.uint16))
row("v_cvt_i16_f16", "i16", "f16", to_integer(np.int16))
rows(
    {f"v_cvt_f32_ubyte{k}": (lambda a, k=k: ((a >> _U32(8 * k)) & _U32(0xFF)).astype(np.float32)) for k in range(4)},
    "f32",
    "u32",
)
row("v_cvt_f32_bf16", "f32", "b16", lambda a: decode("bf16", a).astype(np.float32))


def _pair(low: Array, high: Array) -> Array:
    return low.astype(_U32) | high.astype(_U32) << _U32(16)


def _toward_zero(a: Array) -> Array:
    return round_to(a.astype(np.float64), FORMATS["f16"], "rz").astype(np.float16).view(np.uint16)


def _normalised(a: Array, scale: int, low: int) -> Array:
    wide = np.rint(np.clip(np.nan_to_num(a.astype(np.float64), nan=0.0), low, 1) * scale)
    return (wide.astype(np.int64) & 0xFFFF).astype(np.uint16)


rows(
    {
        "v_cvt_pkrtz_f16_f32": lambda a, b: _pair(_toward_zero(a), _toward_zero(b)),
        "v_cvt_pk_f16_f32": lambda a, b: _pair(
            a.astype(np.float16).view(np.uint16), b.astype(np.float16).view(np.uint16)
        ),
        "v_cvt_pk_bf16_f32": lambda a, b: _pair(bf16_bits(a), bf16_bits(b)),
        "v_cvt_pknorm_i16_f32": lambda a, b: _pair(_normalised(a, 32767, -1), _normalised(b, 32767, -1)),
        "v_cvt_pknorm_u16_f32": lambda a, b: _pair(_normalised(a, 65535, 0), _normalised(b, 65535, 0)),
    },
    "b32",
    "f32 f32",
)
rows(
    {
        "v_cvt_pknorm_i16_f16": lambda a, b: _pair(_normalised(a, 32767, -1), _normalised(b, 32767, -1)),
        "v_cvt_pknorm_u16_f16": lambda a, b: _pair(_normalised(a, 65535, 0), _normalised(b, 65535, 0)),
    },
    "b32",
    "f16 f16",
)


def _byte_into(a: Array, b: Array, c: Array) -> Array:
    """v_cvt_pk_u8_f32: f32 to a byte (rounded to nearest even, saturated) that replaces byte b of c."""
    shift = (b & _U32(3)) * _U32(8)
    byte = np.clip(np.rint(np.nan_to_num(a.astype(np.float64), nan=0.0)), 0, 255).astype(_U32)
    return (c & ~(_U32(0xFF) << shift)) | byte << shift


row("v_cvt_pk_u8_f32", "u32", "f32 u32 u32", _byte_into)


# --- 8-bit floats


def _byte_or_word(d: Operands, width: int) -> Getter:
    """The byte or 16-bit word of source 0 that SDWA or op_sel picks, as uint32."""
    if d.sdwa:
        return d.src(1, "b32", 0)
    raw = d.src(1, "b32", 0)
    bits = d.inst.bits("op_sel", 2, 0)
    # op_sel counts in halves first: bit 0 is the upper word, bit 1 the odd byte (ISA, VOP3 of v_cvt_f32_fp8).
    shift = _U32(16 * bits[0] + 8 * bits[1]) if width == 8 else _U32(16 * bits[0])
    return lambda x: (raw(x) >> shift) & _U32((1 << width) - 1)


@executes("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def _cvt_f32_fp8(d: Operands) -> Step:
    kind = kind_on(d.sim.arch, d.inst.mnemonic[-3:])
    put, get = d.dst(0, "f32"), _byte_or_word(d, 8)
    return masked(d, lambda x: put(x, decode(kind, get(x) & _U32(0xFF)).astype(np.float32)))


@executes("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def _cvt_pk_f32_fp8(d: Operands) -> Step:
    kind = kind_on(d.sim.arch, d.inst.mnemonic[-3:])
    get, put = _byte_or_word(d, 16), d.words_dst(d.op(0), 2)

    def run(x: Ctx) -> None:
        raw = x.full(get(x))
        parts = [decode(kind, (raw >> _U32(8 * k)) & _U32(0xFF)).astype(np.float32).view(_U32) for k in (0, 1)]
        put(x, np.stack(parts))

    return masked(d, run)


@executes("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def _cvt_pk_fp8(d: Operands) -> Step:
    """Two f32 to two bytes of the low word, or of the high word with op_sel; the other word is kept. Too large
    values saturate under the MODE bit FP16_OVFL only; NaN and infinity otherwise follow the format."""
    kind = kind_on(d.sim.arch, d.inst.mnemonic.split("_")[3])
    put, a, b = d.dst(0, "b16", keep_high=True), d.src(1, "f32", 0), d.src(2, "f32", 1)

    def run(x: Ctx) -> None:
        clamp = bool(d.sim.fp16_overflow)
        low, high = (encode(kind, v(x).astype(np.float64), clamp) for v in (a, b))
        put(x, low.astype(np.uint16) | high.astype(np.uint16) << np.uint16(8))

    return masked(d, run)


@executes("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32")
def _cvt_sr_fp8(d: Operands) -> Step:
    """One f32 rounded with the random bits of source 1 into the byte that op_sel[2:3] names; the others are kept."""
    kind = kind_on(d.sim.arch, d.inst.mnemonic.split("_")[3])
    bits = d.inst.bits("op_sel", 4, 0)
    shift = _U32(16 * bits[3] + 8 * bits[2]) if len(bits) > 3 else _U32(0)
    put, a, random, old = d.dst(0, "b32"), d.src(1, "f32", 0), d.src(2, "b32", 1), d.m.vector[d.vector_slot(0)]

    def run(x: Ctx) -> None:
        byte = stochastic(kind, a(x).astype(np.float64), random(x), bool(d.sim.fp16_overflow)).astype(_U32)
        put(x, (old[x.sel] & ~(_U32(0xFF) << shift)) | byte << shift)

    return masked(d, run)


@executes("v_cvt_sr_pk_f16_f32", "v_cvt_sr_pk_bf16_f32")
def _cvt_sr_pk(d: Operands) -> Step:
    """Two f32 rounded with random bits (source 2) to a pair of f16 or bf16 (CDNA4)."""
    kind = d.inst.mnemonic.split("_")[4]

    def compute(a: Array, b: Array, c: Array) -> Array:
        return _pair(stochastic(kind, a.astype(np.float64), c, False), stochastic(kind, b.astype(np.float64), c, False))

    return vector_step(d, "b32", ["f32", "f32", "b32"], compute)
