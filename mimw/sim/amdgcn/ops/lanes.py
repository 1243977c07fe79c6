# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Values that cross between lanes inside the vector unit: readlane, writelane, readfirstlane, row swaps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.sim.amdgcn.decode import Reg
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.registry import Step, executes
from mimw.sim.amdgcn.state import LANES, Array, Ctx, slot_of


def _one_lane(d: Operands, index: int) -> Callable[[Ctx, Array], Array]:
    """A vector register read at one lane a wave: a function of the executing waves; the lane is checked alone."""
    op = d.op(index)
    if not isinstance(op, Reg) or op.file == "s":
        raise d.fault(f"{op!r} is no vector register")
    d.reads.add(slot_of(op))
    slot, m = slot_of(op), d.m

    def read(x: Ctx, lane: Array) -> Array:
        rows = np.arange(x.n)
        if m.bad[slot] & x.bits:
            wanted = np.zeros((x.n, LANES), np.bool_)
            wanted[rows, lane] = True
            m.check_read(x, slot, wanted)
        return m.vector[slot][x.waves, lane]

    return read


@executes("v_readfirstlane_b32")
def _readfirstlane(d: Operands) -> Step:
    """Lane of the lowest bit of EXEC; lane 0 where EXEC is 0."""
    read = _one_lane(d, 1)
    put = d.scalar_dst(0, "b32")

    def run(x: Ctx) -> None:
        lane = np.zeros(x.n, np.int64) if x.mask is None else np.argmax(x.mask, axis=1)
        put(x, read(x, lane))

    return run


@executes("v_readlane_b32")
def _readlane(d: Operands) -> Step:
    read = _one_lane(d, 1)
    put, select = d.scalar_dst(0, "b32"), d.scalar(2, "u32")

    def run(x: Ctx) -> None:
        lane = np.broadcast_to(select(x) & np.uint32(63), x.n).astype(np.int64)
        put(x, read(x, lane))

    return run


@executes("v_writelane_b32")
def _writelane(d: Operands) -> Step:
    """One lane of a register, whatever EXEC is."""
    slot, m = d.vector_slot(0), d.m
    d.writes.add(slot)
    d.reads.add(slot)
    value, select = d.scalar(1, "b32"), d.scalar(2, "u32")

    def run(x: Ctx) -> None:
        lane = np.broadcast_to(select(x) & np.uint32(63), x.n).astype(np.int64)
        if m.bad[slot] & x.bits:
            written = np.zeros((x.n, LANES), np.bool_)
            written[np.arange(x.n), lane] = True
            m.note_write(x, slot, written)
        m.vector[slot][x.waves, lane] = value(x)

    return run


@executes("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def _permlane_swap(d: Operands) -> Step:
    """Swaps the odd rows (of 16 or 32 lanes) of the first register with the even rows of the second (CDNA4)."""
    rows = 16 if "16" in d.inst.mnemonic else 32
    lane = np.arange(LANES)
    odd = lane // rows % 2 == 1
    first, second = d.vector_slot(0), d.vector_slot(1)
    put_a, put_b = d.dst(0, "b32"), d.dst(1, "b32")
    d.reads.update((first, second))

    def run(x: Ctx) -> None:
        if x.mask is not None:
            raise d.fault(f"{d.inst.mnemonic} with lanes off: not yet in the AMDGCN simulator", "unsupported")
        a, b = np.array(d.m.read_vector(x, first)), np.array(d.m.read_vector(x, second))
        put_a(x, np.where(odd, b[:, (lane - rows) % LANES], a))
        put_b(x, np.where(odd, b, a[:, (lane + rows) % LANES]))

    return run


@executes("v_nop", "v_clrexcp")
def _nop(d: Operands) -> Step:
    return lambda x: None
