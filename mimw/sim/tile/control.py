"""Control flow and the place in the grid."""

from __future__ import annotations

from itertools import count

import numpy as np

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase
from mimw.sim.errors import SimulationError
from mimw.sim.tile.machine import BREAK, CONTINUE, RETURN, YIELD, Exit, Machine
from mimw.sim.tile.registry import executes


@executes("control.program_id")
def _program_id(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], np.array(m.pid[op.attrs["axis"]], np.int32))


@executes("control.num_programs")
def _num_programs(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], np.array(m.grid[op.attrs["axis"]], np.int32))


@executes("control.for")
def _for(m: Machine, op: OpBase) -> Exit | None:
    lower, upper, step = (m.env[v] for v in op.operands[:3])
    if int(step) == 0:
        raise SimulationError("zero-step", "the loop's step is zero")
    block = op.regions[0].block
    carried = op.operands[3:]
    trips, depth, name = m.clock.trips, len(m.clock.trips), block.args[0].name or "trip"
    for i in range(int(lower), int(upper), int(step)):
        trips[depth:] = [(name, i)]
        m.transfer(block.args[1:], carried)
        m.set(block.args[0], np.array(i, lower.dtype))
        exit = m.run_block(block)
        if exit.kind == RETURN:
            return exit
        carried = exit.values
        if exit.kind == BREAK:
            break
    del trips[depth:]
    m.transfer(op.results, carried)
    return None


@executes("control.while")
def _while(m: Machine, op: OpBase) -> Exit | None:
    condition, body = op.regions[0].block, op.regions[1].block
    carried = op.operands
    trips, depth = m.clock.trips, len(m.clock.trips)
    for trip in count():
        trips[depth:] = [("trip", trip)]
        before = [m.env[v] for v in condition.args] if trip else None
        m.transfer(condition.args, carried)
        if before is not None and all(_same(x, m.env[v]) for x, v in zip(before, condition.args, strict=True)):
            m.scheduler.poll(op.loc)  # a trip like the one before: only others can end this
        if not bool(m.env[m.run_block(condition).values[0]]):
            # The results come from the condition's arguments: what carried them may be bound anew by now.
            carried = condition.args
            break
        m.transfer(body.args, condition.args)
        exit = m.run_block(body)
        if exit.kind == RETURN:
            return exit
        carried = exit.values
        if exit.kind == BREAK:
            break
    del trips[depth:]
    m.transfer(op.results, carried)
    return None


def _same(a: object, b: object) -> bool:
    return a is b or (isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.array_equal(a, b))  # pyright: ignore[reportUnknownArgumentType]


@executes("control.if")
def _if(m: Machine, op: OpBase) -> Exit | None:
    side = op.regions[0] if bool(m.env[op.operands[0]]) else op.regions[1]
    exit = m.run_block(side.block)
    if exit.kind != YIELD:
        return exit
    m.transfer(op.results, exit.values)
    return None


@executes("control.inlined")
def _inlined(m: Machine, op: OpBase) -> None:
    exit = m.run_block(op.regions[0].block)
    if exit.kind not in (YIELD, RETURN):
        raise InternalError(f"an inlined body ends in {exit.kind}", op.loc)
    m.transfer(op.results, exit.values)


@executes("control.yield")
def _yield(m: Machine, op: OpBase) -> Exit:
    return Exit(YIELD, op.operands)


@executes("control.break")
def _break(m: Machine, op: OpBase) -> Exit:
    return Exit(BREAK, op.operands)


@executes("control.continue")
def _continue(m: Machine, op: OpBase) -> Exit:
    return Exit(CONTINUE, op.operands)


@executes("control.return")
def _return(m: Machine, op: OpBase) -> Exit:
    return Exit(RETURN, op.operands)


@executes("control.unreachable")
def _unreachable(m: Machine, op: OpBase) -> Exit:
    raise InternalError("control.unreachable was reached", op.loc)
