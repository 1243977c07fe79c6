"""Laws of the layout algebra, on random layouts."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir import f2
from mimw.ir import layout as L
from mimw.ir import layout_shapes as S
from mimw.ir.layout import Layout, parse_layout
from mimw.ir.layout_factories import pad_dims
from tests.ir.layout_strategies import dims_strategy, layout_on, layouts


def hardware(layout: Layout) -> itertools.product[tuple[int, ...]]:
    return itertools.product(range(layout.num_regs), range(layout.num_lanes), range(layout.num_warps))


def contents(layout: Layout) -> dict[tuple[int, ...], tuple[int, ...]]:
    return {h: layout.coords(*h) for h in hardware(layout)}


@given(layouts())
def test_every_element_has_an_owner_and_nothing_lies_outside(layout: Layout) -> None:
    everything = set(itertools.product(*(range(p) for p in layout.shape_padded)))
    assert set(contents(layout).values()) == everything


@given(layouts())
def test_owner_mask_names_each_element_once(layout: Layout) -> None:
    reg, lane, warp, _ = L.owner_mask(layout)
    low = (1 << len(layout.reg)) - 1
    owners = [c for (r, n, w), c in contents(layout).items() if not (r & low & reg or n & lane or w & warp)]
    assert len(owners) == len(set(owners))
    assert set(owners) == set(contents(layout).values())
    assert [r for r in range(layout.num_regs) if not r & low & reg] == list(L.free_registers(layout))


@given(layouts())
def test_inverse_then_layout_is_identity(layout: Layout) -> None:
    inverse = L.invert(layout)
    digits = list(itertools.product(*(range(o) for _, o in layout.dims)))
    for x in itertools.product(*(range(p) for p in layout.shape_padded)):
        place = [0, 0, 0, 0]
        for value, bits in zip(x, inverse, strict=True):
            for bit, owner in enumerate(bits):
                if value >> bit & 1:
                    place = [p ^ q for p, q in zip(place, owner, strict=True)]
        digit = digits.index(tuple(v >> a for v, (a, _) in zip(x, layout.dims, strict=True)))
        assert layout.coords((digit << len(layout.reg)) + place[0], *place[1:]) == x


@given(layouts())
def test_interning_text_and_copies_give_the_same_object(layout: Layout) -> None:
    assert parse_layout(str(layout)) is layout
    assert pickle.loads(pickle.dumps(layout)) is layout
    assert copy.deepcopy(layout) is layout
    assert "\n" not in str(layout)


@given(layouts(), st.data())
def test_transpose_permutes_coordinates(layout: Layout, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(layout.rank)))
    result = S.transpose(layout, perm)
    registers = S.transpose_registers(layout, perm)
    for (r, n, w), x in contents(result).items():
        old = layout.coords(registers[r], n, w)
        assert x == tuple(old[p] for p in perm)
    back = [perm.index(d) for d in range(layout.rank)]
    assert S.transpose(result, back) is layout


@given(layouts(), st.data())
def test_expand_adds_a_dimension_that_squeeze_drops(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank))
    result = S.expand(layout, axis)
    assert result.shape_padded[axis] == 1
    assert S.squeeze(result, axis) is layout


@given(layouts(max_rank=2), st.data())
def test_broadcast_repeats_along_the_axis(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank))
    thin = S.expand(layout, axis)
    wide = S.broadcast(thin, axis, data.draw(dims_strategy(1, 3))[0])
    registers = S.broadcast_registers(thin, wide)
    assert registers is not None
    for (r, n, w), x in contents(wide).items():
        y = thin.coords(registers[r], n, w)
        assert x[:axis] + x[axis + 1 :] == y[:axis] + y[axis + 1 :]


@given(layouts(), st.data())
def test_slice_keeps_each_remaining_element(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    result, registers = S.slice_(layout, axis)
    assert len(registers) == result.num_regs
    for (r, n, w), x in contents(result).items():
        y = layout.coords(registers[r], n, w)
        assert x == y[:axis] + y[axis + 1 :]
    assert L.owner_mask(result)[0] == 0 or result.is_replicated
    # No register bit repeats what another register or thread holds.
    assert S.remove_reg_copies(result)[0] is result


@given(layouts(), st.data())
def test_slice_then_broadcast_back_needs_no_conversion_for_plain_layouts(layout: Layout, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, layout.rank - 1))
    vectors = [*layout.reg, *layout.lane, *layout.warp]
    if any(v[axis] and sum(map(bool, v)) > 1 for v in vectors) or S.remove_reg_copies(layout)[0] is not layout:
        return
    row = S.expand(S.slice_(layout, axis)[0], axis)
    assert S.broadcast_registers(row, layout) is not None


@given(layouts())
def test_join_and_split_are_inverse(layout: Layout) -> None:
    joined = S.join(layout)
    back, (first, second) = S.split(joined)
    assert back is layout
    for (r, n, w), x in contents(layout).items():
        assert joined.coords(first[r], n, w) == (*x, 0)
        assert joined.coords(second[r], n, w) == (*x, 1)
    assert first == tuple(range(0, joined.num_regs, 2))


@given(layouts(), st.data())
def test_split_of_any_register_bit(layout: Layout, data: st.DataObject) -> None:
    joined = S.join(layout)
    reg = list(joined.reg)
    reg.insert(data.draw(st.integers(0, len(reg) - 1)), reg.pop(0))
    joined = Layout.get(joined.dims, reg, joined.lane, joined.warp)
    back, halves = S.split(joined)
    for (r, n, w), x in contents(back).items():
        assert [joined.coords(half[r], n, w) for half in halves] == [(*x, 0), (*x, 1)]


def row_major(x: tuple[int, ...], shape: tuple[int, ...]) -> int:
    index = 0
    for value, size in zip(x, shape, strict=True):
        index = index * size + value
    return index


@given(st.data())
def test_free_reshape_keeps_element_order(data: st.DataObject) -> None:
    """The leading dimension may have an odd digit and holes, the others are powers of two: any regrouping is free."""
    lead = data.draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12]))
    tail = data.draw(st.lists(st.sampled_from([1, 2, 4]), max_size=3))
    shape = (lead, *tail)
    dims = (pad_dims(lead), *((s.bit_length() - 1, 1) for s in tail))
    layout = data.draw(layout_on(dims))
    total = 1
    for size in tail:
        total *= size
    parts: list[int] = []
    while total > 1:
        part = data.draw(st.sampled_from([p for p in (2, 4, 8) if total % p == 0]))
        parts.append(part)
        total //= part
    new_shape = (lead, *parts)
    if data.draw(st.booleans()) and parts:
        new_shape = (lead * parts[0], *parts[1:])
    result = S.reshape(layout, shape, new_shape)
    assert result is not None
    for h in hardware(layout):
        x, y = layout.coords(*h), result.coords(*h)
        if x[0] < lead:
            assert row_major(x, shape) == row_major(y, new_shape)
        else:
            assert y[0] >= new_shape[0]


def test_reshape_refuses_where_an_odd_digit_would_not_stay_outermost() -> None:
    layout = Layout.get(((0, 1), (2, 3)), [], [(0, 1), (0, 2)])
    assert S.reshape(layout, (1, 12), (4, 3)) is None
    assert S.reshape(layout, (1, 12), (3, 4)) is not None
    padded = Layout.get(((1, 1), (3, 1)), [(1, 0)], [(0, 1), (0, 2), (0, 4)])
    assert S.reshape(padded, (2, 6), (12,)) is None
    assert S.reshape(padded, (2, 6), (2, 6, 1)) is not None
    assert S.reshape(padded, (2, 8), (3, 5)) is None


@given(layout_on(((2, 1), (1, 1)), lanes=1, warps=1), layout_on(((1, 3), (2, 1)), lanes=1, warps=1))
def test_product_nests_inner_in_outer(inner: Layout, outer: Layout) -> None:
    both = S.product(outer, inner)
    regs, lanes = len(inner.reg), len(inner.lane)
    warps = len(inner.warp)
    for (r1, l1, w1), x in contents(inner).items():
        for (r2, l2, w2), y in contents(outer).items():
            z = both.coords(r2 << regs | r1, l2 << lanes | l1, w2 << warps | w1)
            assert z == tuple(p + (q << a) for p, q, (a, _) in zip(x, y, inner.dims, strict=True))


@given(layouts())
def test_additive_means_thread_part_plus_register_part(layout: Layout) -> None:
    adds = all(
        x == tuple(a + b for a, b in zip(layout.reg_coords()[r], layout.thread_coords(n, w), strict=True))
        for (r, n, w), x in contents(layout).items()
    )
    assert adds or not layout.additive()
    if not any(v.bit_count() > 1 for vector in (*layout.reg, *layout.lane, *layout.warp) for v in vector):
        assert layout.additive() == adds


@given(layouts(), st.data())
def test_contiguity_is_the_largest_aligned_run(layout: Layout, data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, layout.rank - 1))

    def aligned(k: int) -> bool:
        if k > len(layout.reg):
            return False
        for n, w in itertools.product(range(layout.num_lanes), range(layout.num_warps)):
            for first in range(0, layout.num_regs, 1 << k):
                base = layout.coords(first, n, w)
                if base[dim] % (1 << k):
                    return False
                for i in range(1 << k):
                    if layout.coords(first + i, n, w) != tuple(x + i * (d == dim) for d, x in enumerate(base)):
                        return False
        return True

    k = layout.contiguity(dim).bit_length() - 1
    assert aligned(k)
    assert not aligned(k + 1)


@given(layouts())
def test_free_masks_name_the_copies(layout: Layout) -> None:
    for mask, vectors in (
        (layout.free_reg_bits(), layout.reg),
        (layout.free_lane_bits(), layout.lane),
        (layout.free_warp_bits(), layout.warp),
    ):
        assert [bool(mask >> i & 1) for i in range(len(vectors))] == [not any(v) for v in vectors]
    assert layout.is_replicated == (len(set(contents(layout).values())) < len(contents(layout)))


@given(layouts(), st.data())
def test_tile_registers_deals_every_register_once(layout: Layout, data: st.DataObject) -> None:
    tile = [1 << data.draw(st.integers(0, a)) for a, _ in layout.dims]
    tiles = L.tile_registers(layout, tile)
    assert sorted(r for regs in tiles.values() for r in regs) == list(range(layout.num_regs))
    for index, regs in tiles.items():
        assert list(regs) == sorted(regs)
        for r in regs:
            assert tuple(x // t for x, t in zip(layout.reg_coords()[r], tile, strict=True)) == index


@pytest.mark.parametrize(
    "arguments",
    [
        ([(1, 2)], [(1,)], []),  # even digit count
        ([(1, 1)], [(2,)], []),  # vector outside
        ([(2, 1)], [(1,)], [(1,)]),  # not onto
        ([(1, 1)], [(1, 0)], []),  # wrong rank
    ],
)
def test_get_refuses_what_is_no_layout(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError):
        Layout.get(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["tensor<4>", "layout<3; reg 1>", "layout<4; bogus 1 2>", "layout<4; reg 1"])
def test_parse_layout_refuses(text: str) -> None:
    with pytest.raises(ValueError):
        parse_layout(text)


def test_operations_refuse_wrong_axes() -> None:
    layout = Layout.get(((1, 1), (1, 1)), [(1, 0)], [(0, 1)])
    for call in (
        lambda: S.transpose(layout, (0, 0)),
        lambda: S.expand(layout, 3),
        lambda: S.slice_(layout, 2),
        lambda: S.squeeze(layout, 0),
        lambda: S.broadcast(layout, 0, (1, 1)),
        lambda: S.split(layout),
    ):
        with pytest.raises(ValueError):
            call()


columns = st.lists(st.integers(0, 63), min_size=1, max_size=8)


@given(columns, columns, st.integers(0, 255))
def test_compose_is_application_in_turn(outer: list[int], inner: list[int], x: int) -> None:
    outer = outer + [0] * (6 - len(outer))
    assert f2.apply(f2.compose(outer, inner), x) == f2.apply(outer, f2.apply(inner, x))


@given(columns)
def test_kernel_and_rank(matrix: list[int]) -> None:
    basis = f2.kernel(matrix)
    assert all(f2.apply(matrix, v) == 0 for v in basis)
    assert len(basis) + f2.rank(matrix) == len(matrix)
    assert f2.rank(basis) == len(basis)


@given(columns, columns)
def test_intersection_is_what_both_spans_hold(left: list[int], right: list[int]) -> None:
    both = set(f2.span_table(left)) & set(f2.span_table(right))
    assert set(f2.span_table(f2.intersection(left, right))) == both
