# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Where execution goes: branches, barriers, waits, the end; and hints that change nothing here (priority, sleep)."""

from __future__ import annotations

import re

import numpy as np

from mimw.sim.amdgcn.decode import VCC, Const, Inst, Reg, Word
from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.registry import Step, executes, family
from mimw.sim.amdgcn.state import Array, Ctx

# What a step returns instead of an index.
END = -1
BARRIER = -2
_COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt|vmcnt_sat|lgkmcnt_sat|expcnt_sat)\((\d+|0x[0-9a-fA-F]+)\)")


@executes("s_branch")
def _branch(d: Operands) -> Step:
    target = d.sim.program.target(d.sim.index)
    return lambda x: target


@family(r"s_cbranch_(scc0|scc1|vccz|vccnz|execz|execnz)")
def _cbranch(d: Operands, match: re.Match[str]) -> Step:
    here, target, m = d.sim.index, d.sim.program.target(d.sim.index), d.m
    what = match[1]
    if what.startswith("vcc"):
        d.mask_src(Reg("s", VCC, 2))

    def taken(x: Ctx) -> Array:
        if what.startswith("scc"):
            return m.scc[x.sel] == (what == "scc1")
        if what.startswith("exec"):
            return m.exec[x.sel].any(axis=1) == (what == "execnz")
        return ((m.read_scalar(x, VCC) | m.read_scalar(x, VCC + 1)) != 0) == (what == "vccnz")

    def run(x: Ctx) -> int | Array | None:
        jump = taken(x)
        if jump.all():
            return target
        if not jump.any():
            return None
        return np.where(jump, target, here + 1)

    return run


@executes("s_endpgm", "s_endpgm_saved")
def _end(d: Operands) -> Step:
    return lambda x: END


@executes("s_barrier")
def _barrier(d: Operands) -> Step:
    return lambda x: BARRIER


def wait_counts(inst: Inst) -> tuple[int | None, int | None]:
    """(vmcnt, lgkmcnt) of an s_waitcnt, None where it sets no limit: words, or the gfx9 encoding as a number."""
    vm = lgkm = None
    for op in inst.operands:
        if isinstance(op, Const) and isinstance(op.value, int):
            vm = (op.value & 15) | (op.value >> 14 & 3) << 4
            lgkm = op.value >> 8 & 15
            return vm if vm < 63 else None, lgkm if lgkm < 15 else None
        found = _COUNT.fullmatch(op.text) if isinstance(op, Word) else None
        if found is None:
            if isinstance(op, Word) and op.text == "&":
                continue
            raise SimulationError(f"{op!r} is no wait", "unsupported", inst)
        value = int(found[2], 0)
        if found[1].startswith("vmcnt"):
            vm = value if value < 63 else None
        elif found[1].startswith("lgkmcnt"):
            lgkm = value if value < 15 else None
    return vm, lgkm


@executes("s_waitcnt")
def _waitcnt(d: Operands) -> Step:
    vm, lgkm = wait_counts(d.inst)
    waits = d.sim.waits
    return lambda x: waits.wait(x, vm, lgkm)


@executes("s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_ttracedata", "s_icache_inv", "s_inst_prefetch", "s_incperflevel",
          "s_decperflevel", "s_set_gpr_idx_off")  # fmt: skip
def _hint(d: Operands) -> Step:
    return lambda x: None


@executes("s_sendmsg", "s_sendmsghalt")
def _sendmsg(d: Operands) -> Step:
    """Messages go to nobody; they count on lgkmcnt like scalar reads."""
    sim = d.sim
    return lambda x: sim.waits.issue(x, "smem", d.inst, (), sim.time)


@executes("s_trap")
def _trap(d: Operands) -> Step:
    def run(x: Ctx) -> None:
        raise d.fault("s_trap: the program stopped itself")

    return run


@executes("s_getpc_b64")
def _getpc(d: Operands) -> Step:
    put, address = d.scalar_dst(0, "b64"), d.inst.address + 4
    value = np.array([address], np.uint64)
    return lambda x: put(x, value)


@executes("s_setpc_b64", "s_swappc_b64")
def _setpc(d: Operands) -> Step:
    swaps = d.inst.mnemonic == "s_swappc_b64"
    get = d.scalar(1 if swaps else 0, "u64")
    put = d.scalar_dst(0, "b64") if swaps else None
    back = np.array([d.inst.address + 4], np.uint64)
    places = d.sim.program.by_address

    def run(x: Ctx) -> Array:
        addresses = np.broadcast_to(get(x), x.n).tolist()
        if any(a not in places for a in addresses):
            raise d.fault("a jump to where no instruction begins")
        if put is not None:
            put(x, back)
        return np.array([places[a] for a in addresses])

    return run


@executes("s_call_b64")
def _call(d: Operands) -> Step:
    put, target = d.scalar_dst(0, "b64"), d.sim.program.target(d.sim.index)
    back = np.array([d.inst.address + 4], np.uint64)

    def run(x: Ctx) -> int:
        put(x, back)
        return target

    return run
