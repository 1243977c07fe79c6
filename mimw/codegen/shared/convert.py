"""Lowering of layout conversions: executes the plans of `ir.conversion` (rename, shuffle, through shared memory)."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane, LazyTile, Tile, bits_of
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.tensor import renamed
from mimw.ir.conversion_shared import Access, SharedPlan, Side
from mimw.ir.conversion_shuffle import Round, ShufflePlan, Stage
from mimw.ir.scratch import conversion_plan
from mimw.ir.types import I1, I32, U8, U32


@lowers("tensor.convert_layout")
def lower_convert_layout(ctx: Lowering, op: Any) -> None:
    """The same tile in another layout."""
    dst = layout_of(op.result)
    plan = conversion_plan(op)
    tile = ctx.tile(op.src)
    if plan.rename is not None:
        ctx.set(op.result, renamed(tile, plan.rename))
        return
    b = ctx.b
    is_bool = isinstance(tile, LazyTile) or tile[0].dtype is I1
    if is_bool:
        tile = [b.select(x, b.const(U8, 1), b.const(U8, 0)) for x in tile]
    if plan.shuffle is not None:
        out = shuffle(ctx, plan.shuffle, tile, dst.num_regs)
    else:
        assert plan.shared is not None
        out = through_shared(ctx, plan.shared, tile, dst.num_regs, op.scratch)
    if is_bool:
        ctx.set(op.result, LazyTile(len(out), lambda i: b.compare("ne", out[i], b.const(U8, 0))))
    else:
        ctx.set(op.result, out)


def parity(ctx: Lowering, lane_mask: int, warp_mask: int) -> Lane:
    """i1: the number of set bits of the thread index under the masks is odd."""
    b = ctx.b
    mask = lane_mask | warp_mask << ctx.warp_bits
    if not mask & (mask - 1):
        return b.compare("ne", b.bit_and(b.thread_id(), mask), b.const(I32, 0))
    bits = mask.bit_length()
    return b.compare("ne", ctx.linear(tuple(mask >> i & 1 for i in range(bits))), b.const(U32, 0))


# ---------------------------------------------------------------------------------------------------------------- inside a warp


def shuffle(ctx: Lowering, plan: ShufflePlan, tile: Tile, count: int) -> list[Lane]:
    """Execute a shuffle plan."""
    b = ctx.b
    dtype = tile[0].dtype
    unit = plan.unit
    packed = bits_of(dtype) < 32

    def gather(first: int) -> Lane | None:
        if first < 0:
            return None
        return b.word_lane(tile[first : first + unit]) if packed else tile[first]

    units: list[Lane | None] = [gather(s) for s in plan.source]
    for stage in plan.pre:
        units = _stage(ctx, stage, units)
    source: Lane | None = None
    results: list[Lane | None] = []
    for one in plan.rounds:
        if one is None:
            results.append(None)
            continue
        if plan.needs_shuffle(one) and not plan.lane_identity and source is None:
            source = ctx.linear((*plan.lane_columns, *plan.warp_columns))
            source = b.bit_and(source, ctx.warp_size - 1)
        results.append(_round(ctx, plan, one, units, source))
    for stage in plan.post:
        results = _stage(ctx, stage, results)
    out: list[Lane] = []
    for i in plan.result:
        lane = results[i]
        assert lane is not None
        if packed:
            out += b.unword(lane, dtype, unit)
        else:
            out.append(lane)
    return out[:count]


def _stage(ctx: Lowering, stage: Stage, units: list[Lane | None]) -> list[Lane | None]:
    b = ctx.b
    flag = parity(ctx, stage.lane_mask, stage.warp_mask) if any(x != y for x, y in stage.table) else None
    out: list[Lane | None] = []
    for x, y in stage.table:
        if x < 0:
            out.append(None)
            continue
        first, second = units[x], units[y]
        assert first is not None and second is not None
        out.append(first if x == y or flag is None else b.select(flag, second, first))
    return out


def _round(ctx: Lowering, plan: ShufflePlan, one: Round, units: list[Lane | None], source: Lane | None) -> Lane:
    b = ctx.b
    fetched: dict[int, Lane] = {}
    for p in one.picks:
        if p < 0 or p in fetched:
            continue
        unit = units[p]
        assert unit is not None
        if not plan.needs_shuffle(one):
            fetched[p] = unit
        elif plan.lane_identity:
            fetched[p] = b.shuffle_xor(unit, one.lane_xor)
        else:
            assert source is not None
            lane = b.op("xor", U32, source, b.const(U32, one.lane_xor))
            fetched[p] = b.shuffle_from(unit, lane)
    choices: list[Lane | None] = [fetched.get(p) for p in one.picks]
    for lane_mask, warp_mask in plan.select_masks:
        halved: list[Lane | None] = []
        for even, odd in zip(choices[::2], choices[1::2], strict=True):
            if even is None or odd is None or even is odd:
                halved.append(odd if even is None else even)
            else:
                halved.append(b.select(parity(ctx, lane_mask, warp_mask), odd, even))
        choices = halved
    found = choices[0]
    assert found is not None
    return found


# ------------------------------------------------------------------------------------------------------- through shared memory


def through_shared(ctx: Lowering, plan: SharedPlan, tile: Tile, count: int, scratch: int) -> list[Lane]:
    """Execute a shared plan in the scratch at byte offset `scratch`."""
    b = ctx.b
    dtype = tile[0].dtype
    loaded: dict[int, Lane] = {}
    flags = [parity(ctx, lanes, warps) for lanes, warps in plan.guards]
    for r in range(plan.rounds):
        if r:
            _sync(ctx, plan)
        for access in plan.stores.accesses:
            address, now = _address(ctx, plan, plan.stores, access, r, scratch)
            if address is None:
                continue
            guard = now
            for g, flag in enumerate(flags):
                guard = b.both(guard, flag if access.parities >> g & 1 else b.invert(flag))
            b.store("shared", address, [tile[i] for i in access.regs], guard, "")
        _sync(ctx, plan)
        for access in plan.loads.accesses:
            address, now = _address(ctx, plan, plan.loads, access, r, scratch)
            if address is None:
                continue
            other = [loaded[i] for i in access.regs] if access.regs[0] in loaded else None
            for i, lane in zip(
                access.regs, b.load("shared", dtype, address, len(access.regs), now, other, ""), strict=True
            ):
                loaded[i] = lane
    return [loaded[i] for i in plan.result]


def _sync(ctx: Lowering, plan: SharedPlan) -> None:
    if plan.scope == "warp":
        ctx.b.warp_barrier()
    else:
        ctx.b.barrier()


def _address(
    ctx: Lowering, plan: SharedPlan, side: Side, access: Access, r: int, scratch: int
) -> tuple[Lane | None, Lane | None]:
    """(address, guard of the round) of an access; no address when it belongs to another round."""
    b = ctx.b
    size = plan.elem_bytes
    thread = ctx.linear(tuple(x * size for x in (*side.lane, *side.warp)))
    base = b.plus(b.shared_base(), scratch)
    if plan.uniform_rounds:
        if access.round != r:
            return None, None
        constant = access.add - r * plan.chunk
        if side.additive:
            return b.plus(b.add(base, thread), (access.xor + constant) * size), None
        mixed = b.op("xor", U32, thread, b.const(U32, access.xor * size))
        return b.plus(b.add(base, mixed), constant * size), None
    offset = b.op("xor", U32, thread, b.const(U32, access.xor * size))
    offset = b.plus(offset, access.add * size)
    chunk = plan.chunk * size
    now = b.compare("eq", b.shift(offset, -(chunk.bit_length() - 1)), b.const(U32, r))
    return b.add(base, b.bit_and(offset, chunk - 1)), now
