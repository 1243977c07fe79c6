"""Launch a PTX text on the real device through the driver's JIT: the other opinion on what a text means.

Tensor maps of the simulator's encoding (`tensor_map.encode` of an array) are made anew by the driver.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mimw.sim.ptx.tensor_map import TensorMap, decode, is_map


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")


def _tensor_map(cu: Any, t: TensorMap, pointer: int) -> Any:
    """The driver's 128 bytes for a map of the simulator, at device address `pointer`."""
    raw = (ctypes.c_uint8 * 256)()
    start = -(-ctypes.addressof(raw) // 128) * 128
    rank = t.rank
    sizes, strides = (ctypes.c_uint64 * rank)(*t.sizes), (ctypes.c_uint64 * max(rank - 1, 1))(*t.strides)
    box, steps = (ctypes.c_uint32 * rank)(*t.box), (ctypes.c_uint32 * rank)(*t.element_strides)
    swizzle, fill = {0: 0, 32: 1, 64: 2, 128: 3}[t.swizzle], int(t.fill == "nan")
    _check(
        cu.cuTensorMapEncodeTiled(
            ctypes.c_void_p(start),
            t.kind,
            rank,
            ctypes.c_void_p(pointer),
            sizes,
            strides,
            box,
            steps,
            0,
            swizzle,
            0,
            fill,
        ),
        "cuTensorMapEncodeTiled",
    )
    return raw, start


def _upload(cu: Any, host: int, nbytes: int) -> ctypes.c_uint64:
    pointer = ctypes.c_uint64()
    _check(cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes + 256)), "cuMemAlloc")
    _check(cu.cuMemcpyHtoD_v2(pointer, ctypes.c_void_p(host), ctypes.c_size_t(nbytes)), "copy in")
    return pointer


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
    places: list[int] = []
    copies: list[tuple[int, int, Any]] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            values.append(_upload(cu, arg.ctypes.data, arg.nbytes))
            copies.append((arg.ctypes.data, arg.nbytes, values[-1]))
        elif isinstance(arg, bytes) and is_map(arg):
            t = decode(arg)
            low, high = t.span()
            copies.append((low, high - low, _upload(cu, low, high - low)))
            raw, start = _tensor_map(cu, t, copies[-1][2].value)
            values.append(raw)
            places.append(start)
            continue
        else:
            values.append(ctypes.c_float(arg) if isinstance(arg, float) else ctypes.c_uint32(arg))
        places.append(ctypes.addressof(values[-1]))
    pointers = (ctypes.c_void_p * len(values))(*places)
    _check(cu.cuLaunchKernel(function, *grid, *block, shared, None, pointers, None), "cuLaunchKernel")
    _check(cu.cuCtxSynchronize(), "cuCtxSynchronize")
    for host, nbytes, pointer in copies:
        _check(cu.cuMemcpyDtoH_v2(ctypes.c_void_p(host), pointer, ctypes.c_size_t(nbytes)), "copy out")
        _check(cu.cuMemFree_v2(pointer), "cuMemFree")
    _check(cu.cuModuleUnload(module), "cuModuleUnload")
