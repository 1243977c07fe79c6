"""Floating-point primitives as AMDGCN instructions; exact division and square root as sequences of fused multiply-adds.

The sequences follow the recipe of AMD's ISA documents for V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP. Denormals are on in every kernel;
the approximations (v_exp, v_log, v_rcp, v_rsq, v_sqrt of f32) flush theirs, as the language allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.codegen.amdgcn.builder.core import Core, signed32
from mimw.codegen.amdgcn.builder.opcodes import FLOAT, PACKED
from mimw.codegen.lane import LANE, Lane
from mimw.codegen.machine import Imm, Not, Operand, Symbol
from mimw.diagnostics import InternalError
from mimw.ir.types import F16, F32, F64, I1, U32, U64, DType

ZERO_OR_INFINITE = 0x264
"""What v_cmp_class looks for: both zeros (bits 5 and 6), both infinities (2 and 9)."""


def float_op(b: Core, prim: str, dtype: DType, args: tuple[Lane, ...]) -> Lane:
    """A primitive on floats of any width."""
    opcode = FLOAT.get(dtype.name, {}).get(prim)
    if opcode is not None:
        return b.valu(opcode, dtype, *args)
    if prim in ("neg", "abs"):
        return _sign(b, prim, dtype, args[0])
    if prim in ("minnan", "maxnan"):
        return _nan_wins(b, prim, dtype, args[0], args[1])
    if prim == "sub":
        return b.valu("v_add_f64", dtype, args[0], Not(b.vector(args[1])), uniform=min(a.uniform for a in args))
    if prim == "rcp_rn":
        return float_op(b, "div_rn", dtype, (b.const(dtype, 1.0), args[0]))
    if prim == "div_rn":
        return _quotient(b, dtype, args[0], args[1])
    if prim == "div_full":
        return _fast_quotient(b, args[0], args[1])
    if prim == "div_rz":
        return _quotient_toward_zero(b, args[0], args[1])
    if prim == "sqrt_rn":
        return _root(b, args[0]) if dtype is F32 else _wide_root(b, args[0])
    raise InternalError(f"AMDGCN has no {prim} of {dtype}", b.loc)


def _sign(b: Core, prim: str, dtype: DType, x: Lane) -> Lane:
    """The sign bit changed or cleared."""
    top = 1 << (dtype.bits - 1)
    if dtype.bits == 64:
        low, high = b.words(Lane(dtype, b.vector(x), uniform=x.uniform))
        return b.wide(low, _sign_of_word(b, prim, high, 1 << 31), dtype)
    found = _sign_of_word(b, prim, Lane(U32, b.vector(x), uniform=x.uniform), top)
    return Lane(dtype, found.reg, uniform=x.uniform)


def _sign_of_word(b: Core, prim: str, word: Lane, top: int) -> Lane:
    if prim == "neg":
        return b.valu("v_xor_b32", U32, Imm(signed32(top)), word)
    return b.valu("v_and_b32", U32, Imm(top - 1), word)


def _nan_wins(b: Core, prim: str, dtype: DType, x: Lane, y: Lane) -> Lane:
    if b.target.has("minimum3") and dtype is F32:
        return b.valu("v_minimum3_f32" if prim == "minnan" else "v_maximum3_f32", dtype, x, y, y)
    found = float_op(b, prim[:3], dtype, (x, y))
    nan = 0x7E00 if dtype is F16 else 0x7FC00000
    return b.select(b.compare("nan", x, y), b.const_bits(dtype, nan), found)


# --- quotients


def _fma(b: Core, dtype: DType, x: Operand | Lane, y: Lane, z: Lane) -> Lane:
    uniform = min((v.uniform for v in (x, y, z) if isinstance(v, Lane)), default=LANE)
    return b.valu(f"v_fma_{dtype.name}", dtype, x, y, z, uniform=uniform)


def _quotient(b: Core, dtype: DType, x: Lane, y: Lane) -> Lane:
    """x / y, correctly rounded, whatever the magnitudes."""
    name = dtype.name
    top, bottom = Lane(dtype, b.vector(x), uniform=x.uniform), Lane(dtype, b.vector(y), uniform=y.uniform)
    d, _ = b.valu_pair(f"v_div_scale_{name}", dtype, bottom, bottom, top)
    n, scaled = b.valu_pair(f"v_div_scale_{name}", dtype, top, bottom, top)
    minus = Not(b.vector(d))
    one = b.const(dtype, 1.0)
    r = b.valu(f"v_rcp_{name}", dtype, d)
    for _ in range(1 if dtype is F32 else 2):
        r = _fma(b, dtype, b.vector(_fma(b, dtype, minus, r, one)), r, r)
    q = float_op(b, "mul", dtype, (n, r))
    if dtype is F32:
        q = _fma(b, dtype, b.vector(_fma(b, dtype, minus, q, n)), r, q)
    rest = _fma(b, dtype, minus, q, n)
    uniform = min(x.uniform, y.uniform)
    joined = b.pure(
        f"p_div_fmas_{name}",
        dtype,
        [b.vector(rest), b.vector(r), b.vector(q), b.register(scaled)],
        uniform,
        f"v{dtype.bits}",
    )
    return b.valu(f"v_div_fixup_{name}", dtype, joined, bottom, top, uniform=uniform)


def _fast_quotient(b: Core, x: Lane, y: Lane) -> Lane:
    """x * (1 / y) with y scaled where its reciprocal would leave the normal range: at most 2 ulp."""
    size = b.op("abs", F32, y)
    one = b.const(F32, 1.0)
    scale = b.select(b.compare("gt", size, b.const(F32, 2.0**96)), b.const(F32, 2.0**-32), one)
    scale = b.select(b.compare("lt", size, b.const(F32, 2.0**-96)), b.const(F32, 2.0**32), scale)
    inverse = b.op("rcp_approx", F32, b.op("mul", F32, y, scale))
    return b.op("mul", F32, b.op("mul", F32, x, inverse), scale)


def _quotient_toward_zero(b: Core, x: Lane, y: Lane) -> Lane:
    """x / y rounded toward zero, for positive finite numbers: the nearest one, less an ulp where it is too large."""
    q = _quotient(b, F64, x, y)
    rest = _fma(b, F64, Not(b.vector(q)), y, x)
    bits = Lane(U64, q.reg)
    less = b.sub(bits, b.const(U64, 1))
    found = b.select(b.compare("lt", rest, b.const(F64, 0.0)), less, bits)
    return Lane(F64, b.register(found), uniform=q.uniform)


# --- square roots


def _root(b: Core, x: Lane) -> Lane:
    """The correctly rounded root: the estimate or one of its neighbours, whichever has the right residue."""
    small = b.compare("lt", x, b.const(F32, 2.0**-96))
    scaled = b.select(small, b.op("mul", F32, x, b.const(F32, 2.0**32)), x)
    estimate = b.op("sqrt_approx", F32, scaled)
    bits = Lane(U32, b.vector(estimate))
    found = bits
    zero = b.const(F32, 0.0)
    for step, how in ((-1, "le"), (1, "gt")):
        near = b.add(bits, b.const(U32, step & 0xFFFFFFFF))
        neighbour = Lane(F32, b.vector(near))
        residue = _fma(b, F32, Not(b.vector(neighbour)), estimate, scaled)
        found = b.select(b.compare(how, residue, zero), Lane(U32, neighbour.reg), found)
    root = Lane(F32, b.vector(found), uniform=estimate.uniform)
    root = b.select(small, b.op("mul", F32, root, b.const(F32, 2.0**-16)), root)
    return b.select(_is_class(b, scaled, ZERO_OR_INFINITE), scaled, root)


def _is_class(b: Core, x: Lane, classes: int) -> Lane:
    assert isinstance(x.dtype, DType)
    return b.valu(f"v_cmp_class_{x.dtype.name}", I1, Lane(x.dtype, b.vector(x), uniform=x.uniform), Imm(classes))


def _wide_root(b: Core, x: Lane) -> Lane:
    """The root of a double by Goldschmidt's iteration from the estimate of its reciprocal."""
    small = b.compare("lt", x, b.const(F64, 2.0**-767))
    scaled = _scaled(b, x, b.select(small, b.const(U32, 256), b.const(U32, 0)))
    half = b.const(F64, 0.5)
    y = b.valu("v_rsq_f64", F64, scaled)
    g, h = float_op(b, "mul", F64, (scaled, y)), float_op(b, "mul", F64, (y, half))
    error = _fma(b, F64, Not(b.vector(h)), g, half)
    g, h = _fma(b, F64, b.vector(g), error, g), _fma(b, F64, b.vector(h), error, h)
    for _ in range(2):
        g = _fma(b, F64, b.vector(_fma(b, F64, Not(b.vector(g)), g, scaled)), h, g)
    root = _scaled(b, g, b.select(small, b.const(U32, -128 & 0xFFFFFFFF), b.const(U32, 0)))
    return b.select(_is_class(b, scaled, ZERO_OR_INFINITE), scaled, root)


