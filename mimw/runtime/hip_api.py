# pyright: basic
"""HIP, AMD's runtime, through ctypes: the one file that talks to it. It offers what `driver_api.py` offers of CUDA.

Owns: the search for `libamdhip64.so`, devices, modules, functions, the launch call, streams, error texts. Assumes nothing to
be installed; where torch for ROCm has brought its own library, that one is used, for streams and memory are the library's.
Must not know: kernels, arguments, IR, the user's lines: it raises `DriverError`, which `launch.py` turns into a message.

Arguments travel packed in one buffer, laid out as `convention.py` says: the metadata of the code object says the same.
Tests put their own library in the place of the real one with `use_library`. Numbers are those of hip_runtime_api.h.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from mimw.runtime.convention import LaunchAttributes
from mimw.runtime.driver_api import DriverError, raw_stream_getter, torch_stream
from mimw.target import TARGETS

__all__ = ["raw_stream_getter", "torch_stream"]  # torch for ROCm keeps the names of CUDA

_SONAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so")
_ROCM_FOLDERS = ("/opt/rocm/lib", "/opt/rocm/hip/lib")
# Functions whose first arguments need more than ctypes' default of an int.
_ARGUMENTS: dict[str, list[Any]] = {
    "hipModuleLaunchKernel": [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3],
    "hipModuleGetFunction": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p],
    "hipFuncGetAttribute": [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p],
    "hipEventCreateWithFlags": [ctypes.c_void_p, ctypes.c_uint],
    "hipEventRecord": [ctypes.c_void_p, ctypes.c_void_p],
    "hipEventDestroy": [ctypes.c_void_p],
    "hipStreamWaitEvent": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint],
    "hipStreamSynchronize": [ctypes.c_void_p],
}
# hipDeviceAttribute_t, by the names that the CUDA driver's documentation has.
_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 56,
    "MULTIPROCESSOR_COUNT": 63,
    "MAX_SHARED_MEMORY_PER_BLOCK": 74,
    "WARP_SIZE": 87,
}
# hipFunction_attribute.
_MAX_THREADS, _SHARED_BYTES, _LOCAL_BYTES, _REGISTERS = 0, 1, 3, 4
_EVENT_WITHOUT_TIMING = 2
_PORTABLE_MAPPED_COHERENT = 1 | 2 | 0x40000000
_NOT_READY = 600
# HIP_LAUNCH_PARAM_BUFFER_POINTER, ..._BUFFER_SIZE, ..._END.
_BUFFER_POINTER, _BUFFER_SIZE, _PARAM_END = 1, 2, 3
# hipDeviceProp_t has grown from release to release; the architecture's name is a text in it, behind the device's name.
_PROPERTIES_BYTES, _NAME_BYTES = 8192, 256
_ARCHITECTURE = re.compile(rb"\0(gfx[0-9a-f]+)(?::[a-z+:-]*)?\0")

_lock = threading.RLock()
_library: Any = None
_injected = False
_probe: bool | None = None
_missing = ""
_attributes: dict[tuple[int, str], int] = {}
_architectures: dict[int, str] = {}


class Function:
    """A kernel on one device: handles, and HIP's figures (registers a thread, most threads a CTA, bytes)."""

    __slots__ = ("device", "handle", "local_bytes", "max_threads", "module", "registers", "static_shared")

    def __init__(self, device: int, module: Any, handle: Any) -> None:
        self.device = device
        self.module = module
        self.handle = handle
        self.registers = _function_attribute(handle, _REGISTERS)
        self.max_threads = _function_attribute(handle, _MAX_THREADS)
        self.local_bytes = _function_attribute(handle, _LOCAL_BYTES)
        self.static_shared = _function_attribute(handle, _SHARED_BYTES)


# --- the library


def use_library(library: Any) -> None:
    """Take `library` for the loaded `libamdhip64.so`, and forget devices; None goes back to the real one. For tests."""
    global _library, _injected, _probe, _missing
    with _lock:
        _library = library
        _injected = library is not None
        _probe = None
        _missing = ""
        _attributes.clear()
        _architectures.clear()


