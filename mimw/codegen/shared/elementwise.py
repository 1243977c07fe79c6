"""Lowerings of the elementwise table (arith and math): one row a name.

16-bit floats without an instruction of their own go through f32 and are rounded once. i1 tiles are lazy: a predicate is made where
it is used. Knows only `LaneBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.codegen.lane import Lane, LazyTile, Tile
from mimw.codegen.lane_builder import LaneBuilder
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.shared import functions
from mimw.codegen.shared.casts import cast, cast_tile
from mimw.codegen.shared.remainder import remainder
from mimw.diagnostics import CompilationError
from mimw.ir.types import F32, F64, I1, I32, DType, element_of

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
        if dtype.bits == 64 and prim in ("minnan", "maxnan"):
            return _nan_wins(b, prim, dtype, *args)
        if dtype is I1 or b.supports(prim, dtype):
            return b.invert(args[0]) if dtype is I1 and prim == "not" else b.op(prim, dtype, *args)
        return through_f32(b, dtype, args, rule)

    return rule


def _nan_wins(b: LaneBuilder, prim: str, dtype: DType, x: Lane, y: Lane) -> Lane:
    """min or max where NaN wins, for a type whose instruction lets it lose."""
    found = b.op(prim[:3], dtype, x, y)
    is_nan = b.compare("nan", x, y)
    return b.select(is_nan, b.op("add", dtype, x, y), found)


RULES: dict[str, Rule] = {name: primitive(prim) for name, prim in PRIMITIVES.items()}


def row(name: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of an elementwise op."""

    def enter(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return enter


def _fma_of_narrow(b: LaneBuilder, args: tuple[Lane, ...]) -> Lane:
    """x * y + z of f32 that hold at most 12 bits each, for types that have no fma: rounded to odd, so that rounding it again is rounding once.

    The product is exact, and what the sum loses is a float again (Knuth's TwoSum). Where the product leaves f32's range that says nothing,
    and the sum is rounded to nearest.
    """
    x, y, z = args
    product = b.op("mul", F32, x, y)
    nearest = b.op("fma", F32, x, y, z)
    back = b.sub(nearest, product)
    lost = b.add(b.sub(product, b.sub(nearest, back)), b.sub(z, back))
    bits = b.bitcast(nearest, I32)
    outwards = b.op("or", I32, b.shift(b.op("xor", I32, bits, b.bitcast(lost, I32)), -31), b.const(I32, 1))
    even = b.compare("eq", b.bit_and(bits, 1), b.const(I32, 0))
    inexact = b.compare("gt", b.op("abs", F32, lost), b.const(F32, 0.0))
    return b.bitcast(b.select(b.op("and", I1, even, inexact), b.add(bits, outwards), bits), F32)


def apply(ctx: Lowering, name: str, dtype: DType, tiles: list[Tile], count: int) -> list[Lane]:
    """The lanes of an elementwise op over tiles of `count` registers, two at a time where the target packs."""
    b = ctx.b
    prim = PRIMITIVES.get(name)
    rule = RULES[name]
    if dtype is F64 and name.startswith("math.") and prim is None:
        found = F64_RULES.get(name)
        if found is None:
            text = f"{name} of f64 is not supported: there is no sequence for it"
            raise CompilationError("unsupported", text, b.loc, hint="convert to f32 and back: x.to(ml.float32)")
        rule = found
    if prim is not None and count % 2 == 0 and b.packs(prim, dtype):
        out: list[Lane] = []
        for i in range(0, count, 2):
            out += b.packed_op(prim, dtype, [(t[i], t[i + 1]) for t in tiles])
        return out
    if dtype.kind == "float" and dtype.bits < 32 and not (prim is not None and b.supports(prim, dtype)):
        wide = [cast_tile(b, t, F32) for t in tiles]
        rows = [tuple(t[i] for t in wide) for i in range(count)]
        results = [_fma_of_narrow(b, row) if prim == "fma" else rule(b, F32, row) for row in rows]
        return cast_tile(b, results, dtype)
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
    if name == "arith.rem" and isinstance(dtype, DType) and dtype.kind == "float":
        ctx.set(op.result, [remainder(ctx, x, y) for x, y in zip(tiles[0], tiles[1], strict=True)])
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


F64_RULES: dict[str, Rule] = {
    "math.sqrt": lambda b, dtype, args: b.op("sqrt_rn", dtype, *args),
    "math.rsqrt": lambda b, dtype, args: b.op("div_rn", dtype, b.const(dtype, 1.0), b.op("sqrt_rn", dtype, *args)),
    "math.exp2": lambda b, dtype, args: functions.exp2_f64(b, args[0], natural=False),
    "math.exp": lambda b, dtype, args: functions.exp2_f64(b, args[0], natural=True),
    "math.log2": lambda b, dtype, args: functions.log_f64(b, args[0], functions.LOG2E),
    "math.log": lambda b, dtype, args: functions.log_f64(b, args[0], 1.0),
    "math.sin": lambda b, dtype, args: functions.sincos_f64(b, args[0], 0),
    "math.cos": lambda b, dtype, args: functions.sincos_f64(b, args[0], 1),
    "math.tanh": lambda b, dtype, args: functions.tanh_f64(b, args[0]),
}
"""Double-precision sequences, beside the f32 rules of the same names."""

RULES["math.exp2"] = lambda b, dtype, args: b.op("ex2_approx", F32, *args)
RULES["math.exp"] = lambda b, dtype, args: b.op(
    "ex2_approx", F32, b.op("mul", F32, args[0], b.const(F32, functions.LOG2E))
)
RULES["math.log2"] = lambda b, dtype, args: b.op("lg2_approx", F32, *args)
RULES["math.log"] = lambda b, dtype, args: b.op("mul", F32, b.op("lg2_approx", F32, *args), b.const(F32, functions.LN2))
RULES["math.sqrt"] = lambda b, dtype, args: b.op("sqrt_approx", F32, *args)
RULES["math.rsqrt"] = lambda b, dtype, args: b.op("rsqrt_approx", F32, *args)
RULES["math.sin"] = lambda b, dtype, args: functions.sincos_f32(b, args[0], 0)
RULES["math.cos"] = lambda b, dtype, args: functions.sincos_f32(b, args[0], 1)
RULES["math.tanh"] = lambda b, dtype, args: functions.tanh_f32(b, args[0])
RULES["math.erf"] = lambda b, dtype, args: functions.erf_f32(b, args[0])

for _name in (*RULES,):
    lowers(_name)(lower_elementwise)
for _name in COMPARISONS:
    lowers(_name)(lower_compare)
