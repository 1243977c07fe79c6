# pyright: basic, reportMissingImports=false
"""CUDA, through its driver API: the one file that talks to it.

Owns: the binding module (imported on first use), primary contexts, modules, functions, the launch call, streams, error
texts. Assumes: `cuda-bindings`, and `libcuda.so.1` of a driver. It shares each device's primary context with the CUDA
runtime and so with torch, and leaves the thread's current context as it found it. Must not know: kernels, arguments,
IR, the user's lines: it raises `DriverError`, which `launch.py` turns into a message for the user.

Tests put their own module in the place of `cuda.bindings.driver` with `use_driver`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mimw.runtime.convention import LaunchAttributes
from mimw.target import TARGETS

# Dynamic shared memory up to here needs no opt-in (CUDA C++ Programming Guide, "Shared Memory", every compute
# capability).
SHARED_WITHOUT_OPT_IN = 48 * 1024
# The largest cluster that every device which has clusters can place (the guide, "Thread Block Clusters").
PORTABLE_CLUSTER = 8
_JIT_LOG_BYTES = 16 * 1024
_L2_PROMOTION_128B = 2
_PORTABLE_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP

_lock = threading.RLock()
_module: Any = None
_injected = False
_probe: bool | None = None
_contexts: dict[int, Any] = {}
_attributes: dict[tuple[int, str], int] = {}
_streams: dict[int, Any] = {}
_encoder: Any = None


class DriverError(Exception):
    """A refusal by the driver: number, name (`CUDA_ERROR_...`), sentence, and the call; `log` is its assembler's."""

    def __init__(self, code: int, name: str, text: str, call: str, log: str = "") -> None:
        super().__init__(f"{call}: {name} ({code}): {text}" + (f"\n{log}" if log else ""))
        self.code = code
        self.name = name
        self.text = text
        self.call = call
        self.log = log


class Function:
    """A kernel on one device: handles, and the driver's figures (registers a thread, most threads a CTA, bytes)."""

    __slots__ = ("device", "handle", "local_bytes", "max_threads", "module", "registers", "static_shared")

    def __init__(self, device: int, module: Any, handle: Any) -> None:
        self.device = device
        self.module = module
        self.handle = handle
        self.registers = _function_attribute(handle, "NUM_REGS")
        self.max_threads = _function_attribute(handle, "MAX_THREADS_PER_BLOCK")
        self.local_bytes = _function_attribute(handle, "LOCAL_SIZE_BYTES")
        self.static_shared = _function_attribute(handle, "SHARED_SIZE_BYTES")


def use_driver(module: Any) -> None:
    """Take `module` for `cuda.bindings.driver`, and forget contexts and streams; None goes back to the real one.

    For tests.
    """
    global _module, _injected
    with _lock:
        _module = module
        _injected = module is not None
        _contexts.clear()
        _attributes.clear()
        _streams.clear()


def available() -> bool:
    """Whether a CUDA driver with at least one device is here.

    Asks once, through ctypes: the binding need not be installed.
    """
    global _probe
    if _injected:
        return True
    if _probe is None:
        _probe = _probe_driver()
    return _probe


def _probe_driver() -> bool:
    try:
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return lib.cuInit(0) == 0 and lib.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _driver() -> Any:
    """The binding module, initialised."""
    global _module
    if _module is not None:
        return _module
    with _lock:
        if _module is not None:
            return _module
        if not available():
            raise DriverError(100, "CUDA_ERROR_NO_DEVICE", "no CUDA driver with a device on this machine", "cuInit")
        try:
            from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]
        except ImportError as error:
            text = f"the package cuda-bindings cannot be imported ({error}); pip install cuda-bindings"
            raise DriverError(0, "NO_BINDING", text, "import cuda.bindings") from None
        _module = driver
        _check(driver.cuInit(0), "cuInit")
    return _module


def make_error(code: Any, call: str, log: str = "") -> DriverError:
    """The error for a result code, with the driver's name and sentence for it."""
    texts: list[str] = []
    for ask in (_module.cuGetErrorName, _module.cuGetErrorString):
        status, text = ask(code)
        texts.append("unknown error" if status or text is None else text.decode())
    return DriverError(int(code), texts[0], texts[1], call, log)


def _check(result: tuple[Any, ...], call: str) -> Any:
    """The value of a driver call: None, the value, or a tuple; `DriverError` unless it succeeded."""
    if result[0]:
        raise make_error(result[0], call)
    if len(result) == 1:
        return None
    return result[1] if len(result) == 2 else result[1:]


def call(name: str, *args: Any) -> Any:
    """The value of the driver's function `name`: None, a value, or a tuple; `DriverError` unless it succeeded."""
    return _check(getattr(_driver(), name)(*args), name)


