"""Copies of contiguous bytes by all waves of the task, 16 bytes a lane, through registers; as `block_copy` in all else."""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower.barrier import land
from mimw.codegen.amdgcn.lower.branch import Only, unsigned
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared.shared_memory import memdesc
from mimw.ir.core import Value
from mimw.ir.types import U32, U64

_WIDEST = 16
"""Bytes of one access."""


def _chunks(ctx: Lowering, buffer: Value, count: Value) -> tuple[list[tuple[Lane, Lane | None]], Lane]:
    """The 16-byte chunks of a buffer that this lane copies, each with whether it is one of the `count` bytes; and that count."""
    b = amdgcn_builder(ctx)
    t, _ = memdesc(ctx, buffer)
    total = t.dtype.itemsize
    for n in t.shape:
        total *= n
    bytes_ = unsigned(ctx.scalar(count))
    tid = b.thread_id()
    mine = b.shift(Lane(U32, b.register(tid), uniform=tid.uniform), 4)
    step = _WIDEST * ctx.warp_size * ctx.num_warps
    out: list[tuple[Lane, Lane | None]] = []
    for first in range(0, total, step):
        at = b.plus(mine, first)
        out.append((at, b.compare("lt", at, bytes_)))
    return out, bytes_


@lowers("async_copy.bulk_load", target="amd")
def lower_bulk_load(ctx: Lowering, op: Any) -> None:
    """16 bytes a lane; the bytes count when they are there."""
    pred = ctx.scalar(op.pred) if op.pred is not None else None
    if pred is None or pred.reg is None:
        if pred is None or pred.off:
            _load_bytes(ctx, op)
        return
    with Only(ctx, pred, "copy_if"):
        _load_bytes(ctx, op)


def _load_bytes(ctx: Lowering, op: Any) -> None:
    b = amdgcn_builder(ctx)
    chunks, count = _chunks(ctx, op.dst, op.bytes)
    base = b.bitcast(ctx.scalar(op.ptr), U64)
    place = ctx.shared[op.dst].address
    found: list[list[Lane]] = []
    for at, guard in chunks:
        found.append(b.load("global", U32, b.op("add", U64, base, b.widen(_whole(ctx, at), U64)), 4, guard, None, ""))

    def finish() -> None:
        for (at, guard), lanes in zip(chunks, found, strict=True):
            b.store("shared", b.add(place, at), lanes, guard)
        land(ctx, op.barrier, count)

    b.put_off(finish)


def _whole(ctx: Lowering, lane: Lane) -> Lane:
    """A lane whose constant is part of its register."""
    return lane if lane.reg is None or not lane.off else Lane(lane.dtype, ctx.b.register(lane), uniform=lane.uniform)


@lowers("async_copy.bulk_store", target="amd")
def lower_bulk_store(ctx: Lowering, op: Any) -> None:
    """16 bytes a lane."""
    b = amdgcn_builder(ctx)
    chunks, _ = _chunks(ctx, op.src, op.bytes)
    base = b.bitcast(ctx.scalar(op.ptr), U64)
    place = ctx.shared[op.src].address
    for at, guard in chunks:
        lanes = b.load("shared", U32, b.add(place, at), 4, guard, None, "")
        b.store("global", b.op("add", U64, base, b.widen(_whole(ctx, at), U64)), lanes, guard)
