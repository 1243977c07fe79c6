"""The engines that execute a `Run`: tile simulator, PTX simulator, CUDA device. Each gives the outputs as NumPy arrays.

Every engine checks that nothing outside the outputs was written: guard bytes, gaps of strided arrays, inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.compiler import compile_kernel
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.amdgcn_kit import run_compiled
from tests.zoo.registry import DTYPES, Run, dtype_name, report, root


def run_tile(run: Run) -> list[Any]:
    """Through the launch syntax, on NumPy arrays: the tile simulator."""
    before = _snapshot(run)
    run.kernel[run.grid](*run.args, **run.constants, **run.options)
    return _outputs(run, before, {id(r): r for r in _roots(run)})


def compile_run(run: Run, target: str, *, assembled: bool = False) -> tuple[Any, list[Any]]:
    """The compiled kernel of a case for `target`, and the arguments that it takes."""
    kernel = run.kernel
    values, given = kernel.bind(run.args, {**run.constants, **run.options})
    special = kernel.specialise(values)
    options = kernel._options(given)
    compiled = compile_kernel(
        kernel.fn, kernel.signature(special, values), get_target(target), options, assembled=assembled
    )
    return compiled, [v for key, v in zip(special, values, strict=True) if key[0] != "c"]


def run_ptx_text(run: Run, target: str, *, assembled: bool = False) -> list[Any]:
    """Compile for `target` and execute the text in the PTX simulator. With `assembled` ptxas must take it, and warn of nothing."""
    compiled, passed = compile_run(run, target, assembled=assembled)
    if assembled:
        assert not compiled.metadata.warnings, compiled.metadata.warnings
    before = _snapshot(run)
    grid = (*run.grid, 1, 1)[:3]
    passed = [_bits(v) if isinstance(v, np.generic) else v for v in passed]
    run_ptx(compiled.asm["ptx"], None, grid, passed, shared_bytes=compiled.metadata.shared_bytes)
    return _outputs(run, before, {id(r): r for r in _roots(run)})


def run_amdgcn(run: Run, target: str) -> list[Any]:
    """Compile for `target` and execute the code object in the simulator of machine code."""
    compiled, passed = compile_run(run, target, assembled=True)
    before = _snapshot(run)
    run_compiled(compiled, run.grid, passed)
    return _outputs(run, before, {id(r): r for r in _roots(run)})


def run_gpu(run: Run) -> list[Any]:
    """On the current CUDA device through torch tensors that lie in device memory as the arrays lie in host memory."""
    import torch

    before = _snapshot(run)
    device = {id(r): _to_device(torch, r) for r in _roots(run)}
    args = [_tensor(torch, a, device) if isinstance(a, np.ndarray) else a for a in run.args]
    run.kernel[run.grid](*args, **run.constants, **run.options)
    torch.cuda.synchronize()
    after = {}
    for r in _roots(run):
        buffer, shift = device[id(r)]
        after[id(r)] = buffer[shift : shift + r.nbytes].cpu().numpy()
    return _outputs(run, before, after)


def _roots(run: Run) -> list[Any]:
    found = {id(root(a)): root(a) for a in run.arrays()}
    return list(found.values())


def _snapshot(run: Run) -> dict[int, Any]:
    return {id(r): r.copy() for r in _roots(run)}


def _outputs(run: Run, before: dict[int, Any], after: dict[int, Any]) -> list[Any]:
    """The outputs out of the memory `after` the run; all other bytes must be as `before`."""
    touched = {key: np.zeros(x.shape, np.bool_) for key, x in before.items()}
    got = []
    for x, _ in run.outputs:
        got.append(_view(x, after[id(root(x))]).copy())
        _view(x, touched[id(root(x))], np.dtype(np.uint8), x.itemsize)[...] = True
    for key, mark in touched.items():
        same = (before[key] == after[key]) | mark
        report(same, after[key], before[key], "bytes outside the outputs were written")
    return got


def _view(x: Any, memory: Any, dtype: Any = None, inner: int = 0) -> Any:
    """The bytes `memory` seen as `x` sees its root; with `inner`, each element as that many items of `dtype`."""
    start = x.ctypes.data - root(x).ctypes.data
    shape, steps = list(x.shape), list(x.strides)
    if inner:
        shape, steps = [*shape, inner], [*steps, 1]
    if 0 in shape:
        return np.empty(shape, dtype or x.dtype)
    return np.ndarray(shape, dtype or x.dtype, buffer=memory, offset=start, strides=steps)


def _bits(v: Any) -> Any:
    """A NumPy scalar as what the PTX simulator takes: a number, 16-bit floats as bytes."""
    return v.tobytes() if v.dtype.itemsize == 2 and v.dtype.kind not in "iu" else v.item()


def _to_device(torch: Any, r: Any) -> tuple[Any, int]:
    """The bytes of a root on the device, at the same place modulo 64."""
    shift = r.ctypes.data % 64
    buffer = torch.zeros(r.nbytes + 128, dtype=torch.uint8, device="cuda")
    assert buffer.data_ptr() % 64 == 0
    buffer[shift : shift + r.nbytes] = torch.from_numpy(r).cuda()
    return buffer, shift


_TORCH = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
    "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "e4m3z": "float8_e4m3fnuz", "e5m2z": "float8_e5m2fnuz",
}  # fmt: skip


def _tensor(torch: Any, x: Any, device: dict[int, tuple[Any, int]]) -> Any:
    """The device tensor that corresponds to an array: same dtype, shape, strides, place in its buffer."""
    buffer, shift = device[id(root(x))]
    start = shift + x.ctypes.data - root(x).ctypes.data
    count = (buffer.numel() - start) // x.itemsize
    items = buffer[start : start + count * x.itemsize].view(getattr(torch, _TORCH[dtype_name(x)]))
    return torch.as_strided(items, x.shape, [s // x.itemsize for s in x.strides], items.storage_offset())


__all__ = ["DTYPES", "compile_run", "run_gpu", "run_ptx_text", "run_tile"]
