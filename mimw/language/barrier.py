"""Barriers: mbarriers in shared memory, named (hardware) barriers, fences.

A fresh mbarrier counts as having completed the phase of parity 1: a producer's first wait, with phase 1, passes. Initialisation and its fence are
the compiler's work; so is the choice of the thread that arrives.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.barrier import (
    BarrierAllocOp,
    BarrierArriveOp,
    BarrierExpectOp,
    BarrierRemoteViewOp,
    BarrierWaitOp,
    FenceAsyncSharedOp,
    FenceOp,
    NamedArriveOp,
    NamedWaitOp,
)
from mimw.ir.types import BarrierType
from mimw.language.core import const_int, const_str, explain, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.handles import as_barrier, mbarrier, predicate, scalar_i32, traced

MAX_BYTES = (1 << 20) - 1
"""An mbarrier counts at most this many bytes of one phase (PTX ISA, "tx-count")."""
MAX_ARRIVALS = (1 << 20) - 1


def _alloc(count: int, arrivals: int, per_thread: bool, what: str) -> mbarrier:
    b = current_builder(what)
    if count < 1:
        fail("bad-argument", f"{what}: {count} barriers")
    if not 1 <= arrivals <= MAX_ARRIVALS:
        fail("bad-argument", f"{what}: {arrivals} arrivals a phase; 1 to {MAX_ARRIVALS} are counted")
    return mbarrier(b.insert(BarrierAllocOp(BarrierType(count, arrivals), per_thread, loc=b.loc)).result)


def alloc_barriers(num_barriers: int, arrive_count: int = 1) -> mbarrier:
    """`num_barriers` mbarriers in shared memory; a phase of one completes after `arrive_count` arrivals (and all expected bytes).

    Each `barrier_arrive` and `barrier_expect_bytes` of a task counts as one arrival. Stands outside of tasks. ``bars[i]`` picks one.
    """
    count = const_int(num_barriers, "alloc_barriers: num_barriers")
    return _alloc(count, const_int(arrive_count, "alloc_barriers: arrive_count"), False, "alloc_barriers")


def alloc_warp_barrier(num_barriers: int, num_warps: int = 1, num_arrivals: int = 1) -> mbarrier:
    """Barriers on which every thread of `num_warps` warps arrives by itself, `num_arrivals` times a phase."""
    count = const_int(num_barriers, "alloc_warp_barrier: num_barriers")
    warps = const_int(num_warps, "alloc_warp_barrier: num_warps")
    arrivals = const_int(num_arrivals, "alloc_warp_barrier: num_arrivals")
    if warps < 1 or arrivals < 1:
        fail("bad-argument", f"alloc_warp_barrier: {warps} warps, {arrivals} arrivals")
    return _alloc(count, warps * 32 * arrivals, True, "alloc_warp_barrier")


def barrier_expect_bytes(bar: mbarrier, size: int, pred: Any = None) -> None:
    """One arrival that also announces `size` bytes of copies on this barrier's phase. `size` is a compile-time integer."""
    b = current_builder("barrier_expect_bytes")
    v = as_barrier(bar, "barrier_expect_bytes")
    n = const_int(size, "barrier_expect_bytes: size")
    if not 0 <= n <= MAX_BYTES:
        fail("bad-argument", f"barrier_expect_bytes: {n} bytes; a phase counts 0 to {MAX_BYTES}")
    b.insert(BarrierExpectOp(v, predicate(pred, "barrier_expect_bytes"), n, loc=b.loc))


def barrier_wait(bar: mbarrier, phase: Any, pred: Any = None) -> None:
    """Wait until the phase of parity ``phase & 1`` has completed; skipped where `pred` is false. Only for this CTA's own barriers."""
    b = current_builder("barrier_wait")
    v = as_barrier(bar, "barrier_wait")
    if bar.barrier.remote:
        fail(
            "remote-wait",
            "barrier_wait on another CTA's barrier: only the CTA that owns a barrier can wait on it",
            "wait on the local barrier, and let the other CTA arrive on it with remote_cta_rank=",
        )
    b.insert(
        BarrierWaitOp(v, scalar_i32(_phase(phase), "barrier_wait: phase"), predicate(pred, "barrier_wait"), loc=b.loc)
    )


def _phase(phase: Any) -> Any:
    phase = unwrap(phase)
    return int(phase) if isinstance(phase, bool) else phase


