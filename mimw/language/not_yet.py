"""Names of the language that have no meaning here yet: using one is a clear error at the user's line."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.language.semantic import fail

_ATOMICS = "atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor"
_TRITON = (
    "dot_scaled make_block_ptr advance make_tensor_descriptor load_tensor_descriptor "
    "store_tensor_descriptor tensor_descriptor "
    "gather histogram sort topk flip rand randn randint rand4x randint4x inline_asm_elementwise "
    "map_elementwise debug_barrier "
    "squeeze unsqueeze float8e4b15 float8e4b8 float8e5b16 condition parallel_range"
)
_TLX = (
    "async_tasks async_task async_task_replica_id alloc_barriers alloc_warp_barrier barrier_expect_bytes "
    "barrier_wait barrier_arrive "
    "named_barrier_wait named_barrier_arrive cluster_barrier fence fence_async_shared "
    "fence_mbarrier_init_cluster local_alloc "
    "local_view local_slice subslice local_reinterpret local_reshape local_trans local_load local_store "
    "local_gather local_scatter "
    "storage_kind storage_alias_spec reuse_group tmem_copy remote_view remote_shmem_store async_remote_shmem_store "
    "async_remote_shmem_copy async_load async_load_commit_group async_load_wait_group async_store "
    "async_descriptor_load "
    "async_descriptor_store async_descriptor_store_wait async_descriptor_prefetch_tensor allocate_tensor_descriptor "
    "reinterpret_tensor_descriptor update_tensor_descriptor async_dot async_dot_scaled async_dot_wait "
    "tcgen05_commit cluster_cta_rank "
    "cluster_size_1d clc_create_context clc_producer clc_consumer alloc_accumulator thread_id dtype_of size_of "
    "warp_pipeline_stage release_layout require_layout dump_layout prefetch warp_any warp_redux num_warps"
)

FEATURES: dict[str, str] = {
    **dict.fromkeys(_ATOMICS.split(), "atomics are"),
    **dict.fromkeys(_TRITON.split(), "it is"),
    **dict.fromkeys(_TLX.split(), "tasks, barriers and asynchronous copies are"),
}
"""Known names to what their error says is missing."""


class NotYet:
    """Stands for a name of the language that is not there yet; any use is refused."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse(self.name)


def refuse(name: str) -> Any:
    """Raise the error for a name that is not there yet."""
    fail("not-yet", f"ml.{name}: {FEATURES[name]} not there yet")


def find(name: str) -> NotYet:
    """The stand-in for a known name; inside a kernel the error at once. AttributeError for unknown names."""
    if name not in FEATURES:
        raise AttributeError(name)
    try:
        current_builder()
    except Exception:
        return NotYet(name)
    return refuse(name)
