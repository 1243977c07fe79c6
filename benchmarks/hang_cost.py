"""What a build whose waits give up costs: matrix products of `mimw.kernels` with and without `hang_timeout`. Needs a CUDA device and torch.

    python -m benchmarks.hang_cost [--quick] [--timeout 2s]

Times are the device's (CUDA events, interleaved, L2 flushed, medians): the wait for the kernel's end, which is part of a launch of such a build, is
left out. Prints ratios, times with over times without, and registers and shared memory of both.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.harness import environment, interleaved
from mimw.kernels.gemm_plan import Epilogue, plan_for
from mimw.runtime.arrays import ArrayInfo, describe
from mimw.runtime.hang_watch import Watch

SHAPES = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 512),
    (16384, 1280, 8192),
    (512, 512, 8192),
    (1024, 1024, 1024),
)


class Product:
    """a @ b by the kernel that `mimw.kernels.matmul` chooses, compiled with a time limit for waits ("0": none)."""

    def __init__(self, a: Any, b: Any, timeout: str) -> None:
        self.a, self.b = a, b
        self.out = a.new_empty((a.shape[0], b.shape[1]))
        left, right, result = (describe(x) for x in (a, b, self.out))
        assert isinstance(left, ArrayInfo) and isinstance(right, ArrayInfo) and isinstance(result, ArrayInfo)
        self.plan = plan_for(left, right, result, None, False)
        self.plan.options = {**self.plan.options, "hang_timeout": timeout}

    def __call__(self) -> Any:
        """Launch it; gives the result."""
        self.plan.run(self.a, self.b, self.out, Epilogue())
        return self.out

    def code(self) -> str:
        """Figures of the compiled kernel, once it was launched."""
        (prepared,) = self.plan._prepared.values()
        meta = prepared.kernel.metadata
        return f"{meta.registers} registers, {meta.spill_bytes} bytes spilled, {meta.shared_bytes} of shared memory"


def compare(torch: Any, shape: tuple[int, int, int], timeout: str, rounds: int) -> None:
    """One row."""
    m, n, k = shape
    a = torch.randn((m, k), device="cuda").bfloat16()
    b = torch.randn((k, n), device="cuda").bfloat16()
    plain, watched = Product(a, b, "0"), Product(a, b, timeout)
    assert (plain() == watched()).all()
    found = interleaved({"without": [plain], "with": [watched]}, rounds)
    ratio = found["with"] / found["without"]
    print(f"{m}x{n}x{k}: {found['without']:.4f} ms without, {found['with']:.4f} ms with, ratio {ratio:.3f}")
    print(f"    without: {plain.code()}\n    with:    {watched.code()}", flush=True)


def main() -> None:
    """All shapes."""
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--timeout", default="2s")
    given = parser.parse_args()
    print(environment())
    # These kernels do not hang: without waiting for their end, launches queue as others do, and events measure the device alone.
    Watch.finish = lambda self, head, stream, loc: self._give_back()  # type: ignore[method-assign]
    for shape in SHAPES[:3] if given.quick else SHAPES:
        compare(torch, shape, given.timeout, 20 if given.quick else 60)


if __name__ == "__main__":
    main()
