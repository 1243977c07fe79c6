"""Layout rules of the ops that are not elementwise, and what each op would like.

An op has one *primary* layout. A rule says, for a primary, which layout each operand must have and each result gets, and turns a
neighbour's layout into a primary of its own. `RULES` is keyed by op name; every other op with tiles is elementwise: all its tiles
lie in the primary layout. Knows the ops, not the solver.
"""

from __future__ import annotations

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.layout import (
    Layout,
    broadcast,
    expand,
    join,
    remove_reg_copies,
    reshape,
    slice_,
    split,
    squeeze,
    transpose,
)
from mimw.ir.layout_factories import (
    blocked,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    pad_dims,
    wgmma_accumulator,
    wgmma_operand_a,
)
from mimw.ir.types import DType, InflightType, MemDescType, PointerType, TensorType, Type, element_of
from mimw.passes.facts import Facts, vector_width
from mimw.passes.layout_inference import costs
from mimw.target import Target


class Context:
    """What rules may ask: the machine, the warps, the facts."""

    __slots__ = ("facts", "num_warps", "target")

    def __init__(self, target: Target, num_warps: int, facts: Facts) -> None:
        self.target = target
        self.num_warps = num_warps
        self.facts = facts

    def spread(self, shape: tuple[int, ...], order: tuple[int, ...] | None = None, vec: int = 1) -> Layout:
        """A blocked layout over all threads; `vec` is cut so that every thread has work."""
        order = tuple(reversed(range(len(shape)))) if order is None else order
        total = 1
        for s in shape:
            total <<= pad_dims(s, "pow2")[0]
        vec = max(1, min(vec, total // (self.num_warps * self.target.warp_size)))
        return blocked(shape, order, self.num_warps, vec, self.target.warp_size)


def tile_of(t: Type) -> TensorType | None:
    """The tensor type behind a type that carries a register layout (a tile, or one in flight)."""
    if isinstance(t, TensorType):
        return t
    return t.tensor if isinstance(t, InflightType) else None


def bits_of(t: TensorType) -> int:
    """Bits that one element takes in a conversion."""
    return t.element.bits if isinstance(t.element, DType) else 64


class Rule:
    """The rule of elementwise ops, and the base of the others."""

    __slots__ = ()

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        """What the operand (index in the flat list) must have; None: any layout will do."""
        return primary

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        """What the result gets."""
        return primary

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        """A primary that takes the operand as it is; None when there is none."""
        return layout

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        """A primary that gives the result this layout; None when there is none."""
        return layout

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        """What the op itself would like, best first."""
        return []

    def fixed(self, op: OpBase) -> bool:
        """Whether the op takes nothing but its seeds."""
        return False

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        """Slots of one execution in this layout."""
        return primary.num_regs * _weight(op)


_MOST_REGISTERS = 256  # a broadcast that would put more into each thread takes its result's layout from elsewhere
_SLOW = {"arith.div": 8.0, "arith.div_rn": 12.0, "arith.rem": 16.0}


def _weight(op: OpBase) -> float:
    """Slots per register of an elementwise op."""
    name = op.name
    if name.startswith("math."):
        return 6.0
    t = tile_of(op.results[0].type) if op.results else None
    narrow = t is not None and isinstance(t.element, DType) and t.element.bits <= 16
    return _SLOW.get(name, 0.5 if narrow else 1.0)


class _ExpandRule(Rule):
    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        return squeeze(primary, op.attrs["axis"])

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return expand(layout, op.attrs["axis"])

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout if layout.dims[op.attrs["axis"]] == (0, 1) else None

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


def narrowed(primary: Layout, old: tuple[int, ...], new: tuple[int, ...]) -> Layout:
    """The layout of a broadcast's operand: the repeated dimensions shrink to one coordinate, their bits become copies."""
    flat = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if not flat:
        return primary

    def cut(vectors: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
        return [tuple(0 if d in flat else x for d, x in enumerate(v)) for v in vectors]

    dims = tuple((0, 1) if d in flat else p for d, p in enumerate(primary.dims))
    full = Layout.get(dims, cut(primary.reg), cut(primary.lane), cut(primary.warp), cut(primary.cta))
    return remove_reg_copies(full)[0]


class _BroadcastRule(Rule):
    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return narrowed(primary, t.shape, op.attrs["shape"])

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        for d, (a, b) in enumerate(zip(t.shape, op.attrs["shape"], strict=True)):
            if a != b and layout.dims[d] == (0, 1):
                layout = broadcast(layout, d, pad_dims(b, "pow2"))
        return layout if layout.num_regs <= _MOST_REGISTERS else None

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.05 * primary.num_regs


class _TransRule(Rule):
    """Primary: the source's layout."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return transpose(primary, op.attrs["order"])

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        order = op.attrs["order"]
        inverse = [0] * len(order)
        for i, p in enumerate(order):
            inverse[p] = i
        return transpose(layout, inverse)

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


class _ReshapeRule(Rule):
    """Primary: the source's layout. Where registers cannot simply be renamed the op goes through its own shared scratch, to a
    blocked layout (`reshaped`)."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return reshaped(op, primary)[0]

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        src, out = op.operands[0].type, op.results[0].type
        assert isinstance(src, TensorType) and isinstance(out, TensorType)
        found = reshape(layout, out.shape, src.shape)
        return found if found is not None and reshape(found, src.shape, out.shape) is layout else None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return [ctx.spread(t.shape)]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0 if reshaped(op, primary)[1] else 2 * costs.BARRIER + 8.0 * primary.num_regs


def reshaped(op: OpBase, primary: Layout) -> tuple[Layout, bool]:
    """(layout of a reshape's result, whether it is a renaming of registers)."""
    src, out = op.operands[0].type, op.results[0].type
    assert isinstance(src, TensorType) and isinstance(out, TensorType)
    free = reshape(primary, src.shape, out.shape)
    if free is not None:
        return free, True
    order = tuple(reversed(range(out.rank)))
    return blocked(out.shape, order, primary.num_warps, 1, primary.num_lanes), False


class _JoinRule(Rule):
    """Primary: the operands' layout."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return join(primary)

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        try:
            found, _ = split(layout)
        except ValueError:
            return None
        return found if join(found) is layout else None


class _SplitRule(Rule):
    """Primary: the source's layout, in which one register bit alone decides the last dimension."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return split(primary)[0]

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        try:
            split(layout)
        except ValueError:
            return None
        return layout

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return join(layout)

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = op.results[0].type
        assert isinstance(t, TensorType)
        return [join(ctx.spread(t.shape))]


class _CatRule(Rule):
    """Primary: the operands' layout (both). Equal powers of two become one more register bit, else the op uses shared scratch."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return concatenated(op, primary)[0]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0 if concatenated(op, primary)[1] else 2 * costs.BARRIER + 16.0 * primary.num_regs

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        # One primary serves both operands, so it must cover the larger one.
        a, b = (v.type for v in op.operands)
        assert isinstance(a, TensorType) and isinstance(b, TensorType)
        wide = tuple(map(max, a.shape, b.shape))
        return layout if all(s <= p for s, p in zip(wide, layout.shape_padded, strict=True)) else None

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        a, b = (v.type for v in op.operands)
        assert isinstance(a, TensorType) and isinstance(b, TensorType)
        return [ctx.spread(tuple(map(max, a.shape, b.shape)))]


def concatenated(op: OpBase, primary: Layout) -> tuple[Layout, bool]:
    """(layout of a concatenation's result, whether it is a renaming of registers)."""
    a, b = (v.type for v in op.operands)
    out = op.results[0].type
    axis: int = op.attrs["axis"]
    assert isinstance(a, TensorType) and isinstance(b, TensorType) and isinstance(out, TensorType)
    bits, odd = primary.dims[axis]
    size = a.shape[axis]
    if size == b.shape[axis] == 1 << bits and odd == 1:
        dims = tuple((bits + 1, 1) if d == axis else p for d, p in enumerate(primary.dims))
        unit = tuple(size if d == axis else 0 for d in range(primary.rank))
        return Layout.get(dims, (*primary.reg, unit), primary.lane, primary.warp, primary.cta), True
    order = tuple(reversed(range(out.rank)))
    return blocked(out.shape, order, primary.num_warps, 1, primary.num_lanes), False


class _ReduceRule(Rule):
    """Primary: the sources' layout."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return slice_(primary, op.attrs["axis"])[0]

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return [ctx.spread(t.shape), _by_rows(t.shape, op.attrs["axis"], ctx)]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return costs.reduction(primary, op.attrs["axis"], len(op.operands))


def _by_rows(shape: tuple[int, ...], axis: int, ctx: Context) -> Layout:
    """Lanes along the reduced axis, warps along the others: no combination across warps while there are rows enough."""
    others = tuple(d for d in reversed(range(len(shape))) if d != axis)
    dims = [pad_dims(s, "pow2")[0] for s in shape]
    rank = len(shape)
    zero = (0,) * rank
    own = [tuple(1 << b if d == axis else 0 for d in range(rank)) for b in range(dims[axis])]
    rest = [tuple(1 << b if d == k else 0 for d in range(rank)) for k in others for b in range(dims[k])]
    lanes, warps = ctx.target.warp_size.bit_length() - 1, ctx.num_warps.bit_length() - 1
    lane = own[-lanes:]
    warp = rest[-warps:] if warps else []
    spare = [v for v in (*own, *rest) if v not in lane and v not in warp]
    while len(lane) < lanes:
        lane.append(spare.pop() if spare else zero)
    while len(warp) < warps:
        warp.append(spare.pop() if spare else zero)
    return Layout.get([(a, 1) for a in dims], spare, lane, warp)


class _ScanRule(_ReduceRule):
    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return primary

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 2 * primary.num_regs + costs.reduction(primary, op.attrs["axis"], len(op.operands))


class _AccessRule(Rule):
    """load, store, async_copy.load: everything in one layout, coalesced if it can be."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        ptr, mask = op.operands[0], _mask(op)
        t = ptr.type
        if not isinstance(t, TensorType):
            return []
        fact = ctx.facts.of(ptr)
        order = tuple(sorted(range(t.rank), key=lambda d: (-min(fact.contiguity[d], t.shape[d]), -d)))
        d, size = order[0], _pointee_bytes(t)
        vec = min(fact.contiguity[d], max(1, fact.divisor[d] // size), max(1, 16 // size))
        if mask is not None:
            vec = min(vec, ctx.facts.of(mask).constancy[d])
        first = ctx.spread(t.shape, order, vec)
        if t.rank == 1:
            return [first]
        warps_apart = _warps_on_slow_dims(t.shape, order, vec, ctx)
        return [first] if warps_apart is first else [first, warps_apart]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        ptr = op.operands[0]
        t = ptr.type
        assert isinstance(t, TensorType)
        bits = 8 * _pointee_bytes(t)
        vec = vector_width(ctx.facts, ptr, _mask(op), primary, bits)
        fact = ctx.facts.of(ptr)
        run = max(range(t.rank), key=lambda d: min(fact.contiguity[d], t.shape[d]))
        if fact.contiguity[run] == 1:
            run = -1
        return costs.global_access(primary, run, vec, bits, op.name == "memory.store")


def _warps_on_slow_dims(shape: tuple[int, ...], order: tuple[int, ...], vec: int, ctx: Context) -> Layout:
    """As the coalesced layout, but the warps take the slowest dimension first: each keeps whole rows for reductions."""
    plain = ctx.spread(shape, order, vec)
    bits = [v for v in plain.warp if any(v)]
    upper = [v for v in (*plain.reg, *plain.warp) if any(v)]
    slow = [v for d in reversed(order) for v in sorted((u for u in upper if u[d]), reverse=True)]
    low = plain.contiguity(order[0]).bit_length() - 1
    slow = [v for v in slow if v not in plain.reg[:low]]
    warp = slow[: len(bits)]
    if not bits or set(warp) == set(bits):
        return plain
    reg = [*plain.reg[:low], *sorted((v for v in upper if v not in warp and v not in plain.reg[:low]), reverse=False)]
    zeros = [v for v in plain.warp if not any(v)]
    return Layout.get(plain.dims, reg, plain.lane, [*reversed(warp), *zeros])


def _mask(op: OpBase) -> Value | None:
    position = next(i for i, f in enumerate(op.spec.operands) if f.name == "mask")
    return op.operands[sum(op.segments[:position])] if op.segments[position] else None


def _pointee_bytes(t: TensorType) -> int:
    e = element_of(t)
    if not isinstance(e, PointerType):
        raise InternalError(f"{t} holds no pointers")
    return e.pointee.itemsize


class _AsyncLoadRule(_AccessRule):
    """The memdesc operand takes no part."""


class _SharedRule(Rule):
    """local_alloc with a source, local_store, local_load: any layout, priced by the width of the accesses."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        if op.results and any(user.name == "mma.dot" for user in op.results[0].users):
            return []  # the product says how: ldmatrix serves its layout
        t = _shared_tile(op)
        return [ctx.spread(t.shape, None, max(1, 128 // bits_of(t)))]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        t = _shared_tile(op)
        memory = _memdesc(op)
        bits = bits_of(t)
        run = 1
        if bits == 16 and op.results and any(user.name == "mma.dot" for user in op.results[0].users):
            return primary.num_regs / 2 * costs.WAVEFRONT  # ldmatrix
        if memory.layout is not None:
            for d, bases in enumerate(memory.layout.bases):
                if bases[:1] == (1,):
                    run = max(run, min(primary.contiguity(d), max(1, 128 // bits)))
        return primary.num_regs / run * (max(1.0, run * bits / 32) * costs.WAVEFRONT + 1)


def _shared_tile(op: OpBase) -> TensorType:
    values = (*op.operands, *op.results)
    return next(v.type for v in values if isinstance(v.type, TensorType))


def _memdesc(op: OpBase) -> MemDescType:
    values = (*op.operands, *op.results)
    return next(v.type for v in values if isinstance(v.type, MemDescType))


class _DotRule(Rule):
    """mma.dot. With tiles as operands: mma.sync, one candidate for each way to share the warps between M and N. With memdescs: fma
    on a blocked accumulator. Primary: the accumulator's layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        acc = op.results[0].type
        assert isinstance(acc, TensorType)
        if isinstance(op.operands[0].type, MemDescType):
            return [ctx.spread(acc.shape, None, 4)]
        bits = bits_of(acc)
        found: list[Layout] = []
        for wm, wn in warp_splits(acc.shape, ctx.num_warps):
            layout = mma_accumulator(acc.shape, wm, wn, 64 if bits == 64 else 32)
            if layout not in found:
                found.append(layout)
        return found[:3]

    def fixed(self, op: OpBase) -> bool:
        return True

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        if index == 2:
            return primary
        t = op.operands[index].type
        assert isinstance(t, TensorType)
        wm, wn = splits_of(primary)
        make = mma_operand_a if index == 0 else mma_operand_b
        return make(t.shape, bits_of(t), wm, wn)

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        if isinstance(op.operands[0].type, MemDescType):
            return 0.0
        return 2.0 * primary.num_regs


def warp_splits(shape: tuple[int, ...], num_warps: int) -> list[tuple[int, int]]:
    """Ways to share warps between rows and columns of an mma.sync accumulator: squarest part per warp first, no idle warps if possible."""
    ways: list[tuple[float, int, int]] = []
    for bit in range(num_warps.bit_length()):
        wm, wn = num_warps >> bit, 1 << bit
        idle = max(1.0, wm * 16 / shape[0]) * max(1.0, wn * 8 / shape[1])
        ways.append((idle * (shape[0] / wm + shape[1] / wn), wm, wn))
    ways.sort(key=lambda w: (w[0], w[2]))
    return [(wm, wn) for _, wm, wn in ways]


def splits_of(accumulator: Layout) -> tuple[int, int]:
    """(warps_m, warps_n) of an `mma_accumulator` layout; warps that hold copies are counted where the factory put them."""
    wm = wn = 1
    for v in accumulator.warp:
        if v[1]:
            wn *= 2
        else:
            wm *= 2
    return wm, wn


class _AsyncDotRule(Rule):
    """wgmma. Primary: the accumulator's layout; operand A may be a tile in the instruction's own layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = tile_of(op.results[0].type)
        assert t is not None
        return [wgmma_accumulator(t.shape, ctx.num_warps)]

    def fixed(self, op: OpBase) -> bool:
        return True

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        t = tile_of(op.operands[index].type)
        assert t is not None
        if index == 0:
            return wgmma_operand_a(t.shape, bits_of(t), primary.num_warps)
        return primary


class _AnyRule(Rule):
    """Takes each tile as it is."""

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        return None

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


ELEMENTWISE = Rule()
RULES: dict[str, Rule] = {
    "tensor.expand_dims": _ExpandRule(),
    "tensor.broadcast": _BroadcastRule(),
    "tensor.trans": _TransRule(),
    "tensor.reshape": _ReshapeRule(),
    "tensor.join": _JoinRule(),
    "tensor.split": _SplitRule(),
    "tensor.cat": _CatRule(),
    "tensor.reduce": _ReduceRule(),
    "tensor.scan": _ScanRule(),
    "memory.load": _AccessRule(),
    "memory.store": _AccessRule(),
    "async_copy.load": _AsyncLoadRule(),
    "memory.local_alloc": _SharedRule(),
    "memory.local_store": _SharedRule(),
    "memory.local_load": _SharedRule(),
    "mma.dot": _DotRule(),
    "mma.async_dot": _AsyncDotRule(),
    "debug.device_print": _AnyRule(),
    "debug.device_assert": _AnyRule(),
}


def rule_of(op: OpBase) -> Rule:
    """The rule of an op that is not control flow."""
    return RULES.get(op.name, ELEMENTWISE)
