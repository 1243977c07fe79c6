# pyright: basic
"""Streams: the one that a launch goes to, and what it waits for there.

Owns the forms in which libraries hand over a stream, and the order between a launch and work of others on its arrays. Knows no kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mimw.diagnostics import LaunchError
from mimw.runtime.arrays import ArrayInfo, DescriptorInfo, ScalarInfo, describe
from mimw.runtime.drivers import Driver
from mimw.runtime.launch_errors import caller_loc


def raw_stream(stream: Any) -> int:
    """The raw handle of a stream: an int, torch's (`cuda_stream`), CuPy's (`ptr`), cuda-bindings' (`int()`)."""
    if isinstance(stream, int):
        return stream
    for field in ("cuda_stream", "ptr"):
        found = getattr(stream, field, None)
        if isinstance(found, int):
            return found
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise LaunchError("launch-stream", f"{stream!r} is no CUDA stream", caller_loc()) from None


def choose_stream(driver: Driver, stream: Any, infos: Sequence[ArrayInfo | ScalarInfo], device: int) -> int:
    """The raw stream: the one given; torch's if an array is torch's; the first that an array states; torch's, or 0."""
    if stream is not None:
        return raw_stream(stream)
    current = driver.torch_stream(device)
    stated = [info.stream for info in infos if isinstance(info, ArrayInfo) and info.stream is not None]
    if stated and not any(hasattr(info.owner, "data_ptr") for info in infos if isinstance(info, ArrayInfo)):
        return stated[0]
    return current


def await_producers(
    driver: Driver, args: Sequence[Any], infos: list[ArrayInfo | ScalarInfo], device: int, raw: int
) -> list[ArrayInfo | ScalarInfo]:
    """Order the launch after what other libraries have still to do on the arrays; returns the infos to launch with."""
    out: list[ArrayInfo | ScalarInfo] = []
    for arg, info in zip(args, infos, strict=True):
        source = arg.base if isinstance(info, DescriptorInfo) else arg
        if isinstance(info, ArrayInfo) and info.owner is not source:
            info = describe(arg, raw)  # DLPack: asked again with a stream, the producer waits
        elif isinstance(info, ArrayInfo) and info.stream is not None and info.stream != raw:
            driver.wait_for_stream(device, raw, info.stream)
        out.append(info)
    return out
