"""Compiled kernels for AMD in the simulator of machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.runtime.convention import KINDS, Param
from mimw.runtime.launch import CompiledKernel
from mimw.sim.amdgcn.run import run


def run_compiled(kernel: CompiledKernel, grid: tuple[int, ...], args: list[Any]) -> None:
    """Execute the code object of a kernel on arrays (in place) and numbers."""
    meta, image = kernel.metadata, kernel.asm["hsaco"]
    assert isinstance(image, bytes)
    packed = [a if isinstance(a, np.ndarray) else _bytes(p, a) for p, a in zip(meta.arguments, args, strict=True)]
    gx, gy, gz = (*grid, 1, 1)[:3]
    run(image, meta.entry, (gx, gy, gz), (meta.num_threads, 1, 1), packed)


def _bytes(param: Param, value: Any) -> bytes:
    """A number as it lies in the argument buffer."""
    if isinstance(value, np.generic):
        return value.tobytes()
    kind = param.kind
    if kind == "bf16":
        import ml_dtypes

        return np.array(value, ml_dtypes.bfloat16).tobytes()
    names = {"f": np.float32, "d": np.float64, "e": np.float16}
    code = KINDS[kind][1]
    if code in names:
        return np.array(value, names[code]).tobytes()
    return (int(value) & ((1 << 8 * param.size) - 1)).to_bytes(param.size, "little")
