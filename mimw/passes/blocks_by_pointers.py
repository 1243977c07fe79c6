"""Where there is no TMA engine, blocks move through a descriptor as plain masked loads and stores of their elements.

Only descriptors that the kernel made itself have their address, sizes and strides at hand. One that the host made, or that is looked up, is
refused, but where waves copy blocks themselves (`wave_barriers`): such blocks go through buffers, as with TMA (`blocks_by_tma`).
Stands before the passes that make addresses cheap.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError, Note
from mimw.ir.builder import Builder
from mimw.ir.core import Module, Value
from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.async_copy import BlockLoadOp, BlockStoreOp, MakeDescriptorOp
from mimw.ir.ops.atomic import AtomicRmwOp
from mimw.ir.ops.memory import LoadOp, PtrAddOp, StoreOp
from mimw.ir.ops.tensor import ArangeOp, BroadcastOp, ExpandDimsOp, SplatOp
from mimw.ir.rewriter import replace
from mimw.ir.types import I64, TensorType, shape_of
from mimw.target import Target

NAME = "blocks-by-pointers"


def run(module: Module, target: Target) -> None:
    """Rewrite every load and store of a block, and drop the descriptors that nothing else uses."""
    if target.has("tma"):
        return
    by_waves = target.has("wave_barriers")  # other code may look up what is made in a room
    for op in list(module.function.walk()):
        if isinstance(op, (BlockLoadOp, BlockStoreOp)):
            if by_waves and not isinstance(op.desc.defining_op, MakeDescriptorOp):
                continue  # through a buffer, as with TMA
            _rewrite(op, _maker(op, target))
    for op in list(module.function.walk()):
        if isinstance(op, MakeDescriptorOp) and not op.result.users and not (by_waves and op.room >= 0):
            op.erase()


def _maker(op: BlockLoadOp | BlockStoreOp, target: Target) -> MakeDescriptorOp:
    """Where the descriptor of an op was made."""
    maker = op.desc.defining_op
    if isinstance(maker, MakeDescriptorOp):
        return maker
    made = [Note("it comes from here", maker.loc)] if maker is not None else []
    raise CompilationError(
        "unsupported",
        f"{target.name} has no TMA engine: a block is loaded or stored by its address, which this descriptor does not show",
        op.loc,
        notes=made,
        hint="make the descriptor in the kernel, with ml.make_tensor_descriptor, and do not carry it around a loop",
    )


def _rewrite(op: BlockLoadOp | BlockStoreOp, maker: MakeDescriptorOp) -> None:
    assert op.parent is not None
    b = Builder(op.parent, op.loc, op)
    block = maker.type.block_shape
    pointer, mask = _addresses(b, maker, op.coords, block)
    if isinstance(op, BlockStoreOp):
        if op.reduce:
            b.insert(AtomicRmwOp(pointer, op.value, mask, op.reduce, "relaxed", loc=op.loc))
        else:
            b.insert(StoreOp(pointer, op.value, mask, loc=op.loc))
        op.erase()
        return
    nan = maker.padding == "nan" and maker.type.dtype.is_floating()
    other = b.constant(float("nan"), TensorType(block, maker.type.dtype)) if nan else None
    loaded = b.insert(LoadOp(pointer, mask, other, loc=op.loc)).result
    loaded.name = op.result.name
    replace(op, [loaded])


def _addresses(b: Builder, maker: MakeDescriptorOp, coords: list[Value], block: tuple[int, ...]) -> tuple[Value, Value]:
    """The pointers of a block's elements, and which of them lie inside of the tensor. Offsets are 64 bits wide."""
    rank = len(block)
    sizes, strides = maker.shape[:rank], maker.shape[rank:]
    offset: Value | None = None
    mask: Value | None = None
    for d in range(rank):
        lanes = b.insert(ArangeOp(0, block[d], loc=b.loc)).result
        index = b.elementwise("arith.add", _spread(b, coords[d], lanes), lanes)
        below = b.elementwise("arith.lt", index, _spread(b, sizes[d], index))
        inside = b.elementwise("arith.and", below, b.elementwise("arith.ge", index, b.constant(0, index.type)))
        wide = b.insert(CastOp(index, I64, loc=b.loc)).result
        step = wide if d == rank - 1 else b.elementwise("arith.mul", wide, _spread(b, strides[d], wide))
        step, inside = _along(b, step, d, block), _along(b, inside, d, block)
        offset = step if offset is None else b.elementwise("arith.add", offset, step)
        mask = inside if mask is None else b.elementwise("arith.and", mask, inside)
    assert offset is not None and mask is not None
    base = b.insert(SplatOp(maker.ptr, block, loc=b.loc)).result
    return b.insert(PtrAddOp(base, offset, loc=b.loc)).result, mask


def _spread(b: Builder, scalar: Value, like: Value) -> Value:
    return b.insert(SplatOp(scalar, shape_of(like.type), loc=b.loc)).result


def _along(b: Builder, v: Value, axis: int, block: tuple[int, ...]) -> Value:
    """A one-dimensional tile along one dimension of the block, spread over the others."""
    for d in range(len(block)):
        if d != axis:
            v = b.insert(ExpandDimsOp(v, d, loc=b.loc)).result
    return v if shape_of(v.type) == block else b.insert(BroadcastOp(v, block, loc=b.loc)).result
