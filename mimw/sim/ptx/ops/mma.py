"""mma.sync: fragments as the ISA lays them out, sums in float64 over one instruction's K, rounded once.

Tensor cores add with truncation: results agree with hardware within K * 2^-22 * sum |a||b| (f32 accumulators).
Notation: lane l, g = l // 4, t = l % 4; E elements fit in one 32-bit register (f64: one register an element).
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import formats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import items_of
from mimw.sim.ptx.ops.sync import together
from mimw.sim.ptx.registry import Step, Sync, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, Getter

_LANES = np.arange(32)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f32": 32, "s32": 32,
}  # fmt: skip


@lru_cache(maxsize=64)
def a_positions(rows: int, k: int, bits: int) -> tuple[Array, Array]:
    """(row, k) of A's elements by (lane, register, element); `rows` is 8 or 16."""
    e = max(1, 32 // bits)
    count = rows * k // (32 * e)
    lane, reg, el = np.meshgrid(_LANES, np.arange(count), np.arange(e), indexing="ij")
    high, step = (reg % 2, reg // 2) if rows == 16 else (0 * reg, reg)
    return lane // 4 + 8 * high, e * (lane % 4) + el + 4 * e * step


@lru_cache(maxsize=64)
def b_positions(k: int, bits: int) -> tuple[Array, Array]:
    """(k, n) of B's elements by (lane, register, element), n = 8 columns."""
    e = max(1, 32 // bits)
    lane, reg, el = np.meshgrid(_LANES, np.arange(8 * k // (32 * e)), np.arange(e), indexing="ij")
    return e * (lane % 4) + el + 4 * e * reg, lane // 4


@lru_cache(maxsize=64)
def c_positions(rows: int, bits: int) -> tuple[Array, Array]:
    """(row, column) of C and D by (lane, register, element): 32 and 64-bit alone, 16-bit in pairs."""
    e = 2 if bits == 16 else 1
    lane, reg, el = np.meshgrid(_LANES, np.arange(rows * 8 // (32 * e)), np.arange(e), indexing="ij")
    index = reg * e + el
    return lane // 4 + 8 * (index // 2), 2 * (lane % 4) + index % 2


def split(kind: str, words: Array) -> Array:
    """Registers (..., r) to decoded elements (..., r, e): float64, or int64 for integers."""
    bits = BITS[kind]
    raw = np.ascontiguousarray(words)[..., None]
    if bits < 32:
        raw = raw.view(UNSIGNED[bits])
    if kind in ("s8", "u8"):
        return raw.view(np.int8 if kind == "s8" else np.uint8).astype(np.int64)
    if kind == "s32":
        return raw.view(np.int32).astype(np.int64)
    return formats.decode(kind, raw)


def join(kind: str, values: Array, satfinite: bool) -> Array:
    """Values (..., r, e) back to register words (..., r)."""
    if kind == "s32":
        limited = np.clip(values, -(2**31), 2**31 - 1) if satfinite else values
        return limited.astype(np.uint64).astype(np.uint32)[..., 0]
    raw = formats.encode(kind, values)
    if BITS[kind] == 16:
        return np.ascontiguousarray(raw).view(np.uint32)[..., 0]
    return raw[..., 0]


@executes("mma")
def _mma(s: Sim, inst: Inst, mods: list[str]) -> Step:
    shape = next((m for m in (_SHAPE.match(mod) for mod in mods) if m), None)
    d_kind, a_kind, b_kind, c_kind = mods[-4:]
    if shape is None or mods[1] != "aligned" or "sp" in mods or any(mod.startswith("kind") for mod in mods):
        raise not_yet(inst.opcode)
    rows, columns, k = (int(v) for v in shape.groups())
    if columns != 8 or a_kind not in BITS or b_kind not in BITS or (a_kind == "f16" and k == 4):
        raise not_yet(inst.opcode)
    ar, ak = a_positions(rows, k, BITS[a_kind])
    bk, bn = b_positions(k, BITS[b_kind])
    dr, dc = c_positions(rows, BITS[d_kind])
    cr, cc = c_positions(rows, BITS[c_kind])
    d, a, b, c = inst.operands
    wide = a_kind == "f64"
    word = "b64" if wide else "b32"
    gets = [[s.m.rd(op, word) for op in items_of(group)] for group in (a, b, c)]
    puts = [s.m.wr(op, word) for op in items_of(d)]
    if len(gets[0]) != ar.shape[1] or len(gets[1]) != bk.shape[1] or len(puts) != dr.shape[1]:
        raise not_yet(f"{inst.opcode} with these register counts")
    number, sat = np.int64 if d_kind == "s32" else np.float64, "satfinite" in mods

    def stack(x: Ctx, group: list[Getter]) -> Array:
        return np.stack([x.full(get(x)) for get in group], axis=-1)

    def run(x: Ctx) -> None:
        va, vb = np.empty((x.n, rows, k), number), np.empty((x.n, k, 8), number)
        out = np.empty((x.n, rows, 8), number)
        va[:, ar, ak] = split(a_kind, stack(x, gets[0]))
        vb[:, bk, bn] = split(b_kind, stack(x, gets[1]))
        out[:, cr, cc] = split(c_kind, stack(x, gets[2]))
        out += va @ vb
        words = join(d_kind, out[:, dr, dc], sat)
        for i, put in enumerate(puts):
            put(x, words[:, :, i])

    return Sync(together(s), run)
