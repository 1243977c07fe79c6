"""Layout rules of the ops that change a tile's shape, and of reductions and scans."""

from __future__ import annotations

from mimw.diagnostics import InternalError
from mimw.ir import f2
from mimw.ir.core import OpBase
from mimw.ir.layout import Layout, pack_vector
from mimw.ir.layout_factories import pad_dims
from mimw.ir.layout_shapes import (
    broadcast,
    expand,
    join,
    part,
    reshape,
    slice_,
    split,
    squeeze,
    transpose,
    whole,
)
from mimw.ir.reduction import can_scan
from mimw.ir.types import TensorType
from mimw.passes.layout_inference import costs
from mimw.passes.layout_inference.rule import Context, Rule

_MOST_REGISTERS = 256  # a broadcast that would put more into each thread takes its result's layout from elsewhere


class ExpandRule(Rule):
    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        return squeeze(primary, op.attrs["axis"])

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return expand(layout, op.attrs["axis"])

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout if layout.dims[op.attrs["axis"]] == (0, 1) else None

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


def narrowed(primary: Layout, old: tuple[int, ...], new: tuple[int, ...]) -> Layout:
    """The layout of a broadcast's operand: the repeated dimensions shrink to one coordinate, their bits become copies.

    Register bits go that other registers repeat. One that lanes repeat stays: each lane wants what its own registers hold in `primary`
    (a swizzle may give a register and a lane the same columns, in other rows).
    """
    flat = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    if not flat:
        return primary

    def cut(vectors: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
        return [tuple(0 if d in flat else x for d, x in enumerate(v)) for v in vectors]

    dims = tuple((0, 1) if d in flat else p for d, p in enumerate(primary.dims))
    full = Layout.get(dims, cut(primary.reg), cut(primary.lane), cut(primary.warp), cut(primary.cta))
    known = f2.Span()
    reg = [v for v in full.reg if known.add(pack_vector(full, v))]
    return Layout.get(dims, reg, full.lane, full.warp, full.cta)


class BroadcastRule(Rule):
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


class TransRule(Rule):
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


class ReshapeRule(Rule):
    """Primary: the source's layout, one that can be seen under the new shape without moving an element."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        found = self._seen(op, primary)
        if found is None:
            raise InternalError(f"{primary} cannot be reshaped as {op.name} wants", op.loc)
        return found

    def _seen(self, op: OpBase, primary: Layout) -> Layout | None:
        src, out = op.operands[0].type, op.results[0].type
        assert isinstance(src, TensorType) and isinstance(out, TensorType)
        return reshape(primary, src.shape, out.shape)

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout if self._seen(op, layout) is not None else None

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        src, out = op.operands[0].type, op.results[0].type
        assert isinstance(src, TensorType) and isinstance(out, TensorType)
        found = reshape(layout, out.shape, src.shape)
        return found if found is not None and self._seen(op, found) is layout else None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return [ctx.spread(t.shape)]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


class JoinRule(Rule):
    """Primary: the operands' layout."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return join(primary)

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        try:
            found, _ = split(layout)
        except ValueError:
            return None
        return found if join(found) is layout else None


class SplitRule(Rule):
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


class ExtractSliceRule(Rule):
    """Primary: the source's layout, in which registers alone decide what belongs to the part."""

    def _part(self, op: OpBase, layout: Layout) -> Layout | None:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return part(layout, op.attrs["offsets"], t.shape, op.attrs["shape"])

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        found = self._part(op, primary)
        if found is None:
            raise InternalError(f"{primary} cannot be cut as {op.name} wants", op.loc)
        return found

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout if self._part(op, layout) is not None else None

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        found = whole(layout, t.shape, op.attrs["shape"])
        return found if found is not None and self._part(op, found) is layout else None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        """A spread of what all parts have in common: whole in the dimensions that are not cut."""
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        size: tuple[int, ...] = op.attrs["shape"]
        units = tuple(n if n == w else min(n & -n, w & -w) for n, w in zip(size, t.shape, strict=True))
        found = whole(ctx.spread(units), t.shape, units)
        return [] if found is None or self._part(op, found) is None else [found]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


class CatRule(Rule):
    """Primary: the operands' layout (both). Two equal powers of two become one more register bit."""

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        axis: int = op.attrs["axis"]
        bits, _ = primary.dims[axis]
        dims = tuple((bits + 1, 1) if d == axis else p for d, p in enumerate(primary.dims))
        unit = tuple(1 << bits if d == axis else 0 for d in range(primary.rank))
        return Layout.get(dims, (*primary.reg, unit), primary.lane, primary.warp, primary.cta)

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        axis: int = op.attrs["axis"]
        return layout if layout.dims[axis] == (t.shape[axis].bit_length() - 1, 1) else None

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return None

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = op.operands[0].type
        assert isinstance(t, TensorType)
        return [ctx.spread(t.shape)]

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


class ReduceRule(Rule):
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


class ScanRule(ReduceRule):
    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        return primary

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return layout if can_scan(layout, op.attrs["axis"]) else None

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        return self.from_operand(op, index, layout)

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 2 * primary.num_regs + costs.reduction(primary, op.attrs["axis"], len(op.operands))
