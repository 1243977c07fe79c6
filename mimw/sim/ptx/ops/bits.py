# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Logic, shifts, bit fields, bit counts, byte permutation: integer instructions that look at single bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Imm, Inst
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.integer import Binary, binary, raw_of, unary
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, bits_of, dtype_of


def popcount(a: Array) -> Array:
    """Number of set bits of unsigned words, as uint32."""
    raw = np.unpackbits(np.ascontiguousarray(a)[..., None].view(np.uint8), axis=-1)
    return raw.sum(axis=-1, dtype=np.uint32)


_LOGIC: dict[str, Binary] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@executes("and", "or", "xor")
def _logic(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return binary(s, inst, mods[-1], _LOGIC[inst.opcode.split(".")[0]])


@executes("not")
def _not(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return unary(s, inst, mods[-1], np.invert)


@executes("cnot")
def _cnot(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return unary(s, inst, mods[-1], lambda a: (a == 0).astype(a.dtype))


@executes("shl", "shr")
def _shift(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, left = mods[-1], inst.opcode.startswith("shl")
    size, dtype = bits_of(kind), dtype_of(kind)
    a, b, put = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], "u32"), s.m.wr(inst.operands[0], kind)

    def run(x: Ctx) -> None:
        v, n = a(x), b(x)
        by = np.minimum(n, size - 1).astype(dtype)
        if left:
            out = np.where(n >= size, dtype(0), v << by)
        else:
            out = v >> by
            if kind[0] != "s":
                out = np.where(n >= size, dtype(0), out)
        put(x, out)

    return run


@executes("shf")
def _funnel(s: Sim, inst: Inst, mods: list[str]) -> Step:
    left, wrap = mods[0] == "l", mods[1] == "wrap"
    a, b, c = (s.m.rd(op, "b32") for op in inst.operands[1:4])
    put = s.m.wr(inst.operands[0], "b32")

    def run(x: Ctx) -> None:
        word = (b(x).astype(np.uint64) << np.uint64(32)) | a(x)
        n = (c(x) & np.uint32(31) if wrap else np.minimum(c(x), np.uint32(32))).astype(np.uint64)
        out = (word << n) >> np.uint64(32) if left else word >> n
        put(x, out.astype(np.uint32))

    return run


@executes("bfe")
def _bit_field_extract(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    size, signed = bits_of(kind), kind[0] == "s"
    a = s.m.rd(inst.operands[1], raw_of(kind))
    pos, length = s.m.rd(inst.operands[2], "u32"), s.m.rd(inst.operands[3], "u32")
    put = s.m.wr(inst.operands[0], raw_of(kind))
    unsigned = UNSIGNED[size]

    def run(x: Ctx) -> None:
        v = a(x).astype(np.uint64)
        p = (pos(x) & np.uint32(255)).astype(np.int64)
        n = (length(x) & np.uint32(255)).astype(np.int64)
        field = np.where(p < size, v >> np.minimum(p, 63).astype(np.uint64), np.uint64(0))
        keep = np.where(n >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
        out = field & keep
        if signed:
            at = np.minimum(p + n - 1, size - 1)
            sign = ((v >> np.maximum(at, 0).astype(np.uint64)) & np.uint64(1)) != 0
            valid = np.maximum(np.minimum(n, size - p), 0)
            above = np.where(valid >= 64, np.uint64(0), ~np.uint64(0) << np.minimum(valid, 63).astype(np.uint64))
            out = np.where(sign & (n > 0), out | above, out)
        put(x, out.astype(unsigned))

    return run


@executes("bfi")
def _bit_field_insert(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    size = bits_of(kind)
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    pos, length = s.m.rd(inst.operands[3], "u32"), s.m.rd(inst.operands[4], "u32")
    put = s.m.wr(inst.operands[0], kind)

    def run(x: Ctx) -> None:
        p, n = (pos(x) & np.uint32(255)).astype(np.int64), (length(x) & np.uint32(255)).astype(np.int64)
        ones = np.where(n >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
        by = np.minimum(p, 63).astype(np.uint64)
        field = np.where(p >= size, np.uint64(0), ones << by)
        out = (b(x).astype(np.uint64) & ~field) | ((a(x).astype(np.uint64) << by) & field)
        put(x, out.astype(UNSIGNED[size]))

    return run


@executes("bmsk")
def _mask(s: Sim, inst: Inst, mods: list[str]) -> Step:
    wrap = mods[0] == "wrap"

    def fn(a: Array, b: Array) -> Array:
        p, n = a.astype(np.int64), b.astype(np.int64)
        p, n = (p & 31, n & 31) if wrap else (np.minimum(p, 32), np.minimum(n, 32))
        return (((np.int64(1) << n) - 1) << p).astype(np.uint32)

    return binary(s, inst, "b32", fn)


@executes("popc", "clz", "brev", "bfind")
def _count_bits(s: Sim, inst: Inst, mods: list[str]) -> Step:
    root, kind = inst.opcode.split(".")[0], mods[-1]
    size = bits_of(kind)
    unsigned = UNSIGNED[size]

    def top(a: Array) -> Array:
        """Index of the highest set bit, -1 when there is none."""
        low, high = a.astype(np.uint64) & np.uint64(0xFFFFFFFF), a.astype(np.uint64) >> np.uint64(32)
        exp_low, exp_high = np.frexp(low.astype(np.float64))[1], np.frexp(high.astype(np.float64))[1]
        return np.where(high != 0, exp_high + 32, exp_low) - 1

    def brev(a: Array) -> Array:
        raw = np.unpackbits(np.ascontiguousarray(a)[..., None].view(np.uint8), axis=-1, bitorder="little")
        return np.packbits(raw[..., ::-1], axis=-1, bitorder="little").view(unsigned)[..., 0]

    def bfind(a: Array) -> Array:
        if kind[0] == "s":
            a = np.where(a < 0, ~a, a).view(unsigned)
        found = top(a)
        if "shiftamt" in mods:
            found = np.where(found < 0, -1, size - 1 - found)
        return found.astype(np.int32).view(np.uint32)

    if root == "brev":
        return unary(s, inst, kind, brev)
    fns: dict[str, Callable[[Array], Array]] = {
        "popc": popcount, "clz": lambda a: (size - 1 - top(a)).astype(np.uint32), "bfind": bfind,
    }  # fmt: skip
    return unary(s, inst, kind, fns[root], "u32")


@executes("lop3")
def _lop3(s: Sim, inst: Inst, mods: list[str]) -> Step:
    at = inst.operands
    if mods[0] in ("or", "and"):
        raise not_yet(f"lop3.{mods[0]}")
    a, b, c = (s.m.rd(op, "b32") for op in at[1:4])
    table, put = at[4], s.m.wr(at[0], "b32")
    if not isinstance(table, Imm):
        raise SimulationError("lop3 needs an immediate table")
    rows = [i for i in range(8) if table.value >> i & 1]

    def run(x: Ctx) -> None:
        va, vb, vc = a(x), b(x), c(x)
        out = np.zeros(np.broadcast_shapes(va.shape, vb.shape, vc.shape), np.uint32)
        for i in rows:
            out |= (va if i & 4 else ~va) & (vb if i & 2 else ~vb) & (vc if i & 1 else ~vc)
        put(x, out)

    return run


_PRMT_MODES = {
    "f4e": lambda k: [k, k + 1, k + 2, k + 3], "b4e": lambda k: [k, (k - 1) & 7, (k - 2) & 7, (k - 3) & 7],
    "rc8": lambda k: [k] * 4, "ecl": lambda k: [max(i, k) for i in range(4)], "ecr": lambda k: [min(i, k) for i in range(4)],
    "rc16": lambda k: [0, 1, 0, 1] if k % 2 == 0 else [2, 3, 2, 3],
}  # fmt: skip


@executes("prmt")
def _prmt(s: Sim, inst: Inst, mods: list[str]) -> Step:
    a, b, sel = (s.m.rd(op, "b32") for op in inst.operands[1:4])
    put = s.m.wr(inst.operands[0], "b32")
    mode = mods[1] if len(mods) > 1 else mods[0] if mods[0] != "b32" else ""
    table = None
    if mode:
        table = np.array([sum(v << 4 * i for i, v in enumerate(_PRMT_MODES[mode](k))) for k in range(4)], np.uint32)
        if mode in ("f4e", "b4e"):
            table &= np.uint32(0x7777)

    def run(x: Ctx) -> None:
        word = a(x).astype(np.uint64) | (b(x).astype(np.uint64) << np.uint64(32))
        choice = sel(x) if table is None else table[sel(x) & np.uint32(3)]
        out = np.uint32(0)
        for i in range(4):
            nibble = (choice >> np.uint32(4 * i)) & np.uint32(15)
            byte = (word >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint32) & np.uint32(
                255
            )
            sign = np.where(byte & np.uint32(0x80), np.uint32(255), np.uint32(0))
            out = out | (np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * i))
        put(x, out)

    return run
