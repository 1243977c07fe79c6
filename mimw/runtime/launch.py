# pyright: basic
"""Compiled kernels and how they are launched.

Owns: `CompiledKernel`, the specialised launchers, `synchronize`. Which stream a launch goes to is `streams.py`'s. Assumes the calling
convention of `convention.py`. Must not know IR, the language, or how a kernel was compiled.

A launch goes one of two ways. The *checked* way describes every argument, compares it with the compiled signature,
loads the kernel where that has not been done, and launches; it takes any array. When all arrays are torch's, it leaves
a `_Launcher` for their device, and the next launch takes the *quick* way: the same checks by identity (the torch dtype
object, the device number, the promised alignment, the scalar's type, a descriptor's blocks), one `struct` pack into a buffer that the thread
keeps, one driver call. Whatever the quick way does not like, it hands back to the checked way, which finds the words.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from mimw.diagnostics import LaunchError
from mimw.runtime import hip_api, print_buffer
from mimw.runtime.arguments import FLOATS, argument_device, check_block, checked_value, describe_arguments
from mimw.runtime.arrays import ArrayInfo, DescriptorInfo, ScalarInfo
from mimw.runtime.convention import (
    MAP_ALIGN,
    POINTER,
    TENSOR_MAP,
    KernelMetadata,
    Param,
    buffer_size,
    struct_format,
)
from mimw.runtime.driver_api import DriverError, Function
from mimw.runtime.drivers import Driver, device_driver, driver_of
from mimw.runtime.hang import KernelHang
from mimw.runtime.hang_watch import Watch
from mimw.runtime.image import check_shared, check_threads, choose_image
from mimw.runtime.launch_errors import Grid, caller_loc, check_cluster, check_grid, explain_driver_error
from mimw.runtime.print_buffer import Telling
from mimw.runtime.streams import await_producers, choose_stream, raw_stream
from mimw.runtime.tensor_descriptor import MapSpec, TensorDescriptor, encode_map, map_specs

# Errors that the driver gives when the function's context is not the thread's current one.
_CONTEXT_ERRORS = frozenset(
    {
        "CUDA_ERROR_INVALID_CONTEXT",
        "CUDA_ERROR_INVALID_HANDLE",
        "CUDA_ERROR_NOT_INITIALIZED",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    }
)

# The last launch of the process, for the error that a later call brings to light: (kernel's name, grid).
_last_launch: tuple[str, Grid] | None = None


class CompiledKernel:
    """A kernel for one target: `asm` (stage -> its text, or bytes for ``"cubin"``) and `metadata`.

    ``compiled[grid](*args)`` or ``compiled.launch(grid, args)`` runs it on the device that holds the arguments.
    Arguments are those of `metadata.params`, in order: constexprs and arguments that were compiled in are absent.
    Loaded code stays loaded.
    """

    __slots__ = (
        "_driver",
        "_first_array",
        "_functions",
        "_latest",
        "_launchers",
        "_lock",
        "_packer",
        "asm",
        "map_specs",
        "metadata",
    )

    def __init__(self, asm: dict[str, str | bytes], metadata: KernelMetadata) -> None:
        self.asm = asm
        self.metadata = metadata
        self._driver: Driver = driver_of(metadata.target)
        self._packer = struct.Struct(struct_format(metadata.params))
        self._functions: dict[int, Function] = {}
        self._launchers: dict[int, _Launcher] = {}
        self._latest: _Launcher | None = None
        self._lock = threading.Lock()
        # Index of each parameter that is a tensor map -> what the code asks of it.
        self.map_specs: dict[int, MapSpec] = map_specs(metadata)
        arrays = [i for i, p in enumerate(metadata.params) if p.kind in (POINTER, TENSOR_MAP)]
        self._first_array = arrays[0] if arrays else -1

    @property
    def name(self) -> str:
        """The name of the kernel's Python function."""
        return self.metadata.name

    def __repr__(self) -> str:
        return f"<CompiledKernel {self.name} for {self.metadata.target}: {', '.join(self.asm)}>"

    def __getitem__(self, grid: Any) -> PreparedLaunch:
        """The kernel with its grid fixed: call it with the arguments."""
        return PreparedLaunch(self, check_grid(self.name, grid))

    def launch(self, grid: Any, args: Sequence[Any], stream: Any = None) -> CompiledKernel:
        """Launch on `grid` (an integer, or one to three in a tuple; in CTAs) and return at once; returns the kernel.

        `stream` is a raw stream handle, an object with `cuda_stream` or `ptr`, or None: then torch's current stream of
        the device, or the stream that the arrays state. A grid with a 0 launches nothing. `LaunchError` says what is
        wrong, at the caller's line. A kernel whose waits give up (`hang_timeout`) is waited for: `KernelHang` when it hangs.
        """
        return self._launch(check_grid(self.name, grid), args, stream)

    def _launch(self, grid: Grid, args: Sequence[Any], stream: Any) -> CompiledKernel:
        """Most launches are like the last one: only when they are not, its launcher calls `_launch_elsewhere`."""
        launcher = self._latest
        return self._launch_checked(grid, args, stream) if launcher is None else launcher(grid, args, stream)

    def _launch_elsewhere(self, grid: Grid, args: Sequence[Any], stream: Any, device: int) -> CompiledKernel:
        """What the launcher of `device` does not take: perhaps that of the arguments' device does."""
        try:
            launcher = self._launchers[args[self._first_array].get_device()]
        except (AttributeError, IndexError, KeyError, TypeError):
            return self._launch_checked(grid, args, stream)
        if launcher._device == device:
            return self._launch_checked(grid, args, stream)
        self._latest = launcher
        return launcher(grid, args, stream)

    def _launch_checked(self, grid: Grid, args: Sequence[Any], stream: Any) -> CompiledKernel:
        """The way that knows nothing beforehand: see the module's docstring."""
        global _last_launch
        meta, driver = self.metadata, self._driver
        infos = describe_arguments(meta, args)
        device = argument_device(meta, infos)
        for param, info in zip(meta.arguments, infos, strict=True):
            checked_value(meta.name, param, info)
        for i, spec in self.map_specs.items():
            check_block(meta.name, meta.params[i], infos[i], spec.block)
        check_cluster(meta.name, grid, meta.attributes.cluster)
        if 0 in grid:
            return self
        head = f"kernel {meta.name!r} with grid {grid}"
        watch: Watch | None = None
        telling: Telling | None = None
        try:
            if device is None:
                device = driver.current_device()
            function = self.load(device)
            raw = choose_stream(driver, stream, infos, device)
            infos = await_producers(driver, args, infos, device, raw)
            values = self._packed_values(infos)
            if "hang" in meta.extra:
                watch = Watch(meta, device, raw)
                values += watch.arguments
            if "prints" in meta.extra:
                telling = Telling(meta, device, raw)
                values += telling.arguments
            slot = _Slot(self, function)
            self._packer.pack_into(slot.buffer, 0, *values)
            handle = driver.stream_handle(raw)
            with telling or nullcontext(), driver.current(device):
                _start(slot, grid, handle, watch)
            _last_launch = (meta.name, grid)
            if watch is not None or telling is not None:
                _finish(head, raw, watch, telling)
                return self
        except DriverError as error:
            raise self._explain(head, error) from None
        if _is_quick(meta.params, args) and device not in self._launchers:
            self._latest = self._launchers[device] = _Launcher(self, function, args)
        return self

    def _packed_values(self, infos: Sequence[ArrayInfo | ScalarInfo]) -> list[Any]:
        """What the packer takes: numbers, and tensor maps as bytes."""
        meta = self.metadata
        values: list[Any] = [checked_value(meta.name, p, info) for p, info in zip(meta.arguments, infos, strict=True)]
        for i, spec in self.map_specs.items():
            info = infos[i]
            assert isinstance(info, DescriptorInfo)  # checked_value has looked
            values[i] = encode_map(spec, info.ptr, info.shape, info.strides, info.padding)
        return values

    def load(self, device: int) -> Function:
        """The kernel on a device, loaded now if it was not. `LaunchError` when the device cannot run it."""
        found = self._functions.get(device)
        if found is not None:
            return found
        with self._lock:
            found = self._functions.get(device)
            if found is None:
                found = self._functions[device] = self._load(device)
        return found

    def _load(self, device: int) -> Function:
        meta, driver = self.metadata, self._driver
        head = f"kernel {meta.name!r} on cuda:{device}"
        try:
            image = choose_image(self.asm, meta, device)
            check_shared(head, meta.shared_bytes, driver.shared_limit(device))
            function = driver.load_function(device, image, meta.entry)
            check_shared(head, self.dynamic_shared + function.static_shared, driver.shared_limit(device))
            check_threads(head, meta.num_threads, function)
            driver.allow(function, self.dynamic_shared, meta.attributes)
        except DriverError as error:
            raise self._explain(head, error) from None
        return function

    @property
    def dynamic_shared(self) -> int:
        """The bytes of shared memory that a launch asks for: code objects state all of theirs themselves."""
        return 0 if self._driver is hip_api else self.metadata.shared_bytes

    def _explain(self, head: str, error: DriverError) -> LaunchError:
        return explain_driver_error(head, error.name, error.text, error.call, error.log, _last_launch)


