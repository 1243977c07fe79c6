"""The layouts of v_mfma against the formulas of the ISA guides, element by element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mimw.ir.conversion import plan_conversion
from mimw.ir.layout import Layout, tile_registers
from mimw.ir.layout_factories import (
    mfma_accumulator,
    mfma_k_width,
    mfma_operand_a,
    mfma_operand_b,
    turned_block,
)


def coordinates(layout: Layout) -> np.ndarray:
    """[warp, lane, register] -> coordinates."""

    def sums(vectors: tuple[tuple[int, ...], ...]) -> np.ndarray:
        out = np.zeros((1, layout.rank), np.int64)
        for v in vectors:
            out = np.concatenate([out, out ^ np.array(v)])
        return out

    regs = np.array(layout.reg_coords())
    lanes, warps = sums(layout.lane), sums(layout.warp)
    return warps[:, None, None] ^ lanes[None, :, None] ^ regs[None, None, :]


@pytest.mark.parametrize(("rows", "bits"), [(32, 32), (16, 32), (16, 64)])
def test_accumulator_is_where_the_instruction_puts_it(rows: int, bits: int) -> None:
    layout = mfma_accumulator((rows, rows), rows, 1, 1, bits)
    found = coordinates(layout)[0]
    for lane, r in itertools.product(range(64), range(rows * rows // 64)):
        group = lane // rows
        row = 4 * r + group if bits == 64 else 4 * (64 // rows) * (r // 4) + 4 * group + r % 4
        assert tuple(found[lane, r]) == (lane % rows, row), (lane, r)  # B and A change places: D lies turned


@pytest.mark.parametrize(
    ("rows", "bits", "depth"), [(32, 16, 16), (32, 16, 8), (16, 16, 32), (16, 8, 64), (32, 32, 8), (16, 64, 8)]
)
def test_operands_are_where_the_instruction_reads_them(rows: int, bits: int, depth: int) -> None:
    width = mfma_k_width(depth, bits, rows)
    assert width * (64 // rows) == depth
    a = coordinates(mfma_operand_a((rows, depth), bits, rows, 1, 1))[0]
    b = coordinates(mfma_operand_b((depth, rows), bits, rows, 1, 1))[0]
    for lane, e in itertools.product(range(64), range(width)):
        k = lane // rows * width + e
        assert tuple(a[lane, e]) == (lane % rows, k)
        assert tuple(b[lane, e]) == (k, lane % rows)


@pytest.mark.parametrize("shape", [(128, 64), (96, 160), (33, 50), (16, 16)])
@pytest.mark.parametrize(("rows", "wm", "wn"), [(32, 2, 2), (16, 4, 1), (16, 1, 4)])
def test_tiles_of_larger_accumulators_are_whole_fragments(shape: tuple[int, int], rows: int, wm: int, wn: int) -> None:
    layout = mfma_accumulator(shape, rows, wm, wn)
    assert len(layout.lane) == 6 and layout.num_warps == wm * wn
    assert all(p >= s for p, s in zip(layout.shape_padded, shape, strict=True))
    covered = {tuple(c) for c in coordinates(layout).reshape(-1, 2)}
    assert len(covered) == layout.shape_padded[0] * layout.shape_padded[1]
    one = mfma_accumulator((rows, rows), rows, 1, 1).reg_coords()
    coords = layout.reg_coords()
    for (i, j), registers in tile_registers(layout, (rows, rows)).items():
        inside = [(coords[r][0] - i * rows, coords[r][1] - j * rows) for r in registers]
        assert inside == [tuple(c) for c in one]


@pytest.mark.parametrize("rows", [32, 16])
@pytest.mark.parametrize("bits", [16, 8])
def test_an_accumulator_is_operand_a_of_the_next_product(rows: int, bits: int) -> None:
    """Where lanes hold the smallest runs, narrowing the numbers moves nothing between threads (8-bit runs are longer)."""
    accumulator = mfma_accumulator((64, 64), rows, 2, 1)
    operand = mfma_operand_a((64, 64), bits, rows, 2, 1, least=True)
    plan = plan_conversion(accumulator, operand, (64, 64), bits)
    assert (plan.kind == "rename") == (bits == 16)


def test_a_turned_block_holds_every_element_once() -> None:
    layout = turned_block((64, 128), (1, 0), 4, 8, 4, 16, 64)
    found = coordinates(layout).reshape(-1, 2)
    assert len({tuple(c) for c in found}) == len(found) == 64 * 128
    assert layout.contiguity(1) == 8
    assert layout.reg[3:5] == ((1, 0), (2, 0))
