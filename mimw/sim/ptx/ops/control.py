"""Branches, exit, trap, and the instructions that only wait or only hint."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Imm, Inst, LabelRef
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.registry import Control, Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import DEAD, Ctx


def _target(s: Sim, op: object) -> int:
    if not isinstance(op, LabelRef) or op.name not in s.labels:
        raise SimulationError(f"unknown branch target {op!r}")
    return s.labels[op.name]


@executes("bra")
def _bra(s: Sim, inst: Inst, mods: list[str]) -> Step:
    target = _target(s, inst.operands[0])
    return Control(lambda x: target)


@executes("brx")
def _brx(s: Sim, inst: Inst, mods: list[str]) -> Step:
    index, table = inst.operands
    if not isinstance(table, LabelRef) or table.name not in s.m.fn.tables:
        raise SimulationError(f"unknown branch table {table!r}")
    targets = np.array([s.labels[name] for name in s.m.fn.tables[table.name]])
    get = s.m.rd(index, "u32")

    def run(x: Ctx) -> Array:
        at = x.full(get(x)).astype(np.int64)
        bad = x.active() & (at >= len(targets))
        if bad.any():
            raise SimulationError(f"brx.idx index outside its table of {len(targets)}", where=s.m.where(x, bad))
        return targets[np.minimum(at, len(targets) - 1)]

    return Control(run)


@executes("exit", "ret")
def _exit(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return Control(lambda x: DEAD)


@executes("trap", "brkpt")
def _trap(s: Sim, inst: Inst, mods: list[str]) -> Step:
    def run(x: Ctx) -> None:
        said = "".join(s.output).rstrip("\n").rpartition("\n")[2]
        note = f" (printed last: {said})" if said else ""
        raise SimulationError(f"{inst.opcode} was executed{note}", where=s.m.where(x, x.active()))

    return run


@executes("nanosleep")
def _nanosleep(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if isinstance(inst.operands[0], Imm) and inst.operands[0].value == 0:
        return lambda x: None
    return s.step_aside


@executes("prefetch", "prefetchu", "discard", "applypriority", "pmevent", "griddepcontrol")
def _nothing(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return lambda x: None


@executes("createpolicy")
def _createpolicy(s: Sim, inst: Inst, mods: list[str]) -> Step:
    put = s.m.wr(inst.operands[0], "b64")
    value = np.array([[0x12F0000000000000]], np.uint64)
    return lambda x: put(x, value)


@executes("alloca", "stacksave", "stackrestore")
def _call(s: Sim, inst: Inst, mods: list[str]) -> Step:
    raise not_yet(inst.opcode)
