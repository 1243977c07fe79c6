"""The table of layout rules, by op name. Every op with tiles that is not in it is elementwise: all its tiles lie in one layout."""

from __future__ import annotations

from mimw.ir.core import OpBase
from mimw.ir.layout import Layout
from mimw.passes.layout_inference.memory_rules import AccessRule, AtomicRule, SharedRule
from mimw.passes.layout_inference.mma_rules import AsyncDotRule, DotRule
from mimw.passes.layout_inference.rule import Context, Rule, bits_of, tile_of
from mimw.passes.layout_inference.shape_rules import (
    BroadcastRule,
    CatRule,
    ExpandRule,
    ExtractSliceRule,
    JoinRule,
    ReduceRule,
    ReshapeRule,
    ScanRule,
    SplitRule,
    TransRule,
)

__all__ = ["ELEMENTWISE", "RULES", "Context", "Rule", "bits_of", "rule_of", "tile_of"]


class _AnyRule(Rule):
    """Takes each tile as it is."""

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        return None

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        return 0.0


ELEMENTWISE = Rule()
RULES: dict[str, Rule] = {
    "tensor.expand_dims": ExpandRule(),
    "tensor.broadcast": BroadcastRule(),
    "tensor.trans": TransRule(),
    "tensor.reshape": ReshapeRule(),
    "tensor.join": JoinRule(),
    "tensor.split": SplitRule(),
    "tensor.extract_slice": ExtractSliceRule(),
    "tensor.cat": CatRule(),
    "tensor.reduce": ReduceRule(),
    "tensor.scan": ScanRule(),
    "memory.load": AccessRule(),
    "memory.store": AccessRule(),
    "memory.prefetch": AccessRule(),
    "async_copy.load": AccessRule(),
    "memory.local_alloc": SharedRule(),
    "memory.local_store": SharedRule(),
    "memory.local_load": SharedRule(),
    "cluster.remote_store": SharedRule(),
    "cluster.async_remote_store": SharedRule(),
    "atomic.rmw": AtomicRule(),
    "atomic.cas": AtomicRule(),
    "mma.dot": DotRule(),
    "mma.async_dot": AsyncDotRule(),
    "debug.device_print": _AnyRule(),
    "debug.device_assert": _AnyRule(),
}


def rule_of(op: OpBase) -> Rule:
    """The rule of an op that is not control flow."""
    return RULES.get(op.name, ELEMENTWISE)
