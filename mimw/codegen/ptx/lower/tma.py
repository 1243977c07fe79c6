"""Lowerings of copies by the TMA engine: blocks through descriptors, and contiguous bytes.

One thread of the task issues, commits and waits: bulk groups belong to a thread. A block is cut into boxes by `ir.tma`, as the encoder of
its descriptor cuts it; one op issues one instruction a box. Fences and syncs around stores come from the passes.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane
from mimw.codegen.lowering import Lowering, lowers, refuse, unsupported
from mimw.codegen.machine import Addr, Imm, Operand, Reg
from mimw.codegen.ptx.lower import hang_wait
from mimw.codegen.ptx.lower.barrier import barrier_address
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.lower.task import leader
from mimw.codegen.shared.shared_memory import engine_buffer, memdesc
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import Value
from mimw.ir.tma import BoxPlan, box_plan
from mimw.ir.types import U16, U64, TensorDescType

_POLICY = {
    "evict_normal": 0x1000000000000000,
    "evict_first": 0x12F0000000000000,
    "evict_last": 0x14F0000000000000,
}
"""L2 policies as createpolicy.fractional makes them for a fraction of 1 (the encodings that public code uses)."""


def _needs_tma(ctx: Lowering, op: Any) -> None:
    if not ctx.target.has("tma"):
        raise refuse(op, ctx.target, "it has no TMA engine")


def plan_of(ctx: Lowering, op: Any, buffer: Value | None) -> BoxPlan:
    """The boxes of a copy; a buffer that does not lie as the descriptor's boxes do is our error, a block that TMA cannot copy the user's."""
    t = op.desc.type
    assert isinstance(t, TensorDescType)
    layout = t.layout
    try:
        if buffer is None:
            return box_plan(layout, t.block_shape, t.dtype.itemsize)
        mem, shared = memdesc(ctx, buffer)
        plan = box_plan(shared, mem.shape, mem.dtype.itemsize)
    except ValueError as error:
        raise CompilationError("tma-block", str(error), op.loc) from error
    if layout is not None:
        encoded = box_plan(layout, t.block_shape, t.dtype.itemsize)
        if (encoded.box, encoded.swizzle) != (plan.box, plan.swizzle):
            raise InternalError(f"a copy of {t} boxes to {shared}", op.loc)
    return plan


def tensor_address(ctx: Lowering, op: Any, at: tuple[int, ...]) -> Addr:
    """The tensor-map operand of the box whose first element is `at` inside the block."""
    b = ptx_builder(ctx)
    coords: list[Operand] = [b.operand(b.plus(ctx.scalar(c), x)) for c, x in zip(op.coords, at, strict=True)]
    return Addr(b.register(ctx.scalar(op.desc)), 0, coords[::-1])


def guard_of(ctx: Lowering, op: Any) -> Lane | None:
    """The thread that issues, where the op's predicate holds."""
    pred = getattr(op, "pred", None)
    return ctx.b.both(leader(ctx), ctx.scalar(pred) if pred is not None else None)


def hint_of(ctx: Lowering, op: Any) -> tuple[str, list[Operand]]:
    """(modifier, operand) of an L2 policy."""
    if not op.eviction:
        return "", []
    b = ptx_builder(ctx)
    return ".L2::cache_hint", [b.register(Lane(U64, None, _POLICY[op.eviction], uniform=CTA))]


def mask16(ctx: Lowering, value: Value) -> Reg:
    """A mask of CTAs in a 16-bit register."""
    b = ptx_builder(ctx)
    return b.register(b.pure("cvt.u16.u32", U16, [b.register(ctx.scalar(value))], CTA))


@lowers("async_copy.tma_load", target="nvidia")
def lower_tma_load(ctx: Lowering, op: Any) -> None:
    """One instruction a box; each counts its bytes on the barrier."""
    _needs_tma(ctx, op)
    b = ptx_builder(ctx)
    plan = plan_of(ctx, op, op.dst)
    guard = hang_wait.alive(ctx, guard_of(ctx, op))
    hint, policy = hint_of(ctx, op)
    mask: list[Operand] = []
    many = ""
    if op.multicast is not None:
        many = ".multicast::cluster"
        mask.append(mask16(ctx, op.multicast))
    base = engine_buffer(ctx, op.dst, max(128, 8 * plan.swizzle), op.loc).address
    opcode = (
        f"cp.async.bulk.tensor.{len(plan.box)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{many}{hint}"
    )
    for at, offset in plan.pieces:
        place = b.address("shared", b.plus(base, offset))
        operands: list[Operand] = [place, tensor_address(ctx, op, at), barrier_address(ctx, op.barrier), *mask, *policy]
        b.emit(opcode, operands, 0, guard)


