"""Conversions as AMDGCN instructions and sequences: between integers, floats and 64-bit numbers, with rounding to nearest or toward zero.

There is one rounding mode, to nearest even, and `v_cvt_pkrtz_f16_f32` beside it. Rounding toward zero is the nearest number, one ulp
back where that lies beyond. 64-bit integers go through their words.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.amdgcn.builder.floats import float_op
from mimw.codegen.amdgcn.builder.integers import extended
from mimw.codegen.amdgcn.builder.opcodes import CONVERSIONS, is_float, is_signed
from mimw.codegen.float_bits import decode
from mimw.codegen.lane import Lane, bits_of
from mimw.codegen.machine import Imm, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import (
    BF16,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    U8,
    U32,
    U64,
    DType,
    Element,
    PointerType,
)


def converts(b: Core, how: str, source: Element, to: Element) -> bool:
    """Whether `convert` does it."""
    del b
    if isinstance(source, PointerType):
        source = U64
    assert isinstance(source, DType) and isinstance(to, DType)
    name = (how, source.name, to.name)
    if name in CONVERSIONS:
        return True
    whole, real = source.kind in ("int", "uint"), is_float(source) and source.bits >= 32
    if how == "int":
        return whole and to.kind in ("int", "uint")
    if how == "rzi":
        return real and to.kind in ("int", "uint")
    if how == "exact":
        return (source, to) == (F16, F64)
    if how == "rz":
        return (whole and to in (F32, F64)) or (source, to) in ((F64, F32), (F32, F16), (F32, BF16))
    return how == "rn" and ((whole and to in (F32, F64)) or (source, to) == (F32, BF16))


def convert(b: Core, how: str, lane: Lane, to: DType) -> Lane:
    """The conversion."""
    source = lane.dtype
    assert isinstance(source, DType)
    opcode = CONVERSIONS.get((how, source.name, to.name))
    if opcode is not None:
        return b.valu(opcode, to, lane)
    if how == "int":
        return _between_integers(b, lane, to)
    if how == "rzi":
        return _to_integer(b, lane, to)
    if source is F16 and to is F64:
        return b.valu("v_cvt_f64_f32", F64, b.valu("v_cvt_f32_f16", F32, lane))
    if source is F64 and to is F32 and how == "rz":
        return _toward_zero(b, lane, F32)
    if source is F32 and to is F16:
        return b.valu("v_cvt_pkrtz_f16_f32", F16, lane, Imm(0))
    if source is F32 and to is BF16:
        return Lane(BF16, b.vector(_upper_half(b, lane, how)), uniform=lane.uniform)
    if source.kind in ("int", "uint"):
        if source.bits == 64:
            return _wide_to_float(b, lane, to, how)
        exact = b.valu("v_cvt_f64_i32" if is_signed(source) else "v_cvt_f64_u32", F64, lane)
        return exact if to is F64 else _toward_zero(b, exact, F32)
    raise InternalError(f"AMDGCN has no conversion ({how}) of {source} to {to}", b.loc)


def _between_integers(b: Core, lane: Lane, to: DType) -> Lane:
    if bits_of(lane.dtype) == 64:
        low, _ = b.words(lane)
        return Lane(to, low.reg, low.off, uniform=low.uniform) if to.bits == 32 else extended(b, low, to)
    bits = bits_of(lane.dtype)
    assert isinstance(lane.dtype, DType)
    if to.bits > bits or to.bits == 32:  # held extended by its own sign already
        wider = Lane(to, b.register(lane), uniform=lane.uniform)
        return wider if to.bits == 32 or is_signed(to) == is_signed(lane.dtype) else extended(b, wider, to)
    return extended(b, Lane(U32, b.register(lane), uniform=lane.uniform), to)


# --- to integers


def _to_integer(b: Core, lane: Lane, to: DType) -> Lane:
    """Toward zero, saturated."""
    if to.bits == 64:
        return _to_wide_integer(b, lane, to)
    signed = is_signed(to)
    name = "i32" if signed else "u32"
    whole = b.valu(f"v_cvt_{name}_{'f64' if lane.dtype is F64 else 'f32'}", I32 if signed else U32, lane)
    low, high = (-(1 << to.bits - 1), (1 << to.bits - 1) - 1) if signed else (0, (1 << to.bits) - 1)
    own = I32 if signed else U32
    cut = b.op("min", own, whole, b.const(own, high))
    if signed:
        cut = b.op("max", own, cut, b.const(own, low))
    return Lane(to, cut.reg, cut.off, uniform=cut.uniform)


def _to_wide_integer(b: Core, lane: Lane, to: DType) -> Lane:
    """Two words, of a double: the quotient by 2^32 rounded down, and what is left."""
    x = lane if lane.dtype is F64 else b.valu("v_cvt_f64_f32", F64, lane)
    whole = float_op(b, "trunc", F64, (x,))
    signed = is_signed(to)
    if not signed:
        whole = float_op(b, "max", F64, (whole, b.const(F64, 0.0)))
    top = float_op(b, "floor", F64, (float_op(b, "mul", F64, (whole, b.const(F64, 2.0**-32))),))
    rest = float_op(b, "fma", F64, (top, b.const(F64, -(2.0**32)), whole))
    high = b.valu("v_cvt_i32_f64" if signed else "v_cvt_u32_f64", U32, top)
    value = b.wide(b.valu("v_cvt_u32_f64", U32, rest), high, to)
    limit = 63 if signed else 64
    value = b.select(b.compare("ge", whole, b.const(F64, 2.0**limit)), b.const(to, (1 << limit) - 1), value)
    if signed:
        value = b.select(b.compare("lt", whole, b.const(F64, -(2.0**63))), b.const(to, -(1 << 63)), value)
    return value


# --- to floats


def _toward_zero(b: Core, exact: Lane, to: DType) -> Lane:
    """A double rounded toward zero."""
    near = b.valu("v_cvt_f32_f64", to, exact)
    back = b.valu("v_cvt_f64_f32", F64, near)
    beyond = b.compare("gt", b.op("abs", F64, back), b.op("abs", F64, exact))
    return _less_where(b, beyond, near)


def _less_where(b: Core, cond: Lane, value: Lane) -> Lane:
    """The next number toward zero where `cond` is true (not for zeros)."""
    dtype = value.dtype
    bits = U64 if bits_of(dtype) == 64 else U32
    own = Lane(bits, b.vector(value))
    found = b.select(cond, b.sub(own, b.const(bits, 1)), own)
    return Lane(dtype, b.vector(found), uniform=value.uniform)


def _wide_to_float(b: Core, lane: Lane, to: DType, how: str) -> Lane:
    if to is F64:
        return _wide_to_double(b, lane, how)
    signed = is_signed(lane.dtype)
    size = b.op("abs", I64, lane) if signed else lane
    low, high = b.words(Lane(U64, b.register(size), uniform=size.uniform))
    # Shifted up until the first bit is the top one, what lies below 32 bits collapses into the last of them.
    zeros = b.op("min", U32, b.valu("v_ffbh_u32", U32, high), b.const(U32, 32))
    moved = b.valu("v_lshlrev_b64", U64, zeros, b.wide(low, high, U64))
    below, top = b.words(moved)
    if how == "rn":
        sticky = b.op("min", U32, below, b.const(U32, 1))
        value = b.valu("v_cvt_f32_u32", F32, b.op("or", U32, top, sticky))
    else:
        value = _toward_zero(b, b.valu("v_cvt_f64_u32", F64, top), F32)
    value = b.valu("v_ldexp_f32", F32, value, b.sub(b.const(U32, 32), zeros))
    if signed:
        negative = b.compare("lt", lane, b.const(I64, 0))
        value = b.select(negative, b.op("neg", F32, value), value)
    return value


def _wide_to_double(b: Core, lane: Lane, how: str) -> Lane:
    low, high = b.words(lane)
    top = b.valu("v_cvt_f64_i32" if is_signed(lane.dtype) else "v_cvt_f64_u32", F64, high)
    top = b.valu("v_ldexp_f64", F64, top, Imm(32))
    rest = b.valu("v_cvt_f64_u32", F64, low)
    total = float_op(b, "add", F64, (top, rest))
    if how == "rn":
        return total
    error = float_op(b, "sub", F64, (rest, float_op(b, "sub", F64, (total, top))))
    zero = b.const(F64, 0.0)
    beyond = b.op(
        "or",
        I1,
        b.op("and", I1, b.compare("lt", error, zero), b.compare("gt", total, zero)),
        b.op("and", I1, b.compare("gt", error, zero), b.compare("lt", total, zero)),
    )
    return _less_where(b, beyond, total)


# --- bf16


def _upper_half(b: Core, lane: Lane, how: str) -> Lane:
    """The bits of a bf16 as u32, zeros above."""
    if how == "rn" and b.target.has("bf16_cvt"):
        return b.valu("v_cvt_pk_bf16_f32", U32, lane, Imm(0))
    return b.shift(_rounded_bits(b, lane, how), -16)


def _rounded_bits(b: Core, lane: Lane, how: str) -> Lane:
    """The bits of an f32 whose upper half is the bf16: any NaN becomes the one of all ones."""
    bits = Lane(U32, b.vector(lane))
    is_nan = b.compare("nan", lane, lane)  # first: a mask may be read two instructions after it is made
    if how == "rn":
        last = b.valu("v_bfe_u32", U32, bits, Imm(16), Imm(1))
        rounded = b.valu("v_add3_u32", U32, bits, last, Imm(0x7FFF))
    else:
        rounded = bits
    return b.select(is_nan, b.const(U32, 0x7FFF0000), rounded)


def convert_pair(b: Core, how: str, lo: Lane, hi: Lane, to: DType) -> tuple[Lane, Lane] | None:
    """Two f32 as one packed register of f16 or bf16."""
    if lo.dtype is not F32 or to not in (F16, BF16) or how not in ("rn", "rz"):
        return None
    uniform = min(lo.uniform, hi.uniform)
    if to is F16 and how == "rz":
        word = b.valu("v_cvt_pkrtz_f16_f32", U32, lo, hi)
    elif to is F16:
        halves = [b.valu("v_cvt_f16_f32", F16, x) for x in (lo, hi)]
        word = Lane(U32, b.packed(halves), uniform=uniform)
    elif how == "rn" and b.target.has("bf16_cvt"):
        word = b.valu("v_cvt_pk_bf16_f32", U32, lo, hi)
    else:
        bits = [_rounded_bits(b, x, how) for x in (lo, hi)]
        word = b.valu("v_perm_b32", U32, bits[1], bits[0], Imm(0x07060302))
    reg = b.vector(word)
    return Lane(to, reg, 0, 0, uniform), Lane(to, reg, 0, 1, uniform)


# --- 8-bit floats: the instructions know one kind, FNUZ or not


def _kind(dtype: DType) -> str:
    return "fp8" if dtype.exponent == 4 else "bf8"


def bytes_from_f32(b: Core, lanes: Sequence[Lane], to: DType) -> list[Lane]:
    """Two or four f32 as packed 8-bit floats, saturated: the instruction would make NaN or infinity of what is too large.

    Where it makes the FNUZ kind, whose codes stand for half as much, the other kind is that of half the value, NaN that of its largest
    number; the sign comes from the source, as there is no -0.
    """
    halved = b.target.has("fp8_fnuz") and not to.fnuz
    largest = decode(0x7F if to.fnuz else 0x7E if to.exponent == 4 else 0x7B, to)
    if halved:
        nan = b.const(F32, decode(0x7F, F8E4M3FNUZ if to.exponent == 4 else F8E5M2FNUZ))
        halves = [b.op("mul", F32, x, b.const(F32, 0.5)) for x in lanes]
        word = _converted(b, [_clamped(b, x, largest / 2, nan) for x in halves], to)
        signs = b.bit_and(Lane(U32, b.packed([Lane(U8, b.vector(x), 0, 3) for x in lanes])), 0x80808080)
        word = b.reg_of(b.op("or", U32, Lane(U32, word), signs))
    else:
        word = _converted(b, [_clamped(b, x, largest, x) for x in lanes], to)
    return [Lane(to, word, 0, i) for i in range(len(lanes))]


def _converted(b: Core, lanes: Sequence[Lane], to: DType) -> Reg:
    """Two or four f32 in range, converted by instruction."""
    word: Reg | None = None
    for i in range(0, len(lanes), 2):
        out = b.reg("v32")
        upper = [Symbol("op_sel:[0,0,1]")] if i else []
        b.emit(f"v_cvt_pk_{_kind(to)}_f32", [out, b.vector(lanes[i]), b.vector(lanes[i + 1]), *upper], 1, tied=[word])
        word = out
    assert word is not None
    return word


def _clamped(b: Core, x: Lane, largest: float, nan: Lane) -> Lane:
    """The value inside the finite range, `nan` for NaN."""
    inside = b.valu("v_med3_f32", F32, x, b.const(F32, -largest), b.const(F32, largest))
    return b.select(b.compare("nan", x, x), nan, inside)


def floats_from_bytes(b: Core, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
    """Two 8-bit floats, not both constant, of the kind that the instructions know as f32."""
    dtype = lo.dtype
    assert isinstance(dtype, DType)
    uniform = min(lo.uniform, hi.uniform)
    name = f"v_cvt_pk_f32_{_kind(dtype)}"
    neighbours = lo.reg is not None and lo.reg is hi.reg and lo.part in (0, 2) and hi.part == lo.part + 1
    if neighbours and lo.part == 2:
        word = b.vector(Lane(U32, lo.reg))
        pair = b.pure(f"{name}_sdwa", F64, [word, Symbol("src0_sel:WORD_1")], uniform, "v64")
    elif neighbours:
        pair = b.pure(name, F64, [b.vector(Lane(U32, lo.reg))], uniform, "v64")
    else:
        pair = b.pure(name, F64, [b.packed((lo, hi))], uniform, "v64")
    first, second = (Lane(F32, x.reg, uniform=uniform) for x in b.words(pair))
    return first, second


def halves_from_bytes(b: Core, lo: Lane, hi: Lane) -> tuple[Lane, Lane]:
    """As `floats_from_bytes`, as packed f16, exactly."""
    first, second = floats_from_bytes(b, lo, hi)
    word = b.vector(b.valu("v_cvt_pkrtz_f16_f32", U32, first, second))
    return Lane(F16, word, 0, 0, first.uniform), Lane(F16, word, 0, 1, first.uniform)
