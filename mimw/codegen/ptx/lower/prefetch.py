"""Lowerings of prefetches: of global memory into a cache, and of tensor maps."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering, layout_of, lowers, refuse
from mimw.codegen.machine import Addr
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.lower.task import leader
from mimw.codegen.shared.memory import access_of, guards
from mimw.ir import layout as algebra
from mimw.ir.types import PointerType, TensorType, element_of


@lowers("memory.prefetch", target="nvidia")
def lower_prefetch(ctx: Lowering, op: Any) -> None:
    """One instruction a run of neighbours in a thread; its cache line comes whole."""
    b = ptx_builder(ctx)
    opcode = f"prefetch.global.{op.level}"
    if not isinstance(op.ptr.type, TensorType):
        guard = b.both(ctx.first_thread(), ctx.scalar(op.mask) if op.mask is not None else None)
        b.emit(opcode, [b.address("global", ctx.scalar(op.ptr))], 0, guard)
        return
    pointer = element_of(op.ptr.type)
    assert isinstance(pointer, PointerType)
    width = access_of(ctx, op.ptr, op.mask, 8 * pointer.pointee.itemsize).width
    layout = layout_of(op.ptr)
    copies, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    low = (1 << len(layout.reg)) - 1
    guard_of = guards(ctx, op.ptr, op.mask)
    pointers = ctx.tile(op.ptr)
    for r in range(0, layout.num_regs, width):
        guard = b.both(owner, guard_of(r))
        if r & low & copies or (guard is not None and guard.reg is None and not guard.off):
            continue
        b.emit(opcode, [b.address("global", pointers[r])], 0, guard)


@lowers("async_copy.prefetch_descriptor", target="nvidia")
def lower_prefetch_descriptor(ctx: Lowering, op: Any) -> None:
    """By the task's leader."""
    if not ctx.target.has("tma"):
        raise refuse(op, ctx.target, "it has no TMA engine")
    b = ptx_builder(ctx)
    b.emit("prefetch.tensormap", [Addr(b.register(ctx.scalar(op.desc)), 0)], 0, leader(ctx))
