"""Integer primitives as AMDGCN instructions: the scalar unit for what is one in a warp, the vector unit for the rest; 64 bits in halves.

Division has no instruction: quotients come from a floating-point reciprocal that is corrected in integers.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder_core import Core
from mimw.codegen.amdgcn.opcodes import NORMALISED, SCALAR_INT, SIGNED, UNSIGNED, VECTOR_INT, is_signed
from mimw.codegen.lane import LANE, Lane, bits_of
from mimw.codegen.machine import Imm
from mimw.diagnostics import InternalError
from mimw.ir.types import F32, I1, I32, I64, U32, U64, Element


def integer_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    """A primitive on integers or pointers of any width."""
    if bits_of(dtype) == 64:
        return _wide_op(b, prim, dtype, args)
    found = _word_op(b, prim, dtype, args)
    if bits_of(dtype) == 32 or (prim not in NORMALISED and not (prim == "not" and not is_signed(dtype))):
        return found
    return extended(b, found, dtype)


def extended(b: Core, lane: Lane, dtype: Element) -> Lane:
    """The low bits of a 32-bit lane as a narrow integer is held."""
    bits = bits_of(dtype)
    if lane.reg is None:
        return b.const(dtype, lane.off)
    if lane.uniform > LANE and lane.reg.cls[0] == "s":
        if is_signed(dtype):
            return b.salu(f"s_sext_i32_i{bits}", dtype, lane)
        return b.salu("s_and_b32", dtype, lane, Imm((1 << bits) - 1))
    if is_signed(dtype):
        return b.valu("v_bfe_i32", dtype, lane, Imm(0), Imm(bits))
    return b.valu("v_and_b32", dtype, Imm((1 << bits) - 1), lane)


def _on_scalars(args: tuple[Lane, ...]) -> bool:
    """Whether the scalar unit may work: all is one in the warp."""
    return all(a.uniform > LANE for a in args)


# --- 32 bits and fewer


def _word_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    scalar = _on_scalars(args)
    if prim in ("shl", "shr"):
        return _word_shift(b, prim, dtype, args[0], args[1])
    if prim == "mul":
        return _multiplied(b, dtype, args[0], args[1])
    if prim == "mulhi" and bits_of(dtype) < 32:
        product = _multiplied(b, dtype, args[0], args[1])
        return _word_shift(b, "shr", dtype, product, b.const(dtype, bits_of(dtype)))
    if prim in VECTOR_INT:
        if scalar:
            return b.salu(SCALAR_INT[prim], dtype, *args)
        return b.valu(VECTOR_INT[prim], dtype, *args)
    table = SIGNED if is_signed(dtype) else UNSIGNED
    if prim in table:
        name = table[prim][0 if scalar else 1]
        return b.salu(name, dtype, *args) if scalar else b.valu(name, dtype, *args)
    if prim == "neg":
        return _word_op(b, "sub", dtype, (b.const(dtype, 0), args[0]))
    if prim == "abs":
        return b.salu("s_abs_i32", dtype, *args) if scalar else _word_abs(b, dtype, args[0])
    if prim in ("div", "rem"):
        return _divided(b, prim, dtype, args[0], args[1])
    if prim == "subsat" and dtype is I32:
        return _saturated_sub(b, args[0], args[1])
    raise InternalError(f"AMDGCN has no {prim} of {dtype}", b.loc)


def _word_abs(b: Core, dtype: Element, x: Lane) -> Lane:
    return b.valu("v_max_i32", dtype, x, b.valu("v_sub_u32", dtype, Imm(0), x))


def _multiplied(b: Core, dtype: Element, x: Lane, y: Lane) -> Lane:
    """A product; a shift where one factor is a power of two."""
    for one, other in ((x, y), (y, x)):
        c = other.off & 0xFFFFFFFF
        if other.reg is None and c and not c & (c - 1):
            return _shifted(b, "shl", dtype, one, c.bit_length() - 1)
    return b.salu("s_mul_i32", dtype, x, y) if _on_scalars((x, y)) else b.valu("v_mul_lo_u32", dtype, x, y)


def _shifted(b: Core, prim: str, dtype: Element, x: Lane, count: int) -> Lane:
    """A 32-bit shift by a constant below 32."""
    scalar, vector = (
        (SIGNED if is_signed(dtype) else UNSIGNED)["shr"] if prim == "shr" else ("s_lshl_b32", "v_lshlrev_b32")
    )
    if _on_scalars((x,)):
        return b.salu(scalar, dtype, x, Imm(count))
    return b.valu(vector, dtype, Imm(count), x)


def _word_shift(b: Core, prim: str, dtype: Element, x: Lane, count: Lane) -> Lane:
    """Counts at or above the width leave nothing (signed right shifts: the sign); the hardware takes five bits."""
    signed = prim == "shr" and is_signed(dtype)
    if count.reg is None:
        n = count.off & ((1 << bits_of(dtype)) - 1)
        if n >= 32:
            return _shifted(b, prim, dtype, x, 31) if signed else b.const(dtype, 0)
        return _shifted(b, prim, dtype, x, n)
    unsigned = _as(b, count, U32)
    if signed:
        unsigned = b.op("min", U32, unsigned, b.const(U32, 31))
    scalar, vector = (
        (SIGNED if is_signed(dtype) else UNSIGNED)["shr"] if prim == "shr" else ("s_lshl_b32", "v_lshlrev_b32")
    )
    found = b.salu(scalar, dtype, x, unsigned) if _on_scalars((x, count)) else b.valu(vector, dtype, unsigned, x)
    if signed:
        return found
    return b.select(b.compare("lt", unsigned, b.const(U32, 32)), found, b.const(dtype, 0))


def _saturated_sub(b: Core, x: Lane, y: Lane) -> Lane:
    """x - y, at the end of the range where it would wrap: it does when the operands' signs differ and the result has y's."""
    plain = b.sub(x, y)
    wrapped = b.op("and", I32, b.op("xor", I32, x, y), b.op("xor", I32, x, plain))
    end = b.op("xor", I32, b.op("shr", I32, x, b.const(I32, 31)), b.const(I32, 0x7FFFFFFF))
    return b.select(b.compare("lt", wrapped, b.const(I32, 0)), end, plain)


# --- 64 bits


def _wide_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    scalar = _on_scalars(args)
    if prim == "add":
        return b.salu("p_add_u64", dtype, *args) if scalar else _wide_sum(b, dtype, args[0], args[1])
    if prim == "sub":
        return b.salu("p_sub_u64", dtype, *args) if scalar else _wide_difference(b, dtype, args[0], args[1])
    if prim in ("and", "or", "xor"):
        if scalar:
            return b.salu(f"s_{prim}_b64", dtype, *[_ready(b, a) for a in args])
        return _by_words(b, prim, dtype, args)
    if prim == "not":
        return _by_words(b, prim, dtype, args)
    if prim == "neg":
        return _wide_op(b, "sub", dtype, (b.const(dtype, 0), args[0]))
    if prim == "abs":
        negative = b.compare("lt", args[0], b.const(dtype, 0))
        return b.select(negative, _wide_op(b, "neg", dtype, args), args[0])
    if prim in ("min", "max"):
        return b.select(b.compare("lt" if prim == "min" else "gt", args[0], args[1]), args[0], args[1])
    if prim == "mul":
        return _wide_product(b, dtype, args[0], args[1])
    if prim == "mulhi":
        return _wide_high(b, dtype, args[0], args[1])
    if prim in ("shl", "shr"):
        return _wide_shift(b, prim, dtype, args[0], args[1])
    if prim in ("div", "rem"):
        return _wide_divided(b, prim, dtype, args[0], args[1])
    raise InternalError(f"AMDGCN has no {prim} of {dtype}", b.loc)


def _ready(b: Core, lane: Lane) -> Lane:
    """A 64-bit scalar source: a constant that is no inline one in a register."""
    if lane.reg is None and not -16 <= lane.off <= 64:
        return Lane(lane.dtype, b.scalar_register(lane), uniform=lane.uniform)
    return lane


def _by_words(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    halves = [b.words(a) for a in args]
    low, high = (b.op(prim, U32, *[h[i] for h in halves]) for i in range(2))
    return b.wide(low, high, dtype)


def _wide_sum(b: Core, dtype: Element, x: Lane, y: Lane) -> Lane:
    return b.valu("v_lshl_add_u64", dtype, x, Imm(0), y)


def _wide_difference(b: Core, dtype: Element, x: Lane, y: Lane) -> Lane:
    (x0, x1), (y0, y1) = b.words(x), b.words(y)
    low, borrow = b.valu_pair("v_sub_co_u32", U32, x0, y0)
    high, _ = b.valu_pair("v_subb_co_u32", U32, x1, y1, borrow)
    return b.wide(low, high, dtype)


def wide_product_of_words(
    b: Core, dtype: Element, x: Lane, y: Lane, plus: Lane | None = None, signed: bool = False
) -> Lane:
    """The 64-bit product of two 32-bit lanes, plus a 64-bit one, on the vector unit."""
    name = "v_mad_i64_i32" if signed else "v_mad_u64_u32"
    return b.valu_pair(name, dtype, x, y, Imm(0) if plus is None else plus)[0]


def _wide_product(b: Core, dtype: Element, x: Lane, y: Lane) -> Lane:
    for one, other in ((x, y), (y, x)):
        c = other.off & ((1 << 64) - 1)
        if other.reg is None and c and not c & (c - 1):
            return _wide_shifted(b, "shl", dtype, one, c.bit_length() - 1)
    (x0, x1), (y0, y1) = b.words(x), b.words(y)
    if _on_scalars((x, y)):
        low, high = b.salu("s_mul_i32", U32, x0, y0), b.salu("s_mul_hi_u32", U32, x0, y0)
    else:
        low, high = b.words(wide_product_of_words(b, U64, x0, y0))
    for one, other in ((x0, y1), (x1, y0)):
        high = b.add(high, b.mul(one, other))
    return b.wide(low, b_ready(b, high), dtype)


def b_ready(b: Core, lane: Lane) -> Lane:
    """The lane without a constant apart."""
    return Lane(lane.dtype, b.register(lane), uniform=lane.uniform) if lane.reg is not None and lane.off else lane


def _wide_high(b: Core, dtype: Element, x: Lane, y: Lane) -> Lane:
    """The upper 64 bits of a product, by four products of words."""
    (x0, x1), (y0, y1) = b.words(x), b.words(y)
    zero = b.const(U32, 0)
    _, carry = b.words(wide_product_of_words(b, U64, x0, y0))
    middle = wide_product_of_words(b, U64, x0, y1, b.wide(carry, zero, U64))
    low, rest = b.words(middle)
    second = wide_product_of_words(b, U64, x1, y0, b.wide(low, zero, U64))
    _, top = b.words(second)
    total = _wide_sum(b, U64, b.wide(top, zero, U64), b.wide(rest, zero, U64))
    found = wide_product_of_words(b, U64, x1, y1, total)
    if is_signed(dtype):
        for one, other in ((x, y), (y, x)):
            sign = b.op("shr", I64, Lane(I64, one.reg, one.off, uniform=one.uniform), b.const(I64, 63))
            found = _wide_difference(b, U64, found, _by_words(b, "and", U64, (_as_u64(sign), _as_u64(other))))
    return Lane(dtype, found.reg, found.off, uniform=found.uniform)


def _as_u64(lane: Lane) -> Lane:
    return Lane(U64, lane.reg, lane.off, uniform=lane.uniform)


def _wide_shifted(b: Core, prim: str, dtype: Element, x: Lane, count: int) -> Lane:
    """A 64-bit shift by a constant below 64."""
    right = "ashr" if is_signed(dtype) else "lshr"
    if _on_scalars((x,)):
        name = "s_lshl_b64" if prim == "shl" else f"s_{right}_{'i' if right == 'ashr' else 'b'}64"
        return b.salu(name, dtype, x, Imm(count))
    low, high = b.words(x)
    if count >= 32:
        return _shifted_by_word(b, prim, dtype, low, high, count - 32)
    name = "v_lshlrev_b64" if prim == "shl" else f"v_{right}rev_{'i' if right == 'ashr' else 'b'}64"
    return b.valu(name, dtype, Imm(count), x)


def _shifted_by_word(b: Core, prim: str, dtype: Element, low: Lane, high: Lane, count: int) -> Lane:
    zero = b.const(U32, 0)
    if prim == "shl":
        return b.wide(zero, _shifted(b, "shl", U32, low, count) if count else low, dtype)
    if not is_signed(dtype):
        return b.wide(_shifted(b, "shr", U32, high, count) if count else high, zero, dtype)
    signed = Lane(I32, high.reg, high.off, uniform=high.uniform)
    moved = _shifted(b, "shr", I32, signed, count) if count else signed
    return b.wide(moved, _shifted(b, "shr", I32, signed, 31), dtype)


def _wide_shift(b: Core, prim: str, dtype: Element, x: Lane, count: Lane) -> Lane:
    signed = prim == "shr" and is_signed(dtype)
    if count.reg is None:
        n = count.off & ((1 << 64) - 1)
        if n >= 64:
            return _wide_shifted(b, prim, dtype, x, 63) if signed else b.const(dtype, 0)
        return _wide_shifted(b, prim, dtype, x, n)
    fits = b.compare("lt", _as_u64(count), b.const(U64, 64))
    low, _ = b.words(count)
    right = "ashr" if is_signed(dtype) else "lshr"
    name = "lshl" if prim == "shl" else right
    kind = "i64" if name == "ashr" else "b64"
    if signed:
        low = b.select(fits, low, b.const(U32, 63))
    if _on_scalars((x, count)):
        found = b.salu(f"s_{name}_{kind}", dtype, x, low)
    else:
        found = b.valu(f"v_{name}rev_{kind}", dtype, low, x)
    return found if signed else b.select(fits, found, b.const(dtype, 0))


# --- division


def _divided(b: Core, prim: str, dtype: Element, x: Lane, y: Lane) -> Lane:
    """Quotient or remainder, truncated toward zero."""
    if y.reg is None and y.off > 0 and not y.off & (y.off - 1):
        return _by_power(b, prim, dtype, x, y.off)
    if not is_signed(dtype):
        q, r = _divided_u32(b, _as(b, x, U32), _as(b, y, U32))
        return _as(b, q if prim == "div" else r, dtype)
    x, y = _as(b, x, I32), _as(b, y, I32)
    signs = [b.op("shr", I32, v, b.const(I32, 31)) for v in (x, y)]
    sizes = [_as(b, b.op("xor", I32, b_ready(b, b.add(v, s)), s), U32) for v, s in zip((x, y), signs, strict=True)]
    q, r = _divided_u32(b, *sizes)
    sign = b.op("xor", I32, *signs) if prim == "div" else signs[0]
    found = _as(b, q if prim == "div" else r, I32)
    return _as(b, b.sub(b.op("xor", I32, found, sign), sign), dtype)


def _as(b: Core, lane: Lane, dtype: Element) -> Lane:
    """A 32-bit lane by another name."""
    if lane.part >= 0:
        return Lane(dtype, b.register(lane), uniform=lane.uniform)
    return Lane(dtype, lane.reg, lane.off, uniform=lane.uniform)


def _by_power(b: Core, prim: str, dtype: Element, x: Lane, c: int) -> Lane:
    bits = c.bit_length() - 1
    width = bits_of(dtype)
    if not bits:
        return x if prim == "div" else b.const(dtype, 0)
    if not is_signed(dtype):
        return b.shift(x, -bits) if prim == "div" else b.bit_and(x, c - 1)
    own = I64 if width == 64 else I32
    x = Lane(own, b.register(x) if x.part >= 0 else x.reg, x.off, uniform=x.uniform)
    sign = b.op("shr", own, x, b.const(own, width - 1))
    rounded = b_ready(b, b.add(x, b.bit_and(sign, c - 1)))
    found = b.shift(rounded, -bits) if prim == "div" else b.sub(x, b.bit_and(rounded, -c))
    return Lane(dtype, found.reg, found.off, uniform=found.uniform)


def _divided_u32(b: Core, x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """(quotient, remainder): an estimate of 2^32 / y from the reciprocal, improved once, then at most two too small."""
    inverse = b.valu("v_rcp_iflag_f32", F32, b.valu("v_cvt_f32_u32", F32, y))
    scaled = b.op("mul", F32, inverse, b.const_bits(F32, 0x4F7FFFFE))
    z = b.valu("v_cvt_u32_f32", U32, scaled)
    error = b.mul(b.sub(b.const(U32, 0), y), z)
    z = b.add(z, b.op("mulhi", U32, z, error))
    q = b.op("mulhi", U32, x, z)
    r = b.sub(x, b.mul(q, y))
    for _ in range(2):
        more = b.compare("ge", r, y)
        q = b.select(more, b.add(q, b.const(U32, 1)), q)
        r = b.select(more, b.sub(r, y), r)
    return q, r


def _wide_divided(b: Core, prim: str, dtype: Element, x: Lane, y: Lane) -> Lane:
    if y.reg is None and y.off > 0 and not y.off & (y.off - 1):
        return _by_power(b, prim, dtype, x, y.off)
    if not is_signed(dtype):
        q, r = _divided_u64(b, x, y)
        found = q if prim == "div" else r
    else:
        signs = [b.op("shr", I64, v, b.const(I64, 63)) for v in (x, y)]
        sizes = [_as_u64(b.op("xor", I64, b_ready(b, b.add(v, s)), s)) for v, s in zip((x, y), signs, strict=True)]
        q, r = _divided_u64(b, *sizes)
        sign = b.op("xor", I64, *signs) if prim == "div" else signs[0]
        size = q if prim == "div" else r
        found = b.sub(b.op("xor", I64, Lane(I64, size.reg, size.off, uniform=size.uniform), sign), sign)
    return Lane(dtype, found.reg, found.off, uniform=found.uniform)


def _divided_u64(b: Core, x: Lane, y: Lane) -> tuple[Lane, Lane]:
    """As `_divided_u32`, with two improvements of a reciprocal that has some 22 good bits."""
    low, high = b.words(y)
    size = b.op(
        "fma", F32, b.valu("v_cvt_f32_u32", F32, high), b.const(F32, 2.0**32), b.valu("v_cvt_f32_u32", F32, low)
    )
    inverse = b.op("mul", F32, b.valu("v_rcp_f32", F32, size), b.const_bits(F32, 0x5F7FFFFC))  # a little below 2^64
    top = b.op("trunc", F32, b.op("mul", F32, inverse, b.const(F32, 2.0**-32)))
    rest = b.op("fma", F32, top, b.const(F32, -(2.0**32)), inverse)
    z = b.wide(b.valu("v_cvt_u32_f32", U32, rest), b.valu("v_cvt_u32_f32", U32, top), U64)
    minus = b.sub(b.const(U64, 0), y)
    for _ in range(2):
        error = b.mul(minus, z)
        z = b.add(z, b.op("mulhi", U64, z, error))
    q = b.op("mulhi", U64, x, z)
    r = b.sub(x, b.mul(q, y))
    one = b.const(U64, 1)
    for _ in range(2):
        more = b.compare("ge", r, y)
        q = b.select(more, b.op("add", U64, q, one), q)
        r = b.select(more, b.sub(r, y), r)
    return q, r


def compare_integers(b: Core, how: str, x: Lane, y: Lane) -> Lane:
    """A comparison of two integers or pointers."""
    wide = bits_of(x.dtype) == 64
    kind = ("i" if is_signed(x.dtype) else "u") + ("64" if wide else "32")
    equality = how in ("eq", "ne")
    if _on_scalars((x, y)) and (not wide or equality):
        name = {"ne": "lg"}.get(how, how)
        if wide:
            return b.salu(f"p_cmp_{name}_u64", I1, _ready(b, x), _ready(b, y))
        return b.salu(f"p_cmp_{name}_{kind}", I1, x, y)
    return b.valu(f"v_cmp_{how}_{kind}", I1, x, y)
