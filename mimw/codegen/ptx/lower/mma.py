"""Matrix products by mma.sync (tiles in registers), ldmatrix for their operands, and fma for what has no instruction.

The register layouts are those of `ir.layout_factories`: consecutive registers of an instruction tile are its fragment.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane, Tile
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.codegen.machine import Operand, Reg, Vec
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.shared.addressing import Placement
from mimw.codegen.shared.fma_product import lower_fma, operand_lanes
from mimw.codegen.shared.shared_memory import load_tile, memdesc
from mimw.diagnostics import InternalError
from mimw.ir.layout import tile_registers
from mimw.ir.types import F16, F32, F64, I1, I32, U32, DType, MemDescType, element_of


def ptx_builder(ctx: Lowering) -> PtxBuilder:
    """The builder of a PTX lowering."""
    b = ctx.b
    if not isinstance(b, PtxBuilder):
        raise InternalError("a PTX lowering runs on another target", b.loc)
    return b


def mma_type(dtype: DType) -> str:
    """The operand type of a matrix instruction."""
    if dtype is F32:
        return "tf32"
    if dtype.kind == "float":
        return dtype.name.removeprefix("f8")
    return f"{'s' if dtype.kind == 'int' else 'u'}8"


def accumulator_type(dtype: DType) -> str:
    """The accumulator type of a matrix instruction."""
    return "s32" if dtype is I32 else dtype.name


@lowers("mma.dot", target="nvidia")
def lower_dot(ctx: Lowering, op: Any) -> None:
    """By mma.sync when the operands are tiles, by fma when they are buffers."""
    if isinstance(op.a.type, MemDescType):
        lower_fma(ctx, op, list(ctx.tile(op.acc)))
        return
    b = ptx_builder(ctx)
    a_type, b_type, c_type = (element_of(v.type) for v in (op.a, op.b, op.acc))
    assert isinstance(a_type, DType) and isinstance(b_type, DType) and isinstance(c_type, DType)
    rows, depth = (8, 4) if a_type is F64 else (16, 256 // a_type.bits)
    a = operand_lanes(ctx, op.a, 1, a_type is F32)
    c = operand_lanes(ctx, op.b, 0, b_type is F32)
    left = tile_registers(layout_of(op.a), (rows, depth))
    right = tile_registers(layout_of(op.b), (depth, 8))
    acc_tiles = tile_registers(layout_of(op.acc), (rows, 8))
    opcode = f"mma.sync.aligned.m{rows}n8k{depth}.row.col.{accumulator_type(c_type)}"
    opcode += f".{mma_type(a_type)}.{mma_type(b_type)}.{accumulator_type(c_type)}"
    steps = sorted({k for _, k in left})
    acc: list[Lane] = list(ctx.tile(op.acc))
    exact_every = _exact_every(op, a_type, depth)
    in_parts = 0 < exact_every < len(steps)
    for (i, j), registers in acc_tiles.items():
        total = [acc[r] for r in registers]
        held = _zeros(ctx, c_type, len(registers)) if in_parts else total
        for n, k in enumerate(steps):
            if in_parts and n and n % exact_every == 0:
                total = _sum(ctx, total, held)
                held = _zeros(ctx, c_type, len(registers))
            held = _multiply(b, opcode, [a[r] for r in left[i, k]], [c[r] for r in right[k, j]], held, c_type)
        if in_parts:
            held = _sum(ctx, total, held)
        for r, lane in zip(registers, held, strict=True):
            acc[r] = lane
    ctx.set(op.result, acc)


def _exact_every(op: Any, a_type: DType, depth: int) -> int:
    """After how many instructions an fp8 product must be added exactly (0: never)."""
    return max(1, op.max_imprecise // depth) if op.max_imprecise and a_type.is_fp8() else 0


def _zeros(ctx: Lowering, dtype: DType, count: int) -> list[Lane]:
    return [ctx.b.const(dtype, 0)] * count


def _sum(ctx: Lowering, x: Tile, y: Tile) -> list[Lane]:
    return [ctx.b.add(p, q) for p, q in zip(x, y, strict=True)]


def _multiply(b: PtxBuilder, opcode: str, a: Tile, c: Tile, acc: Tile, dtype: DType) -> list[Lane]:
    """One instruction."""
    left, right = words(b, a), words(b, c)
    if dtype is F16:
        sources: list[Operand] = [b.packed(acc[i : i + 2]) for i in range(0, len(acc), 2)]
        outs = [b.reg("b32") for _ in sources]
    else:
        sources = [b.register(x) for x in acc]
        outs = [b.reg("f32" if dtype is F32 else "f64" if dtype is F64 else "b32") for _ in sources]
    many = dtype is not F64
    operands: list[Operand] = [Vec([*outs]), Vec([*left]), Vec([*right]), Vec(sources)]
    if not many:
        operands = [Vec([*outs]), Vec([left[0]]), Vec([right[0]]), Vec(sources)]
    b.emit(opcode, operands, 1)
    if dtype is F16:
        return [half for reg in outs for half in b.halves(reg, dtype)]
    return [Lane(dtype, reg) for reg in outs]


def words(b: PtxBuilder, lanes: Tile) -> list[Reg]:
    """A fragment as 32-bit registers (64-bit for f64)."""
    dtype = lanes[0].dtype
    assert isinstance(dtype, DType)
    if dtype.bits >= 32:
        return [b.bits_register(x) for x in lanes]
    per = 32 // dtype.bits
    return [b.packed(lanes[i : i + per]) for i in range(0, len(lanes), per)]


# ------------------------------------------------------------------------------------------------------------------ ldmatrix


@lowers("memory.local_load", target="nvidia")
def lower_local_load(ctx: Lowering, op: Any) -> None:
    """A tile from a buffer: by ldmatrix where both layouts fit it."""
    t, shared = memdesc(ctx, op.src)
    layout = layout_of(op.result)
    source = ctx.shared[op.src]
    lanes = None
    if (
        t.dtype is not I1
        and layout.shape_padded == t.shape
        and len(layout.lane) == 5
        and not source.mix
        and source.align >= 16
    ):
        lanes = _by_ldmatrix(ctx, source.address, Placement(layout, shared, t.dtype.itemsize), t.dtype)
    ctx.set(op.result, lanes if lanes is not None else load_tile(ctx, source, shared, layout, t.shape, t.dtype))


def _by_ldmatrix(ctx: Lowering, base: Lane, placement: Placement, dtype: DType) -> list[Lane] | None:
    """The tile by ldmatrix, or None where the layouts do not fit.

    A matrix is 8 rows of 16 bytes; lane l receives 4 bytes of row l/4 (transposed: of column l/4, two rows 2(l%4) and the next).
    """
    layout, size = placement.layout, placement.size
    if placement.digit_dims or size > 4 or any(x & 15 for x in _digit_strides(placement)):
        return None
    reg = [placement.linear(v) for v in layout.reg]
    lane = placement.thread[:5]
    inner = (4 // size).bit_length() - 1  # register bits inside one 32-bit word
    if len(reg) < inner:
        return None
    if reg[:inner] == [size << i for i in range(inner)] and lane[:2] == (4, 8):
        rows, trans = [lane[2], lane[3], lane[4]], ""
    elif size == 2 and lane[2:] == (2, 4, 8):
        rows, trans = [reg[0], lane[0], lane[1]], ".trans"
    else:
        return None
    rest = reg[inner:]
    if any(x & 15 for x in (*rows, *rest, *placement.thread[5:])) or not all(rows):
        return None
    extra = min(2, len(rest))
    if any(placement.has_digits(v) for v in layout.reg[: inner + extra]):
        return None  # the lanes' addresses are XORed, and a digit is added
    return _emit_ldmatrix(ctx, base, placement, dtype, rows, rest, extra, trans)


def _digit_strides(placement: Placement) -> list[int]:
    return [placement.digit_stride(d) for d in range(placement.layout.rank)]


def _emit_ldmatrix(
    ctx: Lowering,
    base: Lane,
    placement: Placement,
    dtype: DType,
    rows: list[int],
    rest: list[int],
    extra: int,
    trans: str,
) -> list[Lane]:
    b = ptx_builder(ctx)
    layout = placement.layout
    inner = len(layout.reg) - len(rest)
    matrices = rest[:extra] + [0] * (2 - extra)
    bases = (*rows, *matrices, *placement.thread[5:])
    span = 0
    for x in bases:
        span |= x
    thread = ctx.linear(bases)
    count, per = 1 << extra, 1 << inner
    step = count * per
    opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    coords = layout.reg_coords()
    out: list[Lane] = []
    for first in range(0, layout.num_regs, step):
        part = placement.linear(coords[first])
        mixed = part & span
        offset = b.op("xor", U32, thread, b.const(U32, mixed)) if mixed else thread
        address = b.plus(b.add(base, offset), part - mixed + placement.digits(coords[first]))
        regs = [b.reg("b32") for _ in range(count)]
        b.emit(opcode, [Vec([*regs]), b.address("shared", address)], 1)
        for reg in regs:
            if per == 1:
                out.append(Lane(dtype, reg) if dtype.kind != "float" else b.bitcast(Lane(U32, reg), dtype))
            else:
                out += [Lane(dtype, reg, 0, i) for i in range(per)]
    return out
