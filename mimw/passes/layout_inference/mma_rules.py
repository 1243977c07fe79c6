"""Layout rules of matrix products: fragments of the instructions, warps shared between rows and columns."""

from __future__ import annotations

from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import OpBase
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import (
    mfma_accumulator,
    mfma_operand_a,
    mfma_operand_b,
    mma_accumulator,
    mma_operand_a,
    mma_operand_b,
    wgmma_accumulator,
    wgmma_operand_a,
)
from mimw.ir.types import MemDescType, TensorType
from mimw.passes.layout_inference.rule import Context, Rule, bits_of, tile_of
from mimw.passes.stage_dot import from_product

_WAVE_BITS = 6
"""Lane bits of a layout on waves of 64: products on tiles are then v_mfma."""


class DotRule(Rule):
    """mma.dot. With tiles as operands: mma.sync or v_mfma, one candidate for each way to share the warps between M and N. With memdescs: fma
    on a blocked accumulator. Primary: the accumulator's layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        acc = op.results[0].type
        assert isinstance(acc, TensorType)
        if isinstance(op.operands[0].type, MemDescType):
            return [ctx.spread(acc.shape, None, 4)]
        bits = bits_of(acc)
        found: list[Layout] = []
        if ctx.target.has("mfma"):
            return mfma_layouts(acc, ctx.num_warps)[:3]
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
        if len(primary.lane) == _WAVE_BITS:
            rows, wm, wn = mfma_way_of(primary, acc)
            least = from_product(op.operands[0])  # another product's accumulator is operand A as it lies
            return (mfma_operand_a if index == 0 else mfma_operand_b)(t.shape, bits_of(t), rows, wm, wn, least)
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


def _mfma_ways(t: TensorType, num_warps: int) -> list[tuple[int, int, int]]:
    """(rows of the instruction, warps_m, warps_n), best first: 32x32 where every warp has whole ones, as it reads least from memory."""
    m, n = t.shape
    wide = bits_of(t) == 64
    ways: list[tuple[float, int, int, int]] = []
    for wm, wn in warp_splits(t.shape, num_warps):
        rows = 32 if not wide and m >= 32 * wm and n >= 32 * wn else 16
        idle = max(1.0, wm * rows / m) * max(1.0, wn * rows / n)
        ways.append((idle * (m / wm + n / wn), rows, wm, wn))
    ways.sort(key=lambda w: (w[0], w[3]))
    return [way[1:] for way in ways]


def mfma_layouts(t: TensorType, num_warps: int) -> list[Layout]:
    """The layouts that an accumulator of v_mfma may have."""
    wide = 64 if bits_of(t) == 64 else 32
    found = [mfma_accumulator(t.shape, rows, wm, wn, wide) for rows, wm, wn in _mfma_ways(t, num_warps)]
    return list(dict.fromkeys(found))


def mfma_way_of(accumulator: Layout, t: TensorType) -> tuple[int, int, int]:
    """(rows of the instruction, warps_m, warps_n) of one of the `mfma_layouts`, by search as in `splits_of`."""
    wide = 64 if bits_of(t) == 64 else 32
    for rows, wm, wn in _mfma_ways(t, accumulator.num_warps):
        if mfma_accumulator(t.shape, rows, wm, wn, wide) is accumulator:
            return rows, wm, wn
    raise InternalError(f"{accumulator} is no v_mfma accumulator of {t}")


def _check_wgmma(op: OpBase, num_warps: int) -> None:
    """What a product asks of its task and of K: the instruction is issued by whole warp groups, and takes 32 bytes of K."""
    if num_warps % 4:
        text = f"async_dot by {num_warps} warp{'s' * (num_warps > 1)}: the tensor core takes products from whole warp groups"
        raise CompilationError("unsupported", text, op.loc, hint="give the task num_warps=4 or 8, or use ml.dot")
    b = op.operands[1].type
    assert isinstance(b, MemDescType)
    step, k = 256 // b.dtype.bits, b.shape[0]
    if k % step:
        text = f"async_dot of K = {k}: of this type the tensor core takes multiples of {step}"
        hint = "make the blocks longer along K (copies fill what is outside of the tensor with zeros), or use ml.dot"
        raise CompilationError("unsupported", text, op.loc, hint=hint)


class AsyncDotRule(Rule):
    """wgmma. Primary: the accumulator's layout; operand A may be a tile in the instruction's own layout."""

    def seeds(self, op: OpBase, ctx: Context) -> list[Layout]:
        t = tile_of(op.results[0].type)
        assert t is not None
        _check_wgmma(op, ctx.num_warps)
        return [wgmma_accumulator(t.shape, ctx.num_warps)]

    def fixed(self, op: OpBase) -> bool:
        return True

    def operand(self, op: OpBase, index: int, primary: Layout) -> Layout | None:
        t = tile_of(op.operands[index].type)
        assert t is not None
        if index == 0:
            return wgmma_operand_a(t.shape, bits_of(t), primary.num_warps)
        return primary
