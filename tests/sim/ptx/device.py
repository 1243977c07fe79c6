"""Launch a PTX text on the real device through the driver's JIT: the other opinion on what a text means."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")


def launch(
    text: str, entry: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: list[Any], shared: int = 0
) -> None:
    """Run an entry; arrays are copied to the device and back, ints are .u32 or addresses, floats .f32."""
    cu = ctypes.CDLL("libcuda.so.1")
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _check(cu.cuInit(0), "cuInit")
    _check(cu.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    _check(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    _check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    _check(cu.cuModuleLoadData(ctypes.byref(module), text.encode() + b"\0"), "cuModuleLoadData")
    _check(cu.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()), "cuModuleGetFunction")
    if shared:
        _check(cu.cuFuncSetAttribute(function, 8, shared), "cuFuncSetAttribute")
    values: list[Any] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            pointer = ctypes.c_uint64()
            _check(cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(arg.nbytes + 256)), "cuMemAlloc")
            _check(
                cu.cuMemcpyHtoD_v2(pointer, ctypes.c_void_p(arg.ctypes.data), ctypes.c_size_t(arg.nbytes)), "copy in"
            )
            values.append(pointer)
        else:
            values.append(ctypes.c_float(arg) if isinstance(arg, float) else ctypes.c_uint32(arg))
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
    _check(cu.cuLaunchKernel(function, *grid, *block, shared, None, pointers, None), "cuLaunchKernel")
    _check(cu.cuCtxSynchronize(), "cuCtxSynchronize")
    for arg, value in zip(args, values, strict=True):
        if isinstance(arg, np.ndarray):
            _check(cu.cuMemcpyDtoH_v2(ctypes.c_void_p(arg.ctypes.data), value, ctypes.c_size_t(arg.nbytes)), "copy out")
            _check(cu.cuMemFree_v2(value), "cuMemFree")
    _check(cu.cuModuleUnload(module), "cuModuleUnload")
