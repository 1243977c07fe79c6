# pyright: basic
"""A matrix product for machines whose waves multiply from registers (CDNA's v_mfma): all warps of a CTA load, multiply and store one tile together.

All waves of a CTA get as many registers as the hungriest one, so that a wave which only copies would cost a quarter of the accumulator. The
compiler's pipeline does what tasks do elsewhere: loads of the next step stand before a step's products, their stores into shared memory behind them.

Programs are dealt to a device's XCDs in turn, each of which has an L2 of its own: `on_one_xcd` numbers them so that neighbouring tiles meet in one.
With SPLITS > 1 that many CTAs share a tile, each with a part of K, as in `gemm.gemm_split`: the one that comes last adds all parts, always in the same
order.
"""

from __future__ import annotations

import mimw.language as ml
from mimw.jit import kernel
from mimw.kernels.gemm_parts import store_part, tile_position


@kernel
def on_one_xcd(program, programs, XCDS: ml.constexpr):
    """A number for this program, of `programs`, such that those dealt to one XCD (every XCDS-th) have numbers in a row."""
    if XCDS == 1:
        return program
    each, more = programs // XCDS, programs % XCDS  # the first `more` XCDs have one program more
    xcd = program % XCDS
    return xcd * each + min(xcd, more) + program // XCDS


@kernel
def load_block(x, lines, places, stride, LINES_INSIDE: ml.constexpr, least, PLACES_INSIDE: ml.constexpr, most):
    """x[lines, places] for lines `stride` elements apart: zero where a place is not below `most` or a line not below `least`."""
    at = x + (lines[:, None] * stride + places[None, :])
    if LINES_INSIDE and PLACES_INSIDE:
        return ml.load(at)
    if LINES_INSIDE:
        return ml.load(at, mask=(places < most)[None, :], other=0.0)
    if PLACES_INSIDE:
        return ml.load(at, mask=(lines < least)[:, None], other=0.0)
    return ml.load(at, mask=(lines < least)[:, None] & (places < most)[None, :], other=0.0)


@kernel
def multiply_step(
    a, b, acc, rows, columns, ks, stride_a, stride_b, M, N, K,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, WHOLE_M: ml.constexpr, WHOLE_N: ml.constexpr, WHOLE_K: ml.constexpr,
):  # fmt: skip
    """acc + a[rows, ks] @ b[ks, columns], where rows below M, columns below N and ks below K exist."""
    if A_BY_COLUMNS:
        left = load_block(a, ks, rows, stride_a, WHOLE_K, K, WHOLE_M, M).T
    else:
        left = load_block(a, rows, ks, stride_a, True, M, WHOLE_K, K)
    if B_BY_COLUMNS:
        right = load_block(b, columns, ks, stride_b, True, N, WHOLE_K, K).T
    else:
        right = load_block(b, ks, columns, stride_b, WHOLE_K, K, WHOLE_N, N)
    return ml.dot(left, right, acc)


