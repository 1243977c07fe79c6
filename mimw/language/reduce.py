"""Reductions and scans along an axis: with a combine function of the user, or the usual ones.

A combine function takes (a..., b...) scalars, one pair for each tile, and returns as many. Reductions need it
associative and commutative, scans associative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.diagnostics import CompilationError
from mimw.ir.builder import Builder, current_builder
from mimw.ir.core import Block, Region, Value
from mimw.ir.ops.control import YieldOp
from mimw.ir.ops.tensor import ArangeOp, ReduceOp, ReshapeOp, ScanOp
from mimw.ir.types import BF16, F32, I1, I32, U32, DType, Element, element_of, shape_of
from mimw.language import semantic
from mimw.language.core import as_tile, const_axis, const_bool, const_dtype, explain, is_tuple, method, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.tensor import expand_dims

Combine = Callable[[Builder, list[Value]], list[Value]]


def _region(b: Builder, elements: list[Element], combine: Combine, what: str) -> Region:
    """The combine function's region on scalars of these types."""
    block = Block([*elements, *elements])
    region = Region(block)
    with b.at(block):
        out = combine(b, list(block.args))
        if [v.type for v in out] != elements:
            have = ", ".join(str(v.type) for v in out)
            fail(
                "combine-type",
                f"{what}: the combine function gives {have or 'nothing'} for {', '.join(map(str, elements))}",
            )
        b.insert(YieldOp(out, loc=b.loc))
    for op in block.ops:
        for inner in op.walk():
            if any(e.kind == "write" and e.space != "debug" for e in inner.spec.effects):
                text = f"{what}: the combine function writes memory, and how often it runs is not said"
                raise CompilationError(
                    "combine-effect", text, inner.loc, hint="write what it gives, after the reduction"
                )
    return region


