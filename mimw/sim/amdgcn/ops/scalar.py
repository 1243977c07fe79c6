# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""The scalar unit: arithmetic, bits, comparisons into SCC, EXEC saved and combined, MODE and other hardware registers.

Values are one a wave, (n,). Formulas from "AMD Instinct MI300 Instruction Set Architecture" (SOP1, SOP2, SOPC, SOPK).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.decode import EXEC, Const, Word
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.ops.integer import bit_count, find_high, find_low, find_sign, reverse_bits
from mimw.sim.amdgcn.ops.vector import Function
from mimw.sim.amdgcn.registry import DECODERS, Step, executes, family
from mimw.sim.amdgcn.state import Array, Ctx, unpack_mask
from mimw.sim.amdgcn.types import DTYPES

_U32, _U64, _I64 = np.uint32, np.uint64, np.int64
# How an instruction sets SCC from (result, sources): None leaves it.
Flag = Callable[..., Array] | None


def _nonzero(out: Array, *_: Array) -> Array:
    return out != 0


def _row(name: str, result: str, sources: str, fn: Function, scc: Flag = None) -> None:
    def decode(d: Operands) -> Step:
        put = d.scalar_dst(0, result)
        gets = [d.scalar(i + 1, kind) for i, kind in enumerate(sources.split())]
        m = d.m

        def run(x: Ctx) -> None:
            args = [g(x) for g in gets]
            out = fn(*args)
            if scc is not None:  # before the result is written: sources may be views of the same register
                m.scc[x.sel] = scc(out, *args)
            put(x, out)

        return run

    DECODERS[name] = decode


def _shift_of(b: Array, bits: int) -> Array:
    return b & b.dtype.type(bits - 1)


def _bfe(a: Array, b: Array, bits: int) -> Array:
    """Offset in b[5:0], width in b[22:16]; signed types extend the field's top bit."""
    kind = a.dtype.type
    offset = (b & _U32(bits - 1)).astype(_I64)
    width = np.minimum(((b >> _U32(16)) & _U32(0x7F)).astype(_I64), bits - offset)
    up = np.where(width == 0, 0, bits - offset - width).astype(a.dtype)
    down = np.where(width == 0, 0, bits - width).astype(a.dtype)
    return np.where(width == 0, kind(0), (a << up) >> down)


_LOGIC: dict[str, Function] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b, "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}  # fmt: skip
for _size in ("b32", "b64"):
    _bits = int(_size[1:])
    for _name, _fn in _LOGIC.items():
        _row(f"s_{_name}_{_size}", _size, f"{_size} {_size}", _fn, _nonzero)
    _row(f"s_mov_{_size}", _size, _size, lambda a: a)
    _row(f"s_not_{_size}", _size, _size, lambda a: ~a, _nonzero)
    _row(f"s_lshl_{_size}", _size, f"{_size} u32",
         lambda a, b, n=_bits: a << _shift_of(b, n).astype(a.dtype), _nonzero)  # fmt: skip
    _row(f"s_lshr_{_size}", _size, f"{_size} u32",
         lambda a, b, n=_bits: a >> _shift_of(b, n).astype(a.dtype), _nonzero)  # fmt: skip
    _row(f"s_ashr_i{_bits}", f"i{_bits}", f"i{_bits} u32",
         lambda a, b, n=_bits: a >> _shift_of(b, n).astype(a.dtype), _nonzero)  # fmt: skip
    _row(f"s_bfe_u{_bits}", f"u{_bits}", f"u{_bits} u32", lambda a, b, n=_bits: _bfe(a, b, n), _nonzero)
    _row(f"s_bfe_i{_bits}", f"i{_bits}", f"i{_bits} u32", lambda a, b, n=_bits: _bfe(a, b, n), _nonzero)
    _row(f"s_bcnt1_i32_{_size}", "u32", _size, bit_count, _nonzero)
    _row(f"s_bcnt0_i32_{_size}", "u32", _size, lambda a: bit_count(~a), _nonzero)
_row("s_brev_b32", "b32", "b32", reverse_bits)
_row("s_brev_b64", "b64", "b64",
     lambda a: reverse_bits(a.astype(_U32)).astype(_U64) << _U64(32) | reverse_bits((a >> _U64(32)).astype(_U32)).astype(_U64))  # fmt: skip
_row("s_bfm_b32", "b32", "u32 u32", lambda a, b: ((_U32(1) << (a & _U32(31))) - _U32(1)) << (b & _U32(31)))
_row("s_bfm_b64", "b64", "u32 u32",
     lambda a, b: ((_U64(1) << (a & _U32(63)).astype(_U64)) - _U64(1)) << (b & _U32(63)).astype(_U64))  # fmt: skip