class PreparedLaunch:
    """A kernel with its grid fixed and checked: ``prepared(*args)`` launches, on ``stream=`` or the current stream."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: CompiledKernel, grid: Grid) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, stream: Any = None) -> CompiledKernel:
        """Launch; as `CompiledKernel.launch`."""
        return self.kernel._launch(self.grid, args, stream)


class _Slot:
    """What one thread needs to launch one function: the argument buffer, what the driver takes for it, the driver call."""

    __slots__ = ("_keep", "buffer", "call", "handle", "params", "stream")

    def __init__(self, kernel: CompiledKernel, function: Function) -> None:
        meta, driver = kernel.metadata, kernel._driver
        size = max(1, buffer_size(meta.params))
        memory = bytearray(size + MAP_ALIGN)
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        start = -ctypes.addressof(view) % MAP_ALIGN
        self.buffer = memoryview(memory)[start : start + size]
        base = ctypes.addressof(view) + start
        self.params, block = driver.argument_block(base, [p.offset for p in meta.params], buffer_size(meta.params))
        self._keep = (view, block)
        self.call = driver.bind_launch(function, meta.num_threads, kernel.dynamic_shared, meta.attributes)
        self.stream = -1  # no raw stream has this number: the first launch looks its handle up
        self.handle: Any = None


class _Local(threading.local):
    """A `_Slot` a thread."""

    slot: _Slot | None = None


class _Launcher:
    """The quick way for one device: arguments that are torch tensors there, and Python scalars."""

    __slots__ = (
        "_bounds",
        "_cluster",
        "_device",
        "_function",
        "_kernel",
        "_local",
        "_maps",
        "_multiples",
        "_pack",
        "_pointers",
        "_scalars",
        "_stream",
    )

    def __init__(self, kernel: CompiledKernel, function: Function, args: Sequence[Any]) -> None:
        """`args` have passed the checked way: their dtype objects are the right ones."""
        params = list(enumerate(kernel.metadata.params))
        self._kernel = kernel
        self._function = function
        self._device = function.device
        cluster = kernel.metadata.attributes.cluster
        self._cluster = None if cluster == (1, 1, 1) else cluster
        # An untyped pointer takes any dtype: its entry has none to compare with.
        self._pointers = [(i, args[i].dtype if p.dtype else None, p.divisor) for i, p in params if p.kind == POINTER]
        self._maps = list(kernel.map_specs.items())
        scalars = [(i, p) for i, p in params if p.kind not in (POINTER, TENSOR_MAP)]
        self._scalars = [(i, _quick_type(p.kind)) for i, p in scalars]
        self._multiples = [(i, p.divisor) for i, p in scalars if p.divisor > 1]
        self._bounds = [(i, p.below) for i, p in scalars if p.below]
        self._pack = kernel._packer.pack_into
        self._local = _Local()
        self._stream = kernel._driver.raw_stream_getter()

    def __call__(self, grid: Grid, args: Sequence[Any], stream: Any) -> CompiledKernel:
        global _last_launch
        device = self._device
        if self._maps and 0 in grid:  # no map is made of an empty tensor
            return self._kernel._launch_elsewhere(grid, args, stream, device)
        values = list(args)
        slot = self._local.slot or self._make_slot()
        try:
            for i, dtype, divisor in self._pointers:
                tensor = args[i]
                pointer = values[i] = tensor.data_ptr()
                if (
                    (tensor.dtype is not dtype and dtype is not None)
                    or tensor.get_device() != device
                    or pointer % divisor
                ):
                    return self._kernel._launch_elsewhere(grid, args, stream, device)
            for i, spec in self._maps:
                tensor = args[i]
                if (
                    type(tensor) is not TensorDescriptor
                    or tensor.block_shape != spec.block
                    or tensor.dtype != spec.dtype
                    or tensor.device != device
                ):
                    return self._kernel._launch_elsewhere(grid, args, stream, device)
                values[i] = tensor.tensor_map(spec)
            for i, kind in self._scalars:
                if type(args[i]) is not kind:
                    return self._kernel._launch_elsewhere(grid, args, stream, device)
            for i, divisor in self._multiples:
                if args[i] % divisor:
                    return self._kernel._launch_elsewhere(grid, args, stream, device)
            for i, below in self._bounds:
                if not 0 <= args[i] < below:
                    return self._kernel._launch_elsewhere(grid, args, stream, device)
            self._pack(slot.buffer, 0, *values)
        except (AttributeError, IndexError, TypeError, OverflowError, RuntimeError, struct.error, DriverError):
            return self._kernel._launch_elsewhere(grid, args, stream, device)
        if self._cluster is not None:
            check_cluster(self._kernel.name, grid, self._cluster)
        if 0 in grid:
            return self._kernel
        raw = self._stream(device) if stream is None else raw_stream(stream)
        if raw != slot.stream:
            slot.handle = self._kernel._driver.stream_handle(raw)
            slot.stream = raw
        try:
            slot.call(*grid, slot.handle, slot.params)
        except DriverError as error:
            self._retry(error, grid, slot)
        _last_launch = (self._kernel.name, grid)
        return self._kernel

    def _make_slot(self) -> _Slot:
        slot = self._local.slot = _Slot(self._kernel, self._function)
        return slot

    def _retry(self, error: DriverError, grid: Grid, slot: _Slot) -> None:
        """Asking for the current context at every launch would cost more than failing where a thread has another."""
        head = f"kernel {self._kernel.name!r} with grid {grid}"
        if error.name not in _CONTEXT_ERRORS:
            raise self._kernel._explain(head, error) from None
        try:
            with self._kernel._driver.current(self._device):
                slot.call(*grid, slot.handle, slot.params)
        except DriverError as again:
            raise self._kernel._explain(head, again) from None


def _start(slot: _Slot, grid: Grid, handle: Any, watch: Watch | None) -> None:
    """The driver's call, once all is packed."""
    try:
        slot.call(*grid, handle, slot.params)
    except DriverError:
        if watch is not None:
            watch.cancel()
        raise


