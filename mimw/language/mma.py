"""Matrix products."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.ops.mma import DotOp
from mimw.ir.types import BF16, F16, F32, F64, I8, I32, U8, DType, TensorType, shape_of
from mimw.language import semantic
from mimw.language.core import as_tile, const_bool, const_dtype, const_int, const_str, method, tensor, unwrap
from mimw.language.semantic import fail


@method
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: DType = F32,
) -> tensor:
    """`input` [M, K] @ `other` [K, N] (+ `acc` [M, N]): [M, N] of `out_dtype`, or of `acc`'s type.

    Operands: one of f16, bf16, f32, f64; fp8 in any mix; int8 or uint8, which give int32. `out_dtype` is float32, or
    float16 for f16 operands; f64 operands give f64. `input_precision` is for f32: "tf32" (default) or "ieee";
    ``allow_tf32=False`` means "ieee". `max_num_imprecise_acc` bounds how many fp8 products are summed before an exact
    addition.
    """
    b = current_builder("dot")
    x, y = as_tile(input, "dot"), as_tile(other, "dot")
    s, t = shape_of(x.type), shape_of(y.type)
    if len(s) != 2 or len(t) != 2:
        fail(
            "not-yet" if len(s) == len(t) == 3 else "rank",
            f"dot takes two-dimensional tiles, not {x.type} and {y.type}",
        )
    if s[1] != t[0]:
        fail("shape-mismatch", f"dot: K is {s[1]} in {x.type} and {t[0]} in {y.type}")
    result = _result_dtype(
        semantic.dtype_of(x, "dot"), semantic.dtype_of(y, "dot"), const_dtype(out_dtype, "dot: out_dtype"), acc
    )
    precision = _precision(input_precision, allow_tf32)
    shape = (s[0], t[1])
    if acc is None:
        c = b.constant(0, TensorType(shape, result))
    else:
        c = as_tile(acc, "dot: acc")
        if shape_of(c.type) != shape:
            fail("shape-mismatch", f"dot: the accumulator {c.type} is not {list(shape)}")
    imprecise = (
        0 if unwrap(max_num_imprecise_acc) is None else const_int(max_num_imprecise_acc, "dot: max_num_imprecise_acc")
    )
    if imprecise < 0:
        fail("bad-argument", "dot: max_num_imprecise_acc is negative")
    return tensor(b.insert(DotOp(x, y, c, precision, imprecise, loc=b.loc)).result)


def _result_dtype(a: DType, b: DType, out: DType, acc: Any) -> DType:
    """The accumulator's type; an error for operand pairs that no tensor core multiplies."""
    if a.is_fp8() and b.is_fp8():
        legal: tuple[DType, ...] = (F32, F16)
    elif a is not b:
        fail("type-mismatch", f"dot of {a} and {b}", "convert one operand with .to(...)")
    elif a is F16:
        legal = (F32, F16)
    elif a in (BF16, F32):
        legal = (F32,)
    elif a is F64:
        legal = (F64,)
    elif a in (I8, U8):
        legal = (I32,)
    else:
        fail("type-mismatch", f"dot does not take {a}", "operands are f16, bf16, f32, f64, fp8, int8, uint8")
    if acc is not None:
        own = semantic.dtype_of(as_tile(acc, "dot: acc"), "dot: acc")
        if own not in legal:
            fail("type-mismatch", f"dot of {a} operands accumulates in {' or '.join(map(str, legal))}, not in {own}")
        return own
    return out if out in legal else legal[0] if out is F32 else _no_out(a, out)


def _no_out(a: DType, out: DType) -> DType:
    fail("type-mismatch", f"dot of {a} operands does not give {out}", "cast the result with .to(...)")


def _precision(input_precision: Any, allow_tf32: Any) -> str:
    p, allow = unwrap(input_precision), unwrap(allow_tf32)
    if p is not None and allow is not None:
        fail("bad-argument", "dot: give input_precision or allow_tf32, not both")
    if p is None:
        return "ieee" if allow is not None and not const_bool(allow, "dot: allow_tf32") else "tf32"
    name = const_str(p, "dot: input_precision", ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"))
    if name not in ("tf32", "ieee"):
        fail("not-yet", f'dot: input_precision="{name}" is not there yet', 'use "tf32" or "ieee"')
    return name
