# pyright: basic
"""Launches of kernels whose waits give up: the memory for their records, and waiting for their end.

Owns: pinned host memory and device memory for one such launch at a time, kept for the next ones. The host reads its memory while the kernel runs, so
that a kernel which does not end even when its waits give up is told of, too. Must not know what records mean: that is `hang`.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from typing import Any

from mimw.diagnostics import LaunchError, Loc
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.driver_api import DriverError
from mimw.runtime.drivers import Driver, driver_of
from mimw.runtime.hang import MAX_RECORDS, RECORD, STATE, KernelHang, explain, unpack_records
from mimw.runtime.launch_errors import caller_loc

_LOST = 2.0
"""Seconds beyond the time that the kernel has for ending by itself, after which the host stops waiting for it."""


class _Memory:
    """The records and the state of one launch on one device."""

    __slots__ = ("device", "driver", "host", "records", "state")

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver = driver
        self.device = device
        with driver.current(device):
            self.host, self.records = driver.allocate_host(RECORD * MAX_RECORDS)
            self.state = int(driver.allocate(STATE))
        self.clear()

    def clear(self) -> None:
        """Zero again."""
        ctypes.memset(self.host, 0, RECORD * MAX_RECORDS)
        with self.driver.current(self.device):
            self.driver.set_zero(self.state, STATE)

    def told(self) -> bool:
        """Whether a record is there. May be asked while the kernel runs."""
        return ctypes.c_uint32.from_address(self.host).value != 0

    def read_state(self) -> tuple[int, int]:
        """(time of the first that gave up, warps that gave up), after the kernel's end."""
        with self.driver.current(self.device):
            first, count = struct.unpack_from("<QI", self.driver.read_memory(self.state, STATE))
        return first, count


_free: dict[int, list[_Memory]] = {}
_lock = threading.Lock()


def _take(driver: Driver, device: int) -> _Memory:
    with _lock:
        kept = _free.setdefault(device, [])
        if kept:
            return kept.pop()
    return _Memory(driver, device)


class Watch:
    """One launch of a kernel that tells of its hangs. `arguments` are the values of its hidden parameters."""

    __slots__ = ("arguments", "device", "memory", "table")

    def __init__(self, meta: KernelMetadata, device: int, stream: int) -> None:
        self.table: dict[str, Any] = meta.extra["hang"]
        self.device = device
        driver = driver_of(meta.target)
        if driver.is_capturing(device, stream):
            text = f"kernel {meta.name!r}: its launch waits for its end (hang_timeout or debug), which a stream that is captured cannot"
            raise LaunchError("launch-option", text, caller_loc(), hint="switch that off for graphs: hang_timeout=0")
        self.memory = _take(driver, device)
        self.arguments = [self.memory.records, self.memory.state]

    def finish(self, head: str, stream: int, loc: Loc) -> None:
        """Wait for the kernel's end; `KernelHang` when waits of it gave up, `DriverError` for other faults."""
        memory = self.memory
        try:
            ended = self._wait(stream)
        except DriverError as error:
            if memory.told():
                raise self._error(
                    head, loc, f"the kernel had to be stopped ({error.name}), which ends the CUDA context"
                ) from None
            raise
        if not ended:
            raise self._error(head, loc, "the kernel does not end even so, and keeps the device busy")
        if not memory.told():
            self._give_back()
            return
        found = self._error(head, loc, "")
        memory.clear()
        self._give_back()
        raise found

    def cancel(self) -> None:
        """The driver refused the launch: the memory is as it was."""
        self._give_back()

    def _give_back(self) -> None:
        with _lock:
            _free[self.device].append(self.memory)

    def _error(self, head: str, loc: Loc, lost: str) -> KernelHang:
        first, total = (0, 0) if lost else self.memory.read_state()
        raw = ctypes.string_at(self.memory.host, RECORD * MAX_RECORDS)
        records = unpack_records(self.table, raw, first)
        return explain(head, self.table, records, total or len(records), lost, loc)

    def _wait(self, stream: int) -> bool:
        """True at the end of all work on the stream; False when waits gave up and the kernel still does not end."""
        allowed = self.table["grace"] / 1e9 + _LOST
        since = 0.0
        pause = 1e-5
        while not self.memory.driver.is_done(self.device, stream):
            if self.memory.told():
                since = since or time.monotonic()
                if time.monotonic() - since > allowed:
                    return False
            time.sleep(pause)
            pause = min(2 * pause, 2e-4)
        return True
