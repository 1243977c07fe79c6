"""Parts of matrix products that all targets share: operands as products take them, and the product by fma of buffers in shared memory."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, layout_of, refuse
from mimw.codegen.machine import Block, Edge
from mimw.codegen.shared.addressing import Placement
from mimw.codegen.shared.casts import cast
from mimw.codegen.shared.shared_memory import memdesc
from mimw.ir.core import Value
from mimw.ir.layout import Layout
from mimw.ir.types import U32, DType, TensorType, element_of


def operand_lanes(ctx: Lowering, value: Value, k_dim: int, rounded: bool) -> list[Lane]:
    """An operand's lanes: rounded to tf32 if so, and zero where k is past the end (the other side may hold anything there)."""
    b = ctx.b
    tile = list(ctx.tile(value))
    if rounded:
        tile = b.round_to_tf32(tile)
    t = value.type
    assert isinstance(t, TensorType)
    layout = layout_of(value)
    if layout.shape_padded[k_dim] == t.shape[k_dim]:
        return tile
    only_k = list(layout.shape_padded)
    only_k[k_dim] = t.shape[k_dim]
    inside = ctx.holes(layout, only_k)
    zero = b.const(tile[0].dtype, 0)
    out: list[Lane] = []
    for r, lane in enumerate(tile):
        guard = inside(r)
        out.append(lane if guard is None else b.select(guard, lane, zero))
    return out


def lower_fma(ctx: Lowering, op: Any, acc: list[Lane]) -> None:
    """A loop over k: each thread reads its rows of A and columns of B and multiplies them out. `acc` are the accumulator's lanes."""
    b = ctx.b
    layout = layout_of(op.acc)
    dtype = element_of(op.acc.type)
    assert isinstance(dtype, DType)
    if dtype.kind != "float" and dtype.bits < 32:
        raise refuse(op, ctx.target, f"a product with sums in {dtype}")
    (ta, sa), (tb, sb) = memdesc(ctx, op.a), memdesc(ctx, op.b)
    depth = ta.shape[1]
    left, right = _Side(ctx, layout, op.a, 0), _Side(ctx, layout, op.b, 1)
    stride_a, stride_b = _stride(sa, 1, depth, ta.dtype.itemsize), _stride(sb, 0, depth, tb.dtype.itemsize)
    unroll = next((u for u in (8, 4, 2) if depth % u == 0), 1)
    if depth <= 8 or stride_a is None or stride_b is None:
        for k in range(depth):
            acc = _outer_product(b, layout, left.read(k), right.read(k), acc, dtype)
        ctx.set(op.result, acc)
        return
    params = [b.parameter(dtype) for _ in acc]
    k_reg = b.parameter(U32, CTA)
    body, after = Block("product", [k_reg, *params]), Block("endproduct")
    zero = b.register(b.const(U32, 0))
    ctx.jump(body, [zero, *[b.register(x) for x in acc]])
    body.nounroll = True
    b.open_loop()
    ctx.place(body)
    k_lane = Lane(U32, k_reg, uniform=CTA)
    acc = [Lane(dtype, p) for p in params]
    for step in range(unroll):
        rows = left.read(0, b.plus(b.times(k_lane, stride_a), step * stride_a))
        cols = right.read(0, b.plus(b.times(k_lane, stride_b), step * stride_b))
        acc = _outer_product(b, layout, rows, cols, acc, dtype)
    again = b.plus(k_lane, unroll)
    more = b.compare("lt", again, b.const(U32, depth))
    ctx.branch(more, Edge(body, [b.register(again), *[b.register(x) for x in acc]]), Edge(after, []))
    b.close_loop()
    ctx.place(after)
    ctx.set(op.result, acc)


def _stride(shared: Any, dim: int, depth: int, size: int) -> int | None:
    """Bytes from one k to the next when that is the same everywhere, else None."""
    zero = [0, 0]
    one = [1 if d == dim else 0 for d in range(2)]
    step = shared.offset(one) - shared.offset(zero) if depth > 1 else 0
    for k in range(depth):
        if shared.offset([k if d == dim else 0 for d in range(2)]) != k * step:
            return None
    # Other dimensions must not share bits with this one: then the XOR is a sum for every k.
    a, _ = shared.dims[dim]
    mine = 0
    for x in shared.bases[dim][:a]:
        mine |= x
    for d, bases in enumerate(shared.bases):
        if d != dim and any(x & mine for x in bases):
            return None
    return step * size


class _Side:
    """One operand of a product by fma: the rows (or columns) that the accumulator's registers need."""

    __slots__ = ("coords", "ctx", "dim", "dtype", "layout", "shape", "value")

    def __init__(self, ctx: Lowering, acc: Layout, value: Value, dim: int) -> None:
        self.ctx = ctx
        self.value = value
        self.dim = dim
        t, _ = memdesc(ctx, value)
        self.dtype = t.dtype
        self.shape = t.shape
        self.layout = acc
        self.coords = acc.reg_coords()

    def read(self, k: int, moved: Lane | None = None) -> list[Lane]:
        """For every register of the accumulator its factor at depth k (plus `moved` bytes)."""
        ctx = self.ctx
        b = ctx.b
        _, shared = memdesc(ctx, self.value)
        size = self.dtype.itemsize
        thin = _thin(self.layout, self.dim)
        placement = Placement(thin, shared, size, ctx.shared[self.value].mix)
        base = ctx.shared[self.value].address
        if moved is not None:
            base = b.add(base, moved)
        found: dict[int, Lane] = {}
        out: list[Lane] = []
        limit = list(self.layout.shape_padded)
        limit[self.dim] = self.shape[self.dim]
        inside = ctx.holes(self.layout, limit)
        for r, c in enumerate(self.coords):
            x = c[self.dim]
            lane = found.get(x)
            if lane is None:
                at = (x, k) if self.dim == 0 else (k, x)
                lane = b.load("shared", self.dtype, placement.address(ctx, base, at), 1, inside(r), None, "")[0]
                found[x] = lane
            out.append(lane)
        return out


def _thin(layout: Layout, dim: int) -> Layout:
    """The layout with coordinates along `dim` only: the other dimension (k) is 0 in every thread."""

    def cut(vectors: Any) -> list[tuple[int, ...]]:
        return [tuple(x if d == dim else 0 for d, x in enumerate(v)) for v in vectors]

    dims = [p if d == dim else (0, 1) for d, p in enumerate(layout.dims)]
    return Layout.get(dims, cut(layout.reg), cut(layout.lane), cut(layout.warp))


def _outer_product(b: LaneBuilder, layout: Layout, rows: Tile, cols: Tile, acc: Tile, dtype: DType) -> list[Lane]:
    del layout
    out: list[Lane] = []
    for x, y, z in zip(rows, cols, acc, strict=True):
        x, y = cast(b, x, dtype), cast(b, y, dtype)
        out.append(b.op("fma", dtype, x, y, z) if dtype.kind == "float" else b.add(b.mul(x, y), z))
    return out
