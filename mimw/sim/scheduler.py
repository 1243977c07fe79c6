"""Who runs next: agents that take turns, and engines whose jobs are done at any time.

An agent is a piece of code that may block (a CTA, a task). Exactly one runs at a time; the first one of a group on the
caller's own thread, each further one on a thread of its own, handed over strictly. A job is what an engine has under way
(a copy, a product): it is done when the order says so, at the latest when nobody can go on without it. What orders there
are is `orders`' business; what things cost is that of a `Stopwatch`. Knows no op and no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from mimw.diagnostics import Loc
from mimw.sim.errors import SimulationError
from mimw.sim.orders import Order

_SPINS = 20_000  # turns without any progress after which waiting by polling counts as hanging


class Wait(Protocol):
    """What an agent waits for."""

    loc: Loc

    def ready(self) -> bool:
        """Whether it has come. Must not change anything."""
        ...

    def describe(self) -> str:
        """What is waited for, for people: ``phase 1 of full[0]: ...``."""
        ...

    def hint(self) -> str | None:
        """What may be wrong when it never comes."""
        ...


class Stopped(BaseException):
    """Raised inside an agent whose run has failed elsewhere: it only unwinds."""


class Job:
    """What an engine has under way. `finish` does it; `after` must be done first. `owner` names who started it, `what` what it is,
    `size` how much (bytes; multiplications of a product). `start` and `time`: when it begins and is done, where time is kept."""

    __slots__ = ("after", "done", "finish", "group", "loc", "owner", "size", "start", "time", "what")

    def __init__(
        self, what: str, agent: Agent, loc: Loc, finish: Callable[[], None] | None, after: Job | None, size: float
    ) -> None:
        self.what = what
        self.owner = agent.name
        self.group = agent.group
        self.loc = loc
        self.finish = finish
        self.after = after
        self.size = size
        self.done = False
        self.start = self.time = 0.0


class JobsWait:
    """Waiting for jobs to be done; `what` says it: ``an asynchronous dot``."""

    __slots__ = ("jobs", "loc", "what")

    def __init__(self, jobs: list[Job], what: str, loc: Loc) -> None:
        self.jobs = jobs
        self.what = what
        self.loc = loc

    def ready(self) -> bool:
        """Whether all are done."""
        return all(j.done for j in self.jobs)

    def describe(self) -> str:
        """For people."""
        return self.what

    def hint(self) -> str | None:
        """Nothing: jobs are always done in the end."""
        return None


class Agent:
    """One that takes turns. `wait` is what it is blocked on, None while it can go on. `group` is what it belongs to (a CTA), `trips` where
    it is in its loops, `time` its own clock, where time is kept."""

    __slots__ = ("done", "group", "lock", "name", "on_end", "thread", "time", "trips", "wait", "woken")

    def __init__(self, name: str, group: str, trips: list[tuple[str, int]], on_end: Callable[[], None] | None) -> None:
        self.name = name
        self.group = group
        self.trips = trips
        self.on_end = on_end
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread: threading.Thread | None = None
        self.wait: Wait | None = None
        self.done = False
        self.time = 0.0
        self.woken = False

    def runnable(self) -> bool:
        """Whether it could go on now."""
        return not self.done and (self.wait is None or self.wait.ready())


class Event:
    """A stretch of time of one agent or engine: what it did and where. `kind` is "run", "wait" or "engine"; times are the stopwatch's."""

    __slots__ = ("agent", "end", "group", "kind", "loc", "start", "what")

    def __init__(self, kind: str, group: str, agent: str, what: str, loc: Loc, start: float, end: float) -> None:
        self.kind = kind
        self.group = group
        self.agent = agent
        self.what = what
        self.loc = loc
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"{self.agent}: {self.what} at line {self.loc.line} [{self.start}, {self.end}]"


class Stopwatch(Protocol):
    """Gives jobs their times, and keeps what happened."""

    events: list[Event]

    def posted(self, job: Job, now: float) -> None:
        """A job is started: set its `start` and `time`."""
        ...

    def engine_of(self, job: Job) -> str:
        """The name of the engine that does it."""
        ...


