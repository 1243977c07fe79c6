"""Tasks: who speaks for one, what they use from outside, the barriers that all of them pass. `frame` puts them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Block, Edge, Imm, Pair, Reg, Sink, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower import hang_wait
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.shared.control import run_region
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.barrier import BarrierAllocOp
from mimw.ir.ops.task import PartitionOp
from mimw.ir.types import I1, I32, InflightType, TensorType

WARP_GROUP = 4
_BULK = {"async_copy.tma_store", "async_copy.bulk_store"}


def cluster_of(function: Function) -> tuple[int, int, int]:
    """CTAs in a cluster along x, y, z."""
    x, y, z = function.options.get("ctas_per_cga") or (1, 1, 1)
    return int(x), int(y), int(z)


def cluster_size(function: Function) -> int:
    """CTAs in a cluster."""
    x, y, z = cluster_of(function)
    return x * y * z


def start_barrier(ctx: Lowering) -> None:
    """All threads of the CTA meet, and of the cluster."""
    b = ptx_builder(ctx)
    b.emit("bar.sync", [Imm(0)])
    if cluster_size(ctx.function) > 1:
        cluster_barrier(b)


def cluster_barrier(b: PtxBuilder) -> None:
    """All threads of all CTAs of the cluster meet."""
    b.emit("barrier.cluster.arrive.aligned", [])
    b.emit("barrier.cluster.wait.aligned", [])


def drain(ctx: Lowering) -> None:
    """Shared memory must stay until bulk stores have read it."""
    ptx_builder(ctx).emit("cp.async.bulk.wait_group", [Imm(0)])


def end_of(ctx: Lowering, names: set[str]) -> Callable[[], None] | None:
    """What the threads of a task with ops of these names do before they end."""
    stores = bool(names & _BULK)
    hang = (
        ctx.hang is not None and cluster_size(ctx.function) == 1
    )  # CTAs of a cluster settle when all have come to the end
    if not stores and not hang:
        return None

    def end() -> None:
        if stores:
            drain(ctx)
        if hang:
            hang_wait.settle(ctx)

    return end


def entry_registers(threads: int) -> int:
    """Registers a thread has when the kernel starts: what fits 64K (ptxas allots multiples of 8, at most 255)."""
    return min(255, 65536 // threads // 8 * 8)


def elect(b: PtxBuilder, num_warps: int) -> Lane:
    """True in one thread of the task: the elected one of its first warp. Every later use must mean the same thread."""
    hint, b.hint = b.hint, "leader"
    reg = Reg("pred", "leader")
    b.emit("elect.sync", [Pair(Sink(), reg), Imm(-1)], 1)
    leader = Lane(I1, reg)
    if num_warps > 1:
        first = b.compare("eq", b.uniform_warp_id(), b.const(I32, 0))
        leader = b.op("and", I1, leader, first)
    b.hint = hint
    return leader


def leader(ctx: Lowering) -> Lane:
    """The predicate of the thread that speaks for the task."""
    if ctx.leader is None:
        raise InternalError("no thread was elected", ctx.b.loc)
    return ctx.leader


LED = frozenset(
    (
        "barrier.arrive", "barrier.expect", "async_copy.tma_load", "async_copy.tma_store", "async_copy.tma_store_wait",
        "async_copy.tma_prefetch", "async_copy.prefetch_descriptor", "async_copy.bulk_load", "async_copy.bulk_store", "async_copy.make_descriptor",
        "cluster.async_remote_copy",
    )
)  # fmt: skip
"""Ops that one thread does for the task."""


def captures(block: IrBlock) -> list[Value]:
    """What a region uses from outside of it, in the order of use."""
    inside: set[Value] = set()
    found: dict[Value, None] = {}

    def visit(b: IrBlock) -> None:
        inside.update(b.args)
        for op in b.ops:
            for v in op.operands:
                if v not in inside:
                    found[v] = None
            inside.update(op.results)
            for region in op.regions:
                visit(region.block)

    visit(block)
    return list(found)


def inner_ops(op: OpBase) -> list[OpBase]:
    """The ops inside an op's regions."""
    out: list[OpBase] = []
    for region in op.regions:
        for o in region.block.ops:
            out.append(o)
            out += inner_ops(o)
    return out


