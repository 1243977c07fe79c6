"""Lowerings of buffers in shared memory: allocation, views, loads and stores of tiles."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane, LazyTile, Tile, as_u32, bits_of
from mimw.codegen.lowering import Lowering, Shared, layout_of, lowering_of, lowers
from mimw.codegen.shared.addressing import Placement, vector_groups
from mimw.codegen.shared.memory import as_memory
from mimw.diagnostics import CompilationError, InternalError, Loc
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.scratch import SLOT_ALIGN, slot_bytes
from mimw.ir.types import I1, U8, MemDescType


def memdesc(ctx: Lowering, value: Value) -> tuple[MemDescType, SharedLayout]:
    """The type and the layout of a buffer; one that passes gave none is row-major."""
    t = value.type
    if not isinstance(t, MemDescType):
        raise InternalError(f"a buffer is needed, not {t}")
    return t, t.layout or ctx.shared[value].layout or SharedLayout.row_major(t.shape)


@lowers("memory.storage")
def lower_storage(ctx: Lowering, op: Any) -> None:
    """Nothing: its buffers have their places."""


@lowers("memory.local_alloc")
def lower_local_alloc(ctx: Lowering, op: Any) -> None:
    """A place in the CTA's shared memory; the source, if any, is stored there."""
    if op.offset < 0:
        raise InternalError("a buffer without an offset", op.loc)
    place_buffer(ctx, op)
    if op.src is not None:
        store_buffer(ctx, op.result, op.src)


def place_buffer(ctx: Lowering, op: Any) -> None:
    """The address of a buffer, without what is stored there."""
    align = min(SLOT_ALIGN, op.offset & -op.offset or SLOT_ALIGN)
    ctx.shared[op.result] = Shared(ctx.b.plus(ctx.b.shared_base(), op.offset), align=align)


@lowers("memory.local_view")
def lower_local_view(ctx: Lowering, op: Any) -> None:
    """Address plus index times the slot's size."""
    b = ctx.b
    t = op.result.type
    index = as_u32(ctx.scalar(op.index))
    source = ctx.shared[op.src]
    step = slot_bytes(t)
    address = b.add(source.address, b.times(index, step))
    address.uniform = CTA
    ctx.shared[op.result] = Shared(address, align=min(source.align, step & -step))


@lowers("memory.local_trans")
def lower_local_trans(ctx: Lowering, op: Any) -> None:
    """The same bytes, their layout turned."""
    _, layout = memdesc(ctx, op.src)
    order: tuple[int, ...] = op.order
    turned = SharedLayout.get(
        [layout.dims[i] for i in order],
        [layout.bases[i] for i in order],
        [layout.strides[i] for i in order],
        layout.size,
    )
    source = ctx.shared[op.src]
    ctx.shared[op.result] = Shared(source.address, turned, source.mix, source.align, source.linear)


@lowers("memory.local_reinterpret")
def lower_local_reinterpret(ctx: Lowering, op: Any) -> None:
    """The same bytes from the start element on."""
    source = ctx.shared[op.src]
    start = op.start * op.type.dtype.itemsize
    align = min(source.align, start & -start or source.align)
    ctx.shared[op.result] = Shared(ctx.b.plus(source.address, start), align=align)


def engine_buffer(ctx: Lowering, value: Value, align: int, loc: Loc) -> Shared:
    """A buffer or view for an engine that takes addresses at multiples of `align` bytes and swizzles by itself."""
    found = ctx.shared[value]
    if not found.linear or found.align < align:
        raise CompilationError(
            "local-slice",
            f"this slice does not start where the hardware can: at a multiple of {align} bytes, and of 8 swizzled rows",
            loc,
        )
    return found


@lowers("memory.local_store")
def lower_local_store(ctx: Lowering, op: Any) -> None:
    """A tile into a buffer."""
    store_buffer(ctx, op.dst, op.src)


@lowers("memory.local_load")
def lower_local_load(ctx: Lowering, op: Any) -> None:
    """A tile from a buffer."""
    t, shared = memdesc(ctx, op.src)
    source = ctx.shared[op.src]
    ctx.set(op.result, load_tile(ctx, source, shared, layout_of(op.result), t.shape, t.dtype))


def store_buffer(ctx: Lowering, buffer: Value, src: Value) -> None:
    """Store a tile into a buffer; for products of f32 by tf32 from shared memory the numbers are rounded here, as nothing after it does."""
    t, shared = memdesc(ctx, buffer)
    tile = ctx.tile(src)
    rounding = lowering_of("mma.async_dot", ctx.target)
    if bits_of(t.dtype) == 32 and rounding is not None and _only_products(buffer):
        tile = ctx.b.round_to_tf32(tile)
    store_tile(ctx, ctx.shared[buffer], shared, layout_of(src), t.shape, tile)


def _only_products(buffer: Value) -> bool:
    """Whether a buffer of f32 is read by asynchronous products only."""
    t = buffer.type
    if not isinstance(t, MemDescType) or t.dtype.kind != "float":
        return False
    todo = [buffer]
    found = False
    while todo:
        for user in todo.pop().users:
            if user.name in ("memory.local_trans", "memory.local_view"):
                todo += user.results
            elif user.name == "mma.async_dot":
                found = True
            elif user.name not in ("memory.local_store", "async_copy.load"):
                return False
    return found


def store_tile(
    ctx: Lowering, place: Shared, shared: SharedLayout, layout: Layout, shape: tuple[int, ...], tile: Tile
) -> None:
    """Every element once, in accesses as wide as both layouts allow; holes are not stored."""
    b = ctx.b
    if isinstance(tile, LazyTile) or tile[0].dtype is I1:
        tile = as_memory(ctx, list(tile))
    size = bits_of(tile[0].dtype) // 8
    placement = Placement(layout, shared, size, place.mix)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, shape)
    low = (1 << len(layout.reg)) - 1
    free = [r for r in range(layout.num_regs) if not r & low & registers]
    coords = layout.reg_coords()
    for group in vector_groups(placement, placement.unit_bits(shape, min(16, place.align) // size), free):
        guard = b.both(owner, inside(group[0]))
        if guard is not None and guard.reg is None and not guard.off:
            continue
        b.store("shared", placement.address(ctx, place.address, coords[group[0]]), [tile[r] for r in group], guard, "")


def load_tile(
    ctx: Lowering, place: Shared, shared: SharedLayout, layout: Layout, shape: tuple[int, ...], dtype: Any
) -> list[Lane]:
    """The lanes of a tile that lies in shared memory; holes are zero."""
    b = ctx.b
    held = U8 if dtype is I1 else dtype
    size = bits_of(held) // 8
    placement = Placement(layout, shared, size, place.mix)
    inside = ctx.holes(layout, shape)
    coords = layout.reg_coords()
    found: dict[int, Lane] = {}
    known: dict[tuple[int, ...], int] = {}
    for group in vector_groups(
        placement, placement.unit_bits(shape, min(16, place.align) // size), list(range(layout.num_regs))
    ):
        first = known.setdefault(coords[group[0]], group[0])
        if first != group[0]:  # a copy of another register
            for r in group:
                found[r] = found[first + r - group[0]]
            continue
        lanes = b.load(
            "shared",
            held,
            placement.address(ctx, place.address, coords[group[0]]),
            len(group),
            inside(group[0]),
            None,
            "",
        )
        for r, lane in zip(group, lanes, strict=True):
            found[r] = lane
    out = [found[r] for r in range(layout.num_regs)]
    if dtype is I1:
        out = [b.compare("ne", x, b.const(U8, 0)) for x in out]
    return out
