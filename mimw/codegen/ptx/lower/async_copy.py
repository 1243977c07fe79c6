"""Lowerings of cp.async: copies from global to shared memory by threads.

16, 8 or 4 bytes an instruction, masked bytes filled with zeros through the source size; what does not fit that (narrow accesses,
another `other`) is a plain load and store, which is done at once and so also before any wait.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Imm, Operand
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.addressing import Placement, vector_groups
from mimw.codegen.shared.memory import access_of, cache_words, guards
from mimw.codegen.shared.shared_memory import memdesc
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.types import I1, U8, U32


@lowers("async_copy.load", target="nvidia")
def lower_async_load(ctx: Lowering, op: Any) -> None:
    """Start copying a tile."""
    b = ptx_builder(ctx)
    t, shared = memdesc(ctx, op.dst)
    dtype = U8 if t.dtype is I1 else t.dtype
    size = dtype.itemsize
    layout = layout_of(op.ptr)
    placement = Placement(layout, shared, size, ctx.shared[op.dst].mix)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    low = (1 << len(layout.reg)) - 1
    free = [r for r in range(layout.num_regs) if not r & low & registers]
    width = min(access_of(ctx, op.ptr, op.mask, 8 * size).width, max(1, ctx.shared[op.dst].align // size))
    bits = placement.unit_bits(t.shape, width)
    if bits != list(range(len(bits))):
        bits = []
    unmasked = guards(ctx, op.ptr, op.mask)
    inside = ctx.holes(layout, t.shape)
    pointers = ctx.tile(op.ptr)
    base = ctx.shared[op.dst].address
    coords = layout.reg_coords()
    other = ctx.tile(op.other) if op.other is not None and not _is_zero(ctx, op.other) else None
    for group in vector_groups(placement, bits, free):
        r = group[0]
        target = placement.address(ctx, base, coords[r])
        here = b.both(owner, inside(r))
        if size * len(group) < 4 or other is not None:
            rest = [other[i] for i in group] if other is not None else None
            values = b.load("global", dtype, pointers[r], len(group), unmasked(r), rest, cache_words(op))
            b.store("shared", target, values, here, "")
            continue
        _copy(ctx, target, pointers[r], size * len(group), here, unmasked(r))


def _is_zero(ctx: Lowering, value: Value) -> bool:
    return all(x.reg is None and x.off == 0 for x in ctx.tile(value))


def _copy(ctx: Lowering, target: Lane, source: Lane, size: int, here: Lane | None, mask: Lane | None) -> None:
    b = ptx_builder(ctx)
    operands: list[Operand] = [b.address("shared", target), b.address("global", source), Imm(size)]
    if mask is not None:
        if mask.reg is None:
            operands.append(Imm(size if mask.off else 0))
        else:
            operands.append(b.register(b.select(mask, b.const(U32, size), b.const(U32, 0))))
    b.emit(f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global", operands, 0, here)


@lowers("async_copy.commit_group", target="nvidia")
def lower_commit_group(ctx: Lowering, op: Any) -> None:
    """Close the group."""
    del op
    ptx_builder(ctx).emit("cp.async.commit_group", [])


@lowers("async_copy.wait_group", target="nvidia")
def lower_wait_group(ctx: Lowering, op: Any) -> None:
    """Wait for this thread's groups."""
    ptx_builder(ctx).emit("cp.async.wait_group", [Imm(op.pendings)])
