"""The words of a failed launch: grids, driver refusals, and the caller's line.

Owns: `caller_loc`, `check_grid`, `explain_driver_error`, the table of what each driver error means for a kernel's user.
Assumes: nothing of the driver but the names of its errors. Must not know how a launch is made.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from mimw.diagnostics import UNKNOWN, LaunchError, Loc

Grid = tuple[int, int, int]

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": the same for every one that mimw knows.
GRID_LIMITS: Grid = (2**31 - 1, 65535, 65535)
_ONES: Grid = (1, 1, 1)

_EARLIER = "it may be an earlier launch, for launches are asynchronous; the CUDA context is lost: restart the process"
_RUN_SIMULATOR = (
    "run the kernel on NumPy arrays: the simulator names the access; or run the program under compute-sanitizer"
)

# Driver error -> (what happened, what to do).
DRIVER_ERRORS: dict[str, tuple[str, str]] = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": (f"a kernel accessed memory that is not its own; {_EARLIER}", _RUN_SIMULATOR),
    "CUDA_ERROR_MISALIGNED_ADDRESS": (f"a kernel made a misaligned access; {_EARLIER}", _RUN_SIMULATOR),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": (f"a kernel used an address in the wrong space; {_EARLIER}", _RUN_SIMULATOR),
    "CUDA_ERROR_INVALID_PC": (f"a kernel jumped out of its code; {_EARLIER}", _RUN_SIMULATOR),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": (
        f"a kernel executed an illegal instruction or a bad descriptor; {_EARLIER}",
        _RUN_SIMULATOR,
    ),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": (f"a kernel broke its call stack; {_EARLIER}", _RUN_SIMULATOR),
    "CUDA_ERROR_LAUNCH_FAILED": (
        f"a kernel ended with an exception, such as the trap of a failed device_assert; {_EARLIER}",
        f"a failed device_assert has printed its line and message; else {_RUN_SIMULATOR}",
    ),
    "CUDA_ERROR_ASSERT": (f"an assertion in a kernel failed; {_EARLIER}", "its message is in the program's output"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": (
        f"a kernel ran longer than the device allows; {_EARLIER}",
        "a barrier that nobody arrives on looks like this: the simulator names it",
    ),
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": (
        "the device cannot give one CTA what the kernel needs: registers times threads, or shared memory",
        "use fewer warps, smaller tiles, or set maxnreg",
    ),
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": (
        "a cooperative grid must fit on the device at once, this one does not",
        "launch fewer CTAs and loop in the kernel",
    ),
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": ("the device cannot place a cluster of this size", "use a smaller cluster"),
    "CUDA_ERROR_NO_BINARY_FOR_GPU": (
        "the code was compiled for another device",
        "compile with the target of this device",
    ),
    "CUDA_ERROR_INVALID_PTX": (
        "the driver's assembler refused the PTX",
        "install ptxas (pip install nvidia-cuda-nvcc), it says more",
    ),
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": (
        "the driver is older than the PTX version that the kernel needs",
        "update the driver, or install ptxas (pip install nvidia-cuda-nvcc) so that it need not assemble",
    ),
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": (
        "the driver has no assembler",
        "install ptxas (pip install nvidia-cuda-nvcc)",
    ),
    "CUDA_ERROR_INVALID_IMAGE": (
        "the driver cannot read the compiled code",
        "clear the cache (MIMW_CACHE_DIR) and compile again",
    ),
    "CUDA_ERROR_NOT_FOUND": (
        "the compiled code has no kernel of that entry name",
        "clear the cache (MIMW_CACHE_DIR) and compile again",
    ),
    "CUDA_ERROR_INVALID_HANDLE": (
        "the driver does not know the stream: it was destroyed, or belongs to another device",
        "pass a stream of the arguments' device",
    ),
    "CUDA_ERROR_OUT_OF_MEMORY": (
        "the device has too little free memory for the kernel's code or its stack",
        "free device memory",
    ),
    "CUDA_ERROR_NO_DEVICE": ("there is no CUDA device", "pass NumPy arrays to run in the simulator"),
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": (
        "the stream is being captured, which does not allow this call",
        "launch the kernel once before the capture, so that it is loaded",
    ),
}

# HIP's name -> the CUDA driver's for the same fault, where its words hold for both.
_SAME_FAULT = {
    "hipErrorLaunchTimeOut": "CUDA_ERROR_LAUNCH_TIMEOUT",
    "hipErrorCooperativeLaunchTooLarge": "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    "hipErrorNoBinaryForGpu": "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "hipErrorInvalidImage": "CUDA_ERROR_INVALID_IMAGE",
    "hipErrorInvalidKernelFile": "CUDA_ERROR_INVALID_IMAGE",
    "hipErrorNotFound": "CUDA_ERROR_NOT_FOUND",
    "hipErrorInvalidHandle": "CUDA_ERROR_INVALID_HANDLE",
    "hipErrorInvalidResourceHandle": "CUDA_ERROR_INVALID_HANDLE",
    "hipErrorOutOfMemory": "CUDA_ERROR_OUT_OF_MEMORY",
    "hipErrorStreamCaptureUnsupported": "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
}
_EARLIER_HIP = "it may be an earlier launch, for launches are asynchronous; restart the process"
_HIP_SIMULATOR = "run the kernel on NumPy arrays: the simulator names the access"
_HIP_ERRORS: dict[str, tuple[str, str]] = {
    "hipErrorIllegalAddress": (f"a kernel accessed memory that is not its own; {_EARLIER_HIP}", _HIP_SIMULATOR),
    "hipErrorLaunchFailure": (f"a kernel ended with an exception; {_EARLIER_HIP}", _HIP_SIMULATOR),
    "hipErrorAssert": (f"an assertion in a kernel failed; {_EARLIER_HIP}", "its message is in the program's output"),
    "hipErrorLaunchOutOfResources": (
        "the device cannot give one CTA what the kernel needs: registers times threads, or shared memory",
        "use fewer warps or smaller tiles",
    ),
    "hipErrorInvalidConfiguration": (
        "the device does not take a grid of this size: CTAs times threads of a CTA stay below 2^32 along x",
        "launch fewer CTAs and loop in the kernel",
    ),
    "hipErrorSharedObjectInitFailed": (
        "HIP cannot load the compiled code",
        "clear the cache (MIMW_CACHE_DIR) and compile again",
    ),
    "hipErrorNoDevice": (
        "there is no HIP device",
        "`mimw doctor` says what is missing; NumPy arrays run in the simulator",
    ),
    "hipErrorNotSupported": ("AMD's devices do not have what the launch asks for", "leave the option away"),
}


def caller_loc(skip: str = "mimw") -> Loc:
    """The line that called into mimw: the innermost frame whose module lies outside the package `skip`."""
    frame: Any = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        module: str = frame.f_globals.get("__name__", "")
        if module != skip and not module.startswith(skip + "."):
            return _frame_loc(frame)
        frame = frame.f_back
    return UNKNOWN


def _frame_loc(frame: Any) -> Loc:
    """The frame's position. A call over several lines has its caret on the first one only."""
    positions = list(frame.f_code.co_positions())
    line, end_line, col, end_col = positions[frame.f_lasti // 2]
    if line is None or col is None:
        return Loc(frame.f_code.co_filename, frame.f_lineno)
    # Columns of code objects are 0-based.
    return Loc(frame.f_code.co_filename, line, col + 1, (end_col or 0) + 1 if end_line == line else 0)


def check_grid(kernel: str, grid: Any) -> Grid:
    """The grid as three numbers of CTAs; `LaunchError` unless it is one to three integers within the limits."""
    dims = cast("tuple[Any, ...]", grid)
    if type(grid) is tuple and 1 <= len(dims) <= 3:
        x, y, z = dims + _ONES[len(dims) :]
        if type(x) is int and type(y) is int and type(z) is int and _within_limits(x, y, z):
            return x, y, z
    return _check_odd_grid(kernel, grid)


def _within_limits(x: int, y: int, z: int) -> bool:
    return 0 <= x <= GRID_LIMITS[0] and 0 <= y <= GRID_LIMITS[1] and 0 <= z <= GRID_LIMITS[2]


def _check_odd_grid(kernel: str, grid: Any) -> Grid:
    """Grids that are no tuple of ints, and those in error."""
    parts = list(cast("list[Any]", grid)) if isinstance(grid, (tuple, list)) else [grid]
    try:
        dims = [int(part.__index__()) for part in parts]
    except (TypeError, AttributeError):
        hint = "a grid that depends on the configuration is a function: call it first" if callable(parts[0]) else None
        raise _grid_error(kernel, f"the grid must be one to three integers, not {grid!r}", hint) from None
    if not 1 <= len(dims) <= 3:
        raise _grid_error(kernel, f"a grid has one to three dimensions, not {len(dims)}")
    x, y, z = (*dims, *_ONES[len(dims) :])
    for axis, size, limit in zip("xyz", (x, y, z), GRID_LIMITS, strict=True):
        if size < 0:
            raise _grid_error(kernel, f"grid {(x, y, z)} is negative along {axis}")
        if size > limit:
            hint = f"x may be up to {GRID_LIMITS[0]}: fold the other dimensions into it"
            raise _grid_error(kernel, f"grid {(x, y, z)} exceeds the device's limit of {limit} along {axis}", hint)
    return x, y, z


def _grid_error(kernel: str, what: str, hint: str | None = None) -> LaunchError:
    return LaunchError("launch-grid", f"kernel {kernel!r}: {what}", caller_loc(), hint=hint)


def check_cluster(kernel: str, grid: Grid, cluster: Grid) -> None:
    """`LaunchError` when the grid, in CTAs, is not a whole number of clusters along each dimension."""
    for axis, size, width in zip("xyz", grid, cluster, strict=True):
        if size % width:
            hint = f"the grid counts CTAs: round it up to {(size + width - 1) // width * width} along {axis}"
            raise _grid_error(kernel, f"grid {grid} is not a multiple of the cluster {cluster} along {axis}", hint)


def explain_driver_error(
    head: str, name: str, text: str, call: str, log: str, last: tuple[str, Grid] | None
) -> LaunchError:
    """The user's error for the driver's: `head` says which launch, `last` is the one before (kernel, grid)."""
    cause, hint = _HIP_ERRORS.get(name) or DRIVER_ERRORS.get(_SAME_FAULT.get(name, name), (text, None))
    if (_EARLIER in cause or _EARLIER_HIP in cause) and last is not None:
        cause += f"; the last launch was {last[0]!r} with grid {last[1]}"
    message = f"{head}: {cause} ({call}: {name}, {text!r})"
    return LaunchError("launch-driver", f"{message}\n{log}" if log else message, caller_loc(), hint=hint)
