"""Lowerings of boxes of a buffer (local_slice) and of indexed access to one (local_gather, local_scatter).

A box keeps the buffer's layout. Along a dimension its offset is XORed in, when it is a constant multiple of the box's extent (rounded up
to a power of two: then bits of offset and element do not meet), or added, when the dimension is a plain stride from the offset's alignment
on. What is neither has no address that all lanes can form alike, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import CTA, Lane, as_u32, bits_of
from mimw.codegen.lowering import Lowering, Shared, layout_of, lowers
from mimw.codegen.shared.memory import as_memory
from mimw.codegen.shared.shared_memory import memdesc
from mimw.diagnostics import CompilationError
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.types import I1, U8, U32


@lowers("memory.local_slice")
def lower_local_slice(ctx: Lowering, op: Any) -> None:
    """Another first element, the same layout."""
    b = ctx.b
    t, layout = memdesc(ctx, op.src)
    if len(layout.dims) != len(op.shape):
        raise CompilationError(
            "not-yet", "a slice of a ring of buffers is not supported yet", op.loc, hint="pick one buffer first"
        )
    source = ctx.shared[op.src]
    size = t.dtype.itemsize
    mixed, align, linear = 0, source.align, source.linear
    address = b.plus(source.address, -source.mix)
    for d, offset in enumerate(op.offsets):
        lane = ctx.scalar(offset)
        extent = 1 << (op.shape[d] - 1).bit_length()
        if lane.reg is None and lane.off % extent == 0:
            a = layout.dims[d][0]
            part = _linear(layout, d, lane.off & ((1 << a) - 1))
            step = (lane.off >> a) * layout.strides[d] * size
            mixed ^= part
            linear = linear and all(not x & (x - 1) for i, x in enumerate(layout.bases[d]) if lane.off >> i & 1)
            align = min(align, step & -step or align, (part & -part) * size or align)
            address = b.plus(address, step)
            continue
        stride = _plain_stride(layout, d, _alignment(ctx, offset, lane))
        if stride is None:
            raise CompilationError(
                "local-slice",
                f"dimension {d} of {t} is swizzled: a slice of {op.shape[d]} has to start at a constant multiple of {extent}",
                op.loc,
                hint="or lay the buffer out in plain rows: ml.local_alloc(..., layout=ml.swizzled_shared_layout_encoding(1, 1, 1))",
            )
        step = _alignment(ctx, offset, lane) * stride * size
        align = min(align, step & -step or align)
        address = b.add(address, b.times(as_u32(lane), stride * size))
    mix = source.mix ^ mixed * size
    address = b.plus(address, mix)
    address = Lane(address.dtype, address.reg, address.off, uniform=CTA)
    ctx.shared[op.result] = Shared(address, layout, mix if mix & _span(layout, op.shape) * size else 0, align, linear)


def _linear(layout: SharedLayout, d: int, x: int) -> int:
    """The XOR part of coordinate x along one dimension, in elements."""
    out = 0
    for bit, base in enumerate(layout.bases[d]):
        if x >> bit & 1:
            out ^= base
    return out


def _span(layout: SharedLayout, shape: tuple[int, ...]) -> int:
    """All offset bits that the elements of a box use."""
    out = 0
    for d, extent in enumerate(shape):
        for base in layout.bases[d][: (extent - 1).bit_length()]:
            out |= base
    return out


def _alignment(ctx: Lowering, value: Value, lane: Lane) -> int:
    """A power of two that divides an offset."""
    if lane.reg is None:
        return lane.off & -lane.off or 1 << 30
    divisor = ctx.facts.of(value).divisor
    found = divisor[0] if divisor else 1
    return found & -found or 1 << 30


def _plain_stride(layout: SharedLayout, d: int, alignment: int) -> int | None:
    """Elements that a step along `d` adds, for offsets that are multiples of `alignment`; None where it does more than add."""
    a, count = layout.dims[d]
    low = alignment.bit_length() - 1
    if low >= a:
        return layout.strides[d] >> a if count > 1 and layout.strides[d] % (1 << a) == 0 else 0 if count == 1 else None
    stride, rest = divmod(layout.bases[d][low], 1 << low)
    own = 0
    for bit in range(low, a):
        if layout.bases[d][bit] != stride << bit:
            return None
        own |= stride << bit
    if rest or stride & (stride - 1) or (count > 1 and layout.strides[d] != stride << a):
        return None
    others = [x for e, bases in enumerate(layout.bases) for i, x in enumerate(bases) if e != d or i < low]
    return None if any(x & own for x in others) else stride


# ------------------------------------------------------------------------------------------------------------------- gather, scatter


@lowers("memory.local_gather")
def lower_local_gather(ctx: Lowering, op: Any) -> None:
    """One load an element."""
    b = ctx.b
    t, _ = memdesc(ctx, op.src)
    layout = layout_of(op.result)
    held = U8 if t.dtype is I1 else t.dtype
    place = indexed(ctx, op.src, layout, op.axis, bits_of(held) // 8)
    inside = ctx.holes(layout, op.result.type.shape)
    indices = ctx.tile(op.indices)
    out = [b.load("shared", held, place(r, indices[r]), 1, inside(r), None, "")[0] for r in range(layout.num_regs)]
    if t.dtype is I1:
        out = [b.compare("ne", x, b.const(U8, 0)) for x in out]
    ctx.set(op.result, out)


@lowers("memory.local_scatter")
def lower_local_scatter(ctx: Lowering, op: Any) -> None:
    """One store an element, by its owner."""
    b = ctx.b
    layout = layout_of(op.src)
    values = as_memory(ctx, list(ctx.tile(op.src)))
    place = indexed(ctx, op.dst, layout, op.axis, bits_of(values[0].dtype) // 8)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, op.src.type.shape)
    indices = ctx.tile(op.indices)
    low = (1 << len(layout.reg)) - 1
    for r in range(layout.num_regs):
        if not r & low & registers:
            b.store("shared", place(r, indices[r]), [values[r]], b.both(owner, inside(r)), "")


def indexed(ctx: Lowering, buffer: Value, layout: Layout, axis: int, size: int) -> Callable[[int, Lane], Lane]:
    """(register, index) -> byte address of the element whose coordinate along `axis` is the index."""
    b = ctx.b
    _, shared = memdesc(ctx, buffer)
    source = ctx.shared[buffer]
    registers = layout.reg_coords()
    rest = [d for d in range(layout.rank) if d != axis]

    def part(v: tuple[int, ...]) -> int:
        out = 0
        for d in rest:
            out ^= _linear(shared, d, v[d] & ((1 << shared.dims[d][0]) - 1))
        return out * size

    threads = ctx.linear(tuple(part(v) for v in (*layout.lane, *layout.warp)))
    digits = {
        d: tuple(v[d] >> shared.dims[d][0] for v in (*layout.lane, *layout.warp)) for d in rest if shared.dims[d][1] > 1
    }

    def place(r: int, index: Lane) -> Lane:
        mixed = b.op("xor", U32, threads, b.const(U32, part(registers[r]) ^ source.mix))
        mixed = b.op("xor", U32, mixed, _dynamic(ctx, shared, axis, index, size))
        address = b.add(b.plus(source.address, -source.mix), mixed)
        a, count = shared.dims[axis]
        if count > 1:
            address = b.add(address, b.times(b.shift(as_u32(index), -a), shared.strides[axis] * size))
        for d, bases in digits.items():
            own = registers[r][d] >> shared.dims[d][0]
            digit = b.op("xor", U32, ctx.linear(bases), b.const(U32, own))
            address = b.add(address, b.times(digit, shared.strides[d] * size))
        return address

    return place


def _dynamic(ctx: Lowering, shared: SharedLayout, axis: int, index: Lane, size: int) -> Lane:
    """The XOR part of a run-time coordinate, in bytes: its bits moved to their bases, those that move alike at once."""
    b = ctx.b
    word = as_u32(index)
    if word.off and word.reg is not None:
        word = Lane(U32, b.register(word), uniform=word.uniform)
    moves: dict[int, int] = {}
    for bit, base in enumerate(shared.bases[axis]):
        rest = base * size
        while rest:
            low = rest & -rest
            shift = low.bit_length() - 1 - bit
            moves[shift] = moves.get(shift, 0) | 1 << bit
            rest ^= low
    total = b.const(U32, 0)
    for shift, mask in sorted(moves.items()):
        total = b.op("xor", U32, total, b.shift(b.bit_and(word, mask), shift))
    return total
