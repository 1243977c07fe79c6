"""wgmma: descriptors decoded from their bits, operands read through the swizzle, registers that belong to it until the wait.

The result is computed at issue; the accumulators (and A registers) stay marked in flight until wgmma.wait_group has
completed their group: reading them earlier, or writing them, is an error. A warp group executes when its four warps stand
at the instruction. Sums as in mma.sync.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from mimw.codegen.machine import Imm, Inst, Operand, Reg, Vec
from mimw.sim.ptx import formats
from mimw.sim.ptx.barriers import WgmmaState
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import SHARED_START
from mimw.sim.ptx.ops.access import items_of
from mimw.sim.ptx.ops.mma import BITS, a_positions, join, split
from mimw.sim.ptx.ops.sync import together
from mimw.sim.ptx.registry import Plain, Step, Sync, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx

_SHAPE = re.compile(r"m64n(\d+)k(\d+)$")
_SPAN = {1: 128, 2: 64, 3: 32}
_XOR = {1: 7, 2: 3, 3: 1}


class Descriptor:
    """A matrix descriptor's fields: addresses and offsets in bytes, layout 0 (none), 1 (128B), 2 (64B), 3 (32B)."""

    __slots__ = ("layout", "lbo", "sbo", "start")

    def __init__(self, bits: int) -> None:
        self.start = (bits & 0x3FFF) << 4
        self.lbo = (bits >> 16 & 0x3FFF) << 4
        self.sbo = (bits >> 32 & 0x3FFF) << 4
        self.layout = bits >> 62 & 3
        if bits >> 49 & 7:
            raise not_yet("wgmma descriptors with a base offset")

    def addresses(self, rows: int, k: int, size: int, mn_major: bool) -> Array:
        """Shared addresses (rows, k) of the elements of an operand with `rows` rows of M or N, `size` bytes each."""
        r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
        if self.layout == 0:
            return self._plain(r, c, size, mn_major)
        span = _SPAN[self.layout]
        if mn_major:
            chunk = span // size
            flat = r // chunk * self.lbo + c // 8 * self.sbo + c % 8 * span + r % chunk * size
        else:
            flat = r // 8 * self.sbo + r % 8 * span + c * size
        flat = flat + self.start
        return flat ^ (((flat >> 7) & _XOR[self.layout]) << 4)

    def _plain(self, r: Array, c: Array, size: int, mn_major: bool) -> Array:
        if mn_major:
            return self.start + r // 8 * self.sbo + c // 8 * self.lbo + c % 8 * 16 + r % 8 * size
        byte = c * size
        return self.start + r // 8 * self.sbo + byte // 16 * self.lbo + r % 8 * 16 + byte % 16


