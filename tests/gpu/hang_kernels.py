"""Kernels that hang when the number at `flag` is 0 and end when it is 1; compile-time checks cannot know which.

`CASES` says of each what the report must name. The line is the one with the case's name in a comment ``# hangs: NAME``.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def never_arrived(out, flag):
    good = ml.load(flag)
    full = ml.alloc_barriers(2, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(full[1], 0)  # hangs: never_arrived
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=1, name="producer"):
            if good == 1:
                ml.barrier_arrive(full[1])


@mimw.kernel
def wrong_phase(out, flag):
    good = ml.load(flag)
    full = ml.alloc_barriers(1, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(full[0], 0)
            ml.barrier_wait(full[0], 1 - good)  # hangs: wrong_phase
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=1, name="producer"):
            ml.barrier_arrive(full[0])


@mimw.kernel
def too_many_bytes(out, src, flag):
    good = ml.load(flag)
    buffer = ml.local_alloc((128,), ml.int32, 2)
    full = ml.alloc_barriers(1, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_expect_bytes(full[0], 1024)
            ml.async_load(src, buffer[0], bulk=True, bulk_size=512, barrier=full[0])
            if good == 1:
                ml.async_load(src, buffer[1], bulk=True, bulk_size=512, barrier=full[0])
        with ml.async_task(num_warps=4, name="consumer"):
            ml.barrier_wait(full[0], 0)  # hangs: too_many_bytes
            ml.store(out + ml.arange(0, 128), ml.local_load(buffer[0]))


@mimw.kernel
def named_count(out, flag):
    good = ml.load(flag)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.named_barrier_wait(9, 384)  # hangs: named_count
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=4, name="other"):
            ml.named_barrier_arrive(9, 384)
        with ml.async_task(num_warps=4, name="third"):
            if good == 1:
                ml.named_barrier_arrive(9, 384)


@mimw.kernel
def cycle(out, flag):
    good = ml.load(flag)
    x, y = ml.alloc_barriers(1, 1), ml.alloc_barriers(1, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            if good == 1:
                ml.barrier_arrive(x[0])
            ml.barrier_wait(y[0], 0)  # hangs: cycle
            if good == 0:
                ml.barrier_arrive(x[0])
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=4, name="other"):
            ml.barrier_wait(x[0], 0)
            ml.barrier_arrive(y[0])


@mimw.kernel
def arrive_count(out, flag):
    good = ml.load(flag)
    full = ml.alloc_barriers(3, 2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(3):
                ml.barrier_wait(full[i], 0)  # hangs: arrive_count
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=2, name="one"):
            for i in range(3):
                ml.barrier_arrive(full[i])
        with ml.async_task(num_warps=1, name="two"):
            for i in range(3):
                if (good == 1) | (i != 2):
                    ml.barrier_arrive(full[i])


@mimw.kernel
def cluster(out, flag):
    good = ml.load(flag)
    full = ml.alloc_barriers(1, 1)
    rank = ml.cluster_cta_rank()
    if rank == 1:
        ml.barrier_wait(full[0], 0)  # hangs: cluster
    elif good == 1:
        ml.barrier_arrive(full[0], 1, remote_cta_rank=1)
    ml.cluster_barrier()
    ml.store(out + ml.arange(0, 128), 1)


@mimw.kernel
def lost_slot(out, src, flag):
    """Each CTA copies half of every block to both. CTA 1's slots are never given back: all tasks come to wait, copies are under way."""
    good = ml.load(flag)
    blocks = ml.make_tensor_descriptor(src, [128, 128], [128, 1], [8, 128])
    ring = ml.local_alloc((16, 128), ml.int32, 2)
    full, empty = ml.alloc_barriers(2, 1), ml.alloc_barriers(2, 2)
    rank = ml.cluster_cta_rank()
    with ml.async_tasks():
        with ml.async_task("default"):
            total = ml.zeros((16, 128), ml.int32)
            for i in range(8):
                ml.barrier_wait(full[i % 2], i // 2)
                total += ml.local_load(ring[i % 2])
                ml.barrier_arrive(empty[i % 2], 1, remote_cta_rank=0)
                if good == 1:
                    ml.barrier_arrive(empty[i % 2], 1, remote_cta_rank=1)
            ml.store(out + ml.arange(0, 128), ml.where((ml.sum(total, 0) == 128) | (good == 0), 1, 0))
        with ml.async_task(num_warps=1, name="producer"):
            for i in range(8):
                ml.barrier_wait(empty[i % 2], (i // 2) ^ 1)  # hangs: lost_slot
                ml.barrier_expect_bytes(full[i % 2], 8192)
                for r in ml.static_range(2):
                    if rank == r:
                        half = ml.local_slice(ring[i % 2], [8 * r, 0], [8, 128])
                        ml.async_descriptor_load(
                            blocks, half, [16 * i + 8 * r, 0], full[i % 2], multicast_targets=[0, 1]
                        )


@mimw.kernel
def endless(out, flag):
    """Its loop only ends with the message of a task that does not come to send it: such a kernel must be stopped."""
    good = ml.load(flag)
    slot = ml.local_alloc((128,), ml.int32, 1)
    full = ml.alloc_barriers(1, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            more = good == 0
            trips = 0
            while more:
                ml.barrier_wait(full[0], 0)  # mimw: ignore[barrier-same-phase]  # hangs: endless
                trips += 1
                more = (trips > 0) & (good == 0)
            ml.store(out + ml.arange(0, 128), 1)
        with ml.async_task(num_warps=4, name="other"):
            if good == 1:
                ml.local_store(slot[0], ml.arange(0, 128))
                ml.barrier_arrive(full[0])


class Case:
    """One kernel: its grid, launch options, whether it takes a source array, and what a report says: task, barrier, slot, waiting warps."""

    def __init__(
        self,
        kernel: Any,
        grid: int,
        task: str,
        barrier: str,
        slot: int | None,
        warps: int,
        first_warp: int = 0,
        **options: Any,
    ) -> None:
        self.kernel, self.grid, self.task, self.barrier, self.slot, self.warps = (
            kernel,
            grid,
            task,
            barrier,
            slot,
            warps,
        )
        self.first_warp = first_warp
        self.options = options
        self.name: str = kernel.name

    def line(self) -> int:
        """Where it hangs, in this file."""
        text = inspect.getsource(inspect.getmodule(Case)).splitlines()  # type: ignore[arg-type]
        return next(i for i, row in enumerate(text, 1) if row.endswith(f"# hangs: {self.name}"))

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The array arguments, `out` first."""
        sizes = {"too_many_bytes": 128, "lost_slot": 128 * 128}
        source = [np.ones(sizes[self.name], np.int32)] if self.name in sizes else []
        return [np.zeros(128, np.int32), *source]


CASES = {
    case.name: case
    for case in (
        Case(never_arrived, 3, "default", "full", 1, 4),
        Case(wrong_phase, 3, "default", "full", 0, 4),
        Case(too_many_bytes, 2, "consumer", "full", 0, 4, 4),
        Case(named_count, 2, "default", "named barrier 9", None, 4),
        Case(cycle, 2, "default", "y", 0, 4),
        Case(arrive_count, 2, "default", "full", 2, 4),
        Case(lost_slot, 4, "producer", "empty", 0, 1, 4, ctas_per_cga=(2, 1, 1)),
        Case(cluster, 4, "", "full", 0, 4, ctas_per_cga=(2, 1, 1)),
    )
}
