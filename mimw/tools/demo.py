# pyright: basic
"""`mimw demo`: the main job on real input, without a GPU and with one.

A matrix product written in the language runs in the tile simulator (the definition of the language), is compiled for sm_80 and sm_90a, and
the emitted PTX runs in the PTX simulator; every result is compared with NumPy in float64. Where a CUDA device and torch are at hand, it runs there too.
"""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console

import mimw.language as ml
from mimw.jit import Kernel, cdiv, kernel
from mimw.runtime import driver_api
from mimw.sim.ptx.run import run_ptx


@kernel
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: ml.constexpr, BLOCK_N: ml.constexpr, BLOCK_K: ml.constexpr,
):  # fmt: skip
    """c = a @ b for row-major a: [M, K], b: [K, N], c: [M, N]; edges masked."""
    offs_m = ml.program_id(0) * BLOCK_M + ml.arange(0, BLOCK_M)
    offs_n = ml.program_id(1) * BLOCK_N + ml.arange(0, BLOCK_N)
    acc = ml.zeros((BLOCK_M, BLOCK_N), dtype=ml.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + ml.arange(0, BLOCK_K)
        a = ml.load(
            a_ptr + offs_m[:, None] * K + offs_k[None, :], mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0
        )
        b = ml.load(
            b_ptr + offs_k[:, None] * N + offs_n[None, :], mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0
        )
        acc = ml.dot(a, b, acc)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    ml.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


BLOCK = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


def demo() -> int:
    """Run it; 0 when every engine agrees with NumPy."""
    console = Console(highlight=False, soft_wrap=True)
    rng = np.random.default_rng(0)
    m, n, k = 200, 144, 136
    a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    wide = [x.astype(np.float64) for x in (a, b)]
    want, bound = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    grid = (cdiv(m, BLOCK["BLOCK_M"]), cdiv(n, BLOCK["BLOCK_N"]), 1)
    console.print(f"c = a @ b, bf16, {m}x{n}x{k}, tiles of 128x128x64, {grid[0] * grid[1]} programs")

    ok = True

    def report(engine: str, c: Any, seconds: float) -> None:
        nonlocal ok
        error = float((np.abs(np.asarray(c, np.float64) - want) / bound).max())
        fine = error < k * 2.0**-22
        ok = ok and fine
        console.print(
            f"  {engine:<34} {seconds:7.2f} s   error {error:.1e} of sum |a||b|   {'right' if fine else 'WRONG'}"
        )

    c = np.full((m, n), np.nan, np.float32)
    start = time.perf_counter()
    matmul[grid](a, b, c, m, n, k, **BLOCK)
    report("tile simulator", c, time.perf_counter() - start)
    for target in ("sm_80", "sm_90a"):
        _in_ptx(report, matmul, target, (a, b), (m, n, k), grid)
    if driver_api.available():
        _on_gpu(report, (a, b), (m, n, k), grid)
    else:
        console.print("  GPU                                no CUDA device here")
    console.print("all right" if ok else "something is WRONG")
    return 0 if ok else 1


def _in_ptx(report: Any, kernel: Kernel, target: str, arrays: Any, sizes: Any, grid: tuple[int, int, int]) -> None:
    a, b = arrays
    m, n, k = sizes
    types = ["*bf16:16", "*bf16:16", "*f32:16", *("i32:16" if s % 16 == 0 else "i32" for s in sizes)]
    compiled = kernel.compile(types, dict(BLOCK), target=target, num_stages=3)
    ptx = compiled.asm["ptx"]
    assert isinstance(ptx, str)
    c = np.full((m, n), np.nan, np.float32)
    start = time.perf_counter()
    run_ptx(ptx, None, grid, [a, b, c, m, n, k], shared_bytes=compiled.metadata.shared_bytes)
    lines = ptx.count("\n")
    report(f"PTX simulator, {target} ({lines} lines)", c, time.perf_counter() - start)


def _on_gpu(report: Any, arrays: Any, sizes: Any, grid: tuple[int, int, int]) -> None:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("  GPU                                torch is not installed")
        return
    a, b = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16).cuda() for x in arrays)
    c = torch.full((sizes[0], sizes[1]), float("nan"), device="cuda")
    start = time.perf_counter()
    matmul[grid](a, b, c, *sizes, **BLOCK)
    torch.cuda.synchronize()
    report(f"GPU, {torch.cuda.get_device_name()}", c.cpu().numpy(), time.perf_counter() - start)
