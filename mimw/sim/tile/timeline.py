"""A run with times: every task has a clock, ops move it on by what `speeds` says they cost, waits by what they wait for.

The scheduler runs whoever is earliest (`orders.Timed`), so that engines get their work in the order of time. What comes out are events:
stretches of work and of waiting of every task, and the jobs of every engine, CTA by CTA. Each CTA has an SM of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mimw.diagnostics import Loc
from mimw.ir.core import OpBase, Value
from mimw.sim.agents import Agent, Event, Job
from mimw.sim.tile.speeds import TENSOR_CORE, Speeds, cost, delay, engine_of, multiplications

if TYPE_CHECKING:
    from mimw.sim.tile.machine import Machine

_VISIBLE = ("barrier.", "async_copy.", "mma.", "atomic.", "cluster.", "task.")


class Timeline:
    """Keeps the times of one launch. `ctas`: how many CTAs are run at least, from the first on (whole groups of those that run together)."""

    def __init__(self, speeds: Speeds, ctas: int = 4) -> None:
        self.speeds = speeds
        self.ctas = ctas
        self.events: list[Event] = []
        self.free: dict[tuple[str, str], float] = {}
        self.ready: dict[tuple[int, Value], float] = {}
        self._last: dict[tuple[str, str], Event] = {}

    # -- the scheduler's stopwatch -------------------------------------------------------------------------------------

    def posted(self, job: Job, now: float) -> None:
        """An engine does its jobs one after another; the end of each takes a while to be seen."""
        if job.what.endswith("(write)") and job.after is not None:
            job.start = job.after.time
            job.time = job.start + self.speeds.latency[engine_of(job.what)]
            return
        engine = engine_of(job.what)
        rate = self.speeds.rate["shared" if job.what.endswith("(read)") else engine]
        reading = job.what.endswith("(read)")
        job.start = self._take(job.group, engine, now, job.size / rate)
        late = self.speeds.latency["shared" if reading else engine]
        job.time = job.start + job.size / rate + late

    def engine_of(self, job: Job) -> str:
        """The lane of a job."""
        return engine_of(job.what)

    def _take(self, group: str, engine: str, now: float, busy: float) -> float:
        """When an engine begins with something that comes now and keeps it busy."""
        start = max(now, self.free.get((group, engine), 0.0))
        self.free[group, engine] = start + busy
        return start

    # -- the machines' hooks -------------------------------------------------------------------------------------------

    def before(self, m: Machine, op: OpBase) -> None:
        """An op is about to run: its operands must be there, and whoever is earlier goes first."""
        agent = m.scheduler.current
        assert agent is not None
        if self.ready:
            late = max((self.ready.pop((id(m), v), 0.0) for v in op.operands), default=0.0)
            if late > agent.time:
                self._event("wait", agent, "wait for a load", op.loc, agent.time, late)
                agent.time = late
        if op.spec.name.startswith(_VISIBLE):
            m.scheduler.pause()

    def after(self, m: Machine, op: OpBase) -> None:
        """An op has run: others may go on from now, its task when it has paid for it."""
        agent = m.scheduler.current
        assert agent is not None
        if op.spec.name.startswith(_VISIBLE):
            m.scheduler.now = agent.time
            m.scheduler.settle()
        spent = cost(op, m.num_warps, self.speeds)
        if op.spec.name == "mma.dot":
            spent = self._product(agent, op)
        if spent:
            self._event("run", agent, op.spec.name, op.loc, agent.time, agent.time + spent)
            agent.time += spent
        late = delay(op, self.speeds)
        if late:
            for r in op.results:
                self.ready[id(m), r] = agent.time + late

    def _product(self, agent: Agent, op: OpBase) -> float:
        """A product that its task waits for; the cycles until it is done."""
        busy = multiplications(op) / self.speeds.rate[TENSOR_CORE]
        start = self._take(agent.group, TENSOR_CORE, agent.time, busy)
        self.events.append(
            Event("engine", agent.group, TENSOR_CORE, f"product of {agent.name}", op.loc, start, start + busy)
        )
        return start + busy + self.speeds.latency[TENSOR_CORE] - agent.time

    def _event(self, kind: str, agent: Agent, what: str, loc: Loc, start: float, end: float) -> None:
        """One more event, or a longer one: what a line does in one go is told as one."""
        last = self._last.get((agent.group, agent.name))
        if (
            last is not None
            and last.kind == kind
            and last.end == start
            and last.loc.line == loc.line
            and last.loc.file == loc.file
        ):
            last.end = end
            return
        event = self._last[agent.group, agent.name] = Event(kind, agent.group, agent.name, what, loc, start, end)
        self.events.append(event)


def lanes(events: list[Event]) -> dict[str, list[str]]:
    """The lanes of each CTA: its tasks in the order of their first event, then its engines."""
    out: dict[str, list[str]] = {}
    for kinds in (("run", "wait"), ("engine",)):
        for e in events:
            if e.kind in kinds and e.agent not in out.setdefault(e.group, []):
                out[e.group].append(e.agent)
    return out


def lane_name(event_agent: str, group: str) -> str:
    """A lane's name without its CTA's."""
    return event_agent.removesuffix(f" of {group}")


def details(event: Event) -> dict[str, Any]:
    """What an event says beside its name, in JSON's types."""
    return {"file": event.loc.file, "line": event.loc.line, "start": event.start, "cycles": event.end - event.start}
