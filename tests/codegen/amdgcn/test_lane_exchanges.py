"""Exchanges between lanes: which controls are chosen, what reductions and scans consist of, and that they compute what they should."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn.builder import lane_moves
from tests.amdgcn_kit import same_on_amd

TARGETS = ["gfx942", "gfx950"]
LANES = range(64)


def test_xor_of_lanes() -> None:
    for mask in range(1, 16):
        controls = lane_moves.xor_steps(mask)
        assert [lane_moves.source_after(controls, lane) for lane in LANES] == [lane ^ mask for lane in LANES]
        assert len(controls) <= 2


@pytest.mark.parametrize(("mask", "same"), [(4, 3), (2, 1), (8, 7), (1, 6), (5, 2)])
def test_lanes_that_hold_the_same_are_as_good(mask: int, same: int) -> None:
    controls = lane_moves.xor_steps(mask, same)
    assert len(controls) == 1
    for lane in LANES:
        source = lane_moves.source_after(controls, lane)
        assert source is not None and not (source ^ lane ^ mask) & ~same


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("bit", "lowest"), [(bit, lowest) for bit in range(6) for lowest in (0, 1, 3) if bit >= lowest]
)
def test_steps_of_scans(bit: int, backwards: bool, lowest: int) -> None:
    """A step takes the last lane of the lower half, backwards the first of the upper half; lanes below `lowest` are another dimension's."""
    mask, below = 1 << bit, (1 << bit) - (1 << lowest)
    clear, set_bits, wanted = (below, mask, 0) if backwards else (mask, below, mask)
    controls = lane_moves.step(clear, set_bits, mask, wanted)
    if lowest == 0 and (bit < 4 or not backwards):
        assert controls is not None
    for lane in LANES:
        if lane & mask == wanted and controls is not None:
            assert lane_moves.source_after(controls, lane) == lane & ~clear | set_bits


def test_the_simulator_reads_the_same_lanes() -> None:
    from tests.sim.amdgcn.programs import execute

    lanes = np.arange(100, 164, dtype=np.uint32)
    for controls in lane_moves._candidates():  # pyright: ignore[reportPrivateUsage]
        text = "\n".join(f"s_nop 4\n v_mov_b32_dpp v{100 + k}, v{100 + k - 1 if k else 1} {control} row_mask:0xf bank_mask:0xf bound_ctrl:0"
                         for k, control in enumerate(controls))  # fmt: skip
        got = execute(text, {1: lanes}, out=1, first=100 + len(controls) - 1)[0]
        for lane in LANES:
            source = lane_moves.source_after(controls, lane)
            if source is not None:
                assert got[lane] == 100 + source, controls


@mimw.kernel
def reduced(x_ptr, out_ptr, HOW: ml.constexpr, ROWS: ml.constexpr, COLS: ml.constexpr, AXIS: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, ROWS)[:, None] * COLS + ml.arange(0, COLS)[None, :])
    if HOW == 0:
        y = ml.sum(x, AXIS)
    elif HOW == 1:
        y = ml.max(x, AXIS)
    elif HOW == 2:
        y = ml.min(x, AXIS)
    else:
        y = ml.argmax(x, AXIS).to(x_ptr.dtype.element_ty)
    ml.store(out_ptr + ml.arange(0, COLS if AXIS == 0 else ROWS), y)


@mimw.kernel
def total(x_ptr, out_ptr, SIZE: ml.constexpr, WIDE: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, SIZE))
    ml.store(out_ptr, ml.sum(x, 0))
    ml.store(out_ptr + 1, ml.max(x, 0))
    spread = x - ml.min(x, 0)
    ml.store(out_ptr + 2 + ml.arange(0, SIZE), spread)


@mimw.kernel
def scanned(x_ptr, out_ptr, ROWS: ml.constexpr, COLS: ml.constexpr, AXIS: ml.constexpr, BACK: ml.constexpr):
    offs = ml.arange(0, ROWS)[:, None] * COLS + ml.arange(0, COLS)[None, :]
    ml.store(out_ptr + offs, ml.cumsum(ml.load(x_ptr + offs), AXIS, reverse=BACK))


def _whole(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(5).integers(-20, 20, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "float64", "int64", "int8"])
@pytest.mark.parametrize(("size", "num_warps"), [(64, 1), (512, 2)])
def test_over_all_lanes(dtype: str, size: int, num_warps: int) -> None:
    x, out = _whole((size,), dtype), np.zeros(size + 2, dtype)
    same_on_amd(total, (1,), [x, out], (0,), SIZE=size, WIDE=1, num_warps=num_warps)


@pytest.mark.parametrize("how", range(4))
@pytest.mark.parametrize(("rows", "cols", "axis"), [(4, 64, 1), (16, 32, 1), (64, 16, 0), (3, 40, 1)])
def test_over_some_lanes(how: int, rows: int, cols: int, axis: int) -> None:
    x = _whole((rows, cols), "float32")
    out = np.zeros(cols if axis == 0 else rows, np.float32)
    same_on_amd(reduced, (1,), [x, out], (0,), HOW=how, ROWS=rows, COLS=cols, AXIS=axis, num_warps=1)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("rows", "cols", "axis"), [(1, 256, 1), (16, 16, 0), (64, 4, 0), (4, 64, 1), (5, 48, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scans(dtype: str, rows: int, cols: int, axis: int, back: bool) -> None:
    x = _whole((rows, cols), dtype)
    same_on_amd(
        scanned, (1,), [x, np.zeros_like(x)], (0,), ROWS=rows, COLS=cols, AXIS=axis, BACK=back, num_warps=1
    )  # fmt: skip


def _counts(kernel: Any) -> Counter[str]:
    return Counter(line.split()[0] for line in kernel.asm["amdgcn"].splitlines() if re.match(r"  [a-z]\w+_", line))


@pytest.mark.parametrize("target", TARGETS)
def test_a_wave_sums_without_lds(target: str) -> None:
    kernel = total.compile(["*f32:16", "*f32:16"], {"SIZE": 64, "WIDE": 1}, target=target, num_warps=1)
    counts = _counts(kernel)
    assert counts["v_add_f32_dpp"] == counts["v_max_f32_dpp"] == counts["v_min_f32_dpp"] == 6
    assert counts["v_readlane_b32"] == 3 and not any(name.startswith("ds_") for name in counts)


@pytest.mark.parametrize("target", TARGETS)
def test_a_wave_scans_without_lds(target: str) -> None:
    constants = {"ROWS": 1, "COLS": 256, "AXIS": 1, "BACK": False}
    counts = _counts(scanned.compile(["*f32:16", "*f32:16"], constants, target=target, num_warps=1))
    assert counts["v_mov_b32_dpp"] == 7 and not any(name.startswith("ds_") for name in counts)


def test_rows_are_swapped_where_that_can_be() -> None:
    constants = {"HOW": 0, "ROWS": 16, "COLS": 128, "AXIS": 1}
    for target, swaps in (("gfx942", 0), ("gfx950", 1)):
        counts = _counts(reduced.compile(["*f32:16", "*f32:16"], constants, target=target, num_warps=1))
        assert bool(counts["v_permlane16_swap_b32"]) == bool(swaps) and bool(counts["ds_swizzle_b32"]) == (not swaps)
