"""Matrix products by v_mfma on tiles in registers, and by fma for what has no instruction.

The register layouts are those of `ir.layout_factories`: B is the instruction's first operand and A its second, so that the accumulator's
rows lie along registers. A lane holds the fragments of several instructions along K, alike in both operands, since a sum does not ask in
which order K comes.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Imm, Operand, Reg, Symbol
from mimw.codegen.shared.casts import cast
from mimw.codegen.shared.fma_product import lower_fma, operand_lanes
from mimw.diagnostics import InternalError
from mimw.ir.layout import tile_registers
from mimw.ir.types import F16, F32, F64, I8, I32, DType, MemDescType, element_of
from mimw.target import Target


def amdgcn_builder(ctx: Lowering) -> AmdgcnBuilder:
    """The builder of an AMDGCN lowering."""
    b = ctx.b
    if not isinstance(b, AmdgcnBuilder):
        raise InternalError("an AMDGCN lowering runs on another target", b.loc)
    return b


class Instruction:
    """A v_mfma: its mnemonic, how many elements a lane gives of each operand, and modifiers."""

    __slots__ = ("modifiers", "name", "per_lane")

    def __init__(self, result: str, rows: int, per_lane: int, kind: str, modifiers: tuple[str, ...] = ()) -> None:
        self.name = f"v_mfma_{result}_{rows}x{rows}x{per_lane * 64 // rows}_{kind}"
        self.per_lane = per_lane
        self.modifiers = modifiers


def instruction(target: Target, rows: int, a: DType, b: DType, held: int, precision: str) -> Instruction:
    """The instruction for operands B and A of these types, of which lanes hold `held` elements along K: the one that takes most."""
    double = target.has("mfma_k2")
    if a is F64:
        return Instruction("f64", rows, 1, "f64")
    if a is F32:
        if precision == "tf32" and target.has("xf32") and held % 2 == 0:
            return Instruction("f32", rows, 2, "xf32")
        return Instruction("f32", rows, 1, "f32")
    if a is I8:
        return Instruction("i32", rows, 16 if double and held % 16 == 0 else 8, "i8")
    if a.is_fp8():
        kinds = ["fp8" if t.exponent == 4 else "bf8" for t in (b, a)]
        if target.has("f8f6f4") and held % 32 == 0:  # twice as fast; its formats are modifiers
            formats = zip(("cbsz", "blgp"), kinds, strict=True)
            return Instruction("f32", rows, 32, "f8f6f4", tuple(f"{name}:1" for name, kind in formats if kind == "bf8"))
        return Instruction("f32", rows, 8, "_".join(kinds))
    return Instruction("f32", rows, 8 if double and held % 8 == 0 else 4, a.name)


@lowers("mma.dot", target="amd")
def lower_dot(ctx: Lowering, op: Any) -> None:
    """By v_mfma when the operands are tiles, by fma when they are buffers."""
    b = amdgcn_builder(ctx)
    acc = [Lane(x.dtype, b.vector(x)) for x in ctx.tile(op.acc)] if not _packed(op) else list(ctx.tile(op.acc))
    if isinstance(op.a.type, MemDescType):
        lower_fma(ctx, op, acc)
        return
    c_type = element_of(op.acc.type)
    assert isinstance(c_type, DType)
    if c_type is F16:
        acc = [cast(b, x, F32) for x in acc]
    found = _products(ctx, op, acc)
    if c_type is F16:
        found = [
            half for i in range(0, len(found), 2) for half in b.convert_pair("rn", found[i], found[i + 1], F16) or ()
        ]
    ctx.set(op.result, found)


def _packed(op: Any) -> bool:
    dtype = element_of(op.acc.type)
    return isinstance(dtype, DType) and dtype.bits < 32


def _products(ctx: Lowering, op: Any, acc: list[Lane]) -> list[Lane]:
    """Instruction after instruction along K, all tiles of the accumulator in turn: neighbours in time do not wait for each other."""
    b = amdgcn_builder(ctx)
    a_type, b_type = (element_of(v.type) for v in (op.a, op.b))
    assert isinstance(a_type, DType) and isinstance(b_type, DType)
    layout = layout_of(op.acc)
    rows = 1 << sum(1 for v in layout.lane if v[0])
    rounded = a_type is F32 and op.precision == "tf32"
    sides = (operand_lanes(ctx, op.a, 1, rounded), operand_lanes(ctx, op.b, 0, rounded))
    # For each band of rows (columns) its registers, in the order of K: all of K in one tile.
    bands = (
        {i: regs for (i, _), regs in tile_registers(layout_of(op.a), (rows, 1 << 30)).items()},
        {j: regs for (_, j), regs in tile_registers(layout_of(op.b), (1 << 30, rows)).items()},
    )
    held = len(bands[0][0])
    how = instruction(ctx.target, rows, a_type, b_type, held, op.precision)
    acc_tiles = tile_registers(layout, (rows, rows))
    sums = {tile: b.tuple_of([acc[r] for r in registers]) for tile, registers in acc_tiles.items()}
    for first in range(0, held, how.per_lane):
        parts = [
            {i: _fragment(b, [lanes[r] for r in regs[first : first + how.per_lane]]) for i, regs in band.items()}
            for lanes, band in zip(sides, bands, strict=True)
        ]
        for i, j in acc_tiles:
            out = b.reg(sums[i, j].cls)
            sources: list[Operand] = [parts[1][j], parts[0][i], sums[i, j]]
            b.emit(how.name, [out, *sources, *(Symbol(m) for m in how.modifiers)], 1)
            sums[i, j] = out
    return _taken_apart(b, acc, acc_tiles, sums)


def _fragment(b: AmdgcnBuilder, lanes: Tile) -> Reg:
    """One lane's share of an operand as a register tuple."""
    dtype = lanes[0].dtype
    assert isinstance(dtype, DType)
    per = max(1, 32 // dtype.bits)
    if per == 1:
        return b.tuple_of(lanes)
    return b.tuple_of([Lane(I32, b.packed(lanes[i : i + per])) for i in range(0, len(lanes), per)])


def _taken_apart(
    b: AmdgcnBuilder, acc: list[Lane], tiles: dict[tuple[int, ...], tuple[int, ...]], held: dict[tuple[int, ...], Reg]
) -> list[Lane]:
    """The registers of all tiles as lanes."""
    out = list(acc)
    for tile, registers in tiles.items():
        for n, r in enumerate(registers):
            dtype = acc[r].dtype
            words = 2 if dtype is F64 else 1
            out[r] = b.pure("p_part", dtype, [held[tile], Imm(n * words)], 0, f"v{32 * words}")
    return out
