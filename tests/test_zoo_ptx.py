"""The zoo through the whole compiler: PTX for sm_90a (and for a third of the kernels sm_80) in the PTX simulator.

Results must fit the reference, and agree with the tile simulator: bit by bit except where an op's result is an approximation or the order
of a float sum is the layout's.
"""

from __future__ import annotations

import pytest

from tests.zoo import ALL, PTX_SM80
from tests.zoo.engines import run_ptx_text, run_tile
from tests.zoo.registry import Entry, agree, check


def compare(entry: Entry, index: int, target: str) -> None:
    run = entry.run(index)
    # Every third variant goes through ptxas too, which takes longer than all else.
    got = run_ptx_text(run, target, assembled=index % 3 == 0)
    check(run, got, f"PTX simulator, {target}")
    again = entry.run(index)
    agree(again, got, run_tile(again), "PTX simulator and tile simulator")


@pytest.mark.parametrize(("entry", "index"), ALL)
def test_ptx_sm90a(entry: Entry, index: int) -> None:
    compare(entry, index, "sm_90a")


@pytest.mark.parametrize(("entry", "index"), PTX_SM80)
def test_ptx_sm80(entry: Entry, index: int) -> None:
    compare(entry, index, "sm_80")
