# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Packed arithmetic (VOP3P): two 16-bit or two f32 results at once, mixed f16/f32 fma, and dot products.

op_sel picks the half of each source for the low result, op_sel_hi for the high one; neg_lo and neg_hi negate them.
"""

from __future__ import annotations

import numpy as np

from mimw.sim.amdgcn.decode import Const, Operand, Reg
from mimw.sim.amdgcn.formats import decode
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.floating import fma16, fma32, larger, nan_larger, nan_smaller, smaller
from mimw.sim.amdgcn.ops.vector import Function, saturating
from mimw.sim.amdgcn.registry import DECODERS, Step, executes
from mimw.sim.amdgcn.state import Array, Ctx
from mimw.sim.amdgcn.types import DTYPES, constant_bits

_U32 = np.uint32


def _bits(d: Operands, op: Operand, kind: str) -> Getter:
    """32 bits of a packed 16-bit source: a float constant fills the low half only."""
    if isinstance(op, Const):
        bits = constant_bits(op, kind) if isinstance(op.value, float) else constant_bits(op, "b32")
        value = np.array([[bits]], np.uint32)
        return lambda x: value
    return d.bits32(op)


def _half(d: Operands, k: int, kind: str, pick: str, negate: str) -> Getter:
    """Source k of a packed 16-bit instruction: the half that `pick` (op_sel or op_sel_hi) names."""
    raw = _bits(d, d.op(k + 1), kind)
    shift = _U32(16 * d.inst.bits(pick, k + 1, int(pick == "op_sel_hi"))[k])
    sign = np.uint16(0x8000 * d.inst.bits(negate, k + 1, 0)[k])
    dtype = DTYPES[kind]
    if kind != "f16":
        return lambda x: (raw(x) >> shift).astype(np.uint16).view(dtype)
    return lambda x: ((raw(x) >> shift).astype(np.uint16) ^ sign).view(dtype)


def _clamped(d: Operands, kind: str, fn: Function) -> Function:
    if not d.inst.flag("clamp"):
        return fn
    if kind == "f16":
        return lambda *a: np.where((v := fn(*a)) > 0, np.minimum(v, np.float16(1)), np.float16(0))
    return saturating(kind, fn)


def _packed16(name: str, kind: str, sources: int, fn: Function) -> None:
    def decode_step(d: Operands) -> Step:
        compute = _clamped(d, kind, fn)
        put = d.dst(0, "b32")
        low = [_half(d, k, kind, "op_sel", "neg_lo") for k in range(sources)]
        high = [_half(d, k, kind, "op_sel_hi", "neg_hi") for k in range(sources)]

        def run(x: Ctx) -> None:
            a = np.ascontiguousarray(compute(*(g(x) for g in low))).view(np.uint16).astype(_U32)
            b = np.ascontiguousarray(compute(*(g(x) for g in high))).view(np.uint16).astype(_U32)
            put(x, a | b << _U32(16))

        return run

    DECODERS[name] = decode_step


def _shift(fn: Function) -> Function:
    return lambda a, b: fn(b, a & a.dtype.type(15))


for _name, _kind, _fn in (
    ("add_f16", "f16", lambda a, b: a + b),
    ("mul_f16", "f16", lambda a, b: a * b),
    ("min_f16", "f16", smaller),
    ("max_f16", "f16", larger),
    ("add_u16", "u16", lambda a, b: a + b),
    ("sub_u16", "u16", lambda a, b: a - b),
    ("add_i16", "i16", lambda a, b: a + b),
    ("sub_i16", "i16", lambda a, b: a - b),
    ("mul_lo_u16", "u16", lambda a, b: a * b),
    ("min_u16", "u16", np.minimum),
    ("max_u16", "u16", np.maximum),
    ("min_i16", "i16", np.minimum),
    ("max_i16", "i16", np.maximum),
    ("lshlrev_b16", "u16", _shift(lambda v, n: v << n)),
    ("lshrrev_b16", "u16", _shift(lambda v, n: v >> n)),
    ("ashrrev_i16", "i16", _shift(lambda v, n: v >> n)),
):
    _packed16(f"v_pk_{_name}", _kind, 2, _fn)
for _name, _kind, _fn in (
    ("fma_f16", "f16", fma16),
    ("mad_u16", "u16", lambda a, b, c: a * b + c),
    ("mad_i16", "i16", lambda a, b, c: a * b + c),
    ("minimum3_f16", "f16", lambda a, b, c: nan_smaller(nan_smaller(a, b), c)),
    ("maximum3_f16", "f16", lambda a, b, c: nan_larger(nan_larger(a, b), c)),
):
    _packed16(f"v_pk_{_name}", _kind, 3, _fn)


@executes("v_pk_fmac_f16")
def _pk_fmac(d: Operands) -> Step:
    """Both halves of the result are the third source, too."""
    put, a, b, c = d.dst(0, "b32"), d.src(1, "b32", 0), d.src(2, "b32", 1), d.src(0, "b32", 3)

    def run(x: Ctx) -> None:
        p, q, r = (np.ascontiguousarray(x.full(g(x)))[..., None].view(np.float16) for g in (a, b, c))
        put(x, np.ascontiguousarray(fma16(p, q, r)).view(_U32)[..., 0])

    return run


def _word(d: Operands, k: int, pick: str) -> Getter:
    """Source k of a packed f32 instruction: the register of the pair that op_sel or op_sel_hi names, as bits."""
    op, high = d.op(k + 1), d.inst.bits(pick, k + 1, int(pick == "op_sel_hi"))[k]
    if isinstance(op, Reg):
        return d.bits32(Reg(op.file, op.first + high))
    return d.bits32(op, "f32")


def _packed32(name: str, sources: int, fn: Function) -> None:
    def decode_step(d: Operands) -> Step:
        put = d.words_dst(d.op(0), 2)

        def part(pick: str, negate: str) -> list[tuple[Getter, np.uint32]]:
            signs = d.inst.bits(negate, sources, 0)
            return [(_word(d, k, pick), _U32(signs[k] << 31)) for k in range(sources)]

        low, high = part("op_sel", "neg_lo"), part("op_sel_hi", "neg_hi")
        clamp = d.inst.flag("clamp")

        def run(x: Ctx) -> None:
            out: list[Array] = []
            for sides in (low, high):
                v = fn(*((np.ascontiguousarray(g(x)) ^ s).view(np.float32) for g, s in sides))
                v = np.where(v > 0, np.minimum(v, np.float32(1)), np.float32(0)) if clamp else v
                out.append(x.full(np.ascontiguousarray(v).view(_U32)))
            put(x, np.stack(out))

        return run

    DECODERS[name] = decode_step


_packed32("v_pk_add_f32", 2, lambda a, b: a + b)
_packed32("v_pk_mul_f32", 2, lambda a, b: a * b)
_packed32("v_pk_fma_f32", 3, fma32)


@executes("v_pk_mov_b32")
def _pk_mov(d: Operands) -> Step:
    """The low result comes from source 0, the high one from source 1; op_sel says which register of each pair."""
    put, pick = d.words_dst(d.op(0), 2), d.inst.bits("op_sel", 2, 0)
    gets: list[Getter] = []
    for k in (0, 1):
        op = d.op(k + 1)
        gets.append(d.bits32(Reg(op.file, op.first + pick[k])) if isinstance(op, Reg) else d.bits32(op))
    low, high = gets
    return lambda x: put(x, np.stack([x.full(low(x)), x.full(high(x))]))


def _mixed(d: Operands, k: int) -> Getter:
    """Source k of a mixed fma: f32, or with op_sel_hi the f16 half that op_sel names; as float32."""
    if not d.inst.bits("op_sel_hi", 3, 0)[k]:
        return d.src(k + 1, "f32", k)
    get = d.src(k + 1, "f16", k, half=d.inst.bits("op_sel", 3, 0)[k])
    return lambda x: get(x).astype(np.float32)


@executes("v_fma_mix_f32", "v_mad_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix(d: Operands) -> Step:
    a, b, c = (_mixed(d, k) for k in range(3))
    clamp = d.inst.flag("clamp")
    if d.inst.mnemonic.endswith("_f32"):
        put32 = d.dst(0, "f32")
        return lambda x: put32(x, fma32(a(x), b(x), c(x)))
    put, slot = d.dst(0, "b32"), d.vector_slot(0)
    shift, kept = (_U32(16), _U32(0xFFFF)) if "mixhi" in d.inst.mnemonic else (_U32(0), _U32(0xFFFF0000))

    def run(x: Ctx) -> None:
        v = fma32(a(x), b(x), c(x)).astype(np.float16)
        v = np.where(v > 0, np.minimum(v, np.float16(1)), np.float16(0)) if clamp else v
        # The other half is kept whatever it is: no check that it was written.
        put(x, d.m.vector[slot][x.sel] & kept | np.ascontiguousarray(v).view(np.uint16).astype(_U32) << shift)

    return run


# --- dot products


def _lanes_of(raw: Array, kind: str) -> Array:
    """The elements of a 32-bit word along a new last axis, as float64 or int64."""
    if kind in ("f16", "bf16"):
        parts = np.ascontiguousarray(raw)[..., None].view(np.uint16)
        return decode(kind, parts)
    if kind in ("i16", "u16", "i8", "u8"):
        dtype = {"i16": np.int16, "u16": np.uint16, "i8": np.int8, "u8": np.uint8}[kind]
        return np.ascontiguousarray(raw)[..., None].view(dtype).astype(np.int64)
    shifts = _U32(4) * np.arange(8, dtype=np.uint32)
    nibbles = ((raw[..., None] >> shifts) & _U32(15)).astype(np.int64)
    return np.where(nibbles > 7, nibbles - 16, nibbles) if kind == "i4" else nibbles


def _dot(name: str, kind: str, result: str, in_place: bool) -> None:
    def decode_step(d: Operands) -> Step:
        put, a, b = d.dst(0, result), d.src(1, "b32", 0), d.src(2, "b32", 1)
        c = d.src(0 if in_place else 3, result, 2)
        clamp = d.inst.flag("clamp") and result != "f32"
        dtype = DTYPES[result]

        def run(x: Ctx) -> None:
            products = _lanes_of(x.full(a(x)), kind) * _lanes_of(x.full(b(x)), kind)
            total = products.sum(axis=-1) + c(x).astype(products.dtype)
            if clamp:
                total = np.clip(total, np.iinfo(dtype).min, np.iinfo(dtype).max)
            put(x, total.astype(dtype))

        return run

    DECODERS[name] = decode_step


for _name, _kind, _result in (
    ("v_dot2_f32_f16", "f16", "f32"), ("v_dot2_f32_bf16", "bf16", "f32"), ("v_dot2_i32_i16", "i16", "i32"),
    ("v_dot2_u32_u16", "u16", "u32"), ("v_dot4_i32_i8", "i8", "i32"), ("v_dot4_u32_u8", "u8", "u32"),
    ("v_dot8_i32_i4", "i4", "i32"), ("v_dot8_u32_u4", "u4", "u32"),
):  # fmt: skip
    _dot(_name, _kind, _result, in_place=False)
    _, _root, _types = _name.split("_", 2)
    _dot(f"v_{_root}c_{_types}", _kind, _result, in_place=True)
