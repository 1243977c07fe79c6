"""Where in shared memory each buffer and each op's scratch lies.

Buffers (`memory.local_alloc`) live from their allocation to the last op that touches them or a view of them; scratch (`ir.scratch`) lives
during its op. Things that are alive at different times share bytes. A buffer that is read by an asynchronous product stays alive until a wait
that leaves none pending. Writes the attributes `offset` and `scratch`, and `options["shared_bytes"]` of the function.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError
from mimw.ir.core import Function, Module, OpBase, Value
from mimw.ir.ops.control import ForOp, WhileOp
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp
from mimw.ir.scratch import scratch_bytes
from mimw.ir.types import MemDescType
from mimw.target import Target

NAME = "shared-allocation"


class _Piece:
    """Bytes that are needed from op `start` to op `end` (positions in program order)."""

    __slots__ = ("align", "end", "offset", "op", "size", "start")

    def __init__(self, op: OpBase, size: int, align: int, start: int, end: int) -> None:
        self.op = op
        self.size = size
        self.align = align
        self.start = start
        self.end = end
        self.offset = -1


def run(module: Module, target: Target) -> None:
    """Give every buffer and scratch its offset; refuse kernels that need more than the target has."""
    fn = module.function
    pieces = _collect(fn)
    total = _place(pieces)
    for p in pieces:
        p.op.attrs["offset" if isinstance(p.op, LocalAllocOp) else "scratch"] = p.offset
    fn.options["shared_bytes"] = total
    if total > target.max_shared_bytes:
        biggest = max(pieces, key=lambda p: p.size)
        raise CompilationError(
            "shared-memory",
            f"kernel {fn.name} needs {total} bytes of shared memory; {target.name} has {target.max_shared_bytes}",
            biggest.op.loc,
            hint="make the tiles or num_stages smaller; the largest piece is at this line "
            f"({biggest.size} bytes for {biggest.op.name})",
        )


def buffer_bytes(t: MemDescType) -> int:
    """Bytes of an allocation: the layout's size (one slot) times the ring's depth."""
    per_slot = t.shape[-len(t.layout.dims) :] if t.layout is not None else t.shape
    slots = 1
    for s in t.shape[: len(t.shape) - len(per_slot)]:
        slots *= s
    return slots * slot_bytes(t)


def slot_bytes(t: MemDescType) -> int:
    """Bytes of one slot of a ring, rounded up so that every slot keeps the buffer's alignment."""
    if t.layout is None:
        n = t.dtype.itemsize
        for s in t.shape:
            n *= s
        return n
    size = t.layout.size * t.dtype.itemsize
    return (size + BUFFER_ALIGN - 1) // BUFFER_ALIGN * BUFFER_ALIGN


BUFFER_ALIGN = 1024
"""Every buffer starts at a multiple of the longest swizzle period (128-byte swizzle: 8 rows of 128 bytes)."""


def _collect(fn: Function) -> list[_Piece]:
    positions: dict[OpBase, int] = {}
    ends: dict[OpBase, int] = {}
    order: list[OpBase] = []

    def number(ops: list[OpBase]) -> None:
        for op in ops:
            positions[op] = len(order)
            order.append(op)
            for region in op.regions:
                number(region.block.ops)
            ends[op] = len(order) - 1

    number(fn.block.ops)
    pieces: list[_Piece] = []
    for op in order:
        at = positions[op]
        if isinstance(op, LocalAllocOp):
            end = _last_use(op.result, op, positions, ends, order)
            pieces.append(_Piece(op, buffer_bytes(op.type), BUFFER_ALIGN, at, end))
        else:
            size = scratch_bytes(op)
            if size:
                pieces.append(_Piece(op, size, 16, at, ends[op]))
    return pieces


def _last_use(
    buffer: Value, alloc: OpBase, positions: dict[OpBase, int], ends: dict[OpBase, int], order: list[OpBase]
) -> int:
    """The position of the last op that may touch the buffer, views and loops and pending products included."""
    last = positions[alloc]
    todo = [buffer]
    while todo:
        for user in todo.pop().users:
            end = ends[user]
            if isinstance(user, AsyncDotOp):
                end = max(end, _product_end(user, positions, order))
            last = max(last, _leave_loops(user, alloc, end, ends))
            todo.extend(r for r in user.results if isinstance(r.type, MemDescType))
            for region in user.regions:
                todo.extend(a for a in region.block.args if isinstance(a.type, MemDescType))
    return last


def _leave_loops(user: OpBase, alloc: OpBase, end: int, ends: dict[OpBase, int]) -> int:
    """A use inside a loop that does not contain the allocation lasts until the loop's end."""
    block = user.parent
    while block is not None and block is not alloc.parent:
        parent = block.parent_op
        if parent is None:
            break
        if isinstance(parent, (ForOp, WhileOp)):
            end = max(end, ends[parent])
        block = parent.parent
    return end


def _product_end(dot: OpBase, positions: dict[OpBase, int], order: list[OpBase]) -> int:
    """The first wait after `dot` in program order that leaves no product pending (the end of the kernel when there is none)."""
    for i in range(positions[dot] + 1, len(order)):
        op = order[i]
        if isinstance(op, AsyncDotWaitOp) and op.pendings == 0:
            return i
    return len(order)


def _place(pieces: list[_Piece]) -> int:
    """First fit, largest first: no two pieces that are alive at once overlap. Returns the bytes needed."""
    placed: list[_Piece] = []
    total = 0
    for p in sorted(pieces, key=lambda p: (-p.align, -p.size, p.start)):
        busy = sorted(
            ((q.offset, q.offset + q.size) for q in placed if q.start <= p.end and p.start <= q.end), key=lambda x: x[0]
        )
        at = 0
        for lo, hi in busy:
            if at + p.size <= lo:
                break
            at = max(at, (hi + p.align - 1) // p.align * p.align)
        p.offset = at
        placed.append(p)
        total = max(total, at + p.size)
    return total