def library_paths() -> Iterator[str]:
    """Where HIP's library may lie: already loaded, torch's own copy, under ROCM_PATH, by its name, in /opt/rocm."""
    yield from _loaded_libraries()
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from sorted(glob.glob(os.path.join(folder, "lib", "libamdhip64.so*")))
    root = os.environ.get("ROCM_PATH")
    for folder in [os.path.join(root, "lib")] if root else []:
        yield from (path for name in _SONAMES if os.path.exists(path := os.path.join(folder, name)))
    yield from _SONAMES
    for folder in _ROCM_FOLDERS:
        yield from (path for name in _SONAMES if os.path.exists(path := os.path.join(folder, name)))


def _loaded_libraries() -> list[str]:
    """HIP's libraries that this process has already loaded (Linux)."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return sorted({line.split(None, 5)[5].strip() for line in maps if "libamdhip64.so" in line})
    except OSError:
        return []


def available() -> bool:
    """Whether HIP with at least one device is here. Asks once."""
    global _probe
    if _probe is None:
        with _lock:
            _probe = _probe_library()
    return _probe


def why_unavailable() -> str:
    """For people: what of HIP is missing here; empty when nothing is."""
    return "" if available() else _missing


def _probe_library() -> bool:
    global _library, _missing
    if _library is None:
        _library = _open_library()
        if _library is None:
            _missing = "libamdhip64.so is not here: it comes with ROCm, or with torch for ROCm"
            return False
    count = ctypes.c_int(0)
    status = _library.hipInit(0) or _library.hipGetDeviceCount(ctypes.byref(count))
    if status or count.value == 0:
        _missing = "HIP finds no device" + (f": {_make_error(status, 'hipInit').name}" if status else "")
        return False
    return True


def _open_library() -> Any:
    for path in library_paths():
        try:
            library = ctypes.CDLL(path)
            for name, arguments in _ARGUMENTS.items():
                getattr(library, name).argtypes = arguments
            for name in ("hipGetErrorName", "hipGetErrorString"):
                getattr(library, name).restype = ctypes.c_char_p
        except (OSError, AttributeError):
            continue
        return library
    return None


def _hip() -> Any:
    """The library, initialised; `DriverError` where there is none, or no device."""
    if not available():
        raise DriverError(100, "hipErrorNoDevice", _missing, "hipInit")
    return _library


def _make_error(code: int, call: str) -> DriverError:
    """The error for a result code, with HIP's name and sentence for it."""
    texts = [ask(code) or b"unknown error" for ask in (_library.hipGetErrorName, _library.hipGetErrorString)]
    return DriverError(int(code), texts[0].decode(), texts[1].decode(), call)


def _check(status: int, call: str) -> None:
    if status:
        raise _make_error(status, call)


def _ask_number(name: str, *rest: Any) -> int:
    """What a function writes to the int that its first argument points to."""
    value = ctypes.c_int(0)
    _check(getattr(_hip(), name)(ctypes.byref(value), *rest), name)
    return value.value


def _ask_handle(name: str, *rest: Any) -> int:
    """What a function writes to the handle that its first argument points to."""
    value = ctypes.c_void_p(None)
    _check(getattr(_hip(), name)(ctypes.byref(value), *rest), name)
    return value.value or 0


# --- devices


def driver_version() -> tuple[int, int]:
    """The version of HIP, (6, 4)."""
    number = _ask_number("hipRuntimeGetVersion")
    return number // 10_000_000, number // 100_000 % 100


def device_count() -> int:
    """How many devices this process may use; 0 without HIP."""
    return _ask_number("hipGetDeviceCount") if available() else 0


def device_attribute(device: int, name: str) -> int:
    """A number about a device, by the CUDA driver's name for it. Asked once; `KeyError` for names not in the table."""
    found = _attributes.get((device, name))
    if found is None:
        found = _attributes[device, name] = _ask_number("hipDeviceGetAttribute", _ATTRIBUTES[name], device)
    return found


def device_name(device: int) -> str:
    """The name that HIP gives the device, ``AMD Instinct MI300X``."""
    text = ctypes.create_string_buffer(_NAME_BYTES)
    _check(_hip().hipDeviceGetName(text, _NAME_BYTES, device), "hipDeviceGetName")
    return text.value.decode(errors="replace")


def memory_info(device: int) -> tuple[int, int]:
    """(free, total) bytes of the device's memory."""
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    with current(device):
        _check(_hip().hipMemGetInfo(ctypes.byref(free), ctypes.byref(total)), "hipMemGetInfo")
    return free.value, total.value


