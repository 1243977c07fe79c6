"""Copies that run ahead: a ring of buffers in shared memory, filled by cp.async, by TMA, and in bulk.

    python examples/04_async_copy.py

`sums_by_threads` and `sums_by_tma` add up the rows of a matrix; each program streams one band of rows, block by block:

    block              0        1        2        3        4
    copies             ======   ======   ======   ======   ======      STAGES - 1 blocks ahead
    sums                             [0]      [1]      [2]      [3]
    slot (3 stages)    0        1        2        0        1

cp.async (sm_80 and later): the threads that compute also copy, element by element, under a mask. Copies are closed into groups
(`async_load_commit_group`); `async_load_wait_group(n)` waits until at most n groups are unfinished, oldest first. That block i may overwrite the slot
which block i - STAGES was read from needs a barrier of all threads: the compiler puts it there.

TMA (sm_90 and later): one instruction copies a block. It counts its bytes on a barrier: `barrier_expect_bytes` says how many will come,
`barrier_wait` waits for phase 0, 1, 0, 1, ... of the slot. What lies outside of the matrix reads as zero, so that no mask is needed.

Bulk copies (`gather`): as TMA, for contiguous bytes at a plain pointer.
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def start(x_ptr, ring, block, rows, M, N, stride, BN: ml.constexpr, STAGES: ml.constexpr):
    """Start copying a block into its slot. Blocks behind the last one copy nothing; their groups are counted all the same."""
    columns = block * BN + ml.arange(0, BN)
    where = x_ptr + rows[:, None] * stride + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    ml.async_load(where, ring[block % STAGES], mask=mask, other=0.0)
    ml.async_load_commit_group()


@mimw.kernel
def sums_by_threads(
    x_ptr, out_ptr, M, N, stride, BM: ml.constexpr, BN: ml.constexpr, STAGES: ml.constexpr
):  # fmt: skip
    ring = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), STAGES)
    rows = ml.program_id(0) * BM + ml.arange(0, BM)
    for block in ml.static_range(STAGES - 1):
        start(x_ptr, ring, block, rows, M, N, stride, BN, STAGES)
    total = ml.zeros((BM,), ml.float32)
    for block in range(ml.cdiv(N, BN)):
        ml.async_load_wait_group(STAGES - 2)  # of the STAGES - 1 groups under way, the oldest is this block's
        tile = ml.local_load(ring[block % STAGES])
        start(x_ptr, ring, block + STAGES - 1, rows, M, N, stride, BN, STAGES)
        total += ml.sum(tile.to(ml.float32), axis=1)
    ml.store(out_ptr + rows, total, mask=rows < M)


@mimw.kernel
def sums_by_tma(x, out_ptr, M, N, BM: ml.constexpr, BN: ml.constexpr, STAGES: ml.constexpr):
    ring = ml.local_alloc((BM, BN), ml.dtype_of(x), STAGES)
    full = ml.alloc_barriers(STAGES)
    m = ml.program_id(0) * BM
    blocks = ml.cdiv(N, BN)
    for block in ml.static_range(STAGES - 1):
        if block < blocks:
            ml.barrier_expect_bytes(full[block], BM * BN * ml.size_of(ml.dtype_of(x)))
            ml.async_descriptor_load(x, ring[block], [m, block * BN], full[block])
    total = ml.zeros((BM,), ml.float32)
    for block in range(blocks):
        slot, phase = ml.warp_spec.get_bufidx_phase(block, STAGES)
        ml.barrier_wait(full[slot], phase)
        tile = ml.local_load(ring[slot])
        ahead = block + STAGES - 1
        if ahead < blocks:
            ml.barrier_expect_bytes(full[ahead % STAGES], BM * BN * ml.size_of(ml.dtype_of(x)))
            ml.async_descriptor_load(x, ring[ahead % STAGES], [m, ahead * BN], full[ahead % STAGES])
        total += ml.sum(tile.to(ml.float32), axis=1)
    rows = m + ml.arange(0, BM)
    ml.store(out_ptr + rows, total, mask=rows < M)


@mimw.kernel
def gather(table_ptr, index_ptr, out_ptr, n, D: ml.constexpr, ROWS: ml.constexpr):
    """out[i] = table[index[i]] for rows of D elements, ROWS a program."""
    rows = ml.local_alloc((D,), ml.dtype_of(table_ptr), ROWS)
    full = ml.alloc_barriers(1)
    first = ml.program_id(0) * ROWS
    size: ml.constexpr = D * ml.size_of(ml.dtype_of(table_ptr))
    ml.barrier_expect_bytes(full[0], ROWS * size)
    for r in ml.static_range(ROWS):
        row = ml.load(index_ptr + min(first + r, n - 1))  # behind the end: the last row again, which is not stored
        ml.async_load(table_ptr + row * D, rows[r], bulk=True, barrier=full[0])
    ml.barrier_wait(full[0], 0)
    for r in ml.static_range(ROWS):
        if first + r < n:
            ml.async_store(out_ptr + (first + r) * D, rows[r], size)
    ml.async_descriptor_store_wait(0)  # before the CTA's shared memory goes


def row_sums(x, out, by_tma: bool = False, block=(32, 64), stages: int = 3):
    """out[m] = sum of x[m, :] for x: [M, N] with contiguous rows; by TMA only where rows start at multiples of 16 bytes."""
    (M, N), constants = x.shape, {"BM": block[0], "BN": block[1], "STAGES": stages}
    grid = (mimw.cdiv(M, block[0]),)
    if by_tma:
        sums_by_tma[grid](mimw.TensorDescriptor.from_tensor(x, list(block)), out, M, N, **constants)
    else:
        sums_by_threads[grid](x, out, M, N, N, **constants)
    return out


def take_rows(table, index, out, rows: int = 4):
    """out = table[index]; rows of 16 bytes' multiples."""
    gather[(mimw.cdiv(len(index), rows),)](table, index, out, len(index), D=table.shape[1], ROWS=rows)
    return out


def main() -> None:
    rng = np.random.default_rng(0)
    for by_tma, shapes in ((False, ((100, 333), (64, 65))), (True, ((100, 336), (64, 64)))):
        for dtype in (np.float32, np.float64):
            for shape in shapes:
                x = rng.standard_normal(shape).astype(dtype)
                out = row_sums(x, np.full(shape[0], np.nan, np.float32), by_tma)
                np.testing.assert_allclose(out, x.sum(axis=1, dtype=np.float64), atol=1e-4)
        print(f"row sums {'by TMA' if by_tma else 'by cp.async'}: right")
    table, index = rng.standard_normal((50, 96)).astype(np.float32), rng.integers(0, 50, 30).astype(np.int32)
    np.testing.assert_array_equal(take_rows(table, index, np.zeros((30, 96), np.float32)), table[index])
    print("rows by bulk copies: right")


if __name__ == "__main__":
    main()
