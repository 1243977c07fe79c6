"""Reshapes and concatenations that no renaming of registers can do go through shared memory, in plain ops.

A reshape is a renaming when both shapes split into groups of equal size in which all but the leading dimension are powers of two
(`ir.layout_shapes.reshape`), a concatenation when both parts are the same power of two. Everything else: write the tile row by row into a buffer, look at
the same bytes under the other shape (`memory.local_reinterpret`), read it back.
"""

from __future__ import annotations

from mimw.ir.builder import Builder
from mimw.ir.core import Module, OpBase, Value
from mimw.ir.layout_factories import blocked
from mimw.ir.layout_shapes import reshape
from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.memory import LocalAllocOp, LocalLoadOp, LocalReinterpretOp, LocalStoreOp
from mimw.ir.ops.tensor import CatOp, ReshapeOp
from mimw.ir.rewriter import replace
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import I1, I8, I64, DType, MemDescType, PointerType, TensorType
from mimw.target import Target

NAME = "shapes-through-memory"


def run(module: Module, target: Target) -> None:
    """Rewrite what needs it."""
    for op in module.function.walk():
        if isinstance(op, ReshapeOp) and not is_renaming(op.src.type, op.shape):
            _through_memory(op, [op.src])
        elif isinstance(op, CatOp) and not cat_is_renaming(op):
            _through_memory(op, [op.a, op.b])


def is_renaming(t: object, shape: tuple[int, ...]) -> bool:
    """Whether some layout of the tile can be seen under another shape without moving an element."""
    assert isinstance(t, TensorType)
    layout = blocked(t.shape, tuple(reversed(range(t.rank))), 1)
    return reshape(layout, t.shape, shape) is not None


def cat_is_renaming(op: CatOp) -> bool:
    """Whether a concatenation is one more register bit."""
    a, b = op.a.type, op.b.type
    assert isinstance(a, TensorType) and isinstance(b, TensorType)
    n = a.shape[op.axis]
    return n == b.shape[op.axis] and n & (n - 1) == 0


def _through_memory(op: OpBase, sources: list[Value]) -> None:
    out = op.results[0].type
    assert isinstance(out, TensorType) and op.parent is not None
    b = Builder(op.parent, op.loc, op)
    element = out.element
    stored = _storable(element)
    whole = MemDescType(out.shape, stored, "shared", SharedLayout.row_major(out.shape))
    buffer = b.insert(LocalAllocOp(None, whole, loc=op.loc)).result
    start = 0
    for source in sources:
        t = source.type
        assert isinstance(t, TensorType)
        value = source if stored is element else b.insert(CastOp(source, stored, loc=op.loc)).result
        view = buffer
        if t.shape != out.shape:
            view = b.insert(LocalReinterpretOp(buffer, _view(op, t, out, stored), start, loc=op.loc)).result
        b.insert(LocalStoreOp(view, value, loc=op.loc))
        start += _distance(op, t, out)
    result = b.insert(LocalLoadOp(buffer, loc=op.loc)).result
    if stored is not element:
        result = b.insert(CastOp(result, element, loc=op.loc)).result
    result.name = op.results[0].name
    replace(op, [result])


def _storable(element: DType | PointerType) -> DType:
    if isinstance(element, PointerType):
        return I64
    return I8 if element is I1 else element


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    return strides


def _view(op: OpBase, t: TensorType, out: TensorType, dtype: DType) -> MemDescType:
    """How a source lies in the result's buffer."""
    if isinstance(op, ReshapeOp):
        layout = SharedLayout.row_major(t.shape)
    else:
        size = out.numel
        layout = SharedLayout.get([(0, n) for n in t.shape], [()] * t.rank, _strides(out.shape), size)
    return MemDescType(t.shape, dtype, "shared", layout, out.shape)


def _distance(op: OpBase, t: TensorType, out: TensorType) -> int:
    """Elements from the start of one source to that of the next."""
    return t.shape[op.axis] * _strides(out.shape)[op.axis] if isinstance(op, CatOp) else 0
