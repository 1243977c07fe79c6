"""The asynchronous engine: bulk copies and remote stores that have been issued and are not finished.

A job is a list of parts, run one after the other; jobs are not ordered among each other. Without a random generator the
oldest job moves first, and only when no thread can go on; with one any job may move at any time, so that a program sees
copies that are late, early and out of order. Owns the bulk groups of each thread. Knows no instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Job:
    """One copy in flight: issued at `pc` by a thread; `parts` are left to do; `reads` of them read shared memory.

    `ctas` are the CTAs (batch indices) whose shared memory it still needs.
    """

    __slots__ = ("ctas", "lane", "parts", "pc", "reads", "warp")

    def __init__(
        self, warp: int, lane: int, pc: int, parts: list[Callable[[], None]], reads: int, ctas: set[int]
    ) -> None:
        self.warp, self.lane, self.pc = warp, lane, pc
        self.parts, self.reads, self.ctas = parts, reads, ctas


class BulkGroups:
    """A thread's bulk groups: jobs of the open one, the committed ones; `done` were waited for, `read` of them until read."""

    __slots__ = ("done", "groups", "open", "read")

    def __init__(self) -> None:
        self.open: list[Job] = []
        self.groups: list[list[Job]] = []
        self.done = self.read = 0

    def unread(self) -> list[Job]:
        """Jobs that nobody has waited for until they have read their source."""
        late = self.groups[max(0, self.read - self.done) :]
        return [*(job for group in late for job in group), *self.open]

    @property
    def epoch(self) -> int:
        """The number of the open group (the first is 1)."""
        return self.done + len(self.groups) + 1


class Engine:
    """All jobs of a batch, oldest first. `moved` is told the warp of each job that has moved on."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.bulk: dict[tuple[int, int], BulkGroups] = {}
        self.moved: Callable[[int], None] = lambda warp: None

    def groups_of(self, warp: int, lane: int) -> BulkGroups:
        """The bulk groups of a thread."""
        return self.bulk.setdefault((warp, lane), BulkGroups())

    def issue(self, job: Job) -> None:
        """Start a job."""
        self.jobs.append(job)

    def choose(self, rng: Any) -> Job:
        """The job that moves next (`rng`: any; None: the oldest). There must be one."""
        return self.jobs[int(rng.integers(len(self.jobs))) if rng is not None else 0]

    def advance(self, job: Job) -> None:
        """Run the next part of a job."""
        part = job.parts.pop(0)
        job.reads -= 1
        if not job.parts:
            self.jobs.remove(job)
        part()
        self.moved(job.warp)

    def busy_with(self, cta: int) -> Job | None:
        """A job that still needs the shared memory of a CTA."""
        return next((job for job in self.jobs if cta in job.ctas), None)