def architecture(device: int) -> str:
    """The architecture, ``gfx942``, without what follows it of features (``:sramecc+:xnack-``). Asked once."""
    found = _architectures.get(device)
    if found is None:
        hip = _hip()
        name = "hipGetDevicePropertiesR0600"
        if not hasattr(hip, name):  # before ROCm 6
            name = "hipGetDeviceProperties"
        record = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        _check(getattr(hip, name)(record, device), name)
        match = _ARCHITECTURE.search(record.raw, _NAME_BYTES - 1)
        found = _architectures[device] = match[1].decode() if match else "unknown"
    return found


def target_name(device: int) -> str | None:
    """The target to compile for on this device, ``gfx942``; None when mimw knows none whose code it runs."""
    name = architecture(device)
    return name if name in TARGETS else None


def shared_limit(device: int) -> int:
    """The most shared memory that one CTA may use on the device, in bytes."""
    return device_attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK")


class current:
    """``with current(device):`` the device is the thread's current one; afterwards the old one is again."""

    __slots__ = ("_before", "_device")

    def __init__(self, device: int) -> None:
        self._device = device
        self._before = -1

    def __enter__(self) -> None:
        before = current_device()
        if before != self._device:
            _check(_hip().hipSetDevice(self._device), "hipSetDevice")
            self._before = before

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            _check(_hip().hipSetDevice(self._before), "hipSetDevice")


def current_device() -> int:
    """The thread's current device."""
    return _ask_number("hipGetDevice")


# --- code


def load_function(device: int, image: bytes | str, entry: str) -> Function:
    """The kernel `entry` of a code object, loaded for the process's life."""
    if isinstance(image, str):
        raise TypeError("HIP loads code objects, no text")
    with current(device):
        module = _ask_handle("hipModuleLoadData", ctypes.c_char_p(image))
        handle = _ask_handle("hipModuleGetFunction", module, entry.encode())
        return Function(device, module, handle)


def _function_attribute(handle: Any, which: int) -> int:
    return _ask_number("hipFuncGetAttribute", which, handle)


def allow(function: Function, shared_bytes: int, attributes: LaunchAttributes) -> None:
    """Nothing to opt in to: a code object states its shared memory. `DriverError` for what AMD's devices do not have."""
    if attributes.cluster != (1, 1, 1) or attributes.programmatic or attributes.cooperative:
        text = "clusters, cooperative grids and programmatic dependent launches are not supported"
        raise DriverError(801, "hipErrorNotSupported", text, "hipModuleLaunchKernel")


def argument_block(base: int, offsets: list[int], size: int) -> tuple[int, Any]:
    """(address of what the launch call takes for arguments, what must live as long): one packed buffer of `size` bytes at `base`."""
    length = ctypes.c_size_t(size)
    parts = (_BUFFER_POINTER, base, _BUFFER_SIZE, ctypes.addressof(length), _PARAM_END)
    block = (ctypes.c_void_p * len(parts))(*parts)
    return ctypes.addressof(block), (block, length)


LaunchCall = Callable[[int, int, int, Any, int], None]


def bind_launch(function: Function, threads: int, shared_bytes: int, attributes: LaunchAttributes) -> LaunchCall:
    """A callable `(x, y, z, stream, arguments)` that launches: grid in CTAs, address of an `argument_block`.

    It makes the function's device the current one where it is not. `shared_bytes` is beyond what the code object states.
    """
    hip = _hip()
    launch, handle, device = hip.hipModuleLaunchKernel, function.handle, function.device
    get_device, here = hip.hipGetDevice, threading.local()

    def launch_here(x: int, y: int, z: int, stream: Any, arguments: int) -> None:
        status = launch(handle, x, y, z, threads, 1, 1, shared_bytes, stream, None, arguments)
        if status:
            raise _make_error(status, "hipModuleLaunchKernel")

    def launch_packed(x: int, y: int, z: int, stream: Any, arguments: int) -> None:
        try:
            now, place = here.now
        except AttributeError:
            now = ctypes.c_int(-1)
            place = ctypes.byref(now)
            here.now = now, place
        if get_device(place) == 0 and now.value == device:
            launch_here(x, y, z, stream, arguments)
            return
        with current(device):
            launch_here(x, y, z, stream, arguments)

    return launch_packed


# --- streams


def stream_handle(stream: int) -> Any:
    """What the launch call takes for a raw stream: the number itself."""
    return stream


