"""Lowerings of reductions and scans with any combine function: registers, then shuffles, then warps through shared memory.

Executes the plans of `ir.reduction`. Holes take no part: where the combine is one operation with a neutral element they hold that;
otherwise every partial result carries a flag whether it is one.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.control import run_region
from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase
from mimw.ir.layout import Layout
from mimw.ir.reduction import Exchange, ReducePlan, ScanStep, reduce_plan, scan_plan
from mimw.ir.scratch import reduce_lanes, reduce_regions, scan_regions
from mimw.ir.types import I1, I32, U8, U32, DType, TensorType, element_of


class Partial:
    """A partial result: one lane a source, and whether it holds anything (None: certainly)."""

    __slots__ = ("lanes", "valid")

    def __init__(self, lanes: list[Lane], valid: Lane | None = None) -> None:
        self.lanes = lanes
        self.valid = valid


class Combiner:
    """The combine region of an op, applied to lanes."""

    def __init__(self, ctx: Lowering, op: Any) -> None:
        self.ctx = ctx
        self.block = op.combine.block

    def __call__(self, a: Partial, c: Partial) -> Partial:
        """combine(a, c), or the one of them that holds something."""
        b = self.ctx.b
        if a.valid is None and c.valid is None:
            return Partial(self.lanes(a.lanes, c.lanes))
        found = self.lanes(a.lanes, c.lanes)
        if c.valid is not None:
            found = [b.select(c.valid, x, y) for x, y in zip(found, a.lanes, strict=True)]
        if a.valid is not None:
            found = [b.select(a.valid, x, y) for x, y in zip(found, c.lanes, strict=True)]
        if a.valid is None or c.valid is None:
            return Partial(found)
        return Partial(found, b.op("or", I1, a.valid, c.valid))

    def lanes(self, a: list[Lane], c: list[Lane]) -> list[Lane]:
        """combine(a, c)."""
        ctx = self.ctx
        for value, lane in zip(self.block.args, (*a, *c), strict=True):
            ctx.set(value, [lane])
        ctx.in_combine += 1
        found = run_region(ctx, self.block)
        ctx.in_combine -= 1
        if found is None:
            raise InternalError("a combine function does not yield", ctx.b.loc)
        return [ctx.scalar(v) for v in found]


def neutral(op: Any) -> Lane | None:
    """The neutral element of a combine function that is one operation, or None."""
    ops: list[OpBase] = op.combine.block.ops
    args = op.combine.block.args
    if len(ops) != 2 or len(args) != 2 or {id(v) for v in ops[0].operands} != {id(v) for v in args}:
        return None
    dtype = args[0].type
    if not isinstance(dtype, DType) or ops[1].operands[0] is not ops[0].results[0]:
        return None
    value = _neutral_value(ops[0].name, dtype)
    return None if value is None else LaneBuilder.const(None, dtype, value)  # type: ignore[arg-type]


def _neutral_value(name: str, dtype: DType) -> int | float | None:
    is_float = dtype.kind == "float"
    if name == "arith.add":
        return -0.0 if is_float else 0
    if name == "arith.mul":
        return 1
    if name in ("arith.or", "arith.xor"):
        return 0
    if name == "arith.and":
        return -1
    if name in ("arith.minnum", "arith.maxnum") and is_float:
        return float("nan")  # the operand that loses
    largest = name in ("arith.minnum", "arith.minimum")
    if not largest and name not in ("arith.maxnum", "arith.maximum"):
        return None
    if is_float:
        return float("inf") if largest else -float("inf")
    if dtype.kind == "bool":
        return 1 if largest else 0
    low, high = (
        (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    )
    return high if largest else low


def partials(ctx: Lowering, op: Any, layout: Layout) -> list[Partial]:
    """The registers of all sources as partial results, holes along the axis marked or neutral."""
    b = ctx.b
    tiles = [ctx.tile(v) for v in op.srcs]
    count = layout.num_regs
    shape = op.srcs[0].type.shape
    axis = op.axis
    if layout.shape_padded[axis] == shape[axis]:
        return [Partial([t[r] for t in tiles]) for r in range(count)]
    only_axis = list(layout.shape_padded)
    only_axis[axis] = shape[axis]
    inside = ctx.holes(layout, only_axis)
    filler = neutral(op)
    out: list[Partial] = []
    for r in range(count):
        valid = inside(r)
        lanes = [t[r] for t in tiles]
        if valid is not None and filler is not None:
            lanes, valid = [b.select(valid, lanes[0], filler)], None
        out.append(Partial(lanes, valid))
    return out


@lowers("tensor.reduce")
def lower_reduce(ctx: Lowering, op: Any) -> None:
    """Registers of a thread, butterflies inside warps, shared memory between them."""
    layout = layout_of(op.srcs[0])
    plan = reduce_plan(layout, op.axis)
    combine = Combiner(ctx, op)
    parts = partials(ctx, op, layout)
    hint = ctx.b.hint
    acc: list[Partial] = []
    for group in plan.groups:
        acc.append(tree(combine, [parts[r] for r in group]))
    acc = _across_lanes(ctx, op, combine, plan, acc)
    if plan.warp_steps:
        acc = _across_warps(ctx, op, combine, plan, layout, acc)
    ctx.b.hint = hint
    for i, out in enumerate(op.outs):
        lanes = [acc[g].lanes[i] for g in plan.out]
        if not isinstance(out.type, TensorType):
            lanes = [Lane(x.dtype, x.reg, x.off, x.part, CTA) for x in lanes]
        elif out.type.layout is not plan.result:
            raise InternalError(f"a reduction gives {plan.result}, its result has {out.type.layout}", op.loc)
        ctx.set(out, lanes)


def tree(combine: Combiner, parts: list[Partial]) -> Partial:
    """All partials combined, neighbours first: short chains, and few roundings on the way of each."""
    while len(parts) > 1:
        joined = [combine(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = joined + parts[len(joined) * 2 :]
    return parts[0]


def _across_lanes(ctx: Lowering, op: Any, combine: Combiner, plan: ReducePlan, acc: list[Partial]) -> list[Partial]:
    """The butterflies. Where the combine function commutes, targets may fetch an equal value from another lane; and where all lanes
    combine, the upper half of their steps may go one way only, to the last lane, which tells the others."""
    b = ctx.b
    steps = plan.lane_steps
    plain = all(p.valid is None for p in acc) and all(step.partner is None for step in steps)
    if not plain or neutral(op) is None:
        for step in steps:
            acc = _lane_step(ctx, combine, step, acc)
        return acc
    warp_size = ctx.target.warp_size
    one_way = b.steps_in_registers and plan.lane_masks == tuple(1 << i for i in range(warp_size.bit_length() - 1))
    same = 0
    for mask in plan.lane_masks:
        if one_way and mask >= 16:
            lane = b.bit_and(b.thread_id(), warp_size - 1)
            pairs = [(b.shuffle_step(p.lanes[0], mask, mask - 1, (mask, mask), lane), p.lanes[0]) for p in acc]
        else:
            pairs = [b.partners(p.lanes[0], mask, same) for p in acc]
        acc = [Partial(combine.lanes([x], [y])) for x, y in pairs]
        same |= mask
    if one_way:
        last = b.const(I32, warp_size - 1)
        acc = [Partial([b.shuffle_from(p.lanes[0], last)]) for p in acc]
    return acc


def _lane_step(ctx: Lowering, combine: Combiner, step: Exchange, acc: list[Partial]) -> list[Partial]:
    b = ctx.b

    def fetch(part: Partial) -> Partial:
        valid = None if part.valid is None else b.shuffle_xor(part.valid, step.lane_xor)
        return Partial([b.shuffle_xor(x, step.lane_xor) for x in part.lanes], valid)

    source = [fetch(p) for p in acc]
    partner = step.partner or tuple(range(len(acc)))
    return [combine(p, source[partner[i]]) for i, p in enumerate(acc)]


class Slots:
    """The scratch of a reduction or scan: for each source (and the flags) a region of `slots` elements; thread part and strides."""

    __slots__ = ("address", "ctx", "regions", "sizes", "stride", "types")

    def __init__(
        self, ctx: Lowering, base: int, types: list[Any], regions: list[int], stride: int, thread: tuple[int, ...]
    ) -> None:
        self.ctx = ctx
        self.types = types
        self.sizes = [t.bits // 8 if isinstance(t, DType) else 8 for t in types]
        self.regions: list[int] = []
        for size in regions:
            self.regions.append(base)
            base += size
        self.stride = stride
        self.address = thread

    def at(self, source: int, slot: int, thread_xor: int = 0, place: Lane | None = None) -> Lane:
        """Address of a slot of the thread (or of the one whose index differs by `thread_xor`; or whose slot number is `place`)."""
        ctx, size = self.ctx, self.sizes[source]
        b = ctx.b
        if place is None:
            offset = ctx.linear(tuple(x * size for x in self.address))
            if thread_xor:
                moved = 0
                for bit, x in enumerate(self.address):
                    if thread_xor >> bit & 1:
                        moved ^= x * size
                offset = b.op("xor", U32, offset, b.const(U32, moved))
        else:
            offset = b.times(place, size)
        whole = b.add(b.shared_base(), offset)
        return b.plus(whole, self.regions[source] + slot * self.stride * size)

    def write(self, slot: int, part: Partial) -> None:
        """Store a partial result in a slot."""
        b = self.ctx.b
        lanes = [*part.lanes]
        if len(self.types) > len(lanes):
            lanes.append(part.valid if part.valid is not None else b.const(I1, 1))
        for i, lane in enumerate(lanes):
            if lane.dtype is I1:
                lane = b.select(lane, b.const(U8, 1), b.const(U8, 0))
            b.store("shared", self.at(i, slot), [lane], None, "")

    def read(self, slot: int, thread_xor: int = 0, place: Lane | None = None) -> Partial:
        """Load a partial result."""
        b = self.ctx.b
        lanes: list[Lane] = []
        for i, dtype in enumerate(self.types):
            held = U8 if dtype is I1 or dtype is _FLAG else dtype
            lane = b.load("shared", held, self.at(i, slot, thread_xor, place), 1, None, None, "")[0]
            lanes.append(b.compare("ne", lane, b.const(U8, 0)) if held is U8 and dtype is not U8 else lane)
        if self.flagged:
            return Partial(lanes[:-1], lanes[-1])
        return Partial(lanes)

    @property
    def flagged(self) -> bool:
        """Whether the last region holds flags."""
        return self.types[-1] is _FLAG


_FLAG = DType("flag", "bool", 8, "bool")


def _slot_types(op: Any, acc: list[Partial]) -> list[Any]:
    types: list[Any] = [element_of(v.type) for v in op.srcs]
    if any(p.valid is not None for p in acc):
        types.append(_FLAG)
    return types


def _across_warps(
    ctx: Lowering, op: Any, combine: Combiner, plan: ReducePlan, layout: Layout, acc: list[Partial]
) -> list[Partial]:
    b = ctx.b
    types = _slot_types(op, acc)
    kept = reduce_lanes(plan, layout)
    bits = 0
    thread: list[int] = []
    for bit in range(len(layout.lane)):
        thread.append(1 << bits if kept >> bit & 1 else 0)
        bits += kept >> bit & 1
    thread += [1 << bits + bit for bit in range(len(layout.warp))]
    sizes = [t.bits // 8 if isinstance(t, DType) else 8 for t in types]
    regions = reduce_regions(plan, layout, sizes)
    slots = Slots(ctx, op.scratch, types, regions, layout.num_warps << bits, tuple(thread))
    plain = all(s.partner is None and not s.lane_xor for s in plan.warp_steps)
    if plain:
        for g, part in enumerate(acc):
            slots.write(g, part)
        b.barrier()
        return [
            _butterfly(slots, combine, g, part, [s.warp_xor << len(layout.lane) for s in plan.warp_steps])
            for g, part in enumerate(acc)
        ]
    for n, step in enumerate(plan.warp_steps):
        if n:
            b.barrier()
        for g, part in enumerate(acc):
            slots.write(g, part)
        b.barrier()
        partner = step.partner or tuple(range(len(acc)))
        xor = step.lane_xor | step.warp_xor << len(layout.lane)
        fetched = [slots.read(partner[g], xor) for g in range(len(acc))]
        acc = [combine(p, q) for p, q in zip(acc, fetched, strict=True)]
    return acc


def _butterfly(slots: Slots, combine: Combiner, slot: int, own: Partial, xors: list[int]) -> Partial:
    """All warps' partials in the order that a butterfly would combine them: every warp gets the same bits."""
    members = [0]
    for x in xors:
        members += [m ^ x for m in members]
    parts = [own if not m else slots.read(slot, m) for m in members]
    return tree(combine, parts)


