"""Every kind of plan gives the right permutation, and each kind is chosen where it is cheapest."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimw.ir import layout as L
from mimw.ir import layout_shapes as S
from mimw.ir.conversion import Plan, bank_conflicts, plan_conversion, reduce_plan, scan_plan
from mimw.ir.conversion_problem import Problem
from mimw.ir.conversion_shared import plan_shared
from mimw.ir.conversion_shuffle import plan_shuffle
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.layout_factories import (
    blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    pad_dims,
    wgmma_accumulator,
    wgmma_operand_a,
)
from tests.ir.layout_strategies import layout_on, layouts
from tests.ir.plan_executor import check

SIZES = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12, 16])


@st.composite
def layout_for(draw: st.DrawFn, shape: tuple[int, ...], mixed: bool = True) -> Layout:
    """A random layout of a tile: any of the paddings that hold it, one bit more now and then."""
    dims: list[tuple[int, int]] = []
    for size in shape:
        a, o = pad_dims(size, draw(st.sampled_from(["odd", "pow2"])))
        dims.append((a + 1, o) if o == 1 and draw(st.integers(0, 5)) == 0 else (a, o))
    return draw(layout_on(tuple(dims), lanes=3, warps=1, mixed=mixed))


@st.composite
def conversions(draw: st.DrawFn) -> tuple[Layout, Layout, tuple[int, ...], int]:
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=2)))
    mixed = draw(st.booleans())
    elem = draw(st.sampled_from([8, 16, 32, 64]))
    return draw(layout_for(shape, mixed)), draw(layout_for(shape, mixed)), shape, elem


@settings(max_examples=150)
@given(conversions())
def test_any_pair_converts(case: tuple[Layout, Layout, tuple[int, ...], int]) -> None:
    src, dst, shape, elem = case
    plan = plan_conversion(src, dst, shape, elem)
    check(plan, shape)
    assert plan.cost >= 0 and plan.reason and (plan.kind == "rename" or plan.cost > 0)


@settings(max_examples=150)
@given(conversions(), st.sampled_from([16, 24, 40, 64, 100, 1 << 20]))
def test_any_pair_converts_through_a_small_scratch(
    case: tuple[Layout, Layout, tuple[int, ...], int], budget: int
) -> None:
    src, dst, shape, elem = case
    problem = Problem(src, dst, shape)
    shared = plan_shared(problem, problem.transfer(), elem, budget)
    assert shared.scratch_bytes <= budget
    check(Plan(src, dst, shared.cost, "", shared=shared), shape)


@st.composite
def warp_local(draw: st.DrawFn) -> tuple[Layout, Layout, tuple[int, ...], int]:
    """Pairs whose warps hold the same elements: the registers and lanes are dealt anew."""
    shape = tuple(draw(st.lists(SIZES, min_size=1, max_size=2)))
    src = draw(layout_for(shape, draw(st.booleans())))
    zero = (0,) * src.rank
    vectors = [v for v in (*src.reg, *src.lane) if any(v)] + [zero] * draw(st.integers(0, 3))
    vectors += [zero] * max(0, 3 - len(vectors))
    vectors = list(draw(st.permutations(vectors)))
    for _ in range(draw(st.integers(0, 3))):
        i, j = draw(st.integers(0, len(vectors) - 1)), draw(st.integers(0, len(vectors) - 1))
        if i != j:
            vectors[i] = tuple(x ^ y for x, y in zip(vectors[i], vectors[j], strict=True))
    inside = [*src.reg, *src.lane, zero]
    warp = [tuple(x ^ y for x, y in zip(v, draw(st.sampled_from(inside)), strict=True)) for v in src.warp]
    dst = Layout.get(src.dims, vectors[3:], vectors[:3], warp)
    return src, dst, shape, draw(st.sampled_from([8, 16, 32, 64]))


@settings(max_examples=250)
@given(warp_local())
def test_any_warp_local_pair_shuffles(case: tuple[Layout, Layout, tuple[int, ...], int]) -> None:
    src, dst, shape, elem = case
    problem = Problem(src, dst, shape)
    transfer = problem.transfer()
    assert transfer.keeps_warps()
    shuffle = plan_shuffle(problem, transfer, elem)
    assert shuffle is not None
    check(Plan(src, dst, shuffle.cost, "", shuffle=shuffle), shape)


@settings(max_examples=100)
@given(conversions())
def test_shuffles_between_different_paddings(case: tuple[Layout, Layout, tuple[int, ...], int]) -> None:
    src, dst, shape, elem = case
    problem = Problem(src, dst, shape)
    transfer = problem.transfer()
    if transfer.keeps_warps():
        shuffle = plan_shuffle(problem, transfer, elem)
        assert shuffle is not None
        check(Plan(src, dst, shuffle.cost, "", shuffle=shuffle), shape)


REAL = [
    (wgmma_accumulator((64, 96), 4), blocked((64, 96), (1, 0), 4, 4), (64, 96), 32),
    (blocked((32, 64), (1, 0), 4, 8), blocked((32, 64), (0, 1), 4, 8), (32, 64), 16),
    (mma_accumulator((32, 32), 2, 2), mma_operand_a((32, 32), 16, 2, 2), (32, 32), 16),
    (mma_accumulator((16, 48), 1, 4), mma_operand_b((16, 48), 16, 1, 4), (16, 48), 16),
    (wgmma_accumulator((20, 32), 4), blocked((20, 32), (1, 0), 4, 2), (20, 32), 32),
    (blocked((16,), (0,), 4), S.slice_(wgmma_accumulator((64, 16), 4), 0)[0], (16,), 32),
    (wgmma_accumulator((64, 32), 4), wgmma_operand_a((64, 32), 8, 4), (64, 32), 8),
    (blocked((32, 32), (1, 0), 2, 1), blocked((32, 32), (0, 1), 2, 1), (32, 32), 8),
]


@pytest.mark.parametrize("case", REAL, ids=range(len(REAL)))
@pytest.mark.parametrize("budget", [1 << 20, 512])
def test_real_layouts_convert_both_ways(case: tuple[Layout, Layout, tuple[int, ...], int], budget: int) -> None:
    src, dst, shape, elem = case
    for one, other in ((src, dst), (dst, src)):
        check(plan_conversion(one, other, shape, elem, budget), shape)
        problem = Problem(one, other, shape)
        shared = plan_shared(problem, problem.transfer(), elem, budget)
        assert shared.scratch_bytes <= budget
        check(Plan(one, other, shared.cost, "", shared=shared), shape)


# -------------------------------------------------------------------------------- which kind, and why


def test_same_threads_is_a_rename() -> None:
    accumulator = wgmma_accumulator((64, 96), 4)
    shuffled = Layout.get(accumulator.dims, accumulator.reg[::-1], accumulator.lane, accumulator.warp)
    plan = plan_conversion(accumulator, shuffled, (64, 96), 32)
    assert (plan.kind, plan.cost) == ("rename", 0)
    check(plan, (64, 96))


def test_an_accumulator_is_operand_a_of_the_next_product() -> None:
    plan = plan_conversion(mma_accumulator((64, 96), 4, 1), mma_operand_a((64, 96), 16, 4, 1), (64, 96), 16)
    assert plan.kind == "rename"
    check(plan, (64, 96))


def test_padding_alone_is_a_rename() -> None:
    """96 = 3 * 32 against 128: the digit of one side is two register bits of the other, holes left over."""
    odd = blocked((32, 96), (0, 1), 1, 1, dims=((5, 1), (5, 3)))
    full = blocked((32, 96), (0, 1), 1, 1)
    for one, other in ((odd, full), (full, odd)):
        plan = plan_conversion(one, other, (32, 96), 32)
        assert plan.kind == "rename"
        check(plan, (32, 96))


def test_dropping_copies_is_a_rename_and_making_them_a_broadcast_shuffle() -> None:
    row = S.slice_(wgmma_accumulator((64, 16), 4), 1)[0]  # every row in four lanes
    flat = blocked((64,), (0,), 4)
    copied = plan_conversion(row, row, (64,), 32)
    assert copied.kind == "rename"
    assert plan_conversion(flat, row, (64,), 32).kind in ("shuffle", "shared")
    check(plan_conversion(flat, row, (64,), 32), (64,))


def test_lanes_swapped_inside_a_warp_shuffle_one_butterfly_at_a_time() -> None:
    src = Layout.get(((1, 1), (5, 1)), [(1, 0)], [(0, 1 << i) for i in range(5)])
    dst = Layout.get(((1, 1), (5, 1)), [(0, 1)], [(1, 0), *((0, 1 << i) for i in range(1, 5))])
    plan = plan_conversion(src, dst, (2, 32), 32)
    assert plan.kind == "shuffle" and plan.shuffle is not None
    # The register bit and the lane bit trade places: half the data crosses, in one butterfly.
    assert plan.shuffle.shuffles() == 1
    assert plan.shuffle.lane_identity
    check(plan, (2, 32))


def test_narrow_elements_that_stay_together_shuffle_together() -> None:
    src = Layout.get(((8, 1),), [(1,), (2,), (64,)], [(4,), (8,), (16,), (32,), (128,)])
    dst = Layout.get(((8, 1),), [(1,), (2,), (4,)], [(64,), (8,), (16,), (32,), (128,)])
    plan = plan_conversion(src, dst, (256,), 8)
    assert plan.shuffle is not None and plan.shuffle.unit == 4 and plan.shuffle.shuffles() == 1
    check(plan, (256,))


def test_a_transpose_across_warps_goes_through_shared_memory() -> None:
    shape = (64, 64)
    plan = plan_conversion(blocked(shape, (1, 0), 4, 4), blocked(shape, (0, 1), 4, 4), shape, 32)
    assert plan.kind == "shared" and plan.shared is not None
    assert plan.shared.scope == "cta"
    assert plan.scratch_bytes == 64 * 64 * 4
    check(plan, shape)


def test_a_large_warp_local_exchange_prefers_wide_shared_accesses() -> None:
    """Many registers over one warp, permuted among lanes and registers: shuffles cost more than 16-byte accesses."""
    shape = (32, 128)
    src = blocked(shape, (1, 0), 1, 4)
    dst = blocked(shape, (0, 1), 1, 4)
    plan = plan_conversion(src, dst, shape, 32)
    assert plan.kind == "shared" and plan.shared is not None and plan.shared.scope == "warp"
    check(plan, shape)


def test_without_scratch_a_warp_local_exchange_shuffles() -> None:
    shape = (32, 32)
    src, dst = blocked(shape, (1, 0), 1, 4), blocked(shape, (0, 1), 1, 4)
    plan = plan_conversion(src, dst, shape, 32, scratch_budget=0)
    assert plan.kind == "shuffle" and "no scratch" in plan.reason
    check(plan, shape)
    with pytest.raises(ValueError, match="scratch"):
        plan_conversion(blocked(shape, (1, 0), 4, 4), blocked(shape, (0, 1), 4, 4), shape, 32, scratch_budget=0)


def scratch_conflicts(plan: Plan, elem_bits: int) -> tuple[int, int]:
    assert plan.shared is not None
    shared = plan.shared
    ideal = [max(1, 32 * max(4, side.vec * elem_bits // 8) // 128) for side in (shared.stores, shared.loads)]
    return shared.stores.wavefronts // ideal[0], shared.loads.wavefronts // ideal[1]


@pytest.mark.parametrize("elem", [8, 16, 32, 64])
@pytest.mark.parametrize(
    ("src", "dst", "shape"),
    [
        (blocked((64, 64), (1, 0), 4, 4), blocked((64, 64), (0, 1), 4, 4), (64, 64)),
        (blocked((64, 64), (1, 0), 4, 1), blocked((64, 64), (0, 1), 4, 1), (64, 64)),
        (wgmma_accumulator((64, 64), 4), blocked((64, 64), (1, 0), 4, 4), (64, 64)),
        (mma_accumulator((64, 64), 2, 2), blocked((64, 64), (0, 1), 4, 2), (64, 64)),
        (wgmma_accumulator((128, 192), 8), blocked((128, 192), (1, 0), 8, 8), (128, 192)),
    ],
)
def test_scratch_is_free_of_bank_conflicts(src: Layout, dst: Layout, shape: tuple[int, ...], elem: int) -> None:
    plan = plan_conversion(src, dst, shape, elem)
    assert plan.kind == "shared"
    assert scratch_conflicts(plan, elem) == (1, 1)


def test_wide_accesses_where_both_sides_have_neighbours() -> None:
    shape = (64, 64)
    dst = Layout.get(*_with_warps_swapped(blocked(shape, (1, 0), 4, 8)))
    shared = plan_conversion(blocked(shape, (1, 0), 4, 8), dst, shape, 16).shared
    assert shared is not None and (shared.stores.vec, shared.loads.vec) == (8, 8)


def _with_warps_swapped(layout: Layout) -> tuple[L.Dims, L.Vectors, L.Vectors, L.Vectors]:
    return layout.dims, layout.reg, layout.lane, layout.warp[::-1]


def test_copies_are_stored_once() -> None:
    src = Layout.get(((4, 1),), [], [(1,), (2,), (4,), (0,), (0,)], [(8,), (0,)])
    dst = Layout.get(((4, 1),), [], [(1,), (2,), (4,), (0,), (0,)], [(0,), (8,)])
    plan = plan_conversion(src, dst, (16,), 32)
    assert plan.shared is not None
    assert plan.shared.guards == ((0b01000, 0), (0b10000, 0), (0, 0b10))
    check(plan, (16,))


def test_bank_conflicts() -> None:
    rows = blocked((32, 32), (1, 0), 1, 1)
    columns = blocked((32, 32), (0, 1), 1, 1)
    dense = SharedLayout.row_major((32, 32))
    assert bank_conflicts(rows, dense, 32, 1) == 1
    assert bank_conflicts(columns, dense, 32, 1) == 32
    assert bank_conflicts(columns, SharedLayout.padded((32, 32), None, 1), 32, 1) == 1
    assert bank_conflicts(columns, SharedLayout.padded((32, 32), None, 4), 32, 1) == 4
    # A wgmma accumulator of 16-bit pairs into a 128-byte swizzled tile: eight rows meet in the same banks without it.
    accumulator = wgmma_accumulator((64, 64), 4)
    assert bank_conflicts(accumulator, SharedLayout.row_major((64, 64)), 16, 2) == 8
    assert bank_conflicts(accumulator, SharedLayout.swizzled((64, 64), None, 2, 128), 16, 2) == 1
    # 16-byte accesses go in quarter warps.
    assert bank_conflicts(blocked((64, 64), (1, 0), 4, 8), SharedLayout.row_major((64, 64)), 16, 8) == 1
    assert bank_conflicts(blocked((8, 32), (0, 1), 1, 1), SharedLayout.row_major((8, 32)), 8, 1) >= 1


def test_layouts_over_other_threads_or_tiles_are_refused() -> None:
    layout = blocked((64, 64), (1, 0), 4, 4)
    for other, shape in (
        (blocked((64, 64), (1, 0), 8, 4), (64, 64)),
        (blocked((64,), (0,), 4), (64, 64)),
        (blocked((64, 32), (1, 0), 4, 4), (64, 64)),
    ):
        with pytest.raises(ValueError):
            plan_conversion(layout, other, shape, 32)


def test_cta_bits_take_no_part() -> None:
    src = Layout.get(((3, 1),), [(1,)], [(2,)], [], [(4,)])
    dst = Layout.get(((3, 1),), [(2,)], [(1,)], [], [(4,)])
    plan = plan_conversion(src, dst, (8,), 32, 0)
    assert plan.kind == "shuffle"
    check(plan, (8,))
    with pytest.raises(ValueError, match="CTA"):
        plan_conversion(src, Layout.get(((3, 1),), [(2,), (4,)], [(1,)], [], [(0,)]), (8,), 32)


def test_plans_are_cached() -> None:
    src, dst = wgmma_accumulator((128, 128), 4), blocked((128, 128), (1, 0), 4, 8)
    assert plan_conversion(src, dst, (128, 128), 16) is plan_conversion(src, dst, [128, 128], 16)


# -------------------------------------------------------------------------------- reductions, scans


def run_reduce(layout: Layout, axis: int) -> None:
    """Every thread ends with each remaining element's values, each coordinate along the axis exactly once."""
    plan = reduce_plan(layout, axis)
    threads = list(itertools.product(range(layout.num_lanes), range(layout.num_warps)))
    state = {(n, w): [Counter(layout.coords(r, n, w) for r in group) for group in plan.groups] for n, w in threads}
    for step in (*plan.lane_steps, *plan.warp_steps):
        old = {key: list(value) for key, value in state.items()}
        for n, w in threads:
            other = old[n ^ step.lane_xor, w ^ step.warp_xor]
            partner = step.partner or range(len(plan.groups))
            state[n, w] = [mine + other[partner[i]] for i, mine in enumerate(old[n, w])]
    for n, w in threads:
        for r in range(plan.result.num_regs):
            rest = plan.result.coords(r, n, w)
            want = Counter((*rest[:axis], x, *rest[axis:]) for x in range(layout.shape_padded[axis]))
            assert state[n, w][plan.out[r]] == want


