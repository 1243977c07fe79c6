"""What lowerings of copies share: branches that all waves take alike, and a change of signedness. Lowers no op."""

from __future__ import annotations

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


def unsigned(lane: Lane) -> Lane:
    """A 32-bit lane seen as u32: negative numbers become the largest."""
    return Lane(U32, lane.reg, lane.off & 0xFFFFFFFF if lane.reg is None else lane.off, uniform=lane.uniform)
