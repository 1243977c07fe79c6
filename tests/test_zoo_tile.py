"""Every case of the zoo in the tile simulator, against its float64 or exact reference."""

from __future__ import annotations

import pytest

from tests.zoo import ALL, KERNELS
from tests.zoo.engines import run_tile
from tests.zoo.registry import Entry, check


@pytest.mark.parametrize(("entry", "index"), ALL)
def test_tile_simulator(entry: Entry, index: int) -> None:
    run = entry.run(index)
    check(run, run_tile(run), "tile simulator")


def test_the_zoo_is_large() -> None:
    assert len(KERNELS) >= 70
