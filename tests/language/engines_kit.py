"""Runs a kernel on both simulators from the same arguments: the tile simulator (with its checks), then the PTX text, which ptxas must take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import mimw
from mimw.codegen.ptx.assemble import find_ptxas
from mimw.compiler import assemble_kernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx

NAMES = {
    "float32": "f32", "float16": "f16", "float64": "f64", "bfloat16": "bf16", "int32": "i32", "int64": "i64", "int8": "i8",
    "uint8": "u8", "uint32": "u32", "int16": "i16", "uint64": "u64", "uint16": "u16", "float8_e5m2": "fp8e5", "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16",
}  # fmt: skip


def encoded(d: TensorDescriptor, record: dict[str, Any]) -> bytes:
    """A descriptor as the PTX simulator takes it, in the box that the code asks for."""
    size = d.base.itemsize
    strides = [s * size for s in d.strides[-2::-1]]
    shape = d.shape[::-1]
    return tensor_map.encode(d.base, record["elem"], shape, strides, record["box"], None, record["swizzle"], d.padding)


def copies(args: Sequence[Any]) -> list[Any]:
    """Arguments that share nothing with the given ones."""
    out: list[Any] = []
    for a in args:
        if isinstance(a, TensorDescriptor):
            out.append(TensorDescriptor(a.base.copy(), a.shape, a.strides, a.block_shape, a.padding))
        else:
            out.append(a.copy() if isinstance(a, np.ndarray) else a)
    return out


def arrays(args: Sequence[Any]) -> list[np.ndarray]:
    """The arrays behind arguments."""
    return [a.base if isinstance(a, TensorDescriptor) else a for a in args if not isinstance(a, (int, float))]


def compile_for(kernel: Any, args: Sequence[Any], constants: dict[str, Any], target: str, **options: Any) -> Any:
    """Compile for the types of the arguments; ptxas takes the text, without spills."""
    names = [n for n in kernel.fn.__code__.co_varnames[: kernel.fn.__code__.co_argcount] if n not in constants]
    signature = {
        n: f"*{NAMES[a.dtype.name]}:16" if isinstance(a, np.ndarray) else "i32" if isinstance(a, int) else "f32"
        if isinstance(a, float) else a
        for n, a in zip(names, args, strict=False)  # the others have defaults
    }  # fmt: skip
    compiled = kernel.compile(signature, constants, target=target, **options)
    assert find_ptxas() is not None
    if "cubin" not in compiled.asm:
        assemble_kernel(compiled)
    assert "cubin" in compiled.asm and compiled.metadata.spill_bytes == 0
    return compiled


def run_text(compiled: Any, grid: tuple[int, ...], args: Sequence[Any]) -> None:
    """The PTX simulator, in place."""
    records = iter(compiled.metadata.extra["descriptors"])
    passed = [encoded(a, next(records)) if isinstance(a, TensorDescriptor) else a for a in args]
    full = (*grid, 1, 1)[:3]
    run_ptx(compiled.asm["ptx"], None, full, passed, shared_bytes=compiled.metadata.shared_bytes)


def both(
    kernel: Any,
    grid: tuple[int, ...],
    args: Sequence[Any],
    targets: Sequence[str] = ("sm_90a",),
    schedules: int = 2,
    **rest: Any,
) -> list[np.ndarray]:
    """Run in the tile simulator (checked), then each target's text; all must leave the same arrays, which are given back."""
    options = {k: rest.pop(k) for k in ("num_warps", "num_stages") if k in rest}
    mine = copies(args)
    kernel[grid](*mine, **rest, **options)
    kernel.check(*copies(args), grid=grid, schedules=schedules, **rest, **options)
    want = arrays(mine)
    for target in targets:
        compiled = compile_for(kernel, args, rest, target, **options)
        again = copies(args)
        run_text(compiled, grid, again)
        for a, b in zip(arrays(again), want, strict=True):
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), err_msg=target)
    return want


__all__ = ["TensorDescriptor", "both", "compile_for", "mimw", "run_text"]
