"""cp.async (not bulk): the data lands at once, but it belongs to the copier until cp.async.wait_group.

The sanitizer knows the copier as an agent of its own, so that a read before the wait, or in another warp before a barrier
after the wait, is a race. Groups are kept per warp: lanes of a warp commit and wait together.
"""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Imm, Inst, Reg
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import address
from mimw.sim.ptx.ops.bulk import bulk_copy
from mimw.sim.ptx.ops.mbarrier import spots_at
from mimw.sim.ptx.registry import Plain, Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx


@executes("cp")
def _cp(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if "bulk" in mods:
        return bulk_copy(s, inst, mods)
    if mods[0] != "async":
        raise not_yet(inst.opcode)
    if mods[1] == "commit_group":
        return _commit(s)
    if mods[1] in ("wait_group", "wait_all"):
        return _wait(s, inst, mods[1] == "wait_all")
    if mods[1] == "mbarrier":
        return _mbarrier_arrive(s, inst, "noinc" in mods)
    return _copy(s, inst)


def _epoch(s: Sim, warp: int) -> int:
    return s.copy_epoch.setdefault(warp, 1)


def _commit(s: Sim) -> Plain:
    def run(x: Ctx) -> None:
        for warp in x.warps.tolist():
            s.copy_epoch[warp] = _epoch(s, warp) + 1

    return run


def _wait(s: Sim, inst: Inst, everything: bool) -> Plain:
    pending = 0
    if not everything:
        count = inst.operands[0]
        if not isinstance(count, Imm):
            raise SimulationError("cp.async.wait_group needs an immediate")
        pending = count.value

    def run(x: Ctx) -> None:
        for warp in x.warps.tolist():
            done = _epoch(s, warp) - (0 if everything else 1 + pending)
            if everything:
                s.copy_epoch[warp] += 1
            if s.san is not None and done > 0:
                s.san.learn(warp, s.san.agents.copier(warp), done)

    return run


def _mbarrier_arrive(s: Sim, inst: Inst, no_increment: bool) -> Plain:
    addr = address(s, inst.operands[0])

    def run(x: Ctx) -> None:
        for spot in spots_at(s, x, addr(x), remote=False):
            count, epoch = int(spot.lanes.sum()), _epoch(s, spot.warp)
            if not no_increment:
                spot.bar.pending += count
            s.copy_epoch[spot.warp] = epoch + 1
            s.mbarrier_arrive(spot.warp, spot.lanes, spot.bar, count, copies=epoch)

    return run


def _copy(s: Sim, inst: Inst) -> Plain:
    at = inst.operands
    size = at[2]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16):
        raise SimulationError("cp.async copies 4, 8 or 16 bytes")
    total = size.value
    dst, src = address(s, at[0]), address(s, at[1])
    extra = at[3] if len(at) > 3 and not (isinstance(at[3], Reg) and at[3].cls in ("b64", "u64", "s64")) else None
    ignore = s.m.rd(extra, "pred") if isinstance(extra, Reg) and extra.cls == "pred" else None
    given = s.m.rd(extra, "u32") if extra is not None and ignore is None else None
    width = min(total, 8)

    def sizes(x: Ctx) -> Array | None:
        """Bytes that each lane really reads, or None when all read everything."""
        if ignore is not None:
            out = np.where(x.full(ignore(x)), 0, total)
        elif given is not None:
            out = x.full(given(x)).astype(np.int64)
        else:
            return None
        if (out[x.active()] > total).any():
            raise SimulationError(
                f"cp.async src-size is larger than {total}", where=s.m.where(x, x.active() & (out > total))
            )
        return None if (out[x.active()] == total).all() else out

    def fetch(x: Ctx) -> list[Array]:
        have, addr = sizes(x), src(x)
        if have is None:
            return s.mem.load(x, s.mem.locate(x, "global", addr, total, False), width, total // width)
        if ((have == 0) | (have == total))[x.active()].all():
            part = Ctx(x.warps, x.active() & (have == total))
            return s.mem.load(part, s.mem.locate(part, "global", addr, total, False), width, total // width)
        raw = np.zeros((x.n, 32, total), np.uint8)
        for k in range(total):
            part = Ctx(x.warps, x.active() & (have > k))
            access = s.mem.locate(part, "global", x.full(addr) + k, 1, False)
            raw[:, :, k] = s.mem.load(part, access, 1, 1)[0]
        words = raw.view(UNSIGNED[width * 8])
        return [np.ascontiguousarray(words[:, :, k]) for k in range(total // width)]

    def run(x: Ctx) -> None:
        values = fetch(x)
        access = s.mem.locate(x, "shared", dst(x), total, True)
        if s.san is not None:
            epochs = np.array([_epoch(s, warp) for warp in x.warps.tolist()])
            per_row = np.zeros(s.m.warps, np.int64)
            per_row[x.warps] = epochs
            for _, index, _, _ in access.parts:
                s.san.write(access.rows, access.lanes, index, total, s.pc, epochs=per_row[access.rows])
        s.mem.store(x, access, width, values)

    return run
