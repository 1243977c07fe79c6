"""Waves that end before their time: the mark of a CTA, and those who look at it.

The *mark* is a word of shared memory, 0 until a wave of the CTA fails an assertion. Who finds it set ends:
behind an assertion, and at every wait for a word of shared memory. So all waves of the CTA end sooner or later: the hardware's barrier counts those that
have ended as arrived (CDNA3 ISA, S_BARRIER), and loops end as in any kernel.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.builder_memory import shared_address
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import WARP, Lane
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Block, Edge, Imm, Terminator
from mimw.diagnostics import InternalError
from mimw.ir.core import Function
from mimw.ir.types import U32


def needs_mark(function: Function) -> bool:
    """Whether waves of the kernel may end early."""
    return any(op.name == "debug.device_assert" for op in function.walk())


def mark(ctx: Lowering, failed: Lane) -> None:
    """Lanes that have failed add to the mark; it is set when this returns."""
    b = amdgcn_builder(ctx)
    place, offset = shared_address(b, _place(b))
    b.emit("ds_add_u32", [place, b.vector(b.const(U32, 1)), *offset], 0, failed)
    b.emit("p_wait_lgkm", [Imm(0)])


def end_if_marked(ctx: Lowering) -> None:
    """End the wave if its CTA is marked; lowering goes on in a block for the others."""
    b = amdgcn_builder(ctx)
    ends, goes_on = Block("end"), Block("go_on")
    ctx.branch(is_marked(b), Edge(ends, []), Edge(goes_on, []))
    ctx.place(ends)
    end(ctx)
    ctx.place(goes_on)


def is_marked(b: AmdgcnBuilder) -> Lane:
    """Whether the CTA is marked now, one in the wave."""
    place, offset = shared_address(b, _place(b))
    found = b.reg("v32")
    b.emit("ds_read_b32", [found, place, *offset], 1)
    word = b.reg("s32")
    b.emit("v_readfirstlane_b32", [word, found], 1)
    return b.compare("ne", Lane(U32, word, uniform=WARP), b.const(U32, 0))


def end(ctx: Lowering) -> None:
    """End the wave, with all that it has on its way done."""
    b = amdgcn_builder(ctx)
    b.emit("p_wait_vm", [Imm(0)])
    b.block.term = Terminator([], loc=b.loc)
    ctx.live = False


def _place(b: AmdgcnBuilder) -> Lane:
    if b.mark is None:
        raise InternalError("the kernel has no mark", b.loc)
    return b.const(U32, b.mark)
