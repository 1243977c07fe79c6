"""Lowerings of clusters: ranks, the barrier of all CTAs, stores and copies into another CTA's shared memory."""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import CTA, Lane, LazyTile, bits_of
from mimw.codegen.lowering import Lowering, layout_of, lowers, refuse
from mimw.codegen.machine import Imm, Operand, Reg, Special, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower import hang_wait
from mimw.codegen.ptx.lower.barrier import map_to_cta
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.lower.task import cluster_barrier, cluster_size, leader
from mimw.codegen.shared.addressing import Placement, vector_groups
from mimw.codegen.shared.memory import as_memory
from mimw.codegen.shared.shared_memory import memdesc
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir import layout as algebra
from mimw.ir.types import I1, I32


def _needs_cluster(ctx: Lowering, op: Any) -> None:
    if not ctx.target.has("cluster"):
        raise refuse(op, ctx.target, "it has no clusters")


@lowers("cluster.cta_rank", target="nvidia")
def lower_cta_rank(ctx: Lowering, op: Any) -> None:
    """A special register; 0 without clusters."""
    b = ptx_builder(ctx)
    if cluster_size(ctx.function) == 1:
        ctx.set(op.result, [b.const(I32, 0)])
        return

    def make() -> Lane:
        reg = Reg("b32", "cta_rank")
        b.emit("mov.u32", [reg, Special("%cluster_ctarank")], 1)
        return Lane(I32, reg, uniform=CTA)

    ctx.set(op.result, [b.once(("cta_rank",), make)])


@lowers("cluster.size", target="nvidia")
def lower_cluster_size(ctx: Lowering, op: Any) -> None:
    """A constant."""
    ctx.set(op.result, [ctx.b.const(I32, cluster_size(ctx.function))])


@lowers("cluster.sync", target="nvidia")
def lower_cluster_sync(ctx: Lowering, op: Any) -> None:
    """All threads of the cluster. Outside of tasks only: every warp takes part (`task` lets the others pass it, too)."""
    _needs_cluster(ctx, op)
    if ctx.b.task_warps and op.parent is not ctx.function.block:
        raise CompilationError(
            "not-yet",
            "cluster_barrier inside async_tasks or inside control flow beside them is not supported yet",
            op.loc,
        )
    if ctx.hang is not None:
        hang_wait.held_up(ctx, op, lambda: cluster_barrier(ptx_builder(ctx)))
        return
    cluster_barrier(ptx_builder(ctx))


# ------------------------------------------------------------------------------------------------------------------- remote stores


@lowers("cluster.remote_store", target="nvidia")
def lower_remote_store(ctx: Lowering, op: Any) -> None:
    """Ordinary stores into the cluster's window."""
    _needs_cluster(ctx, op)
    b = ptx_builder(ctx)
    base = map_to_cta(ctx, ctx.shared[op.dst].address, ctx.scalar(op.cta))
    for place, values, guard in _pieces(ctx, op, base, 1, 16):
        b.store("shared::cluster", place, values, guard, "")


@lowers("cluster.async_remote_store", target="nvidia")
def lower_async_remote_store(ctx: Lowering, op: Any) -> None:
    """st.async, each counting its bytes on the barrier of the CTA that is written."""
    _needs_cluster(ctx, op)
    b = ptx_builder(ctx)
    cta = ctx.scalar(op.cta)
    base = map_to_cta(ctx, ctx.shared[op.dst].address, cta)
    barrier = b.address("shared", map_to_cta(ctx, ctx.shared[op.barrier].address, cta))
    for place, values, guard in _pieces(ctx, op, base, 4, 16):
        words = _words(b, values)
        count = "" if len(words) == 1 else f".v{len(words)}"
        operand: Operand = words[0] if len(words) == 1 else Vec([*words])
        kind = words[0].cls if words[0].cls[0] == "f" else f"b{words[0].cls[1:]}"
        opcode = f"st.async.shared::cluster.mbarrier::complete_tx::bytes{count}.{kind}"
        b.emit(opcode, [b.address("shared", place), operand, barrier], 0, hang_wait.alive(ctx, guard))


def _words(b: PtxBuilder, values: list[Lane]) -> list[Reg]:
    per = max(1, 32 // bits_of(values[0].dtype))
    if per == 1:
        return [b.register(v) for v in values]
    return [b.packed(values[i : i + per]) for i in range(0, len(values), per)]


def _pieces(ctx: Lowering, op: Any, base: Lane, least: int, most: int) -> list[tuple[Lane, list[Lane], Lane | None]]:
    """(address, elements, guard) of every access of `least` to `most` bytes that stores a tile, each element once."""
    b = ctx.b
    t, shared = memdesc(ctx, op.dst)
    layout = layout_of(op.src)
    tile = ctx.tile(op.src)
    if isinstance(tile, LazyTile) or tile[0].dtype is I1:
        tile = as_memory(ctx, list(tile))
    size = bits_of(tile[0].dtype) // 8
    placement = Placement(layout, shared, size, ctx.shared[op.dst].mix)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, t.shape)
    low = (1 << len(layout.reg)) - 1
    free = [r for r in range(layout.num_regs) if not r & low & registers]
    coords = layout.reg_coords()
    out: list[tuple[Lane, list[Lane], Lane | None]] = []
    for group in vector_groups(
        placement, placement.unit_bits(t.shape, min(most, ctx.shared[op.dst].align) // size), free
    ):
        if len(group) * size < least:
            raise CompilationError(
                "not-yet", f"an asynchronous remote store of {t.dtype} needs {least} neighbouring bytes a thread", op.loc,
                hint="use remote_shmem_store, or wider elements",
            )  # fmt: skip
        guard = b.both(owner, inside(group[0]))
        if guard is not None and guard.reg is None and not guard.off:
            continue
        out.append((placement.address(ctx, base, coords[group[0]]), [tile[r] for r in group], guard))
    return out


@lowers("cluster.async_remote_copy", target="nvidia")
def lower_async_remote_copy(ctx: Lowering, op: Any) -> None:
    """One copy by the TMA engine of all bytes of the buffer."""
    _needs_cluster(ctx, op)
    b = ptx_builder(ctx)
    t, layout = memdesc(ctx, op.src)
    if memdesc(ctx, op.dst)[1] is not layout:
        raise InternalError(f"a remote copy between {op.src.type} and {op.dst.type}", op.loc)
    size = layout.size * t.dtype.itemsize
    if size % 16:
        raise CompilationError("remote-copy", f"a copied buffer is a multiple of 16 bytes, not {size}", op.loc)
    cta = ctx.scalar(op.cta)
    operands: list[Operand] = [
        b.address("shared", map_to_cta(ctx, ctx.shared[op.dst].address, cta)),
        b.address("shared", ctx.shared[op.src].address),
        Imm(size),
        b.address("shared", map_to_cta(ctx, ctx.shared[op.barrier].address, cta)),
    ]
    opcode = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    b.emit(opcode, operands, 0, hang_wait.alive(ctx, leader(ctx)))
