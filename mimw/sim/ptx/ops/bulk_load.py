"""Bulk copies into shared memory: from global memory, plain or through a tensor map, and between CTAs of a cluster.

They signal an mbarrier in the CTA where they land. Data moves when the engine runs the job, never at the issue. The
sanitizer sees the destination as written by the mbarrier's agent, and so a source in shared memory as read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimw.codegen.machine import Addr, Inst, Operand
from mimw.sim.ptx.barriers import MBarrier
from mimw.sim.ptx.clocks import Clocks
from mimw.sim.ptx.engine import Job
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import address
from mimw.sim.ptx.ops.atomic import combine_of
from mimw.sim.ptx.ops.maps import read_map, threads_of
from mimw.sim.ptx.ops.mbarrier import barrier_of
from mimw.sim.ptx.sanitizer import IN_FLIGHT
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx, Getter, bits_of
from mimw.sim.ptx.tma import chunk_offsets, load_box, region_of

Fetch = Callable[[], Array]
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


class Landing:
    """Where a copy lands in the shared memory of one CTA, and whom it signals."""

    __slots__ = ("bar", "clocks", "cta", "granules", "offsets", "ticket")

    def __init__(
        self, s: Sim, warp: int, lane: int, cta: int, offsets: Array, width: int, bar: MBarrier, what: str, adds: bool,
        proxied: bool = True,
    ) -> None:  # fmt: skip
        self.cta, self.bar = cta, bar
        self.offsets = offsets + cta * s.mem.stride
        self.granules: Array | None = None
        self.clocks: Clocks | None = None
        self.ticket = 0
        _spare_barriers(s, cta, offsets, width)
        if s.san is not None:
            self.granules = s.san.granules(self.offsets, width)
            self.ticket = s.san.async_write(warp, lane, self.granules, bar.agent, s.pc, what, adds, proxied)
            self.clocks = s.san.release(warp, np.arange(32) == lane)

    def land(self, s: Sim, count: int) -> None:
        """The bytes are there: tell the sanitizer and the mbarrier."""
        if s.san is not None and self.granules is not None:
            s.san.landed(self.granules, self.ticket, self.bar.epoch)
        s.clusters.touch(self.cta, self.bar.agent, self.bar.epoch, s.pc)
        if self.clocks is not None:
            self.bar.hear(self.clocks)
        s.mbarrier_bytes(self.bar, -count)
        s.mbarrier_check(self.bar)


def _spare_barriers(s: Sim, cta: int, offsets: Array, width: int) -> None:
    low, high = int(offsets.min()), int(offsets.max()) + width
    for where, offset in [key for key in s.mbarriers if key[0] == cta and low <= key[1] < high]:
        if s.strict or s.mbarriers[where, offset].used():
            raise SimulationError(f"the copy writes over the mbarrier at {offset:#x}")
        del s.mbarriers[where, offset]
        s.overwritten.add((where, offset))


def signalled(s: Sim, warp: int, cta: int, offset: int) -> MBarrier:
    """The mbarrier that an asynchronous copy will signal."""
    bar = barrier_of(s, warp, cta, offset, touches=False)
    if not bar.fenced:
        raise SimulationError(
            f"the mbarrier at {offset:#x} is not yet visible to the async proxy: fence.mbarrier_init (or fence.proxy.async)"
            f" by the thread that initialised it, {s.m.thread(bar.init_warp, bar.init_lane)}, is missing",
            where=s.m.warp_name(warp),
        )
    return bar


def coordinates(s: Sim, op: Operand) -> tuple[Getter, list[Getter]]:
    """The address of a tensor map and the coordinates of an operand ``[map, {c0, c1}]``."""
    if not isinstance(op, Addr) or op.coords is None:
        raise SimulationError("expected a tensor map with coordinates")
    return address(s, Addr(op.base, op.offset)), [s.m.rd(c, "s32") for c in op.coords]


def sized(at: int, count: int) -> None:
    """Check the address and the size of a plain bulk copy."""
    if count <= 0 or count % 16 or at % 16:
        raise SimulationError(f"a bulk copy of {count} bytes at {at:#x}: both must be multiples of 16")


def on_chunks(combine: Any, width: int) -> Callable[[Array, Array], Array]:
    """A reduction on (n, 16) arrays of bytes."""
    unsigned = np.dtype(f"<u{width}")

    def run(old: Array, new: Array) -> Array:
        made = combine(np.ascontiguousarray(old).view(unsigned), np.ascontiguousarray(new).view(unsigned))
        return np.ascontiguousarray(made).view(np.uint8)

    return run


class _ToShared:
    """A copy into shared memory that signals an mbarrier, perhaps in several CTAs."""

    what = "the bulk copy"

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        self.s, self.inst = s, inst
        ops = inst.operands
        self.destination, self.barrier = address(s, ops[0]), address(s, self._barrier_operand(ops))
        self.mask = s.m.rd(ops[self._after(ops)], "u16") if "multicast::cluster" in mods else None
        self.combine: Any = None

    def _barrier_operand(self, ops: list[Operand]) -> Operand:
        return ops[self._after(ops) - 1]

    def _after(self, ops: list[Operand]) -> int:
        """The number of operands up to the mbarrier."""
        return 4

    def bind(self, x: Ctx) -> Callable[[int, int, int], tuple[Fetch, int, int, int]]:
        """A function of (row, warp, lane): how to fetch (n, 16) bytes, their number, alignment, swizzle span."""
        raise NotImplementedError

    def run(self, x: Ctx) -> None:
        """Issue one copy for every executing thread."""
        s = self.s
        to, bars, bind = x.full(self.destination(x)), x.full(self.barrier(x)), self.bind(x)
        masks = None if self.mask is None else x.full(self.mask(x))
        for row, warp, lane in threads_of(x):
            fetch, count, align, span = bind(row, warp, lane)
            cta, offset = s.mem.place(warp, int(to[row, lane]), count, align)
            bar_cta, bar_offset = s.mem.place(warp, int(bars[row, lane]), 8, 8)
            if bar_cta != cta:
                raise SimulationError("the mbarrier of a bulk copy lies in another CTA than its destination")
            ctas = [cta] if masks is None else self._targets(warp, int(masks[row, lane]))
            chunks = chunk_offsets(offset, count // 16, span)
            for target in ctas:
                self._issue(warp, lane, target, chunks, signalled(s, warp, target, bar_offset), fetch, count)

    def _targets(self, warp: int, mask: int) -> list[int]:
        m = self.s.m
        first = warp // m.warps_per_cta // m.cluster * m.cluster
        if not mask or mask >> m.cluster:
            raise SimulationError(f"multicast mask {mask:#x} in a cluster of {m.cluster}", where=m.warp_name(warp))
        return [first + rank for rank in range(m.cluster) if mask >> rank & 1]

    def _issue(self, warp: int, lane: int, cta: int, chunks: Array, bar: MBarrier, fetch: Fetch, count: int) -> None:
        s = self.s
        if cta in s.clusters.exited:
            s.clusters.touch(cta, 0, 0, s.pc)
        landing = Landing(s, warp, lane, cta, chunks, 16, bar, self.what, self.combine is not None)

        def part() -> None:
            place = s.mem.shared.data.reshape(-1, 16)
            rows, new = landing.offsets // 16, fetch()
            place[rows] = new if self.combine is None else self.combine(place[rows], new)
            landing.land(s, count)

        s.engine.issue(Job(warp, lane, s.pc, [part], 0, {cta}))


class TensorLoad(_ToShared):
    """cp.async.bulk.tensor from global to shared memory."""

    what = "the TMA load"

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        super().__init__(s, inst, mods)
        self.map, self.coords = coordinates(s, inst.operands[1])
        self.rank = int(mods[3][0])

    def _after(self, ops: list[Operand]) -> int:
        return 3

    def bind(self, x: Ctx) -> Callable[[int, int, int], tuple[Fetch, int, int, int]]:
        s, maps, coords = self.s, x.full(self.map(x)), [x.full(c(x)) for c in self.coords]

        def of(row: int, warp: int, lane: int) -> tuple[Fetch, int, int, int]:
            t = read_map(s, warp, lane, int(maps[row, lane]))
            if t.rank != self.rank:
                raise SimulationError(f"a {self.rank}d copy with a tensor map of rank {t.rank}")
            at = [int(c[row, lane]) for c in coords]
            return lambda: load_box(s.world, t, at), t.box_bytes, 128, t.swizzle

        return of


class PlainLoad(_ToShared):
    """cp.async.bulk from global to shared memory."""

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        super().__init__(s, inst, mods)
        self.source, self.size = address(s, inst.operands[1]), s.m.rd(inst.operands[2], "u32")

    def bind(self, x: Ctx) -> Callable[[int, int, int], tuple[Fetch, int, int, int]]:
        s = self.s
        source, size = x.full(self.source(x)), x.full(self.size(x))

        def of(row: int, warp: int, lane: int) -> tuple[Fetch, int, int, int]:
            at, count = int(source[row, lane]), int(size[row, lane])
            sized(at, count)
            region_of(s.world, at, count, False, "bulk")

            def fetch() -> Array:
                region = region_of(s.world, at, count, False, "bulk")
                return region.data[at - region.base : at - region.base + count].reshape(-1, 16)

            return fetch, count, 16, 0

        return of


class Between(_ToShared):
    """From the CTA's own shared memory to that of a CTA of the cluster, copied or reduced."""

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        super().__init__(s, inst, mods)
        op = next((mod for mod in mods if mod in REDUCTIONS), None)
        if op is not None:
            self.combine = on_chunks(combine_of(op, mods[-1]), bits_of(mods[-1]) // 8)
        self.source, self.size = address(s, inst.operands[1]), s.m.rd(inst.operands[2], "u32")
        self.reading: Any = None

    def bind(self, x: Ctx) -> Callable[[int, int, int], tuple[Fetch, int, int, int]]:
        s = self.s
        source, size = x.full(self.source(x)), x.full(self.size(x))

        def of(row: int, warp: int, lane: int) -> tuple[Fetch, int, int, int]:
            at, count = int(source[row, lane]), int(size[row, lane])
            cta, offset = s.mem.place(warp, at, count, 16)
            sized(at, count)
            if cta != warp // s.m.warps_per_cta:
                raise SimulationError("the source of a bulk copy lies in another CTA")
            index = chunk_offsets(offset, count // 16, 0) + cta * s.mem.stride
            self.reading = index
            return lambda: s.mem.shared.data.reshape(-1, 16)[index // 16], count, 16, 0

        return of

    def _issue(self, warp: int, lane: int, cta: int, chunks: Array, bar: MBarrier, fetch: Fetch, count: int) -> None:
        s, index = self.s, self.reading
        if s.san is not None:
            s.san.async_read(np.array([warp]), index, bar.agent, IN_FLIGHT, s.pc, self.what, lane)
        super()._issue(warp, lane, cta, chunks, bar, fetch, count)
        job = s.engine.jobs[-1]
        own = warp // s.m.warps_per_cta
        job.ctas.add(own)
        write = job.parts[0]

        def part() -> None:
            if s.san is not None:
                s.san.finished(index, bar.agent, bar.epoch)
            s.clusters.touch(own, bar.agent, bar.epoch, s.pc)
            write()

        job.parts[0] = part
