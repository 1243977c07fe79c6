# pyright: basic
"""What the GEMM kernels share: tiles and slots, copies, the loop over K, the epilogue. Written only in the language."""

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
def cta_position(CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr):
    """Row and column of this CTA in its cluster of CLUSTER_M x CLUSTER_N tiles."""
    if CLUSTER_M * CLUSTER_N == 1:
        return 0, 0
    rank = ml.cluster_cta_rank()
    return rank % CLUSTER_M, rank // CLUSTER_M


@kernel
def ring(x, rows: ml.constexpr, columns: ml.constexpr, STAGES: ml.constexpr, BY_COLUMNS: ml.constexpr):
    """Buffers for blocks of an operand, the dense dimension last."""
    return ml.local_alloc((columns, rows) if BY_COLUMNS else (rows, columns), ml.dtype_of(x), STAGES)


@kernel
def following(slot, phase, STAGES: ml.constexpr):
    """The next slot of a ring, and its phase."""
    last = slot == STAGES - 1
    return ml.where(last, 0, slot + 1), ml.where(last, phase ^ 1, phase)


@kernel
def copy_block(x, slot, row, column, full, part, PARTS: ml.constexpr, first, step):
    """Start copying a block; with PARTS = 2 this CTA's `part` of its rows, to both CTAs that take the block: ranks `first`, `first + step`."""
    if PARTS == 1:
        ml.async_descriptor_load(x, slot, [row, column], full)
    else:
        rows: ml.constexpr = slot.shape[0] // PARTS
        columns: ml.constexpr = slot.shape[1]
        for p in ml.static_range(PARTS):
            if part == p:
                piece = ml.local_slice(slot, [p * rows, 0], [rows, columns])
                at = [row + p * rows, column]
                ml.async_descriptor_load(x, piece, at, full, multicast_targets=[first, first + step])


@kernel
def copy_slot(
    a, b, a_slot, b_slot, full, m, n, k,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr,
):  # fmt: skip
    """Start the copies of one slot: CTAs below each other share b's block, CTAs beside each other a's."""
    elements: ml.constexpr = a_slot.shape[0] * a_slot.shape[1] + b_slot.shape[0] * b_slot.shape[1]
    ml.barrier_expect_bytes(full, elements * ml.size_of(ml.dtype_of(a)))
    rank_m, rank_n = cta_position(CLUSTER_M, CLUSTER_N)
    a_row, a_column = (k, m) if A_BY_COLUMNS else (m, k)
    b_row, b_column = (n, k) if B_BY_COLUMNS else (k, n)
    copy_block(a, a_slot, a_row, a_column, full, rank_n, CLUSTER_N, rank_m, CLUSTER_M)
    copy_block(b, b_slot, b_row, b_column, full, rank_m, CLUSTER_M, rank_n * CLUSTER_M, 1)


