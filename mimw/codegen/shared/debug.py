"""Lowerings of printing and of run-time assertions, by the device's printf.

Lines read as those of the tile simulator. Each element is printed by one thread: copies and holes of layouts are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mimw.codegen.lane import Lane, Tile, bits_of
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, layout_of, lowers, refuse
from mimw.codegen.shared.casts import cast
from mimw.ir import layout as algebra
from mimw.ir.core import Value
from mimw.ir.types import F64, I1, I32, U8, U16, U32, U64, DType, PointerType, TensorType

_UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}
_PID = "pid (%d, %d, %d)"


@lowers("debug.device_print")
def lower_device_print(ctx: Lowering, op: Any) -> None:
    """One call a register and operand."""
    _refuse_in_combine(ctx, op)
    b = ctx.b
    pid = [b.program_id(axis) for axis in range(3)]
    prefix = _literal(op.prefix)
    if not op.values:
        b.print_text(f"{_PID} {prefix}\n", pid, _first_thread(ctx))
    for n, value in enumerate(op.values):
        which = f" (operand {n})" if len(op.values) > 1 else ""
        tile = ctx.tile(value)
        for r, index, guard in _elements(ctx, value):
            spec, shown = _show(b, tile[r], op.hex)
            b.print_text(f"{_PID} {_index(index)} {prefix}{which} {spec}\n", [*pid, *index, shown], guard)


@lowers("debug.device_assert")
def lower_device_assert(ctx: Lowering, op: Any) -> None:
    """Who failed traps; a barrier keeps the others from what the assertion protects."""
    tell_failures(ctx, op)
    ctx.b.barrier()


def tell_failures(ctx: Lowering, op: Any) -> Lane:
    """Each thread tells of its first false element, then traps or counts itself (`LaneBuilder.trap`). i1: the thread has failed."""
    _refuse_in_combine(ctx, op)
    b = ctx.b
    conditions = ctx.tile(op.cond)
    mask = ctx.tile(op.mask) if op.mask is not None else None
    failed: Lane | None = None
    where: list[Lane] = []
    for r, index, guard in _elements(ctx, op.cond):
        wrong = b.invert(conditions[r])
        if mask is not None:
            wrong = b.op("and", I1, wrong, mask[r])
        if guard is not None:
            wrong = b.op("and", I1, wrong, guard)
        if failed is None:
            failed, where = wrong, index
        else:
            where = [b.select(failed, old, new) for old, new in zip(where, index, strict=True)]
            failed = b.op("or", I1, failed, wrong)
    assert failed is not None
    pid = [b.program_id(axis) for axis in range(3)]
    place = f"{op.loc.file}:{op.loc.line}: " if op.loc.line else ""
    message = f": {op.message}" if op.message else ""
    text = _literal(f"{place}assertion failed{message}, ")
    b.print_text(f"{text}{_PID}, {_index(where)}\n", [*pid, *where], failed)
    b.trap(failed, f"device_assert{message}")
    return failed


def _refuse_in_combine(ctx: Lowering, op: Any) -> None:
    """How often a combine function runs, and in which threads, is the lowering's choice: no element could be named."""
    if ctx.in_combine:
        raise refuse(
            op,
            ctx.target,
            "it stands in the combine function of a reduction or scan",
            "look at the operand and result instead",
        )


def _elements(ctx: Lowering, value: Value) -> Iterator[tuple[int, list[Lane], Lane | None]]:
    """(register, index, whether this thread speaks for the element) of a tile or scalar."""
    if not isinstance(value.type, TensorType):
        yield 0, [], _first_thread(ctx)
        return
    layout = layout_of(value)
    inside = ctx.holes(layout, value.type.shape)
    registers, lanes, warps, _ = algebra.owner_mask(layout)
    owner = ctx.is_thread(lanes, warps)
    coordinates = [ctx.coordinates(layout, d) for d in range(layout.rank)]
    low = (1 << len(layout.reg)) - 1
    for r in range(layout.num_regs):
        if not r & low & registers:
            yield r, [c[r] for c in coordinates], ctx.b.both(owner, inside(r))


def _first_thread(ctx: Lowering) -> Lane | None:
    return ctx.first_thread()


def _literal(text: str) -> str:
    """Text that a C format prints as it is; a NUL, which would end it, is left out."""
    return text.replace("%", "%%").replace("\0", "")


def _index(index: Tile) -> str:
    return f"idx ({', '.join('%d' for _ in index)})"


def _show(b: LaneBuilder, lane: Lane, as_hex: bool) -> tuple[str, Lane]:
    """The conversion that shows a lane, and the lane as printf takes it: no narrower than 32 bits, floats as doubles."""
    dtype = lane.dtype
    if dtype is I1:
        return "0x%02x" if as_hex else "%d", b.select(lane, b.const(I32, 1), b.const(I32, 0))
    bits = bits_of(dtype)
    if as_hex or isinstance(dtype, PointerType):
        raw = b.bitcast(lane, _UNSIGNED[bits])
        return f"0x%0{bits // 4}{'ll' if bits == 64 else ''}x", raw if bits == 64 else cast(b, raw, U32)
    assert isinstance(dtype, DType)
    if dtype.kind == "float":
        wide = cast(b, lane, F64)
        is_nan = b.compare("nan", wide, wide)  # printf shows a NaN's sign (measured on an H200), Python does not
        return "%f", b.select(is_nan, b.const_bits(F64, 0x7FF8 << 48), wide)
    signed = dtype.kind == "int"
    if bits == 64:
        return "%lld" if signed else "%llu", lane
    return ("%d", cast(b, lane, I32)) if signed else ("%u", cast(b, lane, U32))
