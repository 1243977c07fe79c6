# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Instructions that only carry values: mov (with packing and unpacking), selp, slct."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import Imm, Inst, Pair, Sink, Symbol, Vec
from mimw.sim.ptx.ops.integer import raw_of
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, bits_of


@executes("mov")
def _mov(s: Sim, inst: Inst, mods: list[str]) -> Step:
    dst, src = inst.operands
    kind = mods[-1]
    if isinstance(dst, Vec):
        return _unpack(s, dst, src, bits_of(kind))
    if isinstance(src, Vec):
        return _pack(s, dst, src, bits_of(kind))
    if kind == "b128":
        raise not_yet("mov.b128")
    raw = raw_of(kind)
    if isinstance(src, Imm) and src.cls != "int":
        raw = kind
    if isinstance(src, Symbol) and src.name in s.labels:
        raise not_yet("addresses of code")
    a, put = s.m.rd(src, raw), s.m.wr(dst, raw)
    return lambda x: put(x, a(x))


def _unpack(s: Sim, dst: Vec, src: object, size: int) -> Step:
    part = size // len(dst.items)
    if size > 64 or part < 8:
        raise not_yet(f"mov.b{size} with {len(dst.items)} parts")
    a = s.m.rd(src, f"b{size}")  # type: ignore[arg-type]
    puts = [(i, s.m.wr(item, f"b{part}")) for i, item in enumerate(dst.items) if not isinstance(item, Sink)]
    narrow, wide = UNSIGNED[part], UNSIGNED[size]

    def run(x: Ctx) -> None:
        v = a(x).copy()
        for i, put in puts:
            put(x, (v >> wide(part * i)).astype(narrow))

    return run


def _pack(s: Sim, dst: object, src: Vec, size: int) -> Step:
    part = size // len(src.items)
    if size > 64 or part < 8:
        raise not_yet(f"mov.b{size} with {len(src.items)} parts")
    gets = [s.m.rd(item, f"b{part}") for item in src.items]
    put, wide = s.m.wr(dst, f"b{size}"), UNSIGNED[size]  # type: ignore[arg-type]

    def run(x: Ctx) -> None:
        v = gets[0](x).astype(wide)
        for i, get in enumerate(gets[1:], 1):
            v = v | (get(x).astype(wide) << wide(part * i))
        put(x, v)

    return run


@executes("selp")
def _selp(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    p, put = s.m.rd(inst.operands[3], "pred"), s.m.wr(inst.operands[0], kind)
    return lambda x: put(x, np.where(p(x), a(x), b(x)))


@executes("slct")
def _slct(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, by = mods[-2], mods[-1]
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    c, put = s.m.rd(inst.operands[3], by), s.m.wr(inst.operands[0], kind)
    return lambda x: put(x, np.where(c(x) >= 0, a(x), b(x)))


def second_result(dst: object) -> tuple[object, object]:
    """The two sides of a result operand ``d|p`` (the second is a Sink when there is none)."""
    if isinstance(dst, Pair):
        return dst.first, dst.second
    return dst, Sink()