@kernel
def gemm_tiled(
    a, b, c, parts, counters, M, N, K, stride_a, stride_b, stride_cm, stride_cn,
    BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, GROUP_M: ml.constexpr, ROWS: ml.constexpr, SPLITS: ml.constexpr, XCDS: ml.constexpr,
    A_BY_COLUMNS: ml.constexpr, B_BY_COLUMNS: ml.constexpr, C_BY_COLUMNS: ml.constexpr, WHOLE_M: ml.constexpr, WHOLE_N: ml.constexpr,
    WHOLE_K: ml.constexpr, STEP: ml.constexpr, bias=None, scale=None, residual=None, stride_rm=None, stride_rn=None, ACTIVATION: ml.constexpr = None,
    STEP_M: ml.constexpr = 1, STEP_N: ml.constexpr = 1,
):  # fmt: skip
    """c = ACTIVATION(scale * (a @ b) + bias) + residual for operands that are dense along one dimension: `stride_a`, `stride_b` are of the other.

    WHOLE_M, WHOLE_N, WHOLE_K: M, N, K are multiples of BM, BN, BK; STEP divides them and the strides, where they say how wide an access can be. The
    first and last line of a block lie less than 2^31 elements apart.
    """
    if STEP > 1:
        N, K, stride_a, stride_b = (
            ml.multiple_of(N, STEP),
            ml.multiple_of(K, STEP),
            ml.multiple_of(stride_a, STEP),
            ml.multiple_of(stride_b, STEP),
        )
        if A_BY_COLUMNS or C_BY_COLUMNS:
            M = ml.multiple_of(M, STEP)
        if C_BY_COLUMNS:
            stride_cn = ml.multiple_of(stride_cn, STEP)
        else:
            stride_cm = ml.multiple_of(stride_cm, STEP)
    program = on_one_xcd(ml.program_id(0), ml.num_programs(0), XCDS)
    tile, split = program // SPLITS, program % SPLITS
    tile_m, tile_n = tile_position(tile, ml.cdiv(M, BM), ml.cdiv(N, BN), GROUP_M)
    m, n = tile_m * BM, tile_n * BN
    share = ml.cdiv(ml.cdiv(K, BK), SPLITS) * BK
    start = split * share
    length = ml.maximum(min(K - start, share), 0)
    rows, columns, ks = ml.arange(0, BM), ml.arange(0, BN), ml.arange(0, BK)
    # Lines beyond the edge are the last one again: their products are not stored, and no load needs a mask.
    if not A_BY_COLUMNS:
        rows = ml.minimum(rows, M - 1 - m)
    if B_BY_COLUMNS:
        columns = ml.minimum(columns, N - 1 - n)
    a_step, b_step = stride_a if A_BY_COLUMNS else 1, 1 if B_BY_COLUMNS else stride_b
    a += m.to(ml.int64) * (1 if A_BY_COLUMNS else stride_a) + start.to(ml.int64) * a_step
    b += n.to(ml.int64) * (stride_b if B_BY_COLUMNS else 1) + start.to(ml.int64) * b_step
    acc = ml.zeros((BM, BN), dtype=ml.float32)
    for k in range(0, length, BK):
        acc = multiply_step(
            a, b, acc, rows, columns, ks, stride_a, stride_b, M - m, N - n, length - k,
            A_BY_COLUMNS, B_BY_COLUMNS, WHOLE_M, WHOLE_N, WHOLE_K,
        )  # fmt: skip
        a += BK * a_step
        b += BK * b_step
    # ROWS rows at a time: a residual, or another CTA's part, takes few registers then.
    inside = ml.arange(0, ROWS)[:, None] * BN + ml.arange(0, BN)[None, :]
    if SPLITS > 1:
        here = parts + (tile * SPLITS).to(ml.int64) * (BM * BN)
        for i in ml.static_range(BM // ROWS):
            ml.store(
                here + split * (BM * BN) + i * (ROWS * BN) + inside, ml.extract_slice(acc, [i * ROWS, 0], [ROWS, BN])
            )
        if ml.atomic_add(counters + tile, 1) == SPLITS - 1:
            for i in ml.static_range(BM // ROWS):
                total = ml.load(here + i * (ROWS * BN) + inside)
                for other in range(1, SPLITS):
                    total += ml.load(here + other * (BM * BN) + i * (ROWS * BN) + inside)
                store_part(
                    c, total, m + i * ROWS, n, M, N, stride_cm, stride_cn, bias, scale, residual, stride_rm, stride_rn,
                    ACTIVATION, STEP_M, STEP_N,
                )  # fmt: skip
            ml.store(counters + tile, 0)  # for the next launch
    else:
        for i in ml.static_range(BM // ROWS):
            part = ml.extract_slice(acc, [i * ROWS, 0], [ROWS, BN])
            store_part(
                c, part, m + i * ROWS, n, M, N, stride_cm, stride_cn, bias, scale, residual, stride_rm, stride_rn,
                ACTIVATION, STEP_M, STEP_N,
            )  # fmt: skip