class Scheduler:
    """A group of agents that run side by side, and their engines.

    `progress` counts what anybody did that others can see (stores to memory); whoever does such things counts it up.
    `deadlock` makes the error when nobody can go on. With a `watch`, time is kept: its order should be that of time.
    """

    __slots__ = (
        "agents", "current", "deadlock", "error", "jobs", "now", "order", "progress", "spins", "stopped", "watch",
    )  # fmt: skip

    def __init__(
        self, order: Order, deadlock: Callable[[list[Agent]], SimulationError], watch: Stopwatch | None = None
    ) -> None:
        self.order = order
        self.deadlock = deadlock
        self.watch = watch
        self.agents: list[Agent] = []
        self.jobs: list[Job] = []
        self.current: Agent | None = None
        self.error: BaseException | None = None
        self.stopped = False
        self.now = 0.0
        self.progress = 0
        self.spins = (0, 0)

    # -- agents --------------------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        body: Callable[[], None],
        on_end: Callable[[], None] | None = None,
        *,
        group: str = "",
        trips: list[tuple[str, int]] | None = None,
    ) -> Agent:
        """A new agent on a thread of its own; it runs when its turn comes. `on_end` is called when its body is done."""
        agent = Agent(name, group, trips if trips is not None else [], on_end)
        if self.current is not None:
            agent.time = self.current.time
        self.agents.append(agent)
        agent.thread = threading.Thread(target=self._live, args=(agent, body), daemon=True)
        agent.thread.start()
        return agent

    def rename(self, name: str) -> None:
        """Another name for the current agent."""
        assert self.current is not None
        self.current.name = name

    def run(
        self,
        name: str,
        body: Callable[[], None],
        on_end: Callable[[], None] | None = None,
        *,
        group: str = "",
        trips: list[tuple[str, int]] | None = None,
    ) -> None:
        """Run `body` as the first agent on this thread, and all others that are added, until all are done and no job is
        left. Raises what the first agent that failed has raised."""
        first = Agent(name, group, trips if trips is not None else [], on_end)
        self.agents.insert(0, first)
        self.current = first
        try:
            body()
            self._end(first)
            if not all(a.done for a in self.agents):
                self._pass_on(first)
            while self.jobs:
                self._do(min(self.jobs, key=lambda j: j.time) if self.watch is not None else self.jobs[0])
        except Stopped:
            pass
        except BaseException as e:
            self._fail(e)
        finally:
            self._unwind()
        if self.error is not None:
            raise self.error

    def _live(self, agent: Agent, body: Callable[[], None]) -> None:
        agent.lock.acquire()
        try:
            if self.stopped:
                return
            body()
            self._end(agent)
            left = self._next()
            (self.agents[0] if left is None else left).lock.release()
        except Stopped:
            pass
        except BaseException as e:
            self._fail(e)
            self.agents[0].lock.release()

    def _end(self, agent: Agent) -> None:
        agent.done = True
        if agent.on_end is not None:
            agent.on_end()
        if self.watch is not None:
            self.now = agent.time
            self.settle()

    def _fail(self, e: BaseException) -> None:
        if self.error is None:
            self.error = e
        self.stopped = True

    def _unwind(self) -> None:
        for agent in self.agents:
            if agent.thread is not None:
                if not agent.done:
                    self.stopped = True
                    agent.lock.release()
                agent.thread.join()

    # -- turns ---------------------------------------------------------------------------------------------------------

    def block(self, wait: Wait) -> None:
        """Let others run until `wait` is ready. Raises the deadlock's error when it can never be."""
        agent = self.current
        assert agent is not None
        if not self.order.interrupts and wait.ready():
            return
        start = agent.time
        if self.watch is not None:  # what it did so far may wake others, now
            self.now = start
            self.settle()
        agent.wait = wait
        agent.woken = wait.ready()
        self._pass_on(agent)
        agent.wait = None
        self.progress += 1
        if self.watch is not None and agent.time > start:
            what = f"wait for {wait.describe()}"
            self.watch.events.append(Event("wait", agent.group, agent.name, what, wait.loc, start, agent.time))

    def pause(self) -> None:
        """A place where others may run: in the plain order nothing happens."""
        if self.order.interrupts and (self.jobs or len(self.agents) > 1):
            assert self.current is not None
            self._pass_on(self.current)

    def poll(self, loc: Loc) -> None:
        """A look at memory that others may change: somebody else has a turn, so that what is polled for can happen."""
        seen, count = self.spins
        self.spins = (self.progress, count + 1 if seen == self.progress else 0)
        if self.spins[1] > _SPINS:
            raise SimulationError("livelock", "the program polls memory that nobody changes any more", loc)
        if len(self.agents) == 1 and not self.jobs:
            return
        assert self.current is not None
        self.order.polled(self.current)
        others = any(a.runnable() for a in self.agents if a is not self.current)
        if not self.order.interrupts and self.jobs and not others:
            self._do(self.jobs[0])
            return
        self._pass_on(self.current)

    def _pass_on(self, agent: Agent) -> None:
        if self.stopped:
            raise Stopped
        chosen = self._next()
        if chosen is None:
            if agent.done:
                return
            raise self.deadlock([a for a in self.agents if not a.done])
        if chosen is agent:
            return
        self.current = chosen
        chosen.lock.release()
        agent.lock.acquire()
        if self.stopped:
            raise Stopped

    def _next(self) -> Agent | None:
        """The agent that runs next; jobs are done on the way. None when all are done."""
        while True:
            chosen = self.order.choose(self.agents, self.jobs, self.current)
            if not isinstance(chosen, Job):
                if chosen is not None:
                    self.current = chosen
                    self.now = chosen.time
                elif not all(a.done for a in self.agents):
                    raise self.deadlock([a for a in self.agents if not a.done])
                return chosen
            self._do(chosen)

    # -- engines -------------------------------------------------------------------------------------------------------

    def post(
        self,
        what: str,
        loc: Loc,
        finish: Callable[[], None] | None = None,
        after: Job | None = None,
        size: float = 0.0,
    ) -> Job:
        """Start a job for the current agent."""
        assert self.current is not None
        job = Job(what, self.current, loc, finish, after, size)
        if self.watch is not None:
            self.watch.posted(job, self.current.time)
        self.jobs.append(job)
        return job

    def _do(self, job: Job) -> None:
        self.jobs.remove(job)
        job.done = True
        self.progress += 1
        if job.finish is not None:
            try:
                job.finish()
            except SimulationError as e:
                e.loc = e.loc or job.loc
                raise
        if self.watch is not None:
            self.now = job.time
            engine = self.watch.engine_of(job)
            what = f"{job.what} of {job.owner}"
            self.watch.events.append(Event("engine", job.group, engine, what, job.loc, job.start, job.time))
            self.settle()

    # -- time ----------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Something was done now: agents that it woke go on from now."""
        for agent in self.agents:
            if agent.wait is not None and not agent.woken and agent.wait.ready():
                agent.woken = True
                agent.time = max(agent.time, self.now)
