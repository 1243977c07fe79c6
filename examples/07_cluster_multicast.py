"""Matrix product in clusters of two CTAs: each copies half of b's block, to both, so that b is read once. Hopper (sm_90a).

    python examples/07_cluster_multicast.py

The two CTAs of a cluster compute tiles of c that lie below each other. They need different blocks of a and the same block of b:

                        b[k, n], upper half      b[k, n], lower half
                                |   \\                /   |
    CTA 0: producer copies it   |     \\            /     |   CTA 1: producer copies it
                                v       \\        /       v
    slot of CTA 0:  a[m0, k]  [upper]     [lower][upper]     [lower]  a[m1, k]  :slot of CTA 1
                    full: all bytes of the own slot, whoever copies them

- Each CTA's `full[s]` expects all bytes of its own slot. A multicast copy writes the same place in both CTAs and counts on both barriers.
- A slot may be overwritten when it is free in *both* CTAs, since both producers write into both. So each consumer gives its slot back twice:
  to the own producer and to the other one (`remote_cta_rank`), and `empty[s]` takes 2 arrivals.
- The compiler lets both CTAs meet after the barriers are initialised, and at the end, so that none leaves while the other still writes to it.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def copy_half(b, buffer, full, rank, k, n, BK: ml.constexpr, BN: ml.constexpr):
    """This CTA's half of b's block, to both CTAs. Where the half lies in the buffer must be a constant, so each rank has its own copy."""
    half: ml.constexpr = BK // 2
    for r in ml.static_range(2):
        if rank == r:
            part = ml.local_slice(buffer, [r * half, 0], [half, BN])
            ml.async_descriptor_load(b, part, [k + r * half, n], full, multicast_targets=[0, 1])


@mimw.kernel
def give_back(empty):
    """To the producers of both CTAs."""
    for r in ml.static_range(2):
        ml.barrier_arrive(empty, 1, remote_cta_rank=r)


@mimw.kernel
def matmul_kernel(a, b, c, N, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr):
    a_ring = ml.local_alloc((BM, BK), ml.dtype_of(a), STAGES)
    b_ring = ml.local_alloc((BK, BN), ml.dtype_of(b), STAGES)
    staging = ml.local_alloc((BM, BN), ml.dtype_of(c), 1)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, 2)
    rank = ml.cluster_cta_rank()
    pair, tiles_n = ml.program_id(0) // 2, ml.cdiv(N, BN)
    m, n = (pair // tiles_n * 2 + rank) * BM, pair % tiles_n * BN
    with ml.async_tasks():
        with ml.async_task("default"):
            for step in range(ml.cdiv(K, BK)):
                slot, phase = ml.warp_spec.get_bufidx_phase(step, STAGES)
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                ml.async_descriptor_load(a, a_ring[slot], [m, step * BK], full[slot])
                copy_half(b, b_ring[slot], full[slot], rank, step * BK, n, BK, BN)
        with ml.async_task(num_warps=4, name="consumer"):
            acc = ml.alloc_accumulator((BM, BN), ml.float32)
            for step in range(ml.cdiv(K, BK)):
                slot, phase = ml.warp_spec.get_bufidx_phase(step, STAGES)
                ml.barrier_wait(full[slot], phase)
                acc = ml.async_dot_wait(1, ml.async_dot(a_ring[slot], b_ring[slot], acc))
                if step > 0:
                    give_back(empty[(step - 1) % STAGES])
            ml.local_store(staging[0], ml.async_dot_wait(0, acc).to(ml.dtype_of(c)))
            ml.fence_async_shared()
            ml.async_descriptor_store(c, staging[0], [m, n])
            ml.async_descriptor_store_wait(0)


CONSTANTS = {"BM": 64, "BN": 128, "BK": 64, "STAGES": 4}


def plan(a, b, c, BM: int, BN: int, BK: int, **_):
    """(grid, arguments) for a: [M, K], b: [K, N], c: [M, N] with contiguous rows that start at multiples of 16 bytes."""
    (M, K), N = a.shape, b.shape[1]
    tensors = ((a, [BM, BK]), (b, [BK // 2, BN]), (c, [BM, BN]))
    descriptors = [mimw.TensorDescriptor.from_tensor(x, block) for x, block in tensors]
    return (2 * mimw.cdiv(M, 2 * BM) * mimw.cdiv(N, BN),), [*descriptors, N, K]


def matmul(a, b, c, **constants):
    """c = a @ b for fp16 or bf16, any M, N, K of 1 or more, 2 STAGES or more; `plan` says more."""
    constants = CONSTANTS | constants
    grid, arguments = plan(a, b, c, **constants)
    matmul_kernel[grid](*arguments, **constants, ctas_per_cga=(2, 1, 1))
    return c


def main() -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        for m, n, k in ((128, 128, 64), (200, 264, 392)):
            a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
            c = matmul(a, b, np.full((m, n), np.nan, dtype))
            want = a.astype(np.float32) @ b.astype(np.float32)
            np.testing.assert_array_equal(c, want.astype(dtype))
            print(f"matmul in clusters of 2, {np.dtype(dtype).name}: {m}x{n}x{k}, exact")


if __name__ == "__main__":
    main()
