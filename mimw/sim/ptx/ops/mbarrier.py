"""mbarrier: arrivals, transaction counts and waits, in the CTA's own shared memory and in that of its cluster.

The objects live in `Sim.mbarriers`, keyed by CTA and address; their eight bytes of shared memory stay untouched. A waiting
try_wait sleeps until its phase completes, or time passes (`Waiting.expire_waits`): a wait that nobody can end is a reported deadlock.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst, Reg, Sink
from mimw.sim.ptx.barriers import MBarrier
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.access import address
from mimw.sim.ptx.registry import Plain, Step, Sync, executes
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx


class Spot:
    """Lanes of one warp (row `row` of the group) that name one mbarrier."""

    __slots__ = ("bar", "lanes", "row", "warp")

    def __init__(self, row: int, warp: int, bar: MBarrier, lanes: Array) -> None:
        self.row, self.warp, self.bar, self.lanes = row, warp, bar, lanes


def _places(s: Sim, x: Ctx, addr: Array, remote: bool) -> list[tuple[int, int, int, int, Array]]:
    """(row, warp, CTA, offset, lanes) for each different mbarrier address that lanes of the group name."""
    full, active = x.full(addr), x.active()
    out: list[tuple[int, int, int, int, Array]] = []
    for i, warp in enumerate(x.warps.tolist()):
        for value in np.unique(full[i][active[i]]).tolist():
            cta, offset = s.mem.place(warp, value, 8, 8)
            if cta != warp // s.m.warps_per_cta and not remote:
                raise SimulationError(
                    f"an mbarrier of another CTA ({value:#x}): only arrive, expect_tx and complete_tx reach it",
                    where=s.m.warp_name(warp),
                )
            out.append((i, warp, cta, offset, active[i] & (full[i] == value)))
    return out


def barrier_of(s: Sim, warp: int, cta: int, offset: int, touches: bool = True) -> MBarrier:
    """The mbarrier object at an address; it must have been initialised, and that must be known to the warp.

    `touches`: the warp itself accesses it now (not a copy that it starts, later).
    """
    if touches:
        s.clusters.touch_from(warp, cta, s.pc)
    found = s.mbarriers.get((cta, offset))
    if found is None:
        what = "was overwritten by a copy" if (cta, offset) in s.overwritten else "was not initialised"
        raise SimulationError(f"the mbarrier at {offset:#x} {what}", where=s.m.warp_name(warp))
    if (
        s.san is not None
        and found.init_epoch > s.san.known_by(slice(warp, warp + 1))[found.init_warp % s.san.agents.warps]
    ):
        raise SimulationError(
            f"the mbarrier at {offset:#x} is used without a barrier after its mbarrier.init by"
            f" {s.m.warp_name(found.init_warp)}",
            where=s.m.warp_name(warp),
        )
    return found


def spots_at(s: Sim, x: Ctx, addr: Array, remote: bool) -> list[Spot]:
    """The mbarriers that the lanes of the group name; `remote`: those of other CTAs are allowed."""
    return [
        Spot(row, warp, barrier_of(s, warp, cta, offset), lanes)
        for row, warp, cta, offset, lanes in _places(s, x, addr, remote)
    ]


@executes("mbarrier")
def _mbarrier(s: Sim, inst: Inst, mods: list[str]) -> Step:
    makers: dict[str, Callable[[Sim, Inst, list[str]], Step]] = {
        "init": _init, "inval": _inval, "arrive": _arrive, "arrive_drop": _arrive, "expect_tx": _transactions,
        "complete_tx": _transactions, "test_wait": _wait, "try_wait": _wait, "pending_count": _pending,
    }  # fmt: skip
    return makers[mods[0]](s, inst, mods)


def _init(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    addr, count = address(s, inst.operands[0]), s.m.rd(inst.operands[1], "u32")

    def run(x: Ctx) -> None:
        values = x.full(count(x))
        for row, warp, cta, offset, lanes in _places(s, x, addr(x), False):
            number, lane = int(values[row][lanes.argmax()]), int(lanes.argmax())
            if not 1 <= number < 1 << 20:
                raise SimulationError(f"mbarrier count {number} is not in 1..2^20-1")
            if lanes.sum() > 1:
                raise SimulationError(
                    f"{int(lanes.sum())} lanes initialise the same mbarrier", where=s.m.thread(warp, lane)
                )
            _make(s, warp, lane, cta, offset, number)

    return run


def _make(s: Sim, warp: int, lane: int, cta: int, offset: int, count: int) -> None:
    made, old = MBarrier(count, cta, offset), s.mbarriers.get((cta, offset))
    if old is not None and old.waiters:
        raise SimulationError(
            f"the mbarrier at {offset:#x} is initialised again while {s.m.warp_name(min(old.waiters))} waits at it"
        )
    made.init_warp, made.init_lane = warp, lane
    if s.san is not None:
        made.init_epoch = s.san.now(warp)
        made.agent = s.san.room(s.san.agents.barrier(cta % s.m.cluster, offset))
        made.base = s.barrier_epochs.get((cta, offset), 0) if old is None else old.epoch
    s.mbarriers[cta, offset] = made
    s.overwritten.discard((cta, offset))
    s.unfenced.append(made)


def _inval(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    addr = address(s, inst.operands[0])

    def run(x: Ctx) -> None:
        for spot in spots_at(s, x, addr(x), remote=False):
            bar = spot.bar
            if bar.waiters or bar.tx:
                raise SimulationError(f"mbarrier.inval at {bar.offset:#x} in use ({bar.missing()})")
            s.barrier_epochs[bar.cta, bar.offset] = bar.epoch
            del s.mbarriers[bar.cta, bar.offset]

    return run


def _arrive(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    expects, drops, completes = "expect_tx" in mods, mods[0] == "arrive_drop", "noComplete" not in mods
    releases = "relaxed" not in mods
    has_result = inst.num_results > 0 or (len(inst.operands) > 1 and isinstance(inst.operands[0], (Reg, Sink)))
    rest = inst.operands[1:] if has_result else inst.operands
    addr = address(s, rest[0])
    extra = s.m.rd(rest[1], "u32") if len(rest) > 1 else None
    put = s.m.wr(inst.operands[0], "b64") if has_result and isinstance(inst.operands[0], Reg) else None
    remote = "shared::cluster" in mods or ("shared" not in mods and "shared::cta" not in mods)

    def run(x: Ctx) -> None:
        amounts = x.full(extra(x)) if extra is not None else np.full((x.n, 32), 0 if expects else 1)
        state = np.zeros((x.n, 32), np.uint64)
        for spot in spots_at(s, x, addr(x), remote):
            bar = spot.bar
            state[spot.row][spot.lanes] = bar.phase | bar.pending << 32
            total = int(amounts[spot.row][spot.lanes].astype(np.int64).sum())
            if expects:
                s.mbarrier_bytes(bar, total)
            count = int(spot.lanes.sum()) if expects or extra is None else total
            if not completes and count >= bar.pending:
                raise SimulationError(
                    f"mbarrier.arrive.noComplete would complete the phase of the mbarrier at {bar.offset:#x}",
                    where=s.m.warp_name(spot.warp),
                )
            s.mbarrier_arrive(spot.warp, spot.lanes, bar, count, drops, releases=releases)
        if put is not None:
            put(x, state)

    return run


def _transactions(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    sign = 1 if mods[0] == "expect_tx" else -1
    addr, amount = address(s, inst.operands[0]), s.m.rd(inst.operands[1], "u32")

    def run(x: Ctx) -> None:
        amounts = x.full(amount(x))
        for spot in spots_at(s, x, addr(x), remote=True):
            if s.san is not None:
                spot.bar.hear(s.san.release(spot.warp, spot.lanes))
            s.mbarrier_bytes(spot.bar, sign * int(amounts[spot.row][spot.lanes].astype(np.int64).sum()))
            s.mbarrier_check(spot.bar)

    return run


def _pending(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    put, state = s.m.wr(inst.operands[0], "u32"), s.m.rd(inst.operands[1], "u64")
    return lambda x: put(x, (state(x) >> np.uint64(32)).astype(np.uint32))


def _wait(s: Sim, inst: Inst, mods: list[str]) -> Step:
    parity, blocking, acquires = "parity" in mods, mods[0] == "try_wait", "relaxed" not in mods
    addr, want = address(s, inst.operands[1]), s.m.rd(inst.operands[2], "u32" if parity else "u64")
    put = s.m.wr(inst.operands[0], "pred")

    def done(bar: MBarrier, value: int) -> bool:
        return (bar.phase & 1) != value if parity else bar.phase != value & 0xFFFFFFFF

    def values_of(x: Ctx) -> list[tuple[Spot, int]]:
        values = x.full(want(x))
        if parity and not s.strict:
            values = values & np.uint32(1)  # ptxas shifts the parity left by 31 bits
        out = [(spot, int(values[spot.row][spot.lanes.argmax()])) for spot in spots_at(s, x, addr(x), remote=False)]
        for spot, value in out:
            if parity and value > 1:
                raise SimulationError(f"mbarrier parity {value}: 0 or 1", where=s.m.warp_name(spot.warp))
            if (values[spot.row][spot.lanes] != value).any():
                raise SimulationError(
                    "lanes of a warp wait for different phases of one mbarrier", where=s.m.warp_name(spot.warp)
                )
        return out

    def ready(x: Ctx) -> Array | None:
        out = np.ones(x.n, np.bool_)
        for spot, value in values_of(x):
            if not done(spot.bar, value) and spot.warp not in s.expired:
                out[spot.row] = False
                spot.bar.waiters.add(spot.warp)
                s.block(spot.warp, spot.lanes, _reason(spot.bar, f"parity {value}" if parity else "the phase's end"))
        return out

    def run(x: Ctx) -> None:
        result = np.zeros((x.n, 32), np.bool_)
        for spot, value in values_of(x):
            good = done(spot.bar, value)
            s.expired.discard(spot.warp)
            result[spot.row][spot.lanes] = good
            if good:
                s.mbarrier_observe(spot.warp, spot.lanes, spot.bar, acquires)
        put(x, result)
        if not result.all(where=x.active()):
            s.step_aside(x)

    return Sync(ready, run) if blocking else run


def _reason(bar: MBarrier, what: str) -> Callable[[], str]:
    return lambda: f"waits for {what} of the mbarrier at {bar.offset:#x} (phase {bar.phase}: {bar.missing()})"
