"""Integer division on AMD's machines, which have no instruction for it: shifts, products with a reciprocal that is known, or quotients
from a floating-point reciprocal that are corrected in integers. Built on the other primitives alone."""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.amdgcn.builder.opcodes import is_signed
from mimw.codegen.amdgcn.builder.words import as_u64, renamed, whole
from mimw.codegen.lane import Lane, bits_of
from mimw.ir.types import F32, I32, I64, U32, U64, Element


def divided(b: Core, prim: str, dtype: Element, x: Lane, y: Lane) -> Lane:
    """Quotient or remainder, truncated toward zero."""
    if y.reg is None and y.off > 0 and not y.off & (y.off - 1):
        return _by_power(b, prim, dtype, x, y.off)
    if y.reg is None and y.off > 1 and (y.off < 1 << 31 or not is_signed(dtype)):
        return _by_constant(b, prim, dtype, x, y.off)
    if not is_signed(dtype):
        q, r = _divided_u32(b, renamed(b, x, U32), renamed(b, y, U32))
        return renamed(b, q if prim == "div" else r, dtype)
    x, y = renamed(b, x, I32), renamed(b, y, I32)
    signs = [b.op("shr", I32, v, b.const(I32, 31)) for v in (x, y)]
    sizes = [renamed(b, b.op("xor", I32, whole(b, b.add(v, s)), s), U32) for v, s in zip((x, y), signs, strict=True)]
    q, r = _divided_u32(b, *sizes)
    sign = b.op("xor", I32, *signs) if prim == "div" else signs[0]
    found = renamed(b, q if prim == "div" else r, I32)
    return renamed(b, b.sub(b.op("xor", I32, found, sign), sign), dtype)


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
    rounded = whole(b, b.add(x, b.bit_and(sign, c - 1)))
    found = b.shift(rounded, -bits) if prim == "div" else b.sub(x, b.bit_and(rounded, -c))
    return Lane(dtype, found.reg, found.off, uniform=found.uniform)


def _by_constant(b: Core, prim: str, dtype: Element, x: Lane, c: int) -> Lane:
    """By a product with 2^(32 + n) / c, rounded up (Granlund and Montgomery, "Division by Invariant Integers using Multiplication")."""
    bits = (c - 1).bit_length()
    if is_signed(dtype):
        n = renamed(b, x, I32)
        factor = (1 << 31 + bits) // c + 1 - (1 << 32)
        high = b.add(b.op("mulhi", I32, n, b.const(I32, factor)), n)
        q = b.sub(b.shift(whole(b, high), -(bits - 1)), b.op("shr", I32, n, b.const(I32, 31)))
    else:
        n = renamed(b, x, U32)
        factor = ((1 << 32) * ((1 << bits) - c)) // c + 1
        high = b.op("mulhi", U32, n, b.const(U32, factor))
        half = b.shift(whole(b, b.sub(n, high)), -1)
        q = b.shift(whole(b, b.add(half, high)), -(bits - 1))
    found = q if prim == "div" else b.sub(n, b.times(q, c))
    return renamed(b, Lane(found.dtype, b.register(found), uniform=found.uniform), dtype)


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


def wide_divided(b: Core, prim: str, dtype: Element, x: Lane, y: Lane) -> Lane:
    """As `divided`, of 64 bits."""
    if y.reg is None and y.off > 0 and not y.off & (y.off - 1):
        return _by_power(b, prim, dtype, x, y.off)
    if not is_signed(dtype):
        q, r = _divided_u64(b, x, y)
        found = q if prim == "div" else r
    else:
        signs = [b.op("shr", I64, v, b.const(I64, 63)) for v in (x, y)]
        sizes = [as_u64(b.op("xor", I64, whole(b, b.add(v, s)), s)) for v, s in zip((x, y), signs, strict=True)]
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
