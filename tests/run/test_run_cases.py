"""Every run case on every engine that its file names and this machine has.

On AMD's simulated targets a part of the cases runs with every change, the others with the long checks.
"""

from __future__ import annotations

import pytest

from tests.mir import ENGINES, Case, cases, run_case

STEP = 12
"""Every how many cases one runs on gfx942 with every change, and another one on gfx950."""
_FIRST = {"gfx942": 0, "gfx950": STEP // 2}


def _marks(engine: str, number: int) -> list[pytest.MarkDecorator]:
    if engine == "gpu":
        return [pytest.mark.gpu]
    return [pytest.mark.deep] if engine in _FIRST and number % STEP != _FIRST[engine] else []


def _parameters() -> list[object]:
    out: list[object] = []
    for number, case in enumerate(cases()):
        for engine in case.engines:
            if engine in ENGINES:
                marks = _marks(engine, number)
                out.append(pytest.param(case, engine, id=f"{case.name}-{engine}", marks=marks))
    return out


@pytest.mark.parametrize(("case", "engine"), _parameters())
def test_case(case: Case, engine: str) -> None:
    run_case(case, engine)
