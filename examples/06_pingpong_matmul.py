"""Matrix product of two consumers that take turns: one multiplies while the other stores. Hopper (sm_90a).

    python examples/06_pingpong_matmul.py

Persistent: a program computes tile after tile. Each consumer has every second tile to itself, and the tensor core to itself while it multiplies:

    producer    | copy tile 0     | copy tile 1     | copy tile 2     | ...        one ring of slots, in the order of the tiles
    consumer 0  | multiply tile 0 | store tile 0    | multiply tile 2 | ...
    consumer 1  |                 | multiply tile 1 | store tile 1    | ...
                                  ^                 ^
                            turn[1] arrives    turn[0] arrives

`turn[r]` completes a phase when the other consumer is through with its products. Consumer 1 waits for phase 0, 1, 0, ... of its barrier. Consumer 0 goes
first: it waits for phase 1, 0, 1, ..., the first of which passes on a fresh barrier. The turns are for speed (the two do not multiply, and then both
store, at the same time), and they are needed: a wait sees the parity of a phase only. Tile 1 begins 8 uses of the ring later, say, with 4 slots: that is
the third use of slot 0. Before its turn, consumer 1 would take the first use for it.

A consumer skips the slots of the other: `used` counts the slots that all tiles before its own have taken.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def multiply(
    a_ring, b_ring, full, empty, used, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr,
):  # fmt: skip
    """One tile's products, beginning at slot number `used`; the last may still be in flight, and its slot is not given back."""
    acc = ml.alloc_accumulator((BM, BN), ml.float32)
    for step in range(ml.cdiv(K, BK)):
        slot, phase = ml.warp_spec.get_bufidx_phase(used + step, STAGES)
        ml.barrier_wait(full[slot], phase)
        acc = ml.async_dot_wait(1, ml.async_dot(a_ring[slot], b_ring[slot], acc))
        if step > 0:
            ml.barrier_arrive(empty[(used + step - 1) % STAGES])
    return acc


@mimw.kernel
def matmul_kernel(
    a, b, c, M, N, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr
):  # fmt: skip
    a_ring = ml.local_alloc((BM, BK), ml.dtype_of(a), STAGES)
    b_ring = ml.local_alloc((BK, BN), ml.dtype_of(b), STAGES)
    staging = ml.local_alloc((BM, BN), ml.dtype_of(c), 2)
    full, empty, turn = ml.alloc_barriers(STAGES), ml.alloc_barriers(STAGES), ml.alloc_barriers(2)
    first, step = ml.program_id(0), ml.num_programs(0)
    tiles_n = ml.cdiv(N, BN)
    tiles = ml.cdiv(M, BM) * tiles_n
    with ml.async_tasks():
        with ml.async_task("default", num_regs=40):
            used = 0
            for tile in range(first, tiles, step):
                m, n = tile // tiles_n * BM, tile % tiles_n * BN
                for k in range(0, K, BK):
                    slot, phase = ml.warp_spec.get_bufidx_phase(used, STAGES)
                    ml.barrier_wait(empty[slot], phase ^ 1)
                    ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                    ml.async_descriptor_load(a, a_ring[slot], [m, k], full[slot])
                    ml.async_descriptor_load(b, b_ring[slot], [k, n], full[slot])
                    used += 1
        with ml.async_task(num_warps=4, num_regs=232, replicate=2, name="consumer"):
            r: ml.constexpr = ml.async_task_replica_id()
            steps = ml.cdiv(K, BK)
            used, phase = r * steps, 1 - r
            for tile in range(first + r * step, tiles, 2 * step):
                ml.barrier_wait(turn[r], phase)
                acc = multiply(a_ring, b_ring, full, empty, used, K, BM, BN, BK, STAGES)
                ml.barrier_arrive(
                    turn[1 - r]
                )  # the other's products may start: behind the last of ours in the tensor core
                acc = ml.async_dot_wait(0, acc)
                if K > 0:
                    ml.barrier_arrive(empty[(used + steps - 1) % STAGES])
                ml.async_descriptor_store_wait(0)  # the store of the tile before has read the buffer
                ml.local_store(staging[r], acc.to(ml.dtype_of(c)))
                ml.fence_async_shared()
                ml.async_descriptor_store(c, staging[r], [tile // tiles_n * BM, tile % tiles_n * BN])
                used, phase = used + 2 * steps, phase ^ 1
            ml.async_descriptor_store_wait(0)


CONSTANTS = {"BM": 64, "BN": 128, "BK": 64, "STAGES": 4}


def plan(a, b, c, programs: int, BM: int, BN: int, BK: int, **_):
    """(grid, arguments) for a: [M, K], b: [K, N], c: [M, N] with contiguous rows that start at multiples of 16 bytes."""
    (M, K), N = a.shape, b.shape[1]
    tensors = ((a, [BM, BK]), (b, [BK, BN]), (c, [BM, BN]))
    descriptors = [mimw.TensorDescriptor.from_tensor(x, block) for x, block in tensors]
    return (min(programs, mimw.cdiv(M, BM) * mimw.cdiv(N, BN)),), [*descriptors, M, N, K]


def matmul(a, b, c, programs: int = 132, **constants):
    """c = a @ b for fp16 or bf16, any M, N, K of 1 or more, by up to `programs` programs (one a multiprocessor). 2 STAGES or more; `plan` says more."""
    constants = CONSTANTS | constants
    grid, arguments = plan(a, b, c, programs, **constants)
    matmul_kernel[grid](*arguments, **constants)
    return c


def main() -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        for m, n, k, programs in ((64, 128, 64, 1), (200, 264, 392, 2), (320, 128, 64, 1)):
            a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
            c = matmul(a, b, np.full((m, n), np.nan, dtype), programs)
            want = a.astype(np.float32) @ b.astype(np.float32)
            np.testing.assert_array_equal(c, want.astype(dtype))
            print(f"ping-pong matmul, {np.dtype(dtype).name}: {m}x{n}x{k} by {programs} programs, exact")


if __name__ == "__main__":
    main()
