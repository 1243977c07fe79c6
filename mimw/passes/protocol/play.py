"""Plays the barrier operations of all tasks of one CTA through, to find the wait that never ends.

Scalars are computed with sample values for what is not known (arguments, grid); tiles and memory are left out. Where a value that is not known
decides on a barrier, or there are clusters, there is no verdict. A finding counts only when every sample has it: the code around the barriers decides
then, not the sample. Bounded in steps, so that a compile does not feel it; what lies past the bound is the simulators' business.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from mimw.diagnostics import CompilationError, Note
from mimw.ir.builder import wrap
from mimw.ir.core import Block, Function, OpBase, Value
from mimw.ir.opdef import ElementwiseOp
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.async_copy import BulkLoadOp, TmaLoadOp
from mimw.ir.ops.barrier import (
    BarrierAllocOp,
    BarrierArriveOp,
    BarrierExpectOp,
    BarrierViewOp,
    BarrierWaitOp,
    NamedArriveOp,
    NamedWaitOp,
)
from mimw.ir.ops.control import ForOp, IfOp, WhileOp
from mimw.ir.ops.task import PartitionOp
from mimw.ir.types import DType, element_of
from mimw.passes.folding import fold
from mimw.passes.protocol.static import barrier_name, copied_bytes
from mimw.passes.tasks import TaskMap

_STEPS = 5000
_SAMPLES = ((512, 6), (320, 2))
"""Values of unknown integer arguments, and of the grid's sizes."""
_ACTORS = (BarrierWaitOp, BarrierArriveOp, BarrierExpectOp, NamedArriveOp, NamedWaitOp, TmaLoadOp, BulkLoadOp)
_ELSEWHERE = ("cluster.", "barrier.remote_view")

Env = dict[Value, Any]
Wait = BarrierWaitOp | NamedWaitOp
Steps = Generator[None, None, tuple[str, list[Any]]]


class _NoVerdictError(Exception):
    """Something that is not known decides, or the bound is reached."""


class _Finding:
    """What went wrong, as the parts of an error."""

    __slots__ = ("code", "hint", "loc", "message", "notes")

    def __init__(self, code: str, message: str, loc: Any, notes: list[Note], hint: str | None) -> None:
        self.code = code
        self.message = message
        self.loc = loc
        self.notes = notes
        self.hint = hint


def check(fn: Function) -> None:
    """Raise `CompilationError` when the tasks cannot come to their end."""
    if any(op.name.startswith(_ELSEWHERE) or getattr(op, "multicast", None) is not None for op in fn.walk()):
        return
    found: _Finding | None = None
    for number, grid in _SAMPLES:
        this = _play(fn, number, grid)
        if this is None or (found is not None and this.code != found.code):
            return
        found = found or this
    if found is not None:
        raise CompilationError(found.code, found.message, found.loc, notes=found.notes, hint=found.hint)


def _play(fn: Function, number: int, grid: int) -> _Finding | None:
    try:
        return _Play(fn, number, grid).run()
    except _NoVerdictError:
        return None
    except _FoundError as e:
        return e.finding


