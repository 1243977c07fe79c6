"""What a reduction or a scan along one dimension does to a layout: which registers, lanes and warps combine, as data.

Pure mathematics. Copies are combined once only. Holes (coordinates past the logical size) take part: the lowering
puts the identity in them first.
"""

from __future__ import annotations

import functools

from mimw.ir import f2
from mimw.ir.layout import Layout, pack_vector
from mimw.ir.layout_shapes import slice_


class Exchange:
    """acc[i] = combine(acc[i], acc[partner[i]] of lane ^ lane_xor, warp ^ warp_xor). `partner` is None where it is
    i itself."""

    __slots__ = ("lane_xor", "partner", "warp_xor")

    def __init__(self, lane_xor: int, warp_xor: int, partner: tuple[int, ...] | None) -> None:
        self.lane_xor = lane_xor
        self.warp_xor = warp_xor
        self.partner = partner


class ReducePlan:
    """Execute: acc[i] = combine of registers groups[i] (ascending along the axis in lane 0); then the `lane_steps`
    butterflies in order; then the `warp_steps` through shared memory (each of 2^n warps along the axis contributes
    one partial, n steps). Result register r of `result` is acc[out[r]]; every thread ends with the value.
    """

    __slots__ = ("groups", "lane_steps", "out", "result", "warp_steps")

    def __init__(
        self,
        result: Layout,
        groups: tuple[tuple[int, ...], ...],
        lane_steps: tuple[Exchange, ...],
        warp_steps: tuple[Exchange, ...],
        out: tuple[int, ...],
    ) -> None:
        self.result = result
        self.groups = groups
        self.lane_steps = lane_steps
        self.warp_steps = warp_steps
        self.out = out

    @property
    def lane_masks(self) -> tuple[int, ...]:
        """XOR masks of the butterflies."""
        return tuple(step.lane_xor for step in self.lane_steps)

    @property
    def warp_masks(self) -> tuple[int, ...]:
        """XOR masks of the warps that exchange partials."""
        return tuple(step.warp_xor for step in self.warp_steps)


@functools.lru_cache(maxsize=1024)
def reduce_plan(layout: Layout, axis: int) -> ReducePlan:
    """How to reduce `axis`; the result has layout `slice_(layout, axis)`. ValueError when the axis is spread over
    CTAs."""
    result, representatives = slice_(layout, axis)
    if any(v[axis] for v in layout.cta):
        raise ValueError(f"dimension {axis} of {layout} is spread over CTAs: it cannot be reduced inside one")
    regs, lanes = len(layout.reg), len(layout.lane)
    vectors = (*layout.reg, *layout.lane, *layout.warp)
    width = layout.dims[axis][0]
    kept = [pack_vector(layout, (*v[:axis], 0, *v[axis + 1 :])) for v in vectors]
    along = [v[axis] for v in vectors]
    distinct = f2.Span()
    steps: list[int] = []
    for hardware in f2.kernel(kept):
        # A kernel vector that adds no new direction along the axis leads to a copy, which must not be combined again.
        if distinct.add(f2.apply(along, hardware)):
            steps.append(hardware)
    if distinct.dim != width:
        raise ValueError(f"dimension {axis} of {layout} is not onto along its other dimensions")
    own = [h for h in steps if h < 1 << regs]
    groups, group_of = _groups(layout, axis, own)
    lane_steps: list[Exchange] = []
    warp_steps: list[Exchange] = []
    for hardware in steps[len(own) :]:
        reg = hardware & ((1 << regs) - 1)
        lane, warp = hardware >> regs & ((1 << lanes) - 1), hardware >> regs + lanes
        partner = tuple(group_of[group[0] ^ reg] for group in groups) if reg else None
        (warp_steps if warp else lane_steps).append(Exchange(lane, warp, partner))
    return ReducePlan(result, groups, tuple(lane_steps), tuple(warp_steps), tuple(group_of[r] for r in representatives))


def _groups(layout: Layout, axis: int, own: list[int]) -> tuple[tuple[tuple[int, ...], ...], dict[int, int]]:
    """(registers that one thread combines, group of every register); copies among registers form groups of their
    own."""
    coordinates = layout.reg_coords()
    low = 1 << len(layout.reg)
    inner = 1
    for _, o in layout.dims[axis + 1 :]:
        inner *= o
    count = layout.dims[axis][1]
    members = f2.span_table(own)
    groups: list[tuple[int, ...]] = []
    group_of: dict[int, int] = {}
    for reg in range(layout.num_regs):
        if reg in group_of:
            continue
        # Digits along the axis step by `inner` in the mixed radix; the first register met has digit 0 along it.
        group = [(reg ^ member) + q * inner * low for q in range(count) for member in members]
        for r in group:
            group_of[r] = len(groups)
        groups.append(tuple(sorted(group, key=lambda r: coordinates[r][axis])))
    return tuple(groups), group_of