def _finish(head: str, raw: int, watch: Watch | None, telling: Telling | None) -> None:
    """Wait for a kernel that may have something to tell. An assertion that failed makes others wait in vain: it comes first."""
    hang: KernelHang | None = None
    if watch is not None:
        try:
            watch.finish(head, raw, caller_loc())
        except KernelHang as found:
            hang = found
    if telling is not None and not (hang is not None and hang.lost):
        telling.finish(head, raw, caller_loc())
    if hang is not None:
        raise hang


def _is_quick(params: list[Param], args: Sequence[Any]) -> bool:
    """Whether a later launch with such arguments may go the quick way: torch arrays only, no scalar to convert."""
    arrays = [arg for p, arg in zip(params, args, strict=True) if p.kind == POINTER]
    arrays += [arg.base for p, arg in zip(params, args, strict=True) if p.kind == TENSOR_MAP]
    return bool(arrays) and all(hasattr(a, "data_ptr") for a in arrays) and all(p.kind != "bf16" for p in params)


def _quick_type(kind: str) -> type:
    if kind == "i1":
        return bool
    return float if kind in FLOATS else int


def synchronize(device: int | None = None, stream: Any = None) -> None:
    """Wait for all work on a device (None: the current one) or a stream; `LaunchError` for faults that show up. On AMD's devices, print what
    kernels have printed."""
    driver = device_driver()
    wait = print_buffer.synchronize if driver is hip_api else driver.synchronize
    try:
        where = driver.current_device() if device is None else device
        wait(where, None if stream is None else raw_stream(stream))
    except DriverError as error:
        raise explain_driver_error("synchronize", error.name, error.text, error.call, error.log, _last_launch) from None
