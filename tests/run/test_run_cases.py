"""Every run case on every engine that its file names and this machine has."""

from __future__ import annotations

import pytest

from tests.mir import ENGINES, Case, cases, run_case


def _parameters() -> list[object]:
    out: list[object] = []
    for case in cases():
        for engine in case.engines:
            if engine in ENGINES:
                marks = [pytest.mark.gpu] if engine == "gpu" else []
                out.append(pytest.param(case, engine, id=f"{case.name}-{engine}", marks=marks))
    return out


@pytest.mark.parametrize(("case", "engine"), _parameters())
def test_case(case: Case, engine: str) -> None:
    run_case(case, engine)