def _first64(a: Array, fn: Function, low_first: bool) -> Array:
    low, high = fn(a.astype(_U32)), fn((a >> _U64(32)).astype(_U32))
    first, second = (low, high) if low_first else (high, low)
    none = _U32(0xFFFFFFFF)
    return np.where(first != none, first, np.where(second != none, second + _U32(32), none))


_row("s_ff1_i32_b32", "u32", "b32", find_low)
_row("s_ff0_i32_b32", "u32", "b32", lambda a: find_low(~a))
_row("s_ff1_i32_b64", "u32", "b64", lambda a: _first64(a, find_low, True))
_row("s_ff0_i32_b64", "u32", "b64", lambda a: _first64(~a, find_low, True))
_row("s_flbit_i32_b32", "u32", "b32", find_high)
_row("s_flbit_i32_b64", "u32", "b64", lambda a: _first64(a, find_high, False))
_row("s_flbit_i32", "u32", "i32", find_sign)
_row("s_sext_i32_i8", "i32", "b32", lambda a: a.astype(np.uint8).view(np.int8).astype(np.int32))
_row("s_sext_i32_i16", "i32", "b32", lambda a: a.astype(np.uint16).view(np.int16).astype(np.int32))
_row("s_abs_i32", "i32", "i32", np.abs, _nonzero)
_row("s_absdiff_i32", "i32", "i32 i32", lambda a, b: np.abs(a - b), _nonzero)

# --- sums


def _overflow(out: Array, a: Array, b: Array) -> Array:
    return ((a ^ out) & (b ^ out)) < 0


_row("s_add_u32", "u32", "u32 u32", lambda a, b: a + b, lambda out, a, b: out < a)
_row("s_sub_u32", "u32", "u32 u32", lambda a, b: a - b, lambda out, a, b: b > a)
_row("s_add_i32", "i32", "i32 i32", lambda a, b: a + b, _overflow)
_row("s_sub_i32", "i32", "i32 i32", lambda a, b: a - b, lambda out, a, b: ((a ^ b) & (a ^ out)) < 0)
_row("s_mul_i32", "i32", "i32 i32", lambda a, b: a * b)
_row("s_mul_hi_u32", "u32", "u32 u32", lambda a, b: ((a.astype(_U64) * b.astype(_U64)) >> _U64(32)).astype(_U32))
_row("s_mul_hi_i32", "i32", "i32 i32", lambda a, b: ((a.astype(_I64) * b.astype(_I64)) >> 32).astype(np.int32))
for _kind in ("u32", "i32"):
    _row(f"s_min_{_kind}", _kind, f"{_kind} {_kind}", np.minimum, lambda out, a, b: a < b)
    _row(f"s_max_{_kind}", _kind, f"{_kind} {_kind}", np.maximum, lambda out, a, b: a > b)
for _n in (1, 2, 3, 4):
    _row(f"s_lshl{_n}_add_u32", "u32", "u32 u32", lambda a, b, n=_n: (a << _U32(n)) + b,
         lambda out, a, b, n=_n: ((a.astype(_U64) << _U64(n)) + b) >> _U64(32) != 0)  # fmt: skip
_row("s_pack_ll_b32_b16", "b32", "b32 b32", lambda a, b: a & _U32(0xFFFF) | b << _U32(16))
_row("s_pack_lh_b32_b16", "b32", "b32 b32", lambda a, b: a & _U32(0xFFFF) | b & _U32(0xFFFF0000))
_row("s_pack_hh_b32_b16", "b32", "b32 b32", lambda a, b: a >> _U32(16) | b & _U32(0xFFFF0000))


@executes("s_addc_u32", "s_subb_u32")
def _with_carry(d: Operands) -> Step:
    put, a, b, m = d.scalar_dst(0, "u32"), d.scalar(1, "u32"), d.scalar(2, "u32"), d.m
    add = d.inst.mnemonic == "s_addc_u32"

    def run(x: Ctx) -> None:
        p, q, c = a(x).astype(_I64), b(x).astype(_I64), m.scc[x.sel].astype(_I64)
        out = p + q + c if add else p - q - c
        put(x, (out & 0xFFFFFFFF).astype(_U32))
        m.scc[x.sel] = (out > 0xFFFFFFFF) | (out < 0)

    return run


