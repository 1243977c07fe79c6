"""Matrix products: `dot` at once, `async_dot` under way until it is waited for."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Block, Value
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp, DotOp
from mimw.ir.ops.tensor import CatOp, ExpandDimsOp, ExtractSliceOp, ReshapeOp
from mimw.ir.types import BF16, F16, F32, F64, I8, I32, U8, U32, DType, MemDescType, TensorType, shape_of
from mimw.language import semantic
from mimw.language.arith import where
from mimw.language.core import (
    as_tile,
    const_bool,
    const_dtype,
    const_int,
    const_shape,
    const_str,
    explain,
    is_tuple,
    method,
    tensor,
    unwrap,
)
from mimw.language.errors import fail
from mimw.language.handles import buffered_tensor, inflight_tensor, wrap


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
    """`input` [M, K] @ `other` [K, N] (+ `acc` [M, N]): [M, N] of `out_dtype`, or of `acc`'s type. With three dimensions a product for each index
    of the first, one after the other.

    Operands: one of f16, bf16, f32, f64; fp8 in any mix; int8 or uint8, which give int32. `out_dtype` is float32, or
    float16 for f16 operands; f64 operands give f64. `input_precision` is for f32: "tf32" (default), "tf32x3" (three products: nearly f32) or "ieee";
    ``allow_tf32=False`` means "ieee". `max_num_imprecise_acc` bounds how many fp8 products are summed before an exact
    addition.
    """
    b = current_builder("dot")
    x, y = as_tile(input, "dot"), as_tile(other, "dot")
    s, t = shape_of(x.type), shape_of(y.type)
    if len(s) != len(t) or len(s) not in (2, 3):
        fail("rank", f"dot takes two tiles of two dimensions (or three, for a batch), not {x.type} and {y.type}")
    if s[-1] != t[-2]:
        fail("shape-mismatch", f"dot: K is {s[-1]} in {x.type} and {t[-2]} in {y.type}")
    if len(s) == 3 and s[0] != t[0]:
        fail("shape-mismatch", f"dot: a batch of {s[0]} in {x.type} and of {t[0]} in {y.type}")
    result = _result_dtype(
        semantic.dtype_of(x, "dot"), semantic.dtype_of(y, "dot"), const_dtype(out_dtype, "dot: out_dtype"), acc
    )
    precision = _precision(input_precision, allow_tf32)
    shape = (*s[:-1], t[-1])
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
    if precision == "tf32x3":
        if semantic.dtype_of(x, "dot") is F32:
            return _in_three(tensor(x), tensor(y), tensor(c))
        precision = "tf32"
    if len(s) == 3:
        return _batched(x, y, c, precision, imprecise)
    return tensor(b.insert(DotOp(x, y, c, precision, imprecise, loc=b.loc)).result)


def _in_three(x: tensor, y: tensor, c: tensor) -> tensor:
    """A product of f32 from three of tf32: operands are cut into what tf32 holds and the rest; the product of the rests is left out.

    Where an operand is infinite its rest is NaN: what has become NaN by that counts as 0, and the first parts decide.
    """

    def parts(v: tensor) -> tuple[tensor, tensor]:
        big = (v.to(U32, bitcast=True) & 0xFFFFE000).to(F32, bitcast=True)
        return big, v - big

    (xb, xs), (yb, ys) = parts(x), parts(y)
    small = dot(xb, ys, dot(xs, yb))
    return dot(xb, yb, c + where(small == small, small, 0.0))


def _batched(x: Value, y: Value, c: Value, precision: str, imprecise: int) -> tensor:
    """A product for each index of the first dimension, put together again."""
    b = current_builder("dot")

    def part(v: Value, i: int) -> Value:
        shape = shape_of(v.type)[1:]
        cut = b.insert(ExtractSliceOp(v, (i, 0, 0), (1, *shape), loc=b.loc)).result
        return b.insert(ReshapeOp(cut, shape, loc=b.loc)).result

    done: list[Value] = []
    for i in range(shape_of(x.type)[0]):
        product = b.insert(DotOp(part(x, i), part(y, i), part(c, i), precision, imprecise, loc=b.loc)).result
        done.append(b.insert(ExpandDimsOp(product, 0, loc=b.loc)).result)
    while len(done) > 1:  # neighbours first: halves of equal size need not move
        pairs = [b.insert(CatOp(p, q, loc=b.loc)).result for p, q in zip(done[::2], done[1::2], strict=False)]
        done = [*pairs, *done[len(pairs) * 2 :]]
    return tensor(done[0])


def _operand(x: Any, what: str, tile: bool) -> Value:
    """An operand of `async_dot`: a buffer, or a tile where `tile` allows it."""
    if isinstance(x, buffered_tensor):
        return x.value
    if not tile:
        fail(
            "not-a-buffer", f"{what} is a buffer in shared memory, not {explain(x)}", "ml.local_store the tile into one"
        )
    return as_tile(x, what)


def _operand_dtype(v: Value, what: str) -> DType:
    return v.type.dtype if isinstance(v.type, MemDescType) else semantic.dtype_of(v, what)


def _operand_shape(v: Value) -> tuple[int, ...]:
    return v.type.shape if isinstance(v.type, MemDescType) else shape_of(v.type)


def async_dot(
    A: Any,
    B: buffered_tensor,
    acc: Any = None,
    use_acc: Any = None,
    pred: Any = None,
    mBarriers: Any = (),
    two_ctas: bool = False,
    force_async: bool = False,
    input_precision: str | None = None,
    out_dtype: DType = F32,
    max_num_imprecise_acc: int | None = None,
) -> inflight_tensor:
    """Start `A` [M, K] @ `B` [K, N] (+ `acc` [M, N]) on the tensor core; the result is in flight until `async_dot_wait`.

    `A` is a buffer or a tile, `B` a buffer, both of one type: f16, bf16, f32 (as tf32), fp8, int8, uint8. The buffers
    stay untouched until the wait. On Hopper the task has 4, 8 or 16 warps, K is a multiple of 32
    bytes, and M and N are best multiples of 64 a warp group and of 8. Where `use_acc` is false, `acc` counts as
    zero. The result has `acc`'s dtype, or `out_dtype`: float32 (float16 for f16 operands; int32 for integers). `pred`,
    `mBarriers` and `two_ctas` belong to Blackwell; `max_num_imprecise_acc` is as for `dot`.
    """
    b = current_builder("async_dot")
    x, y = _operand(A, "async_dot: A", True), _operand(B, "async_dot: B", False)
    s, t = _operand_shape(x), _operand_shape(y)
    if len(s) != 2 or len(t) != 2:
        hint = "pick one buffer of the ring, as in buf[0]" if len(s) == 3 or len(t) == 3 else None
        fail("rank", f"async_dot takes two-dimensional operands, not {x.type} and {y.type}", hint)
    if s[1] != t[0]:
        hint = "ml.local_trans turns a buffer"
        fail("shape-mismatch", f"async_dot: K is {s[1]} in {x.type} and {t[0]} in {y.type}", hint)
    _no_blackwell(pred, mBarriers, two_ctas)
    const_bool(force_async, "async_dot: force_async")
    if _precision(input_precision, None) != "tf32":
        fail("not-yet", 'async_dot: input_precision="ieee": the tensor core multiplies f32 as tf32', "ml.dot has it")
    use = _use_acc(use_acc, acc is not None)
    c = _accumulator(x, y, acc, out_dtype, (s[0], t[1]), use is False)
    bound = unwrap(max_num_imprecise_acc)
    imprecise = 0 if bound is None else const_int(bound, "async_dot: max_num_imprecise_acc")
    op = AsyncDotOp(x, y, c, imprecise, use if isinstance(use, Value) else None, loc=b.loc)
    return inflight_tensor(b.insert(op).result)


def _no_blackwell(pred: Any, barriers: Any, two_ctas: Any) -> None:
    pred, barriers = unwrap(pred), unwrap(barriers)
    if pred is not None and pred is not True:
        text = "async_dot: pred= is not there yet: it belongs to Blackwell's product of one thread, all warps of the group issue Hopper's"
        fail("not-yet", text, "put the product under if, or use use_acc=")
    if barriers is not None and not (is_tuple(barriers) and not barriers):
        text = "async_dot: mBarriers= is not there yet: Hopper's products tell no barrier that they are done (Blackwell's do)"
        fail("not-yet", text, "ml.async_dot_wait, then ml.barrier_arrive")
    if const_bool(two_ctas, "async_dot: two_ctas"):
        fail("not-yet", "async_dot: two_ctas=True is not there yet", "it belongs to Blackwell's CTA pairs")


def _use_acc(use_acc: Any, given: bool) -> Value | bool:
    """Whether the accumulator counts: known, or an i1 value."""
    use_acc = unwrap(use_acc)
    if use_acc is None:
        return given
    if not isinstance(use_acc, tensor):
        return const_bool(use_acc, "async_dot: use_acc")
    if not given:
        fail(
            "bad-argument",
            "async_dot: use_acc= without acc=",
            "give the accumulator: ml.alloc_accumulator(shape, dtype)",
        )
    return semantic.truth(use_acc.value, "async_dot: use_acc")


def _accumulator(x: Value, y: Value, acc: Any, out_dtype: Any, shape: tuple[int, ...], unused: bool) -> Value:
    """The accumulator, checked against the operands; zeros where there is none or it does not count."""
    a, b = _operand_dtype(x, "async_dot"), _operand_dtype(y, "async_dot")
    if a is F64 or b is F64:
        fail("type-mismatch", "async_dot does not take f64", "ml.dot does")
    c: Value | None = None
    if isinstance(acc, inflight_tensor):
        c, own = acc.value, acc.inflight.tensor
    elif acc is not None:
        c = as_tile(acc, "async_dot: acc")
        own = TensorType(shape_of(c.type), semantic.dtype_of(c, "async_dot: acc"))
    else:
        own = TensorType(shape, _result_dtype(a, b, const_dtype(out_dtype, "async_dot: out_dtype"), None))
    legal = _legal_results(a, b)
    if own.element not in legal:
        words = " or ".join(map(str, legal))
        fail("type-mismatch", f"async_dot of {a} operands accumulates in {words}, not in {own.element}")
    if own.shape != shape:
        fail("shape-mismatch", f"async_dot: the accumulator is {list(own.shape)}, the product {list(shape)}")
    return current_builder().constant(0, own) if c is None or unused else c


def async_dot_wait(pendings: int, inp: Any) -> Any:
    """Wait until at most `pendings` of this task's products are unfinished; `inp` (one, or a tuple) as it is then.

    It is a tile when it is certain to be finished: with 0 pendings, or when at least `pendings` products were started
    after it. Else it is still in flight, for the next `async_dot`.
    """
    current_builder("async_dot_wait")
    n = const_int(pendings, "async_dot_wait: pendings")
    if not 0 <= n <= 7:
        fail("bad-argument", f"async_dot_wait: {n} pendings; 0 to 7 can be waited for")
    inp = unwrap(inp)
    if is_tuple(inp):
        return tuple(_wait(n, x) for x in inp)
    return _wait(n, inp)


def _wait(n: int, x: Any) -> tensor:
    b = current_builder("async_dot_wait")
    if not isinstance(x, inflight_tensor):
        what = "a finished tile" if isinstance(x, tensor) and isinstance(x.value.type, TensorType) else explain(x)
        fail("type-mismatch", f"async_dot_wait takes what async_dot gives, not {what}")
    done = n > 0 and _younger(x.value, b.block) >= n
    return wrap(b.insert(AsyncDotWaitOp([x.value], n, done, loc=b.loc)).outs[0])


def _younger(v: Value, block: Block) -> int:
    """How many products of this block were certainly started after `v`; all of them, when `v` comes from outside."""
    count = 0
    made = v.defining_op
    while isinstance(made, AsyncDotWaitOp):  # a wait that left it in flight
        made = made.operands[0].defining_op
    for op in reversed(block.ops):
        if op is made:
            break
        count += isinstance(op, AsyncDotOp)
    return count


def alloc_accumulator(shape: Any, dtype: DType = F32) -> tensor:
    """Zeros of `shape` to accumulate products in, where the target keeps accumulators: registers on Hopper.

    An addition to TLX.
    """
    b = current_builder("alloc_accumulator")
    d = const_dtype(dtype, "alloc_accumulator: dtype")
    return tensor(b.constant(0, TensorType(const_shape(shape, "alloc_accumulator"), d)))


def _legal_results(a: DType, b: DType) -> tuple[DType, ...]:
    """The accumulator types of an operand pair, the usual one first; an error for pairs that no tensor core multiplies."""
    if a.is_fp8() and b.is_fp8():
        return F32, F16
    if a is not b:
        fail("type-mismatch", f"dot of {a} and {b}", "convert one operand with .to(...)")
    if a is F16:
        return F32, F16
    if a in (BF16, F32):
        return (F32,)
    if a is F64:
        return (F64,)
    if a in (I8, U8):
        return (I32,)
    return fail("type-mismatch", f"dot does not take {a}", "operands are f16, bf16, f32, f64, fp8, int8, uint8")


def _result_dtype(a: DType, b: DType, out: DType, acc: Any) -> DType:
    """The accumulator's type; an error when it does not fit the operands."""
    legal = _legal_results(a, b)
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
    if name.startswith("bf16"):
        fail("not-yet", f'dot: input_precision="{name}" is not there yet', 'use "tf32", "tf32x3" or "ieee"')
    return name
