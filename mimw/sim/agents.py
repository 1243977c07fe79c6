"""What takes turns, what is under way, and what is waited for: the parts that `scheduler` runs and `orders` choose among.

An agent is a piece of code that may block (a CTA, a task); a job is what an engine has under way (a copy, a product). Knows no op and no memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from mimw.diagnostics import Loc


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
