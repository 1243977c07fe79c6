"""setmaxnreg and its pool of registers; addresses and ranks of a cluster's CTAs."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import FlatFunction, Imm, Inst
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import SHARED_START, SHARED_WINDOW
from mimw.sim.ptx.ops.sync import together
from mimw.sim.ptx.registry import Plain, Step, Sync, executes
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import RANK_SHIFT, Ctx

_REGISTERS = 65536


def entry_registers(fn: FlatFunction, threads: int) -> int:
    """Registers a thread has at entry when the text pins them, else 0: then ptxas ignores setmaxnreg (C7508)."""
    if "maxnreg" in fn.directives:
        return -(-fn.directives["maxnreg"][0] // 8) * 8
    if "minnctapersm" not in fn.directives:
        return 0
    per_thread = _REGISTERS // (fn.directives["minnctapersm"][0] * ((threads + 31) // 32 * 32))
    return min(per_thread // 8 * 8, 256)


@executes("setmaxnreg")
def _setmaxnreg(s: Sim, inst: Inst, mods: list[str]) -> Step:
    count, grows = inst.operands[0], mods[0] == "inc"
    if not isinstance(count, Imm) or count.value % 8 or not 24 <= count.value <= 256:
        raise SimulationError("setmaxnreg takes a multiple of 8 from 24 to 256", inst)
    wanted, entry = count.value, entry_registers(s.m.fn, s.m.threads)
    alone = together(s)
    if not entry:
        return Sync(alone, lambda x: None)

    def have(warp: int) -> int:
        return s.registers.get(warp, entry)

    def check(warp: int) -> None:
        held = have(warp)
        if (wanted < held) if grows else (wanted > held):
            raise SimulationError(
                f"setmaxnreg.{mods[0]} {wanted} in a warp that has {held} registers a thread", where=s.m.warp_name(warp)
            )

    def reason(cta: int, warp: int) -> str:
        free = s.free_registers.get(cta, 0)
        return f"waits for {wanted - have(warp)} more registers a thread of the CTA's pool ({free} are free)"

    def ready(x: Ctx) -> Array | None:
        first = alone(x)
        if not grows:
            return first
        out = np.ones(x.n, np.bool_) if first is None else first.copy()
        spent: dict[int, int] = {}
        for row, warp in enumerate(x.warps.tolist()):
            if not out[row]:
                continue
            check(warp)
            cta, need = warp // s.m.warps_per_cta, wanted - have(warp)
            if need + spent.get(cta, 0) <= s.free_registers.get(cta, 0):
                spent[cta] = spent.get(cta, 0) + need
                continue
            out[row] = False
            s.hungry.setdefault(cta, set()).add(warp)
            s.block(warp, x.active()[row], lambda cta=cta, warp=warp: reason(cta, warp))
        return out

    def run(x: Ctx) -> None:
        for warp in x.warps.tolist():
            check(warp)
            cta = warp // s.m.warps_per_cta
            s.free_registers[cta] = s.free_registers.get(cta, 0) + have(warp) - wanted
            s.registers[warp] = wanted
            for other in s.hungry.pop(cta, set()) if not grows else ():
                s.wake(other)

    return Sync(ready, run)


def _base(kind: str, mods: list[str]) -> int:
    return SHARED_WINDOW if kind == "u64" and "shared::cluster" not in mods else 0


@executes("mapa")
def _mapa(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    kind, base = mods[-1], _base(mods[-1], mods)
    a, rank, put = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], "u32"), s.m.wr(inst.operands[0], kind)

    def run(x: Ctx) -> None:
        ranks, at = x.full(rank(x)).astype(np.int64), x.full(a(x)).astype(np.int64) - base
        bad = x.active() & (ranks >= s.m.cluster)
        if bad.any():
            raise SimulationError(f"mapa to a rank outside the cluster of {s.m.cluster}", where=s.m.where(x, bad))
        offset = at & ((1 << RANK_SHIFT) - 1)
        bad = x.active() & ((at < 0) | (offset < SHARED_START) | (offset > s.mem.shared_end))
        if bad.any():
            raise SimulationError("mapa of an address outside shared memory", where=s.m.where(x, bad))
        put(x, ((ranks << RANK_SHIFT) + offset + base).astype(np.uint64 if kind == "u64" else np.uint32))

    return run


@executes("getctarank")
def _getctarank(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    kind, base = mods[-1], _base(mods[-1], mods)
    a, put = s.m.rd(inst.operands[1], kind), s.m.wr(inst.operands[0], "u32")

    def run(x: Ctx) -> None:
        put(x, ((x.full(a(x)).astype(np.int64) - base) >> RANK_SHIFT).astype(np.uint32))

    return run
