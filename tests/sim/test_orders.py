"""Orders: every seed gives its order again; adversaries let any task come first and any engine be last."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.diagnostics import Loc
from mimw.sim.agents import JobsWait
from mimw.sim.errors import SimulationError
from mimw.sim.orders import Adversary, Drawn, Plain, of_seed
from mimw.sim.scheduler import Scheduler

HERE = Loc("k.mir", 1)


def played(seed: int, tasks: int = 3, steps: int = 4) -> list[str]:
    """What three tasks do, each some steps with a job of an engine of its own that it waits for at the end."""
    done: list[str] = []

    def stuck(agents: Any) -> SimulationError:
        raise AssertionError([a.name for a in agents])

    scheduler = Scheduler(of_seed(seed), stuck)

    def task(name: str) -> None:
        job = scheduler.post(f"copy {name}", HERE, lambda: done.append(f"copy {name}"))
        for i in range(steps):
            scheduler.pause()
            done.append(f"{name}{i}")
        scheduler.block(JobsWait([job], "a copy", HERE))

    def first() -> None:
        for name in "bcdefgh"[: tasks - 1]:
            scheduler.add(name, lambda name=name: task(name))
        task("a")

    scheduler.run("a", first)
    assert sorted(done) == sorted(
        [f"{n}{i}" for n in "abcdefgh"[:tasks] for i in range(steps)] + [f"copy {n}" for n in "abcdefgh"[:tasks]]
    )
    return done


def test_the_plain_order() -> None:
    assert played(0) == [f"{n}{i}" for n in "abc" for i in range(4)] + ["copy a", "copy b", "copy c"]


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_is_an_order(seed: int) -> None:
    assert played(seed) == played(seed)


def test_seeds_differ() -> None:
    assert len({tuple(played(seed)) for seed in range(60)}) > 50


def test_half_of_the_seeds_are_adversaries() -> None:
    kinds = [type(of_seed(seed)) for seed in range(200)]
    assert kinds[0] is Plain and set(kinds[1:]) == {Drawn, Adversary}
    assert 60 < kinds.count(Adversary) < 140


def test_any_task_may_be_through_before_another_begins_and_any_engine_last() -> None:
    orders = [played(seed) for seed in range(1, 400)]
    for first in "abc":
        for last in "abc":
            if first != last:
                assert any(o.index(f"{first}3") < o.index(f"{last}0") for o in orders), (first, last)
        assert any(o[-1] == f"copy {first}" for o in orders)
        assert any(o.index(f"copy {first}") < o.index(f"{first}0") for o in orders)
