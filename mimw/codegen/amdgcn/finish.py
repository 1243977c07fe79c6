"""From SSA machine code to the flat body that is printed: every pass of the target after lowering, in order.

Owns the order and nothing else. The function that comes in is not changed.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.flatten import flatten
from mimw.codegen.amdgcn.allocation.regalloc import Budget, allocate, budget
from mimw.codegen.amdgcn.flat.early_m0 import set_m0_early
from mimw.codegen.amdgcn.flat.exec_masks import gather, set_exec_masks
from mimw.codegen.amdgcn.flat.merge_waits import merge_waits
from mimw.codegen.amdgcn.flat.nops import insert_nops
from mimw.codegen.amdgcn.flat.waitcnt import insert_waits
from mimw.codegen.amdgcn.registers import FIRST, SCALARS, units
from mimw.codegen.amdgcn.ssa.combine import combine
from mimw.codegen.amdgcn.ssa.early_masks import early_masks
from mimw.codegen.amdgcn.ssa.invariants import hoist
from mimw.codegen.amdgcn.ssa.pair_floats import pair_floats
from mimw.codegen.amdgcn.ssa.prepare import prepare
from mimw.codegen.amdgcn.ssa.schedule import schedule
from mimw.codegen.machine import FlatFunction, Function, Inst, Not, Reg
from mimw.target import Target


class Finished:
    """What allocation came to.

    `flat` is the body with physical registers; `vgprs`, `agprs`, `sgprs` count from register 0 to the last one used (SGPRs without VCC);
    `spilled_scalars` words lie in lanes of vector registers, `scratch_bytes` a lane in scratch memory.
    """

    __slots__ = ("agprs", "flat", "scratch_bytes", "sgprs", "spilled_scalars", "vgprs")

    def __init__(self, flat: FlatFunction, scratch_bytes: int, spilled_scalars: int) -> None:
        self.flat = flat
        self.scratch_bytes = scratch_bytes
        self.spilled_scalars = spilled_scalars
        highest = _highest(flat)
        self.sgprs, self.vgprs, self.agprs = highest["s"], highest["v"], highest["a"]


def finish(fn: Function, target: Target, *, waves: int, occupancy: int = 1, limits: Budget | None = None) -> Finished:
    """Physical registers, EXEC masks, wait counts and wait states for `fn`.

    `waves` a workgroup has, `occupancy` workgroups that shall fit on a compute unit together: they bound the registers of a wave
    (`regalloc.budget`), unless `limits` says them. Never fails for want of registers: what does not fit is spilled, and counted.
    """
    limits = limits if limits is not None else budget(waves, occupancy)
    ready = prepare(fn)
    combine(ready)
    pair_floats(ready)
    schedule(ready, limits.v + limits.a)
    hoist(ready, {"s": limits.s, "v": limits.v})
    early_masks(ready)
    gather(ready)
    found = allocate(ready, limits)
    flat = flatten(found)
    flat.body = set_m0_early(set_exec_masks(flat.body))
    flat.body = merge_waits(insert_waits(flat.body))
    flat.body = insert_nops(flat.body, target.name == "gfx950")
    return Finished(flat, found.frame.scratch_bytes, found.frame.lane_words)


def _highest(flat: FlatFunction) -> dict[str, int]:
    """How many registers of each file are used, counted from the first."""
    last = {"s": 0, "v": 0, "a": 0}
    names: set[str] = set()
    for item in flat.body:
        if isinstance(item, Inst):
            for operand in item.operands:
                reg = operand.reg if isinstance(operand, Not) else operand
                if isinstance(reg, Reg):
                    names.add(reg.name)
    for text in names:
        end = units(text).stop
        file = "s" if end <= FIRST["v"] else "v" if end <= FIRST["a"] else "a"
        if file != "s" or end <= SCALARS:
            last[file] = max(last[file], end - FIRST[file])
    return last
