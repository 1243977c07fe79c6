"""Matrix products."""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result, results, variadic
from mimw.ir.ops.arith import tensor_type
from mimw.ir.types import I1, InflightType, MemDescType, TensorType, Type


@op(
    "mma.dot", bound="K * 2^-22 * sum(|a||b|) plus one ulp of the result; fp8 without precise sums: 2^-10 * sum(|a||b|)"
)
class DotOp(Op):
    """a @ b + acc for a: [M, K], b: [K, N], acc and result: [M, N] (any M, N, K of at least 1). Operands are tiles, or memdescs
    once `stage_dot` has put them into shared memory.

    Operands: f16, bf16, f32, f64, f8 in any mix, i8/u8; acc f32 (f16 allowed for f16; f64 for f64; i32 for integers).
    `precision` is for f32 operands: "tf32" rounds them to tf32 (10 mantissa bits), "ieee" multiplies in f32 by fma.
    `max_imprecise` bounds how many fp8 products the tensor core may sum before an exact addition (0: no bound).
    The bound of fp8 sums is twice what was measured: a little over 4 * 2^-13 on an H200 (wgmma, e4m3, K from 128 to 16384, random normal operands).
    """

    a: Value = operand()
    b: Value = operand()
    acc: Value = operand()
    precision: str = attr_default(default="tf32", choices=("tf32", "ieee"))
    max_imprecise: int = attr_default(default=0)
    result: Value = result()

    def infer(self) -> list[Type]:
        c = tensor_type(self.acc)
        check_shapes(self.a.type, self.b.type, c)
        return [c]


def check_shapes(a: Type, b: Type, c: TensorType) -> None:
    """Raise ValueError unless [M, K] @ [K, N] fits the accumulator [M, N]."""
    if not isinstance(a, (TensorType, MemDescType)) or not isinstance(b, (TensorType, MemDescType)):
        raise ValueError(f"dot takes tiles or memdescs, not {a} and {b}")
    if len(a.shape) != 2 or len(b.shape) != 2 or c.rank != 2:
        raise ValueError(f"dot takes two-dimensional tiles, not {a} and {b}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"dot: K is {a.shape[1]} in {a} and {b.shape[0]} in {b}")
    if c.shape != (a.shape[0], b.shape[1]):
        raise ValueError(f"dot: the accumulator {c} does not fit {a} @ {b}")


@op(
    "mma.async_dot",
    effects=[
        Effect("shared", "read", "a", proxy="async", agent="tensor_core", completion="wgmma"),
        Effect("shared", "read", "b", proxy="async", agent="tensor_core", completion="wgmma"),
    ],
    bound="as mma.dot",
)
class AsyncDotOp(Op):
    """Start a @ b + acc on the tensor core (wgmma): `b` a memdesc, `a` a memdesc or a tile, `acc` a tile or one in flight.

    Each op is its own commit group. The result is in flight until `async_dot_wait`; the operands' buffers must stay untouched until then.
    Where `use_acc` (i1) is false, `acc` counts as zero.
    """

    a: Value = operand()
    b: Value = operand()
    acc: Value = operand()
    max_imprecise: int = attr_default(default=0)
    use_acc: Value | None = optional(default=None)
    result: Value = result()

    def infer(self) -> list[Type]:
        t = self.acc.type
        if self.use_acc is not None and self.use_acc.type is not I1:
            raise ValueError(f"use_acc is i1, not {self.use_acc.type}")
        c = t.tensor if isinstance(t, InflightType) else tensor_type(self.acc)
        check_shapes(self.a.type, self.b.type, c)
        return [InflightType(c)]


@op("mma.async_dot_wait", effects=[Effect("shared", "read", completion="wgmma")])
class AsyncDotWaitOp(Op):
    """Wait until at most `pendings` started products are unfinished. The results are tiles with 0 pendings, or when `finished` says that
    at least `pendings` younger products were started after each source; else they are still in flight."""

    srcs: list[Value] = variadic()
    pendings: int = attr()
    finished: bool = attr_default(default=False)
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        types: list[Type] = []
        for v in self.srcs:
            if not isinstance(v.type, InflightType):
                raise ValueError(f"async_dot_wait takes tiles in flight, not {v.type}")
            types.append(v.type.tensor if self.pendings == 0 or self.finished else v.type)
        return types


@op("mma.as_inflight")
class AsInflightOp(Op):
    """A finished tile as one in flight, so that a loop can carry its accumulator in flight from the first trip on. Costs nothing."""

    src: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        return [InflightType(tensor_type(self.src))]
