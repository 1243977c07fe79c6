"""A stand-in for `cuda.bindings.driver` that records calls, and stand-ins for torch tensors on its devices."""

from __future__ import annotations

import ctypes
import enum
import threading
from typing import Any


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720


OK = CUresult.CUDA_SUCCESS


class _Names:
    """An enum that knows every name: its members are the names themselves."""

    def __getattr__(self, name: str) -> str:
        return name


class _Record:
    """A struct whose fields are made by assignment; sub-records on first sight."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Record()
        setattr(self, name, made)
        return made


class Launch:
    """One recorded launch."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    grid: tuple[int, int, int]
    threads: int
    shared: int
    stream: int
    params: int
    context: int
    attributes: list[tuple[str, Any]]
    offsets: list[int]
    first: int  # address of the first parameter, while the call ran


class FakeDriver:
    """Two devices of capability 9.0 unless told otherwise. `fail` maps a call to the result that it gives once.

    Every launch takes the next of `durations` ms of the device's time (0 without one), a fill 1 ms; events read that clock.

    With `buffer_bytes` and `param_count` set, a launch records the argument buffer and the offsets of parameters.
    """

    CUresult = CUresult
    CUjit_option = _Names()
    CUdevice_attribute = _Names()
    CUfunction_attribute = _Names()
    CUlaunchAttributeID = _Names()

    class CUevent_flags:
        CU_EVENT_DISABLE_TIMING = 2

    CUlaunchConfig = _Record
    CUlaunchAttribute = _Record

    def __init__(self, capability: tuple[int, int] = (9, 0)) -> None:
        self.capability = capability
        self.calls: list[tuple[Any, ...]] = []
        self.launches: list[Launch] = []
        self.fail: dict[str, CUresult] = {}
        self.max_threads = 1024
        self.registers = 40
        self.static_shared = 0
        self.jit_log = b""
        self.packed: list[bytes] = []
        self.buffer_bytes = 0
        self.param_count = 0
        self.durations: list[float] = []
        self.clock = 0.0
        self.events: dict[int, float] = {}
        self._local = threading.local()

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The recorded calls of that name."""
        return [call for call in self.calls if call[0] == name]

    def _result(self, name: str, *args: Any) -> CUresult:
        self.calls.append((name, *args))
        return self.fail.pop(name, OK)

    # Contexts are 1000 + device; 0 is none.
    @property
    def stack(self) -> list[int]:
        if not hasattr(self._local, "stack"):
            self._local.stack = [0]
        return self._local.stack

    def cuGetErrorName(self, code: CUresult) -> tuple[Any, ...]:
        return OK, code.name.encode()

    def cuGetErrorString(self, code: CUresult) -> tuple[Any, ...]:
        return OK, code.name.lower().replace("cuda_error_", "").replace("_", " ").encode()

    def cuDriverGetVersion(self) -> tuple[Any, ...]:
        return OK, 13020

    def cuDeviceGetCount(self) -> tuple[Any, ...]:
        return OK, 2

    def cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return OK, ordinal

    def cuDeviceGetName(self, size: int, device: int) -> tuple[Any, ...]:
        return OK, b"Fake GPU\0\0"

    def cuDeviceGetAttribute(self, which: str, device: int) -> tuple[Any, ...]:
        self.calls.append(("cuDeviceGetAttribute", which, device))
        values = {
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": self.capability[0],
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": self.capability[1],
            "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232_448,
        }
        return OK, values[which]

    def cuMemGetInfo(self) -> tuple[Any, ...]:
        return OK, 5, 10

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple[Any, ...]:
        return self._result("cuDevicePrimaryCtxRetain", device), 1000 + device

    def cuCtxGetCurrent(self) -> tuple[Any, ...]:
        return OK, self.stack[-1]

    def cuCtxGetDevice(self) -> tuple[Any, ...]:
        return OK, self.stack[-1] - 1000

    def cuCtxSetCurrent(self, context: int) -> tuple[Any, ...]:
        self.stack[-1] = context
        return (OK,)

    def cuCtxPushCurrent(self, context: int) -> tuple[Any, ...]:
        self.stack.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> tuple[Any, ...]:
        return OK, self.stack.pop()

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: list[Any], values: list[Any]) -> tuple[Any, ...]:
        status = self._result("cuModuleLoadDataEx", image, count)
        if status and values:
            values[0][: len(self.jit_log)] = self.jit_log
        return status, self.stack[-1]

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, ...]:
        return self._result("cuModuleGetFunction", module, name), (module, name)

    def cuFuncGetAttribute(self, which: str, function: Any) -> tuple[Any, ...]:
        values = {
            "CU_FUNC_ATTRIBUTE_NUM_REGS": self.registers,
            "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": self.max_threads,
            "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 0,
            "CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES": self.static_shared,
        }
        return OK, values[which]

    def cuFuncSetAttribute(self, function: Any, which: str, value: int) -> tuple[Any, ...]:
        return (self._result("cuFuncSetAttribute", which, value),)

    def CUstream(self, raw: int) -> int:
        self.calls.append(("CUstream", raw))
        return raw

    def cuEventCreate(self, flags: int) -> tuple[Any, ...]:
        event = 77 + len(self.events)
        self.events[event] = -1.0
        return self._result("cuEventCreate", flags), event

    def cuEventRecord(self, event: int, stream: int) -> tuple[Any, ...]:
        self.events[event] = self.clock
        return (self._result("cuEventRecord", event, stream),)

    def cuEventElapsedTime(self, start: int, end: int) -> tuple[Any, ...]:
        return OK, self.events[end] - self.events[start]

    def cuMemAlloc(self, size: int) -> tuple[Any, ...]:
        return self._result("cuMemAlloc", size), 0xF000

    def cuMemFree(self, address: int) -> tuple[Any, ...]:
        return (self._result("cuMemFree", address),)

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> tuple[Any, ...]:
        self.clock += 1.0
        return (self._result("cuMemsetD32Async", address, count, stream),)

    def cuTensorMapEncodeTiled(
        self,
        place: int,
        kind: int,
        rank: int,
        address: int,
        extents: Any,
        strides: Any,
        box: Any,
        steps: Any,
        interleave: int,
        swizzle: int,
        promotion: int,
        fill: int,
    ) -> CUresult:
        """Through ctypes, so it returns the status alone. The map is numbered: its bytes are the count of maps so far."""
        fields = (kind, address, tuple(extents), tuple(strides)[: rank - 1], tuple(box), tuple(steps))
        status = self._result("cuTensorMapEncodeTiled", *fields, (interleave, swizzle, promotion, fill))
        assert place % 64 == 0
        if not status:
            ctypes.memset(place, len(self.named("cuTensorMapEncodeTiled")), 128)
        return status

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> tuple[Any, ...]:
        return (self._result("cuStreamWaitEvent", stream, event),)

    def cuEventDestroy(self, event: int) -> tuple[Any, ...]:
        return (self._result("cuEventDestroy", event),)

    def cuStreamSynchronize(self, stream: int) -> tuple[Any, ...]:
        return (self._result("cuStreamSynchronize", stream),)

    def cuCtxSynchronize(self) -> tuple[Any, ...]:
        return (self._result("cuCtxSynchronize"),)

    def cuLaunchKernel(self, f: Any, *arguments: int) -> tuple[Any, ...]:
        x, y, z, bx, by, bz, shared, stream, params, extra = arguments
        assert (by, bz, extra) == (1, 1, 0)
        return self._launch("cuLaunchKernel", f, (x, y, z), bx, shared, stream, params, [])

    def cuLaunchKernelEx(self, config: Any, f: Any, params: int, extra: int) -> tuple[Any, ...]:
        assert (config.blockDimY, config.blockDimZ, extra) == (1, 1, 0)
        assert config.numAttrs == len(config.attrs)
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        attributes = [(record.id, _attribute_value(record)) for record in config.attrs]
        return self._launch(
            "cuLaunchKernelEx", f, grid, config.blockDimX, config.sharedMemBytes, config.hStream, params, attributes
        )

    def _launch(
        self,
        name: str,
        f: Any,
        grid: tuple[int, int, int],
        threads: int,
        shared: int,
        stream: int,
        params: int,
        attributes: list[tuple[str, Any]],
    ) -> tuple[CUresult]:
        status = self._result(name, grid)
        if f[0] != self.stack[-1]:  # the function's context is not current
            status = CUresult.CUDA_ERROR_INVALID_CONTEXT
        if not status:
            self.clock += self.durations.pop(0) if self.durations else 0.0
            addresses = list((ctypes.c_void_p * self.param_count).from_address(params))
            self.packed.append(ctypes.string_at(addresses[0], self.buffer_bytes) if addresses else b"")
            fields = {"grid": grid, "threads": threads, "shared": shared, "stream": stream, "params": params}
            fields["offsets"] = [address - addresses[0] for address in addresses]
            fields["first"] = addresses[0] if addresses else 0
            self.launches.append(Launch(**fields, context=self.stack[-1], attributes=attributes))
        return (status,)


def _attribute_value(record: Any) -> Any:
    value = record.value
    if "clusterDim" in value.__dict__:
        return value.clusterDim.x, value.clusterDim.y, value.clusterDim.z
    return next(iter(value.__dict__.values()))


class TorchDtype:
    """Spelt as torch spells its dtypes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


F16, F32, I32, BF16 = (TorchDtype(name) for name in ("float16", "float32", "int32", "bfloat16"))


class _Device:
    def __init__(self, type: str) -> None:
        self.type = type


class Tensor:
    """What the runtime asks of a torch tensor; device -1 is the CPU."""

    layout = "torch.strided"

    def __init__(
        self, address: int, dtype: Any = F32, shape: tuple[int, ...] = (8,), device: int = 0, where: str | None = None
    ) -> None:
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.index = device
        self.device = _Device(where or ("cuda" if device >= 0 else "cpu"))
        self.negated = False

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.index

    def stride(self) -> tuple[int, ...]:
        out: list[int] = []
        step = 1
        for size in reversed(self.shape):
            out.insert(0, step)
            step *= size
        return tuple(out)

    def is_neg(self) -> bool:
        return self.negated
