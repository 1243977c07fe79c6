"""Lowerings of ops that make or rename tiles: constants, arange, splat, and changes of shape. No data moves between threads here.

Where a shape op needs its registers in another order, layouts say so; what would have to cross threads was made a conversion before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import Lane, LazyTile, Tile
from mimw.codegen.lowering import Lowering, layout_of, lowers
from mimw.diagnostics import InternalError
from mimw.ir import layout_shapes
from mimw.ir.core import OpBase, Value
from mimw.ir.types import TensorType, element_of

Vector = tuple[int, ...]


def register_count(value: Value) -> int:
    """Lanes a thread holds of a value: registers of a tensor's layout, one for a scalar."""
    return layout_of(value).num_regs if isinstance(value.type, TensorType) else 1


@lowers("arith.constant")
def lower_constant(ctx: Lowering, op: Any) -> None:
    """A constant."""
    lane = ctx.b.const(element_of(op.type), op.value)
    ctx.set(op.result, [lane] * register_count(op.result))


@lowers("tensor.splat")
def lower_splat(ctx: Lowering, op: Any) -> None:
    """A scalar in every register."""
    ctx.set(op.result, [ctx.scalar(op.src)] * register_count(op.result))


@lowers("tensor.arange")
def lower_arange(ctx: Lowering, op: Any) -> None:
    """start + coordinate."""
    b = ctx.b
    start = op.start
    ctx.set(op.result, [b.plus(x, start) for x in ctx.coordinates(layout_of(op.result), 0)])


@lowers("arith.hint")
def lower_hint(ctx: Lowering, op: Any) -> None:
    """Nothing: hints are facts."""
    ctx.set(op.result, ctx.tile(op.src))


def renamed(tile: Tile, registers: tuple[int, ...]) -> Tile:
    """The tile whose register i is register `registers[i]` of another."""
    if isinstance(tile, LazyTile):
        return LazyTile(len(registers), lambda i: tile[registers[i]])
    return [tile[r] for r in registers]


def _by_coordinates(op: OpBase, src: Value, dst: Value, change: Callable[[Vector], Vector]) -> tuple[int, ...]:
    """For each register of `dst` the register of `src` that holds the element at the changed coordinates (general, slow)."""
    a, c = layout_of(src), layout_of(dst)
    place: dict[tuple[int, ...], int] = {}
    for r, x in enumerate(a.reg_coords()):
        place.setdefault(x, r)
    out: list[int] = []
    for x in c.reg_coords():
        r = place.get(change(x))
        if r is None:
            raise InternalError(f"{op.name} from {src.type} to {dst.type}: the layouts do not fit", op.loc)
        out.append(r)
    return tuple(out)


@lowers("tensor.expand_dims")
def lower_expand_dims(ctx: Lowering, op: Any) -> None:
    """The same registers, or those that the result's layout keeps."""
    axis: int = op.axis
    tile = ctx.tile(op.src)
    if layout_shapes.expand(layout_of(op.src), axis) is layout_of(op.result):
        ctx.set(op.result, tile)
        return
    registers = _by_coordinates(op, op.src, op.result, lambda x: (*x[:axis], *x[axis + 1 :]))
    ctx.set(op.result, renamed(tile, registers))


@lowers("tensor.broadcast")
def lower_broadcast(ctx: Lowering, op: Any) -> None:
    """Registers repeat."""
    registers = layout_shapes.broadcast_registers(layout_of(op.src), layout_of(op.result))
    if registers is None:
        raise InternalError(f"broadcast from {op.src.type} to {op.result.type}: the layouts do not fit", op.loc)
    ctx.set(op.result, renamed(ctx.tile(op.src), registers))


@lowers("tensor.trans")
def lower_trans(ctx: Lowering, op: Any) -> None:
    """The same registers, renumbered when odd digits change places."""
    source = layout_of(op.src)
    if layout_shapes.transpose(source, op.order) is not layout_of(op.result):
        inverse: list[int] = [op.order.index(d) for d in range(len(op.order))]
        registers = _by_coordinates(op, op.src, op.result, lambda x: tuple(x[i] for i in inverse))
    else:
        registers = layout_shapes.transpose_registers(source, op.order)
    ctx.set(op.result, renamed(ctx.tile(op.src), registers))


