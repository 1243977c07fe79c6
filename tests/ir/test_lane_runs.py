"""Layouts whose lanes lie side by side in shared memory: what is said of them, element by element."""

from __future__ import annotations

import pytest

from mimw.ir.lane_runs import offsets_of, run_layout
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import blocked
from mimw.ir.shared_layout import SharedLayout
from mimw.passes.stage_dot import _for_turning_reads, turned_layout

LANES = 64

Case = tuple[tuple[int, ...], SharedLayout, int]

CASES: dict[str, Case] = {
    "a plain row": ((1024,), SharedLayout.row_major((1024,)), 4),
    "a row of no power of two": ((1000,), SharedLayout.row_major((1000,)), 4),
    "rows": ((64, 64), SharedLayout.row_major((64, 64)), 2),
    "rows, the first dimension fastest": ((64, 64), SharedLayout.row_major((64, 64), (0, 1)), 2),
    "three times a power of two": ((96, 64), SharedLayout.row_major((96, 64)), 2),
    "columns of three times a power of two": ((64, 192), SharedLayout.swizzled((64, 192), None, 2, 128), 2),
    "bytes": ((128, 128), SharedLayout.swizzled((128, 128), None, 1, 128), 1),
    "128-byte swizzle": ((128, 64), SharedLayout.swizzled((128, 64), None, 2, 128), 2),
    "two boxes": ((64, 128), SharedLayout.swizzled((64, 128), None, 2, 128), 2),
    "64-byte swizzle": ((64, 32), SharedLayout.swizzled((64, 32), None, 2, 64), 2),
    "32-byte swizzle": ((128, 16), SharedLayout.swizzled((128, 16), None, 2, 32), 2),
    "a swizzle turned": ((64, 128), turned_layout(SharedLayout.swizzled((128, 64), None, 2, 128)), 2),
    "steps of 32 bytes": ((64, 64), _for_turning_reads(SharedLayout.swizzled((64, 64), None, 2, 128), 0), 2),
    "f32": ((32, 32), SharedLayout.swizzled((32, 32), None, 4, 128), 4),
    "f64": ((32, 64), SharedLayout.swizzled((32, 64), None, 8, 128), 8),
    "rows kept apart after every wave": ((16, 512), SharedLayout.padded((16, 512), None, 8), 2),
    "three dimensions": ((4, 16, 64), SharedLayout.row_major((4, 16, 64)), 2),
}  # fmt: skip


def check(layout: Layout, case: Case, run: int) -> None:
    """Every element of every lane lies where `offsets_of` says."""
    shape, shared, size = case
    found = offsets_of(layout, shared, size, run)
    assert found is not None and found.width == run // size
    seen: set[tuple[int, ...]] = set()
    for warp in range(layout.num_warps):
        own = sum(x for k, x in enumerate(found.warps) if warp >> k & 1)
        for r in range(layout.num_regs):
            for lane in range(LANES):
                coords = layout.coords(r, lane, warp)
                if any(x >= n for x, n in zip(coords, shape, strict=True)):
                    continue
                seen.add(coords)
                place = found.registers[r // found.width] + own + lane * run + r % found.width * size
                assert shared.offset(coords) * size == place
    total = 1
    for n in shape:
        total *= n
    assert len(seen) == total


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("run", "warps"), [(16, 1), (16, 4), (4, 8)])
def test_lanes_lie_side_by_side(name: str, run: int, warps: int) -> None:
    shape, shared, size = CASES[name]
    layout = run_layout(shape, shared, size, run, warps, LANES)
    if run < size:
        assert layout is None
        return
    assert layout is not None
    check(layout, CASES[name], run)


def test_rows_stay_coalesced() -> None:
    """A swizzle turns lanes about inside of a row, so that eight of them still read 128 bytes in a row."""
    shared = SharedLayout.swizzled((128, 64), None, 2, 128)
    layout = run_layout((128, 64), shared, 2, 16, 4, LANES)
    assert layout is not None
    for first in range(0, LANES, 8):
        coords = [layout.coords(0, lane) for lane in range(first, first + 8)]
        assert len({row for row, _ in coords}) == 1 and sorted(column for _, column in coords) == [*range(0, 64, 8)]


def test_small_tiles_repeat_in_warps() -> None:
    shared = SharedLayout.row_major((32, 16))
    layout = run_layout((32, 16), shared, 2, 16, 4, LANES)
    assert layout is not None and layout.free_warp_bits() == 3
    check(layout, ((32, 16), shared, 2), 16)


@pytest.mark.parametrize(
    ("shape", "shared", "size"),
    [
        ((16, 16), SharedLayout.row_major((16, 16)), 2),  # fewer bytes than a wave copies
        ((64, 24), SharedLayout.row_major((64, 24)), 2),  # rows of no power of two
        ((64, 64), SharedLayout.padded((64, 64), None, 8), 2),  # gaps inside of what a wave copies
    ],
)
def test_what_cannot_be(shape: tuple[int, ...], shared: SharedLayout, size: int) -> None:
    assert run_layout(shape, shared, size, 16, 4, LANES) is None


def test_coalesced_layouts_are_of_the_form_where_nothing_is_swizzled() -> None:
    shape = (64, 64)
    plain = blocked(shape, (1, 0), 4, 8, LANES)
    check(plain, (shape, SharedLayout.row_major(shape), 2), 16)
    assert offsets_of(plain, SharedLayout.swizzled(shape, None, 2, 128), 2, 16) is None
    assert offsets_of(plain, SharedLayout.row_major(shape), 2, 4) is None
    assert offsets_of(blocked(shape, (1, 0), 4, 4, LANES), SharedLayout.row_major(shape), 2, 16) is None


def test_views_that_mix_bits_of_lanes() -> None:
    """A slice's own part of a swizzle may stand above what lanes decide, not among it."""
    shape = (32, 64)
    shared = SharedLayout.row_major(shape)
    layout = run_layout(shape, shared, 2, 16, 1, LANES)
    assert layout is not None
    assert offsets_of(layout, shared, 2, 16, 32) is None
    found = offsets_of(layout, shared, 2, 16, 1024)
    assert found is not None and found.registers == [0, -1024, 2048, 1024]
