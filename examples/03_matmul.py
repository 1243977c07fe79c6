"""Matrix product with the tile layer only: pointers, masks at the edges, one accumulator a program.

    python examples/03_matmul.py

Works for fp16, bf16, fp32 (as tf32), fp8 and any M, N, K. `num_stages` lets the compiler pipeline the loop: copies of later tiles run while
this one is multiplied.

    program (m, n):   for k:  a[m, k] ─┐
                               b[k, n] ─┴─> acc += a @ b          then  c[m, n] = acc
"""

from __future__ import annotations

import numpy as np

import mimw
import mimw.language as ml


@mimw.kernel
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: ml.constexpr, BLOCK_N: ml.constexpr, BLOCK_K: ml.constexpr, GROUP_M: ml.constexpr,
):  # fmt: skip
    # Programs walk the tiles in groups of GROUP_M rows, so that neighbours share operands in L2.
    pid = ml.program_id(0)
    tiles_m = ml.cdiv(M, BLOCK_M)
    tiles_n = ml.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first_m = (pid // per_group) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (pid % per_group) % rows
    pid_n = (pid % per_group) // rows

    offs_m = pid_m * BLOCK_M + ml.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + ml.arange(0, BLOCK_N)
    offs_k = ml.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = ml.zeros((BLOCK_M, BLOCK_N), dtype=ml.float32)
    for k in range(0, K, BLOCK_K):
        a = ml.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
        b = ml.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        acc = ml.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    ml.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def strides(x) -> tuple[int, ...]:
    """Strides in elements, of NumPy arrays and torch tensors."""
    return tuple(x.stride()) if hasattr(x, "data_ptr") else tuple(s // x.itemsize for s in x.strides)


def matmul(a, b, c, block=None, group: int = 8, num_warps: int = 4, num_stages: int = 4):
    """c = a @ b for a: [M, K], b: [K, N], c: [M, N], any strides. A slot holds 128 bytes of each row of a unless `block` says otherwise."""
    (M, K), N = a.shape, b.shape[1]
    block = block or (128, 128, 128 // a.itemsize)
    grid = (mimw.cdiv(M, block[0]) * mimw.cdiv(N, block[1]),)
    matmul_kernel[grid](
        a, b, c, M, N, K, *strides(a), *strides(b), *strides(c),
        BLOCK_M=block[0], BLOCK_N=block[1], BLOCK_K=block[2], GROUP_M=group,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return c


def main() -> None:
    import ml_dtypes

    rng = np.random.default_rng(0)
    types = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp8": ml_dtypes.float8_e4m3fn}
    for name, dtype in types.items():
        for m, n, k in ((128, 128, 64), (77, 130, 200)):
            a = rng.standard_normal((m, k)).astype(dtype)
            b = rng.standard_normal((k, n)).astype(dtype)
            c = matmul(a, b, np.full((m, n), np.nan, np.float32))
            want = a.astype(np.float64) @ b.astype(np.float64)
            bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
            error = float((np.abs(c - want) / bound).max())
            assert error < (2e-3 if name == "fp32" else 1e-5), (name, error)
            print(f"matmul {name}: {m}x{n}x{k}, largest error {error:.1e} of sum |a||b|")


if __name__ == "__main__":
    main()