@lowers("tensor.reshape")
def lower_reshape(ctx: Lowering, op: Any) -> None:
    """The same registers: inference chose a layout for which the reshape is free."""
    source, result = layout_of(op.src), layout_of(op.result)
    if source.num_regs != result.num_regs:
        raise InternalError(f"reshape from {op.src.type} to {op.result.type}: the layouts do not fit", op.loc)
    ctx.set(op.result, ctx.tile(op.src))


@lowers("tensor.join")
def lower_join(ctx: Lowering, op: Any) -> None:
    """Registers of both, interleaved as the result's layout has them."""
    a, c = ctx.tile(op.a), ctx.tile(op.b)
    place: dict[tuple[int, ...], int] = {}
    for r, x in enumerate(layout_of(op.a).reg_coords()):
        place.setdefault(x, r)
    result = layout_of(op.result).reg_coords()
    if any(x[:-1] not in place for x in result):
        raise InternalError(f"join of {op.a.type} to {op.result.type}: the layouts do not fit", op.loc)
    pick = [(place[x[:-1]], x[-1]) for x in result]
    if isinstance(a, LazyTile) or isinstance(c, LazyTile):
        ctx.set(op.result, LazyTile(len(pick), lambda i: (c if pick[i][1] else a)[pick[i][0]]))
    else:
        ctx.set(op.result, [(c if half else a)[r] for r, half in pick])


@lowers("tensor.split")
def lower_split(ctx: Lowering, op: Any) -> None:
    """Every register belongs to one of the halves."""
    tile = ctx.tile(op.src)
    place: dict[tuple[int, ...], int] = {}
    for r, x in enumerate(layout_of(op.src).reg_coords()):
        place.setdefault(x, r)
    for half, value in enumerate((op.first, op.second)):
        wanted = [(*x, half) for x in layout_of(value).reg_coords()]
        if any(x not in place for x in wanted):
            raise InternalError(f"split of {op.src.type} to {value.type}: the layouts do not fit", op.loc)
        ctx.set(value, renamed(tile, tuple(place[x] for x in wanted)))


@lowers("tensor.extract_slice")
def lower_extract_slice(ctx: Lowering, op: Any) -> None:
    """The registers of the part."""
    offsets: Vector = op.offsets
    registers = _by_coordinates(op, op.src, op.result, lambda x: tuple(a + b for a, b in zip(x, offsets, strict=True)))
    ctx.set(op.result, renamed(ctx.tile(op.src), registers))


@lowers("tensor.cat")
def lower_cat(ctx: Lowering, op: Any) -> None:
    """Registers of both, where the boundary falls between registers of the same thread."""
    axis: int = op.axis
    a, c = ctx.tile(op.a), ctx.tile(op.b)
    size: int = op.a.type.shape[axis]
    places: list[dict[tuple[int, ...], int]] = []
    for value in (op.a, op.b):
        place: dict[tuple[int, ...], int] = {}
        for r, x in enumerate(layout_of(value).reg_coords()):
            place.setdefault(x, r)
        places.append(place)
    out: list[Lane] = []
    zero = ctx.b.const(element_of(op.result.type), 0)
    total = size + op.b.type.shape[axis]
    for x in layout_of(op.result).reg_coords():
        if x[axis] >= total:
            out.append(zero)
            continue
        half = x[axis] >= size
        y = (*x[:axis], x[axis] - (size if half else 0), *x[axis + 1 :])
        r = places[half].get(y)
        if r is None:
            raise InternalError(
                f"cat of {op.a.type} and {op.b.type} to {op.result.type}: the layouts do not fit", op.loc
            )
        out.append((c if half else a)[r])
    ctx.set(op.result, out)


@lowers("control.program_id")
def lower_program_id(ctx: Lowering, op: Any) -> None:
    """The CTA's index."""
    ctx.set(op.result, [ctx.b.program_id(op.axis)])


@lowers("control.num_programs")
def lower_num_programs(ctx: Lowering, op: Any) -> None:
    """The grid's size."""
    ctx.set(op.result, [ctx.b.num_programs(op.axis)])
