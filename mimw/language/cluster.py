"""Clusters: CTAs that run together and reach each other's shared memory. Their number is a launch option, ``ctas_per_cga=(x, y, z)``."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.cluster import (
    AsyncRemoteCopyOp,
    AsyncRemoteStoreOp,
    ClusterSizeOp,
    ClusterSyncOp,
    CtaRankOp,
    RemoteStoreOp,
)
from mimw.language.core import tensor
from mimw.language.errors import fail
from mimw.language.handles import as_barrier, as_buffer, buffered_tensor, mbarrier, memory_of, scalar_i32
from mimw.language.local import tile_for


def cluster_cta_rank() -> tensor:
    """This CTA's rank in its cluster, an int32 scalar; 0 without clusters."""
    b = current_builder("cluster_cta_rank")
    return tensor(b.insert(CtaRankOp(loc=b.loc)).result)


def cluster_size_1d() -> tensor:
    """CTAs in the cluster, an int32 scalar; 1 without clusters."""
    b = current_builder("cluster_size_1d")
    return tensor(b.insert(ClusterSizeOp(loc=b.loc)).result)


def cluster_barrier() -> None:
    """All threads of all CTAs of the cluster meet; what they wrote to each other's shared memory is visible after."""
    b = current_builder("cluster_barrier")
    b.insert(ClusterSyncOp(loc=b.loc))


def _own(bar: Any, what: str) -> Value:
    v = as_barrier(bar, what)
    if bar.barrier.remote:
        fail(
            "bad-argument",
            f"{what} takes this CTA's barrier: it finds the one of the other CTA itself",
            "leave ml.remote_view away",
        )
    return v


def remote_shmem_store(dst: buffered_tensor, src: tensor, remote_cta_rank: Any) -> None:
    """Write tile `src` into buffer `dst` of the CTA with that rank; done when this returns, visible there after a barrier."""
    b = current_builder("remote_shmem_store")
    v = as_buffer(dst, "remote_shmem_store")
    x = tile_for(src, memory_of(v), "remote_shmem_store")
    b.insert(RemoteStoreOp(v, x, scalar_i32(remote_cta_rank, "remote_shmem_store: remote_cta_rank"), loc=b.loc))


def async_remote_shmem_store(dst: buffered_tensor, src: tensor, remote_cta_rank: Any, barrier: mbarrier) -> None:
    """As `remote_shmem_store`, but the bytes count on `barrier` of that CTA, which expects them (`barrier_expect_bytes`)."""
    what = "async_remote_shmem_store"
    b = current_builder(what)
    v = as_buffer(dst, what)
    x = tile_for(src, memory_of(v), what)
    cta = scalar_i32(remote_cta_rank, f"{what}: remote_cta_rank")
    b.insert(AsyncRemoteStoreOp(v, x, cta, _own(barrier, what), loc=b.loc))


def async_remote_shmem_copy(
    dst: buffered_tensor, src: buffered_tensor, remote_cta_rank: Any, barrier: mbarrier
) -> None:
    """Copy buffer `src` into buffer `dst` of the CTA with that rank; the bytes count on `barrier` of that CTA."""
    what = "async_remote_shmem_copy"
    b = current_builder(what)
    d, s = as_buffer(dst, what), as_buffer(src, what)
    if (memory_of(d).shape, memory_of(d).dtype) != (memory_of(s).shape, memory_of(s).dtype):
        fail("shape-mismatch", f"{what}: {s.type} does not fit {d.type}")
    cta = scalar_i32(remote_cta_rank, f"{what}: remote_cta_rank")
    b.insert(AsyncRemoteCopyOp(d, s, cta, _own(barrier, what), loc=b.loc))
