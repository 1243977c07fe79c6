"""Synchronisation: threads of a CTA, mbarriers in shared memory, named barriers, fences.

An mbarrier counts *phases*. A phase completes when `arrive_count` arrivals have come and all expected bytes have landed; `wait(phase)` returns
once the phase of that parity has completed (a fresh barrier has completed phase parity 1, so that a producer's first wait passes).
PTX ISA, section "mbarrier"; TLX's semantics (one arrival an `arrive`, by one elected thread of the task).
"""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result
from mimw.ir.types import I1, I32, BarrierType, Type

_ORDER = Effect("shared", "write")
_BARRIER = Effect("barrier", "write", "barrier")


@op("barrier.cta_sync", effects=[_ORDER], layout="none")
class CtaSyncOp(Op):
    """All threads of the CTA (inside a task: of the task) meet; shared memory written before is visible after."""


@op("barrier.fence_async_shared", effects=[_ORDER], layout="none")
class FenceAsyncSharedOp(Op):
    """Order this thread's generic accesses to shared memory before later accesses of the async proxy (wgmma, TMA)."""


@op("barrier.fence", effects=[_ORDER, Effect("global", "write")], layout="none")
class FenceOp(Op):
    """Order this thread's memory accesses as seen by `scope`: "gpu" or "sys" (fence.acq_rel)."""

    scope: str = attr(choices=("gpu", "sys"))


@op("barrier.alloc", effects=[Effect("barrier", "write")], layout="none")
class BarrierAllocOp(Op):
    """`type.count` mbarriers in shared memory, initialised to `type.arrive_count` before any task starts.

    `per_thread`: every thread of a warp arrives by itself (TLX's warp barrier), else one elected thread speaks for the task. `offset` is
    the byte offset in shared memory (-1: not yet); 8 bytes each.
    """

    type: BarrierType = attr()
    per_thread: bool = attr_default(default=False)
    offset: int = attr_default(default=-1)
    result: Value = result()

    def infer(self) -> list[Type]:
        return [self.type]


def barrier_type(v: Value, single: bool = True) -> BarrierType:
    """The type of a value that must be one barrier (or, without `single`, an array of them); ValueError otherwise."""
    t = v.type
    if not isinstance(t, BarrierType) or (single and t.count != 0):
        raise ValueError(f"a {'single ' if single else ''}barrier is needed, not {t}")
    return t


@op("barrier.view", layout="none")
class BarrierViewOp(Op):
    """One barrier of an array; `index` is i32, in range."""

    barriers: Value = operand()
    index: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = barrier_type(self.barriers, single=False)
        if self.index.type is not I32 or not t.count:
            raise ValueError(f"barrier view of {t} at {self.index.type}")
        return [BarrierType(0, t.arrive_count, t.remote)]


@op("barrier.remote_view", layout="none")
class BarrierRemoteViewOp(Op):
    """The same barrier(s) of the CTA with rank `cta` (i32) in the cluster. Can be arrived on, not waited for."""

    barriers: Value = operand()
    cta: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = barrier_type(self.barriers, single=False)
        if self.cta.type is not I32:
            raise ValueError(f"remote view by {self.cta.type}")
        return [BarrierType(t.count, t.arrive_count, True)]


def _predicate(pred: Value | None) -> None:
    if pred is not None and pred.type is not I1:
        raise ValueError(f"a predicate is i1, not {pred.type}")


@op("barrier.wait", effects=[_BARRIER, _ORDER], layout="none")
class BarrierWaitOp(Op):
    """Wait until the phase of parity `phase & 1` has completed (i32); skipped where `pred` is false. Acquires what arrivals released."""

    barrier: Value = operand()
    phase: Value = operand()
    pred: Value | None = optional()

    def infer(self) -> list[Type]:
        if barrier_type(self.barrier).remote:
            raise ValueError("a remote barrier cannot be waited for: only the CTA that owns it can wait")
        if self.phase.type is not I32:
            raise ValueError(f"the phase is i32, not {self.phase.type}")
        _predicate(self.pred)
        return []


@op("barrier.parity", effects=[_BARRIER], layout="none")
class BarrierParityOp(Op):
    """The parity (i32, 0 or 1) of the phase that a barrier is in, which a `barrier.wait` for its end takes. Nobody arrives meanwhile."""

    barrier: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        if barrier_type(self.barrier).remote:
            raise ValueError("the phase of a remote barrier cannot be read")
        return [I32]


@op("barrier.arrive", effects=[_BARRIER, _ORDER], layout="none")
class BarrierArriveOp(Op):
    """`count` arrivals by the task (one elected thread; each thread for a per-thread barrier). Releases what the task did before."""

    barrier: Value = operand()
    pred: Value | None = optional()
    count: int = attr_default(default=1)

    def infer(self) -> list[Type]:
        barrier_type(self.barrier)
        _predicate(self.pred)
        return []


@op("barrier.expect", effects=[_BARRIER], layout="none")
class BarrierExpectOp(Op):
    """One arrival that also announces `bytes` bytes of asynchronous copies to this phase."""

    barrier: Value = operand()
    pred: Value | None = optional()
    bytes: int = attr()

    def infer(self) -> list[Type]:
        barrier_type(self.barrier)
        _predicate(self.pred)
        return []


@op("barrier.named_wait", effects=[_ORDER], layout="none")
class NamedWaitOp(Op):
    """Wait at hardware barrier `id` until `count` threads (a multiple of 32: waiters and arrivers) are there. `id` is i32 or an attribute.

    `name` is a symbolic barrier ("" for a literal id); ids of symbolic ones are allotted by task_partition.
    """

    id: Value | None = optional()
    count: int = attr()
    number: int = attr_default(default=-1)
    name_hint: str = attr_default(default="")


@op("barrier.named_arrive", effects=[_ORDER], layout="none")
class NamedArriveOp(Op):
    """Arrive at hardware barrier `id` without waiting; fields as `barrier.named_wait`."""

    id: Value | None = optional()
    count: int = attr()
    number: int = attr_default(default=-1)
    name_hint: str = attr_default(default="")