def driver_version() -> tuple[int, int]:
    """The newest CUDA version that the driver speaks, (13, 0)."""
    number = _check(_driver().cuDriverGetVersion(), "cuDriverGetVersion")
    return number // 1000, number % 1000 // 10


def device_count() -> int:
    """How many CUDA devices this process may use; 0 without a driver."""
    return _check(_driver().cuDeviceGetCount(), "cuDeviceGetCount") if available() else 0


def device_attribute(device: int, name: str) -> int:
    """A number about a device: `name` is what follows `CU_DEVICE_ATTRIBUTE_` in the driver's documentation.

    Asked once.
    """
    found = _attributes.get((device, name))
    if found is None:
        driver = _driver()
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        found = _check(driver.cuDeviceGetAttribute(which, _device(device)), "cuDeviceGetAttribute")
        _attributes[device, name] = found
    return found


def device_name(device: int) -> str:
    """The name that the driver gives the device, ``NVIDIA H200``."""
    text = _check(_driver().cuDeviceGetName(256, _device(device)), "cuDeviceGetName")
    return text.rstrip(b"\0").decode()


def memory_info(device: int) -> tuple[int, int]:
    """(free, total) bytes of the device's memory."""
    with current(device):
        free, total = _check(_driver().cuMemGetInfo(), "cuMemGetInfo")
    return free, total


def capability(device: int) -> tuple[int, int]:
    """The compute capability, (9, 0)."""
    return (
        device_attribute(device, "COMPUTE_CAPABILITY_MAJOR"),
        device_attribute(device, "COMPUTE_CAPABILITY_MINOR"),
    )


def target_name(device: int) -> str | None:
    """The target to compile for on this device, ``sm_90a``; None when mimw knows none whose code it runs."""
    return target_for(capability(device))


