"""Hypothesis strategies for layouts, shared by the layout and conversion tests."""

from __future__ import annotations

from hypothesis import strategies as st

from mimw.ir.layout import Dims, Layout


@st.composite
def dims_strategy(draw: st.DrawFn, max_rank: int = 3, max_bits: int = 7, odds: tuple[int, ...] = (1, 1, 3, 5)) -> Dims:
    rank = draw(st.integers(1, max_rank))
    left = max_bits
    dims: list[tuple[int, int]] = []
    budget = 15
    for _ in range(rank):
        a = draw(st.integers(0, min(left, 5)))
        o = draw(st.sampled_from([x for x in odds if x <= budget]))
        left -= a
        budget //= o
        dims.append((a, o))
    return tuple(dims)


@st.composite
def layout_on(draw: st.DrawFn, dims: Dims, lanes: int = 3, warps: int = 1, mixed: bool = True) -> Layout:
    """A random layout of these dimensions: unit vectors dealt out, copies filled in, then columns mixed."""
    shifts: list[int] = []
    total = 0
    for a, _ in reversed(dims):
        shifts.append(total)
        total += a
    shifts.reverse()
    units = draw(st.permutations([1 << bit for bit in range(total)]))
    extra = draw(st.integers(0, 2))
    regs = max(0, total - lanes - warps) + extra
    slots = units + [0] * (regs + lanes + warps - total)
    slots = list(draw(st.permutations(slots)))
    if mixed:
        for _ in range(draw(st.integers(0, 3))):
            i = draw(st.integers(0, len(slots) - 1))
            j = draw(st.integers(0, len(slots) - 1))
            if i != j:
                slots[i] ^= slots[j]
    vectors = [tuple(x >> s & ((1 << a) - 1) for s, (a, _) in zip(shifts, dims, strict=True)) for x in slots]
    return Layout.get(dims, vectors[:regs], vectors[regs : regs + lanes], vectors[regs + lanes :])


@st.composite
def layouts(draw: st.DrawFn, max_rank: int = 3, mixed: bool = True) -> Layout:
    return draw(layout_on(draw(dims_strategy(max_rank)), mixed=mixed))