@executes("s_cselect_b32", "s_cselect_b64")
def _cselect(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    put, a, b, m = d.scalar_dst(0, kind), d.scalar(1, kind), d.scalar(2, kind), d.m
    return lambda x: put(x, np.where(m.scc[x.sel], a(x), b(x)))


@executes("s_cmov_b32", "s_cmov_b64")
def _cmov(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    put, a, old, m = d.scalar_dst(0, kind), d.scalar(1, kind), d.scalar(0, kind), d.m

    def run(x: Ctx) -> None:
        chosen = m.scc[x.sel]
        if chosen.all():
            put(x, a(x))
        elif chosen.any():
            put(x, np.where(chosen, a(x), old(x)))

    return run


@executes("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64")
def _bitset(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    dtype = DTYPES[kind]
    put, at, old = d.scalar_dst(0, kind), d.scalar(1, "u32"), d.scalar(0, kind)
    one = "bitset1" in d.inst.mnemonic

    def run(x: Ctx) -> None:
        bit = dtype(1) << (at(x) & _U32(int(kind[1:]) - 1)).astype(dtype)
        put(x, old(x) | bit if one else old(x) & ~bit)

    return run


@executes("s_bitreplicate_b64_b32")
def _bitreplicate(d: Operands) -> Step:
    put, a = d.scalar_dst(0, "b64"), d.scalar(1, "b32")

    def run(x: Ctx) -> None:
        bits = (a(x)[:, None] >> np.arange(32, dtype=_U32)) & _U32(1)
        put(x, (np.repeat(bits, 2, axis=1).astype(_U64) << np.arange(64, dtype=_U64)).sum(axis=1, dtype=_U64))

    return run


@executes("s_wqm_b32", "s_wqm_b64", "s_quadmask_b32", "s_quadmask_b64")
def _quads(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    bits, dtype = int(kind[1:]), DTYPES[kind]
    put, a, whole, m = d.scalar_dst(0, kind), d.scalar(1, kind), "wqm" in d.inst.mnemonic, d.m

    def run(x: Ctx) -> None:
        lanes = (a(x)[:, None] >> np.arange(bits, dtype=dtype)) & dtype(1)
        quads = lanes.reshape(-1, bits // 4, 4).any(axis=2).astype(dtype)
        spread = np.repeat(quads, 4, axis=1) if whole else quads
        out = (spread << np.arange(spread.shape[1], dtype=dtype)).sum(axis=1, dtype=dtype)
        put(x, out)
        m.scc[x.sel] = out != 0

    return run


# --- comparisons

_COMPARE: dict[str, Function] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
}  # fmt: skip


@family(r"s_cmp(k?)_(eq|lg|gt|ge|lt|le)_([iu])(32|64)")
def _cmp(d: Operands, match: re.Match[str]) -> Step:
    kind = match[3] + match[4]
    a, b, fn, m = d.scalar(0, kind), d.scalar(1, kind), _COMPARE[match[2]], d.m

    def run(x: Ctx) -> None:
        m.scc[x.sel] = fn(a(x), b(x))

    if not match[1]:
        return run
    constant = np.array([_k16(d, 1, match[3] == "i")], _I64).astype(DTYPES[kind])

    def run_k(x: Ctx) -> None:
        m.scc[x.sel] = fn(a(x), constant)

    return run_k


@family(r"s_bitcmp([01])_b(32|64)")
def _bitcmp(d: Operands, match: re.Match[str]) -> Step:
    kind = f"b{match[2]}"
    a, at, m, wanted = d.scalar(0, kind), d.scalar(1, "u32"), d.m, int(match[1])

    def run(x: Ctx) -> None:
        v = a(x)
        m.scc[x.sel] = (v >> (at(x) & _U32(int(match[2]) - 1)).astype(v.dtype)) & v.dtype.type(1) == wanted

    return run


def _k16(d: Operands, index: int, signed: bool = True) -> int:
    """A 16-bit constant of the SOPK format."""
    op = d.op(index)
    if not isinstance(op, Const) or not isinstance(op.value, int):
        raise d.fault(f"{op!r} is no 16-bit constant")
    value = op.value & 0xFFFF
    return value - 0x10000 if signed and value & 0x8000 else value


@executes("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32")
def _sopk(d: Operands) -> Step:
    name, m = d.inst.mnemonic, d.m
    put, k = d.scalar_dst(0, "i32"), np.array([_k16(d, 1)], np.int32)
    if name == "s_movk_i32":
        return lambda x: put(x, k)
    old = d.scalar(0, "i32")

    def run(x: Ctx) -> None:
        a = old(x)
        if name == "s_cmovk_i32":
            put(x, np.where(m.scc[x.sel], k, a))
        elif name == "s_mulk_i32":
            put(x, a * k)
        else:
            out = a + k
            put(x, out)
            m.scc[x.sel] = ((a ^ out) & (k ^ out)) < 0

    return run


# --- EXEC


@family(r"s_(and|or|xor|andn2|orn2|nand|nor|xnor|andn1|orn1)_saveexec_b64")
def _saveexec(d: Operands, match: re.Match[str]) -> Step:
    """EXEC to the result, then EXEC = source op EXEC; SCC tells whether a lane is left."""
    put, a, m = d.scalar_dst(0, "b64"), d.scalar(1, "b64"), d.m
    fn = {"andn1": lambda s, e: ~s & e, "orn1": lambda s, e: ~s | e}.get(match[1]) or _LOGIC[match[1]]
    d.writes.update((512 + EXEC, 512 + EXEC + 1))

    def run(x: Ctx) -> None:
        old = m.exec_words(x).view(_U64)[:, 0]
        new = fn(a(x), old)
        put(x, old)
        _set_exec(d, x, new)

    return run


@executes("s_andn1_wrexec_b64", "s_andn2_wrexec_b64")
def _wrexec(d: Operands) -> Step:
    """EXEC and the result = ~source & EXEC (andn1) or source & ~EXEC (andn2)."""
    put, a, m = d.scalar_dst(0, "b64"), d.scalar(1, "b64"), d.m
    first = "andn1" in d.inst.mnemonic
    d.writes.update((512 + EXEC, 512 + EXEC + 1))

    def run(x: Ctx) -> None:
        old = m.exec_words(x).view(_U64)[:, 0]
        new = ~a(x) & old if first else a(x) & ~old
        _set_exec(d, x, new)
        put(x, new)

    return run


def _set_exec(d: Operands, x: Ctx, value: Array) -> None:
    words = np.ascontiguousarray(np.broadcast_to(value, x.n)).view(_U32).reshape(x.n, 2)
    d.m.write_exec(x, unpack_mask(words))
    d.m.scc[x.sel] = (words != 0).any(axis=1)


# --- hardware registers

_HWREG = re.compile(r"hwreg\(\s*(\w+)\s*(?:,\s*(\d+)\s*,\s*(\d+)\s*)?\)")
_HWREG_NUMBERS = {"1": "HW_REG_MODE", "4": "HW_REG_HW_ID", "20": "HW_REG_XCC_ID", "7": "HW_REG_IB_STS"}


def _hwreg(d: Operands, index: int) -> tuple[str, int, int]:
    """(name, offset, width in bits) of a hwreg operand."""
    op = d.op(index)
    if isinstance(op, Const) and isinstance(op.value, int):
        code = op.value & 0xFFFF
        return _HWREG_NUMBERS.get(str(code & 63), str(code & 63)), code >> 6 & 31, (code >> 11) + 1
    found = _HWREG.fullmatch(op.text) if isinstance(op, Word) else None
    if found is None:
        raise d.fault(f"{op!r} is no hwreg")
    return _HWREG_NUMBERS.get(found[1], found[1]), int(found[2] or 0), int(found[3] or 32)


@executes("s_getreg_b32")
def _getreg(d: Operands) -> Step:
    name, offset, width = _hwreg(d, 1)
    put, m, mask = d.scalar_dst(0, "u32"), d.m, _U32((1 << width) - 1)
    if name == "HW_REG_MODE":
        return lambda x: put(x, (m.float_mode[x.sel] >> _U32(offset)) & mask)
    if name in ("HW_REG_XCC_ID", "HW_REG_HW_ID"):
        return lambda x: put(x, np.zeros(x.n, _U32))
    raise d.fault(f"s_getreg of {name}: not yet in the AMDGCN simulator", "unsupported")


@executes("s_setreg_b32", "s_setreg_imm32_b32")
def _setreg(d: Operands) -> Step:
    name, offset, width = _hwreg(d, 0)
    if name != "HW_REG_MODE":
        raise d.fault(f"s_setreg of {name}: not yet in the AMDGCN simulator", "unsupported")
    value, m = d.scalar(1, "u32"), d.m
    field = _U32(((1 << width) - 1) << offset)

    def run(x: Ctx) -> None:
        mode = (m.float_mode[x.sel] & ~field) | (value(x) << _U32(offset)) & field
        if (mode & _U32(15)).any():
            raise d.fault("a rounding mode other than to nearest even: not yet in the AMDGCN simulator", "unsupported")
        m.float_mode[x.sel] = mode
        d.sim.flushes = bool(((m.float_mode & _U32(0xF0)) != _U32(0xF0)).any())
        d.sim.fp16_overflow = bool((mode & _U32(1 << 23)).any())

    return run
