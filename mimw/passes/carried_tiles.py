"""A carried tile that only moves by the same amount everywhere becomes a carried scalar.

    ptrs = base_tile                         step = 0
    for ...:                                 for ...:
        ... ptrs ...              becomes        ... base_tile + splat(step) ...
        ptrs += splat(n)                         step += n

Instead of one 64-bit pointer an element, the loop carries one number; the tile itself is then made of scalars and can be computed in
whatever layout it is needed in. Pointer steps are summed in 64 bits, as the additions they replace.
"""

from __future__ import annotations

from mimw.diagnostics import Loc
from mimw.ir.builder import Builder
from mimw.ir.core import Module, OpBase, Value
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.control import ForOp, WhileOp, YieldOp
from mimw.ir.ops.memory import PtrAddOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.types import I64, DType, PointerType, TensorType, element_of
from mimw.target import Target

NAME = "carried-tiles"


def run(module: Module, target: Target) -> None:
    """Rewrite all loops, inner ones first."""
    loops = [op for op in module.function.walk() if isinstance(op, (ForOp, WhileOp))]
    for loop in reversed(loops):
        last = loop.body.block.terminator
        if not isinstance(last, YieldOp) or _has_other_exits(loop.body.block.ops):
            continue
        for i in range(len(loop.results)):
            steps = _steps(loop, last, i)
            if steps:
                _rewrite(loop, last, i, steps)


def _has_other_exits(ops: list[OpBase]) -> bool:
    """Whether a break or continue of this loop stands at any `if` depth."""
    for op in ops:
        if op.spec.name in ("control.break", "control.continue"):
            return True
        if not isinstance(op, (ForOp, WhileOp)) and any(_has_other_exits(r.block.ops) for r in op.regions):
            return True
    return False


def _args(loop: OpBase, index: int) -> list[Value]:
    first = 1 if isinstance(loop, ForOp) else 0
    return [region.block.args[first + index] for region in loop.regions]


def _steps(loop: OpBase, last: OpBase, index: int) -> list[Value]:
    """The uniform tiles that one trip adds to the carried tile; empty when it does anything else."""
    t = loop.results[index].type
    if not isinstance(t, TensorType):
        return []
    e = t.element
    if isinstance(e, DType) and e.kind not in ("int", "uint"):
        return []
    arg = _args(loop, index)[-1]
    v = last.operands[index]
    steps: list[Value] = []
    while v is not arg:
        op = v.defining_op
        if op is None or op.spec.name not in ("arith.add", "memory.ptr_add"):
            return []
        base, step = op.operands
        if op.spec.name == "arith.add" and _is_uniform(base) and not _is_uniform(step):
            base, step = step, base
        if not _is_uniform(step):
            return []
        steps.append(step)
        v = base
    return steps


def _is_uniform(v: Value) -> bool:
    return isinstance(v.defining_op, (SplatOp, ConstantOp))


def _rewrite(loop: ForOp | WhileOp, last: OpBase, index: int, steps: list[Value]) -> None:
    """Add a carried scalar; the carried tile becomes a plain value and is dropped by `canonicalize` or here."""
    t = loop.results[index].type
    assert isinstance(t, TensorType) and loop.parent is not None
    scalar = I64 if isinstance(t.element, PointerType) else t.element
    assert isinstance(scalar, DType)
    position = len(loop.operands) - len(loop.results) + index
    init = loop.operands[position]
    before = Builder(loop.parent, loop.loc, loop)
    loop.set_operand(position, before.constant(0, scalar))
    for arg in _args(loop, index):
        block = arg.owner
        assert not isinstance(block, OpBase)
        users = list(arg.users)
        arg.type = scalar
        if users:
            moved = _moved(Builder(block, loop.loc, block.ops[0]), init, arg, t)
            _replace_in(users, arg, moved)
    b = Builder(last.parent, loop.loc, last)  # type: ignore[arg-type]
    total = _args(loop, index)[-1]
    for step in steps:
        total = b.elementwise("arith.add", total, _scalar(step, scalar, b))
    last.set_operand(index, total)
    _fix_result(loop, index, init, t, scalar)


def _moved(b: Builder, base: Value, step: Value, t: TensorType) -> Value:
    everywhere = b.insert(SplatOp(step, t.shape, loc=b.loc)).result
    if isinstance(t.element, PointerType):
        return b.insert(PtrAddOp(base, everywhere, loc=b.loc)).result
    return b.elementwise("arith.add", base, everywhere)


def _replace_in(users: list[OpBase], old: Value, new: Value) -> None:
    for user in users:
        for i, v in enumerate(user.operands):
            if v is old:
                user.set_operand(i, new)


def _scalar(step: Value, dtype: DType, b: Builder) -> Value:
    """The number behind a uniform tile, widened."""
    op = step.defining_op
    if isinstance(op, ConstantOp):
        return b.constant(int(op.value), dtype)
    assert isinstance(op, SplatOp)
    return op.src if element_of(op.src.type) is dtype else b.insert(CastOp(op.src, dtype, loc=b.loc)).result


def _fix_result(loop: ForOp | WhileOp, index: int, init: Value, t: TensorType, scalar: DType) -> None:
    result = loop.results[index]
    users = list(result.users)
    result.type = scalar
    if not users or loop.parent is None:
        return
    at = loop.parent.ops.index(loop) + 1
    moved = _moved(
        Builder(loop.parent, Loc(loop.loc.file, loop.loc.line, loop.loc.col), loop.parent.ops[at]), init, result, t
    )
    _replace_in(users, result, moved)
