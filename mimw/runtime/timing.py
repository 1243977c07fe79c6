# pyright: basic
"""Times on a CUDA device: events on one stream, and a fill that empties L2 between runs.

Owns: `DeviceTimer`. Assumes that what is timed puts its work on torch's current stream of the device (where launches go
by default). Must not know kernels, or what the times are for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.runtime import driver_api

# More than four times the L2 of any GPU that mimw knows; Triton's benchmarks flush as much.
FLUSH_BYTES = 256 << 20


class DeviceTimer:
    """Use as a context manager: inside, the device's context is current and the memory for flushing is there.

    All times are in milliseconds. `DriverError` when the driver refuses, also for faults of the timed work.
    """

    __slots__ = ("_context", "_handle", "_memory", "device", "stream")

    def __init__(self, device: int, stream: int) -> None:
        self.device = device
        self.stream = stream
        self._context = driver_api.current(device)
        self._handle: Any = None
        self._memory: Any = None

    def __enter__(self) -> DeviceTimer:
        self._context.__enter__()
        try:
            self._handle = driver_api.stream_handle(self.stream)
            self._memory = driver_api.call("cuMemAlloc", FLUSH_BYTES)
        except BaseException:
            self._context.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            driver_api.call("cuMemFree", self._memory)
        finally:
            self._context.__exit__()

    def flush(self) -> None:
        """Have the stream overwrite more than L2 holds."""
        driver_api.call("cuMemsetD32Async", self._memory, 0, FLUSH_BYTES // 4, self._handle)

    def synchronize(self) -> None:
        """Wait for the stream."""
        driver_api.call("cuStreamSynchronize", self._handle)

    def total(self, work: Callable[[], Any], count: int) -> float:
        """The time of `count` runs one after another, each after a flush, the flushes included."""

        def flushed() -> None:
            for _ in range(count):
                self.flush()
                work()

        return self._measure([(None, flushed)])[0]

    def each(self, work: Callable[[], Any], count: int, before: Callable[[], Any]) -> list[float]:
        """The times of `count` runs alone; `before` and a flush precede each."""

        def prepare() -> None:
            before()
            self.flush()

        return self._measure([(prepare, work)] * count)

    def _measure(self, runs: list[tuple[Callable[[], Any] | None, Callable[[], Any]]]) -> list[float]:
        """Two events around each run; waits for all."""
        events: list[Any] = []
        try:
            for prepare, work in runs:
                pair = [driver_api.call("cuEventCreate", 0) for _ in range(2)]
                events += pair
                if prepare is not None:
                    prepare()
                driver_api.call("cuEventRecord", pair[0], self._handle)
                work()
                driver_api.call("cuEventRecord", pair[1], self._handle)
            self.synchronize()
            return [
                driver_api.call("cuEventElapsedTime", start, end)
                for start, end in zip(events[::2], events[1::2], strict=True)
            ]
        finally:
            for event in events:
                driver_api.call("cuEventDestroy", event)
