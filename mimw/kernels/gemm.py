# pyright: basic
"""Matrix products at the vendor library's speed, written only in the language.

`gemm_ws` is persistent and warp-specialised: one task copies operands ahead with TMA, `CONSUMERS` tasks multiply by wgmma, each its own rows of the tile.

    CTA     task       one tile after another
    ------  ---------  ----------------------------------------------------------------------------
            default    for k:  wait until a slot is free, start copying a[m, k] and b[k, n] into it
            consumer   for k:  wait until the slot is full, multiply, give back the slot before
                       then:   accumulator -> shared memory -> TMA store, 64 columns at a time,
                               while the next tile's copies already run

`matmul(a, b)` picks a configuration by shape.
"""

from __future__ import annotations

from typing import Any

import mimw.language as ml
from mimw.jit import Kernel, cdiv, kernel
from mimw.runtime.tensor_descriptor import TensorDescriptor


@kernel
def tile_position(tile, tiles_m, tiles_n, GROUP_M: ml.constexpr):
    """Row and column of a tile: groups of GROUP_M rows, down the columns inside one, so that neighbours share operands in L2."""
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + tile % per_group % rows, tile % per_group // rows


@kernel
def left_and_right(x):
    """A tile's columns in two halves."""
    rows: ml.constexpr = x.shape[0]
    half: ml.constexpr = x.shape[1] // 2
    return x.reshape(rows, 2, half).permute(0, 2, 1).split()


@kernel
def store_columns(c, buffers, x, m, n, first, COLUMNS: ml.constexpr):
    """Store a register tile at (m, n) by TMA, COLUMNS at a time through two buffers in turn; `first` picks the one to begin with."""
    if x.shape[1] > COLUMNS:
        left, right = left_and_right(x)
        store_columns(c, buffers, left, m, n, first, COLUMNS)
        store_columns(c, buffers, right, m, n + x.shape[1] // 2, (first + x.shape[1] // 2 // COLUMNS) % 2, COLUMNS)
    else:
        ml.async_descriptor_store_wait(1)  # the store before last has read its buffer
        ml.local_store(buffers[first], x.to(ml.dtype_of(c)))
        ml.fence_async_shared()
        ml.async_descriptor_store(c, buffers[first], [m, n])


@kernel
def gemm_ws(
    a, b, c, M, N, K,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, STAGES: ml.constexpr, CONSUMERS: ml.constexpr,
    GROUP_M: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, COLUMNS: ml.constexpr,
):  # fmt: skip
    rows: ml.constexpr = BM // CONSUMERS
    a_shape: ml.constexpr = (BK, BM) if A_BY_COLUMNS else (BM, BK)
    b_shape: ml.constexpr = (BN, BK) if B_BY_COLUMNS else (BK, BN)
    pipe = ml.pipeline(STAGES, a=(a_shape, ml.dtype_of(a)), b=(b_shape, ml.dtype_of(b)), consumers=CONSUMERS)
    staging = ml.local_alloc((rows, COLUMNS), ml.dtype_of(c), 2 * CONSUMERS)
    tiles_m, tiles_n = ml.cdiv(M, BM), ml.cdiv(N, BN)
    with ml.async_tasks():
        with ml.async_task("default", num_regs=40):
            for tile in range(ml.program_id(0), tiles_m * tiles_n, ml.num_programs(0)):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                m, n = tile_m * BM, tile_n * BN
                for k in range(0, K, BK):
                    with pipe.produce() as s:
                        ml.async_descriptor_load(a, s.a, [k, m] if A_BY_COLUMNS else [m, k], s.full)
                        ml.async_descriptor_load(b, s.b, [n, k] if B_BY_COLUMNS else [k, n], s.full)
        with ml.async_task(num_warps=4, num_regs=232, replicate=CONSUMERS):
            row: ml.constexpr = ml.async_task_replica_id() * rows
            mine: ml.constexpr = ml.async_task_replica_id() * 2
            buffers = (staging[mine], staging[mine + 1])
            for tile in range(ml.program_id(0), tiles_m * tiles_n, ml.num_programs(0)):
                tile_m, tile_n = tile_position(tile, tiles_m, tiles_n, GROUP_M)
                acc = ml.alloc_accumulator((rows, BN), ml.float32)
                for k in range(0, K, BK):
                    s = pipe.wait()
                    if A_BY_COLUMNS:
                        left = ml.local_trans(ml.local_slice(s.a, [0, row], [BK, rows]))
                    else:
                        left = ml.local_slice(s.a, [row, 0], [rows, BK])
                    right = ml.local_trans(s.b) if B_BY_COLUMNS else s.b
                    acc = ml.async_dot_wait(1, ml.async_dot(left, right, acc))
                    if k > 0:
                        pipe.release()
                acc = ml.async_dot_wait(0, acc)
                if K > 0:
                    pipe.release()
                store_columns(c, buffers, acc, tile_m * BM + row, tile_n * BN, 0, COLUMNS)
            ml.async_descriptor_store_wait(0)
