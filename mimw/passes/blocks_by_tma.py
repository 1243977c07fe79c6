"""Loads and stores of blocks through a descriptor become copies by the TMA engine, through buffers of the compiler's.

A load is: a buffer, a barrier of one arrival, the copy, the wait, and the read of the buffer. Loads that follow each other with nothing but
pure ops between them are under way together, on one barrier. The barrier is made once; which of its phases a load waits for is read from
the barrier itself before the load arrives on it (`barrier.parity`), so that loads may stand in any loop or branch.

A store writes the buffer, copies it, and waits until the buffer may be used again: others see the block at the latest when the kernel ends.

Syncs between the threads that read a buffer and the next copy into it are inserted later (`sync_insertion`), layouts chosen (`memdesc_layout`).
"""

from __future__ import annotations

from mimw.ir.builder import Builder
from mimw.ir.core import Block, Function, Module, OpBase
from mimw.ir.ops.async_copy import BlockLoadOp, BlockStoreOp, TmaLoadOp, TmaStoreOp, TmaStoreWaitOp
from mimw.ir.ops.barrier import BarrierAllocOp, BarrierExpectOp, BarrierParityOp, BarrierWaitOp
from mimw.ir.ops.memory import LocalAllocOp, LocalLoadOp
from mimw.ir.rewriter import replace, walk_blocks
from mimw.ir.types import BarrierType, MemDescType, TensorDescType
from mimw.target import Target

NAME = "blocks-by-tma"


def run(module: Module, target: Target) -> None:
    """Rewrite every load and store of a block."""
    if not target.has("tma") and not target.has("wave_barriers"):
        return
    waited = target.has("tma")  # where waves copy, each its part, buffers keep their bytes
    for block in list(walk_blocks(module.function.block)):
        for group in _groups(block):
            _load(module.function, group, waited)
        for op in list(block.ops):
            if isinstance(op, BlockStoreOp):
                _store(op, waited)


def _groups(block: Block) -> list[list[BlockLoadOp]]:
    """The loads of a block that may be under way together: nothing between them has effects or takes what one of them reads."""
    groups: list[list[BlockLoadOp]] = []
    run: list[BlockLoadOp] = []
    results: set[object] = set()
    for op in block.ops:
        if run and (any(v in results for v in op.operands) or not _transparent(op)):
            groups.append(run)
            run, results = [], set()
        if isinstance(op, BlockLoadOp):
            run.append(op)
            results.add(op.result)
    return [*groups, run] if run else groups


def _transparent(op: OpBase) -> bool:
    """Whether loads may be under way across an op."""
    return isinstance(op, BlockLoadOp) or (op.spec.pure and not op.regions and not op.spec.terminator)


def _memory(t: object) -> MemDescType:
    assert isinstance(t, TensorDescType)
    return MemDescType(t.block_shape, t.dtype)


def _bytes(t: MemDescType) -> int:
    total = t.dtype.itemsize
    for n in t.shape:
        total *= n
    return total


def _load(fn: Function, group: list[BlockLoadOp], waited: bool) -> None:
    """The copies of a group at the place of its last load."""
    last = group[-1]
    assert last.parent is not None
    top = Builder(fn.block, last.loc, fn.block.ops[0])
    barrier = top.insert(BarrierAllocOp(BarrierType(0, 1), loc=last.loc)).result
    barrier.name = "loaded"
    b = Builder(last.parent, last.loc, last)
    buffers = [b.insert(LocalAllocOp(None, _memory(op.desc.type), waited=waited, loc=op.loc)).result for op in group]
    parity = b.insert(BarrierParityOp(barrier, loc=last.loc)).result
    total = sum(_bytes(_memory(op.desc.type)) for op in group)
    b.insert(BarrierExpectOp(barrier, None, total, loc=last.loc))
    for op, buffer in zip(group, buffers, strict=True):
        buffer.name = op.result.name
        b.insert(TmaLoadOp(op.desc, buffer, barrier, None, None, list(op.coords), loc=op.loc))
    b.insert(BarrierWaitOp(barrier, parity, None, loc=last.loc))
    for op, buffer in zip(group, buffers, strict=True):
        tile = b.insert(LocalLoadOp(buffer, loc=op.loc)).result
        tile.name = op.result.name
        replace(op, [tile])


def _store(op: BlockStoreOp, waited: bool) -> None:
    assert op.parent is not None
    b = Builder(op.parent, op.loc, op)
    buffer = b.insert(LocalAllocOp(op.value, _memory(op.desc.type), waited=waited, loc=op.loc)).result
    b.insert(TmaStoreOp(op.desc, buffer, list(op.coords), op.reduce, loc=op.loc))
    b.insert(TmaStoreWaitOp(0, loc=op.loc))
    op.erase()