@lru_cache(maxsize=64)
def d_positions(columns: int, bits: int) -> tuple[Array, Array]:
    """(row, column) of D by (warp, lane, register, element)."""
    e = 2 if bits == 16 else 1
    warp, lane, reg, el = np.meshgrid(
        np.arange(4), np.arange(32), np.arange(columns // 2 // e), np.arange(e), indexing="ij"
    )
    index = reg * e + el
    return 16 * warp + lane // 4 + 8 * (index // 2 % 2), 8 * (index // 4) + 2 * (lane % 4) + index % 2


@executes("wgmma")
def _wgmma(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] == "fence":
        return Sync(together(s), _fence(s))
    if mods[0] == "commit_group":
        return Sync(together(s), _commit(s))
    if mods[0] == "wait_group":
        return Sync(together(s), _wait(s, inst))
    if mods[0] != "mma_async" or "sp" in mods:
        raise not_yet(inst.opcode)
    return _Mma(s, inst, mods).step()


def _fence(s: Sim) -> Plain:
    def run(x: Ctx) -> None:
        for number in s.m.tracked:
            s.m.dirty[number] &= ~x.bits
        for warp in x.warps.tolist():
            s.wgmma_of(warp).fenced = True

    return run


def _commit(s: Sim) -> Plain:
    def run(x: Ctx) -> None:
        for warp in x.warps.tolist():
            state = s.wgmma_of(warp)
            state.groups.append(state.open)
            state.orders.append(state.order)
            state.open, state.order = [], None

    return run


def _wait(s: Sim, inst: Inst) -> Plain:
    count = inst.operands[0]
    if not isinstance(count, Imm):
        raise SimulationError("wgmma.wait_group needs an immediate")
    pending = count.value

    def run(x: Ctx) -> None:
        for warp in x.warps.tolist():
            state = s.wgmma_of(warp)
            if len(state.groups) > pending:
                _complete(s, warp, state, pending)

    return run


def _complete(s: Sim, warp: int, state: WgmmaState, pending: int) -> None:
    finished = state.groups[: len(state.groups) - pending]
    orders = state.orders[: len(finished)]
    state.groups, state.orders = state.groups[len(finished) :], state.orders[len(finished) :]
    state.done += len(finished)
    still = {number for group in (*state.groups, state.open) for number in group}
    bit = 1 << warp
    for number in {number for group in finished for number in group} - still:
        s.m.busy[number] &= ~bit
        s.m.init[number] |= bit
    if s.san is not None:
        s.san.learn(warp, s.san.agents.engine(warp), state.done)
        for order in orders:
            if order is not None:
                s.san.passed(warp, order)


class _Mma:
    """One wgmma.mma_async, decoded."""

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        self.s = s
        shape = next((m for m in (_SHAPE.match(mod) for mod in mods) if m), None)
        self.d_kind, self.a_kind, self.b_kind = mods[-3:]
        if shape is None or self.a_kind not in BITS or self.b_kind not in BITS:
            raise not_yet(inst.opcode)
        self.columns, self.k = int(shape.group(1)), int(shape.group(2))
        self.sat = "satfinite" in mods
        d, a, b, *rest = inst.operands
        self.d = [self._register(op) for op in items_of(d)]
        self.a = [self._register(op) for op in items_of(a)] if isinstance(a, Vec) else []
        self.desc_a = None if self.a else s.m.rd(a, "u64")
        self.desc_b = s.m.rd(b, "u64")
        scale = rest[0]
        self.scale_d = s.m.rd(scale, "pred")
        flags = [op.value for op in rest[1:] if isinstance(op, Imm)]
        self.sign_a, self.sign_b = (flags[0], flags[1]) if len(flags) >= 2 else (1, 1)
        trans = flags[2:]
        self.trans_a = bool(trans[0]) if trans and not self.a else False
        self.trans_b = bool(trans[-1]) if trans else False
        if (self.trans_a or self.trans_b) and BITS[self.a_kind] != 16:
            raise SimulationError("MN-major operands exist for 16-bit types only")
        self.number = np.int64 if self.d_kind == "s32" else np.float64
        self.at = d_positions(self.columns, BITS[self.d_kind])
        if len(self.d) != self.at[0].shape[2]:
            raise SimulationError(f"wgmma needs {self.at[0].shape[2]} accumulator registers, not {len(self.d)}")
        self.rows_a: list[Array] = [s.m.slots[id(reg)][0] for reg in self._regs(a)] if self.a else []
        self.rows_d: list[Array] = [s.m.slots[id(reg)][0] for reg in self._regs(d)]

    def _regs(self, op: Operand) -> list[Reg]:
        return [item for item in items_of(op) if isinstance(item, Reg)]

    def _register(self, op: Operand) -> int:
        if not isinstance(op, Reg):
            raise SimulationError("wgmma accumulators must be registers")
        return self.s.m.slot(op)[1]

    def step(self) -> Sync:
        """Ready when the four warps of a group are here with all lanes."""
        s = self.s
        alone = together(s)

        def ready(x: Ctx) -> Array | None:
            first = alone(x)
            group = x.warps // s.m.warps_per_cta * 4096 + x.warps % s.m.warps_per_cta // 4
            here = x.warps if first is None else x.warps[first]
            found, counts = np.unique(
                here // s.m.warps_per_cta * 4096 + here % s.m.warps_per_cta // 4, return_counts=True
            )
            out = np.isin(group, found[counts == 4])
            return out if first is None else out & first

        return Sync(ready, self.run)

    def run(self, x: Ctx) -> None:
        """Execute for every warp group of the context."""
        if x.mask is not None:
            raise SimulationError(
                "wgmma with lanes that have exited or are guarded off", where=self.s.m.where(x, ~x.mask)
            )
        desc_a = None if self.desc_a is None else x.full(self.desc_a(x))
        desc_b, scale = x.full(self.desc_b(x)), x.full(self.scale_d(x))
        for at in range(0, x.n, 4):
            first = int(x.warps[at])
            self._prepare(first, bool(scale[at, 0]))
            part = slice(at, at + 4)
            a = (
                self._from_registers(first)
                if desc_a is None
                else self._operand(first, desc_a[part], 64, self.a_kind, self.trans_a)
            )
            b = self._operand(first, desc_b[part], self.columns, self.b_kind, self.trans_b)
            if (scale[part] != scale[at, 0]).any():
                raise SimulationError(
                    "scale-d differs between threads of the warp group", where=self.s.m.warp_name(first)
                )
            self._issue(first, bool(scale[at, 0]), a * self.sign_a, b * self.sign_b)

    def _prepare(self, first: int, accumulate: bool) -> None:
        """Check fences and that what is read was written."""
        m = self.s.m
        bits = 15 << first
        where = m.warp_name(first)
        if not all(self.s.wgmma_of(warp).fenced for warp in range(first, first + 4)):
            raise SimulationError("wgmma.fence is missing before the first wgmma.mma_async", where=where)
        for number in (*self.d, *self.a):
            if m.dirty[number] & bits:
                raise SimulationError(
                    f"{m.names[number]} was written after the last wgmma.fence: wgmma.fence is missing", where=where
                )
        for number in self.a if not accumulate else (*self.d, *self.a):
            if bits & ~m.init[number] & ~m.busy[number] and not m.init_lanes[number][first : first + 4].all():
                raise SimulationError(f"{m.names[number]} is read before it is written", where=where)
        for number in self.a:
            if m.busy[number] & bits & ~m.init[number]:
                raise SimulationError(
                    f"{m.names[number]} is read as A while a wgmma in flight still writes it: wgmma.wait_group is missing",
                    where=where,
                )

    def _from_registers(self, first: int) -> Array:
        words = np.stack([row[first : first + 4] for row in self.rows_a], axis=-1)
        values = split(self.a_kind, words)
        rows, ks = a_positions(16, self.k, BITS[self.a_kind])
        out = np.empty((4, 16, self.k), self.number)
        out[:, rows, ks] = values
        return out.reshape(64, self.k)

    def _operand(self, first: int, desc: Array, rows: int, kind: str, mn_major: bool) -> Array:
        """The operand (rows, k) that a descriptor names, decoded."""
        s = self.s
        where = s.m.warp_name(first)
        if (desc != desc[0, 0]).any():
            raise SimulationError("the wgmma descriptor differs between threads of the warp group", where=where)
        size = BITS[kind] // 8
        addr = Descriptor(int(desc[0, 0])).addresses(rows, self.k, size, mn_major)
        low, high = int(addr.min()), int(addr.max()) + size
        if low < SHARED_START or high > s.mem.shared_end:
            raise SimulationError(
                f"wgmma reads shared memory at {low:#x}..{high:#x}, outside the CTA's {SHARED_START:#x}..{s.mem.shared_end:#x}",
                where=where,
            )
        flat = addr + int(s.m.cta_of[first]) * s.mem.stride
        if s.san is not None:
            chunks = np.unique(flat // 16) * 16
            engine = s.san.agents.engine(first)
            s.san.async_read(np.arange(first, first + 4), chunks, engine, s.wgmma_of(first).epoch, s.pc)
        raw = s.mem.shared.view(size)[flat // size]
        if kind in ("s8", "u8"):
            return raw.view(np.int8 if kind == "s8" else np.uint8).astype(np.int64)
        return formats.decode(kind, raw.view(UNSIGNED[BITS[kind]]))

    def _issue(self, first: int, accumulate: bool, a: Array, b: Array) -> None:
        m = self.s.m
        total = a @ b.T
        rows, columns = self.at
        if accumulate:
            old = split(self.d_kind, np.stack([row[first : first + 4] for row in self.rows_d], axis=-1))
            values = old + total[rows, columns]
        else:
            values = total[rows, columns]
        words = join(self.d_kind, values, self.sat)
        bits = 15 << first
        for i, (row, number) in enumerate(zip(self.rows_d, self.d, strict=False)):
            row[first : first + 4] = words[:, :, i]
            m.init[number] &= ~bits
            m.init_lanes[number][first : first + 4] = True
        for number in (*self.d, *self.a):
            m.busy[number] |= bits
        group = list(range(first, first + 4))
        order = None if self.s.san is None else self.s.san.come_together(group)
        for warp in group:
            state = self.s.wgmma_of(warp)
            state.open.extend((*self.d, *self.a))
            state.order = order