class _FoundError(Exception):
    """A finding in the middle of the play."""

    def __init__(self, finding: _Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Bar:
    """One mbarrier."""

    __slots__ = ("alloc", "arrived", "brought", "expected", "index", "phase")

    def __init__(self, alloc: BarrierAllocOp, index: int) -> None:
        self.alloc = alloc
        self.index = index
        self.phase = 0
        self.arrived = self.expected = self.brought = 0

    def settle(self) -> None:
        """Complete the phase when everything is there."""
        if self.arrived >= self.alloc.type.arrive_count and self.expected == self.brought:
            self.phase += 1
            self.arrived = self.expected = self.brought = 0

    def passed(self, parity: int) -> bool:
        """Whether a wait for the phase of that parity goes on."""
        return (self.phase - 1) & 1 == parity & 1

    @property
    def name(self) -> str:
        """In messages."""
        return barrier_name(self.alloc) + (f"[{self.index}]" if self.alloc.type.count > 1 else "")

    def state(self) -> str:
        """What has come in this phase."""
        before = f"{self.phase} phase{'' if self.phase == 1 else 's'} complete, then " if self.phase else ""
        text = f"{before}{self.arrived} of {self.alloc.type.arrive_count} arrivals"
        if self.expected or self.brought:
            text += f", {self.brought} of {self.expected} bytes"
        return text


class _Agent:
    """A task that is being played."""

    __slots__ = ("blocked", "done", "name", "steps", "warps")

    def __init__(self, name: str, warps: int) -> None:
        self.name = name
        self.warps = warps
        self.steps: Steps | None = None
        self.blocked: tuple[Wait, Any, int] | None = None
        self.done = False


class _Play:
    """One CTA with one set of sample values."""

    def __init__(self, fn: Function, number: int, grid: int) -> None:
        self.fn = fn
        self.grid = grid
        self.steps = 0
        self.bars: dict[BarrierAllocOp, list[_Bar]] = {}
        self.named: dict[int, list[int]] = {}  # number -> [threads there, round]
        self.matters: dict[OpBase, bool] = {}
        tasks = TaskMap(fn)
        self.agents = [_Agent(name, warps) for name, warps in zip(tasks.names, tasks.warps, strict=True)]
        self.env: Env = {}
        for a, v in zip(fn.arguments, fn.block.args, strict=True):
            integer = isinstance(v.type, DType) and v.type.kind in ("int", "uint") and v.type.bits >= 16
            self.env[v] = max(1, number // a.divisor) * a.divisor if integer else None

    def run(self) -> _Finding | None:
        """Until all are done or nobody can go on."""
        self.agents[0].steps = self.block(self.fn.block, self.env, self.agents[0])
        while True:
            moved = False
            for agent in self.agents:
                if agent.steps is None or agent.done or not self.free(agent):
                    continue
                agent.blocked = None
                moved = True
                try:
                    next(agent.steps)
                except StopIteration:
                    agent.done = True
            if not moved:
                break
        stuck = [a for a in self.agents if a.blocked is not None and not a.done]
        return _report(stuck) if stuck else None

    def free(self, agent: _Agent) -> bool:
        """Whether an agent can go on."""
        if agent.blocked is None:
            return True
        _, what, value = agent.blocked
        if isinstance(what, _Bar):
            return what.passed(value)
        return self.named[what][1] != value

    # ------------------------------------------------------------------------------------------------------ control flow

    def block(self, block: Block, env: Env, agent: _Agent) -> Steps:
        """Run a block; how it is left, and with which values."""
        for op in block.ops:
            self.steps += 1
            if self.steps > _STEPS:
                raise _NoVerdictError
            if op.spec.terminator:
                return op.name, [env.get(v) for v in op.operands]
            if op.regions:
                if not self.has_actors(op):
                    continue  # its results are not known
                left = yield from self.region_op(op, env, agent)
                if left is not None:
                    return left
            elif isinstance(op, _ACTORS):
                yield from self.act(op, env, agent)
            else:
                self.scalar(op, env)
        return "", []

    def has_actors(self, op: OpBase) -> bool:
        """Whether an op with regions does something with barriers (or may leave)."""
        found = self.matters.get(op)
        if found is None:
            found = self.matters[op] = any(
                isinstance(o, _ACTORS) or o.name in ("control.break", "control.continue", "control.return")
                for o in op.walk()
            )
        return found

    def region_op(self, op: OpBase, env: Env, agent: _Agent) -> Generator[None, None, tuple[str, list[Any]] | None]:
        if isinstance(op, PartitionOp):
            for other, region in zip(self.agents[1:], op.regions[1:], strict=True):
                other.steps = self.block(region.block, dict(env), other)
            yield from self.block(op.regions[0].block, env, agent)
            return None
        if isinstance(op, ForOp):
            return (yield from self.for_loop(op, env, agent))
        if isinstance(op, WhileOp):
            return (yield from self.while_loop(op, env, agent))
        if isinstance(op, IfOp):
            cond = known(env.get(op.cond))
            how, values = yield from self.block((op.then if cond else op.orelse).block, env, agent)
        elif op.name == "control.inlined":
            how, values = yield from self.block(op.regions[0].block, env, agent)
            how = "control.yield" if how == "control.return" else how
        else:
            raise _NoVerdictError
        if how != "control.yield":
            return how, values
        env.update(zip(op.results, values, strict=True))
        return None

    def for_loop(self, op: ForOp, env: Env, agent: _Agent) -> Generator[None, None, tuple[str, list[Any]] | None]:
        lower, upper, step = (known(env.get(v)) for v in (op.lower, op.upper, op.step))
        carried = [env.get(v) for v in op.inits]
        body = op.body.block
        for i in range(lower, upper, step or 1):
            env.update(zip(body.args, [i, *carried], strict=True))
            how, carried = yield from self.block(body, env, agent)
            if how == "control.break":
                break
            if how == "control.return":
                return how, carried
        env.update(zip(op.outs, carried, strict=True))
        return None

    def while_loop(self, op: WhileOp, env: Env, agent: _Agent) -> Generator[None, None, tuple[str, list[Any]] | None]:
        carried = [env.get(v) for v in op.inits]
        while True:
            env.update(zip(op.condition.block.args, carried, strict=True))
            _, test = yield from self.block(op.condition.block, env, agent)
            if not known(test[0]):
                break
            env.update(zip(op.body.block.args, carried, strict=True))
            how, carried = yield from self.block(op.body.block, env, agent)
            if how == "control.break":
                break
            if how == "control.return":
                return how, carried
        env.update(zip(op.outs, carried, strict=True))
        return None

    # ------------------------------------------------------------------------------------------------------------- values

    def scalar(self, op: OpBase, env: Env) -> None:
        """The value of a scalar op, where it can be known."""
        if isinstance(op, BarrierAllocOp):
            bars = self.bars[op] = [_Bar(op, i) for i in range(max(1, op.type.count))]
            env[op.result] = bars if op.type.count else bars[0]
        elif isinstance(op, BarrierViewOp):
            bars = env.get(op.barriers)
            index = known(env.get(op.index))
            if not isinstance(bars, list) or not 0 <= index < len(bars):  # pyright: ignore[reportUnknownArgumentType]
                raise _NoVerdictError
            env[op.result] = bars[index]
        elif isinstance(op, ConstantOp):
            env[op.result] = op.value if isinstance(op.result.type, DType) else None
        elif op.name == "control.program_id":
            env[op.results[0]] = 0
        elif op.name == "control.num_programs":
            env[op.results[0]] = self.grid
        elif op.results and isinstance(op.results[0].type, DType):
            env[op.results[0]] = _computed(op, [env.get(v) for v in op.operands])

    # ------------------------------------------------------------------------------------------------------------ barriers

    def act(self, op: OpBase, env: Env, agent: _Agent) -> Generator[None, None, None]:
        """A barrier operation; yields while it cannot go on."""
        if isinstance(op, (NamedWaitOp, NamedArriveOp)):
            yield from self.meet(op, env, agent)
            return
        pred: Value | None = getattr(op, "pred", None)
        if pred is not None and not known(env.get(pred)):
            return
        bar = env.get(op.barrier)  # type: ignore[attr-defined]
        if not isinstance(bar, _Bar):
            raise _NoVerdictError
        if isinstance(op, BarrierWaitOp):
            agent.blocked = (op, bar, known(env.get(op.phase)))
            while not self.free(agent):
                yield
            agent.blocked = None
            return
        if isinstance(op, BarrierArriveOp):
            bar.arrived += op.count * (32 * agent.warps if bar.alloc.per_thread else 1)
        elif isinstance(op, BarrierExpectOp):
            bar.arrived += 1
            bar.expected += op.bytes
        else:
            size = copied_bytes(op)
            if size is None:
                raise _NoVerdictError
            bar.brought += size
        if bar.arrived > bar.alloc.type.arrive_count:
            raise _FoundError(_too_many(op, bar, agent))
        bar.settle()

    def meet(self, op: NamedWaitOp | NamedArriveOp, env: Env, agent: _Agent) -> Generator[None, None, None]:
        number = op.number if op.id is None else known(env.get(op.id))
        there = self.named.setdefault(number, [0, 0])
        there[0] += 32 * agent.warps
        this = there[1]
        if there[0] >= op.count:
            there[0] = 0
            there[1] += 1
        if isinstance(op, NamedWaitOp) and there[1] == this:
            agent.blocked = (op, number, this)
            while not self.free(agent):
                yield
            agent.blocked = None


def known(value: Any) -> int:
    """A value that decides something; no verdict when it is not known."""
    if isinstance(value, (bool, int)):
        return int(value)
    raise _NoVerdictError


def _computed(op: OpBase, values: list[Any]) -> int | None:
    if any(not isinstance(v, (bool, int)) for v in values):
        return None
    numbers = [int(v) for v in values]
    e = element_of(op.results[0].type)
    if isinstance(op, CastOp):
        value = wrap(numbers[0], e) if isinstance(e, DType) and e.kind != "float" else None
        return None if value is None else int(value)
    if op.name == "arith.hint":
        return numbers[0]
    source = element_of(op.operands[-1].type)
    if isinstance(op, ElementwiseOp) and isinstance(source, DType) and source.kind != "float":
        value = fold(op.name, numbers, source)
        return None if value is None else int(value)
    return None


# ------------------------------------------------------------------------------------------------------------ the report


def _too_many(op: OpBase, bar: _Bar, agent: _Agent) -> _Finding:
    notes = [Note("the barrier", bar.alloc.loc)]
    if bar.expected != bar.brought:
        text = f"{bar.name} expects {bar.expected} bytes, but the copies on it brought {bar.brought} before {agent.name} arrives again"
        return _Finding("barrier-bytes", text, op.loc, notes, None)
    text = f"{bar.arrived} arrivals come on {bar.name} in one phase, which takes {bar.alloc.type.arrive_count}"
    hint = "let the task wait for the phase before it arrives again, or raise arrive_count"
    return _Finding("barrier-arrivals", text, op.loc, notes, hint)


def _report(stuck: list[_Agent]) -> _Finding:
    lines: list[str] = []
    hint: str | None = None
    code = "deadlock"
    for agent in stuck:
        assert agent.blocked is not None
        op, what, value = agent.blocked
        if not isinstance(what, _Bar):
            lines.append(f"  {agent.name} (line {op.loc.line}): at named barrier {what}, where not all threads come")
            continue
        lines.append(f"  {agent.name} (line {op.loc.line}): for {what.name}, phase {value & 1}; {what.state()}")
        if what.expected != what.brought and what.arrived:
            code = "barrier-bytes"
            hint = f"{what.name} expects {what.expected} bytes, the copies on it brought {what.brought}"
        elif hint is None and not what.phase and not what.arrived and not value & 1 and len(stuck) > 1:
            hint = "a fresh barrier has completed the phase of parity 1: a first wait that has to pass at once waits for phase 1"
    first = stuck[0].blocked
    assert first is not None
    who = "every task that is not done waits" if len(stuck) > 1 else f"{stuck[0].name} waits"
    notes = [Note(f"{a.name} waits here", a.blocked[0].loc) for a in stuck[1:] if a.blocked is not None]
    return _Finding(code, f"{who} for a barrier that does not complete\n" + "\n".join(lines), first[0].loc, notes, hint)
