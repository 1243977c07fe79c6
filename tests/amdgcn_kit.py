"""Compiled kernels for AMD in the simulator of machine code."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.runtime.convention import KINDS, Param
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import TensorDescriptor, encode_record
from mimw.sim.amdgcn.run import run
from mimw.sim.ptx.memory import GlobalMemory


def run_compiled(kernel: CompiledKernel, grid: tuple[int, ...], args: list[Any], seed: int = 0) -> None:
    """Execute the code object of a kernel on arrays (in place), descriptors of some, and numbers; `seed` picks an order of the waves."""
    meta, image = kernel.metadata, kernel.asm["hsaco"]
    assert isinstance(image, bytes)
    memory = GlobalMemory()
    addresses = iter(memory.register([a.base for a in args if isinstance(a, TensorDescriptor)]))
    packed: list[Any] = []
    for param, a in zip(meta.arguments, args, strict=True):
        if isinstance(a, TensorDescriptor):
            packed.append(encode_record(next(addresses), a.shape, a.strides, a.base.itemsize, a.padding))
        else:
            packed.append(a if isinstance(a, np.ndarray) else _bytes(param, a))
    gx, gy, gz = (*grid, 1, 1)[:3]
    run(image, meta.entry, (gx, gy, gz), (meta.num_threads, 1, 1), packed, memory=memory, seed=seed)


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
