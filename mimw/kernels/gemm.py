# pyright: basic
"""Matrix products at the vendor library's speed, written only in the language. What the kernels share: `gemm_parts`.

All but `gemm_plain` are warp-specialised: the default task copies operands ahead with TMA, tasks of four warps multiply with wgmma. The first two are
persistent.

`gemm_cooperative`: two consumers work on one tile, each on its rows.

    default    for k:  wait until a slot is free, start copying a[m, k] and b[k, n] into it
    consumers  for k:  wait until the slot is full, multiply, give back the slot before
               then:   accumulator -> shared memory -> TMA store, some columns at a time, while the next tile's copies run

`gemm_pingpong`: each consumer works on a tile of its own; one multiplies while the other stores.

    consumer 0  | multiply tile 0 | store tile 0    | multiply tile 2 | ...
    consumer 1                    | multiply tile 1 | store tile 1    | ...

`gemm_split`: for products with few tiles. Several CTAs share one tile, each multiplies a part of K and leaves its products in a workspace; the one
that comes last adds them all, always in the same order: results are the same in every run. No CTA waits for another.

    CTA 0  | a[:, 0:K/2] @ b[0:K/2, :]  | part 0 -> workspace, count |
    CTA 1  | a[:, K/2:]  @ b[K/2:, :]   | part 1 -> workspace, count | last: part 0 + part 1 -> c

`gemm_plain` takes what TMA cannot: any strides and addresses.

Tiles of `gemm_cooperative` and `gemm_pingpong` have rows in steps of 64 (a consumer's) and columns in steps of 8. Where other steps fit better, the
transposed product is computed: c.T = b.T @ a.T, with c dense along columns (C_BY_COLUMNS) and a bias by rows.

All may scale, add a bias (one number a column), apply an activation, and add a residual (a matrix like c) before they round. With CLUSTER_M = 2, two CTAs take
tiles that lie below each other: each copies half of b, to both (multicast), so that b crosses L2 once; with CLUSTER_N = 2 the same for a and tiles
beside each other.
"""

from __future__ import annotations

import mimw.language as ml
from mimw.jit import kernel
from mimw.kernels.gemm_parts import (
    copy_slot,
    cta_position,
    finish,
    following,
    multiply,
    ring,
    settle,
    store_buffers,
    store_columns,
    store_part,
    tile_position,
)


@kernel
def gemm_cooperative(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr, COLUMNS: ml.constexpr, BUFFERS: ml.constexpr,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr,
    bias=None, scale=None, residual=None, stride_rm=None, stride_rn=None, ACTIVATION: ml.constexpr = None, PRECISE: ml.constexpr = False,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1, C_BY_COLUMNS: ml.constexpr = False, BIAS_BY_ROWS: ml.constexpr = False,
    SIDE_BY_SIDE: ml.constexpr = False,
):  # fmt: skip
    rows: ml.constexpr = BM if SIDE_BY_SIDE else BM // 2
    columns: ml.constexpr = BN // 2 if SIDE_BY_SIDE else BN
    a_ring, b_ring = ring(a, BM, BK, STAGES, A_BY_COLUMNS), ring(b, BK, BN, STAGES, B_BY_COLUMNS)
    staging = store_buffers(c, rows, COLUMNS, C_BY_COLUMNS, BUFFERS)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, 2 * (CLUSTER_M + CLUSTER_N - 1))
    rank_m, rank_n = cta_position(CLUSTER_M, CLUSTER_N)
    first, step = ml.program_id(0) // (CLUSTER_M * CLUSTER_N), ml.num_programs(0) // (CLUSTER_M * CLUSTER_N)
    tiles_m, tiles_n = ml.cdiv(M, BM * CLUSTER_M), ml.cdiv(N, BN * CLUSTER_N)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=24):
            slot, phase = 0, 1
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = (tile_m * CLUSTER_M + rank_m) * BM, (tile_n * CLUSTER_N + rank_n) * BN
                for k in range(0, K, BK):
                    ml.barrier_wait(empty[slot], phase)
                    copy_slot(
                        a, b, a_ring[slot], b_ring[slot], full[slot], m, n, k, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER_M, CLUSTER_N
                    )  # fmt: skip
                    slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=240, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            row: ml.constexpr = 0 if SIDE_BY_SIDE else r * rows
            column: ml.constexpr = r * columns if SIDE_BY_SIDE else 0
            slot, phase = 0, 0
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                acc, last, slot, phase = multiply(
                    a_ring, b_ring, full, empty, ml.alloc_accumulator((rows, columns), ml.float32), slot, phase, K, row, column,
                    BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER_M, CLUSTER_N, PRECISE,
                )  # fmt: skip
                acc = settle(acc, empty, last, K, CLUSTER_M, CLUSTER_N, PRECISE)
                m, n = (tile_m * CLUSTER_M + rank_m) * BM + row, (tile_n * CLUSTER_N + rank_n) * BN + column
                store_columns(
                    c, staging, BUFFERS * r, acc, m, n, M, N, bias, scale, residual, stride_rm, stride_rn,
                    COLUMNS, BUFFERS, C_BY_COLUMNS, ACTIVATION, STEP_M, STEP_N, BIAS_BY_ROWS,
                )  # fmt: skip
            ml.async_descriptor_store_wait(0)


