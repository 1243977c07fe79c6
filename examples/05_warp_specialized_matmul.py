"""Matrix product of tasks: a producer that copies by TMA, and two consumers that multiply with wgmma. Hopper (sm_90a).

    python examples/05_warp_specialized_matmul.py

One program computes a tile of c. Its warps form three tasks that run different code side by side, over a ring of STAGES slots in shared memory:

    producer    for k:  wait until the slot is empty;  expect bytes on full;  start copying a[m, k], b[k, n]
                                  ^                                |
                        empty[slot]                                v  full[slot]
                                  |                                |
    consumers   for k:  <---- give back the slot before;  wait until the slot is full;  start acc += a @ b
                then:   acc -> shared memory -> c[m, n]

Both consumers multiply the same b by their own half of the rows of a, so that a slot is empty when both have given it back.
`with_pipeline` lets `ml.pipeline` keep slots and phases. `with_barriers` is the same protocol written out:

- `full[s]` completes a phase when the producer has arrived (`barrier_expect_bytes` arrives) *and* all the bytes that it announced are there.
- `empty[s]` completes a phase when both consumers have arrived.
- The i-th use of a slot has the phase i & 1: the consumers wait for full with it. The producer's i-th wait for empty is for the phase *before*, which
  the (i - 1)-th use completes; in the first round there is none, and a fresh barrier lets a wait for phase 1 pass. Hence phase ^ 1.
- A product stays in flight while the next slot is waited for: `async_dot_wait(1, ...)` says that the one *before* is done, and its slot goes back.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def store_tile(c, staging, acc, m, n):
    """A register tile to c by TMA. The fence orders the writes to shared memory before the copy that reads them."""
    ml.local_store(staging, acc.to(ml.dtype_of(c)))
    ml.fence_async_shared()
    ml.async_descriptor_store(c, staging, [m, n])
    ml.async_descriptor_store_wait(0)


@mimw.kernel
def with_pipeline(a, b, c, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr):
    rows: ml.constexpr = BM // 2
    pipe = ml.pipeline(STAGES, a=((BM, BK), ml.dtype_of(a)), b=((BK, BN), ml.dtype_of(b)), consumers=2)
    staging = ml.local_alloc((rows, BN), ml.dtype_of(c), 2)
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    with ml.async_tasks():
        with ml.async_task("default"):
            for k in range(0, K, BK):
                with pipe.produce() as slot:
                    ml.async_descriptor_load(a, slot.a, [m, k], slot.full)
                    ml.async_descriptor_load(b, slot.b, [k, n], slot.full)
        with ml.async_task(num_warps=4, replicate=2, name="consumer"):
            r: ml.constexpr = ml.async_task_replica_id()
            acc = ml.alloc_accumulator((rows, BN), ml.float32)
            for k in range(0, K, BK):
                slot = pipe.wait()
                left = ml.local_slice(slot.a, [r * rows, 0], [rows, BK])
                acc = ml.async_dot_wait(1, ml.async_dot(left, slot.b, acc))
                if k > 0:
                    pipe.release()  # the oldest slot held: the one before
            store_tile(c, staging[r], ml.async_dot_wait(0, acc), m + r * rows, n)


@mimw.kernel
def with_barriers(a, b, c, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr):
    rows: ml.constexpr = BM // 2
    a_ring = ml.local_alloc((BM, BK), ml.dtype_of(a), STAGES)
    b_ring = ml.local_alloc((BK, BN), ml.dtype_of(b), STAGES)
    staging = ml.local_alloc((rows, BN), ml.dtype_of(c), 2)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, 2)
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    with ml.async_tasks():
        with ml.async_task("default"):
            for step in range(ml.cdiv(K, BK)):
                slot, phase = ml.warp_spec.get_bufidx_phase(step, STAGES)
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                ml.async_descriptor_load(a, a_ring[slot], [m, step * BK], full[slot])
                ml.async_descriptor_load(b, b_ring[slot], [step * BK, n], full[slot])
        with ml.async_task(num_warps=4, replicate=2, name="consumer"):
            r: ml.constexpr = ml.async_task_replica_id()
            acc = ml.alloc_accumulator((rows, BN), ml.float32)
            for step in range(ml.cdiv(K, BK)):
                slot, phase = ml.warp_spec.get_bufidx_phase(step, STAGES)
                ml.barrier_wait(full[slot], phase)
                left = ml.local_slice(a_ring[slot], [r * rows, 0], [rows, BK])
                acc = ml.async_dot_wait(1, ml.async_dot(left, b_ring[slot], acc))
                if step > 0:
                    before, _ = ml.warp_spec.get_bufidx_phase(step - 1, STAGES)
                    ml.barrier_arrive(empty[before])
            store_tile(c, staging[r], ml.async_dot_wait(0, acc), m + r * rows, n)


CONSTANTS = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 4}


def plan(a, b, c, BM: int, BN: int, BK: int, **_):
    """(grid, arguments) for a: [M, K], b: [K, N], c: [M, N] with contiguous rows that start at multiples of 16 bytes."""
    (M, K), N = a.shape, b.shape[1]
    tensors = ((a, [BM, BK]), (b, [BK, BN]), (c, [BM // 2, BN]))
    return (mimw.cdiv(M, BM), mimw.cdiv(N, BN)), [*(mimw.TensorDescriptor.from_tensor(x, s) for x, s in tensors), K]


def matmul(a, b, c, kernel=with_pipeline, **constants):
    """c = a @ b for fp16 or bf16, any M, N, K of 1 or more, 2 STAGES or more; `plan` says more."""
    constants = CONSTANTS | constants
    grid, arguments = plan(a, b, c, **constants)
    kernel[grid](*arguments, **constants)
    return c


def main() -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    for name, kernel in (("pipeline", with_pipeline), ("barriers", with_barriers)):
        for dtype in (np.float16, ml_dtypes.bfloat16):
            for m, n, k in ((128, 128, 64), (200, 136, 392)):
                a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, k), (k, n)))
                c = matmul(a, b, np.full((m, n), np.nan, dtype), kernel)
                want = a.astype(np.float32) @ b.astype(np.float32)
                np.testing.assert_array_equal(c, want.astype(dtype))
                print(f"matmul with {name}, {np.dtype(dtype).name}: {m}x{n}x{k}, exact")


if __name__ == "__main__":
    main()
