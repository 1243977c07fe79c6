"""Barriers of a CTA or a cluster (bar, barrier), and what counts as together in a warp. Named barriers count warps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst, Operand, Reg
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.registry import Step, Sync, executes
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import DEAD, Ctx


def together(s: Sim) -> Callable[[Ctx], Array | None]:
    """Ready when all living lanes of the warp are here (`.aligned` instructions)."""

    def ready(x: Ctx) -> Array | None:
        if x.mask is None:
            return None
        return ~(s.live(x) & ~x.mask).any(axis=1)

    return ready


def uniform(s: Sim, x: Ctx, value: Array, what: str) -> list[int]:
    """One int per warp from a register that all executing lanes of a warp must agree on."""
    full = x.full(value)
    if x.mask is None:
        if (full != full[:, :1]).any():
            raise SimulationError(f"{what} differs between lanes of a warp", where=s.m.where(x, full != full[:, :1]))
        return [int(v) for v in full[:, 0]]
    first = full[np.arange(x.n), x.mask.argmax(axis=1)]
    bad = x.mask & (full != first[:, None])
    if bad.any():
        raise SimulationError(f"{what} differs between lanes of a warp", where=s.m.where(x, bad))
    return [int(v) for v in first]


# -- named barriers -----------------------------------------------------------------------------------------------


@executes("bar", "barrier")
def _bar(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] == "warp":
        return warp_sync(s, inst.operands[0])
    if mods[0] == "cluster":
        return _cluster_barrier(s, inst, mods)
    kind = next(mod for mod in mods if mod in ("sync", "arrive", "red"))
    if kind == "red":
        return _bar_red(s, inst, mods)
    number = s.m.rd(inst.operands[0], "u32")
    count = s.m.rd(inst.operands[1], "u32") if len(inst.operands) > 1 else None

    def run(x: Ctx) -> None:
        ids = uniform(s, x, number(x), "the barrier id")
        counts = [0] * x.n if count is None else uniform(s, x, count(x), "the barrier's thread count")
        for warp, ident, threads in zip(x.warps.tolist(), ids, counts, strict=False):
            s.join(warp, ident, threads, kind == "sync")

    return Sync(together(s), run)


def _bar_red(s: Sim, inst: Inst, mods: list[str]) -> Step:
    op, kind = next(m for m in mods if m in ("popc", "and", "or")), mods[-1]
    number = s.m.rd(inst.operands[1], "u32")
    count = s.m.rd(inst.operands[2], "u32") if len(inst.operands) > 3 else None
    source, put = s.m.rd(inst.operands[-1], "pred"), s.m.wr(inst.operands[0], "u32" if kind == "u32" else "pred")

    def run(x: Ctx) -> None:
        ids = uniform(s, x, number(x), "the barrier id")
        counts = [0] * x.n if count is None else uniform(s, x, count(x), "the barrier's thread count")
        votes = x.full(source(x)) & x.active()
        for i, warp in enumerate(x.warps.tolist()):
            s.votes[warp] = (int(votes[i].sum()), int(x.active()[i].sum()))
            s.join(warp, ids[i], counts[i], True, deliver)

    def deliver(warps: list[int]) -> None:
        total, threads = sum(s.votes[w][0] for w in warps), sum(s.votes[w][1] for w in warps)
        value = total if op == "popc" else int(total == threads if op == "and" else total > 0)
        rows = np.array(sorted(warps))
        lanes = s.pcs[rows] < DEAD
        put(
            Ctx(rows, None if lanes.all() else lanes),
            np.array([[value]]).astype(np.uint32 if kind == "u32" else np.bool_),
        )

    return Sync(together(s), run)


def warp_sync(s: Sim, mask_op: Operand) -> Sync:
    """bar.warp.sync: waits for its members, and orders their accesses."""

    def run(x: Ctx) -> None:
        if s.san is not None:
            s.san.warp_sync(x.warps, x.active())

    return Sync(members_ready(s, mask_op), run)


def members_ready(s: Sim, mask_op: Operand) -> Callable[[Ctx], Array | None]:
    """Ready when every living lane in the member mask of each executing lane executes too."""
    get = s.m.rd(mask_op, "u32")
    weights = np.uint32(1) << np.arange(32, dtype=np.uint32)

    def ready(x: Ctx) -> Array | None:
        members = x.full(get(x))
        if isinstance(mask_op, Reg) or x.mask is not None:
            active = x.active()
            absent = active & ((members & weights) == 0)
            if absent.any():
                raise SimulationError("the executing lane is not in its member mask", where=s.m.where(x, absent))
        if x.mask is None:
            return None
        missing = ((s.live(x) & ~x.mask) * weights).sum(axis=1, dtype=np.uint32)
        return ~((members & missing[:, None]) != 0).any(axis=1, where=x.mask)

    return ready


def _cluster_barrier(s: Sim, inst: Inst, mods: list[str]) -> Step:
    """The cluster barrier: arrive and wait apart, counted by threads; without .aligned lanes may come one by one."""
    ready: Callable[[Ctx], Array | None] = together(s) if "aligned" in mods else lambda x: None
    releases = "relaxed" not in mods

    def arrive(x: Ctx) -> None:
        for warp, lanes in zip(x.warps.tolist(), x.active(), strict=True):
            s.clusters.arrive(warp, lanes, releases)

    def wait(x: Ctx) -> None:
        for warp, lanes in zip(x.warps.tolist(), x.active(), strict=True):
            s.clusters.wait(warp, lanes)

    return Sync(ready, arrive if mods[1] == "arrive" else wait)
