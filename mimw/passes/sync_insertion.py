"""Barriers and proxy fences between ops that touch the same shared memory.

Walks the function with the set of accesses since the last barrier. An op that touches bytes which an earlier op may have touched from another
thread, one of the two writing, gets a `barrier.cta_sync` in front. When bytes that a product will read through the async proxy were written
generically, a `barrier.fence_async_shared` goes before that barrier.

Asynchronous accesses count where their end is observed: copies by cp.async at `async_copy.wait_group` (and, as writes, against earlier reads
where they are issued), products at `mma.async_dot_wait`. That the slot in use is not the slot being filled is the pipeliner's business.

Loops are walked until nothing changes, with the accesses of the back edge added to those of the entry.
"""

from __future__ import annotations

from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.ops.async_copy import AsyncLoadOp, WaitGroupOp
from mimw.ir.ops.barrier import CtaSyncOp, FenceAsyncSharedOp
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, IfOp, InlinedOp, ReturnOp, WhileOp
from mimw.ir.ops.memory import LocalAllocOp, LocalLoadOp, LocalStoreOp
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp, DotOp
from mimw.ir.scratch import scratch_bytes
from mimw.ir.types import MemDescType
from mimw.passes.shared_allocation import buffer_bytes
from mimw.target import Target

NAME = "sync-insertion"

Span = tuple[int, int]


class _State:
    """What happened to shared memory since the last barrier: spans read, spans written, spans written and not yet fenced."""

    __slots__ = ("copies", "products", "reads", "unfenced", "writes")

    def __init__(self) -> None:
        self.reads: set[Span] = set()
        self.writes: set[Span] = set()
        self.unfenced: set[Span] = set()
        self.copies: set[Span] = set()
        self.products: set[Span] = set()

    def copy(self) -> _State:
        s = _State()
        s.join(self)
        return s

    def join(self, other: _State) -> None:
        self.reads |= other.reads
        self.writes |= other.writes
        self.unfenced |= other.unfenced
        self.copies |= other.copies
        self.products |= other.products

    def covers(self, other: _State) -> bool:
        return (
            self.reads >= other.reads
            and self.writes >= other.writes
            and self.unfenced >= other.unfenced
            and self.copies >= other.copies
            and self.products >= other.products
        )

    def synced(self) -> None:
        self.reads.clear()
        self.writes.clear()


def run(module: Module, target: Target) -> None:
    """Insert what is missing."""
    _Walker(module.function).function()


def _hits(spans: set[Span], others: list[Span]) -> bool:
    return any(lo < b and a < hi for lo, hi in others for a, b in spans)


