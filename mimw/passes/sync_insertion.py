"""Barriers and proxy fences between ops that touch the same shared memory.

Walks the function with the set of accesses since the last barrier. An op that touches bytes which an earlier op may have touched from another
thread, one of the two writing, gets a `barrier.cta_sync` in front. When bytes that a product will read through the async proxy were written
generically, a `barrier.fence_async_shared` goes before that barrier.

Asynchronous accesses count where their end is observed: copies by cp.async at `async_copy.wait_group` (and, as writes, against earlier reads
where they are issued), products at `mma.async_dot_wait`. That the slot in use is not the slot being filled is the pipeliner's business.

Loops are walked until nothing changes, with the accesses of the back edge added to those of the entry.

**Tasks** are walked one by one: a sync joins the warps of one task, other tasks are ordered by mbarriers, whose waits acquire. One *elected*
thread arrives on barriers and issues copies for its whole task, so before it does

- the task syncs when its warps touched shared memory since they last met, or may still spin on an earlier phase of a barrier;
- what was written generically and an engine will touch, in whatever task, is fenced in the threads that wrote it.

What only the elected thread knows to be over (bulk stores that it waited for), or the warp group by itself (its products), binds writes of other
threads, not the elected thread.

On targets with `wave_barriers` nobody is elected: every wave arrives for itself, after its own accesses, and takes its part in copies. A copy then
reads shared memory as any op does; what it writes is only touched by who has waited for its barrier.
"""

from __future__ import annotations

from mimw.ir.core import Block, Function, Module, OpBase
from mimw.ir.ops.async_copy import AsyncLoadOp, BulkStoreOp, TmaStoreOp, TmaStoreWaitOp, WaitGroupOp
from mimw.ir.ops.barrier import (
    BarrierArriveOp,
    BarrierExpectOp,
    BarrierParityOp,
    BarrierWaitOp,
    CtaSyncOp,
    FenceAsyncSharedOp,
    NamedArriveOp,
    NamedWaitOp,
)
from mimw.ir.ops.cluster import ClusterSyncOp, RemoteStoreOp
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, IfOp, InlinedOp, ReturnOp, WhileOp
from mimw.ir.ops.memory import LocalAllocOp, LocalCountOp, LocalGatherOp, LocalLoadOp, LocalScatterOp, LocalStoreOp
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp, DotOp
from mimw.ir.ops.task import PartitionOp
from mimw.ir.scratch import scratch_bytes
from mimw.ir.types import MemDescType
from mimw.passes.shared_places import Places, Span, bulk_operands, engine_operands, is_elected_arrive
from mimw.passes.task_registers import WARP_GROUP
from mimw.passes.tasks import TaskMap
from mimw.target import Target

NAME = "sync-insertion"


class _State:
    """What happened to shared memory since the last barrier: spans read, spans written, spans written and not yet fenced.

    `led`: spans that an engine has read, as far as the elected thread (or the warp group) knows; `stores`: spans that bulk stores may still
    read; `waited`: some warps may still wait at an mbarrier.
    """

    __slots__ = ("copies", "led", "products", "reads", "stores", "unfenced", "waited", "writes")

    def __init__(self) -> None:
        self.led: set[Span] = set()
        self.stores: set[Span] = set()
        self.waited = False
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
        self.led |= other.led
        self.stores |= other.stores
        self.waited |= other.waited

    def covers(self, other: _State) -> bool:
        return (
            self.reads >= other.reads
            and self.writes >= other.writes
            and self.unfenced >= other.unfenced
            and self.copies >= other.copies
            and self.products >= other.products
            and self.led >= other.led
            and self.stores >= other.stores
            and self.waited >= other.waited
        )

    def dirty(self) -> bool:
        """Whether an elected thread cannot speak for its task yet."""
        return bool(self.reads or self.writes or self.waited)

    def synced(self) -> None:
        self.reads.clear()
        self.writes.clear()
        self.led.clear()
        self.waited = False


def run(module: Module, target: Target) -> None:
    """Insert what is missing."""
    _Walker(module.function, not target.has("wave_barriers")).function()


def _hits(spans: set[Span], others: list[Span]) -> bool:
    return any(lo < b and a < hi for lo, hi in others for a, b in spans)


