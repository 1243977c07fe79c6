"""Small helpers of the integer primitives: who may run on the scalar unit, lanes by other names, shifts by constants."""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.amdgcn.builder.opcodes import SIGNED, UNSIGNED, is_signed
from mimw.codegen.lane import LANE, Lane
from mimw.codegen.machine import Imm
from mimw.ir.types import U64, Element


def renamed(b: Core, lane: Lane, dtype: Element) -> Lane:
    """A 32-bit lane by another name."""
    if lane.part >= 0:
        return Lane(dtype, b.register(lane), uniform=lane.uniform)
    return Lane(dtype, lane.reg, lane.off, uniform=lane.uniform)


def whole(b: Core, lane: Lane) -> Lane:
    """The lane without a constant apart."""
    return Lane(lane.dtype, b.register(lane), uniform=lane.uniform) if lane.reg is not None and lane.off else lane


def as_u64(lane: Lane) -> Lane:
    """A 64-bit lane as unsigned."""
    return Lane(U64, lane.reg, lane.off, uniform=lane.uniform)


def on_scalars(args: tuple[Lane, ...]) -> bool:
    """Whether the scalar unit may work: all is one in the warp."""
    return all(a.uniform > LANE for a in args)


def shifted(b: Core, prim: str, dtype: Element, x: Lane, count: int) -> Lane:
    """A 32-bit shift by a constant below 32."""
    scalar, vector = (
        (SIGNED if is_signed(dtype) else UNSIGNED)["shr"] if prim == "shr" else ("s_lshl_b32", "v_lshlrev_b32")
    )
    if on_scalars((x,)):
        return b.salu(scalar, dtype, x, Imm(count))
    return b.valu(vector, dtype, Imm(count), x)


def scalar_source(b: Core, lane: Lane) -> Lane:
    """A 64-bit scalar source: a constant that is no inline one in a register."""
    if lane.reg is None and not -16 <= lane.off <= 64:
        return Lane(lane.dtype, b.scalar_register(lane), uniform=lane.uniform)
    return lane
