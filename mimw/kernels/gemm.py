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

Both may add a bias (one number a column), scale, and apply an activation before they round. With SPLITS > 1, `gemm_cooperative` cuts K in
parts and leaves the parts' products below each other in a workspace; `sum_parts` adds them in order, so that a result is the same in every run.
`gemm_plain` takes what TMA cannot: any strides and addresses.

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
def part_of(item, tiles, K, BK: ml.constexpr, SPLITS: ml.constexpr):
    """Which part of K and which tile an item of work is; where that part begins and how long it is (the last may be shorter, or empty)."""
    if SPLITS == 1:
        return 0, item, 0, K
    most = ml.cdiv(ml.cdiv(K, BK), SPLITS) * BK
    start = item // tiles * most
    return item // tiles, item % tiles, start, ml.maximum(min(K - start, most), 0)


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
def finish(x, n, N, bias, scale, ACTIVATION: ml.constexpr):
    """ACTIVATION(scale * x + bias) of f32 columns from n on; bias and scale may be None."""
    if scale is not None:
        x = x * scale
    if bias is not None:
        columns = n + ml.arange(0, x.shape[1])
        x = x + ml.load(bias + columns, mask=columns < N, other=0.0).to(ml.float32)[None, :]
    if ACTIVATION == "relu":
        x = ml.maximum(x, 0.0, propagate_nan=ml.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + ml.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = 0.5 * x * (1.0 + ml.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "silu":
        x = x * ml.sigmoid(x)
    return x


@kernel
def store_columns(c, buffers, x, m, n, first, N, bias, scale, COLUMNS: ml.constexpr, ACTIVATION: ml.constexpr):
    """Finish a register tile and store it at (m, n) by TMA, COLUMNS at a time through the buffers in turn, from number `first` on.

    Tiles follow each other, so that a tile takes each buffer equally often.
    """
    if x.shape[1] > COLUMNS:
        left, right = left_and_right(x)
        middle: ml.constexpr = x.shape[1] // 2
        then: ml.constexpr = (first + middle // COLUMNS) % len(buffers)
        store_columns(c, buffers, left, m, n, first, N, bias, scale, COLUMNS, ACTIVATION)
        store_columns(c, buffers, right, m, n + middle, then, N, bias, scale, COLUMNS, ACTIVATION)
    else:
        ml.async_descriptor_store_wait(len(buffers) - 1)  # the last store from this buffer has read it
        ml.local_store(buffers[first], finish(x, n, N, bias, scale, ACTIVATION).to(ml.dtype_of(c)))
        ml.fence_async_shared()
        ml.async_descriptor_store(c, buffers[first], [m, n])


@kernel
def gemm_cooperative(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr,
    COLUMNS: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER: ml.constexpr,
    bias=None, scale=None, ACTIVATION: ml.constexpr = None, SPLITS: ml.constexpr = 1,
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
            for item in range(first, tiles_m * tiles_n * SPLITS, step):
                split, tile, start, length = part_of(item, tiles_m * tiles_n, K, BK, SPLITS)
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = (tile_m * CLUSTER + rank) * BM, tile_n * BN
                for k in range(start, start + length, BK):
                    ml.barrier_wait(empty[slot], phase)
                    ml.barrier_expect_bytes(full[slot], (BM + BN) * BK * ml.size_of(ml.dtype_of(a)))
                    copy_slot(
                        a, b, a_ring[slot], b_ring[slot], full[slot], m, n, k, rank, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER
                    )
                    slot, phase = following(slot, phase, STAGES)
        with ml.async_task(num_warps=4, num_regs=232, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            buffers = (staging[2 * r], staging[2 * r + 1]) if BN > COLUMNS else (staging[2 * r],)
            slot, phase = 0, 0
            for item in range(first, tiles_m * tiles_n * SPLITS, step):
                split, tile, start, length = part_of(item, tiles_m * tiles_n, K, BK, SPLITS)
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                acc, last, slot, phase = multiply(
                    a_ring, b_ring, full, empty, ml.alloc_accumulator((rows, BN), ml.float32), slot, phase, length, r * rows,
                    rows, BK, STAGES, A_BY_COLUMNS, B_BY_COLUMNS, CLUSTER,
                )  # fmt: skip
                acc = ml.async_dot_wait(0, acc)
                if length > 0:
                    release(empty[last], CLUSTER)
                m = ((split * tiles_m + tile_m) * CLUSTER + rank) * BM + r * rows
                store_columns(c, buffers, acc, m, tile_n * BN, 0, N, bias, scale, COLUMNS, ACTIVATION)
            ml.async_descriptor_store_wait(0)


@kernel
def gemm_pingpong(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, GROUP_M: ml.constexpr,
    COLUMNS: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER: ml.constexpr,
    bias=None, scale=None, ACTIVATION: ml.constexpr = None,
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
            buffers = (staging[2 * r], staging[2 * r + 1]) if BN > COLUMNS else (staging[2 * r],)
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
                m = (tile_m * CLUSTER + rank) * BM
                store_columns(c, buffers, acc, m, tile_n * BN, 0, N, bias, scale, COLUMNS, ACTIVATION)
                used, order = used + 2 * steps, order ^ 1
            ml.async_descriptor_store_wait(0)


@kernel
def sum_parts(
    parts, c, M, N, stride_parts, stride_row, stride_cm, stride_cn, bias, scale,
    SPLITS: ml.constexpr, ROWS: ml.constexpr, COLUMNS: ml.constexpr, ACTIVATION: ml.constexpr,
):  # fmt: skip
    """c = ACTIVATION(scale * (parts[0] + parts[1] + ...) + bias), summed in this order. Program (m, n) makes a block of ROWS x COLUMNS."""
    n = ml.program_id(1) * COLUMNS
    rows = (ml.program_id(0) * ROWS + ml.arange(0, ROWS)).to(ml.int64)
    columns = n + ml.arange(0, COLUMNS)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    at = parts + rows[:, None] * stride_row + columns[None, :]
    total = ml.load(at, mask=mask, other=0.0)
    for i in ml.static_range(1, SPLITS):
        total += ml.load(at + i * stride_parts, mask=mask, other=0.0)
    total = finish(total, n, N, bias, scale, ACTIVATION)
    ml.store(c + rows[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(c.dtype.element_ty), mask=mask)


@kernel
def gemm_plain(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, bias, scale,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, GROUP_M: ml.constexpr, ACTIVATION: ml.constexpr,
):  # fmt: skip
    """c = ACTIVATION(scale * (a @ b) + bias) through pointers: any strides and addresses, one tile a program."""
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
    acc = finish(acc, tile_n * BN, N, bias, scale, ACTIVATION)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    ml.store(c + rows[:, None] * stride_cm + columns[None, :] * stride_cn, acc.to(c.dtype.element_ty), mask=mask)
