# pyright: basic
"""Matrix products at the vendor library's speed, written only in the language.

Both kernels are persistent and warp-specialised: the default task copies operands ahead with TMA, two tasks of four warps multiply with wgmma.

`gemm_cooperative`: both consumers work on one tile, each on its rows.

    default    for k:  wait until a slot is free, start copying a[m, k] and b[k, n] into it
    consumers  for k:  wait until the slot is full, multiply, give back the slot before
               then:   accumulator -> shared memory -> TMA store, some columns at a time, while the next tile's copies run

`gemm_pingpong`: each consumer works on a tile of its own; one multiplies while the other stores.

    consumer 0  | multiply tile 0 | store tile 0    | multiply tile 2 | ...
    consumer 1                    | multiply tile 1 | store tile 1    | ...

With CLUSTER = 2, two CTAs take tiles that lie below each other: each copies half of b, to both (multicast), so that b crosses L2 once.
"""

from __future__ import annotations

import mimw.language as ml
from mimw.jit import kernel


@kernel
def tile_position(tile, tiles_m, tiles_n, GROUP_M: ml.constexpr):
    """Row and column of a tile: groups of GROUP_M rows, down the columns inside one, so that neighbours share operands in L2."""
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % per_group % rows, tile % per_group // rows


@kernel
def following(slot, phase, STAGES: ml.constexpr):
    """The next slot of a ring, and its phase."""
    last = slot == STAGES - 1
    return ml.where(last, 0, slot + 1), ml.where(last, phase ^ 1, phase)


@kernel
def copy_slot(
    a, b, a_slot, b_slot, full, m, n, k, rank,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER: ml.constexpr,
):  # fmt: skip
    """Start the copies of one slot: a's block, and b's block or, in a cluster, this CTA's half of it to both."""
    ml.async_descriptor_load(a, a_slot, [k, m] if A_BY_COLUMNS else [m, k], full)
    if CLUSTER == 1:
        ml.async_descriptor_load(b, b_slot, [n, k] if B_BY_COLUMNS else [k, n], full)
    else:
        rows: ml.constexpr = b_slot.shape[0] // 2
        columns: ml.constexpr = b_slot.shape[1]
        for r in ml.static_range(2):
            if rank == r:
                part = ml.local_slice(b_slot, [r * rows, 0], [rows, columns])
                at = [n + r * rows, k] if B_BY_COLUMNS else [k + r * rows, n]
                ml.async_descriptor_load(b, part, at, full, multicast_targets=[0, 1])


@kernel
def release(empty, CLUSTER: ml.constexpr):
    """Give a slot back to every CTA that copies into it."""
    if CLUSTER == 1:
        ml.barrier_arrive(empty)
    else:
        for r in ml.static_range(CLUSTER):
            ml.barrier_arrive(empty, 1, remote_cta_rank=r)


@kernel
def multiply(
    a_ring, b_ring, full, empty, acc, slot, phase, K, row,
    ROWS: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr,
    CLUSTER: ml.constexpr,
):  # fmt: skip
    """One tile's products, from the rows at `row` (a constant) of a's slots; one stays in flight. Gives the accumulator in flight and the next slot."""
    before = slot
    for k in range(0, K, BK):
        ml.barrier_wait(full[slot], phase)
        if A_BY_COLUMNS:
            left = ml.local_trans(ml.local_slice(a_ring[slot], [0, row], [BK, ROWS]))
        else:
            left = ml.local_slice(a_ring[slot], [row, 0], [ROWS, BK])
        right = ml.local_trans(b_ring[slot]) if B_BY_COLUMNS else b_ring[slot]
        acc = ml.async_dot_wait(1, ml.async_dot(left, right, acc))
        if k > 0:
            release(empty[before], CLUSTER)
        before = slot
        slot, phase = following(slot, phase, STAGES)
    return acc, before, slot, phase


@kernel
def left_and_right(x):
    """A tile's columns in two halves."""
    rows: ml.constexpr = x.shape[0]
    half: ml.constexpr = x.shape[1] // 2
    return x.reshape(rows, 2, half).permute(0, 2, 1).split()


