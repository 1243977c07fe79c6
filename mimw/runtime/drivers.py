"""Which driver code and devices belong to: CUDA's (`driver_api.py`) or HIP's (`hip_api.py`).

Owns: `driver_of`, `device_driver`, `Driver`, the part of those two files that launches use. Must not know kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mimw.runtime import driver_api, hip_api
from mimw.runtime.convention import LaunchAttributes
from mimw.target import get_target


class Driver(Protocol):
    """What a launch needs of a driver; the files themselves say what each does."""

    def available(self) -> bool: ...
    def current_device(self) -> int: ...
    def current(self, device: int, /) -> AbstractContextManager[Any]: ...
    def target_name(self, device: int) -> str | None: ...
    def device_attribute(self, device: int, name: str) -> int: ...
    def shared_limit(self, device: int) -> int: ...
    def load_function(self, device: int, image: bytes | str, entry: str) -> Any: ...
    def allow(self, function: Any, shared_bytes: int, attributes: LaunchAttributes) -> None: ...
    def argument_block(self, base: int, offsets: list[int], size: int) -> tuple[int, Any]: ...
    def bind_launch(
        self, function: Any, threads: int, shared_bytes: int, attributes: LaunchAttributes
    ) -> Callable[[int, int, int, Any, int], None]: ...
    def stream_handle(self, stream: int) -> Any: ...
    def torch_stream(self, device: int) -> int: ...
    def raw_stream_getter(self) -> Callable[[int], int]: ...
    def wait_for_stream(self, device: int, waiter: int, producer: int) -> None: ...
    def synchronize(self, device: int, stream: int | None = None) -> None: ...


def driver_of(target: str) -> Driver:
    """The driver that runs code for a target."""
    return hip_api if get_target(target).vendor == "amd" else driver_api


def device_driver() -> Driver:
    """The driver of this process's devices, those that arrays on ``cuda:0`` lie on.

    HIP where torch is the one for ROCm; without torch, HIP where it has devices and CUDA has none.
    """
    if hip_api.torch_is_rocms():
        return hip_api
    return driver_api if driver_api.available() or not hip_api.available() else hip_api
