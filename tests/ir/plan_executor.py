"""A plain executor of conversion plans on arrays [warp, lane, register]: what a lowering must do, step by step."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np

from mimw.ir.conversion import Plan, SharedPlan, ShufflePlan
from mimw.ir.conversion_shared import Access, Side
from mimw.ir.layout import Layout

HOLE = -1
UNSET = -7
GARBAGE = 1_000_000


def fill(layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    """Every register holds the row-major index of its element, holes hold distinct garbage."""
    values = np.empty((layout.num_warps, layout.num_lanes, layout.num_regs), dtype=np.int64)
    garbage = itertools.count(GARBAGE)
    for w, lane, r in np.ndindex(values.shape):
        x = layout.coords(r, lane, w)
        inside = all(c < s for c, s in zip(x, shape, strict=True))
        values[w, lane, r] = np.ravel_multi_index(x, shape) if inside else next(garbage)
    return values


def expected(layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    values = fill(layout, shape)
    values[values >= GARBAGE] = HOLE
    return values


def check(plan: Plan, shape: tuple[int, ...]) -> None:
    """The plan puts every element where its destination layout says."""
    want = expected(plan.dst, shape)
    got = execute(plan, fill(plan.src, shape))
    assert got.shape == want.shape
    assert np.array_equal(np.where(want == HOLE, HOLE, got), want)


def execute(plan: Plan, values: np.ndarray) -> np.ndarray:
    if plan.rename is not None:
        return values[:, :, list(plan.rename)]
    if plan.shuffle is not None:
        return _shuffle(plan.shuffle, values, plan.dst.num_regs)
    assert plan.shared is not None
    return _shared(plan.shared, values, plan.dst.num_regs)


def _parity(values: np.ndarray) -> np.ndarray:
    return np.array([int(v).bit_count() & 1 for v in values.ravel()]).reshape(values.shape)


def _linear(columns: tuple[int, ...], index: np.ndarray) -> np.ndarray:
    result = np.zeros_like(index)
    for bit, column in enumerate(columns):
        result ^= np.where(index >> bit & 1, column, 0)
    return result


def _shuffle(plan: ShufflePlan, values: np.ndarray, num_dst: int) -> np.ndarray:
    warps, lanes, _ = values.shape
    warp, lane = np.meshgrid(np.arange(warps), np.arange(lanes), indexing="ij")
    nothing = np.full((warps, lanes, plan.unit), UNSET)
    units = [values[:, :, s : s + plan.unit] if s >= 0 else nothing for s in plan.source]

    def stages(state: list[np.ndarray], which: tuple) -> list[np.ndarray]:  # type: ignore[type-arg]
        for stage in which:
            flag = _parity(lane & stage.lane_mask) ^ _parity(warp & stage.warp_mask)
            state = [nothing if a < 0 else np.where(flag[:, :, None] == 1, state[b], state[a]) for a, b in stage.table]
        return state

    units = stages(units, plan.pre)
    results: list[np.ndarray] = []
    for one in plan.rounds:
        if one is None:
            results.append(nothing)
            continue
        source = one.lane_xor ^ _linear(plan.lane_columns, lane) ^ _linear(plan.warp_columns, warp)
        if not plan.needs_shuffle(one):
            assert np.array_equal(source, lane)
        pick = np.zeros_like(lane)
        for bit, (lane_mask, warp_mask) in enumerate(plan.select_masks):
            pick |= (_parity(lane & lane_mask) ^ _parity(warp & warp_mask)) << bit
        assert len(one.picks) == 1 << len(plan.select_masks)
        fetched = [units[p][warp, source] for p in one.picks]
        results.append(np.choose(np.broadcast_to(pick[:, :, None], nothing.shape), fetched))
    results = stages(results, plan.post)
    output = np.concatenate([results[i] for i in plan.result], axis=2)
    assert output.shape[2] == num_dst
    return output


def _shared(plan: SharedPlan, values: np.ndarray, num_dst: int) -> np.ndarray:
    warps, lanes, _ = values.shape
    warp, lane = np.meshgrid(np.arange(warps), np.arange(lanes), indexing="ij")
    output = np.full((warps, lanes, num_dst), UNSET)
    scratch = np.full((plan.rounds, plan.scratch_bytes // plan.elem_bytes), UNSET)
    writer = np.full(scratch.shape, -1)
    parities = [_parity(lane & lane_mask) ^ _parity(warp & warp_mask) for lane_mask, warp_mask in plan.guards]
    stored: Counter[int] = Counter()
    for access in plan.stores.accesses:
        number, place = _places(plan, plan.stores, access, warp, lane)
        allowed = np.ones_like(lane, dtype=bool)
        for g, parity in enumerate(parities):
            allowed &= parity == access.parities >> g & 1
        for i, r in enumerate(access.regs):
            at = number[allowed], place[allowed] + i
            assert np.all(scratch[at] == UNSET), "stored twice"
            scratch[at] = values[:, :, r][allowed]
            writer[at] = warp[allowed]
            stored.update(values[:, :, r][allowed].tolist())
    assert all(count == 1 for count in stored.values()), "an element is stored twice"
    for access in plan.loads.accesses:
        number, place = _places(plan, plan.loads, access, warp, lane)
        for i, r in enumerate(access.regs):
            output[:, :, r] = scratch[number, place + i]
            element = (output[:, :, r] != UNSET) & (output[:, :, r] < GARBAGE)
            if plan.scope == "warp":
                assert np.all((writer[number, place + i] == warp) | ~element), "reads what another warp wrote"
    return output[:, :, list(plan.result)]


def _places(plan: SharedPlan, side: Side, access: Access, warp: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, ...]:
    """(round, place in the scratch) of an access in every thread."""
    thread = _linear(side.lane, lane) ^ _linear(side.warp, warp)
    assert not side.additive or not np.any(thread & access.xor)
    offset = (access.xor ^ thread) + access.add
    assert not np.any(offset % side.vec)
    number, place = offset // plan.chunk, offset % plan.chunk
    assert not plan.uniform_rounds or np.all(number == access.round)
    assert np.all(number < plan.rounds)
    return number, place
