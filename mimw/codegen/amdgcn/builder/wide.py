"""64-bit integers as AMDGCN instructions: whole on the scalar unit, in two words on the vector unit where it has nothing wider."""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.amdgcn.builder.division import wide_divided
from mimw.codegen.amdgcn.builder.opcodes import is_signed
from mimw.codegen.amdgcn.builder.words import as_u64, on_scalars, scalar_source, shifted, whole
from mimw.codegen.lane import Lane
from mimw.codegen.machine import Imm
from mimw.diagnostics import InternalError
from mimw.ir.types import I32, I64, U32, U64, Element


def wide_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    """A primitive on 64-bit integers or pointers."""
    scalar = on_scalars(args)
    if prim == "add":
        return b.salu("p_add_u64", dtype, *args) if scalar else _wide_sum(b, dtype, args[0], args[1])
    if prim == "sub":
        return b.salu("p_sub_u64", dtype, *args) if scalar else _wide_difference(b, dtype, args[0], args[1])
    if prim in ("and", "or", "xor"):
        if scalar:
            return b.salu(f"s_{prim}_b64", dtype, *[scalar_source(b, a) for a in args])
        return _by_words(b, prim, dtype, args)
    if prim == "not":
        return _by_words(b, prim, dtype, args)
    if prim == "neg":
        return wide_op(b, "sub", dtype, (b.const(dtype, 0), args[0]))
    if prim == "abs":
        negative = b.compare("lt", args[0], b.const(dtype, 0))
        return b.select(negative, wide_op(b, "neg", dtype, args), args[0])
    if prim in ("min", "max"):
        return b.select(b.compare("lt" if prim == "min" else "gt", args[0], args[1]), args[0], args[1])
    if prim == "mul":
        return _wide_product(b, dtype, args[0], args[1])
    if prim == "mulhi":
        return _wide_high(b, dtype, args[0], args[1])
    if prim in ("shl", "shr"):
        return _wide_shift(b, prim, dtype, args[0], args[1])
    if prim in ("div", "rem"):
        return wide_divided(b, prim, dtype, args[0], args[1])
    raise InternalError(f"AMDGCN has no {prim} of {dtype}", b.loc)


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
            return wide_shifted(b, "shl", dtype, one, c.bit_length() - 1)
    (x0, x1), (y0, y1) = b.words(x), b.words(y)
    if on_scalars((x, y)):
        low, high = b.salu("s_mul_i32", U32, x0, y0), b.salu("s_mul_hi_u32", U32, x0, y0)
    else:
        low, high = b.words(wide_product_of_words(b, U64, x0, y0))
    for one, other in ((x0, y1), (x1, y0)):
        high = b.add(high, b.mul(one, other))
    return b.wide(low, whole(b, high), dtype)


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
            found = _wide_difference(b, U64, found, _by_words(b, "and", U64, (as_u64(sign), as_u64(other))))
    return Lane(dtype, found.reg, found.off, uniform=found.uniform)


def wide_shifted(b: Core, prim: str, dtype: Element, x: Lane, count: int) -> Lane:
    """A 64-bit shift by a constant below 64."""
    right = "ashr" if is_signed(dtype) else "lshr"
    if on_scalars((x,)):
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
        return b.wide(zero, shifted(b, "shl", U32, low, count) if count else low, dtype)
    if not is_signed(dtype):
        return b.wide(shifted(b, "shr", U32, high, count) if count else high, zero, dtype)
    signed = Lane(I32, high.reg, high.off, uniform=high.uniform)
    moved = shifted(b, "shr", I32, signed, count) if count else signed
    return b.wide(moved, shifted(b, "shr", I32, signed, 31), dtype)


def _wide_shift(b: Core, prim: str, dtype: Element, x: Lane, count: Lane) -> Lane:
    signed = prim == "shr" and is_signed(dtype)
    if count.reg is None:
        n = count.off & ((1 << 64) - 1)
        if n >= 64:
            return wide_shifted(b, prim, dtype, x, 63) if signed else b.const(dtype, 0)
        return wide_shifted(b, prim, dtype, x, n)
    fits = b.compare("lt", as_u64(count), b.const(U64, 64))
    low, _ = b.words(count)
    right = "ashr" if is_signed(dtype) else "lshr"
    name = "lshl" if prim == "shl" else right
    kind = "i64" if name == "ashr" else "b64"
    if signed:
        low = b.select(fits, low, b.const(U32, 63))
    if on_scalars((x, count)):
        found = b.salu(f"s_{name}_{kind}", dtype, x, low)
    else:
        found = b.valu(f"v_{name}rev_{kind}", dtype, low, x)
    return found if signed else b.select(fits, found, b.const(dtype, 0))
