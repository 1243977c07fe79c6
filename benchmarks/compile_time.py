"""Compile time by stage: matmul 128x128x64 bf16 for sm_90a, source to PTX, fresh function object, warm process.

Bar: 150 ms from source to PTX (ptxas not counted), median of 15.
"""

from __future__ import annotations

import statistics
import types

from benchmarks.matmul import example
from mimw.compiler import Options, compile_kernel
from mimw.jit import Kernel
from mimw.signature import parse_signature
from mimw.target import get_target

SIGNATURE = [
    "*bf16:16",
    "*bf16:16",
    "*bf16:16",
    "i32:16",
    "i32:16",
    "i32:16",
    "i32:16",
    "=1",
    "i32:16",
    "=1",
    "i32:16",
    "=1",
]
CONSTANTS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}


def fresh(kernel: Kernel) -> Kernel:
    """The kernel on a new function object: no cache of mimw may know it."""
    fn = kernel.fn
    copy = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__annotations__ = fn.__annotations__
    return Kernel(copy)


BARS = {"sm_90a": 150, "gfx942": 400, "gfx950": 400}
STAGES = {"sm_90a": 4, "gfx942": 2, "gfx950": 2}


def measure(target: str, rounds: int) -> None:
    """Print the time of every stage for one target."""
    kernel = example().matmul_kernel
    runs: list[dict[str, float]] = []
    lines = 0
    text = "ptx" if target.startswith("sm_") else "amdgcn"
    for _ in range(rounds + 2):
        k = fresh(kernel)
        compiled = compile_kernel(
            k.fn,
            parse_signature(k, SIGNATURE, CONSTANTS),
            get_target(target),
            Options(num_stages=STAGES[target]),
            assembled=False,
            keep_ir=False,
        )
        runs.append(dict(compiled.metadata.extra["stages"]))
        lines = str(compiled.asm[text]).count("\n")
    runs = runs[2:]
    print(
        f"compile matmul 128x128x64 bf16 {target}, {lines} lines of text, median of {rounds}, milliseconds (bar {BARS[target]}):"
    )
    total = statistics.median(sum(r.values()) for r in runs)
    for stage in runs[0]:
        print(f"  {stage:<14} {statistics.median(r[stage] for r in runs):7.1f}")
    print(f"  {'source to text':<14} {total:7.1f}")


def main(rounds: int = 15) -> None:
    for target in BARS:
        measure(target, rounds)


if __name__ == "__main__":
    main()