@lowers("async_copy.tma_store", target="nvidia")
def lower_tma_store(ctx: Lowering, op: Any) -> None:
    """One instruction a box, all in one group."""
    _needs_tma(ctx, op)
    b = ptx_builder(ctx)
    plan = plan_of(ctx, op, op.src)
    guard = guard_of(ctx, op)
    hint, policy = hint_of(ctx, op)
    base = engine_buffer(ctx, op.src, max(128, 8 * plan.swizzle), op.loc).address
    rank = f"{len(plan.box)}d.global.shared::cta"
    if op.reduce:
        opcode = f"cp.reduce.async.bulk.tensor.{rank}.{op.reduce}.tile.bulk_group{hint}"
    else:
        opcode = f"cp.async.bulk.tensor.{rank}.tile.bulk_group{hint}"
    for at, offset in plan.pieces:
        b.emit(opcode, [tensor_address(ctx, op, at), b.address("shared", b.plus(base, offset)), *policy], 0, guard)
    b.emit("cp.async.bulk.commit_group", [], 0, guard)


@lowers("async_copy.tma_store_wait", target="nvidia")
def lower_tma_store_wait(ctx: Lowering, op: Any) -> None:
    """Every thread waits for its own groups: those of the leader are the task's, others have none."""
    _needs_tma(ctx, op)
    ptx_builder(ctx).emit(f"cp.async.bulk.wait_group{'' if op.whole else '.read'}", [Imm(op.pendings)])


@lowers("async_copy.tma_prefetch", target="nvidia")
def lower_tma_prefetch(ctx: Lowering, op: Any) -> None:
    """One instruction a box."""
    _needs_tma(ctx, op)
    b = ptx_builder(ctx)
    plan = plan_of(ctx, op, None)
    guard = guard_of(ctx, op)
    hint, policy = hint_of(ctx, op)
    opcode = f"cp.async.bulk.prefetch.tensor.{len(plan.box)}d.L2.global.tile{hint}"
    for at, _ in plan.pieces:
        b.emit(opcode, [tensor_address(ctx, op, at), *policy], 0, guard)


for _name in ("async_copy.block_load", "async_copy.block_store"):
    unsupported(_name, "nvidia", "passes make copies, or loads and stores, of it")


# ---------------------------------------------------------------------------------------------------------------- contiguous bytes


@lowers("async_copy.bulk_load", target="nvidia")
def lower_bulk_load(ctx: Lowering, op: Any) -> None:
    """One copy of contiguous bytes that counts on a barrier."""
    _needs_tma(ctx, op)
    b = ptx_builder(ctx)
    operands: list[Operand] = [
        b.address("shared", engine_buffer(ctx, op.dst, 16, op.loc).address),
        b.address("global", ctx.scalar(op.ptr)),
        b.operand(ctx.scalar(op.bytes)),
        barrier_address(ctx, op.barrier),
    ]
    guard = hang_wait.alive(ctx, guard_of(ctx, op))
    b.emit("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", operands, 0, guard)


@lowers("async_copy.bulk_store", target="nvidia")
def lower_bulk_store(ctx: Lowering, op: Any) -> None:
    """One copy of contiguous bytes, a group of its own."""
    _needs_tma(ctx, op)
    b = ptx_builder(ctx)
    guard = guard_of(ctx, op)
    operands: list[Operand] = [
        b.address("global", ctx.scalar(op.ptr)),
        b.address("shared", engine_buffer(ctx, op.src, 16, op.loc).address),
        b.operand(ctx.scalar(op.bytes)),
    ]
    b.emit("cp.async.bulk.global.shared::cta.bulk_group", operands, 0, guard)
    b.emit("cp.async.bulk.commit_group", [], 0, guard)
