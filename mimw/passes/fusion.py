"""Contraction: a product whose only use is a sum becomes `arith.fma`, rounded once; a matrix product of that kind starts from the other summand.

Made here, in the tile IR, so that the simulators and every target round alike. `enable_fp_fusion` (an option of the kernel, on unless
said otherwise) turns it off. f16, f32 and f64; bf16 sums are rounded through f32 by every engine, so a fused one would differ by target.

``acc += ml.dot(a, b)`` is so the same as ``acc = ml.dot(a, b, acc)``, which the tensor core does for nothing and which lets a product
stay in flight. Not for fp8, whose products the tensor core sums with few bits: there the sum outside is worth more (Triton draws the same line).
"""

from __future__ import annotations

from mimw.ir.core import Module, OpBase, Value
from mimw.ir.opdef import elementwise
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.mma import DotOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.types import F16, F32, F64, DType, element_of
from mimw.target import Target

NAME = "fusion"
_TYPES = (F16, F32, F64)


def run(module: Module, target: Target) -> None:
    """Contract dot(a, b) + c and c + dot(a, b), then a*b + c, c + a*b, a*b - c and c - a*b."""
    function = module.function
    for op in list(function.walk()):
        if op.name == "arith.add":
            _accumulate(op, function.options.get("enable_fp_fusion", True))
    if not function.options.get("enable_fp_fusion", True):
        return
    for op in function.walk():
        if op.name in ("arith.add", "arith.sub") and element_of(op.results[0].type) in _TYPES:
            _contract(op)


def _accumulate(add: OpBase, floats: bool) -> None:
    """Give the other summand of a matrix product, which starts from zero and which nothing else uses, to it as accumulator."""
    for v, other in (tuple(add.operands), tuple(reversed(add.operands))):
        dot = v.defining_op
        if not isinstance(dot, DotOp) or v.users != [add] or dot.parent is not add.parent or not is_zero(dot.acc):
            continue
        kind = element_of(dot.a.type)
        if isinstance(kind, DType) and not kind.is_fp8() and (floats or not kind.is_floating()):
            block = add.parent
            assert block is not None
            fused = DotOp(dot.a, dot.b, other, dot.precision, dot.max_imprecise, loc=dot.loc)
            block.insert_before(add, fused)  # where `other` is known
            fused.result.name = add.results[0].name
            add.results[0].replace_by(fused.result)
            add.erase()
            dot.erase()
            return


def is_zero(v: Value) -> bool:
    """Whether a value is the constant 0 everywhere."""
    op = v.defining_op
    while isinstance(op, (SplatOp, CastOp)):
        op = op.src.defining_op
    return isinstance(op, ConstantOp) and op.value == 0


def _contract(op: OpBase) -> None:
    left, right = op.operands
    product = _product(left, op)
    other, minus_product = right, False
    if product is None:
        product, other, minus_product = _product(right, op), left, op.name == "arith.sub"
    if product is None or op.parent is None:
        return
    a, b = product.operands
    block = op.parent
    if minus_product:
        a = _negated(a, op)
    elif op.name == "arith.sub":
        other = _negated(other, op)
    fused = elementwise("arith.fma", a, b, other, loc=op.loc)
    block.insert_before(op, fused)
    fused.result.name = op.results[0].name
    op.results[0].replace_by(fused.result)
    op.erase()
    product.erase()


def _product(v: Value, user: OpBase) -> OpBase | None:
    """The multiplication behind a value that nothing else uses; in the same block, so that a loop does not redo it."""
    op = v.defining_op
    if op is None or op.name != "arith.mul" or v.users != [user] or op.parent is not user.parent:
        return None
    return op


def _negated(v: Value, before: OpBase) -> Value:
    op = elementwise("arith.neg", v, loc=before.loc)
    assert before.parent is not None
    before.parent.insert_before(before, op)
    return op.result
