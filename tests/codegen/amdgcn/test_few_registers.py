"""Run cases with so few registers that values are spilled: the simulator of machine code must see no difference.

That simulator also checks what `finish` owes the hardware: waits, wait states, registers read before they are written.
"""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn import emit
from mimw.codegen.amdgcn.allocation.regalloc import Budget
from mimw.codegen.amdgcn.finish import Finished, finish
from tests.mir import Case, cases, run_case

LIMITS = {"memory": Budget(12, 14, 0), "accumulators": Budget(12, 12, 24)}
WIDE = Budget(16, 26, 24)
"""For products: one takes 20 registers by itself."""

FEW = (
    "reduce-rows-33-96",
    "scan-last-176",
    "scan-columns-32-33",
    "cast-int-to-float-i64-bf16",
    "dot-half-f16-64-64-64",
)
"""The cases of the quick suite."""

CASES = {case.name: case for case in cases()}


def run_tight(monkeypatch: pytest.MonkeyPatch, case: Case, target: str, limits: Budget) -> list[Finished]:
    """Run a case with a budget of registers; returns what allocation came to."""
    done: list[Finished] = []

    def tight(*args: object, **options: object) -> Finished:
        done.append(finish(*args, **{**options, "limits": limits}))  # type: ignore[arg-type]
        return done[-1]

    monkeypatch.setattr(emit, "finish", tight)
    run_case(case, target)
    return done


def limits_of(name: str, kind: str) -> Budget:
    return WIDE if name.startswith("dot") else LIMITS[kind]


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("name", [name for name in FEW if name in CASES])
def test_some(monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    done = run_tight(monkeypatch, CASES[name], "gfx942", limits_of(name, kind))
    assert any(found.scratch_bytes or found.spilled_scalars or found.agprs for found in done)


@pytest.mark.deep
@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].runs and "gfx950" in CASES[name].engines])
def test_all(monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    run_tight(monkeypatch, CASES[name], "gfx950", limits_of(name, kind))
