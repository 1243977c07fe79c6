"""Orders in which agents and jobs take their turns: plain, drawn, adversarial, by time. `agents` says what those are.

An order is asked who is next, among agents that can go on and jobs that are under way; whatever it says is a legal schedule, since nothing
but barriers and waits orders them. `of_seed` is the one place that gives a seed its order. Knows no op and no memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Protocol

from mimw.sim.agents import Agent, Job

_CHANGE = 1 / 32  # how often an adversary changes its mind


class Order(Protocol):
    """Who is next."""

    interrupts: bool
    """Whether agents may be interrupted where others could do something that matters; else they run until they block."""

    def choose(self, agents: list[Agent], jobs: list[Job], current: Agent | None) -> Agent | Job | None:
        """One of the agents that can go on, or a job whose `after` is done; None when there is neither."""
        ...

    def polled(self, agent: Agent) -> None:
        """An agent looks again and again for what others may do: somebody else must have a turn."""
        ...


def of_seed(seed: int) -> Order:
    """Seed 0 is the plain order; others draw, half of them as adversaries."""
    if not seed:
        return Plain()
    random = Random(seed)
    return Adversary(random) if random.random() < 0.5 else Drawn(random)


def first_of(job: Job) -> Job:
    """The job itself, or the one that must be done before it."""
    while job.after is not None and not job.after.done:
        job = job.after
    return job


class Plain:
    """An agent runs until it blocks, then the next one that can; jobs are done as late as can be, as they were posted."""

    interrupts = False

    def choose(self, agents: list[Agent], jobs: list[Job], current: Agent | None) -> Agent | Job | None:
        """See `Order`."""
        at = agents.index(current) if current is not None else -1
        for i in range(1, len(agents) + 1):
            agent = agents[(at + i) % len(agents)]
            if agent.runnable():
                return agent
        return jobs[0] if jobs else None

    def polled(self, agent: Agent) -> None:
        """The next agent has its turn anyway."""


class Drawn:
    """Each agent has an eagerness, and so have all engines together: the next one is drawn by these weights."""

    interrupts = True

    def __init__(self, random: Random) -> None:
        self.random = random
        self.jobs = random.choice([0.05, 0.5, 5.0])
        self.weights: dict[Agent, float] = {}

    def choose(self, agents: list[Agent], jobs: list[Job], current: Agent | None) -> Agent | Job | None:
        """See `Order`."""
        able = [a for a in agents if a.runnable()]
        if not able and not jobs:
            return None
        weights = [self._weight(a) for a in able]
        at = self.random.uniform(0, sum(weights) + (self.jobs if jobs else 0.0))
        for agent, weight in zip(able, weights, strict=True):
            at -= weight
            if at < 0:
                return agent
        return first_of(self.random.choice(jobs)) if jobs else able[-1]

    def _weight(self, agent: Agent) -> float:
        found = self.weights.get(agent)
        if found is None:
            found = self.weights[agent] = 2.0 ** self.random.uniform(-3, 3)
        return found

    def polled(self, agent: Agent) -> None:
        """Others are drawn sooner or later."""


class Adversary:
    """Strict ranks: the agent of the highest rank runs while it can; an engine's jobs are done at once, or not before nobody can go
    on without them. From time to time somebody's rank is drawn anew.

    So any task comes first, any engine arbitrarily late, and some faults that need few but particular changes of turn are met
    far sooner than by drawing every turn ("probabilistic concurrency testing", Burckhardt et al., ASPLOS 2010).
    """

    interrupts = True

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ranks: dict[Agent, float] = {}
        self.hurries: dict[Hashable, bool] = {}
        self.lowest = 0.0

    def choose(self, agents: list[Agent], jobs: list[Job], current: Agent | None) -> Agent | Job | None:
        """See `Order`."""
        if self.random.random() < _CHANGE:
            self._change(agents, jobs)
        for job in jobs:
            if self._hurries(job):
                return first_of(job)
        able = [a for a in agents if a.runnable()]
        if able:
            return max(able, key=self._rank)
        return first_of(self.random.choice(jobs)) if jobs else None

    def _rank(self, agent: Agent) -> float:
        found = self.ranks.get(agent)
        if found is None:
            found = self.ranks[agent] = self.random.random()
        return found

    def _hurries(self, job: Job) -> bool:
        engine = (job.owner, job.what)
        found = self.hurries.get(engine)
        if found is None:
            found = self.hurries[engine] = self.random.random() < 0.4
        return found

    def _change(self, agents: list[Agent], jobs: list[Job]) -> None:
        if jobs and self.random.random() < 0.5:
            job = self.random.choice(jobs)
            self.hurries[job.owner, job.what] = self.random.random() < 0.4
        else:
            self.ranks[self.random.choice(agents)] = self.random.random()

    def polled(self, agent: Agent) -> None:
        """It goes behind all others."""
        self.lowest -= 1.0
        self.ranks[agent] = self.lowest


class Timed:
    """Whoever is earliest in time: a simulation of events. Agents and jobs carry their times."""

    interrupts = True

    def choose(self, agents: list[Agent], jobs: list[Job], current: Agent | None) -> Agent | Job | None:
        """See `Order`."""
        able = [a for a in agents if a.runnable()]
        agent = min(able, key=lambda a: a.time, default=None)
        job = min(jobs, key=lambda j: j.time, default=None)
        if job is not None and (agent is None or job.time <= agent.time):
            return first_of(job)
        return agent

    def polled(self, agent: Agent) -> None:
        """Looking takes its time."""