@lowers("tensor.scan")
def lower_scan(ctx: Lowering, op: Any) -> None:
    """An inclusive scan, step by step as planned."""
    layout = layout_of(op.srcs[0])
    plan = scan_plan(layout, op.axis, op.reverse)
    combine = Combiner(ctx, op)
    values = partials(ctx, op, layout)
    hint = ctx.b.hint
    written = False
    for step in plan.steps:
        if step.crosses_warps:
            if written:
                ctx.b.barrier()
            fetched = _from_warps(ctx, op, layout, step, values)
            written = True
        elif step.crosses_lanes:
            fetched = _from_lanes(ctx, layout, step, values)
        else:
            fetched = {j: values[j] for _, j in step.pairs}
        values = _apply_step(ctx, combine, layout, step, values, fetched)
    ctx.b.hint = hint
    for i, out in enumerate(op.outs):
        if out.type.layout is not layout:
            raise InternalError(f"a scan keeps the layout {layout}, its result has {out.type.layout}", op.loc)
        ctx.set(out, [p.lanes[i] for p in values])


def _apply_step(
    ctx: Lowering, combine: Combiner, layout: Layout, step: ScanStep, values: list[Partial], fetched: dict[int, Partial]
) -> list[Partial]:
    b = ctx.b
    mask = step.lane_guard | step.warp_guard << len(layout.lane)
    guard: Lane | None = None
    if mask:
        masked = b.bit_and(b.thread_id(), mask)
        wanted = 0 if _reversed(step) else mask
        guard = b.compare("eq", masked, b.const(I32, wanted))
    out = list(values)
    for i, j in step.pairs:
        own = values[i]
        joined = combine(fetched[j], own)
        if guard is not None:
            valid = joined.valid
            if own.valid is not None or valid is not None:
                always = b.const(I1, 1)
                valid = b.select(guard, always if valid is None else valid, always if own.valid is None else own.valid)
            joined = Partial([b.select(guard, x, y) for x, y in zip(joined.lanes, own.lanes, strict=True)], valid)
        out[i] = joined
    return out