def _user_combine(fn: Any, what: str) -> Combine:
    def combine(b: Builder, args: list[Value]) -> list[Value]:
        if b.inline is None:
            fail("outside-kernel", f"{what} with a combine function only works inside a kernel")
        out = b.inline(fn, args, b.loc)
        elements = [v.type for v in args[: len(args) // 2]]
        if len(out) != len(elements):
            fail("combine-type", f"{what}: the combine function gives {len(out)} values for {len(elements)}")
        return [_as_type(x, t, b, what) for x, t in zip(out, elements, strict=True)]

    return combine


def _as_type(x: Any, t: Any, b: Builder, what: str) -> Value:
    if isinstance(x, Value):
        return x
    if isinstance(x, (bool, int, float)) and isinstance(t, DType):
        return b.constant(x, t)
    return fail("combine-type", f"{what}: the combine function gives {explain(x)} for a {t}")


def _elementwise(name: str) -> Combine:
    return lambda b, args: [b.elementwise(name, args[0], args[1])]


def _tiles(input: Any, what: str) -> tuple[list[Value], bool]:
    """The tiles behind one tile or a tuple of tiles of one shape."""
    many = is_tuple(input)
    items = input if is_tuple(input) else (input,)
    values = [as_tile(x, what) for x in items]
    if not values:
        fail("bad-argument", f"{what} of an empty tuple")
    shape = shape_of(values[0].type)
    for v in values:
        if shape_of(v.type) != shape:
            fail("shape-mismatch", f"{what}: shapes {list(shape)} and {list(shape_of(v.type))} differ")
    return values, many


def _reduce(
    values: list[Value], axis: Any, combine: Combine, keep_dims: bool, what: str, ordered: bool = False
) -> list[tensor]:
    b = current_builder(what)
    shape = shape_of(values[0].type)
    if unwrap(axis) is None:
        if len(shape) > 1:
            n = 1
            for s in shape:
                n *= s
            values = [b.insert(ReshapeOp(v, (n,), not ordered, loc=b.loc)).result for v in values]
        at = 0
    else:
        at = const_axis(axis, len(shape), what)
    region = _region(b, [element_of(v.type) for v in values], combine, what)
    op = b.insert(ReduceOp(values, at, region, loc=b.loc))
    outs = [tensor(v) for v in op.outs]
    if keep_dims:
        if unwrap(axis) is None:
            return [tensor(semantic.broadcast_to(x.value, (1,) * len(shape))) for x in outs]
        return [expand_dims(x, at) for x in outs]
    return outs


@method
def reduce(input: Any, axis: int | None, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Combine all elements along `axis` (all of them when None) by `combine_fn`; a tuple of tiles gives a tuple.

    The result has the axis removed (kept with size 1 when `keep_dims`); no axis left: a scalar.
    """
    values, many = _tiles(input, "reduce")
    out = _reduce(
        values, axis, _user_combine(combine_fn, "reduce"), const_bool(keep_dims, "reduce: keep_dims"), "reduce"
    )
    return tuple(out) if many else out[0]


@method
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    """Inclusive prefix combination along `axis` (from the end when `reverse`); a tuple of tiles gives a tuple."""
    values, many = _tiles(input, "associative_scan")
    out = _scan(values, axis, _user_combine(combine_fn, "associative_scan"), reverse, "associative_scan")
    return tuple(out) if many else out[0]


def _scan(values: list[Value], axis: Any, combine: Combine, reverse: Any, what: str) -> list[tensor]:
    b = current_builder(what)
    at = const_axis(axis, len(shape_of(values[0].type)), what)
    region = _region(b, [element_of(v.type) for v in values], combine, what)
    op = b.insert(ScanOp(values, at, region, const_bool(reverse, f"{what}: reverse"), loc=b.loc))
    return [tensor(v) for v in op.outs]


def _number_tile(input: Any, what: str) -> tuple[Value, DType]:
    v = as_tile(input, what)
    d = semantic.dtype_of(v, what)
    if d.is_fp8():
        fail("fp8-arithmetic", f"{what} is not defined on {d}", "convert first: x.to(ml.float32)")
    return v, d


def _sum_dtype(d: DType, dtype: Any, what: str) -> DType:
    """Small integers (and bools) sum as int32 or uint32."""
    if unwrap(dtype) is not None:
        return const_dtype(dtype, f"{what}: dtype")
    if d is I1:
        return I32
    if not d.is_floating() and d.bits < 32:
        return I32 if d.kind == "int" else U32
    return d


@method
def sum(input: tensor, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None) -> tensor:
    """The sum along `axis` (of all elements when None).

    Integers below 32 bits and bools sum as 32-bit integers; else in their own type, or in `dtype`.
    """
    v, d = _number_tile(input, "sum")
    v = semantic.cast(v, _sum_dtype(d, dtype, "sum"))
    return _reduce([v], axis, _elementwise("arith.add"), const_bool(keep_dims, "sum: keep_dims"), "sum")[0]


@method
def xor_sum(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """The exclusive or of all elements along `axis` (integers)."""
    v, d = _number_tile(input, "xor_sum")
    if d.is_floating():
        fail("type-mismatch", f"xor_sum takes integers, not {v.type}")
    return _reduce([v], axis, _elementwise("arith.xor"), const_bool(keep_dims, "xor_sum: keep_dims"), "xor_sum")[0]


@method
def reduce_or(input: tensor, axis: int | None = None, keep_dims: bool = False) -> tensor:
    """The bitwise or of all elements along `axis` (integers; of bools the truth as int1)."""
    v, d = _number_tile(input, "reduce_or")
    if d.is_floating():
        fail("type-mismatch", f"reduce_or takes integers, not {v.type}")
    return _reduce([v], axis, _elementwise("arith.or"), const_bool(keep_dims, "reduce_or: keep_dims"), "reduce_or")[0]


def _widened(v: Value, d: DType) -> Value:
    """Extrema of types below 32 bits are computed and given in 32 bits, as in Triton."""
    if d.is_floating():
        return semantic.cast(v, F32) if d.bits < 32 else v
    if d is I1 or d.bits < 32:
        return semantic.cast(v, U32 if d.kind == "uint" else I32)
    return v


def _extremum(
    input: Any, axis: Any, return_indices: Any, tie_break_left: Any, keep_dims: Any, what: str, nan: str
) -> Any:
    v, d = _number_tile(input, what)
    keep = const_bool(keep_dims, f"{what}: keep_dims")
    if const_bool(return_indices, f"{what}: return_indices"):
        v = semantic.cast(v, F32) if d is BF16 else v
        return tuple(_with_indices(v, axis, const_bool(tie_break_left, what), keep, what))
    return _reduce([_widened(v, d)], axis, _elementwise(f"arith.{what}num"), keep, what)[0]


def _with_indices(v: Value, axis: Any, tie_break_left: bool, keep: bool, what: str) -> list[tensor]:
    """Extreme values and their indices along `axis` (flat indices when None)."""
    b = current_builder(what)
    shape = shape_of(v.type)
    if unwrap(axis) is None:
        n = 1
        for s in shape:
            n *= s
        flat = b.insert(ReshapeOp(v, (n,), loc=b.loc)).result if len(shape) > 1 else v
        index = b.insert(ArangeOp(0, n, loc=b.loc)).result
        out = _reduce([flat, index], 0, _pick(what, tie_break_left), False, what, True)
        return [tensor(semantic.broadcast_to(x.value, (1,) * len(shape))) for x in out] if keep else out
    at = const_axis(axis, len(shape), what)
    index = tensor(b.insert(ArangeOp(0, shape[at], loc=b.loc)).result)
    for i in range(len(shape)):
        if i != at:
            index = expand_dims(index, i)
    return _reduce([v, semantic.broadcast_to(index.value, shape)], at, _pick(what, tie_break_left), keep, what)


def _pick(what: str, tie_break_left: bool) -> Combine:
    """Of two (value, index) pairs the one with the extreme value; of equal ones the smaller index (or any)."""

    def combine(b: Builder, args: list[Value]) -> list[Value]:
        x, i, y, j = args
        first = b.elementwise("arith.gt" if what == "max" else "arith.lt", x, y)
        if tie_break_left:
            tie = b.elementwise("arith.and", b.elementwise("arith.eq", x, y), b.elementwise("arith.lt", i, j))
            first = b.elementwise("arith.or", first, tie)
        return [b.elementwise("arith.select", first, x, y), b.elementwise("arith.select", first, i, j)]

    return combine


@method
def max(
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The largest element along `axis`; with `return_indices` a pair (values, int32 indices), ties going to the
    smaller index.

    Types below 32 bits are widened to f32, int32 or uint32, as in Triton. A NaN loses against a number.
    """
    return _extremum(input, axis, return_indices, return_indices_tie_break_left, keep_dims, "max", "num")


@method
def min(
    input: tensor,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The smallest element along `axis`; as `max` otherwise."""
    return _extremum(input, axis, return_indices, return_indices_tie_break_left, keep_dims, "min", "num")


@method
def argmax(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """The int32 index of the largest element along `axis`."""
    return max(input, axis, True, tie_break_left, keep_dims)[1]


@method
def argmin(input: tensor, axis: int | None, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    """The int32 index of the smallest element along `axis`."""
    return min(input, axis, True, tie_break_left, keep_dims)[1]


@method
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: DType | None = None) -> tensor:
    """Running sums along `axis` (from the end when `reverse`); types as in `sum`."""
    v, d = _number_tile(input, "cumsum")
    return _scan(
        [semantic.cast(v, _sum_dtype(d, dtype, "cumsum"))], axis, _elementwise("arith.add"), reverse, "cumsum"
    )[0]


@method
def cumprod(input: tensor, axis: int = 0, reverse: bool = False) -> tensor:
    """Running products along `axis` (from the end when `reverse`); bf16 as f32, bools as int32."""
    v, d = _number_tile(input, "cumprod")
    v = semantic.cast(v, F32 if d is BF16 else I32 if d is I1 else d)
    return _scan([v], axis, _elementwise("arith.mul"), reverse, "cumprod")[0]


@method
def softmax(x: tensor, dim: int | None = None, keep_dims: bool = False, ieee_rounding: bool = False) -> tensor:
    """exp(x - max) / sum along `dim` (the first dimension when None); computed and given in f32 for 16-bit floats.

    `keep_dims` is accepted for Triton's sake: the result always has the shape of `x`.
    """
    from_method = tensor(as_tile(x, "softmax"))
    shape = from_method.shape
    at = const_axis(0 if unwrap(dim) is None else dim, len(shape), "softmax")
    z = from_method - max(from_method, at, keep_dims=True)
    num: Any = z.exp()
    den = sum(num, at, keep_dims=True)
    if const_bool(ieee_rounding, "softmax: ieee_rounding"):
        b = current_builder("softmax")
        return tensor(b.elementwise("arith.div_rn", *semantic.unify(num.value, den.value, F32, "softmax")))
    return num / den