@settings(max_examples=150)
@given(layouts(mixed=False), st.data())
def test_reduce_combines_each_element_once(layout: Layout, data: st.DataObject) -> None:
    run_reduce(layout, data.draw(st.integers(0, layout.rank - 1)))


@settings(max_examples=150)
@given(layouts(max_rank=2), st.data())
def test_reduce_of_mixed_layouts(layout: Layout, data: st.DataObject) -> None:
    run_reduce(layout, data.draw(st.integers(0, layout.rank - 1)))


def test_reduce_of_an_accumulator_row() -> None:
    plan = reduce_plan(wgmma_accumulator((64, 96), 4), 1)
    assert plan.lane_masks == (1, 2) and plan.warp_steps == ()
    assert [len(group) for group in plan.groups] == [24, 24]
    columns = reduce_plan(wgmma_accumulator((64, 96), 4), 0)
    assert columns.lane_masks == (4, 8, 16) and columns.warp_masks == (1, 2)


def run_scan(layout: Layout, axis: int, reverse: bool) -> None:
    """With concatenation as the operation: each element ends with its whole prefix in order."""
    plan = scan_plan(layout, axis, reverse)
    threads = list(itertools.product(range(layout.num_lanes), range(layout.num_warps)))
    state = {(n, w): [[layout.coords(r, n, w)] for r in range(layout.num_regs)] for n, w in threads}
    for step in plan.steps:
        old = {key: list(value) for key, value in state.items()}
        for n, w in threads:
            held = (n & step.lane_guard, w & step.warp_guard)
            if held != ((0, 0) if reverse else (step.lane_guard, step.warp_guard)):
                continue
            source = old[n & ~step.lane_clear | step.lane_set, w & ~step.warp_clear | step.warp_set]
            for i, j in step.pairs:
                state[n, w][i] = source[j] + old[n, w][i]
    extent = layout.shape_padded[axis]
    for n, w in threads:
        for r in range(layout.num_regs):
            x = layout.coords(r, n, w)
            run = range(extent - 1, x[axis] - 1, -1) if reverse else range(x[axis] + 1)
            assert state[n, w][r] == [(*x[:axis], y, *x[axis + 1 :]) for y in run]


@settings(max_examples=150)
@given(layouts(mixed=False), st.data(), st.booleans())
def test_scan_keeps_order(layout: Layout, data: st.DataObject, reverse: bool) -> None:
    run_scan(layout, data.draw(st.integers(0, layout.rank - 1)), reverse)


def test_scan_refuses_mixed_columns() -> None:
    with pytest.raises(ValueError, match="plain layout"):
        scan_plan(Layout.get(((2, 1),), [(1,)], [(3,)]), 0)
