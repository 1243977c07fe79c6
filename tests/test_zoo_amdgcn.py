"""The zoo for gfx942 and gfx950: machine code made by LLVM from the emitted text, in the simulator of machine code.

Results must fit the reference, and agree with the tile simulator: bit by bit except where an op's result is an approximation or the order
of a float sum is the layout's. A part of the kernels runs with every change, all of them with the long checks.
"""

from __future__ import annotations

import pytest

from tests.zoo import ALL
from tests.zoo.engines import run_amdgcn, run_tile
from tests.zoo.registry import Entry, agree, check

STEP = 12
"""Every how many cases one belongs to the quick ones, of each target."""


def _cases() -> list[object]:
    out: list[object] = []
    for n, param in enumerate(ALL):
        for shift, target in ((0, "gfx942"), (STEP // 2, "gfx950")):
            marks = () if n % STEP == shift else (pytest.mark.deep,)
            out.append(pytest.param(*param.values, target, id=f"{param.id}-{target}", marks=marks))
    return out


@pytest.mark.parametrize(("entry", "index", "target"), _cases())
def test_amdgcn(entry: Entry, index: int, target: str) -> None:
    run = entry.run(index)
    got = run_amdgcn(run, target)
    check(run, got, f"AMDGCN simulator, {target}")
    again = entry.run(index)
    agree(again, got, run_tile(again), "AMDGCN simulator and tile simulator")
