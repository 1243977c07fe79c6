"""Integer primitives of 8 to 32 bits as AMDGCN instructions: the scalar unit for what is one in a warp, the vector unit for the rest.

Comparisons of all widths are here too; 64 bits are `builder.wide`'s, division is `builder.division`'s.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.amdgcn.builder.division import divided
from mimw.codegen.amdgcn.builder.opcodes import NORMALISED, SCALAR_INT, SIGNED, UNSIGNED, VECTOR_INT, is_signed
from mimw.codegen.amdgcn.builder.wide import wide_op
from mimw.codegen.amdgcn.builder.words import on_scalars, renamed, scalar_source, shifted
from mimw.codegen.lane import LANE, Lane, bits_of
from mimw.codegen.machine import Imm
from mimw.diagnostics import InternalError
from mimw.ir.types import I1, I32, U32, Element


def integer_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    """A primitive on integers or pointers of any width."""
    if bits_of(dtype) == 64:
        return wide_op(b, prim, dtype, args)
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


# --- 32 bits and fewer


def _word_op(b: Core, prim: str, dtype: Element, args: tuple[Lane, ...]) -> Lane:
    scalar = on_scalars(args)
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
        return divided(b, prim, dtype, args[0], args[1])
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
            return shifted(b, "shl", dtype, one, c.bit_length() - 1)
    return b.salu("s_mul_i32", dtype, x, y) if on_scalars((x, y)) else b.valu("v_mul_lo_u32", dtype, x, y)


def _word_shift(b: Core, prim: str, dtype: Element, x: Lane, count: Lane) -> Lane:
    """Counts at or above the width leave nothing (signed right shifts: the sign); the hardware takes five bits."""
    signed = prim == "shr" and is_signed(dtype)
    if count.reg is None:
        n = count.off & ((1 << bits_of(dtype)) - 1)
        if n >= 32:
            return shifted(b, prim, dtype, x, 31) if signed else b.const(dtype, 0)
        return shifted(b, prim, dtype, x, n)
    unsigned = renamed(b, count, U32)
    if signed:
        unsigned = b.op("min", U32, unsigned, b.const(U32, 31))
    scalar, vector = (
        (SIGNED if is_signed(dtype) else UNSIGNED)["shr"] if prim == "shr" else ("s_lshl_b32", "v_lshlrev_b32")
    )
    found = b.salu(scalar, dtype, x, unsigned) if on_scalars((x, count)) else b.valu(vector, dtype, unsigned, x)
    if signed:
        return found
    return b.select(b.compare("lt", unsigned, b.const(U32, 32)), found, b.const(dtype, 0))


def _saturated_sub(b: Core, x: Lane, y: Lane) -> Lane:
    """x - y, at the end of the range where it would wrap: it does when the operands' signs differ and the result has y's."""
    plain = b.sub(x, y)
    wrapped = b.op("and", I32, b.op("xor", I32, x, y), b.op("xor", I32, x, plain))
    end = b.op("xor", I32, b.op("shr", I32, x, b.const(I32, 31)), b.const(I32, 0x7FFFFFFF))
    return b.select(b.compare("lt", wrapped, b.const(I32, 0)), end, plain)


def compare_integers(b: Core, how: str, x: Lane, y: Lane) -> Lane:
    """A comparison of two integers or pointers."""
    wide = bits_of(x.dtype) == 64
    kind = ("i" if is_signed(x.dtype) else "u") + ("64" if wide else "32")
    equality = how in ("eq", "ne")
    if on_scalars((x, y)) and (not wide or equality):
        name = {"ne": "lg"}.get(how, how)
        if wide:
            return b.salu(f"p_cmp_{name}_u64", I1, scalar_source(b, x), scalar_source(b, y))
        return b.salu(f"p_cmp_{name}_{kind}", I1, x, y)
    return b.valu(f"v_cmp_{how}_{kind}", I1, x, y)