class _Walker:
    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.spans: dict[Value, Span] = {}
        self.async_read = self._async_operands()
        self.exits: list[_State] = []
        self.loops: list[tuple[_State, _State]] = []

    def _async_operands(self) -> list[Span]:
        spans: list[Span] = []
        for op in self.fn.walk():
            if isinstance(op, LocalAllocOp):
                self.spans[op.result] = (op.offset, op.offset + buffer_bytes(op.type))
        for op in self.fn.walk():
            if isinstance(op, AsyncDotOp):
                spans.extend(self.span(v) for v in (op.a, op.b) if isinstance(v.type, MemDescType))
        return spans

    def span(self, buffer: Value) -> Span:
        """The bytes of a buffer, through views and loop arguments."""
        found = self.spans.get(buffer)
        if found is None:
            owner = buffer.owner
            if isinstance(owner, Block):
                loop = owner.parent_op
                skip = 1 if isinstance(loop, ForOp) else 0
                assert isinstance(loop, (ForOp, WhileOp))
                found = self.span(loop.inits[buffer.index - skip])
            else:
                found = self.span(owner.operands[0])
            self.spans[buffer] = found
        return found

    def function(self) -> None:
        self.exits.append(_State())
        self.block(self.fn.block, _State())

    def block(self, block: Block, state: _State) -> _State | None:
        """Walk a block; the state at its end, or None when it leaves by break, continue or return."""
        for op in list(block.ops):
            if isinstance(op, (ForOp, WhileOp)):
                state = self.loop(op, state)
            elif isinstance(op, IfOp):
                ends = [self.block(r.block, state.copy()) for r in op.regions]
                alive = [s for s in ends if s is not None]
                if not alive:
                    return None
                state = alive[0]
                for s in alive[1:]:
                    state.join(s)
            elif isinstance(op, InlinedOp):
                self.exits.append(_State())
                end = self.block(op.body.block, state)
                state = self.exits.pop()
                if end is not None:
                    state.join(end)
            elif isinstance(op, ReturnOp):
                self.exits[-1].join(state)
                return None
            elif isinstance(op, BreakOp):
                self.loops[-1][0].join(state)
                return None
            elif isinstance(op, ContinueOp):
                self.loops[-1][1].join(state)
                return None
            else:
                self.op(op, state)
        return state

    def loop(self, op: ForOp | WhileOp, entry: _State) -> _State:
        state = entry.copy()
        while True:
            leave, again = _State(), _State()
            self.loops.append((leave, again))
            at_body = state.copy()
            if isinstance(op, WhileOp):
                self.block(op.condition.block, at_body)
                leave.join(at_body)
            end = self.block(op.body.block, at_body)
            self.loops.pop()
            if end is not None:
                again.join(end)
            if state.covers(again):
                leave.join(state)
                leave.join(again)
                return leave
            state.join(again)

    def op(self, op: OpBase, state: _State) -> None:
        reads, writes = self.accesses(op)
        # A barrier in between does not help a product that reads unfenced bytes: the fence must stand before the barrier.
        unfenced = isinstance(op, AsyncDotOp) and _hits(state.unfenced, reads)
        if unfenced or _hits(state.writes, reads) or _hits(state.writes, writes) or _hits(state.reads, writes):
            self.sync_before(op, state)
        if isinstance(op, CtaSyncOp):
            state.synced()
        elif isinstance(op, FenceAsyncSharedOp):
            state.unfenced.clear()
        elif isinstance(op, AsyncLoadOp):
            state.copies.update(writes)
        elif isinstance(op, WaitGroupOp):
            state.writes |= state.copies
            state.unfenced |= state.copies
        elif isinstance(op, AsyncDotOp):
            state.products.update(reads)
        elif isinstance(op, AsyncDotWaitOp):
            state.reads |= state.products
            if op.pendings == 0:
                state.products.clear()
        elif scratch_bytes(op):
            state.synced()
            state.reads.update(writes)
            state.unfenced.update(writes)
        else:
            state.reads.update(reads)
            state.writes.update(writes)
            state.unfenced.update(writes)

    def accesses(self, op: OpBase) -> tuple[list[Span], list[Span]]:
        """The spans an op reads and writes in shared memory."""
        if isinstance(op, LocalAllocOp):
            return [], [self.span(op.result)] if op.src is not None else []
        if isinstance(op, LocalLoadOp):
            return [self.span(op.src)], []
        if isinstance(op, (LocalStoreOp, AsyncLoadOp)):
            return [], [self.span(op.dst)]
        if isinstance(op, (DotOp, AsyncDotOp)):
            return [self.span(v) for v in (op.a, op.b) if isinstance(v.type, MemDescType)], []
        size = scratch_bytes(op)
        if size:
            at = op.attrs["scratch"]
            return [], [(at, at + size)]
        return [], []

    def sync_before(self, op: OpBase, state: _State) -> None:
        block = op.parent
        assert block is not None
        if _hits(state.unfenced, self.async_read):
            block.insert_before(op, FenceAsyncSharedOp(loc=op.loc))
            state.unfenced.clear()
        block.insert_before(op, CtaSyncOp(loc=op.loc))
        state.synced()
