"""Copies from global to shared memory by threads: straight into LDS where the tile's layout allows, else through registers.

Straight (`lds_dma`): one instruction a run of lanes, done when ``vmcnt`` says so; groups are counted by the pass of wait counts. Elements that the
mask leaves out are stored as what they become; no copy touches them.

Through registers: the loads are made where a copy starts, the stores put off to the next wait, barrier or end of a block: what stands
between hides the memory's latency. A wait for groups finds nothing in flight.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.lower.lds_dma import Runs, end_group, runs_of, wait_groups
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.shared.memory import access_of, as_memory, cache_words, guards
from mimw.codegen.shared.shared_memory import memdesc, store_tile
from mimw.ir import layout as algebra
from mimw.ir.types import I1, U8


@lowers("async_copy.load", target="amd")
def lower_async_load(ctx: Lowering, op: Any) -> None:
    """Start copying a tile."""
    b = amdgcn_builder(ctx)
    t, shared = memdesc(ctx, op.dst)
    size = t.dtype.itemsize
    width = access_of(ctx, op.ptr, op.mask, 8 * size).width
    runs = runs_of(b, ctx.target, layout_of(op.ptr), shared, size, ctx.shared[op.dst], width * size)
    if runs is None:
        _through_registers(ctx, op, width)
    else:
        _straight(ctx, op, runs)


def _straight(ctx: Lowering, op: Any, runs: Runs) -> None:
    """One instruction a run. What the mask leaves out is zero, or `other`."""
    b = amdgcn_builder(ctx)
    t, _ = memdesc(ctx, op.dst)
    layout = layout_of(op.ptr)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    inside = ctx.holes(layout, t.shape)
    pointers = ctx.tile(op.ptr)
    masks = ctx.tile(op.mask) if op.mask is not None else None
    other = _filling(ctx, op)
    dtype = U8 if t.dtype is I1 else t.dtype
    zero = b.const(dtype, 0)
    low = (1 << len(layout.reg)) - 1
    rest: list[tuple[int, Lane | None]] = []
    for r in range(0, layout.num_regs, runs.width):
        if r & low & registers:
            continue
        here = b.both(owner, inside(r))
        mask = masks[r] if masks is not None else b.const(I1, 1)
        if mask.reg is not None and other is None and runs.copy_or_zero(r, pointers[r], mask, here, cache_words(op)):
            continue
        runs.copy(r, pointers[r], b.both(here, mask), cache_words(op))
        rest.append((r, b.both(here, b.invert(mask))))
    for r, guard in rest:  # behind all copies, which wait for earlier accesses of LDS
        runs.write(r, other[r : r + runs.width] if other is not None else [zero] * runs.width, guard)


def _filling(ctx: Lowering, op: Any) -> list[Lane] | None:
    """What stands where the mask leaves out; None for zeros."""
    found = as_memory(ctx, list(ctx.tile(op.other))) if op.other is not None else None
    return None if found is None or all(x.reg is None and not x.off for x in found) else found


def _through_registers(ctx: Lowering, op: Any, width: int) -> None:
    """Loads now, stores later."""
    b = amdgcn_builder(ctx)
    t, shared = memdesc(ctx, op.dst)
    dtype = U8 if t.dtype is I1 else t.dtype
    layout = layout_of(op.ptr)
    place = ctx.shared[op.dst]
    unmasked = guards(ctx, op.ptr, op.mask)
    pointers = ctx.tile(op.ptr)
    other = _filling(ctx, op)
    copies = algebra.owner_mask(layout)[0] & (1 << len(layout.reg)) - 1
    moved: list[Lane] = []
    for r in range(0, layout.num_regs, width):
        if r & copies:  # a register that repeats an earlier one is not stored
            moved += moved[r & ~copies : (r & ~copies) + width]
            continue
        rest = other[r : r + width] if other is not None else None
        moved += b.load("global", dtype, pointers[r], width, unmasked(r), rest, cache_words(op))
    b.put_off(lambda: store_tile(ctx, place, shared, layout, t.shape, moved))


@lowers("async_copy.commit_group", target="amd")
def lower_commit_group(ctx: Lowering, op: Any) -> None:
    """The end of a group."""
    del op
    end_group(amdgcn_builder(ctx))


@lowers("async_copy.wait_group", target="amd")
def lower_wait_group(ctx: Lowering, op: Any) -> None:
    """What was put off is done, and groups have arrived."""
    b = amdgcn_builder(ctx)
    b.finish_copies()
    wait_groups(b, op.pendings)
