# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Integer arithmetic, logic, shifts, bit fields, and the moves that only carry bits (mov, selp, prmt, lop3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.registry import Plain, Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, bits_of, dtype_of

Binary = Callable[[Array, Array], Array]


def is_float(kind: str) -> bool:
    """True for types that the float family executes."""
    return kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")


def raw_of(kind: str) -> str:
    """The plain bit type as wide as `kind`."""
    return f"b{bits_of(kind)}" if kind != "pred" else "pred"


def binary(s: Sim, inst: Inst, kind: str, fn: Binary, out: str = "") -> Plain:
    """d = fn(a, b), all of `kind` (result `out` if given)."""
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    put = s.m.wr(inst.operands[0], out or kind)
    return lambda x: put(x, fn(a(x), b(x)))


def unary(s: Sim, inst: Inst, kind: str, fn: Callable[[Array], Array], out: str = "") -> Plain:
    """d = fn(a)."""
    a, put = s.m.rd(inst.operands[1], kind), s.m.wr(inst.operands[0], out or kind)
    return lambda x: put(x, fn(a(x)))


def halves(fn: Binary, dtype: type) -> Binary:
    """Lift a 16-bit function to packed pairs held as 32-bit words."""

    def packed(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        pair = fn(np.ascontiguousarray(a).view(dtype), np.ascontiguousarray(b).view(dtype))
        return np.ascontiguousarray(pair).view(np.uint32)

    return packed


def _packed_dtype(kind: str) -> type:
    return np.int16 if kind == "s16x2" else np.uint16


# -- add, sub, mul and their relatives (also reached from the float family's dispatch) ----------------------------


def decode_add_sub(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """Integer add and sub, with .sat (s32), .cc carry-out, and the addc / subc carry-in forms."""
    root, kind = inst.opcode.split(".")[0], mods[-1]
    if kind in ("u16x2", "s16x2"):
        return binary(s, inst, kind, halves(np.add if root == "add" else np.subtract, _packed_dtype(kind)))
    if "cc" in mods or root in ("addc", "subc"):
        return _decode_carry(s, inst, root, kind, "cc" in mods)
    if "sat" in mods:
        sign = 1 if root == "add" else -1
        return binary(
            s, inst, "s32",
            lambda a, b: np.clip(a.astype(np.int64) + sign * b.astype(np.int64), -(2**31), 2**31 - 1).astype(np.int32),
        )  # fmt: skip
    return binary(s, inst, kind, np.add if root == "add" else np.subtract)


def _decode_carry(s: Sim, inst: Inst, root: str, kind: str, carry_out: bool) -> Plain:
    raw = raw_of(kind)
    a, b, put = s.m.rd(inst.operands[1], raw), s.m.rd(inst.operands[2], raw), s.m.wr(inst.operands[0], raw)
    subtract, carry_in = root.startswith("sub"), root in ("addc", "subc")

    def run(x: Ctx) -> None:
        # The carry of a subtraction is kept as the carry of a + ~b + 1: set means no borrow.
        va, vb = x.full(a(x)), x.full(b(x))
        if subtract:
            vb = ~vb
        cin = s.carry[x.sel] if carry_in else np.full((x.n, 32), subtract)
        part = va + vb
        total = part + cin.astype(va.dtype)
        if carry_out:
            out = (part < va) | (total < part)
            s.carry[x.sel] = out if x.mask is None else np.where(x.mask, out, s.carry[x.sel])
        put(x, total)

    return run


def mul_high(a: Array, b: Array, kind: str) -> Array:
    """The upper half of the product of two integers of `kind`."""
    size, dtype = bits_of(kind), dtype_of(kind)
    if size < 64:
        wide = np.int64 if kind[0] == "s" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(size)).astype(dtype)
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    al, ah, bl, bh = ua & low, ua >> shift, ub & low, ub >> shift
    mid = ah * bl + ((al * bl) >> shift)
    mid2 = al * bh + (mid & low)
    high = ah * bh + (mid >> shift) + (mid2 >> shift)
    if kind[0] == "s":
        zero = np.uint64(0)
        high = high - np.where(a < 0, ub, zero) - np.where(b < 0, ua, zero)
    return high.view(dtype)


def _product(kind: str, mode: str) -> tuple[Binary, str]:
    """The product function and its result type for .lo, .hi, .wide."""
    if mode == "hi":
        return (lambda a, b: mul_high(a, b, kind)), kind
    if mode == "wide":
        out = kind[0] + str(2 * bits_of(kind))
        wide = dtype_of(out)
        return (lambda a, b: a.astype(wide) * b.astype(wide)), out
    return np.multiply, kind


def decode_mul(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """Integer mul.{lo,hi,wide}."""
    fn, out = _product(mods[-1], mods[0] if mods[0] in ("lo", "hi", "wide") else "lo")
    return binary(s, inst, mods[-1], fn, out)


@executes("mad", "madc")
def _mad(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    if is_float(kind):
        raise SimulationError("mad on floats: use fma")
    fn, out = _product(kind, mods[0])
    a, b, c = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind), s.m.rd(inst.operands[3], out)
    put = s.m.wr(inst.operands[0], out)
    if "sat" in mods:
        raise not_yet("mad.sat")
    if "cc" in mods or inst.opcode.startswith("madc"):
        carry_in, carry_out, unsigned = inst.opcode.startswith("madc"), "cc" in mods, UNSIGNED[bits_of(out)]

        def run(x: Ctx) -> None:
            va = np.ascontiguousarray(x.full(fn(a(x), b(x)))).view(unsigned)
            vc = np.ascontiguousarray(x.full(c(x))).view(unsigned)
            part = va + vc
            total = part + s.carry[x.sel].astype(unsigned) if carry_in else part
            if carry_out:
                over = (part < va) | (total < part)
                s.carry[x.sel] = over if x.mask is None else np.where(x.mask, over, s.carry[x.sel])
            put(x, total.view(dtype_of(out)))

        return run
    return lambda x: put(x, fn(a(x), b(x)) + c(x))


@executes("mul24", "mad24")
def _mul24(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, high = mods[-1], mods[0] == "hi"

    def fn(a: Array, b: Array) -> Array:
        wide = np.int64 if kind == "s32" else np.uint64
        eight = a.dtype.type(8)
        product = ((a << eight) >> eight).astype(wide) * ((b << eight) >> eight).astype(wide)
        return (product >> wide(16 if high else 0)).astype(a.dtype)

    if inst.opcode.startswith("mul24"):
        return binary(s, inst, kind, fn)
    a, b, c = (s.m.rd(op, kind) for op in inst.operands[1:4])
    put = s.m.wr(inst.operands[0], kind)
    return lambda x: put(x, fn(a(x), b(x)) + c(x))


def divide(a: Array, b: Array) -> tuple[Array, Array]:
    """Truncating quotient and remainder, computed on magnitudes: INT_MIN / -1 wraps.

    A zero divisor gives all ones for both (the ISA leaves it open; an H200 does that for all widths and signs).
    """
    a, b = np.broadcast_arrays(a, b)
    signed = a.dtype.kind == "i"
    unsigned = UNSIGNED[a.dtype.itemsize * 8]
    ua, ub = np.ascontiguousarray(a).view(unsigned), np.ascontiguousarray(b).view(unsigned)
    zero = unsigned(0)
    if signed:
        ua, ub = np.where(a < 0, zero - ua, ua), np.where(b < 0, zero - ub, ub)
    q = ua // np.maximum(ub, unsigned(1))
    r = ua - q * ub
    if signed:
        q, r = np.where((a < 0) != (b < 0), zero - q, q), np.where(a < 0, zero - r, r)
    none = b == 0
    return np.where(none, ~zero, q).view(a.dtype), np.where(none, ~zero, r).view(a.dtype)


def decode_div(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """Integer div."""
    return binary(s, inst, mods[-1], lambda a, b: divide(a, b)[0])


@executes("rem")
def _rem(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return binary(s, inst, mods[-1], lambda a, b: divide(a, b)[1])


def decode_min_max(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """Integer min and max, packed and .relu forms."""
    root, kind = inst.opcode.split(".")[0], mods[-1]
    base: Binary = np.minimum if root == "min" else np.maximum
    fn: Binary = (lambda a, b: np.maximum(base(a, b), a.dtype.type(0))) if "relu" in mods else base
    if kind in ("u16x2", "s16x2"):
        fn = halves(fn, _packed_dtype(kind))
    return binary(s, inst, kind, fn)


def decode_neg_abs(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """Integer neg and abs (the most negative value stays)."""
    fn: Callable[[Array], Array] = np.negative if inst.opcode.startswith("neg") else np.abs
    return unary(s, inst, mods[-1], fn)


@executes("sad")
def _sad(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    a, b, c = (s.m.rd(op, kind) for op in inst.operands[1:4])
    put = s.m.wr(inst.operands[0], kind)
    return lambda x: put(x, np.where(a(x) > b(x), a(x) - b(x), b(x) - a(x)) + c(x))


@executes("dp4a", "dp2a")
def _dot_bytes(s: Sim, inst: Inst, mods: list[str]) -> Step:
    at, bt = (mods[1], mods[2]) if mods[0] in ("lo", "hi") else (mods[0], mods[1])
    out = "s32" if "s32" in (at, bt) else "u32"
    a, b, c = s.m.rd(inst.operands[1], "b32"), s.m.rd(inst.operands[2], "b32"), s.m.rd(inst.operands[3], out)
    put = s.m.wr(inst.operands[0], out)
    a_width, count, first = (8, 4, 0) if inst.opcode.startswith("dp4a") else (16, 2, 0 if mods[0] == "lo" else 2)

    def piece(v: Array, width: int, i: int, signed: bool) -> Array:
        raw = (v >> np.uint32(width * i)).astype(UNSIGNED[width])
        return raw.view(np.int8 if width == 8 else np.int16).astype(np.int64) if signed else raw.astype(np.int64)

    def run(x: Ctx) -> None:
        va, vb, total = x.full(a(x)), x.full(b(x)), c(x).astype(np.int64)
        for i in range(count):
            total = total + piece(va, a_width, i, at == "s32") * piece(vb, 8, first + i, bt == "s32")
        put(x, total.astype(np.uint32).view(dtype_of(out)))

    return run
