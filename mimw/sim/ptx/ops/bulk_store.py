"""Bulk copies out of shared memory, plain or through a tensor map, stored or reduced, and the bulk groups they belong to.

Each has two parts for the engine: reading its source, which wait_group.read waits for, and writing to global memory. The
sanitizer sees the source as read by the issuing thread's own agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimw.codegen.machine import Imm, Inst
from mimw.sim.ptx.engine import Job
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import address
from mimw.sim.ptx.ops.atomic import combine_of
from mimw.sim.ptx.ops.bulk_load import REDUCTIONS, coordinates, on_chunks, sized
from mimw.sim.ptx.ops.maps import read_map, threads_of
from mimw.sim.ptx.registry import Plain, Sync
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx, bits_of
from mimw.sim.ptx.tma import chunk_offsets, region_of, store_box


class _Store:
    """A copy out of shared memory that belongs to the thread's open bulk group."""

    what = "the bulk store"

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        self.s, self.inst = s, inst
        self.op = next((mod for mod in mods if mod in REDUCTIONS), None) if mods[0] == "reduce" else None

    def issue(
        self, warp: int, lane: int, source: int, count: int, align: int, span: int, put: Callable[[Array], None]
    ) -> None:
        """Start the copy of `count` bytes at shared address `source`; `put` writes its chunks to global memory."""
        s = self.s
        cta, offset = s.mem.place(warp, source, count, align)
        if cta != warp // s.m.warps_per_cta:
            raise SimulationError("the source of a bulk store lies in another CTA")
        index = chunk_offsets(offset, count // 16, span) + cta * s.mem.stride
        groups = s.engine.groups_of(warp, lane)
        if s.san is not None:
            agent = s.san.room(s.san.agents.bulk(warp, lane))
            s.san.async_read(np.array([warp]), index, agent, groups.epoch, s.pc, self.what, lane)
        held: list[Array] = []
        ctas = {cta}

        def read() -> None:
            held.append(s.mem.shared.data.reshape(-1, 16)[index // 16])
            ctas.clear()

        job = Job(warp, lane, s.pc, [read, lambda: put(held[0])], 1, ctas)
        groups.open.append(job)
        s.engine.issue(job)


class TensorStore(_Store):
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor from shared to global memory."""

    what = "the TMA store"

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        super().__init__(s, inst, mods)
        self.map, self.coords = coordinates(s, inst.operands[0])
        self.source = address(s, inst.operands[1])
        self.rank = next(int(mod[0]) for mod in mods if mod in ("1d", "2d", "3d", "4d", "5d"))

    def run(self, x: Ctx) -> None:
        """Issue one copy for every executing thread."""
        s = self.s
        maps, source, coords = x.full(self.map(x)), x.full(self.source(x)), [x.full(c(x)) for c in self.coords]
        for row, warp, lane in threads_of(x):
            t = read_map(s, warp, lane, int(maps[row, lane]))
            if t.rank != self.rank:
                raise SimulationError(f"a {self.rank}d copy with a tensor map of rank {t.rank}")
            at = [int(c[row, lane]) for c in coords]
            combine = None if self.op is None else combine_of(self.op, t.type)

            def put(chunks: Array, t: Any = t, at: list[int] = at, combine: Any = combine) -> None:
                store_box(s.world, t, at, chunks, combine)

            self.issue(warp, lane, int(source[row, lane]), t.box_bytes, 128, t.swizzle, put)


class PlainStore(_Store):
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory."""

    def __init__(self, s: Sim, inst: Inst, mods: list[str]) -> None:
        super().__init__(s, inst, mods)
        ops = inst.operands
        self.target, self.source, self.size = address(s, ops[0]), address(s, ops[1]), s.m.rd(ops[2], "u32")
        self.combine = None
        if self.op is not None:
            self.combine = on_chunks(combine_of(self.op, mods[-1]), bits_of(mods[-1]) // 8)

    def run(self, x: Ctx) -> None:
        """Issue one copy for every executing thread."""
        s = self.s
        target, source, size = x.full(self.target(x)), x.full(self.source(x)), x.full(self.size(x))
        for row, warp, lane in threads_of(x):
            at, count = int(target[row, lane]), int(size[row, lane])
            sized(at, count)
            region_of(s.world, at, count, True, "bulk")

            def put(chunks: Array, at: int = at, count: int = count) -> None:
                region = region_of(s.world, at, count, True, "bulk")
                place = region.data[at - region.base : at - region.base + count]
                old = place.reshape(-1, 16)
                place[:] = (chunks if self.combine is None else self.combine(old, chunks)).reshape(-1)

            self.issue(warp, lane, int(source[row, lane]), count, 16, 0, put)


def commit(s: Sim) -> Plain:
    """cp.async.bulk.commit_group."""

    def run(x: Ctx) -> None:
        for _, warp, lane in threads_of(x):
            groups = s.engine.groups_of(warp, lane)
            groups.groups.append(groups.open)
            groups.open = []

    return run


def wait(s: Sim, inst: Inst, read: bool) -> Sync:
    """cp.async.bulk.wait_group; `read`: only until the sources are read."""
    count = inst.operands[0]
    if not isinstance(count, Imm):
        raise SimulationError("cp.async.bulk.wait_group needs an immediate")
    pending = count.value

    def late(warp: int, lane: int) -> bool:
        groups = s.engine.bulk.get((warp, lane))
        due = groups.groups[: max(0, len(groups.groups) - pending)] if groups is not None else []
        return any((job.reads > 0 if read else bool(job.parts)) for group in due for job in group)

    def ready(x: Ctx) -> Array | None:
        if not s.engine.bulk:
            return None
        out = np.ones(x.n, np.bool_)
        for row, warp, lane in threads_of(x):
            if out[row] and late(warp, lane):
                out[row] = False
                s.block(warp, x.active()[row], f"waits for its bulk groups (at most {pending} may be left)")
        return out

    def run(x: Ctx) -> None:
        for _, warp, lane in threads_of(x):
            groups = s.engine.bulk.get((warp, lane))
            if groups is None or len(groups.groups) <= pending:
                continue
            upto = groups.done + len(groups.groups) - pending
            groups.read = max(groups.read, upto)
            if s.san is not None:
                alone = np.zeros(32, np.bool_)
                alone[lane] = True
                s.san.learn(warp, s.san.room(s.san.agents.bulk(warp, lane)), upto, alone)
            if not read:
                del groups.groups[: len(groups.groups) - pending]
                groups.done = upto

    return Sync(ready, run)
