"""Which bytes of shared memory a buffer's value may stand for, and which ops touch them by an engine or by an elected thread.

Stands on the offsets that `shared_allocation` wrote.
"""

from __future__ import annotations

from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.async_copy import BulkLoadOp, BulkStoreOp, TmaLoadOp, TmaStoreOp
from mimw.ir.ops.barrier import BarrierAllocOp, BarrierArriveOp, BarrierExpectOp, BarrierRemoteViewOp, BarrierViewOp
from mimw.ir.ops.cluster import AsyncRemoteCopyOp
from mimw.ir.ops.memory import LocalAllocOp, LocalReinterpretOp, LocalViewOp
from mimw.ir.ops.mma import AsyncDotOp
from mimw.ir.scratch import slot_distance
from mimw.ir.types import MemDescType
from mimw.passes.folding import constant_of
from mimw.passes.memdesc_flow import Flow
from mimw.passes.shared_allocation import buffer_bytes

Span = tuple[int, int]


class Places:
    """The spans of every memdesc of a function."""

    def __init__(self, fn: Function) -> None:
        self.flow = Flow(fn, MemDescType)
        self.known: dict[Value, list[Span]] = {}

    def of(self, v: Value) -> list[Span]:
        """The bytes that a buffer or a view may be; of a ring the whole, except where the slot is a constant."""
        found = self.known.get(v)
        if found is None:
            found = self.known[v] = self._find(v)
        return found

    def _find(self, v: Value) -> list[Span]:
        op = v.defining_op
        if isinstance(op, LocalAllocOp):
            if not op.slot:
                return [(op.offset, op.offset + buffer_bytes(op.type))]
            step = slot_distance(op.type)
            return [(lo, lo + op.slot) for lo in range(op.offset, op.offset + op.type.shape[0] * step, step)]
        if isinstance(op, LocalReinterpretOp):
            return self.of(op.src)
        if isinstance(op, LocalViewOp):
            whole = self.of(op.src)
            index = constant_of(op.index)
            ring = op.src.type
            if index is not None and isinstance(op.src.defining_op, LocalAllocOp) and op.src.defining_op.slot:
                return [whole[int(index)]]
            if index is None or len(whole) != 1 or not isinstance(ring, MemDescType):
                return whole
            lo, hi = whole[0]
            step = (hi - lo) // ring.shape[0]
            return [(lo + int(index) * step, lo + (int(index) + 1) * step)]
        if op is not None and not op.regions and op.operands and isinstance(op.operands[0].type, MemDescType):
            return self.of(op.operands[0])  # another view
        roots = {w for w in self.flow.home[v].members if isinstance(w.defining_op, (LocalAllocOp, LocalReinterpretOp))}
        return sorted({span for w in roots for span in self.of(w)})


def bulk_operands(op: OpBase) -> tuple[Value | None, Value | None]:
    """The buffers that a copy by the TMA engine reads and writes; None for none."""
    if isinstance(op, (TmaLoadOp, BulkLoadOp)):
        return None, op.dst
    if isinstance(op, (TmaStoreOp, BulkStoreOp)):
        return op.src, None
    if isinstance(op, AsyncRemoteCopyOp):
        return op.src, op.dst
    return None, None


def engine_operands(op: OpBase) -> list[Value]:
    """All buffers that an op has an engine touch."""
    if isinstance(op, AsyncDotOp):
        return [v for v in (op.a, op.b) if isinstance(v.type, MemDescType)]
    return [v for v in bulk_operands(op) if v is not None]


def barrier_alloc(v: Value) -> BarrierAllocOp | None:
    """Where a barrier comes from, through views; None when it is carried around a loop."""
    op = v.defining_op
    while isinstance(op, (BarrierViewOp, BarrierRemoteViewOp)):
        op = op.barriers.defining_op
    return op if isinstance(op, BarrierAllocOp) else None


def is_elected_arrive(op: OpBase) -> bool:
    """Whether one thread arrives on a barrier for its task (on a per-thread barrier each arrives by itself)."""
    if isinstance(op, BarrierExpectOp):
        return True
    if not isinstance(op, BarrierArriveOp):
        return False
    alloc = barrier_alloc(op.barrier)
    return alloc is None or not alloc.per_thread
