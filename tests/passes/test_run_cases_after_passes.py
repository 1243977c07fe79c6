"""Every run case still means the same after all passes: the tile simulator runs what they leave.

Cases that must fail are left out: a faulty load that nobody uses may go."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.ir.core import Module
from mimw.passes import pipeline
from mimw.sim.tile import run
from mimw.target import get_target
from tests.mir import ENGINES, Case, cases, run_case


def _after_passes(target: str) -> Any:
    def execute(module: Module, args: list[Any], grid: tuple[int, ...]) -> None:
        pipeline.run(module, get_target(target))
        run(module, args, grid)

    return execute


TARGETS = ("sm_80", "sm_90a")


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Any:
    for target in TARGETS:
        ENGINES[f"passes-{target}"] = _after_passes(target)
    yield
    for target in TARGETS:
        del ENGINES[f"passes-{target}"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in cases() if not any("raises" in r for r in c.runs)]
)
def test_case(case: Case, target: str) -> None:
    run_case(case, f"passes-{target}")
