# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Integer and bit instructions of the vector unit, 16, 32 and 64 bits wide.

Formulas from "AMD Instinct MI300 Instruction Set Architecture", chapter "Instructions" (VOP1, VOP2, VOP3), and the CDNA4
document for bitop3 and ashr_pk.
"""

from __future__ import annotations

import numpy as np

from mimw.sim.amdgcn.decode import VCC, Reg
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.vector import masked, row, rows, saturating, vector_step
from mimw.sim.amdgcn.registry import Step, executes
from mimw.sim.amdgcn.state import LANES, Array, Ctx
from mimw.sim.amdgcn.types import DTYPES, join

_U32, _U64, _I64 = np.uint32, np.uint64, np.int64


def _low(a: Array, bits: int = 31) -> Array:
    """The shift count in the low bits of `a`."""
    return a & a.dtype.type(bits)


def reverse_bits(a: Array) -> Array:
    """The 32 bits of each element in reverse order."""
    a = (a >> _U32(16)) | (a << _U32(16))
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
        a = ((a >> _U32(shift)) & _U32(mask)) | ((a & _U32(mask)) << _U32(shift))
    return a


def find_high(a: Array) -> Array:
    """Zeros before the first one, from the top; -1 without a one (v_ffbh_u32)."""
    _, e = np.frexp(a.astype(np.float64))
    return np.where(a == 0, _U32(0xFFFFFFFF), (32 - e).astype(np.uint32))


def find_low(a: Array) -> Array:
    """The position of the lowest one; -1 without a one (v_ffbl_b32)."""
    lowest = a & (~a + _U32(1))
    _, e = np.frexp(lowest.astype(np.float64))
    return np.where(a == 0, _U32(0xFFFFFFFF), (e - 1).astype(np.uint32))


def find_sign(a: Array) -> Array:
    """Bits that equal the sign bit, from the top (v_ffbh_i32); -1 where all 32 do."""
    flipped = np.where(a < 0, ~a, a).view(np.uint32)
    return np.where(flipped == 0, _U32(0xFFFFFFFF), find_high(flipped))


def bit_count(a: Array) -> Array:
    """How many bits are one."""
    return np.bitwise_count(a).astype(np.uint32)


def permute_bytes(high: Array, low: Array, select: Array) -> Array:
    """v_perm_b32: each byte of `select` picks a byte of {high, low}, a sign fill, 0 or 0xff."""
    high, low, select = np.broadcast_arrays(high, low, select)
    data = join(low, high)
    out = np.zeros(data.shape, np.uint32)
    for k in range(4):
        s = (select >> _U32(8 * k)) & _U32(0xFF)
        byte = (data >> (_U64(8) * (s & _U32(7)).astype(np.uint64))) & _U64(0xFF)
        # 8 to 11: the sign of byte 1, 3, 5 or 7, repeated.
        sign_at = (s.astype(np.uint64) & _U64(3)) * _U64(16) + _U64(15)
        sign = np.where((data >> sign_at) & _U64(1), _U32(0xFF), _U32(0))
        byte = np.where(s < 8, byte.astype(np.uint32), np.where(s < 12, sign, np.where(s == 12, _U32(0), _U32(0xFF))))
        out |= byte << _U32(8 * k)
    return out


def bitop3(code: int, a: Array, b: Array, c: Array) -> Array:
    """The bitwise function of three inputs with truth table `code`: bit 4a + 2b + c."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for k in range(8):
        if code >> k & 1:
            out = out | ((a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c))
    return out


def _bfe(a: Array, b: Array, c: Array) -> Array:
    return a >> _low(b) & ((_U32(1) << _low(c)) - _U32(1))


def _bfe_signed(a: Array, b: Array, c: Array) -> Array:
    width = (c & np.uint32(31)).astype(np.int64)
    wide = (a.astype(np.int64) >> (b & np.uint32(31)).astype(np.int64)) << (64 - np.maximum(width, 1))
    return np.where(width == 0, 0, wide >> (64 - np.maximum(width, 1))).astype(np.int32)


def _signed24(a: Array) -> Array:
    return (a.view(np.int32) << np.int32(8)) >> np.int32(8)


