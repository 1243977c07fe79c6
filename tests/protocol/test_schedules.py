"""The ready kernels and the matrix products of the examples, as they are: nothing is found in them, whatever the schedule; and the fences
that the passes put are enough, and needed."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.ir.core import Module
from mimw.ir.rewriter import clone_function
from mimw.passes import pipeline
from mimw.sim.errors import SimulationError
from mimw.sim.tile import run_on_host
from mimw.sim.tile.check import check_launch
from tests.protocol.mutants import TARGET, Launch
from tests.protocol.test_mutants import LAUNCHES, launch_of


def findings(launch: Launch, schedules: int) -> list[SimulationError]:
    launch.restore()
    found = check_launch(launch.module, launch.infos, launch.grid, range(schedules)).findings
    assert launch.right()
    return found


@pytest.mark.parametrize("name", LAUNCHES)
def test_nothing_is_found(name: str) -> None:
    assert findings(launch_of(name), 5) == []


@pytest.mark.deep
@pytest.mark.parametrize("name", LAUNCHES)
def test_nothing_is_found_in_many_schedules(name: str) -> None:
    assert findings(launch_of(name), 200) == []


def fenced(launch: Launch, module: Module, seed: int) -> str:
    """The code of what a run says that asks for fences."""
    launch.restore()
    try:
        run_on_host(module, launch.infos, launch.grid, seed=seed, fences=True)
    except SimulationError as e:
        return e.code
    assert launch.right()
    return ""


def after_passes(launch: Launch) -> Module:
    module = Module(clone_function(launch.module.function))
    pipeline.run(module, TARGET)
    return module


def fences_of(module: Module) -> list[Any]:
    return [op for op in module.function.walk() if op.name == "barrier.fence_async_shared"]


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_passes_put_the_fences_that_engines_need(name: str) -> None:
    launch = launch_of(name)
    module = after_passes(launch)
    assert [fenced(launch, module, seed) for seed in (0, 1, 2)] == ["", "", ""]
    fences = fences_of(module)
    assert bool(fences) == (name != "split")  # whose results leave through registers
    for op in fences:
        op.erase()
    assert fenced(launch, module, 0) == ("missing-fence" if fences else "")
