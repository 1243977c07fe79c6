"""The machine's registers, and how an instruction reads and writes them.

Warps of one or more CTAs stand side by side: a register is a row of shape (warps, 32). A `Ctx` says which warps and
lanes execute now. Decoders ask `Machine.rd` and `Machine.wr` once per operand and get closures; each read checks that
the lanes were written before and that no asynchronous instruction still owns the register. Knows no instruction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mimw.codegen.machine import FlatFunction, Imm, Inst, Not, Operand, Reg, Sink, Special, Symbol
from mimw.sim.ptx.errors import SimulationError, show_operand
from mimw.sim.ptx.floats import Array

DEAD = 1 << 30
UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIZES = {
    "pred": 1, "f16": 16, "bf16": 16, "e4m3x2": 16, "e5m2x2": 16, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32,
    "tf32": 32, "f32": 32, "f64": 64, "f32x2": 64, "e4m3": 8, "e5m2": 8, "e4m3x4": 32, "e5m2x4": 32,
}  # fmt: skip
_FLOATS: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

Getter = Callable[["Ctx"], Array]
Setter = Callable[["Ctx", Array], None]


@cache
def bits_of(kind: str) -> int:
    """Width in bits of a PTX type."""
    size = _SIZES.get(kind)
    if size is None:
        if kind[:1] not in "bsu" or not kind[1:].isdigit():
            raise SimulationError(f"unknown type .{kind}")
        size = int(kind[1:])
    return size


def dtype_of(kind: str) -> Any:
    """The NumPy dtype in which values of a PTX type are computed: bf16 and packed types stay bits."""
    if kind in _FLOATS:
        return _FLOATS[kind]
    size = bits_of(kind)
    if size == 128:
        raise SimulationError("128-bit registers: not yet in the PTX simulator")
    return _SIGNED[size] if kind[0] == "s" and kind != "s16x2" else UNSIGNED[size]


# Above these bits a shared address of a cluster carries the rank of the CTA that it belongs to.
RANK_SHIFT = 24
CLOCK = "%globaltimer"


class Ctx:
    """Who executes: warps (row indices, also as `sel` and as the bit set `bits`), and the lanes, None for all."""

    __slots__ = ("bits", "mask", "n", "rows", "sel", "warps", "whole")

    def __init__(self, warps: Array, mask: Array | None, whole: bool = False) -> None:
        self.warps = warps
        self.n = len(warps)
        first, last = int(warps[0]), int(warps[-1])
        self.sel: Any = slice(first, last + 1) if last - first + 1 == self.n else warps
        if isinstance(self.sel, slice):
            self.bits = ((1 << self.n) - 1) << first
        else:
            self.bits = sum(1 << w for w in warps.tolist())
        self.mask = mask
        self.whole = whole
        self.rows: Array = np.broadcast_to(warps[:, None], (self.n, 32))

    def active(self) -> Array:
        """The executing lanes, (n, 32) bool."""
        return np.ones((self.n, 32), np.bool_) if self.mask is None else self.mask

    def full(self, value: Array) -> Array:
        """`value` (an array that broadcasts) at the shape (n, 32)."""
        return value if value.shape == (self.n, 32) else np.broadcast_to(value, (self.n, 32))


class Machine:
    """Registers and addresses of a batch of `ctas` CTAs with `warps_per_cta` warps each; `cluster` neighbours form a cluster."""

    def __init__(self, fn: FlatFunction, ctas: int, threads: int, cluster: int = 1) -> None:
        self.fn = fn
        self.ctas = ctas
        self.threads = threads
        self.warps_per_cta = (threads + 31) // 32
        self.warps = ctas * self.warps_per_cta
        self.cluster = cluster
        self.cta_of: Array = np.arange(self.warps) // self.warps_per_cta
        self.specials: dict[str, Array] = {}
        self.reads_clock = any(
            isinstance(o, Special) and o.name == CLOCK for i in fn.body if isinstance(i, Inst) for o in i.operands
        )
        self.symbols: dict[str, int] = {}
        self.shared_symbols: set[str] = set()
        self.slots: dict[int, tuple[Array, int]] = {}
        self.names: list[str] = []
        self.owners: dict[int, str] = {}
        self._allocate(fn.regs)

    def _allocate(self, regs: list[Reg]) -> None:
        by_size: dict[int, list[Reg]] = {}
        for reg in regs:
            by_size.setdefault(bits_of(reg.cls), []).append(reg)
        self.names = [""] * len(regs)
        number = 0
        for size, group in by_size.items():
            shape = (len(group), self.warps, 32)
            store: Array = np.zeros((*shape, 2), np.uint64) if size == 128 else np.zeros(shape, UNSIGNED[size])
            for reg, row in zip(group, store, strict=False):
                self.slots[id(reg)] = (row, number)
                self.names[number] = reg.name
                number += 1
        self.init_lanes: Array = np.zeros((len(regs), self.warps, 32), np.bool_)
        self.init = [0] * len(regs)
        self.busy = [0] * len(regs)
        self.dirty = [0] * len(regs)
        self.tracked: set[int] = set()

    def fill_registers(self, seed: int) -> None:
        """Let every register hold arbitrary bits from the start, and count as written."""
        rng = np.random.default_rng(seed)
        for reg in self.fn.regs:
            row, _ = self.slots[id(reg)]
            row[...] = (
                rng.integers(0, 2, row.shape)
                if row.dtype == np.bool_
                else rng.integers(0, 256, row.nbytes, np.uint8).view(row.dtype).reshape(row.shape)
            )
        self.init_lanes[:] = True
        self.init[:] = [(1 << self.warps) - 1] * len(self.init)

    def pass_time(self, nanoseconds: int) -> None:
        """Let the clock go on."""
        self.specials[CLOCK] = self.specials[CLOCK] + np.uint64(nanoseconds)

    def reset(self) -> None:
        """Forget all register contents (before the next batch of CTAs)."""
        self.init_lanes[:] = False
        for marks in (self.init, self.busy, self.dirty):
            marks[:] = [0] * len(marks)

    def slot(self, reg: Reg) -> tuple[Array, int]:
        """The register's row of bits (warps, 32) and its number."""
        found = self.slots.get(id(reg))
        if found is None:
            raise SimulationError(f"register {reg!r} is not declared in {self.fn.name}")
        return found

    def check(self, x: Ctx, number: int) -> None:
        """Raise when a lane of `x` reads register `number` unwritten or still owned by an asynchronous instruction."""
        if self.busy[number] & x.bits & ~self.init[number]:
            raise SimulationError(
                f"{self.names[number]} is read while {self.owners.get(number, 'wgmma')} in flight still writes it:"
                " wgmma.wait_group is missing"
            )
        bad = ~self.init_lanes[number][x.sel]
        if x.mask is not None:
            bad &= x.mask
        if bad.any():
            raise SimulationError(f"{self.names[number]} is read before it is written", where=self.where(x, bad))
        if x.mask is None:
            self.init[number] |= x.bits

    def where(self, x: Ctx, bad: Array) -> str:
        """The first thread of a (n, 32) bool array, in words."""
        row, lane = (int(v) for v in np.argwhere(np.broadcast_to(bad, (x.n, 32)))[0])
        return self.thread(int(x.warps[row]), lane)

    def thread(self, warp: int, lane: int) -> str:
        """A thread in words: its CTA, warp and lane."""
        return f"{self.warp_name(warp)} lane {lane}"

    def warp_name(self, warp: int) -> str:
        """A warp in words: its CTA and its index there."""
        return f"{self.cta_name(warp // self.warps_per_cta)} warp {warp % self.warps_per_cta}"

    def cta_name(self, cta: int) -> str:
        """A CTA of the batch in words: its index in the grid."""
        warp = cta * self.warps_per_cta
        at = [int(np.broadcast_to(self.specials[f"%ctaid.{d}"], (self.warps, 32))[warp, 0]) for d in "xyz"]
        return f"cta ({at[0]},{at[1]},{at[2]})"

    # -- operands ------------------------------------------------------------------------------------------------

    def rd(self, op: Operand, kind: str) -> Getter:
        """A closure that reads `op` as PTX type `kind`: shape (n, 32), or (1, 1) for constants; do not write to it."""
        if isinstance(op, Reg):
            return self._rd_reg(op, kind)
        if isinstance(op, Not):
            inner = self._rd_reg(op.reg, "pred")
            return lambda x: ~inner(x)
        if isinstance(op, Special):
            return self._rd_special(op.name, kind)
        value = constant(self, op, kind)
        if isinstance(op, Symbol) and self.cluster > 1 and op.name in self.shared_symbols:
            return self._rd_own_shared(value)
        return lambda x: value

    def _rd_own_shared(self, offset: Array) -> Getter:
        """In a cluster a CTA's own shared addresses carry its rank, as `mapa` gives them (read on an H200)."""
        rank = np.arange(self.warps) // self.warps_per_cta % self.cluster
        table = (offset + (rank.astype(offset.dtype)[:, None] << offset.dtype.type(RANK_SHIFT))).astype(offset.dtype)
        return lambda x: table[x.warps]

    def _rd_special(self, name: str, kind: str) -> Getter:
        if name not in self.specials:
            raise SimulationError(f"special register {name}: not yet in the PTX simulator")
        dtype = dtype_of(kind)
        table = self.specials

        def read(x: Ctx) -> Array:
            row = table[name]
            return (row[x.sel] if row.shape[0] > 1 else row).astype(dtype)

        return read

    def _rd_reg(self, reg: Reg, kind: str) -> Getter:
        row, number = self.slot(reg)
        size, have = bits_of(kind), bits_of(reg.cls)
        init, check = self.init, self.check
        if size == have:
            typed = row.view(dtype_of(kind)) if size > 1 and size < 128 else row

            def read(x: Ctx) -> Array:
                if x.bits & ~init[number]:
                    check(x, number)
                return typed[x.sel]

            return read
        if size > have or have == 1:
            raise SimulationError(f".{kind} operand in {reg!r}, a .{reg.cls} register")
        narrow, dtype = UNSIGNED[size], dtype_of(kind)

        def read_narrow(x: Ctx) -> Array:
            if x.bits & ~init[number]:
                check(x, number)
            return row[x.sel].astype(narrow).view(dtype)

        return read_narrow

    def wr(self, op: Operand, kind: str) -> Setter:
        """A closure that writes a value of PTX type `kind` to `op` in the executing lanes; wider registers extend."""
        if isinstance(op, Sink):
            return lambda x, v: None
        if not isinstance(op, Reg):
            raise SimulationError(f"{show_operand(op)} cannot be written")
        row, number = self.slot(op)
        size, have = bits_of(kind), bits_of(op.cls)
        if size == have:
            typed = row.view(dtype_of(kind)) if 1 < size < 128 else row
            put = self._put(typed, number)
            return self._tracked(put, number) if number in self.tracked else put
        if size > have or size == 1:
            raise SimulationError(f".{kind} result in {op!r}, a .{op.cls} register")
        put_wide = self._put(row, number)
        unsigned = UNSIGNED[have]
        wide = _SIGNED[have] if kind[0] == "s" else unsigned
        narrow = UNSIGNED[size]

        def put_extended(x: Ctx, v: Array) -> None:
            raw = np.ascontiguousarray(v)
            if kind[0] != "s":
                raw = raw.view(narrow)
            put_wide(x, raw.astype(wide).view(unsigned))

        return put_extended

    def _put(self, row: Array, number: int) -> Setter:
        init, init_lanes = self.init, self.init_lanes

        def put(x: Ctx, v: Array) -> None:
            mask, sel = x.mask, x.sel
            if mask is None:
                row[sel] = v
                if x.bits & ~init[number]:
                    init[number] |= x.bits
                    init_lanes[number][sel] = True
                return
            if isinstance(sel, slice):
                np.copyto(row[sel], v, where=mask, casting="unsafe")
                if x.bits & ~init[number]:
                    init_lanes[number][sel] |= mask
                return
            row[sel] = np.where(mask, v, row[sel])
            if x.bits & ~init[number]:
                init_lanes[number][sel] |= mask

        return put

    def _tracked(self, put: Setter, number: int) -> Setter:
        """For registers that wgmma uses: a write while one is in flight is an error, and later ones need a fence."""
        busy, dirty = self.busy, self.dirty

        def put_tracked(x: Ctx, v: Array) -> None:
            if busy[number] & x.bits:
                raise SimulationError(
                    f"{self.names[number]} is written while {self.owners.get(number, 'wgmma')} in flight uses it:"
                    " wgmma.wait_group is missing"
                )
            dirty[number] |= x.bits
            put(x, v)

        return put_tracked