def barrier_arrive(bar: mbarrier, arrive_count: int = 1, remote_cta_rank: Any = None, pred: Any = None) -> None:
    """`arrive_count` arrivals by this task, where `pred` is true; on the same barrier of CTA `remote_cta_rank` of the cluster when given.

    Releases what the task did before.
    """
    b = current_builder("barrier_arrive")
    v = as_barrier(bar, "barrier_arrive")
    n = const_int(arrive_count, "barrier_arrive: arrive_count")
    if not 1 <= n <= bar.barrier.arrive_count:
        fail("bad-argument", f"barrier_arrive: {n} arrivals on a barrier whose phase takes {bar.barrier.arrive_count}")
    if unwrap(remote_cta_rank) is not None:
        v = remote_view(bar, remote_cta_rank).value
    b.insert(BarrierArriveOp(v, predicate(pred, "barrier_arrive"), n, loc=b.loc))


def remote_view(bar: mbarrier, rank: Any) -> mbarrier:
    """The same barrier(s) of the CTA with rank `rank` in the cluster: to arrive on, not to wait on."""
    b = current_builder("remote_view")
    if not isinstance(bar, mbarrier):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("not-a-barrier", f"remote_view takes barriers, not {explain(bar)}", "ml.remote_shmem_store writes data")
    if bar.barrier.remote:
        fail("bad-argument", "remote_view of a remote barrier")
    cta = scalar_i32(rank, "remote_view: rank")
    return mbarrier(b.insert(BarrierRemoteViewOp(bar.value, cta, loc=b.loc)).result)


# Named barriers.


def _named_count(count: Any, what: str) -> int:
    n = const_int(count, f"{what}: arrive_count")
    if n < 32 or n % 32 or n > 1024:
        fail("bad-argument", f"{what}: {n} threads; a named barrier counts whole warps: a multiple of 32, up to 1024")
    return n


def _named_id(bar_id: Any, what: str) -> tuple[Value | None, int]:
    bar_id = unwrap(bar_id)
    if isinstance(bar_id, tensor):
        return scalar_i32(bar_id, f"{what}: bar_id"), -1
    n = const_int(bar_id, f"{what}: bar_id")
    if not 1 <= n <= 15:
        hint = "number 0 is the compiler's own; ml.named_barrier(count) picks a free one"
        fail("bad-argument", f"{what}: barrier number {n}; they go from 1 to 15", hint)
    return None, n


def named_barrier_wait(bar_id: Any, arrive_count: int) -> None:
    """Wait at hardware barrier `bar_id` (1 to 15) until `arrive_count` threads, those that wait and those that arrive, are there."""
    b = current_builder("named_barrier_wait")
    v, number = _named_id(bar_id, "named_barrier_wait")
    b.insert(NamedWaitOp(v, _named_count(arrive_count, "named_barrier_wait"), number, loc=b.loc))


def named_barrier_arrive(bar_id: Any, arrive_count: int) -> None:
    """Arrive at hardware barrier `bar_id` (1 to 15) without waiting; `arrive_count` as for `named_barrier_wait`."""
    b = current_builder("named_barrier_arrive")
    v, number = _named_id(bar_id, "named_barrier_arrive")
    b.insert(NamedArriveOp(v, _named_count(arrive_count, "named_barrier_arrive"), number, loc=b.loc))


class named_barrier(traced):
    """A hardware barrier whose number the compiler picks. `arrive_count` threads a round: those that wait and those that arrive.

    An addition to TLX.
    """

    __slots__ = ("count", "name")

    def __init__(self, arrive_count: int) -> None:
        self.count = _named_count(arrive_count, "named_barrier")
        self.name = current_builder("named_barrier").fresh("named")

    def wait(self) -> None:
        """Wait for the others."""
        b = current_builder("named_barrier.wait")
        b.insert(NamedWaitOp(None, self.count, -1, self.name, loc=b.loc))

    def arrive(self) -> None:
        """Arrive without waiting."""
        b = current_builder("named_barrier.arrive")
        b.insert(NamedArriveOp(None, self.count, -1, self.name, loc=b.loc))


# Fences.


def fence(scope: str) -> None:
    """Order this task's memory accesses before later ones: "gpu" or "sys" as seen by other CTAs or the host, "async_shared" its accesses
    to shared memory before those of TMA and tensor core. The compiler inserts the last kind itself where it is needed."""
    b = current_builder("fence")
    name = const_str(scope, "fence: scope", ("gpu", "sys", "async_shared"))
    b.insert(FenceAsyncSharedOp(loc=b.loc) if name == "async_shared" else FenceOp(name, loc=b.loc))


def fence_async_shared() -> None:
    """``fence("async_shared")``."""
    fence("async_shared")


def fence_mbarrier_init_cluster() -> None:
    """Accepted for TLX's sake: initialising barriers for a cluster, with its fence, is the compiler's work."""
    current_builder("fence_mbarrier_init_cluster")
