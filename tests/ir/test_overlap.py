"""Buffers that share memory: text, places, and that slots overlap exactly where the tree says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.overlap import DISTINCT, SHARED, Group, Place, parse, place


def test_text() -> None:
    tree = Group([0, Group([Group([1], size=2), 2], DISTINCT)])
    assert str(tree) == "shared(0, distinct(2*shared(1), 2))"
    assert str(parse(str(tree))) == str(tree)
    for wrong in ("", "0", "shared(0", "heap(0)", "shared(0))", "2*"):
        with pytest.raises(ValueError, match=r"tree|kind"):
            parse(wrong)


def test_all_at_the_start() -> None:
    total, (a, b) = place(Group([0, 1]), [(2, 1024), (3, 512)])
    assert a is not None and b is not None
    assert total == 3 * 1024 and (a.start, a.pitch, a.plain) == (0, 1024, True) and (b.start, b.pitch) == (0, 1024)


def test_two_small_slots_in_a_large_one() -> None:
    tree = parse("shared(0, distinct(2*shared(1), 2))")
    total, places = place(tree, [(2, 8192), (4, 2048), (2, 1024)])
    qk, p, alpha = [x for x in places if x is not None]
    assert total == 2 * 8192
    assert [qk.start + qk.pitch * qk.turn(i) for i in range(2)] == [0, 8192]
    assert [p.start + p.pitch * p.turn(i) for i in range(4)] == [0, 2048, 8192, 10240]
    assert [alpha.start + alpha.pitch * alpha.turn(i) for i in range(2)] == [4096, 12288]


def test_groups_that_fill_their_unit_are_plain() -> None:
    _, places = place(parse("shared(0, 2*shared(1))"), [(2, 4096), (4, 2048)])
    assert places[1] is not None and places[1].plain and places[1].pitch == 2048


def spans(p: Place, slots: int, size: int) -> list[tuple[int, int, int]]:
    return [(i, p.start + p.pitch * p.turn(i), p.start + p.pitch * p.turn(i) + size) for i in range(slots)]


@st.composite
def trees(draw: st.DrawFn) -> Group:
    leaves: list[int | Group] = list(range(draw(st.integers(1, 5))))
    while len(leaves) > 1 or not isinstance(leaves[0], Group):
        n = draw(st.integers(1, len(leaves)))
        kind, size = draw(st.sampled_from([SHARED, DISTINCT])), draw(st.sampled_from([1, 1, 2, 3]))
        leaves = [*leaves[n:], Group(leaves[:n], kind, size)]
    assert isinstance(leaves[0], Group)
    return leaves[0]


@given(trees(), st.data())
def test_slots_overlap_only_where_groups_share(tree: Group, data: st.DataObject) -> None:
    n = len(list(tree.leaves()))
    rings = [(data.draw(st.integers(1, 6)), 16 * data.draw(st.integers(1, 9))) for _ in range(n)]
    total, places = place(parse(str(tree)), rings)
    all_spans = [spans(p, slots, size) for p, (slots, size) in zip(places, rings, strict=True) if p is not None]
    assert len(all_spans) == n
    for k, mine in enumerate(all_spans):
        assert all(lo >= 0 and hi <= total for _, lo, hi in mine)
        assert all(b <= c or d <= a for i, a, b in mine for j, c, d in mine if i < j)
        for m in range(k):
            met = any(a < d and c < b for _, a, b in mine for _, c, d in all_spans[m])
            assert not met or _meeting(tree, k, m) == SHARED


def _meeting(node: Group, a: int, b: int) -> str:
    """The kind of the lowest group that holds both."""
    for child in node.children:
        if isinstance(child, Group) and {a, b} <= set(child.leaves()):
            return _meeting(child, a, b)
    return node.kind
