"""Matrix product of the tile layer against cuBLAS (torch.matmul) in the same run. Needs a CUDA device and torch.

Bar: 4096^3 bf16, 0.6 of cuBLAS.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from benchmarks.harness import environment, interleaved

CONFIGS = (
    ((128, 128, 64), 4, 4),
    ((128, 256, 64), 8, 4),
    ((128, 256, 64), 8, 3),
    ((256, 128, 64), 8, 4),
    ((128, 128, 64), 8, 4),
)


def example() -> Any:
    """The module examples/03_matmul.py."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "03_matmul.py")
    spec = importlib.util.spec_from_file_location("matmul_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(torch: Any, m: int, n: int, k: int, transposed: bool, bar: float | None) -> None:
    matmul = example().matmul
    sets = []
    for _ in range(2):
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = (
            torch.randn(n, k, device="cuda", dtype=torch.bfloat16).T
            if transposed
            else torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
        )
        sets.append((a, b, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)))
    candidates: dict[str, Any] = {"cuBLAS": [lambda s=s: torch.matmul(s[0], s[1], out=s[2]) for s in sets]}
    for block, warps, stages in CONFIGS:
        candidates[f"mimw {'x'.join(map(str, block))} {warps} warps {stages} stages"] = [
            lambda s=s, c=(block, warps, stages): matmul(*s, block=c[0], num_warps=c[1], num_stages=c[2]) for s in sets
        ]
    times = interleaved(candidates)
    print(f"matmul bf16 {'NT' if transposed else 'NN'} {m}x{n}x{k}" + (f", bar {bar} of cuBLAS" if bar else ""))
    for name, ms in times.items():
        print(
            f"  {name:<36} {ms * 1e3:9.1f} us  {2e-9 * m * n * k / ms:6.0f} TFLOP/s  {times['cuBLAS'] / ms:.3f} of cuBLAS"
        )
    a, b, c = sets[0]
    matmul(a, b, c)
    want = a.double() @ b.double()
    error = ((c.double() - want).abs() / (a.double().abs() @ b.double().abs())).max().item()
    assert error < 2**-8, error


def main() -> None:
    import torch

    print(environment())
    run(torch, 4096, 4096, 4096, False, 0.6)
    run(torch, 4096, 4096, 4096, True, None)
    run(torch, 8192, 8192, 8192, False, None)


if __name__ == "__main__":
    main()
