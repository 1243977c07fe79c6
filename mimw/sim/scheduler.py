"""Who runs next: agents that take turns, and engines whose jobs are done at any time.

An agent is a piece of code that may block (a CTA, a task). Exactly one runs at a time; the first one of a group on the
caller's own thread, each further one on a thread of its own, handed over strictly. A job is what an engine has under way
(a copy, a product): it is done when the scheduler says so, at the latest when nobody can go on without it.

Seed 0 is the plain order: an agent runs until it blocks, then the next one that can; jobs are done as late as can be, in
the order in which they were posted. Any other seed draws: how eager each agent and the engines are, and who is next at
every place where an agent may be interrupted. Knows no op and no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Protocol

from mimw.diagnostics import Loc
from mimw.sim.errors import SimulationError

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
    """What an engine has under way. `finish` does it; `after` must be done first. `owner` names who started it, `what` what it is."""

    __slots__ = ("after", "done", "finish", "loc", "owner", "posted", "what")

    def __init__(self, what: str, owner: str, loc: Loc, finish: Callable[[], None] | None, after: Job | None) -> None:
        self.what = what
        self.owner = owner
        self.loc = loc
        self.finish = finish
        self.after = after
        self.done = False
        self.posted = 0


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
    """One that takes turns. `wait` is what it is blocked on, None while it can go on."""

    __slots__ = ("done", "eagerness", "lock", "name", "on_end", "thread", "wait")

    def __init__(self, name: str, eagerness: float, on_end: Callable[[], None] | None) -> None:
        self.name = name
        self.eagerness = eagerness
        self.on_end = on_end
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread: threading.Thread | None = None
        self.wait: Wait | None = None
        self.done = False

    def runnable(self) -> bool:
        """Whether it could go on now."""
        return not self.done and (self.wait is None or self.wait.ready())


class Event:
    """A stretch of time of one agent or engine, in steps of the scheduler: what it did and where."""

    __slots__ = ("agent", "end", "line", "start", "what")

    def __init__(self, agent: str, what: str, line: int, start: int, end: int) -> None:
        self.agent = agent
        self.what = what
        self.line = line
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"{self.agent}: {self.what} at line {self.line} [{self.start}, {self.end}]"


class Scheduler:
    """A group of agents that run side by side, and their engines.

    `progress` counts what anybody did that others can see (stores to memory); whoever does such things counts it up.
    `deadlock` makes the error when nobody can go on.
    """

    __slots__ = (
        "agents",
        "current",
        "deadlock",
        "eagerness",
        "error",
        "jobs",
        "progress",
        "random",
        "spins",
        "step",
        "stopped",
        "trace",
    )

    def __init__(
        self, seed: int, deadlock: Callable[[list[Agent]], SimulationError], trace: list[Event] | None = None
    ) -> None:
        self.random = Random(seed) if seed else None
        self.eagerness = self.random.choice([0.05, 0.5, 5.0]) if self.random is not None else 0.0
        self.deadlock = deadlock
        self.trace = trace
        self.agents: list[Agent] = []
        self.jobs: list[Job] = []
        self.current: Agent | None = None
        self.error: BaseException | None = None
        self.stopped = False
        self.step = 0
        self.progress = 0
        self.spins = (0, 0)

    # -- agents --------------------------------------------------------------------------------------------------------

    def add(self, name: str, body: Callable[[], None], on_end: Callable[[], None] | None = None) -> Agent:
        """A new agent on a thread of its own; it runs when its turn comes. `on_end` is called when its body is done."""
        agent = self._agent(name, on_end)
        agent.thread = threading.Thread(target=self._live, args=(agent, body), daemon=True)
        agent.thread.start()
        return agent

    def _agent(self, name: str, on_end: Callable[[], None] | None) -> Agent:
        eagerness = 2.0 ** self.random.uniform(-3, 3) if self.random is not None else 1.0
        agent = Agent(name, eagerness, on_end)
        self.agents.append(agent)
        return agent

    def rename(self, name: str) -> None:
        """Another name for the current agent."""
        assert self.current is not None
        self.current.name = name

    def run(self, name: str, body: Callable[[], None], on_end: Callable[[], None] | None = None) -> None:
        """Run `body` as the first agent on this thread, and all others that are added, until all are done and no job is
        left. Raises what the first agent that failed has raised."""
        first = self._agent(name, on_end)
        self.agents.insert(0, self.agents.pop())
        self.current = first
        try:
            body()
            self._end(first)
            if not all(a.done for a in self.agents):
                self._pass_on(first)
            while self.jobs:
                self._do(self.jobs[0])
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
        if self.random is None and wait.ready():
            return
        start = self.step
        agent.wait = wait
        self._pass_on(agent)
        agent.wait = None
        self.progress += 1
        if self.trace is not None:
            self.trace.append(Event(agent.name, f"wait for {wait.describe()}", wait.loc.line, start, self.step))

    def pause(self) -> None:
        """A place where others may run: under seed 0 nothing happens."""
        if self.random is not None and (self.jobs or len(self.agents) > 1):
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
        if self.random is None and self.jobs and not any(a.runnable() for a in self.agents if a is not self.current):
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
        """The agent that runs next; jobs are done on the way. None when no agent can go on."""
        while True:
            self.step += 1
            chosen = self._in_order() if self.random is None else self._draw(self.random)
            if not isinstance(chosen, Job):
                if chosen is not None:
                    self.current = chosen
                elif not all(a.done for a in self.agents):
                    raise self.deadlock([a for a in self.agents if not a.done])
                return chosen
            self._do(chosen)

    def _in_order(self) -> Agent | Job | None:
        agents = self.agents
        at = agents.index(self.current) if self.current is not None else -1
        for i in range(1, len(agents) + 1):
            agent = agents[(at + i) % len(agents)]
            if agent.runnable():
                return agent
        return self.jobs[0] if self.jobs else None

    def _draw(self, random: Random) -> Agent | Job | None:
        able = [a for a in self.agents if a.runnable()]
        total = sum(a.eagerness for a in able)
        jobs = self.eagerness if self.jobs else 0.0
        if not able and not self.jobs:
            return None
        at = random.uniform(0, total + jobs)
        for agent in able:
            at -= agent.eagerness
            if at < 0:
                return agent
        if not self.jobs:
            return able[-1]
        job = random.choice(self.jobs)
        while job.after is not None and not job.after.done:
            job = job.after
        return job

    # -- engines -------------------------------------------------------------------------------------------------------

    def post(self, what: str, loc: Loc, finish: Callable[[], None] | None = None, after: Job | None = None) -> Job:
        """Start a job for the current agent."""
        assert self.current is not None
        job = Job(what, self.current.name, loc, finish, after)
        job.posted = self.step
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
        if self.trace is not None:
            self.trace.append(Event(f"{job.what} of {job.owner}", job.what, job.loc.line, job.posted, self.step))