@kernel
def release(empty, CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr):
    """Give a slot back to every CTA that copies into it: those in this one's row and column of the cluster."""
    if CLUSTER_M * CLUSTER_N == 1:
        ml.barrier_arrive(empty)
    elif CLUSTER_M == 1 or CLUSTER_N == 1:
        for r in ml.static_range(CLUSTER_M * CLUSTER_N):
            ml.barrier_arrive(empty, 1, remote_cta_rank=r)
    else:
        rank_m, rank_n = cta_position(CLUSTER_M, CLUSTER_N)
        for r in ml.static_range(CLUSTER_M * CLUSTER_N):
            shares = (rank_m == r % CLUSTER_M) | (rank_n == r // CLUSTER_M)
            ml.barrier_arrive(empty, 1, remote_cta_rank=r, pred=shares)


@kernel
def multiply(
    a_ring, b_ring, full, empty, acc, slot, phase, K, row, column,
    BK: ml.constexpr, STAGES: ml.constexpr, A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr,
    CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr, PRECISE: ml.constexpr,
):  # fmt: skip
    """One tile's products: the part at (row, column) (constants) of the blocks in the slots, as large as `acc`. The last one stays in flight, for `settle`.
    Gives the accumulator, its slot, and the next one.

    PRECISE adds each slot's products to the accumulator in full f32: for 8-bit floats, whose sums the tensor core keeps in fewer bits.
    """
    rows: ml.constexpr = acc.shape[0]
    columns: ml.constexpr = acc.shape[1]
    before = slot
    for k in range(0, K, BK):
        ml.barrier_wait(full[slot], phase)
        if A_BY_COLUMNS:
            left = ml.local_trans(ml.local_slice(a_ring[slot], [0, row], [BK, rows]))
        else:
            left = ml.local_slice(a_ring[slot], [row, 0], [rows, BK])
        if B_BY_COLUMNS:
            right = ml.local_trans(ml.local_slice(b_ring[slot], [column, 0], [columns, BK]))
        else:
            right = ml.local_slice(b_ring[slot], [0, column], [BK, columns])
        if PRECISE:
            acc += ml.async_dot_wait(0, ml.async_dot(left, right, use_acc=False))
            release(empty[slot], CLUSTER_M, CLUSTER_N)
        else:
            acc = ml.async_dot_wait(1, ml.async_dot(left, right, acc))
            if k > 0:
                release(empty[before], CLUSTER_M, CLUSTER_N)
        before = slot
        slot, phase = following(slot, phase, STAGES)
    return acc, before, slot, phase


@kernel
def settle(acc, empty, last, K, CLUSTER_M: ml.constexpr, CLUSTER_N: ml.constexpr, PRECISE: ml.constexpr):
    """The accumulator that `multiply` left, finished; its last slot is given back."""
    if not PRECISE:
        acc = ml.async_dot_wait(0, acc)
        if K > 0:
            release(empty[last], CLUSTER_M, CLUSTER_N)
    return acc


@kernel
def finish(
    x, m, n, M, N, bias, scale, residual, stride_rm, stride_rn, ACTIVATION: ml.constexpr,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1, BIAS_BY_ROWS: ml.constexpr = False,
):  # fmt: skip
    """ACTIVATION(scale * x + bias) + residual for the f32 tile x at (m, n); bias, scale and residual may be None, scale a number or a pointer to one. The
    bias has one number a column, or with BIAS_BY_ROWS a row.

    A residual that is dense along rows is read STEP_N elements at a time, one that is dense along columns STEP_M: what divides both its extent and its
    other stride. A tile's first and last element of it lie less than 2^31 elements apart, or the strides are i64.
    """
    rows, columns = m + ml.arange(0, x.shape[0]), n + ml.arange(0, x.shape[1])
    if scale is not None:
        x = x * (ml.load(scale) if scale.dtype.is_ptr() else scale)
    if bias is not None:
        if BIAS_BY_ROWS:
            x = x + ml.load(bias + rows, mask=rows < M, other=0.0).to(ml.float32)[:, None]
        else:
            x = x + ml.load(bias + columns, mask=columns < N, other=0.0).to(ml.float32)[None, :]
    if ACTIVATION == "relu":
        x = ml.maximum(x, 0.0, propagate_nan=ml.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + ml.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = 0.5 * x * (1.0 + ml.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "silu":
        x = x * ml.sigmoid(x)
    if residual is not None:
        if STEP_M > 1:
            M, stride_rn = ml.multiple_of(M, STEP_M), ml.multiple_of(stride_rn, STEP_M)
        if STEP_N > 1:
            N, stride_rm = ml.multiple_of(N, STEP_N), ml.multiple_of(stride_rm, STEP_N)
        at = residual + (m.to(ml.int64) * stride_rm + n.to(ml.int64) * stride_rn)
        at += ml.arange(0, x.shape[0])[:, None] * stride_rm + ml.arange(0, x.shape[1])[None, :] * stride_rn
        x = x + ml.load(at, mask=(rows < M)[:, None] & (columns < N)[None, :], other=0.0).to(ml.float32)
    return x


@kernel
def store_part(
    c, x, m, n, M, N, stride_cm, stride_cn, bias, scale, residual, stride_rm, stride_rn, ACTIVATION: ml.constexpr,
    STEP_M: ml.constexpr, STEP_N: ml.constexpr,
):  # fmt: skip
    """Finish the sums x of rows from m and columns from n on, and store them through the pointer c."""
    x = finish(x, m, n, M, N, bias, scale, residual, stride_rm, stride_rn, ACTIVATION, STEP_M, STEP_N)
    at_m, at_n = (m + ml.arange(0, x.shape[0]))[:, None], (n + ml.arange(0, x.shape[1]))[None, :]
    at = c + at_m.to(ml.int64) * stride_cm + at_n.to(ml.int64) * stride_cn
    ml.store(at, x.to(c.dtype.element_ty), mask=(at_m < M) & (at_n < N))


@kernel
def store_buffers(c, rows: ml.constexpr, COLUMNS: ml.constexpr, C_BY_COLUMNS: ml.constexpr, BUFFERS: ml.constexpr):
    """Buffers through which both consumers store COLUMNS columns at a time, BUFFERS each."""
    return ml.local_alloc((COLUMNS, rows) if C_BY_COLUMNS else (rows, COLUMNS), ml.dtype_of(c), 2 * BUFFERS)


@kernel
def store_columns(
    c, staging, first: ml.constexpr, x, m, n, M, N, bias, scale, residual, stride_rm, stride_rn,
    COLUMNS: ml.constexpr, BUFFERS: ml.constexpr, C_BY_COLUMNS: ml.constexpr, ACTIVATION: ml.constexpr,
    STEP_M: ml.constexpr, STEP_N: ml.constexpr, BIAS_BY_ROWS: ml.constexpr,
):  # fmt: skip
    """Finish the register tile x of rows from m and columns from n on and store it by TMA, COLUMNS at a time through BUFFERS buffers in turn, from number
    `first` on."""
    rows: ml.constexpr = x.shape[0]
    parts: ml.constexpr = x.shape[1] // COLUMNS
    for i in ml.static_range(parts):
        part = ml.extract_slice(x, [0, i * COLUMNS], [rows, COLUMNS])
        part = finish(
            part, m, n + i * COLUMNS, M, N, bias, scale, residual, stride_rm, stride_rn, ACTIVATION, STEP_M, STEP_N, BIAS_BY_ROWS
        ).to(ml.dtype_of(c))  # fmt: skip
        buffer = staging[first + i % BUFFERS]
        # The last store from this buffer has read it. Where tiles end in the middle of a turn, the next one waits for all.
        ml.async_descriptor_store_wait(0 if i == 0 and parts % BUFFERS else BUFFERS - 1)
        ml.local_store(ml.local_trans(buffer) if C_BY_COLUMNS else buffer, part)
        ml.fence_async_shared()
        ml.async_descriptor_store(c, buffer, [n + i * COLUMNS, m] if C_BY_COLUMNS else [m, n + i * COLUMNS])
