"""Matrix products by v_mfma on tiles in registers, and by fma for what has no instruction.

The register layouts are those of `ir.layout_factories`: consecutive registers of an instruction tile are its fragment; a lane may hold
the fragments of several instructions along K, alike in both operands, since a sum does not ask in which order K comes.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder import AmdgcnBuilder
from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Imm, Operand, Reg
from mimw.codegen.shared.casts import cast
from mimw.codegen.shared.fma_product import lower_fma, operand_lanes
from mimw.diagnostics import InternalError
from mimw.ir.layout import tile_registers
from mimw.ir.layout_factories import mfma_k_width
from mimw.ir.types import F16, F32, F64, I8, I32, DType, MemDescType, element_of
from mimw.target import Target


def amdgcn_builder(ctx: Lowering) -> AmdgcnBuilder:
    """The builder of an AMDGCN lowering."""
    b = ctx.b
    if not isinstance(b, AmdgcnBuilder):
        raise InternalError("an AMDGCN lowering runs on another target", b.loc)
    return b


class Instruction:
    """A v_mfma: its mnemonic, and how many elements a lane gives of each operand."""

    __slots__ = ("name", "per_lane")

    def __init__(self, name: str, per_lane: int) -> None:
        self.name = name
        self.per_lane = per_lane


def instruction(target: Target, rows: int, a: DType, b: DType, width: int, precision: str) -> Instruction:
    """The instruction for operands of these types whose lanes hold `width` elements: the one that takes most of them."""
    double = target.has("mfma_k2")
    if a is F64:
        return _named("f64", rows, 1, "f64")
    if a is F32:
        if precision == "tf32" and target.has("xf32") and width >= 2:
            return _named("f32", rows, 2, "xf32")
        return _named("f32", rows, 1, "f32")
    if a is I8:
        return _named("i32", rows, 16 if double and width >= 16 else 8, "i8")
    if a.is_fp8():
        kinds = ["fp8" if t.exponent == 4 else "bf8" for t in (a, b)]
        return _named("f32", rows, 8, "_".join(kinds))
    return _named("f32", rows, 8 if double and width >= 8 else 4, a.name)


def _named(result: str, rows: int, per_lane: int, kind: str) -> Instruction:
    return Instruction(f"v_mfma_{result}_{rows}x{rows}x{per_lane * 64 // rows}_{kind}", per_lane)


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
    b = amdgcn_builder(ctx)
    a_type, b_type = (element_of(v.type) for v in (op.a, op.b))
    assert isinstance(a_type, DType) and isinstance(b_type, DType)
    layout = layout_of(op.acc)
    rows = 32 if sum(1 for v in layout.lane if v[1]) == 5 else 16
    width = mfma_k_width(op.a.type.shape[1], a_type.bits, rows)
    how = instruction(ctx.target, rows, a_type, b_type, width, op.precision)
    rounded = a_type is F32 and op.precision == "tf32"
    left, right = operand_lanes(ctx, op.a, 1, rounded), operand_lanes(ctx, op.b, 0, rounded)
    depth = width * 64 // rows
    left_tiles = tile_registers(layout_of(op.a), (rows, depth))
    right_tiles = tile_registers(layout_of(op.b), (depth, rows))
    acc_tiles = tile_registers(layout, (rows, rows))
    held = {tile: b.tuple_of([acc[r] for r in registers]) for tile, registers in acc_tiles.items()}
    fragments: dict[tuple[int, ...], Reg] = {}

    def fragment(side: int, tile: tuple[int, ...], first: int) -> Reg:
        key = (side, *tile, first)
        if key not in fragments:
            lanes, tiles = (right, right_tiles) if side else (left, left_tiles)
            fragments[key] = _fragment(b, [lanes[r] for r in tiles[tile][first : first + how.per_lane]])
        return fragments[key]

    for k in sorted({k for _, k in left_tiles}):
        for first in range(0, width, how.per_lane):
            for i, j in acc_tiles:
                out = b.reg(held[i, j].cls)
                sources: list[Operand] = [fragment(0, (i, k), first), fragment(1, (k, j), first), held[i, j]]
                b.emit(how.name, [out, *sources], 1)
                held[i, j] = out
    return _taken_apart(b, acc, acc_tiles, held)


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
