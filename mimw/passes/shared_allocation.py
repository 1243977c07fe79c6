"""Where in shared memory each buffer and each op's scratch lies.

Buffers (`memory.local_alloc`) live from their allocation to the last op that touches them or a view of them; scratch (`ir.scratch`) lives
during its op. Things that are alive at different times share bytes. A buffer that is read by an asynchronous product, or written by an
asynchronous copy, stays alive until a wait that leaves none pending. mbarriers live for the whole kernel, buffers that TMA or another CTA
reaches too: the end of such copies is not seen here (but where the op says that it is waited for).

Buffers that share a storage (`storage_overlap` has placed them in it) are one piece, alive while one of them is.

Tasks run at the same time, and all but the default one until the end: what two of them reach lives from the partition on, and what belongs to one of
them alone lies apart from what the others have. Only inside one task bytes are used again.

Writes the attributes `offset` and `scratch`, and `options["shared_bytes"]` of the function.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError, Note
from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.ops.async_copy import AsyncLoadOp, MakeDescriptorOp, WaitGroupOp
from mimw.ir.ops.barrier import BarrierAllocOp
from mimw.ir.ops.control import ForOp, WhileOp
from mimw.ir.ops.memory import LocalAllocOp, StorageOp, members_of
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp
from mimw.ir.ops.tensor import ConvertLayoutOp
from mimw.ir.scratch import DESCRIPTOR_BYTES, SLOT_ALIGN, scratch_bytes, slot_bytes
from mimw.ir.types import MemDescType
from mimw.passes.tasks import TaskMap
from mimw.target import Target

NAME = "shared-allocation"


class _Piece:
    """Bytes that are needed from op `start` to op `end` (positions in program order) by task `task` (0: the default task's line)."""

    __slots__ = ("align", "end", "offset", "op", "size", "start", "task")

    def __init__(self, op: OpBase, size: int, align: int, start: int, end: int, task: int = 0) -> None:
        self.op = op
        self.task = task
        self.size = size
        self.align = align
        self.start = start
        self.end = end
        self.offset = -1


def run(module: Module, target: Target) -> None:
    """Give every buffer and scratch its offset; refuse kernels that need more than the target has."""
    fn = module.function
    pieces, fork = _collect(fn)
    total = _place(pieces, fork)
    if total > target.max_shared_bytes and _limit_conversions(pieces, target.max_shared_bytes):
        pieces, fork = _collect(fn)
        total = _place(pieces, fork)
    for p in pieces:
        if isinstance(p.op, (LocalAllocOp, StorageOp)):
            for member in members_of(p.op.result):
                member.attrs["offset"] = p.offset + max(0, member.offset)
        p.op.attrs["offset" if isinstance(p.op, (LocalAllocOp, StorageOp, BarrierAllocOp)) else "scratch"] = p.offset
    fn.options["shared_bytes"] = total
    if total > target.max_shared_bytes:
        biggest = max(pieces, key=lambda p: p.size)
        raise CompilationError(
            "shared-memory",
            f"kernel {fn.name} needs {total} bytes of shared memory; {target.name} has {target.max_shared_bytes}",
            biggest.op.loc,
            notes=[
                Note(f"{p.size} bytes for {p.op.name}", p.op.loc)
                for p in sorted(pieces, key=lambda p: -p.size)[1:4]
                if p.size * 16 >= total
            ],
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


_REACHED_BY_OTHERS = frozenset(
    (
        "async_copy.tma_load",
        "async_copy.tma_store",
        "async_copy.bulk_load",
        "async_copy.bulk_store",
        "cluster.remote_store",
        "cluster.async_remote_store",
        "cluster.async_remote_copy",
    )
)


def _collect(fn: Function) -> tuple[list[_Piece], int]:
    """All pieces, and the position at which the tasks start (past the end without tasks)."""
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
    tasks = TaskMap(fn)
    fork = positions[tasks.partition] if tasks.partition is not None else len(order) + 1
    pieces: list[_Piece] = []
    for op in order:
        at = positions[op]
        task = tasks.of(op.parent)
        if isinstance(op, BarrierAllocOp):
            pieces.append(_Piece(op, 8 * max(1, op.type.count), 16, 0, len(order)))
        elif isinstance(op, MakeDescriptorOp):
            pieces.append(_Piece(op, DESCRIPTOR_BYTES, 128, 0, len(order)))
        elif isinstance(op, (LocalAllocOp, StorageOp)):
            if isinstance(op, LocalAllocOp) and op.storage is not None:
                continue  # part of another piece
            users = buffer_users(op.result)
            end = _last_use(op, users, positions, ends, order)
            waited = isinstance(op, LocalAllocOp) and op.waited
            if not waited and any(user.name in _REACHED_BY_OTHERS for user in users):
                at, end = 0, len(order)
            elif any(tasks.of(user.parent) != task for user in users):
                end = len(order)
            if op.total:
                pieces.append(_Piece(op, op.total, SLOT_ALIGN, at, end, task))
            elif isinstance(op, LocalAllocOp):
                align = SLOT_ALIGN if op.type.layout is not None else 16
                pieces.append(_Piece(op, buffer_bytes(op.type), align, at, end, task))
        else:
            size = scratch_bytes(op)
            if size:
                pieces.append(_Piece(op, size, 16, at, ends[op], task))
    return pieces, fork


def _limit_conversions(pieces: list[_Piece], most: int) -> bool:
    """Let large conversions go in rounds through a quarter of the memory (a power of two); says whether there are any."""
    budget = 1 << (most // 4).bit_length() - 1
    large = [p.op for p in pieces if isinstance(p.op, ConvertLayoutOp) and p.size > budget]
    for op in large:
        op.attrs["budget"] = budget
    return bool(large)


def buffer_users(buffer: Value) -> list[OpBase]:
    """All ops that may touch a buffer, through views and loops too."""
    found: dict[OpBase, None] = {}
    seen = {buffer}
    todo = [buffer]
    while todo:
        for user in todo.pop().users:
            found[user] = None
            more = [r for r in user.results if isinstance(r.type, MemDescType)]
            for region in user.regions:
                more += [a for a in region.block.args if isinstance(a.type, MemDescType)]
            todo += [v for v in more if v not in seen]
            seen.update(more)
    return list(found)


def _last_use(
    alloc: OpBase, users: list[OpBase], positions: dict[OpBase, int], ends: dict[OpBase, int], order: list[OpBase]
) -> int:
    """The position of the last op that may touch the buffer, loops and pending products included."""
    last = positions[alloc]
    for user in users:
        end = ends[user]
        if isinstance(user, (AsyncDotOp, AsyncLoadOp)):
            end = max(end, _async_end(user, positions, order))
        last = max(last, _leave_loops(user, alloc, end, ends))
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


def _async_end(start: AsyncDotOp | AsyncLoadOp, positions: dict[OpBase, int], order: list[OpBase]) -> int:
    """The first wait that is sure to run after `start` and leaves no product (or copy) pending; the end of the kernel when there is none."""
    wait = AsyncDotWaitOp if isinstance(start, AsyncDotOp) else WaitGroupOp
    around: set[Block] = set()
    block = start.parent
    while block is not None:
        around.add(block)
        block = block.parent_op.parent if block.parent_op is not None else None
    for i in range(positions[start] + 1, len(order)):
        op = order[i]
        if isinstance(op, wait) and op.pendings == 0 and op.parent in around:
            return i
    return len(order)


def _meet(p: _Piece, q: _Piece, fork: int) -> bool:
    """Whether two pieces may be alive at once."""
    if p.task == q.task:
        return q.start <= p.end and p.start <= q.end
    if p.task and q.task:
        return True
    line, other = (p, q) if not p.task else (q, p)
    return line.end >= fork or other.end < fork  # the line of the default task goes on beside the others


def _place(pieces: list[_Piece], fork: int) -> int:
    """First fit, largest first: no two pieces that are alive at once overlap. Returns the bytes needed."""
    placed: list[_Piece] = []
    total = 0
    for p in sorted(pieces, key=lambda p: (-p.align, -p.size, p.start)):
        busy = sorted(((q.offset, q.offset + q.size) for q in placed if _meet(p, q, fork)), key=lambda x: x[0])
        at = 0
        for lo, hi in busy:
            if at + p.size <= lo:
                break
            at = max(at, (hi + p.align - 1) // p.align * p.align)
        p.offset = at
        placed.append(p)
        total = max(total, at + p.size)
    return total
