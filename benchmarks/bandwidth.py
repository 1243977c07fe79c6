"""Memory-bound kernels against the copy bandwidth of the same run: vector add, softmax. Needs a CUDA device and torch.

Bars: vector add 0.95 of copy; softmax bf16 32768x4096 0.95, 16384x8192 0.93, 8192x16384 0.92.
"""

from __future__ import annotations

from typing import Any

import mimw
import mimw.language as ml
from benchmarks.harness import environment, interleaved


@mimw.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offsets = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offsets < n
    x = ml.load(x_ptr + offsets, mask=mask)
    y = ml.load(y_ptr + offsets, mask=mask)
    ml.store(out_ptr + offsets, x + y, mask=mask)


@mimw.kernel
def softmax_rows(x_ptr, out_ptr, stride, width, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    columns = ml.arange(0, BLOCK)
    mask = columns < width
    x = ml.load(x_ptr + row * stride + columns, mask=mask, other=-float("inf")).to(ml.float32)
    e = ml.exp(x - ml.max(x, axis=0))
    y = e / ml.sum(e, axis=0)
    ml.store(out_ptr + row * stride + columns, y.to(out_ptr.dtype.element_ty), mask=mask)


def bandwidth(nbytes: int, ms: float) -> float:
    """GB/s."""
    return nbytes / ms / 1e6


def copy_runs(torch: Any, nbytes: int) -> tuple[list[Any], int]:
    pairs = [
        (
            torch.empty(nbytes // 2, dtype=torch.uint8, device="cuda"),
            torch.empty(nbytes // 2, dtype=torch.uint8, device="cuda"),
        )
        for _ in range(2)
    ]
    return [lambda p=p: p[1].copy_(p[0]) for p in pairs], nbytes


def vector_add(torch: Any) -> None:
    n = 1 << 27
    sets = [[torch.randn(n, device="cuda", dtype=torch.bfloat16) for _ in range(3)] for _ in range(2)]
    moved = 3 * n * 2
    candidates: dict[str, Any] = {"copy": copy_runs(torch, moved)[0]}
    for block, warps in ((1024, 4), (2048, 8), (4096, 8)):
        candidates[f"mimw block {block}"] = [
            lambda s=s, b=block, w=warps: add[(mimw.cdiv(n, b),)](s[0], s[1], s[2], n, BLOCK=b, num_warps=w)
            for s in sets
        ]
    candidates["torch"] = [lambda s=s: torch.add(s[0], s[1], out=s[2]) for s in sets]
    show("vector add 134M bf16", moved, interleaved(candidates), 0.95)
    torch.testing.assert_close(sets[0][2], sets[0][0] + sets[0][1])


def softmax(torch: Any, rows: int, width: int, bar: float) -> None:
    sets = [[torch.randn(rows, width, device="cuda", dtype=torch.bfloat16) for _ in range(2)] for _ in range(2)]
    moved = 2 * rows * width * 2
    candidates: dict[str, Any] = {"copy": copy_runs(torch, moved)[0]}
    for warps in (4, 8, 16, 32):
        if width // (warps * 32) in range(8, 65):
            candidates[f"mimw {warps} warps"] = [
                lambda s=s, w=warps: softmax_rows[(rows,)](s[0], s[1], width, width, BLOCK=width, num_warps=w)
                for s in sets
            ]
    show(f"softmax bf16 {rows}x{width}", moved, interleaved(candidates), bar)
    want = torch.softmax(sets[0][0].double(), 1)
    error = (sets[0][1].double() - want).abs().max().item()
    assert error < 0.004, error


def show(title: str, moved: int, times: dict[str, float], bar: float) -> None:
    copy = bandwidth(moved, times["copy"])
    print(f"{title}: copy {copy:.0f} GB/s, bar {bar}")
    for name, ms in times.items():
        print(
            f"  {name:<20} {ms * 1e3:9.1f} us  {bandwidth(moved, ms):6.0f} GB/s  {bandwidth(moved, ms) / copy:.3f} of copy"
        )


def main() -> None:
    import torch

    print(environment())
    vector_add(torch)
    for rows, width, bar in ((32768, 4096, 0.95), (16384, 8192, 0.93), (8192, 16384, 0.92)):
        softmax(torch, rows, width, bar)


if __name__ == "__main__":
    main()
