"""Who runs next: agents that take turns, and engines whose jobs are done at any time.

Exactly one agent runs at a time; the first one of a group on the caller's own thread, each further one on a thread of its own, handed over
strictly. A job is done when the order says so, at the latest when nobody can go on without it. What orders there are is `orders`'
business; what things cost is that of a `Stopwatch`. Knows no op and no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mimw.diagnostics import Loc
from mimw.sim.agents import Agent, Event, Job, Stopwatch, Wait
from mimw.sim.errors import SimulationError
from mimw.sim.orders import Order

_SPINS = 20_000  # turns without any progress after which waiting by polling counts as hanging


class Stopped(BaseException):
    """Raised inside an agent whose run has failed elsewhere: it only unwinds."""


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
