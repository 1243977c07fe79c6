"""Lowerings of the elementwise table (arith and math): one row a name.

16-bit floats without an instruction of their own go through f32 and are rounded once. i1 tiles are lazy: a predicate is made where
it is used. Knows only `LaneBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane_builder import Lane, LaneBuilder, LazyTile, Tile
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared.casts import cast, cast_tile
from mimw.ir.types import F32, I1, DType, element_of

Rule = Callable[[LaneBuilder, DType, tuple[Lane, ...]], Lane]

# Rows that are one primitive: op name -> primitive. Of floats and integers alike.
PRIMITIVES: dict[str, str] = {
    "arith.add": "add", "arith.sub": "sub", "arith.mul": "mul", "arith.mulhi": "mulhi", "arith.rem": "rem",
    "arith.minnum": "min", "arith.maxnum": "max", "arith.minimum": "minnan", "arith.maximum": "maxnan", "arith.and": "and",
    "arith.or": "or", "arith.xor": "xor", "arith.shl": "shl", "arith.shr": "shr", "arith.neg": "neg", "arith.not": "not",
    "arith.abs": "abs", "arith.fma": "fma", "arith.div_rn": "div_rn", "math.sqrt_rn": "sqrt_rn", "math.floor": "floor",
    "math.ceil": "ceil", "math.rint": "rint", "math.trunc": "trunc",
}  # fmt: skip
COMPARISONS = {f"arith.{how}": how for how in ("eq", "ne", "lt", "le", "gt", "ge")}


def through_f32(b: LaneBuilder, dtype: DType, args: tuple[Lane, ...], rule: Rule) -> Lane:
    """Compute in f32 and round once."""
    wide = tuple(cast(b, a, F32) for a in args)
    return cast(b, rule(b, F32, wide), dtype)


def primitive(prim: str) -> Rule:
    """The rule that is one primitive, in f32 where the type lacks it."""

    def rule(b: LaneBuilder, dtype: DType, args: tuple[Lane, ...]) -> Lane:
        if dtype is I1 and prim in ("min", "max"):
            return b.op("and" if prim == "min" else "or", I1, *args)
        if dtype.kind == "uint" and prim == "abs":
            return args[0]
        if dtype is I1 or b.supports(prim, dtype):
            return b.invert(args[0]) if dtype is I1 and prim == "not" else b.op(prim, dtype, *args)
        return through_f32(b, dtype, args, rule)

    return rule


RULES: dict[str, Rule] = {name: primitive(prim) for name, prim in PRIMITIVES.items()}


def row(name: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of an elementwise op."""

    def enter(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return enter


def apply(ctx: Lowering, name: str, dtype: DType, tiles: list[Tile], count: int) -> list[Lane]:
    """The lanes of an elementwise op over tiles of `count` registers, two at a time where the target packs."""
    b = ctx.b
    prim = PRIMITIVES.get(name)
    rule = RULES[name]
    if prim is not None and count % 2 == 0 and b.packs(prim, dtype):
        out: list[Lane] = []
        for i in range(0, count, 2):
            out += b.packed_op(prim, dtype, [(t[i], t[i + 1]) for t in tiles])
        return out
    if dtype.kind == "float" and dtype.bits < 32 and not (prim is not None and b.supports(prim, dtype)):
        wide = [cast_tile(b, t, F32) for t in tiles]
        return cast_tile(b, [rule(b, F32, tuple(t[i] for t in wide)) for i in range(count)], dtype)
    if len(tiles) == 1:
        return [rule(b, dtype, (x,)) for x in tiles[0]]
    if len(tiles) == 2:
        return [rule(b, dtype, pair) for pair in zip(tiles[0], tiles[1], strict=True)]
    return [rule(b, dtype, args) for args in zip(*tiles, strict=True)]


def lower_elementwise(ctx: Lowering, op: Any) -> None:
    """An op of the table."""
    tiles = [ctx.tile(v) for v in op.operands]
    count = len(tiles[0])
    dtype = element_of(op.operands[0].type)
    name = op.name
    if dtype is I1 and count > 1:
        rule = RULES[name]
        b = ctx.b
        ctx.set(op.result, LazyTile(count, lambda i: rule(b, I1, tuple(t[i] for t in tiles))))
        return
    ctx.set(op.result, apply(ctx, name, dtype, tiles, count))  # type: ignore[arg-type]


def compare(b: LaneBuilder, how: str, x: Lane, y: Lane) -> Lane:
    """A comparison, in f32 where the type has none."""
    dtype = x.dtype
    if isinstance(dtype, DType) and dtype.kind == "float" and not b.supports("compare", dtype):
        x, y = cast(b, x, F32), cast(b, y, F32)
    return b.compare(how, x, y)


def lower_compare(ctx: Lowering, op: Any) -> None:
    """A comparison; lazily for tiles."""
    x, y = (ctx.tile(v) for v in op.operands)
    how = COMPARISONS[op.name]
    b = ctx.b
    if len(x) == 1:
        ctx.set(op.result, [compare(b, how, x[0], y[0])])
    else:
        ctx.set(op.result, LazyTile(len(x), lambda i: compare(b, how, x[i], y[i])))


@lowers("arith.select")
def lower_select(ctx: Lowering, op: Any) -> None:
    """cond ? a : b."""
    c, x, y = (ctx.tile(v) for v in op.operands)
    b = ctx.b
    if element_of(op.operands[1].type) is I1 and len(c) > 1:
        ctx.set(op.result, LazyTile(len(c), lambda i: b.select(c[i], x[i], y[i])))
    else:
        ctx.set(op.result, [b.select(p, s, t) for p, s, t in zip(c, x, y, strict=True)])


# ------------------------------------------------------------------------------------------------------- rows of more than one


@row("arith.div")
def div(b: LaneBuilder, dtype: DType, args: tuple[Lane, ...]) -> Lane:
    """Truncating for integers; the fast f32 quotient; exact for f64."""
    if dtype.kind != "float":
        return b.op("div", dtype, *args)
    return b.op("div_full" if dtype is F32 else "div_rn", dtype, *args)


LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


def _needs_f32(name: str, prim: str, scale: float = 0.0, after: bool = False) -> None:
    def rule(b: LaneBuilder, dtype: DType, args: tuple[Lane, ...]) -> Lane:
        from_f64 = dtype is not F32
        if from_f64:
            return f64_rule(name)(b, dtype, args)
        x = args[0]
        if scale and not after:
            x = b.op("mul", F32, x, b.const(F32, scale))
        x = b.op(prim, F32, x)
        return b.op("mul", F32, x, b.const(F32, scale)) if after else x

    RULES[name] = rule


def f64_rule(name: str) -> Rule:
    """The double-precision sequence of a function."""
    from_table = F64_RULES.get(name)
    if from_table is None:
        raise NotImplementedError(name)
    return from_table


F64_RULES: dict[str, Rule] = {
    "math.sqrt": lambda b, dtype, args: b.op("sqrt_rn", dtype, *args),
    "math.rsqrt": lambda b, dtype, args: b.op("div_rn", dtype, b.const(dtype, 1.0), b.op("sqrt_rn", dtype, *args)),
}

_needs_f32("math.exp2", "ex2_approx")
_needs_f32("math.exp", "ex2_approx", LOG2E)
_needs_f32("math.log2", "lg2_approx")
_needs_f32("math.log", "lg2_approx", LN2, after=True)
_needs_f32("math.sqrt", "sqrt_approx")
_needs_f32("math.rsqrt", "rsqrt_approx")

for _name in (*RULES,):
    lowers(_name)(lower_elementwise)
for _name in COMPARISONS:
    lowers(_name)(lower_compare)