def target_for(capability: tuple[int, int]) -> str | None:
    """The target for a compute capability: its own, else the newest earlier one of its major number that runs there."""
    major, minor = capability
    exact = f"sm_{major}{minor}"
    for name in (exact + "a", exact):
        if name in TARGETS:
            return name
    older = [t for t in TARGETS.values() if t.name == f"sm_{t.arch}" and t.arch // 10 == major and t.arch % 10 < minor]
    return max(older, key=lambda t: t.arch).name if older else None


def _device(device: int) -> Any:
    return _check(_driver().cuDeviceGet(device), "cuDeviceGet")


def _context(device: int) -> Any:
    """The device's primary context, retained once for the life of the process."""
    found = _contexts.get(device)
    if found is None:
        with _lock:
            found = _contexts.get(device)
            if found is None:
                found = _check(_driver().cuDevicePrimaryCtxRetain(_device(device)), "cuDevicePrimaryCtxRetain")
                _contexts[device] = found
    return found


class current:
    """``with current(device):`` the device's primary context is the thread's current one; afterwards the old one is
    again.

    A thread that has none keeps device 0's, as with the CUDA runtime. Another device's must not stay: the runtime takes
    the current context's device for the thread's current device, so torch would change its own under the user.
    """

    __slots__ = ("_device", "_pushed")

    def __init__(self, device: int) -> None:
        self._device = device
        self._pushed = False

    def __enter__(self) -> None:
        driver = _driver()
        wanted = _context(self._device)
        now = int(_check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent"))
        if now == int(wanted):
            return
        if now == 0 and self._device == 0:
            _check(driver.cuCtxSetCurrent(wanted), "cuCtxSetCurrent")
            return
        _check(driver.cuCtxPushCurrent(wanted), "cuCtxPushCurrent")
        self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            _check(_driver().cuCtxPopCurrent(), "cuCtxPopCurrent")


def current_device() -> int:
    """The device of the thread's current context, else 0."""
    driver = _driver()
    if int(_check(driver.cuCtxGetCurrent(), "cuCtxGetCurrent")) == 0:
        return 0
    return int(_check(driver.cuCtxGetDevice(), "cuCtxGetDevice"))


def load_function(device: int, image: bytes | str, entry: str) -> Function:
    """The kernel `entry` of a cubin (bytes) or PTX (text: the driver assembles it), loaded for the process's life."""
    data = image.encode() + b"\0" if isinstance(image, str) else image
    with current(device):
        module = _load_module(data, jit=isinstance(image, str))
        handle = _check(_driver().cuModuleGetFunction(module, entry.encode()), "cuModuleGetFunction")
        return Function(device, module, handle)


def _load_module(data: bytes, jit: bool) -> Any:
    driver = _driver()
    if not jit:
        return _check(driver.cuModuleLoadDataEx(data, 0, [], []), "cuModuleLoadDataEx")
    log = bytearray(_JIT_LOG_BYTES)
    option = driver.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    status, module = driver.cuModuleLoadDataEx(data, len(options), options, [log, len(log)])
    if status:
        raise make_error(status, "cuModuleLoadDataEx", bytes(log).split(b"\0", 1)[0].decode(errors="replace").strip())
    return module


def _function_attribute(handle: Any, name: str) -> int:
    driver = _driver()
    which = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    return _check(driver.cuFuncGetAttribute(which, handle), "cuFuncGetAttribute")


def shared_limit(device: int) -> int:
    """The most shared memory that one CTA may ask for on the device, static and dynamic together, in bytes."""
    return device_attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def allow(function: Function, shared_bytes: int, attributes: LaunchAttributes) -> None:
    """Opt in to what a function needs beyond the default: much dynamic shared memory, a cluster of more than 8 CTAs."""
    driver = _driver()
    x, y, z = attributes.cluster
    with current(function.device):
        if shared_bytes + function.static_shared > SHARED_WITHOUT_OPT_IN:
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(function.handle, which, shared_bytes), "cuFuncSetAttribute")
        if x * y * z > PORTABLE_CLUSTER:
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            _check(driver.cuFuncSetAttribute(function.handle, which, 1), "cuFuncSetAttribute")


def encode_tensor_map(
    kind: int,
    address: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    nan_fill: bool,
) -> bytes:
    """The 128 bytes of a TMA tensor map (cuTensorMapEncodeTiled); dimensions innermost first.

    `kind` and `swizzle` are the driver's numbers, `extents` and `box` count elements, `strides` (one fewer) bytes. Not
    interleaved, no element strides, L2 promotion of 128 bytes.
    """
    rank = len(extents)
    # Memory of our own, for the driver writes to 64-byte aligned places only and the binding's object is not aligned.
    memory = (ctypes.c_uint8 * 256)()
    place = (ctypes.addressof(memory) + 127) & -128
    ones = (ctypes.c_uint32 * rank)(*[1] * rank)
    status = _tensor_map_encoder()(
        place,
        kind,
        rank,
        address,
        (ctypes.c_uint64 * rank)(*extents),
        (ctypes.c_uint64 * max(1, rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*box),
        ones,
        0,
        swizzle,
        _L2_PROMOTION_128B,
        int(nan_fill),
    )
    if status:
        text = (
            f"extents {list(extents)}, strides {list(strides)} bytes, box {list(box)}, swizzle {swizzle}, type {kind}"
        )
        raise make_error(_driver().CUresult(status), "cuTensorMapEncodeTiled", text)
    return ctypes.string_at(place, 128)


def _tensor_map_encoder() -> Callable[..., int]:
    """The driver's function through ctypes; a stand-in for the driver brings its own."""
    global _encoder
    driver = _driver()
    if _injected:
        return driver.cuTensorMapEncodeTiled
    if _encoder is None:
        found = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
        pointer, number = ctypes.c_void_p, ctypes.c_int
        found.argtypes = [pointer, number, ctypes.c_uint32, *[pointer] * 5, *[number] * 4]
        _encoder = found
    return _encoder


def argument_block(base: int, offsets: Sequence[int], size: int) -> tuple[int, Any]:
    """(address of what the launch call takes for arguments, what must live as long): a `void*[]` into the buffer at `base`."""
    pointers = (ctypes.c_void_p * max(1, len(offsets)))(*(base + offset for offset in offsets))
    return ctypes.addressof(pointers), pointers


LaunchCall = Callable[[int, int, int, Any, int], None]


def bind_launch(function: Function, threads: int, shared_bytes: int, attributes: LaunchAttributes) -> LaunchCall:
    """A callable `(x, y, z, stream, params)` that launches: grid in CTAs, `stream` of `stream_handle`, address of an
    `argument_block`.

    The context is the caller's business (`current`). Not for two threads at once: with attributes it owns one
    configuration record.
    """
    driver = _driver()
    handle = function.handle
    if attributes.plain:
        launch = driver.cuLaunchKernel

        def launch_plain(x: int, y: int, z: int, stream: Any, params: int) -> None:
            (status,) = launch(handle, x, y, z, threads, 1, 1, shared_bytes, stream, params, 0)
            if status:
                raise make_error(status, "cuLaunchKernel")

        return launch_plain

    launch_ex = driver.cuLaunchKernelEx
    config = _launch_config(driver, threads, shared_bytes, attributes)

    def launch_extended(x: int, y: int, z: int, stream: Any, params: int) -> None:
        config.gridDimX = x
        config.gridDimY = y
        config.gridDimZ = z
        config.hStream = stream
        (status,) = launch_ex(config, handle, params, 0)
        if status:
            raise make_error(status, "cuLaunchKernelEx")

    return launch_extended


def _launch_config(driver: Any, threads: int, shared_bytes: int, attributes: LaunchAttributes) -> Any:
    config = driver.CUlaunchConfig()
    config.blockDimX = threads
    config.blockDimY = config.blockDimZ = 1
    config.sharedMemBytes = shared_bytes
    ids = driver.CUlaunchAttributeID
    records: list[Any] = []
    if attributes.cluster != (1, 1, 1) and not attributes.stated:
        record = driver.CUlaunchAttribute()
        record.id = ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        record.value.clusterDim.x, record.value.clusterDim.y, record.value.clusterDim.z = attributes.cluster
        records.append(record)
    if attributes.cooperative:
        record = driver.CUlaunchAttribute()
        record.id = ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        record.value.cooperative = 1
        records.append(record)
    if attributes.programmatic:
        record = driver.CUlaunchAttribute()
        record.id = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        record.value.programmaticStreamSerializationAllowed = 1
        records.append(record)
    config.attrs = records
    config.numAttrs = len(records)
    return config


def stream_handle(stream: int) -> Any:
    """The driver's object for a raw stream; kept, for making one costs more than looking it up."""
    found = _streams.get(stream)
    if found is None:
        if len(_streams) > 256:
            _streams.clear()
        found = _streams[stream] = _driver().CUstream(stream)
    return found


def torch_stream(device: int) -> int:
    """torch's current stream on a device as a raw handle; 0, the default one, while torch does not use CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return torch.cuda.current_stream(device).cuda_stream


def raw_stream_getter() -> Callable[[int], int]:
    """The quickest function device -> torch's current raw stream, once torch has made CUDA tensors."""
    torch = sys.modules.get("torch")
    getter = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return getter or torch_stream


def wait_for_stream(device: int, waiter: int, producer: int) -> None:
    """Work put on `waiter` from now on starts after all that is on `producer` now; both raw streams of the device."""
    driver = _driver()
    with current(device):
        flag = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = _check(driver.cuEventCreate(int(flag)), "cuEventCreate")
        try:
            _check(driver.cuEventRecord(event, stream_handle(producer)), "cuEventRecord")
            _check(driver.cuStreamWaitEvent(stream_handle(waiter), event, 0), "cuStreamWaitEvent")
        finally:
            driver.cuEventDestroy(event)


def allocate(size: int) -> Any:
    """The address of `size` bytes of the current device's memory."""
    return call("cuMemAlloc", size)


def free(address: Any) -> None:
    """Give memory of `allocate` back."""
    call("cuMemFree", address)


def allocate_host(size: int) -> tuple[int, int]:
    """(address here, address on the current device) of `size` bytes of pinned host memory."""
    host = int(call("cuMemHostAlloc", size, _PORTABLE_MAPPED))
    return host, int(call("cuMemHostGetDevicePointer", host, 0))


def set_zero(address: Any, size: int) -> None:
    """Overwrite `size` bytes of the current device's memory, a multiple of 4, with zeros, and wait for that."""
    call("cuMemsetD32", address, 0, size // 4)
    call("cuCtxSynchronize")


def read_memory(address: Any, size: int) -> bytes:
    """`size` bytes of the current device's memory, when what is on its default stream is done."""
    out = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH", ctypes.addressof(out), address, size)
    return out.raw


def clear(address: Any, size: int, stream: Any) -> None:
    """Have a stream (of `stream_handle`) overwrite `size` bytes, a multiple of 4, with zeros."""
    call("cuMemsetD32Async", address, 0, size // 4, stream)


def create_event() -> Any:
    """An event that keeps its time; to be destroyed by `destroy_event`."""
    return call("cuEventCreate", 0)


def record_event(event: Any, stream: Any) -> None:
    """The event happens when the stream has done what is on it now."""
    call("cuEventRecord", event, stream)


def milliseconds_between(start: Any, end: Any) -> float:
    """The time between two events that have happened."""
    return call("cuEventElapsedTime", start, end)


def destroy_event(event: Any) -> None:
    """Give an event back."""
    call("cuEventDestroy", event)


def is_capturing(device: int, stream: int) -> bool:
    """Whether a stream's work is recorded for a graph instead of being done."""
    with current(device):
        return int(call("cuStreamIsCapturing", stream_handle(stream))) != 0


def is_done(device: int, stream: int) -> bool:
    """Whether all work on a stream has ended; `DriverError` for faults of it."""
    try:
        with current(device):
            call("cuStreamQuery", stream_handle(stream))
    except DriverError as error:
        if error.name == "CUDA_ERROR_NOT_READY":
            return False
        raise
    return True


def synchronize(device: int, stream: int | None = None) -> None:
    """Wait for a stream, or for all work on the device; `DriverError` also for faults of earlier launches."""
    driver = _driver()
    with current(device):
        if stream is None:
            _check(driver.cuCtxSynchronize(), "cuCtxSynchronize")
        else:
            _check(driver.cuStreamSynchronize(stream_handle(stream)), "cuStreamSynchronize")