def _reversed(step: ScanStep) -> bool:
    """In a reverse scan the guarded bits are set in the source and clear in the receiver."""
    return bool(step.lane_guard & step.lane_set or step.warp_guard & step.warp_set)


def _from_lanes(ctx: Lowering, layout: Layout, step: ScanStep, values: list[Partial]) -> dict[int, Partial]:
    b = ctx.b
    lane = b.bit_and(b.thread_id(), layout.num_lanes - 1)
    guard = (step.lane_guard, 0 if _reversed(step) else step.lane_guard)

    def fetch(x: Lane) -> Lane:
        return b.shuffle_step(x, step.lane_clear, step.lane_set, guard, lane)

    out: dict[int, Partial] = {}
    for _, j in step.pairs:
        if j not in out:
            part = values[j]
            out[j] = Partial([fetch(x) for x in part.lanes], None if part.valid is None else fetch(part.valid))
    return out


def _from_warps(ctx: Lowering, op: Any, layout: Layout, step: ScanStep, values: list[Partial]) -> dict[int, Partial]:
    b = ctx.b
    types = _slot_types(op, values)
    sizes = [t.bits // 8 if isinstance(t, DType) else 8 for t in types]
    threads = layout.num_lanes * layout.num_warps
    bits = len(layout.lane) + len(layout.warp)
    regions = scan_regions(layout, op.axis, op.reverse, sizes)
    slots = Slots(ctx, op.scratch, types, regions, threads, tuple(1 << i for i in range(bits)))
    needed = sorted({j for _, j in step.pairs})
    for n, j in enumerate(needed):
        slots.write(n, values[j])
    b.barrier()
    clear = step.lane_clear | step.warp_clear << len(layout.lane)
    setting = step.lane_set | step.warp_set << len(layout.lane)
    source = b.bit_and(b.thread_id(), threads - 1 & ~clear)
    source = b.op("or", I32, source, b.const(I32, setting))
    place = Lane(U32, source.reg, source.off, uniform=source.uniform)
    return {j: slots.read(n, place=place) for n, j in enumerate(needed)}