def _med3(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


_M24 = _U32(0xFFFFFF)
rows(
    {
        "v_and_b32": lambda a, b: a & b,
        "v_or_b32": lambda a, b: a | b,
        "v_xor_b32": lambda a, b: a ^ b,
        "v_xnor_b32": lambda a, b: ~(a ^ b),
        "v_lshlrev_b32": lambda a, b: b << _low(a),
        "v_lshrrev_b32": lambda a, b: b >> _low(a),
        "v_min_u32": np.minimum,
        "v_max_u32": np.maximum,
        "v_mul_lo_u32": lambda a, b: a * b,
        "v_mul_hi_u32": lambda a, b: ((a.astype(_U64) * b.astype(_U64)) >> _U64(32)).astype(_U32),
        "v_mul_u32_u24": lambda a, b: (a & _M24) * (b & _M24),
        "v_mul_i32_i24": lambda a, b: (_signed24(a) * _signed24(b)).view(_U32),
        "v_mul_hi_u32_u24": lambda a, b: (((a & _M24).astype(_U64) * (b & _M24).astype(_U64)) >> _U64(32)).astype(_U32),
        "v_mul_hi_i32_i24": lambda a, b: ((_signed24(a).astype(_I64) * _signed24(b)) >> 32).astype(np.int32).view(_U32),
        "v_bcnt_u32_b32": lambda a, b: bit_count(a) + b,
        "v_bfm_b32": lambda a, b: ((_U32(1) << _low(a)) - _U32(1)) << _low(b),
        "v_cvt_pk_u16_u32": lambda a, b: np.minimum(a, 0xFFFF) | np.minimum(b, 0xFFFF) << _U32(16),
    },
    "b32",
    "b32 b32",
)
rows(
    {
        "v_mov_b32": lambda a: a,
        "v_not_b32": lambda a: ~a,
        "v_bfrev_b32": reverse_bits,
        "v_ffbh_u32": find_high,
        "v_ffbl_b32": find_low,
        "v_accvgpr_read_b32": lambda a: a,
        "v_accvgpr_write_b32": lambda a: a,
        "v_accvgpr_mov_b32": lambda a: a,
    },
    "b32",
    "b32",
)
row("v_ffbh_i32", "u32", "i32", find_sign)
row("v_mov_b64", "b64", "b64", lambda a: a)
rows(
    {
        "v_mul_hi_i32": lambda a, b: ((a.astype(_I64) * b.astype(_I64)) >> 32).astype(np.int32),
        "v_min_i32": np.minimum,
        "v_max_i32": np.maximum,
        "v_cvt_pk_i16_i32": lambda a, b: (
            (np.clip(a, -32768, 32767) & 0xFFFF) | np.clip(b, -32768, 32767) << np.int32(16)
        ).astype(np.int32),
    },
    "i32",
    "i32 i32",
)
row("v_ashrrev_i32", "i32", "u32 i32", lambda a, b: b >> _low(a).astype(np.int32))
rows(
    {
        "v_lshl_add_u32": lambda a, b, c: (a << _low(b)) + c,
        "v_add_lshl_u32": lambda a, b, c: (a + b) << _low(c),
        "v_lshl_or_b32": lambda a, b, c: (a << _low(b)) | c,
        "v_and_or_b32": lambda a, b, c: (a & b) | c,
        "v_or3_b32": lambda a, b, c: a | b | c,
        "v_add3_u32": lambda a, b, c: a + b + c,
        "v_xad_u32": lambda a, b, c: (a ^ b) + c,
        "v_bfe_u32": _bfe,
        "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
        "v_alignbit_b32": lambda a, b, c: (join(b, a) >> _low(c).astype(_U64)).astype(_U32),
        "v_alignbyte_b32": lambda a, b, c: (join(b, a) >> (_low(c, 3).astype(_U64) * _U64(8))).astype(_U32),
        "v_perm_b32": permute_bytes,
        "v_min3_u32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_max3_u32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_med3_u32": _med3,
        "v_mad_u32_u24": lambda a, b, c: (a & _M24) * (b & _M24) + c,
        "v_mad_i32_i24": lambda a, b, c: (_signed24(a) * _signed24(b)).view(_U32) + c,
        "v_sad_u32": lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
        "v_sad_u8": lambda a, b, c: _sad(a, b, 8) + c,
        "v_sad_hi_u8": lambda a, b, c: (_sad(a, b, 8) << _U32(16)) + c,
        "v_sad_u16": lambda a, b, c: _sad(a, b, 16) + c,
    },
    "b32",
    "b32 b32 b32",
)


def _sad(a: Array, b: Array, width: int) -> Array:
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape), np.uint32)
    mask = _U32((1 << width) - 1)
    for shift in range(0, 32, width):
        p, q = (a >> _U32(shift)) & mask, (b >> _U32(shift)) & mask
        total += np.maximum(p, q) - np.minimum(p, q)
    return total