def _scaled(b: Core, x: Lane, power: Lane) -> Lane:
    """x * 2**power."""
    return b.valu("v_ldexp_f64", F64, x, power)


# --- packed


def packs(prim: str, dtype: DType) -> bool:
    """Whether two neighbouring elements are computed by one instruction."""
    return dtype is F16 and (prim in PACKED or prim in ("sub", "neg", "abs"))


def packed_op(b: Core, prim: str, dtype: DType, args: Sequence[tuple[Lane, Lane]]) -> tuple[Lane, Lane]:
    """A primitive on pairs of f16."""
    uniform = min(min(x.uniform, y.uniform) for x, y in args)
    words = [Lane(U32, b.packed(pair), uniform=uniform) for pair in args]
    if prim == "neg":
        found = b.valu("v_xor_b32", U32, Imm(-0x7FFF8000), words[0])
    elif prim == "abs":
        found = b.valu("v_and_b32", U32, Imm(0x7FFF7FFF), words[0])
    elif prim == "sub":
        signs = (Symbol("neg_lo:[0,1]"), Symbol("neg_hi:[0,1]"))
        found = b.pure("v_pk_add_f16", U32, [*(b.vector(w) for w in words), *signs], uniform, "v32")
    else:
        found = b.valu(PACKED[prim], U32, *words)
    reg = b.reg_of(found)
    return Lane(dtype, reg, 0, 0, uniform), Lane(dtype, reg, 0, 1, uniform)
