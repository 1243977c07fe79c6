# pyright: basic
"""Times on a GPU: events on one stream, and a fill that empties L2 between runs.

Owns: `DeviceTimer`. Assumes that what is timed puts its work on torch's current stream of the device (where launches go
by default). Must not know kernels, or what the times are for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mimw.runtime.drivers import device_driver

# More than four times the L2 of any GPU that mimw knows; Triton's benchmarks flush as much.
FLUSH_BYTES = 256 << 20


class DeviceTimer:
    """Use as a context manager: inside, the device's context is current and the memory for flushing is there.

    All times are in milliseconds. `DriverError` when the driver refuses, also for faults of the timed work.
    """

    __slots__ = ("_context", "_driver", "_handle", "_memory", "device", "stream")

    def __init__(self, device: int, stream: int) -> None:
        self.device = device
        self.stream = stream
        self._driver = device_driver()
        self._context = self._driver.current(device)
        self._handle: Any = None
        self._memory: Any = None

    def __enter__(self) -> DeviceTimer:
        self._context.__enter__()
        try:
            self._handle = self._driver.stream_handle(self.stream)
            self._memory = self._driver.allocate(FLUSH_BYTES)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._driver.free(self._memory)
        finally:
            self._context.__exit__(None, None, None)

    def flush(self) -> None:
        """Have the stream overwrite more than L2 holds."""
        self._driver.clear(self._memory, FLUSH_BYTES, self._handle)

    def synchronize(self) -> None:
        """Wait for the stream."""
        self._driver.synchronize(self.device, self.stream)

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
        driver = self._driver
        events: list[Any] = []
        try:
            for prepare, work in runs:
                pair = [driver.create_event() for _ in range(2)]
                events += pair
                if prepare is not None:
                    prepare()
                driver.record_event(pair[0], self._handle)
                work()
                driver.record_event(pair[1], self._handle)
            self.synchronize()
            return [driver.milliseconds_between(*pair) for pair in zip(events[::2], events[1::2], strict=True)]
        finally:
            for event in events:
                driver.destroy_event(event)
