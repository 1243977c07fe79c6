# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Reads of the scalar unit (SMEM): s_load, s_buffer_load, the clocks, cache maintenance. They complete in any order."""

from __future__ import annotations

import re

import numpy as np

from mimw.sim.amdgcn.decode import Const, Reg
from mimw.sim.amdgcn.operands import Getter, Operands
from mimw.sim.amdgcn.ops.transfers import SHAPES
from mimw.sim.amdgcn.registry import Step, executes, family
from mimw.sim.amdgcn.state import SCALAR, Array, Ctx
from mimw.sim.amdgcn.types import join

_DST = "dword(?:x2|x4|x8|x16)?"


def _offset(d: Operands) -> Getter:
    """The offset in bytes, (n,) int64: a constant or a register, plus the immediate of the offset modifier."""
    op, extra = d.op(2), d.inst.number("offset")
    if isinstance(op, Const) and isinstance(op.value, int):
        constant = np.array([op.value + extra], np.int64)
        return lambda x: constant
    get = d.scalar(2, "u32")
    return lambda x: get(x).astype(np.int64) + extra


def _result(d: Operands, regs: int) -> tuple[Reg, tuple[int, ...]]:
    op = d.op(0)
    if not isinstance(op, Reg) or op.file != "s" or op.count != regs:
        raise d.fault(f"{op!r} is not {regs} scalar registers")
    slots = tuple(range(SCALAR + op.first, SCALAR + op.first + regs))
    d.writes.update(slots)
    return op, slots


def _put(d: Operands, x: Ctx, op: Reg, slots: tuple[int, ...], words: Array) -> None:
    d.sim.waits.claim(x, "smem", slots)
    for k, word in enumerate(words):
        d.m.write_scalar(x, op.first + k, word)
    d.sim.waits.issue(x, "smem", d.inst, slots, d.sim.time)


@family(rf"s_(?:scratch_)?load_({_DST})")
def _load(d: Operands, match: re.Match[str]) -> Step:
    shape = SHAPES[match[1]]
    op, slots = _result(d, shape.regs)
    base, offset = d.scalar(1, "u64"), _offset(d)

    def run(x: Ctx) -> None:
        addr = np.broadcast_to(base(x).astype(np.int64) + offset(x), x.n) & ~np.int64(3)
        _put(d, x, op, slots, d.sim.memory.load_uniform(x, addr, shape.width))

    return run


@family(rf"s_buffer_load_({_DST})")
def _buffer_load(d: Operands, match: re.Match[str]) -> Step:
    """Reads beyond num_records give 0, dword by dword."""
    shape = SHAPES[match[1]]
    op, slots = _result(d, shape.regs)
    descriptor, offset = d.scalar_words(d.op(1), 4), _offset(d)

    def run(x: Ctx) -> None:
        rsrc = descriptor(x)
        base = join(rsrc[0], rsrc[1] & np.uint32(0xFFFF)).astype(np.int64)
        stride = ((rsrc[1] >> np.uint32(16)) & np.uint32(0x3FFF)).astype(np.int64)
        size = rsrc[2].astype(np.int64) * np.maximum(stride, 1)
        start = np.broadcast_to(offset(x), x.n) & ~np.int64(3)
        words = np.zeros((shape.regs, x.n), np.uint32)
        for k in range(shape.regs):
            inside = start + 4 * k + 4 <= size
            for row in np.nonzero(inside)[0].tolist():
                one = Ctx(x.waves[row : row + 1], None)
                addr = (base + start + 4 * k)[row : row + 1]
                words[k, row] = d.sim.memory.load_uniform(one, addr, 4)[0, 0]
        _put(d, x, op, slots, words)

    return run


@executes("s_memtime", "s_memrealtime")
def _time(d: Operands) -> Step:
    """Clocks that move by one with every step of the simulator; that of the real time also when nobody gets on (`scheduler`)."""
    real = d.inst.mnemonic == "s_memrealtime"
    d.sim.reads_clock |= real
    op, slots = _result(d, 2)

    def run(x: Ctx) -> None:
        now = d.sim.time + (d.sim.idle_time if real else 0)
        words = np.array([now & 0xFFFFFFFF, now >> 32], np.uint32)[:, None]
        _put(d, x, op, slots, np.broadcast_to(words, (2, x.n)))

    return run


@executes("s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol")
def _cache(d: Operands) -> Step:
    return lambda x: None
