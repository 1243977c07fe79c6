"""Copies of blocks through a descriptor, by all waves of the task.

There is no copy engine: every wave copies its part of a block when the copy starts, and where the task next waits, arrives, meets or ends a
region (`AmdgcnBuilder.put_off`) its part of the bytes counts on the barrier, once it is there.

**Straight** into LDS (`lds_dma`) go blocks that lie inside of the tensor in whole, which all waves find out alike, if lanes can lie side by side in
the buffer. Others go **through registers**: loaded when the copy starts, stored where it is to end. Lanes take 16 bytes along the innermost
dimension, as far as the block's start is known to be aligned. Vectors that lie outside of the tensor in whole are not loaded (they are padding);
the one that lies across its end, where the innermost size is no multiple of the vector, is mended by elements, in a branch that all waves take
alike.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from mimw.codegen.amdgcn.lower.atomic import Atomic
from mimw.codegen.amdgcn.lower.barrier import land
from mimw.codegen.amdgcn.lower.branch import Only, either, unsigned
from mimw.codegen.amdgcn.lower.descriptor import Fields, fields_of
from mimw.codegen.amdgcn.lower.lds_dma import Runs, end_copy, runs_of, wait_copy
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane, Tile, bits_of
from mimw.codegen.lowering import Lowering, lowers, refuse
from mimw.codegen.machine import Imm
from mimw.codegen.shared.addressing import Placement
from mimw.codegen.shared.shared_memory import load_tile, memdesc, store_tile
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.lane_runs import run_layout
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import blocked, pad_dims
from mimw.ir.types import I1, I32, U8, U32, U64, DType, TensorDescType

_WIDEST = 16
"""Bytes of one access."""


class _Block:
    """A block of a tensor, spread over the task's lanes: `width` neighbours along the innermost dimension in a lane.

    `layout` and `width` say how, if it shall not be the coalesced way.
    """

    def __init__(
        self, ctx: Lowering, desc: Value, coords: list[Value], layout: Layout | None = None, width: int = 0
    ) -> None:
        t = desc.type
        assert isinstance(t, TensorDescType)
        self.ctx = ctx
        self.b = amdgcn_builder(ctx)
        self.dtype: DType = U8 if t.dtype is I1 else t.dtype
        self.shape = t.block_shape
        self.size = t.dtype.itemsize
        self.fields: Fields = fields_of(ctx, desc)
        self.coords = [ctx.scalar(c) for c in coords]
        self.width = width or gcd(_WIDEST // self.size, self.shape[-1], _divisor(ctx, coords[-1]))
        rank = len(self.shape)
        order = tuple(reversed(range(rank)))
        dims = tuple(pad_dims(n) for n in self.shape)
        self.layout = layout or blocked(self.shape, order, ctx.num_warps, self.width, ctx.warp_size, dims)
        self.own = [ctx.coordinates(self.layout, d) for d in range(rank)]
        registers, lanes, warps, _ = algebra.owner_mask(self.layout)
        self.owner = ctx.is_thread(lanes, warps)
        low = (1 << len(self.layout.reg)) - 1
        self.groups = [r for r in range(0, self.layout.num_regs, self.width) if not r & low & registers]
        self.holes = ctx.holes(self.layout, self.shape)
        self.start = self._start()

    @property
    def bytes(self) -> int:
        """Of the whole block, what lies outside of the tensor included."""
        total = self.size
        for n in self.shape:
            total *= n
        return total

    def _start(self) -> Lane:
        """The address of the block's first element, which may lie outside of the tensor."""
        b = self.b
        at = self.fields.base
        for c, stride in zip(self.coords, self.fields.strides, strict=True):
            at = b.op("add", U64, at, b.op("mul", U64, b.bitcast(b.widen(c, U64), U64), stride))
        return at

    def address(self, r: int) -> Lane:
        """Where register r's element lies: the lane's own part, and what is one in the workgroup."""
        b = self.b
        whole = self.start
        mine: Lane | None = None
        constant = 0
        last = len(self.shape) - 1
        for d, stride in enumerate(self.fields.strides):
            x = self.own[d][r]
            part = b.base(x)
            if part.reg is not None:
                step = b.op("mul", U64, b.widen(Lane(U32, part.reg, uniform=part.uniform), U64), stride)
                mine = step if mine is None else b.op("add", U64, mine, step)
            if d == last:
                constant = x.off * self.size
            elif x.off:
                whole = b.op("add", U64, whole, b.op("mul", U64, b.const(U64, x.off), stride))
        address = whole if mine is None else b.op("add", U64, Lane(U64, b.register(whole), uniform=whole.uniform), mine)
        return b.plus(address, constant)

    def _below(self, d: int, r: int, ahead: int) -> Lane:
        """Whether the coordinate `ahead` of register r's along d is inside of the tensor; as unsigned numbers, negative ones are not."""
        b = self.b
        x = b.plus(b.add(self.coords[d], self.own[d][r]), ahead)
        return b.compare("lt", unsigned(x), unsigned(self.fields.sizes[d]))

    def rows_inside(self, r: int) -> Lane | None:
        """Whether register r is an element of the block, and inside along all dimensions but the innermost."""
        guard = self.b.both(self.owner, self.holes(r))
        for d in range(len(self.shape) - 1):
            guard = self.b.both(guard, self._below(d, r, 0))
        return guard

    def inside(self, r: int) -> Lane | None:
        """Whether the whole vector at register r is."""
        return self.b.both(self.rows_inside(r), self.inside_innermost(r, self.width - 1))

    def lies_inside(self) -> Lane:
        """Whether the whole block is inside of the tensor: one in the workgroup."""
        b = self.b
        found: Lane | None = None
        for c, size, extent in zip(self.coords, self.fields.sizes, self.shape, strict=True):
            places = b.op("max", I32, b.plus(size, 1 - extent), b.const(I32, 0))  # where a block may start
            found = b.both(found, b.compare("lt", unsigned(c), unsigned(places)))
        return found if found is not None else b.const(I1, 1)

    def padding(self) -> list[Lane] | None:
        """One vector of what lies outside; None for zeros."""
        b, nan = self.b, self.fields.nan
        if nan.reg is None and not nan.off:
            return None
        bits = bits_of(self.dtype)
        pattern = {16: 0x7E007E00, 32: 0x7FC00000, 64: 0x7FF8 << 48, 8: 0x7F7F7F7F}[bits]
        if self.dtype.name == "bf16":
            pattern = 0x7FC07FC0
        word = U64 if bits == 64 else U32
        found = b.vector(b.select(nan, b.const(word, pattern), b.const(word, 0)))
        per = max(1, 32 // bits)
        return [Lane(self.dtype, found, 0, i % per if per > 1 else -1) for i in range(self.width)]

    # ------------------------------------------------------------------------------------------- the end of the tensor

    def across_end(self) -> Lane:
        """Whether a vector of the block lies across the end of the innermost dimension: one in the workgroup."""
        b = self.b
        if self.width == 1:
            return b.const(I1, 0)
        size, first = self.fields.sizes[-1], self.coords[-1]
        rest = b.bit_and(size, self.width - 1)
        behind = b.sub(size, first)  # elements from the block's start to the tensor's end
        guard = b.both(b.compare("ne", rest, b.const(I32, 0)), b.compare("gt", behind, b.const(I32, 0)))
        guard = b.both(guard, b.compare("lt", behind, b.const(I32, self.shape[-1])))
        return guard if guard is not None else b.const(I1, 1)

    def inside_innermost(self, r: int, ahead: int) -> Lane:
        """Whether the element `ahead` of register r's is inside along the innermost dimension."""
        return self._below(len(self.shape) - 1, r, ahead)

    def elements_across(self, r: int) -> list[tuple[int, Lane | None]]:
        """(register, guard) of the elements of register r's vector that are inside while the vector is not."""
        b = self.b
        rows = b.both(self.rows_inside(r), b.invert(self.inside_innermost(r, self.width - 1)))
        return [(r + i, b.both(rows, self.inside_innermost(r, i))) for i in range(self.width - 1)]


def _divisor(ctx: Lowering, value: Value) -> int:
    """A power of two that divides a coordinate."""
    lane = ctx.scalar(value)
    if lane.reg is None:
        return lane.off & -lane.off or _WIDEST
    divisor = ctx.facts.of(value).divisor
    found = divisor[0] if divisor else 1
    return found & -found or _WIDEST


def _never(lane: Lane) -> bool:
    return lane.reg is None and not lane.off


# ------------------------------------------------------------------------------------------------------------------- blocks


@lowers("async_copy.tma_load", target="amd")
def lower_tma_load(ctx: Lowering, op: Any) -> None:
    """Loads now, stores and the arrival of bytes later."""
    if op.multicast is not None:
        hint = "leave multicast_targets out: each CTA copies for itself"
        raise refuse(op, ctx.target, "there are no clusters of CTAs", hint)
    pred = ctx.scalar(op.pred) if op.pred is not None else None
    if pred is not None and pred.reg is None:
        if not pred.off:
            return
        pred = None
    straight = _Straight.of(ctx, op)
    if straight is not None:
        _load_straight(ctx, op, straight, pred)
    elif pred is None:
        _load_block(ctx, op, lands=True)
    else:
        with Only(ctx, pred, "copy_if"):
            _load_block(ctx, op, lands=True)


class _Straight:
    """A block whose lanes lie side by side in the buffer, and the way there."""

    def __init__(self, block: _Block, runs: Runs) -> None:
        self.block = block
        self.runs = runs

    @staticmethod
    def of(ctx: Lowering, op: Any) -> "_Straight | None":
        """How a block is copied straight; None where it can't be."""
        t, shared = memdesc(ctx, op.dst)
        size = t.dtype.itemsize
        aligned = min(_WIDEST, size * gcd(_WIDEST // size, _divisor(ctx, op.coords[-1])))
        for run in ctx.target.lane_copies:
            layout = run_layout(t.shape, shared, size, run, ctx.num_warps, ctx.warp_size) if run <= aligned else None
            if layout is None or layout.contiguity(len(t.shape) - 1) * size < run:
                continue
            runs = runs_of(amdgcn_builder(ctx), ctx.target, layout, shared, size, ctx.shared[op.dst], run)
            if runs is not None:
                return _Straight(_Block(ctx, op.desc, op.coords, layout, runs.width), runs)
        return None

    def copy(self, addresses: list[Lane]) -> None:
        """Start copying a block that lies inside of the tensor."""
        block = self.block
        for r, address in zip(block.groups, addresses, strict=True):
            self.runs.copy(r, address, block.b.both(block.owner, block.holes(r)), "")


def _load_straight(ctx: Lowering, op: Any, straight: _Straight, pred: Lane | None) -> None:
    """Straight or, at the edges of the tensor, through registers; the bytes count when they are there."""
    b = amdgcn_builder(ctx)
    block = straight.block
    addresses = [block.address(r) for r in block.groups]
    inside = block.lies_inside()

    def start() -> None:
        hints = ("straight", "at_edge")
        either(ctx, inside, lambda: straight.copy(addresses), lambda: _load_block(ctx, op, lands=False), hints)

    if pred is None:
        start()
    else:
        either(ctx, pred, start, lambda: None, ("copy_if", "no_copy"))
    copy = end_copy(b)

    def finish() -> None:
        wait_copy(b, copy)
        land(ctx, op.barrier, block.bytes, pred)

    b.put_off(finish)


def _load_block(ctx: Lowering, op: Any, lands: bool) -> None:
    """Through registers. With `lands` the bytes count."""
    b = amdgcn_builder(ctx)
    block = _Block(ctx, op.desc, op.coords)
    t, shared = memdesc(ctx, op.dst)
    place = ctx.shared[op.dst]
    other = block.padding()
    moved: list[Lane] = [Lane(block.dtype, None)] * block.layout.num_regs
    for r in block.groups:
        moved[r : r + block.width] = b.load(
            "global", block.dtype, block.address(r), block.width, block.inside(r), other, ""
        )
    across = block.across_end()

    def finish() -> None:
        store_tile(ctx, place, shared, block.layout, t.shape, moved)
        if not _never(across):
            with Only(ctx, across, "mend"):
                _mend(ctx, block, Placement(block.layout, shared, block.size, place.mix), place.address)
        if lands:
            land(ctx, op.barrier, block.bytes)

    b.put_off(finish)


def _mend(ctx: Lowering, block: _Block, placement: Placement, base: Lane) -> None:
    """The vector across the tensor's end, element by element, over the padding that was stored."""
    b = block.b
    coords = block.layout.reg_coords()
    for r in block.groups:
        address = block.address(r)
        for at, guard in block.elements_across(r):
            place = b.plus(address, (at - r) * block.size)
            (found,) = b.load("global", block.dtype, place, 1, guard, None, "")
            b.store("shared", placement.address(ctx, base, coords[at]), [found], guard)


@lowers("async_copy.tma_store", target="amd")
def lower_tma_store(ctx: Lowering, op: Any) -> None:
    """Read the buffer, write what lies inside of the tensor."""
    b = amdgcn_builder(ctx)
    block = _Block(ctx, op.desc, op.coords)
    t, shared = memdesc(ctx, op.src)
    tile = load_tile(ctx, ctx.shared[op.src], shared, block.layout, t.shape, block.dtype)
    if op.reduce:
        _combine(block, tile, op.reduce)
        return
    for r in block.groups:
        b.store("global", block.address(r), tile[r : r + block.width], block.inside(r))
    across = block.across_end()
    if _never(across):
        return
    with Only(ctx, across, "rest"):
        for r in block.groups:
            address = block.address(r)
            for at, guard in block.elements_across(r):
                b.store("global", b.plus(address, (at - r) * block.size), [tile[at]], guard)


def _combine(block: _Block, tile: Tile, kind: str) -> None:
    """One atomic an element, in no order."""
    b = block.b
    atomic = Atomic(block.ctx, kind, block.dtype, False, "gpu")
    for r in block.groups:
        rows, address = block.rows_inside(r), block.address(r)
        for i in range(block.width):
            pointer = b.plus(address, i * block.size)
            atomic.run(pointer, tile[r + i], None, b.both(rows, block.inside_innermost(r, i)))


@lowers("async_copy.tma_store_wait", target="amd")
def lower_tma_store_wait(ctx: Lowering, op: Any) -> None:
    """Shared memory was read when the copy was made; global memory is written when the counter says so."""
    if op.whole:
        amdgcn_builder(ctx).emit("p_wait_vm", [Imm(0)])
