"""The quick prices of layout inference follow what conversion plans cost."""

from __future__ import annotations

import itertools

import pytest

from mimw.ir.conversion import plan_conversion
from mimw.ir.layout_factories import blocked, mma_accumulator, mma_operand_b, wgmma_accumulator, wgmma_operand_a
from mimw.ir.layout_shapes import slice_
from mimw.passes.layout_inference import costs

TILE = (64, 128)
TILES = {
    "rows by 8": blocked(TILE, (1, 0), 4, 8),
    "rows by 4": blocked(TILE, (1, 0), 4, 4),
    "columns": blocked(TILE, (0, 1), 4, 4),
    "wgmma": wgmma_accumulator(TILE, 4),
    "mma": mma_accumulator(TILE, 2, 2),
    "operand a": wgmma_operand_a(TILE, 16, 4),
    "operand b": mma_operand_b(TILE, 16, 2, 2),
}
VECTORS = {
    "dense": blocked((128,), (0,), 4, 1),
    "by 4": blocked((128,), (0,), 4, 4),
    "row of wgmma": slice_(wgmma_accumulator((128, 128), 4), 0)[0],
    "column of wgmma": slice_(wgmma_accumulator((128, 128), 4), 1)[0],
}


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(TILES, 2)))
def test_tiles(src: str, dst: str, bits: int) -> None:
    plan = plan_conversion(TILES[src], TILES[dst], TILE, bits)
    price = costs.conversion(TILES[src], TILES[dst], bits)
    if plan.kind == "rename":
        assert price < 20
    else:
        assert plan.cost / 2.5 <= price <= plan.cost * 2.5


@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(VECTORS, 2)))
def test_vectors(src: str, dst: str) -> None:
    plan = plan_conversion(VECTORS[src], VECTORS[dst], (128,), 32)
    assert plan.cost / 2.5 <= costs.conversion(VECTORS[src], VECTORS[dst], 32) <= plan.cost * 2.5