class ScanStep:
    """For each (i, j) of `pairs`: value[i] = combine(value[j] of the source thread, value[i]), in threads where the
    guard holds.

    Source thread: lane (lane & ~lane_clear) | lane_set, warp (warp & ~warp_clear) | warp_set. Guard: all bits of
    `lane_guard` in the lane and of `warp_guard` in the warp are set (for a reverse scan: clear). All reads of one
    step come before its writes.
    """

    __slots__ = ("lane_clear", "lane_guard", "lane_set", "pairs", "warp_clear", "warp_guard", "warp_set")

    def __init__(
        self,
        pairs: tuple[tuple[int, int], ...],
        lane: tuple[int, int, int],
        warp: tuple[int, int, int],
    ) -> None:
        self.pairs = pairs
        self.lane_clear, self.lane_set, self.lane_guard = lane
        self.warp_clear, self.warp_set, self.warp_guard = warp

    @property
    def crosses_warps(self) -> bool:
        """True when values come from other warps: through shared memory."""
        return bool(self.warp_clear or self.warp_set)

    @property
    def crosses_lanes(self) -> bool:
        """True when values come from other lanes: a shuffle."""
        return bool(self.lane_clear or self.lane_set)


class ScanPlan:
    """An inclusive scan: do the steps in order. In a reverse scan operands are combined as combine(source, own) too."""

    __slots__ = ("reverse", "steps")

    def __init__(self, steps: tuple[ScanStep, ...], reverse: bool) -> None:
        self.steps = steps
        self.reverse = reverse


@functools.lru_cache(maxsize=1024)
def scan_plan(layout: Layout, axis: int, reverse: bool = False) -> ScanPlan:
    """How to scan along `axis`, from low to high coordinates (from high to low when `reverse`).

    ValueError unless every coordinate bit of the axis is one hardware bit of its own: convert to a blocked layout
    first.
    """
    if any(v[axis] for v in layout.cta):
        raise ValueError(f"dimension {axis} of {layout} is spread over CTAs: it cannot be scanned inside one")
    places = _axis_places(layout, axis)
    if places is None:
        raise ValueError(f"a scan along dimension {axis} needs a plain layout, not {layout}")
    coordinates = layout.reg_coords()
    by_coordinate = {c: reg for reg, c in reversed(list(enumerate(coordinates)))}
    copies = layout.free_reg_bits()
    bits, count = layout.dims[axis]
    steps: list[ScanStep] = []
    below = [0, 0, 0]  # register, lane, warp bits that hold the axis bits already scanned
    for bit in range(bits):
        kind, index = places[bit]
        lane_guard = 1 << index if kind == 1 else 0
        warp_guard = 1 << index if kind == 2 else 0
        pairs: list[tuple[int, int]] = []
        for reg in range(layout.num_regs):
            if kind == 0 and bool(reg >> index & 1) == reverse:
                continue
            source = reg ^ 1 << index if kind == 0 else reg
            pairs.append((reg, source & ~below[0] if reverse else source | below[0]))
        lanes = (below[1], lane_guard, lane_guard) if reverse else (lane_guard, below[1], lane_guard)
        warps = (below[2], warp_guard, warp_guard) if reverse else (warp_guard, below[2], warp_guard)
        steps.append(ScanStep(tuple(pairs), lanes, warps))
        below[kind] |= 1 << index
    low = (1 << len(layout.reg)) - 1
    order = range(count - 2, -1, -1) if reverse else range(1, count)
    for q in order:
        pairs = []
        for reg, c in enumerate(coordinates):
            if c[axis] >> bits != q:
                continue
            neighbour = (q + (1 if reverse else -1)) << bits
            at = (*c[:axis], neighbour | c[axis] & ((1 << bits) - 1), *c[axis + 1 :])
            source = by_coordinate[at] | reg & low & copies
            pairs.append((reg, source & ~below[0] if reverse else source | below[0]))
        lanes = (below[1], 0, 0) if reverse else (0, below[1], 0)
        warps = (below[2], 0, 0) if reverse else (0, below[2], 0)
        steps.append(ScanStep(tuple(pairs), lanes, warps))
    return ScanPlan(tuple(steps), reverse)


def can_scan(layout: Layout, axis: int) -> bool:
    """Whether every coordinate bit of the axis is decided by one bit of the hardware index, which decides nothing else."""
    return not any(v[axis] for v in layout.cta) and _axis_places(layout, axis) is not None


def _axis_places(layout: Layout, axis: int) -> list[tuple[int, int]] | None:
    """For every coordinate bit of the axis the (0 register / 1 lane / 2 warp, bit) that alone decides it; None where there is none."""
    places: dict[int, tuple[int, int]] = {}
    for kind, vectors in enumerate((layout.reg, layout.lane, layout.warp)):
        for index, vector in enumerate(vectors):
            x = vector[axis]
            if not x:
                continue
            if x & (x - 1) or any(y for d, y in enumerate(vector) if d != axis) or x.bit_length() - 1 in places:
                return None
            places[x.bit_length() - 1] = (kind, index)
    return [places[bit] for bit in range(layout.dims[axis][0])]
