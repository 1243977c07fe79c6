"""Layout rules of matrix products: fragments of the instructions, warps shared between rows and columns."""

from __future__ import annotations

from mimw.diagnostics import InternalError
from mimw.ir.core import OpBase
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import mma_accumulator, mma_operand_a, mma_operand_b, wgmma_accumulator, wgmma_operand_a
from mimw.ir.types import MemDescType, TensorType
from mimw.passes.layout_inference.rule import Context, Rule, bits_of, tile_of


class DotRule(Rule):
    """mma.dot. With tiles as operands: mma.sync, one candidate for each way to share the warps between M and N. With memdescs: fma
    on a blocked accumulator. Primary: the accumulator's layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        acc = op.results[0].type
        assert isinstance(acc, TensorType)
        if isinstance(op.operands[0].type, MemDescType):
            return [ctx.spread(acc.shape, None, 4)]
        bits = bits_of(acc)
        found: list[Layout] = []
        for wm, wn in warp_splits(acc.shape, ctx.num_warps):
            layout = mma_accumulator(acc.shape, wm, wn, 64 if bits == 64 else 32)
            if layout not in found:
                found.append(layout)
        return found[:3]

    def fixed(self, op: OpBase) -> bool:
        return True

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        if index == 2:
            return primary
        t = op.operands[index].type
        assert isinstance(t, TensorType)
        acc = op.results[0].type
        assert isinstance(acc, TensorType)
        wm, wn = splits_of(primary, acc)
        make = mma_operand_a if index == 0 else mma_operand_b
        return make(t.shape, bits_of(t), wm, wn)

    def cost(self, op: OpBase, primary: Layout, ctx: Context) -> float:
        if isinstance(op.operands[0].type, MemDescType):
            return 0.0
        return 2.0 * primary.num_regs


def warp_splits(shape: tuple[int, ...], num_warps: int) -> list[tuple[int, int]]:
    """Ways to share warps between rows and columns of an mma.sync accumulator: squarest part per warp first, no idle warps if possible."""
    ways: list[tuple[float, int, int]] = []
    for bit in range(num_warps.bit_length()):
        wm, wn = num_warps >> bit, 1 << bit
        idle = max(1.0, wm * 16 / shape[0]) * max(1.0, wn * 8 / shape[1])
        ways.append((idle * (shape[0] / wm + shape[1] / wn), wm, wn))
    ways.sort(key=lambda w: (w[0], w[2]))
    return [(wm, wn) for _, wm, wn in ways]


def splits_of(accumulator: Layout, t: TensorType) -> tuple[int, int]:
    """(warps_m, warps_n) of the `mma_accumulator` layout of a tile. A warp bit that holds copies does not say whose it is: so by
    search. Where two ways give one layout, they give the operands one layout too."""
    elem_bits = 64 if bits_of(t) == 64 else 32
    for wm, wn in warp_splits(t.shape, accumulator.num_warps):
        if mma_accumulator(t.shape, wm, wn, elem_bits) is accumulator:
            return wm, wn
    raise InternalError(f"{accumulator} is no mma.sync accumulator of {t}")


class AsyncDotRule(Rule):
    """wgmma. Primary: the accumulator's layout; operand A may be a tile in the instruction's own layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = tile_of(op.results[0].type)
        assert t is not None
        return [wgmma_accumulator(t.shape, ctx.num_warps)]

    def fixed(self, op: OpBase) -> bool:
        return True

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        t = tile_of(op.operands[index].type)
        assert t is not None
        if index == 0:
            return wgmma_operand_a(t.shape, bits_of(t), primary.num_warps)
        return primary
