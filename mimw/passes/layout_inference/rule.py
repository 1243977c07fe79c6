"""What a layout rule is: the protocol, the rule of elementwise ops, and what rules may ask of their surroundings.

An op has one *primary* layout. A rule says, for a primary, which layout each operand must have and each result gets, and turns a
neighbour's layout into a primary of its own.
"""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import blocked, pad_dims
from mimw.ir.types import DType, InflightType, TensorType, Type
from mimw.passes.facts import Facts
from mimw.target import Target


class Context:
    """What rules may ask: the machine, the warps, the facts."""

    __slots__ = ("facts", "num_warps", "target")

    def __init__(self, target: Target, num_warps: int, facts: Facts) -> None:
        self.target = target
        self.num_warps = num_warps
        self.facts = facts

    def spread(self, shape: tuple[int, ...], order: tuple[int, ...] | None = None, vec: int = 1) -> Layout:
        """A blocked layout over all threads; `vec` is cut so that every thread has work."""
        order = tuple(reversed(range(len(shape)))) if order is None else order
        total = 1
        for s in shape:
            total <<= pad_dims(s, "pow2")[0]
        vec = max(1, min(vec, total // (self.num_warps * self.target.warp_size)))
        return blocked(shape, order, self.num_warps, vec, self.target.warp_size)


def tile_of(t: Type) -> TensorType | None:
    """The tensor type behind a type that carries a register layout (a tile, or one in flight)."""
    if isinstance(t, TensorType):
        return t
    return t.tensor if isinstance(t, InflightType) else None


def bits_of(t: TensorType) -> int:
    """Bits that one element takes in a conversion."""
    return t.element.bits if isinstance(t.element, DType) else 64


class Rule:
    """The rule of elementwise ops, and the base of the others."""

    __slots__ = ()

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        """What the operand (index in the flat list) must have; None: any layout will do."""
        return primary

    def result(self, op: OpBase, index: int, primary: Layout) -> Layout:
        """What the result gets."""
        return primary

    def from_operand(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        """A primary that takes the operand as it is; None when there is none."""
        return layout

    def from_result(self, op: OpBase, index: int, layout: Layout) -> Layout | None:
        """A primary that gives the result this layout; None when there is none."""
        return layout

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        """What the op itself would like, best first."""
        return []

    def fixed(self, op: OpBase) -> bool:
        """Whether the op takes nothing but its seeds."""
        return False

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        """Slots of one execution in this layout."""
        return primary.num_regs * _weight(op)


_SLOW = {"arith.div": 8.0, "arith.div_rn": 12.0, "arith.rem": 16.0}


def _weight(op: OpBase) -> float:
    """Slots per register of an elementwise op."""
    name = op.name
    if name.startswith("math."):
        return 6.0
    t = tile_of(op.results[0].type) if op.results else None
    narrow = t is not None and isinstance(t.element, DType) and t.element.bits <= 16
    return _SLOW.get(name, 0.5 if narrow else 1.0)
