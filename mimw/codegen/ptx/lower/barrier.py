"""Lowerings of mbarriers, named barriers and fences.

One elected thread speaks for a task (see `task`). Before it does, the task meets, unless what stands before in the block shows that no
warp can lag: a warp may still be reading what is released, or still be waiting for an earlier phase of a barrier, which must not complete
twice in the meantime. A product after the wait shows that the four warps of one warp group have passed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, Shared, lowers, refuse
from mimw.codegen.machine import Addr, Block, Edge, Imm, Operand, Reg, Sink, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower import hang_wait
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.lower.task import WARP_GROUP, cluster_size, leader, speaks_for_itself
from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase, Value
from mimw.ir.types import I1, I32, U32, BarrierType


def barrier_address(ctx: Lowering, value: Value) -> Addr:
    """The memory operand of one barrier (in the window of the cluster when it is a remote one)."""
    return ptx_builder(ctx).address("shared", ctx.shared[value].address)


def is_remote(value: Value) -> bool:
    """Whether a barrier is another CTA's."""
    return isinstance(value.type, BarrierType) and value.type.remote


@lowers("barrier.alloc", target="nvidia")
def lower_alloc(ctx: Lowering, op: Any) -> None:
    """An address; the kernel's frame initialises it."""
    if not ctx.target.has("mbarrier"):
        raise refuse(op, ctx.target, "it has no mbarrier with transaction counts")
    ctx.shared[op.result] = Shared(ctx.b.plus(ctx.b.shared_base(), op.offset))


@lowers("barrier.view", target="nvidia")
def lower_view(ctx: Lowering, op: Any) -> None:
    """8 bytes each."""
    b = ctx.b
    index = ctx.scalar(op.index)
    index = Lane(U32, index.reg, index.off, uniform=index.uniform)
    ctx.shared[op.result] = Shared(b.add(ctx.shared[op.barriers].address, b.times(index, 8)))


@lowers("barrier.remote_view", target="nvidia")
def lower_remote_view(ctx: Lowering, op: Any) -> None:
    """The same place in another CTA's shared memory."""
    ctx.shared[op.result] = Shared(map_to_cta(ctx, ctx.shared[op.barriers].address, ctx.scalar(op.cta)))


def map_to_cta(ctx: Lowering, address: Lane, cta: Lane) -> Lane:
    """The address in the cluster's window of what lies at `address` in the CTA of that rank. Constants stay apart: windows are flat."""
    b = ptx_builder(ctx)
    base, rank = b.register(b.base(address)), b.operand(cta)
    found = b.pure("mapa.shared::cluster.u32", U32, [base, rank], min(address.uniform, cta.uniform))
    return b.plus(found, address.off)


# -------------------------------------------------------------------------------------------------------------------------- waits


@lowers("barrier.wait", target="nvidia")
def lower_wait(ctx: Lowering, op: Any) -> None:
    """Poll until the phase of that parity is complete; each try sleeps for a while in hardware."""
    b = ptx_builder(ctx)
    address = barrier_address(ctx, op.barrier)
    parity = b.operand(b.bit_and(ctx.scalar(op.phase), 1))
    done = Block("waited")
    if op.pred is not None:
        pred = ctx.scalar(op.pred)
        if pred.reg is None and not pred.off:
            return
        if pred.reg is not None:
            wanted = Block("wait_if")
            ctx.branch(pred, Edge(wanted, []), Edge(done, []))
            ctx.place(wanted)
    _poll(ctx, op, address, parity, done)
    ctx.place(done)


@lowers("barrier.parity", target="nvidia")
def lower_parity(ctx: Lowering, op: Any) -> None:
    """Of parity 1 is the phase under way when the one of parity 0 is complete. All threads look before one of them arrives: the passes put a
    sync there, but for the threads of a single warp."""
    b = ptx_builder(ctx)
    odd = Reg("pred", "odd")
    b.emit("mbarrier.test_wait.parity.shared::cta.b64", [odd, barrier_address(ctx, op.barrier), Imm(0)], 1)
    ctx.set(op.result, [b.select(Lane(I1, odd), b.const(I32, 1), b.const(I32, 0))])
    if ctx.num_warps == 1:
        b.warp_barrier()


def _poll(ctx: Lowering, op: Any, address: Addr, parity: Operand, done: Block) -> None:
    b = ptx_builder(ctx)
    order = ".acquire.cluster" if _writes_remotely(ctx) else ""

    def emit_try(passed: Reg) -> None:
        b.emit(f"mbarrier.try_wait.parity{order}.shared::cta.b64", [passed, address, parity], 1)

    if ctx.hang is not None:
        site = ctx.hang.site("mbarrier", op)
        hang_wait.poll(ctx, emit_try, site, ctx.shared[op.barrier].address, ctx.scalar(op.phase), done)
        return
    again, passed = Block("wait"), Reg("pred", "passed")
    ctx.jump(again, [])
    ctx.place(again)
    emit_try(passed)
    b.block.term = Terminator([Edge(done, []), Edge(again, [])], passed, False, b.loc)