@kernel
def gemm_pingpong(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr, COLUMNS: ml.constexpr, BUFFERS: ml.constexpr,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr,
    bias=None, scale=None, residual=None, stride_rm=None, stride_rn=None, ACTIVATION: ml.constexpr = None, PRECISE: ml.constexpr = False,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1, C_BY_COLUMNS: ml.constexpr = False, BIAS_BY_ROWS: ml.constexpr = False,
):  # fmt: skip
    a_ring, b_ring = ring(a, BM, BK, STAGES, A_BY_COLUMNS), ring(b, BK, BN, STAGES, B_BY_COLUMNS)
    staging = store_buffers(c, BM, COLUMNS, C_BY_COLUMNS, BUFFERS)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, CLUSTER_M + CLUSTER_N - 1)
    turn = ml.alloc_barriers(2, 1)
    rank_m, rank_n = cta_position(CLUSTER_M, CLUSTER_N)
    first, step = ml.program_id(0) // (CLUSTER_M * CLUSTER_N), ml.num_programs(0) // (CLUSTER_M * CLUSTER_N)
    tiles_m, tiles_n = ml.cdiv(M, BM * CLUSTER_M), ml.cdiv(N, BN * CLUSTER_N)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=24):
            slot, phase = 0, 1
            for tile in range(first, tiles_m * tiles_n, step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = (tile_m * CLUSTER_M + rank_m) * BM, (tile_n * CLUSTER_N + rank_n) * BN
                for k in range(0, K, BK):
                    ml.barrier_wait(empty[slot], phase)
                    copy_slot(
                        a, b, a_ring[slot], b_ring[slot], full[slot], m, n, k, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER_M, CLUSTER_N
                    )  # fmt: skip
                    slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=240, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            steps = ml.cdiv(K, BK)
            used, order = r * steps, 1 - r  # slots that tiles before this one took; parity of this consumer's next turn
            for tile in range(first + r * step, tiles_m * tiles_n, 2 * step):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                slot, phase = ml.warp_spec.get_bufidx_phase(used, STAGES)
                ml.barrier_wait(turn[r], order)
                acc, last, slot, phase = multiply(
                    a_ring, b_ring, full, empty, ml.alloc_accumulator((BM, BN), ml.float32), slot, phase, K, 0, 0,
                    BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER_M, CLUSTER_N, PRECISE,
                )  # fmt: skip
                ml.barrier_arrive(turn[1 - r])
                acc = settle(acc, empty, last, K, CLUSTER_M, CLUSTER_N, PRECISE)
                m, n = (tile_m * CLUSTER_M + rank_m) * BM, (tile_n * CLUSTER_N + rank_n) * BN
                store_columns(
                    c, staging, BUFFERS * r, acc, m, n, M, N, bias, scale, residual, stride_rm, stride_rn,
                    COLUMNS, BUFFERS, C_BY_COLUMNS, ACTIVATION, STEP_M, STEP_N, BIAS_BY_ROWS,
                )  # fmt: skip
                used, order = used + 2 * steps, order ^ 1
            ml.async_descriptor_store_wait(0)


@kernel
def gemm_split(
    a, b, c, parts, counters, M, N, K, stride_cm, stride_cn,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr, SPLITS: ml.constexpr,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr,
    bias=None, scale=None, residual=None, stride_rm=None, stride_rn=None, ACTIVATION: ml.constexpr = None, PRECISE: ml.constexpr = False,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1,
):  # fmt: skip
    workers: ml.constexpr = 2 if BM > 64 else 1
    rows: ml.constexpr = BM // workers
    a_ring, b_ring = ring(a, BM, BK, STAGES, A_BY_COLUMNS), ring(b, BK, BN, STAGES, B_BY_COLUMNS)
    full, empty = ml.alloc_barriers(STAGES, 1), ml.alloc_barriers(STAGES, workers)
    tile, split = ml.program_id(0) // SPLITS, ml.program_id(0) % SPLITS
    tile_m, tile_n = tile_position(tile, ml.cdiv(M, BM), ml.cdiv(N, BN), GROUP_M)
    share = ml.cdiv(ml.cdiv(K, BK), SPLITS) * BK
    start = split * share
    length = ml.maximum(min(K - start, share), 0)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=40):
            slot, phase = 0, 1
            for k in range(start, start + length, BK):
                ml.barrier_wait(empty[slot], phase)
                copy_slot(
                    a, b, a_ring[slot], b_ring[slot], full[slot], tile_m * BM, tile_n * BN, k, A_BY_COLUMNS, B_BY_COLUMNS, 1, 1
                )  # fmt: skip
                slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=232, replicate=workers):
            r: ml.constexpr = ml.async_task_replica_id()
            acc, last, _slot, _phase = multiply(
                a_ring, b_ring, full, empty, ml.alloc_accumulator((rows, BN), ml.float32), 0, 0, length, r * rows, 0,
                BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, 1, 1, PRECISE,
            )  # fmt: skip
            acc = settle(acc, empty, last, length, 1, 1, PRECISE)
            here = (tile * workers + r) * SPLITS
            place = parts + ml.arange(0, rows)[:, None] * BN + ml.arange(0, BN)[None, :]
            ml.store(place + (here + split).to(ml.int64) * (rows * BN), acc)
            if ml.atomic_add(counters + tile * workers + r, 1) == SPLITS - 1:
                total = ml.load(place + here.to(ml.int64) * (rows * BN))
                for other in range(1, SPLITS):
                    total += ml.load(place + (here + other).to(ml.int64) * (rows * BN))
                # Beside a residual, some columns at a time: both would not fit into the registers.
                columns: ml.constexpr = BN if residual is None else min(BN, 64)
                for i in ml.static_range(BN // columns):
                    part = ml.extract_slice(total, [0, i * columns], [rows, columns])
                    store_part(
                        c, part, tile_m * BM + r * rows, tile_n * BN + i * columns, M, N, stride_cm, stride_cn,
                        bias, scale, residual, stride_rm, stride_rn, ACTIVATION, STEP_M, STEP_N,
                    )  # fmt: skip
                ml.store(counters + tile * workers + r, 0)  # for the next launch


@kernel
def gemm_plain(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, GROUP_M: ml.constexpr,
    bias=None, scale=None, residual=None, stride_rm=None, stride_rn=None, ACTIVATION: ml.constexpr = None,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1,
):  # fmt: skip
    """c = ACTIVATION(scale * (a @ b) + bias) + residual through pointers: any strides and addresses, one tile a program."""
    tile_m, tile_n = tile_position(ml.program_id(0), ml.cdiv(M, BM), ml.cdiv(N, BN), GROUP_M)
    rows = (tile_m * BM + ml.arange(0, BM)).to(ml.int64)
    columns = (tile_n * BN + ml.arange(0, BN)).to(ml.int64)
    ks = ml.arange(0, BK)
    a_at = a + rows[:, None] * stride_am + ks[None, :].to(ml.int64) * stride_ak
    b_at = b + ks[:, None].to(ml.int64) * stride_bk + columns[None, :] * stride_bn
    acc = ml.zeros((BM, BN), dtype=ml.float32)
    for k in range(0, K, BK):
        left = ml.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        right = ml.load(b_at, mask=(ks[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        acc = ml.dot(left, right, acc)
        a_at += BK * stride_ak
        b_at += BK * stride_bk
    acc = finish(
        acc, tile_m * BM, tile_n * BN, M, N, bias, scale, residual, stride_rm, stride_rn, ACTIVATION, STEP_M, STEP_N
    )  # fmt: skip
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    ml.store(c + rows[:, None] * stride_cm + columns[None, :] * stride_cn, acc.to(c.dtype.element_ty), mask=mask)
