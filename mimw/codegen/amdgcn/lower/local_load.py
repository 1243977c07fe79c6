"""Reads of tiles from shared memory; gfx950 turns 16-bit tiles on the way (``ds_read_b64_tr_b16``).

That instruction works in groups of 16 lanes: lane 4 r + q of a group gives the address of row r, elements 4 q to 4 q + 3, of a 4 x 16 tile
whose rows lie anywhere; lane l receives column l, rows 0 to 3. So an operand of v_mfma whose K does not lie along rows of memory is read
four elements at a time, and not one by one.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.memory import shared_address
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Imm
from mimw.codegen.shared.addressing import Placement
from mimw.codegen.shared.shared_memory import load_tile, memdesc
from mimw.ir.types import I1, U32, DType

_ROWS, _BYTES = 4, 8
"""Rows of the tile that a group of lanes reads, and bytes of one row that a lane reads."""


@lowers("memory.local_load", target="amd")
def lower_local_load(ctx: Lowering, op: Any) -> None:
    """A tile from a buffer: turned by the read where both layouts fit that."""
    t, shared = memdesc(ctx, op.src)
    layout = layout_of(op.result)
    source = ctx.shared[op.src]
    lanes = None
    fits = t.dtype is not I1 and t.dtype.bits == 16 and layout.shape_padded == t.shape
    if ctx.target.has("ds_read_tr") and fits and not source.mix and source.align >= 16:
        lanes = _turned(ctx, source.address, Placement(layout, shared, t.dtype.itemsize), t.dtype)
    ctx.set(op.result, lanes if lanes is not None else load_tile(ctx, source, shared, layout, t.shape, t.dtype))


def _turned(ctx: Lowering, base: Lane, placement: Placement, dtype: DType) -> list[Lane] | None:
    """The tile by turning reads, or None where the layouts do not fit: four rows in the lowest registers, 16 columns in the lowest lanes."""
    layout = placement.layout
    reg, thread = [placement.linear(v) for v in layout.reg], placement.thread
    if placement.digit_dims or len(reg) < 2 or len(layout.lane) != 6 or thread[:2] != (2, 4):
        return None
    rows = reg[:2]
    moved = (*thread[2:4], *rows, *thread[4:])
    strides = [placement.digit_stride(d) for d in range(layout.rank)]
    if any(x % _BYTES for x in (*moved, *reg[2:], *strides)) or not all(moved[:4]):
        return None
    if any(placement.has_digits(v) for v in layout.reg[:2]):
        return None  # the lanes' addresses are XORed, and a digit is added
    return _reads(ctx, base, placement, dtype, moved)


def _reads(ctx: Lowering, base: Lane, placement: Placement, dtype: DType, moved: tuple[int, ...]) -> list[Lane]:
    """One read for every four registers; `moved` are the address bits that each thread bit gives."""
    b = amdgcn_builder(ctx)
    span = 0
    for x in moved:
        span |= x
    thread = ctx.linear(moved)
    coords = placement.layout.reg_coords()
    out: list[Lane] = []
    for first in range(0, placement.layout.num_regs, _ROWS):
        part = placement.linear(coords[first])
        mixed = part & span
        offset = b.op("xor", U32, thread, b.const(U32, mixed)) if mixed else thread
        address = b.plus(b.add(base, offset), part - mixed + placement.digits(coords[first]))
        place, immediate = shared_address(b, address)
        pair = b.reg("v64")
        b.emit("ds_read_b64_tr_b16", [pair, place, *immediate], 1)
        words = [b.reg_of(b.pure("p_part", U32, [pair, Imm(i)], 0, "v32")) for i in range(2)]
        out += [Lane(dtype, words[i // 2], 0, i % 2) for i in range(_ROWS)]
    return out