def wait_for_stream(device: int, waiter: int, producer: int) -> None:
    """Work put on `waiter` from now on starts after all that is on `producer` now; both raw streams of the device."""
    hip = _hip()
    with current(device):
        event = _ask_handle("hipEventCreateWithFlags", _EVENT_WITHOUT_TIMING)
        try:
            _check(hip.hipEventRecord(event, producer), "hipEventRecord")
            _check(hip.hipStreamWaitEvent(waiter, event, 0), "hipStreamWaitEvent")
        finally:
            hip.hipEventDestroy(event)


def is_capturing(device: int, stream: int) -> bool:
    """Whether a stream's work is recorded for a graph instead of being done."""
    status = ctypes.c_int(0)
    with current(device):
        _check(_hip().hipStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(status)), "hipStreamIsCapturing")
    return status.value != 0


def is_done(device: int, stream: int) -> bool:
    """Whether all work on a stream has ended; `DriverError` for faults of it."""
    with current(device):
        status = _hip().hipStreamQuery(ctypes.c_void_p(stream))
    if status == _NOT_READY:
        return False
    _check(status, "hipStreamQuery")
    return True


def synchronize(device: int, stream: int | None = None) -> None:
    """Wait for a stream, or for all work on the device; `DriverError` also for faults of earlier launches."""
    hip = _hip()
    with current(device):
        if stream is None:
            _check(hip.hipDeviceSynchronize(), "hipDeviceSynchronize")
        else:
            _check(hip.hipStreamSynchronize(stream), "hipStreamSynchronize")


# --- memory and times, for measuring


def allocate(size: int) -> int:
    """The address of `size` bytes of the current device's memory."""
    return _ask_handle("hipMalloc", ctypes.c_size_t(size))


def free(address: int) -> None:
    """Give memory of `allocate` back."""
    _check(_hip().hipFree(ctypes.c_void_p(address)), "hipFree")


def allocate_host(size: int) -> tuple[int, int]:
    """(address here, address on the current device) of `size` bytes of the host's memory that the device writes through to."""
    host = _ask_handle("hipHostMalloc", ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE_MAPPED_COHERENT))
    return host, _ask_handle("hipHostGetDevicePointer", ctypes.c_void_p(host), ctypes.c_uint(0))


def set_zero(address: int, size: int) -> None:
    """Overwrite `size` bytes of the current device's memory, a multiple of 4, with zeros, and wait for that."""
    _check(_hip().hipMemsetD32(ctypes.c_void_p(address), 0, ctypes.c_size_t(size // 4)), "hipMemsetD32")
    _check(_hip().hipDeviceSynchronize(), "hipDeviceSynchronize")


def read_memory(address: int, size: int) -> bytes:
    """`size` bytes of the current device's memory, when what is on its default stream is done."""
    out = ctypes.create_string_buffer(size)
    status = _hip().hipMemcpyDtoH(
        ctypes.c_void_p(ctypes.addressof(out)), ctypes.c_void_p(address), ctypes.c_size_t(size)
    )
    _check(status, "hipMemcpyDtoH")
    return out.raw


def clear(address: int, size: int, stream: int) -> None:
    """Have a stream overwrite `size` bytes, a multiple of 4, with zeros."""
    where, count, on = ctypes.c_void_p(address), ctypes.c_size_t(size // 4), ctypes.c_void_p(stream)
    _check(_hip().hipMemsetD32Async(where, 0, count, on), "hipMemsetD32Async")


def create_event() -> int:
    """An event that keeps its time; to be destroyed by `destroy_event`."""
    return _ask_handle("hipEventCreateWithFlags", 0)


def record_event(event: int, stream: int) -> None:
    """The event happens when the stream has done what is on it now."""
    _check(_hip().hipEventRecord(event, stream), "hipEventRecord")


def milliseconds_between(start: int, end: int) -> float:
    """The time between two events that have happened."""
    value = ctypes.c_float(0.0)
    status = _hip().hipEventElapsedTime(ctypes.byref(value), ctypes.c_void_p(start), ctypes.c_void_p(end))
    _check(status, "hipEventElapsedTime")
    return value.value


def destroy_event(event: int) -> None:
    """Give an event back."""
    _check(_hip().hipEventDestroy(event), "hipEventDestroy")


def torch_is_rocms() -> bool:
    """Whether torch is loaded, and is the one for ROCm: its "cuda" devices are HIP's."""
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "hip", None) is not None
