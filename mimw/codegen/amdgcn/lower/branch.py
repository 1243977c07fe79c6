"""What lowerings of copies share: branches that all waves take alike, and a change of signedness. Lowers no op."""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Block, Edge
from mimw.ir.types import U32


class Only:
    """A branch that is taken where a predicate holds: ``with`` it, lowering goes on inside, and behind it afterwards."""

    def __init__(self, ctx: Lowering, pred: Lane, hint: str) -> None:
        self.ctx = ctx
        self.pred = pred
        self.inside, self.done = Block(hint), Block("go_on")

    def __enter__(self) -> None:
        ctx = self.ctx
        ctx.branch(self.pred, Edge(self.inside, []), Edge(self.done, []))
        ctx.place(self.inside)
        ctx.b.open_scope()

    def __exit__(self, *exc: object) -> None:
        self.ctx.jump(self.done, [])
        self.ctx.b.close_scope()
        self.ctx.place(self.done)


def either(ctx: Lowering, cond: Lane, yes: Callable[[], None], no: Callable[[], None], hints: tuple[str, str]) -> None:
    """A branch with two sides, each lowered by a function; lowering goes on behind both. Copies that were put off stay so."""
    b = amdgcn_builder(ctx)
    held = b.hold_copies()
    sides = [Block(hint) for hint in hints]
    done = Block("go_on")
    ctx.branch(cond, Edge(sides[0], []), Edge(sides[1], []))
    for side, lower in zip(sides, (yes, no), strict=True):
        ctx.place(side)
        b.open_scope()
        lower()
        ctx.jump(done, [])
        b.close_scope()
    ctx.place(done)
    for store in held:
        b.put_off(store)


def unsigned(lane: Lane) -> Lane:
    """A 32-bit lane seen as u32: negative numbers become the largest."""
    return Lane(U32, lane.reg, lane.off & 0xFFFFFFFF if lane.reg is None else lane.off, uniform=lane.uniform)