def own_ops(block: IrBlock) -> list[OpBase]:
    """The ops that the task of a block runs: of the partition, the default task's region only."""
    out: list[OpBase] = []
    for op in block.ops:
        out.append(op)
        if isinstance(op, PartitionOp):
            out += own_ops(op.regions[0].block)
        else:
            for region in op.regions:
                out += own_ops(region.block)
    return out


_WHOLE_TASK = (
    "barrier.named_wait",
    "barrier.named_arrive",
    "cluster.sync",
    "debug.device_print",
    "debug.device_assert",
)


def is_light(block: IrBlock) -> bool:
    """Whether one warp can do a task's work: it handles no tiles and nothing that counts the task's threads."""
    for op in own_ops(block):
        if op.name in _WHOLE_TASK or (isinstance(op, BarrierAllocOp) and op.per_thread):
            return False
        if op.name == "barrier.arrive" and speaks_for_itself(op.operands[0]):
            return False
        if any(isinstance(v.type, (TensorType, InflightType)) for v in (*op.operands, *op.results)):
            return False
    return True


def speaks_for_itself(value: Value) -> bool:
    """Whether every thread arrives on a barrier by itself."""
    op = value.defining_op
    while op is not None and not isinstance(op, BarrierAllocOp):
        op = op.operands[0].defining_op
    return op is not None and op.per_thread


def run_light(ctx: Lowering, block: IrBlock) -> bool:
    """Lower a task's region; says whether it comes to its end. Where one warp can do the work, the task's other warps skip it: they
    would only poll barriers, at the cost of those that compute, and have to meet before each arrival."""
    b = ptx_builder(ctx)
    if ctx.num_warps == 1 or not is_light(block):
        return run_region(ctx, block) is not None
    first, done = Block("first_warp"), Block("task_done")
    mine = b.compare("eq", b.uniform_warp_id(), b.const(I32, 0))
    b.block.term = Terminator([Edge(first, []), Edge(done, [])], b.register(mine), True, b.loc)
    ctx.place(first)
    warps = ctx.num_warps
    ctx.num_warps = b.task_warps = 1
    b.open_scope()
    ended = run_region(ctx, block) is not None
    b.close_scope()
    ctx.num_warps = b.task_warps = warps
    if ended:
        ctx.jump(done, [])
    ctx.place(done)
    return True


@lowers("task.partition", target="nvidia")
def lower_partition(ctx: Lowering, op: Any) -> None:
    """In the default task: everybody starts here, then its own body."""
    start_barrier(ctx)
    ctx.before_leave = end_of(ctx, {o.name for o in own_ops(ctx.function.block)})
    block: IrBlock = op.regions[0].block
    warps = ctx.num_warps
    if not run_light(ctx, block):
        raise CompilationError("not-yet", "return, break or continue out of a task is not supported yet", op.loc)
    after = ctx.function.block.ops[ctx.function.block.ops.index(op) + 1 :]
    if warps > 1 and is_light(block) and any(o.name != "control.return" for o in after):
        ctx.b.barrier()


@lowers("task.replica_id", target="nvidia")
def lower_replica_id(ctx: Lowering, op: Any) -> None:
    """A constant of the region: the frontend makes it one when it expands replicas."""
    block: IrBlock | None = op.parent
    while block is not None:
        parent = block.parent_op
        if isinstance(parent, PartitionOp):
            index = next(i for i, r in enumerate(parent.regions) if r.block is block)
            ctx.set(op.result, [ctx.b.const(I32, parent.specs()[index].replica)])
            return
        block = parent.parent if parent is not None else None
    ctx.set(op.result, [ctx.b.const(I32, 0)])
