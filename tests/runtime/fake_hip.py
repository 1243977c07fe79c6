"""A stand-in for `libamdhip64.so` that records calls; its functions take what ctypes would pass."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any

HOST_OFFSET = 1 << 40

NAMES = {
    1: "hipErrorInvalidValue",
    2: "hipErrorOutOfMemory",
    9: "hipErrorInvalidConfiguration",
    100: "hipErrorNoDevice",
    209: "hipErrorNoBinaryForGpu",
    400: "hipErrorInvalidHandle",
    500: "hipErrorNotFound",
    700: "hipErrorIllegalAddress",
    719: "hipErrorLaunchFailure",
}


class Launch:
    """One recorded launch; `packed` is the argument buffer."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    grid: tuple[int, int, int]
    threads: int
    shared: int
    stream: int
    packed: bytes
    device: int


class FakeHip:
    """Two MI300X unless told otherwise. `fail` maps a call to the status that it gives once.

    `host` is the host's memory that it gave, which the device sees `HOST_OFFSET` further on; `memory` the device's, by address, where it was
    set to zero. `when_launched` is called with each launch and plays the kernel, `when_queried` gives the status of a stream.

    Every launch takes the next of `durations` ms of the device's time (0 without one), a fill 1 ms; events read that clock.
    """

    def __init__(self, architecture: str = "gfx942:sramecc+:xnack-", shared: int = 65536) -> None:
        self.architecture = architecture
        self.shared = shared
        self.devices = 2
        self.calls: list[tuple[Any, ...]] = []
        self.launches: list[Launch] = []
        self.fail: dict[str, int] = {}
        self.max_threads = 1024
        self.static_shared = 0
        self.durations: list[float] = []
        self.clock = 0.0
        self.host: list[Any] = []
        self.memory: dict[int, bytearray] = {}
        self.capturing = False
        self.when_launched: Callable[[Launch], None] | None = None
        self.when_queried: Callable[[], int] | None = None
        self.events: dict[int, float] = {}
        self._local = threading.local()

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """The recorded calls of that name."""
        return [call for call in self.calls if call[0] == name]

    @property
    def device(self) -> int:
        """The calling thread's current device."""
        return getattr(self._local, "device", 0)

    def _result(self, name: str, *args: Any) -> int:
        self.calls.append((name, *args))
        return self.fail.pop(name, 0)

    @staticmethod
    def _give(place: Any, value: int) -> None:
        place._obj.value = value

    def hipGetErrorName(self, code: int) -> bytes:
        return NAMES.get(code, "hipErrorUnknown").encode()

    def hipGetErrorString(self, code: int) -> bytes:
        return f"sentence {code}".encode()

    def hipInit(self, flags: int) -> int:
        return self._result("hipInit", flags)

    def hipGetDeviceCount(self, count: Any) -> int:
        self._give(count, self.devices)
        return self._result("hipGetDeviceCount")

    def hipRuntimeGetVersion(self, version: Any) -> int:
        self._give(version, 60443484)
        return 0

    def hipGetDevice(self, device: Any) -> int:
        self._give(device, self.device)
        return 0

    def hipSetDevice(self, device: int) -> int:
        self._local.device = device
        return self._result("hipSetDevice", device)

    def hipDeviceGetAttribute(self, value: Any, which: int, device: int) -> int:
        self._give(value, {56: 1024, 63: 304, 74: self.shared, 87: 64}[which])
        return self._result("hipDeviceGetAttribute", which, device)

    def hipDeviceGetName(self, text: Any, size: int, device: int) -> int:
        text.value = b"AMD Instinct MI300X"
        return 0

    def hipGetDevicePropertiesR0600(self, record: Any, device: int) -> int:
        fields = b"gfx000 is in the name".ljust(256, b"\0") + struct.pack("<16sQQ", b"uuid", 1 << 37, self.shared)
        record[: len(fields)] = fields
        name = self.architecture.encode() + b"\0"
        record[1160 : 1160 + len(name)] = name
        return self._result("hipGetDevicePropertiesR0600", device)

    def hipMemGetInfo(self, free: Any, total: Any) -> int:
        self._give(free, 5)
        self._give(total, 10)
        return self._result("hipMemGetInfo", self.device)

    def hipModuleLoadData(self, module: Any, image: Any) -> int:
        self._give(module, 0xA000 + self.device)
        return self._result("hipModuleLoadData", ctypes.string_at(image, 4))

    def hipModuleGetFunction(self, function: Any, module: int, name: bytes) -> int:
        self._give(function, module + 0x1000)
        return self._result("hipModuleGetFunction", module, name)

    def hipFuncGetAttribute(self, value: Any, which: int, function: int) -> int:
        self._give(value, {0: self.max_threads, 1: self.static_shared, 3: 0, 4: 96}[which])
        return 0

    def hipModuleLaunchKernel(self, f: int, *arguments: Any) -> int:
        x, y, z, bx, by, bz, shared, stream, params, extra = arguments
        assert (by, bz, params) == (1, 1, None)
        status = self._result("hipModuleLaunchKernel", (x, y, z))
        if f - 0xB000 != self.device:  # the function's device is not the current one
            status = 400
        if not status:
            self.clock += self.durations.pop(0) if self.durations else 0.0
            first, buffer, second, length, end = (ctypes.c_void_p * 5).from_address(extra)
            assert (first, second, end) == (1, 2, 3)
            assert buffer is not None and length is not None
            packed = ctypes.string_at(buffer, ctypes.c_size_t.from_address(length).value)
            fields = {"grid": (x, y, z), "threads": bx, "shared": shared, "stream": stream, "packed": packed}
            self.launches.append(Launch(**fields, device=self.device))
            if self.when_launched is not None:
                self.when_launched(self.launches[-1])
        return status

    def hipEventCreateWithFlags(self, event: Any, flags: int) -> int:
        self._give(event, 77 + len(self.events))
        self.events[77 + len(self.events)] = -1.0
        return self._result("hipEventCreateWithFlags", flags)

    def hipEventRecord(self, event: int, stream: int) -> int:
        self.events[event] = self.clock
        return self._result("hipEventRecord", event, stream)

    def hipEventElapsedTime(self, time: Any, start: Any, end: Any) -> int:
        self._give(time, self.events[end.value] - self.events[start.value])
        return 0

    def hipMalloc(self, place: Any, size: Any) -> int:
        self._give(place, 0xF000 + 0x100 * len(self.memory))
        return self._result("hipMalloc", size.value)

    def hipFree(self, address: Any) -> int:
        return self._result("hipFree", address.value)

    def hipMemsetD32Async(self, address: Any, value: int, count: Any, stream: Any) -> int:
        self.clock += 1.0
        return self._result("hipMemsetD32Async", address.value, value, count.value, stream.value or 0)

    def hipStreamWaitEvent(self, stream: int, event: int, flags: int) -> int:
        return self._result("hipStreamWaitEvent", stream, event)

    def hipEventDestroy(self, event: int) -> int:
        return self._result("hipEventDestroy", event)

    def hipStreamSynchronize(self, stream: int) -> int:
        return self._result("hipStreamSynchronize", stream)

    def hipDeviceSynchronize(self) -> int:
        return self._result("hipDeviceSynchronize", self.device)

    # -- memory that kernels report through

    def hipHostMalloc(self, place: Any, size: Any, flags: Any) -> int:
        memory = ctypes.create_string_buffer(size.value)
        self.host.append(memory)
        self._give(place, ctypes.addressof(memory))
        return self._result("hipHostMalloc", size.value, flags.value)

    def hipHostGetDevicePointer(self, place: Any, host: Any, flags: Any) -> int:
        self._give(place, host.value + HOST_OFFSET)
        return self._result("hipHostGetDevicePointer", host.value)

    def hipMemsetD32(self, address: Any, value: int, count: Any) -> int:
        self.memory[address.value] = bytearray(4 * count.value)
        return self._result("hipMemsetD32", address.value, value, count.value)

    def hipMemcpyDtoH(self, to: Any, source: Any, size: Any) -> int:
        ctypes.memmove(to.value, bytes(self.memory[source.value][: size.value]), size.value)
        return self._result("hipMemcpyDtoH", source.value, size.value)

    def hipStreamIsCapturing(self, stream: Any, status: Any) -> int:
        self._give(status, int(self.capturing))
        return self._result("hipStreamIsCapturing", stream.value or 0)

    def hipStreamQuery(self, stream: Any) -> int:
        self.calls.append(("hipStreamQuery", stream.value or 0))
        return self.when_queried() if self.when_queried is not None else 0