def _writes_remotely(ctx: Lowering) -> bool:
    """Whether ordinary stores go to other CTAs, so that releases and acquires must reach the cluster."""
    if cluster_size(ctx.function) == 1:
        return False
    return any(op.name == "cluster.remote_store" for op in ctx.function.walk())


# ------------------------------------------------------------------------------------------------------------------------ arrivals


@lowers("barrier.arrive", target="nvidia")
def lower_arrive(ctx: Lowering, op: Any) -> None:
    """One arrival (or `count`) by the leader, or by every thread."""
    b = ptx_builder(ctx)
    speaker: Lane | None = None
    if not speaks_for_itself(op.barrier):
        meet(ctx, op)
        speaker = leader(ctx)
    guard = hang_wait.alive(ctx, b.both(speaker, ctx.scalar(op.pred) if op.pred is not None else None))
    order = ""
    window = "cta"
    if is_remote(op.barrier):
        window = "cluster"
        order = ".release.cluster" if _writes_remotely(ctx) else ""
    operands: list[Operand] = [Sink(), barrier_address(ctx, op.barrier)]
    if op.count != 1:
        operands.append(Imm(op.count))
    b.emit(f"mbarrier.arrive{order}.shared::{window}.b64", operands, 1, guard)


@lowers("barrier.expect", target="nvidia")
def lower_expect(ctx: Lowering, op: Any) -> None:
    """The arrival that announces bytes."""
    b = ptx_builder(ctx)
    if ctx.num_warps > 1:
        meet(ctx, op)
    guard = hang_wait.alive(ctx, b.both(leader(ctx), ctx.scalar(op.pred) if op.pred is not None else None))
    window = "cluster" if is_remote(op.barrier) else "cta"
    operands: list[Operand] = [Sink(), barrier_address(ctx, op.barrier), Imm(op.bytes)]
    b.emit(f"mbarrier.arrive.expect_tx.shared::{window}.b64", operands, 1, guard)


_QUIET = frozenset(
    (
        "barrier.arrive", "barrier.expect", "barrier.fence", "barrier.fence_async_shared", "mma.async_dot_wait",
        "async_copy.tma_load", "async_copy.tma_prefetch", "async_copy.bulk_load", "async_copy.tma_store",
    )
)  # fmt: skip
"""Ops that do not let warps drift apart further than what stands before them."""


def _before(op: OpBase) -> Iterator[OpBase]:
    """The ops that certainly ran before one, latest first: back to the start of the loop or body around it, through branches."""
    while op.parent is not None:
        block = op.parent
        yield from reversed(block.ops[: block.ops.index(op)])
        above = block.parent_op
        if above is None or above.name != "control.if":
            return
        op = above


def _met(ctx: Lowering, op: OpBase) -> bool:
    """Whether the task met before an op, or what this function would find before it."""
    if op.name == "barrier.arrive":
        return not speaks_for_itself(op.operands[0])
    return op.name == "barrier.expect" and ctx.num_warps > 1


def meet(ctx: Lowering, op: OpBase) -> None:
    """The task's warps meet before its leader speaks, unless they are known to be together."""
    for earlier in _before(op):
        if earlier.name == "barrier.cta_sync" or _met(ctx, earlier):
            return
        if earlier.name == "mma.async_dot" and ctx.num_warps == WARP_GROUP:
            return
        if earlier.regions or not (earlier.spec.pure or earlier.name in _QUIET):
            break
    if ctx.num_warps == 1:
        ctx.b.warp_barrier()
    else:
        ctx.b.barrier()


# ----------------------------------------------------------------------------------------------------------- named barriers, fences


def _named(ctx: Lowering, op: Any) -> list[Operand]:
    b: PtxBuilder = ptx_builder(ctx)
    if op.id is not None:
        return [b.operand(ctx.scalar(op.id)), Imm(op.count)]
    if op.number < 0:
        raise InternalError(f"named barrier {op.name_hint!r} has no number", op.loc)
    return [Imm(op.number), Imm(op.count)]


@lowers("barrier.named_wait", target="nvidia")
def lower_named_wait(ctx: Lowering, op: Any) -> None:
    """Wait for `count` threads."""
    if ctx.hang is not None:
        hang_wait.named_wait(ctx, op)
        return
    ptx_builder(ctx).emit("bar.sync", _named(ctx, op))


@lowers("barrier.named_arrive", target="nvidia")
def lower_named_arrive(ctx: Lowering, op: Any) -> None:
    """Be counted, go on."""
    if ctx.hang is not None:
        hang_wait.named_arrive(ctx, op)
        return
    ptx_builder(ctx).emit("bar.arrive", _named(ctx, op))


@lowers("barrier.fence", target="nvidia")
def lower_fence(ctx: Lowering, op: Any) -> None:
    """Memory order as seen by the GPU or the system."""
    ptx_builder(ctx).emit(f"fence.acq_rel.{op.scope}", [])


__all__ = ["barrier_address", "is_remote", "map_to_cta", "meet"]