rows(
    {
        "v_min3_i32": lambda a, b, c: np.minimum(np.minimum(a, b), c),
        "v_max3_i32": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        "v_med3_i32": _med3,
    },
    "i32",
    "i32 i32 i32",
)
row("v_bfe_i32", "i32", "i32 u32 u32", _bfe_signed)
row("v_lshlrev_b64", "b64", "u32 b64", lambda a, b: b << _low(a, 63).astype(_U64))
row("v_lshrrev_b64", "b64", "u32 b64", lambda a, b: b >> _low(a, 63).astype(_U64))
row("v_ashrrev_i64", "i64", "u32 i64", lambda a, b: b >> _low(a, 63).astype(_I64))
row("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << _low(b, 7).astype(_U64)) + c)
row("v_mad_u32_u16", "u32", "u16 u16 u32", lambda a, b, c: a.astype(_U32) * b.astype(_U32) + c)
row("v_mad_i32_i16", "i32", "i16 i16 i32", lambda a, b, c: a.astype(np.int32) * b.astype(np.int32) + c)

# Sixteen bits: the upper half of the result is cleared, except by the three-operand forms of gfx9.
rows(
    {
        "v_add_u16": lambda a, b: a + b,
        "v_sub_u16": lambda a, b: a - b,
        "v_subrev_u16": lambda a, b: b - a,
        "v_mul_lo_u16": lambda a, b: a * b,
        "v_lshlrev_b16": lambda a, b: b << _low(a, 15),
        "v_lshrrev_b16": lambda a, b: b >> _low(a, 15),
        "v_min_u16": np.minimum,
        "v_max_u16": np.maximum,
    },
    "u16",
    "u16 u16",
)
row("v_ashrrev_i16", "i16", "u16 i16", lambda a, b: b >> _low(a, 15).astype(np.int16))
row("v_min_i16", "i16", "i16 i16", np.minimum)
row("v_max_i16", "i16", "i16 i16", np.maximum)
for _name, _type, _fn in (
    ("v_mad_u16", "u16", lambda a, b, c: a * b + c),
    ("v_mad_i16", "i16", lambda a, b, c: a * b + c),
    ("v_min3_u16", "u16", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    ("v_max3_u16", "u16", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    ("v_med3_u16", "u16", _med3),
    ("v_min3_i16", "i16", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    ("v_max3_i16", "i16", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    ("v_med3_i16", "i16", _med3),
):
    row(_name, _type, " ".join([_type] * 3), _fn, keep_high=True)
row("v_mad_legacy_u16", "u16", "u16 u16 u16", lambda a, b, c: a * b + c)
row("v_mad_legacy_i16", "i16", "i16 i16 i16", lambda a, b, c: a * b + c)
row("v_pack_b32_f16", "b32", "b16 b16", lambda a, b: a.astype(_U32) | b.astype(_U32) << _U32(16))


def _add_or_sub(d: Operands) -> Step:
    """v_add_u32 and its relatives: `clamp` saturates."""
    name = d.inst.mnemonic
    kind = "i32" if name.endswith("i32") else "i16" if name.endswith("i16") else "u32"
    fns = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a}
    fn = fns[name.split("_")[1]]
    return vector_step(d, kind, [kind, kind], saturating(kind, fn) if d.inst.flag("clamp") else fn, kind == "i16")


for _name in ("v_add_u32", "v_sub_u32", "v_subrev_u32", "v_add_i32", "v_sub_i32", "v_add_i16", "v_sub_i16"):
    executes(_name)(_add_or_sub)


@executes("v_bitop3_b32", "v_bitop3_b16")
def _bitop3(d: Operands) -> Step:
    code = d.inst.number("bitop3")
    kind = d.inst.mnemonic[-3:]
    return vector_step(d, kind, [kind] * 3, lambda a, b, c: bitop3(code, a, b, c), keep_high=True)


def _carry_sum(name: str, a: Array, b: Array, carry: Array | int) -> Array:
    """The sum or difference in 64 bits; bit 32 is the carry or borrow."""
    a, b = a.astype(_U64), b.astype(_U64)
    c = carry.astype(_U64) if isinstance(carry, np.ndarray) else _U64(carry)
    if "add" in name:
        return a + b + c
    return b - a - c if "rev" in name else a - b - c


@executes("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
def _carry(d: Operands) -> Step:
    name = d.inst.mnemonic
    with_carry = "addc" in name or "subb" in name
    put, put_carry = d.dst(0, "u32"), d.mask_dst(d.op(1))
    a, b = d.src(2, "u32", 0), d.src(3, "u32", 1)
    carry_in = d.mask_src(d.op(4)) if with_carry else None

    def run(x: Ctx) -> None:
        out = _carry_sum(name, a(x), b(x), carry_in(x) if carry_in is not None else 0)
        put(x, out.astype(_U32))
        put_carry(x, (out >> _U64(32)) & _U64(1) != 0)

    return masked(d, run)


@executes("v_mad_u64_u32", "v_mad_i64_i32")
def _mad64(d: Operands) -> Step:
    signed = d.inst.mnemonic.endswith("i32")
    narrow, wide = ("i32", "i64") if signed else ("u32", "u64")
    dtype = _I64 if signed else _U64
    put, put_carry = d.dst(0, wide), d.mask_dst(d.op(1))
    a, b, c = d.src(2, narrow, 0), d.src(3, narrow, 1), _loose_addend(d, wide)

    def run(x: Ctx) -> None:
        product, addend = a(x).astype(dtype) * b(x).astype(dtype), c(x)
        out = product + addend
        # Unsigned: the carry out of bit 63; signed: the sign of the 65-bit sum.
        carry = out < product if not signed else (product < 0) ^ (addend < 0) ^ _carry_out(product, addend)
        put(x, x.full(out))
        put_carry(x, carry)

    return run


def _loose_addend(d: Operands, kind: str) -> Getter:
    """The 64-bit addend. Its upper half may be unwritten: compilers leave it so where only the lower result is used."""
    op = d.op(4)
    if not isinstance(op, Reg) or op.file == "s":
        return d.src(4, kind, 2)
    low, high, dtype = d.bits32(Reg(op.file, op.first)), d.vector_slot(4) + 1, DTYPES[kind]
    d.reads.add(high)

    def read(x: Ctx) -> Array:
        if high in d.m.pending:
            d.m.read_vector(x, high)
        return join(low(x), d.m.vector[high][x.sel]).view(dtype)

    return read


def _carry_out(a: Array, b: Array) -> Array:
    total = a.view(_U64) + b.view(_U64)
    return total < a.view(_U64)


@executes("v_cndmask_b32")
def _cndmask(d: Operands) -> Step:
    put, a, b = d.dst(0, "b32"), d.src(1, "b32", 0), d.src(2, "b32", 1)
    chosen = d.mask_src(d.op(3) if len(d.inst.operands) > 3 else Reg("s", VCC, 2))
    return masked(d, lambda x: put(x, np.where(chosen(x), b(x), a(x))))


@executes("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def _mbcnt(d: Operands) -> Step:
    put, mask, base = d.dst(0, "u32"), d.src(1, "u32", 0), d.src(2, "u32", 1)
    lane = np.arange(LANES)
    first = 32 if "_hi_" in d.inst.mnemonic else 0
    below = ((1 << np.clip(lane - first, 0, 32).astype(np.int64)) - 1).astype(_U32)
    return lambda x: put(x, bit_count(mask(x) & below) + base(x))


@executes("v_swap_b32")
def _swap(d: Operands) -> Step:
    put_a, put_b, a, b = d.dst(0, "b32"), d.dst(1, "b32"), d.src(0, "b32"), d.src(1, "b32")

    def run(x: Ctx) -> None:
        old = np.array(a(x))
        put_a(x, np.array(b(x)))
        put_b(x, old)

    return run


@executes("v_prng_b32")
def _prng(d: Operands) -> Step:
    """A linear feedback shift register's next state (CDNA4): shift left, xor 0xc5 when the top bit was one."""
    return vector_step(d, "u32", ["u32"], lambda a: (a << _U32(1)) ^ np.where(a >> _U32(31), _U32(0xC5), _U32(0)))


@executes("v_ashr_pk_i8_i32", "v_ashr_pk_u8_i32")
def _ashr_pk(d: Operands) -> Step:
    """Two arithmetic shifts, clamped to a byte each and packed into the low half."""
    low, high = (-128, 127) if "_i8_" in d.inst.mnemonic else (0, 255)

    def compute(a: Array, b: Array, c: Array) -> Array:
        shift = (c & _U32(31)).astype(np.int32)
        p, q = (np.clip(v >> shift, low, high).astype(np.int32).view(_U32) & _U32(0xFF) for v in (a, b))
        return (p | q << _U32(8)).astype(np.uint16)

    return vector_step(d, "u16", ["i32", "i32", "u32"], compute, keep_high=True)