@kernel
def store_columns(c, buffers, x, m, n, first, COLUMNS: ml.constexpr):
    """Store a register tile at (m, n) by TMA, COLUMNS at a time through the buffers in turn; `first` picks the one to begin with."""
    if x.shape[1] > COLUMNS:
        left, right = left_and_right(x)
        middle: ml.constexpr = x.shape[1] // 2
        store_columns(c, buffers, left, m, n, first, COLUMNS)
        store_columns(c, buffers, right, m, n + middle, (first + middle // COLUMNS) % len(buffers), COLUMNS)
    else:
        ml.async_descriptor_store_wait(len(buffers) - 1)  # the last store from this buffer has read it
        ml.local_store(buffers[first], x.to(ml.dtype_of(c)))
        ml.fence_async_shared()
        ml.async_descriptor_store(c, buffers[first], [m, n])


@kernel
def gemm_cooperative(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr,
    COLUMNS: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER: ml.constexpr,
):  # fmt: skip
    rows: ml.constexpr = BM // 2
    a_ring = ml.local_alloc((BK, BM) if A_BY_COLUMNS else (BM, BK), ml.dtype_of(a), STAGES)
    b_ring = ml.local_alloc((BN, BK) if B_BY_COLUMNS else (BK, BN), ml.dtype_of(b), STAGES)
    staging = ml.local_alloc((rows, COLUMNS), ml.dtype_of(c), 4)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, 2 * CLUSTER)
    rank = ml.cluster_cta_rank() if CLUSTER > 1 else 0
    first, step = ml.program_id(0) // CLUSTER, ml.num_programs(0) // CLUSTER
    tiles_m, tiles_n = ml.cdiv(M, BM * CLUSTER), ml.cdiv(N, BN)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=40):
            slot, phase = 0, 1
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = (tile_m * CLUSTER + rank) * BM, tile_n * BN
                for k in range(0, K, BK):
                    ml.barrier_wait(empty[slot], phase)
                    ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                    copy_slot(
                        a, b, a_ring[slot], b_ring[slot], full[slot], m, n, k, rank, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER
                    )
                    slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=232, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            buffers = (staging[2 * r], staging[2 * r + 1])
            slot, phase = 0, 0
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                acc, last, slot, phase = multiply(
                    a_ring, b_ring, full, empty, ml.alloc_accumulator((rows, BN), ml.float32), slot, phase, K, r * rows,
                    rows, BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER,
                )  # fmt: skip
                acc = ml.async_dot_wait(0, acc)
                if K > 0:
                    release(empty[last], CLUSTER)
                store_columns(c, buffers, acc, (tile_m * CLUSTER + rank) * BM + r * rows, tile_n * BN, 0, COLUMNS)
            ml.async_descriptor_store_wait(0)


@kernel
def gemm_pingpong(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr,
    COLUMNS: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER: ml.constexpr,
):  # fmt: skip
    a_ring = ml.local_alloc((BK, BM) if A_BY_COLUMNS else (BM, BK), ml.dtype_of(a), STAGES)
    b_ring = ml.local_alloc((BN, BK) if B_BY_COLUMNS else (BK, BN), ml.dtype_of(b), STAGES)
    staging = ml.local_alloc((BM, COLUMNS), ml.dtype_of(c), 4)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, CLUSTER)
    turn = ml.alloc_barriers(2, 1)
    rank = ml.cluster_cta_rank() if CLUSTER > 1 else 0
    first, step = ml.program_id(0) // CLUSTER, ml.num_programs(0) // CLUSTER
    tiles_m, tiles_n = ml.cdiv(M, BM * CLUSTER), ml.cdiv(N, BN)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=40):
            slot, phase = 0, 1
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = (tile_m * CLUSTER + rank) * BM, tile_n * BN
                for k in range(0, K, BK):
                    ml.barrier_wait(empty[slot], phase)
                    ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                    copy_slot(
                        a, b, a_ring[slot], b_ring[slot], full[slot], m, n, k, rank, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER
                    )
                    slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=232, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            buffers = (staging[2 * r], staging[2 * r + 1])
            steps = ml.cdiv(K, BK)
            used, order = r * steps, 1 - r  # slots that tiles before this one took; parity of this consumer's next turn
            for tile in range(first + r * step, tiles_m * tiles_n, 2 * step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                slot, phase = ml.warp_spec.get_bufidx_phase(used, STAGES)
                ml.barrier_wait(turn[r], order)
                acc, last, slot, phase = multiply(
                    a_ring, b_ring, full, empty, ml.alloc_accumulator((BM, BN), ml.float32), slot, phase, K, 0,
                    BM, BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER,
                )  # fmt: skip
                ml.barrier_arrive(turn[1 - r])
                acc = ml.async_dot_wait(0, acc)
                if K > 0:
                    release(empty[last], CLUSTER)
                store_columns(c, buffers, acc, (tile_m * CLUSTER + rank) * BM, tile_n * BN, 0, COLUMNS)
                used, order = used + 2 * steps, order ^ 1
            ml.async_descriptor_store_wait(0)
