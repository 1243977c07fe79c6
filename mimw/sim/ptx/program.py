"""Decoding an entry: every instruction once into a step, guards included, and where straight-line runs end."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.codegen.machine import Inst, Label
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops import control
from mimw.sim.ptx.registry import DECODERS, Control, Plain, Step, Sync, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx, Getter


class Program:
    """`steps` by position, `leader` marks branch targets, `run_end[i]` is where a straight run from i stops."""

    __slots__ = ("leader", "run_end", "steps")

    def __init__(self, s: Sim) -> None:
        insts = s.insts
        self.steps: list[Step] = [decode(s, inst) for inst in insts]
        self.steps.append(Control(lambda x: control.DEAD))
        self.leader = [False] * (len(insts) + 1)
        for at in s.labels.values():
            self.leader[at] = True
        self.run_end = [0] * (len(insts) + 1)
        end = len(insts)
        for i in range(len(insts), -1, -1):
            if isinstance(self.steps[i], (Sync, Control)):
                end = i
            self.run_end[i] = end
            if self.leader[i]:
                end = i


def flatten(s: Sim) -> None:
    """Fill `s.insts` and `s.labels` from the entry's body."""
    for item in s.m.fn.body:
        if isinstance(item, Label):
            s.labels[item.name] = len(s.insts)
        elif isinstance(item, Inst):
            s.insts.append(item)


def decode(s: Sim, inst: Inst) -> Step:
    """The step of one instruction."""
    root, *mods = inst.opcode.split(".")
    decoder = DECODERS.get(root)
    try:
        if decoder is None:
            raise not_yet(f"instruction {inst.opcode}")
        step = decoder(s, inst, mods)
    except SimulationError as error:
        if error.inst is None:
            error.inst = inst
        raise
    except (KeyError, IndexError, ValueError, StopIteration) as error:
        raise SimulationError(f"form of {inst.opcode} is not known to the PTX simulator ({error!r})", inst) from error
    if inst.guard is None:
        return step
    guard = s.m.rd(inst.guard, "pred")
    if isinstance(step, Control):
        return _guarded_control(s, step, guard, inst.guard_neg)
    if isinstance(step, Sync):
        return _guarded_sync(s, step, guard, inst.guard_neg)
    return _guarded_plain(step, guard, inst.guard_neg)


def _lanes(x: Ctx, guard: Getter, negated: bool) -> Array:
    p = guard(x)
    p = ~p if negated else p
    return p if x.mask is None else p & x.mask


def _guarded_plain(step: Plain, guard: Getter, negated: bool) -> Plain:
    def run(x: Ctx) -> None:
        lanes = _lanes(x, guard, negated)
        if x.mask is None and lanes.all():
            step(x)
            return
        rows = lanes.any(axis=1)
        if not rows.any():
            return
        if not rows.all():
            lanes = lanes[rows]
            step(Ctx(x.warps[rows], None if lanes.all() else lanes))
            return
        saved = x.mask
        x.mask = lanes.copy()
        step(x)
        x.mask = saved

    return run


def _guarded_control(s: Sim, step: Control, guard: Getter, negated: bool) -> Control:
    def run(x: Ctx) -> Any:
        lanes = _lanes(x, guard, negated)
        following = s.pc + 1
        if not lanes.any():
            return following
        if x.mask is None and lanes.all():
            return step.run(x)
        saved = x.mask
        x.mask = lanes.copy()
        target = step.run(x)
        x.mask = saved
        if saved is not None and isinstance(target, int) and (lanes == saved).all():
            return target
        return np.where(lanes, target, following)

    return Control(run)


def _guarded_sync(s: Sim, step: Sync, guard: Getter, negated: bool) -> Sync:
    """A guarded waiting step: warps none of whose lanes take part pass at once."""

    def narrowed(x: Ctx) -> tuple[Array, Ctx] | None:
        lanes = _lanes(x, guard, negated)
        rows = lanes.any(axis=1)
        if not rows.any():
            return None
        part = lanes[rows]
        return rows, Ctx(x.warps[rows], None if part.all() else part)

    def ready(x: Ctx) -> Array | None:
        found = narrowed(x)
        if found is None:
            return None
        rows, inner = found
        answer = step.ready(inner)
        if answer is None:
            return None
        out = np.ones(x.n, np.bool_)
        out[rows] = answer
        return out

    def run(x: Ctx) -> None:
        found = narrowed(x)
        if found is not None:
            step.run(found[1])

    return Sync(ready, run)