class _Walker:
    def __init__(self, fn: Function, elects: bool) -> None:
        self.fn = fn
        self.elects = elects
        self.tasks = TaskMap(fn)
        self.warps = fn.num_warps
        self.places = Places(fn)
        self.async_touched = [s for op in fn.walk() for v in engine_operands(op) for s in self.places.of(v)]
        self.arriving: dict[OpBase, bool] = {}
        self.exits: list[_State] = []
        self.loops: list[tuple[_State, _State]] = []

    def function(self) -> None:
        self.exits.append(_State())
        self.block(self.fn.block, _State())

    def block(self, block: Block, state: _State) -> _State | None:
        """Walk a block; the state at its end, or None when it leaves by break, continue or return."""
        for op in list(block.ops):
            if isinstance(op, (ForOp, WhileOp)):
                state = self.loop(op, state)
            elif isinstance(op, PartitionOp):
                state = self.partition(op, state)
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

    def partition(self, op: PartitionOp, state: _State) -> _State:
        """The barrier at the start of all tasks orders what was before; fences stand in front of it."""
        if _hits(state.unfenced, self.async_touched):
            assert op.parent is not None
            op.parent.insert_before(op, FenceAsyncSharedOp(loc=op.loc))
            state.unfenced.clear()
        state.synced()
        ends: list[_State] = []
        for i, region in enumerate(op.regions):
            self.warps = self.tasks.warps[i]
            ends.append(self.block(region.block, _State() if i else state) or _State())
        self.warps = self.fn.num_warps
        return ends[0]

    def arrives_inside(self, loop: OpBase) -> bool:
        """Whether an elected thread arrives somewhere in a loop."""
        found = self.arriving.get(loop)
        if found is None:
            found = self.arriving[loop] = self.elects and any(is_elected_arrive(op) for op in loop.walk())
        return found

    def loop(self, op: ForOp | WhileOp, entry: _State) -> _State:
        if entry.dirty() and self.arrives_inside(op):
            self.sync_before(op, entry)  # else the arrive inside would sync in every trip
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
        if self.barrier_op(op, state) or self.engine_op(op, state):
            return
        reads, writes = self.accesses(op)
        # A barrier in between does not help a product that reads unfenced bytes: the fence must stand before the barrier.
        unfenced = isinstance(op, AsyncDotOp) and _hits(state.unfenced, reads)
        before = (_hits(state.writes, reads + writes), _hits(state.reads, writes), _hits(state.led, writes))
        if unfenced or any(before):
            self.sync_before(op, state)
        if isinstance(op, AsyncLoadOp):
            state.copies.update(writes)
        elif isinstance(op, WaitGroupOp):
            state.writes |= state.copies
            state.unfenced |= state.copies
        elif isinstance(op, AsyncDotOp):
            state.products.update(reads)
            if self.warps == WARP_GROUP:
                state.waited = False  # wgmma has the warps of its group meet
        elif isinstance(op, AsyncDotWaitOp):
            (state.led if self.warps == WARP_GROUP else state.reads).update(state.products)
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

    def barrier_op(self, op: OpBase, state: _State) -> bool:
        """Barriers and fences; whether the op is one."""
        if isinstance(op, (BarrierWaitOp, BarrierParityOp)):  # nobody arrives before all have looked
            state.waited = self.warps > 1
        elif isinstance(op, (BarrierArriveOp, BarrierExpectOp)):
            if self.elects and is_elected_arrive(op) and state.dirty():
                self.sync_before(op, state)
            else:
                self.fence_before(op, state)
        elif isinstance(op, NamedArriveOp):
            self.fence_before(op, state)
        elif isinstance(op, (NamedWaitOp, ClusterSyncOp, CtaSyncOp)):
            self.fence_before(op, state)
            state.synced()
        elif isinstance(op, FenceAsyncSharedOp):
            state.unfenced.clear()
        else:
            return False
        return True

    def engine_op(self, op: OpBase, state: _State) -> bool:
        """Copies by an engine, issued by the elected thread; whether the op is one, or waits for some."""
        if isinstance(op, TmaStoreWaitOp):
            state.led |= state.stores
            if op.pendings == 0:
                state.stores.clear()
            return True
        read, written = bulk_operands(op)
        if read is None and written is None:
            return False
        reads = self.places.of(read) if read is not None else []
        writes = self.places.of(written) if written is not None else []
        touched = reads + writes
        if _hits(state.unfenced, touched) or _hits(state.writes, touched) or _hits(state.reads, writes):
            self.sync_before(op, state)
        if not self.elects:
            state.reads.update(reads)
        elif isinstance(op, (TmaStoreOp, BulkStoreOp)):
            state.stores.update(reads)
        return True

    def accesses(self, op: OpBase) -> tuple[list[Span], list[Span]]:
        """The spans an op reads and writes in shared memory through the generic proxy (products: reads through the async one)."""
        at = self.places.of
        if isinstance(op, LocalAllocOp):
            return [], at(op.result) if op.src is not None else []
        if isinstance(op, (LocalLoadOp, LocalGatherOp)):
            return at(op.src), []
        if isinstance(op, (LocalStoreOp, AsyncLoadOp, LocalScatterOp, LocalCountOp, RemoteStoreOp)):
            return [], at(op.dst)
        if isinstance(op, (DotOp, AsyncDotOp)):
            return [s for v in (op.a, op.b) if isinstance(v.type, MemDescType) for s in at(v)], []
        size = scratch_bytes(op)
        if size:
            at = op.attrs["scratch"]
            return [], [(at, at + size)]
        return [], []

    def fence_before(self, op: OpBase, state: _State) -> None:
        """Fence what an engine will touch."""
        if _hits(state.unfenced, self.async_touched):
            assert op.parent is not None
            op.parent.insert_before(op, FenceAsyncSharedOp(loc=op.loc))
            state.unfenced.clear()

    def sync_before(self, op: OpBase, state: _State) -> None:
        """Fence, and let the task's warps meet."""
        block = op.parent
        assert block is not None
        self.fence_before(op, state)
        block.insert_before(op, CtaSyncOp(loc=op.loc))
        state.synced()
