"""Where matrix instructions take registers only (v_mfma), an asynchronous product reads its buffers and multiplies at once.

`mma.async_dot` becomes `memory.local_load` of what lies in shared memory and `mma.dot`; `mma.async_dot_wait` and `mma.as_inflight` go
away, for nothing is in flight. The order of the program is kept: a buffer that the program may overwrite after the wait was read before it.
Stands after the checks of the protocol, which look at the user's waits, and before the passes that look at products and buffers.
"""

from __future__ import annotations

from mimw.ir.builder import Builder
from mimw.ir.core import Function, Module, OpBase, Value
from mimw.ir.ops.memory import LocalLoadOp
from mimw.ir.ops.mma import AsInflightOp, AsyncDotOp, AsyncDotWaitOp, DotOp
from mimw.ir.ops.tensor import SplatOp
from mimw.ir.rewriter import replace
from mimw.ir.types import InflightType, MemDescType, TensorType, Type
from mimw.target import Target

NAME = "products-by-waves"


def run(module: Module, target: Target) -> None:
    """Rewrite every asynchronous product."""
    if target.has("wgmma") or not target.has("mfma"):
        return
    fn = module.function
    products = [op for op in fn.walk() if isinstance(op, (AsyncDotOp, AsyncDotWaitOp, AsInflightOp))]
    if not products:
        return
    _land(fn)
    for op in products:
        if isinstance(op, AsyncDotOp):
            _multiply(op)
        else:
            replace(op, list(op.operands))


def _land(fn: Function) -> None:
    """Tiles in flight become tiles."""
    for op in fn.walk():
        for value in (*op.results, *(a for region in op.regions for a in region.block.args)):
            value.type = _landed(value.type)
        if "types" in op.attrs:
            op.attrs["types"] = tuple(_landed(t) for t in op.attrs["types"])


def _landed(t: Type) -> Type:
    return t.tensor if isinstance(t, InflightType) else t


def _multiply(op: AsyncDotOp) -> None:
    """Read the operands, multiply."""
    assert op.parent is not None
    b = Builder(op.parent, op.loc, op)
    acc = op.acc
    if op.use_acc is not None:
        assert isinstance(acc.type, TensorType)
        wanted = b.insert(SplatOp(op.use_acc, acc.type.shape, loc=op.loc)).result
        acc = b.elementwise("arith.select", wanted, acc, b.constant(0, acc.type))
    left, right = _tile(b, op.a, op), _tile(b, op.b, op)
    found = b.insert(DotOp(left, right, acc, max_imprecise=op.max_imprecise, loc=op.loc)).result
    found.name = op.result.name
    replace(op, [found])


def _tile(b: Builder, operand: Value, op: OpBase) -> Value:
    """An operand in registers."""
    if not isinstance(operand.type, MemDescType):
        return operand
    tile = b.insert(LocalLoadOp(operand, loc=op.loc)).result
    tile.name = operand.name
    return tile