def constant(m: Machine, op: Operand, kind: str) -> Array:
    """An immediate or the address of a symbol as a (1, 1) array of the dtype of `kind`."""
    if isinstance(op, Symbol):
        if op.name not in m.symbols:
            raise SimulationError(f"unknown symbol {op.name}")
        value = m.symbols[op.name]
    elif isinstance(op, Imm):
        value = _immediate_bits(op, kind)
    else:
        raise SimulationError(f"operand {show_operand(op)} cannot be read as .{kind}")
    if kind == "pred":
        return np.array([[value != 0]])
    size = bits_of(kind)
    return np.array([[value & ((1 << size) - 1)]], UNSIGNED[size]).view(dtype_of(kind))


def _immediate_bits(op: Imm, kind: str) -> int:
    if op.cls == "int":
        if kind not in _FLOATS:
            return op.value
        number = float(op.value)
    else:
        code = "<f" if op.cls == "f32" else "<d"
        raw = op.value.to_bytes(4 if op.cls == "f32" else 8, "little")
        if (kind in ("f32", "b32", "u32", "s32") and op.cls == "f32") or (kind in ("b64", "u64") and op.cls == "f64"):
            return op.value
        number = struct.unpack(code, raw)[0]
    dtype = _FLOATS.get(kind, np.float64 if bits_of(kind) == 64 else np.float32)
    return int(np.array(number, dtype).view(UNSIGNED[np.dtype(dtype).itemsize * 8]))
