"""Copies of contiguous bytes by all waves of the task: loads straight into LDS, stores through registers, 16 bytes a lane (4 for loads on gfx942).

When bytes count is as in `block_copy`.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower.barrier import land
from mimw.codegen.amdgcn.lower.branch import either, unsigned
from mimw.codegen.amdgcn.lower.lds_dma import end_copy, runs_of, wait_copy
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared.shared_memory import memdesc
from mimw.diagnostics import InternalError
from mimw.ir.core import Value
from mimw.ir.layout_factories import blocked
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import I1, U32, U64

_WIDEST = 16
"""Bytes of one access."""


class _Chunks:
    """The bytes of a buffer in pieces of `size` a lane, all waves' after one another: `at`, where this lane's first piece is, is the same for
    all but a constant `step`.

    `bytes` of them are copied: a multiple of 16, of the whole buffer's `total`.
    """

    def __init__(self, ctx: Lowering, buffer: Value, count: Value, size: int) -> None:
        b = self.b = amdgcn_builder(ctx)
        t, _ = memdesc(ctx, buffer)
        self.total = t.dtype.itemsize
        for n in t.shape:
            self.total *= n
        self.size = size
        self.bytes = unsigned(ctx.scalar(count))
        tid = b.thread_id()
        self.mine = b.shift(Lane(U32, b.register(tid), uniform=tid.uniform), size.bit_length() - 1)
        self.step = size * ctx.warp_size * ctx.num_warps
        self.firsts = range(0, self.total, self.step)

    def at(self, first: int) -> Lane:
        """The byte of this lane's piece in a round."""
        return self.b.plus(self.mine, first)

    def guard(self, first: int) -> Lane | None:
        """Whether that is one of the bytes to copy; None where it is known."""
        if self.bytes.reg is None and self.bytes.off >= first + self.step:
            return None
        return self.b.compare("lt", self.at(first), self.bytes)

    def pointer(self, base: Lane, first: int) -> Lane:
        """Where the piece lies behind a global address."""
        b = self.b
        mine = Lane(U32, b.register(self.mine), uniform=self.mine.uniform)
        return b.plus(b.op("add", U64, base, b.widen(mine, U64)), first)


@lowers("async_copy.bulk_load", target="amd")
def lower_bulk_load(ctx: Lowering, op: Any) -> None:
    """Straight into LDS; the bytes count when they are there."""
    b = amdgcn_builder(ctx)
    pred = ctx.scalar(op.pred) if op.pred is not None else b.const(I1, 1)
    if pred.reg is None and not pred.off:
        return
    size = next(size for size in ctx.target.lane_copies if ctx.shared[op.dst].align % size == 0)
    chunks = _Chunks(ctx, op.dst, op.bytes, size)
    if pred.reg is None:
        _start(ctx, op, chunks)
    else:
        either(ctx, pred, lambda: _start(ctx, op, chunks), lambda: None, ("copy_if", "no_copy"))
    copy = end_copy(b)

    def finish() -> None:
        wait_copy(b, copy)
        land(ctx, op.barrier, chunks.bytes, pred if pred.reg is not None else None)

    b.put_off(finish)


def _start(ctx: Lowering, op: Any, chunks: _Chunks) -> None:
    b = chunks.b
    words = 1 << (max(chunks.total, chunks.step) // 4 - 1).bit_length()
    layout = blocked((words,), (0,), ctx.num_warps, chunks.size // 4, ctx.warp_size)
    runs = runs_of(b, ctx.target, layout, SharedLayout.row_major((words,)), 4, ctx.shared[op.dst], chunks.size)
    if runs is None:
        raise InternalError("bytes in a row do not lie side by side", op.loc)
    base = b.bitcast(ctx.scalar(op.ptr), U64)
    for i, first in enumerate(chunks.firsts):
        runs.copy(i * runs.width, chunks.pointer(base, first), chunks.guard(first), "")


@lowers("async_copy.bulk_store", target="amd")
def lower_bulk_store(ctx: Lowering, op: Any) -> None:
    """16 bytes a lane."""
    b = amdgcn_builder(ctx)
    chunks = _Chunks(ctx, op.src, op.bytes, _WIDEST)
    base = b.bitcast(ctx.scalar(op.ptr), U64)
    place = ctx.shared[op.src].address
    for first in chunks.firsts:
        guard = chunks.guard(first)
        lanes = b.load("shared", U32, b.add(place, chunks.at(first)), 4, guard, None, "")
        b.store("global", chunks.pointer(base, first), lanes, guard)
