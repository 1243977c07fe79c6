"""Barriers of a CTA (bar, barrier, mbarrier), fences, and what counts as together in a warp.

Named barriers count warps. mbarrier objects live here, keyed by CTA and address; their eight bytes of shared memory stay
untouched. A waiting try_wait sleeps until its phase completes: a wait that nobody can end is a reported deadlock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst, Operand, Reg, Sink
from mimw.sim.ptx.barriers import MBarrier
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import SHARED_START, SHARED_WINDOW
from mimw.sim.ptx.ops.access import address
from mimw.sim.ptx.registry import Plain, Step, Sync, executes, not_yet
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
    """bar.warp.sync and the convergence of every `.sync` instruction with a member mask."""
    return Sync(members_ready(s, mask_op), lambda x: None)


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
    """Clusters of one CTA: a barrier of the CTA with separate arrive and wait, kept as named barrier 16."""
    if mods[1] == "arrive":

        def arrive(x: Ctx) -> None:
            for warp in x.warps.tolist():
                s.cluster_arrive(warp)

        return Sync(together(s), arrive)

    def wait(x: Ctx) -> None:
        for warp in x.warps.tolist():
            s.cluster_wait(warp)

    return Sync(together(s), wait)


# -- fences -------------------------------------------------------------------------------------------------------


@executes("fence", "membar")
def _fence(s: Sim, inst: Inst, mods: list[str]) -> Step:
    name = inst.opcode
    proxied = mods[0] == "proxy" and mods[1] == "async" and (len(mods) < 3 or not mods[2].startswith("global"))

    def run(x: Ctx) -> None:
        s.fences[name] += x.n
        if proxied and s.san is not None:
            s.san.fence_async(x.warps, x.active())

    return run


# -- mbarrier -----------------------------------------------------------------------------------------------------


def lanes_at(s: Sim, x: Ctx, addr: Array) -> list[tuple[int, int, Array]]:
    """(warp, shared offset, lanes) for each different mbarrier address that lanes of the group name."""
    full, active = x.full(addr), x.active()
    out: list[tuple[int, int, Array]] = []
    for i, warp in enumerate(x.warps.tolist()):
        for value in np.unique(full[i][active[i]]).tolist():
            offset = value - SHARED_WINDOW if value >= SHARED_WINDOW else value
            out.append((warp, offset, active[i] & (full[i] == value)))
            if offset % 8 or not SHARED_START <= offset <= s.mem.shared_end - 8:
                raise SimulationError(f"mbarrier address {offset:#x} is misaligned or outside shared memory")
    return out


def barrier_at(s: Sim, warp: int, offset: int) -> MBarrier:
    """The mbarrier object at an address; it must have been initialised, and that must be known to the warp."""
    found = s.mbarriers.get((warp // s.m.warps_per_cta, offset))
    if found is None:
        raise SimulationError(f"the mbarrier at {offset:#x} was not initialised", where=s.m.warp_name(warp))
    if s.san is not None and found.init_epoch > s.san.clock[warp, found.init_warp % s.m.warps_per_cta]:
        raise SimulationError(
            f"the mbarrier at {offset:#x} is used without a barrier after its mbarrier.init by warp"
            f" {found.init_warp % s.m.warps_per_cta}",
            where=s.m.warp_name(warp),
        )
    return found


@executes("mbarrier")
def _mbarrier(s: Sim, inst: Inst, mods: list[str]) -> Step:
    makers: dict[str, Callable[[Sim, Inst, list[str]], Step]] = {
        "init": _init, "inval": _inval, "arrive": _arrive, "arrive_drop": _arrive, "expect_tx": _expect,
        "complete_tx": _complete, "test_wait": _wait, "try_wait": _wait, "pending_count": _pending,
    }  # fmt: skip
    return makers[mods[0]](s, inst, mods)


def _init(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    addr, count = address(s, inst.operands[0]), s.m.rd(inst.operands[1], "u32")

    def run(x: Ctx) -> None:
        values = x.full(count(x))
        for i, (warp, offset, lanes) in enumerate(lanes_at(s, x, addr(x))):
            row = int(np.nonzero(x.warps == warp)[0][0])
            number = int(values[row][lanes.argmax()])
            if not 1 <= number < 1 << 20:
                raise SimulationError(f"mbarrier count {number} is not in 1..2^20-1")
            if lanes.sum() > 1:
                raise SimulationError(
                    f"{int(lanes.sum())} lanes initialise the same mbarrier", where=s.m.thread(warp, i)
                )
            made = MBarrier(number)
            if s.san is not None:
                made.init_warp, made.init_epoch = warp, int(s.san.clock[warp, warp % s.m.warps_per_cta])
            s.mbarriers[warp // s.m.warps_per_cta, offset] = made

    return run


def _inval(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    addr = address(s, inst.operands[0])

    def run(x: Ctx) -> None:
        for warp, offset, _ in lanes_at(s, x, addr(x)):
            barrier_at(s, warp, offset)
            del s.mbarriers[warp // s.m.warps_per_cta, offset]

    return run


def _arrive(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    expects, drops = "expect_tx" in mods, mods[0] == "arrive_drop"
    has_result = inst.num_results > 0 or (len(inst.operands) > 1 and isinstance(inst.operands[0], (Reg, Sink)))
    rest = inst.operands[1:] if has_result else inst.operands
    addr = address(s, rest[0])
    extra = s.m.rd(rest[1], "u32") if len(rest) > 1 else None
    put = s.m.wr(inst.operands[0], "b64") if has_result else None

    def run(x: Ctx) -> None:
        amounts = x.full(extra(x)) if extra is not None else np.full((x.n, 32), 0 if expects else 1)
        state = np.zeros((x.n, 32), np.uint64)
        for warp, offset, lanes in lanes_at(s, x, addr(x)):
            bar = barrier_at(s, warp, offset)
            row = int(np.nonzero(x.warps == warp)[0][0])
            state[row][lanes] = bar.phase
            total = int(amounts[row][lanes].astype(np.int64).sum())
            if expects:
                bar.tx += total
            s.mbarrier_arrive(warp, offset, bar, int(lanes.sum()) if expects or extra is None else total, drops)
        if put is not None:
            put(x, state)

    return run


def _expect(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    return _transactions(s, inst, 1)


def _complete(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    return _transactions(s, inst, -1)


def _transactions(s: Sim, inst: Inst, sign: int) -> Plain:
    addr, amount = address(s, inst.operands[0]), s.m.rd(inst.operands[1], "u32")

    def run(x: Ctx) -> None:
        amounts = x.full(amount(x))
        for warp, offset, lanes in lanes_at(s, x, addr(x)):
            bar = barrier_at(s, warp, offset)
            row = int(np.nonzero(x.warps == warp)[0][0])
            bar.tx += sign * int(amounts[row][lanes].astype(np.int64).sum())
            s.mbarrier_check(bar)

    return run


def _pending(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    raise not_yet("mbarrier.pending_count")


def _wait(s: Sim, inst: Inst, mods: list[str]) -> Step:
    parity, blocking = "parity" in mods, mods[0] == "try_wait"
    addr, want = address(s, inst.operands[1]), s.m.rd(inst.operands[2], "u32" if parity else "u64")
    put = s.m.wr(inst.operands[0], "pred")

    def done(warp: int, bar: MBarrier, value: int) -> bool:
        return (bar.phase & 1) != value if parity else bar.phase != value

    def ready(x: Ctx) -> Array | None:
        out, values = np.ones(x.n, np.bool_), x.full(want(x))
        for warp, offset, lanes in lanes_at(s, x, addr(x)):
            bar = barrier_at(s, warp, offset)
            row = int(np.nonzero(x.warps == warp)[0][0])
            value = int(values[row][lanes.argmax()])
            if parity and value > 1:
                raise SimulationError(f"mbarrier parity {value}: 0 or 1", where=s.m.warp_name(warp))
            if not done(warp, bar, value):
                out[row] = False
                bar.waiters.add(warp)
                what = f"parity {value}" if parity else f"the end of phase {value}"
                pending = f"{bar.pending} arrivals and {bar.tx} bytes are missing"
                s.block(warp, lanes, f"waits for {what} of the mbarrier at {offset:#x} (phase {bar.phase}: {pending})")
        return out

    def run(x: Ctx) -> None:
        result, values = np.zeros((x.n, 32), np.bool_), x.full(want(x))
        for warp, offset, lanes in lanes_at(s, x, addr(x)):
            bar = barrier_at(s, warp, offset)
            row = int(np.nonzero(x.warps == warp)[0][0])
            good = done(warp, bar, int(values[row][lanes.argmax()]))
            result[row][lanes] = good
            if good:
                s.mbarrier_observe(warp, bar)
        put(x, result)
        if not result.all(where=x.active()):
            s.step_aside(x)

    return Sync(ready, run) if blocking else run
