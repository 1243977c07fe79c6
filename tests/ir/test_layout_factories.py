"""Factories against the formulas of the PTX manual, and shared layouts against the swizzle formula."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.layout import Layout, SharedLayout, parse_shared_layout, tile_registers
from mimw.ir.layout_factories import (
    blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    pad_dims,
    wgmma_accumulator,
    wgmma_operand_a,
)

LANES = (0, 1, 2, 4, 7, 8, 16, 21, 31)  # the maps are linear: unit vectors and a few sums


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, (0, 1)), (96, (5, 3)), (192, (6, 3)), (176, (4, 11)), (128, (7, 1)), (100, (3, 13)), (251, (8, 1))],
)
def test_odd_padding(size: int, expected: tuple[int, int]) -> None:
    assert pad_dims(size) == expected


@given(st.integers(1, 2000), st.integers(0, 7))
def test_padding_covers_the_size(size: int, min_bits: int) -> None:
    for policy in ("odd", "pow2"):
        a, o = pad_dims(size, policy, min_bits)
        assert o << a >= size and o % 2 == 1 and o <= 15 and a >= min_bits
    a, o = pad_dims(size, "odd")
    assert o << a <= 1 << (size - 1).bit_length() if size > 1 else (a, o) == (0, 1)


def a_fragment(bits: int, e: int, lane: int) -> tuple[int, int]:
    """(row, k) of element e of operand A, from the manual's table by 32-bit register i and element j within."""
    g, t = lane // 4, lane % 4
    pack = 32 // bits
    i, j = divmod(e, pack)
    return g + 8 * (i % 2), pack * t + j + 4 * pack * (i // 2)


def b_fragment(bits: int, e: int, lane: int) -> tuple[int, int]:
    g, t = lane // 4, lane % 4
    pack = 32 // bits
    i, j = divmod(e, pack)
    return pack * t + j + 4 * pack * i, g


def d_fragment(r: int, lane: int) -> tuple[int, int]:
    return lane // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (lane % 4) + r % 2


def check_tiles(layout: Layout, tile: tuple[int, int], formula, count: int) -> None:  # type: ignore[no-untyped-def]
    """Every instruction tile's registers follow the formula relative to the tile's corner, in every lane and warp."""
    tiles = tile_registers(layout, tile)
    for regs in tiles.values():
        assert len(regs) == count
        for warp in range(layout.num_warps):
            corner = layout.coords(regs[0], 0, warp)
            assert all(c % t == 0 for c, t in zip(corner, tile, strict=True))
            for e, lane in itertools.product(range(count), LANES):
                row, col = formula(e, lane)
                assert layout.coords(regs[e], lane, warp) == (corner[0] + row, corner[1] + col)


@pytest.mark.parametrize(("m", "n"), [(64, 64), (16, 8), (48, 96), (128, 176), (5, 3)])
@pytest.mark.parametrize(("wm", "wn"), [(4, 1), (2, 2), (1, 4)])
def test_mma_accumulator(m: int, n: int, wm: int, wn: int) -> None:
    layout = mma_accumulator((m, n), wm, wn)
    check_tiles(layout, (16, 8), d_fragment, 4)
    assert layout.shape_padded[0] >= m and layout.shape_padded[1] >= n


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("m", "k"), [(64, 64), (16, 32), (48, 96), (128, 176)])
@pytest.mark.parametrize(("wm", "wn"), [(4, 1), (2, 2), (1, 4)])
def test_mma_operands(bits: int, m: int, k: int, wm: int, wn: int) -> None:
    depth = 256 // bits
    elems = 32 // bits * 4
    a = mma_operand_a((m, k), bits, wm, wn)
    check_tiles(a, (16, depth), lambda e, lane: a_fragment(bits, e, lane), elems)
    b = mma_operand_b((k, m), bits, wm, wn)
    check_tiles(b, (depth, 8), lambda e, lane: b_fragment(bits, e, lane), elems // 2)
    d = mma_accumulator((m, m), wm, wn)
    for warp in range(wm * wn):  # every warp owns the rows of A and the columns of B that its part of D needs
        assert held(a, warp, 0) == held(d, warp, 0)
        assert held(b, warp, 1) == held(d, warp, 1)


def held(layout: Layout, warp: int, dim: int) -> set[int]:
    """The coordinates along `dim` that a warp holds."""
    return {layout.coords(r, lane, warp)[dim] for r in range(layout.num_regs) for lane in range(32)}


def test_mma_f64() -> None:
    check_tiles(mma_operand_a((32, 16), 64, 2, 2), (8, 4), lambda e, lane: (lane // 4, lane % 4), 1)
    check_tiles(mma_operand_b((16, 32), 64, 2, 2), (4, 8), lambda e, lane: (lane % 4, lane // 4), 1)
    check_tiles(mma_accumulator((32, 32), 2, 2, 64), (8, 8), lambda e, lane: (lane // 4, 2 * (lane % 4) + e), 2)


@pytest.mark.parametrize(
    ("m", "n", "warps"),
    [(64, 256, 4), (128, 96, 4), (192, 176, 4), (128, 192, 8), (64, 64, 8), (20, 8, 4), (64, 96, 8)],
)
def test_wgmma_accumulator(m: int, n: int, warps: int) -> None:
    layout = wgmma_accumulator((m, n), warps)
    own = layout.shape_padded[1]
    if any(v[1] for v in layout.warp):
        own //= 2
    if own > 256:
        own //= 2
    for regs in tile_registers(layout, (64, own)).values():
        for r, lane, warp in itertools.product(range(len(regs)), LANES, range(warps)):
            corner = layout.coords(regs[0], 0, warp // 4 * 4)
            row, col = d_fragment(r, lane)
            assert layout.coords(regs[r], lane, warp) == (corner[0] + 16 * (warp % 4) + row, corner[1] + col)


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("m", "k", "warps"), [(64, 64, 4), (128, 96, 8), (192, 32, 4), (64, 128, 8)])
def test_wgmma_operand_a(bits: int, m: int, k: int, warps: int) -> None:
    layout = wgmma_operand_a((m, k), bits, warps)
    depth, elems = 256 // bits, 32 // bits * 4
    for regs in tile_registers(layout, (64, depth)).values():
        assert len(regs) == elems
        for e, lane, warp in itertools.product(range(elems), LANES, range(warps)):
            corner = layout.coords(regs[0], 0, warp // 4 * 4)
            row, col = a_fragment(bits, e, lane)
            assert layout.coords(regs[e], lane, warp) == (corner[0] + 16 * (warp % 4) + row, corner[1] + col)


def test_a_16_bit_accumulator_is_the_next_operand_a() -> None:
    """P of attention: the D fragment, packed in pairs, is operand A of the second product, register for register."""
    assert wgmma_accumulator((128, 64), 8).reg == wgmma_operand_a((128, 64), 16, 8).reg
    assert wgmma_accumulator((128, 64), 8) is wgmma_operand_a((128, 64), 16, 8)


def test_blocked_is_coalesced() -> None:
    layout = blocked((128, 64), (1, 0), 4, vec=8)
    assert layout.contiguity(1) == 8
    assert [layout.coords(0, lane)[1] for lane in range(8)] == list(range(0, 64, 8))
    assert layout.coords(0, 8) == (1, 0)
    assert layout.coords(0, 0, 1) == (4, 0)
    assert layout.num_regs == 64


def test_blocked_repeats_small_tiles_and_pads_with_powers_of_two() -> None:
    small = blocked((16,), (0,), 4)
    assert (small.free_lane_bits(), small.free_warp_bits()) == (0b10000, 0b11)
    assert blocked((96,), (0,), 4).num_regs == 1
    assert blocked((96,), (0,), 4) is blocked((128,), (0,), 4)
    assert blocked((4, 96), (1, 0), 1, 2, dims=((2, 1), (5, 3))).num_regs == 12


@pytest.mark.parametrize("shape", [(16, 64), (24, 128), (20, 96), (3, 64), (2, 16, 32), (3, 8, 64), (3, 24, 32)])
@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("elem", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_swizzled_is_the_tma_swizzle(shape: tuple[int, ...], span: int, elem: int, transposed: bool) -> None:
    order = tuple(reversed(range(len(shape))))
    if transposed:  # an MN-major operand: the same memory seen with the last two dimensions exchanged
        order = (order[1], order[0], *order[2:])
        shape = (*shape[:-2], shape[-1], shape[-2])
    width = span // elem
    fast, slow = order[0], sorted(order[1:])
    if shape[fast] < width:
        with pytest.raises(ValueError):
            SharedLayout.swizzled(shape, order, elem, span)
        return
    layout = SharedLayout.swizzled(shape, order, elem, span)
    rows = 1
    for d in slow:
        rows *= shape[d]
    box = -(-rows // 8) * 8 * width
    seen = set()
    for x in itertools.product(*(range(s) for s in shape)):
        row = 0
        for d in slow:
            row = row * shape[d] + x[d]
        chunk, col = divmod(x[fast], width)
        address = (chunk * box + row * width + col) * elem
        physical = address ^ (((address >> 7) & (span // 16 - 1)) << 4)
        assert layout.offset(x) * elem == physical
        seen.add(physical)
    assert len(seen) == len(list(itertools.product(*(range(s) for s in shape))))
    assert max(seen) < layout.size * elem
    assert parse_shared_layout(str(layout)) is layout


@given(st.lists(st.integers(1, 12), min_size=1, max_size=3), st.integers(0, 3), st.data())
def test_padded_offsets(shape: list[int], pad: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    layout = SharedLayout.padded(shape, order, pad)
    for x in itertools.product(*(range(s) for s in shape)):
        offset, step = 0, 1
        for position, d in enumerate(order):
            offset += x[d] * step
            step = step * shape[d] + (pad if position == 0 else 0)
        assert layout.offset(x) == offset < layout.size
    assert parse_shared_layout(str(layout)) is layout
    assert SharedLayout.padded(shape, order, pad) is layout


def test_swizzled_refuses_rows_that_do_not_nest() -> None:
    with pytest.raises(ValueError, match="not 12"):
        SharedLayout.swizzled((2, 12, 96), None, 1, 32)
    with pytest.raises(ValueError, match="two dimensions"):
        SharedLayout.swizzled((128,), None, 1, 32)


def test_row_major_of_powers_of_two_is_all_bits() -> None:
    layout = SharedLayout.row_major((64, 32))
    assert layout.dims == ((6, 1), (5, 1)) and layout.size == 2048
