# pyright: basic
"""Launches of kernels that print on AMD's devices: the memory for their records, and when lines appear.

Owns: one buffer a device, made at the first such launch and kept. Lines are written to standard output when the host synchronises through
`mimw.synchronize`, before the next launch of a kernel that prints, and at the end of the process, which waits for the devices. A launch
of a kernel with assertions waits for its end, and raises when one has failed. Must not know what records mean: that is `device_print`.
"""

from __future__ import annotations

import atexit
import ctypes
import struct
import sys
import threading

from mimw.diagnostics import LaunchError, Loc
from mimw.runtime import hip_api
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.device_print import STATE, WORDS, Texts, assertion_error
from mimw.runtime.driver_api import DriverError
from mimw.runtime.launch_errors import caller_loc

_texts = Texts()
_buffers: dict[int, _Buffer] = {}
_lock = threading.RLock()


class _Buffer:
    """The records and the state of one device. `at` is the word up to which lines have been printed."""

    def __init__(self, device: int) -> None:
        self.device = device
        with hip_api.current(device):
            self.host, self.records = hip_api.allocate_host(4 * WORDS)
            self.state = hip_api.allocate(STATE)
        self.at = 0
        ctypes.memset(self.host, 0, 4 * WORDS)
        self._clear_state()

    def _clear_state(self) -> None:
        with hip_api.current(self.device):
            hip_api.set_zero(self.state, STATE)

    def print_lines(self) -> list[str]:
        """Print what has come since the last time; the lines."""
        lines, self.at = _texts.read(lambda at, n: ctypes.string_at(self.host + 4 * at, 4 * n), self.at)
        if lines:
            print("\n".join(lines), flush=True)
        return lines

    def empty(self) -> tuple[list[str], int]:
        """Print the rest and begin anew, while nothing runs on the device: (lines, threads that failed assertions)."""
        lines = self.print_lines()
        claimed, lost, failed = self.read_state()
        if claimed:
            ctypes.memset(self.host, 0, 4 * min(claimed, WORDS))
            self.at = 0
        if claimed or failed:
            self._clear_state()
        if lost:
            text = f"mimw: {lost} more lines were printed on cuda:{self.device} than its buffer of {4 * WORDS >> 20} MB holds\n"
            sys.stderr.write(text)
        return lines, failed

    def read_state(self) -> tuple[int, int, int]:
        """(words claimed, records that found no room, threads that failed assertions)."""
        with hip_api.current(self.device):
            claimed, lost, failed, _ = struct.unpack("<4I", hip_api.read_memory(self.state, STATE))
        return claimed, lost, failed


def _buffer_of(device: int) -> _Buffer:
    found = _buffers.get(device)
    if found is None:
        if not _buffers:
            atexit.register(_print_at_exit)
        found = _buffers[device] = _Buffer(device)
    return found


class Telling:
    """One launch of a kernel that prints or asserts. `arguments` are the values of its hidden parameters. The launch itself is made inside of
    ``with``, so that no other thread, having waited for the device, takes it to be idle and empties the buffer."""

    __slots__ = ("_buffer", "arguments", "asserts")

    def __init__(self, meta: KernelMetadata, device: int, stream: int) -> None:
        prints = meta.extra["prints"]
        self.asserts: bool = prints["asserts"]
        if self.asserts and hip_api.is_capturing(device, stream):
            text = f"kernel {meta.name!r}: its launch waits for its end (debug), which a stream that is captured cannot"
            raise LaunchError("launch-option", text, caller_loc(), hint="switch that off for graphs: debug=False")
        with _lock:
            buffer = self._buffer = _buffer_of(device)
            buffer.print_lines()
            if buffer.at > WORDS // 2 and not hip_api.is_capturing(device, stream):
                hip_api.synchronize(device)
                buffer.empty()
            self.arguments = [buffer.records, buffer.state, _texts.number_of(prints["texts"])]

    def __enter__(self) -> None:
        _lock.acquire()

    def __exit__(self, *_: object) -> None:
        _lock.release()

    def finish(self, head: str, stream: int, loc: Loc) -> None:
        """After the launch: where the kernel asserts, wait for its end; `LaunchError` when an assertion failed."""
        if not self.asserts:
            return
        hip_api.synchronize(self._buffer.device, stream)
        with _lock:
            if not self._buffer.read_state()[2]:
                self._buffer.print_lines()
                return
            hip_api.synchronize(self._buffer.device)
            lines, failed = self._buffer.empty()
        raise assertion_error(head, lines, failed, loc)


def synchronize(device: int, stream: int | None = None) -> None:
    """As `hip_api.synchronize`; then, or when it fails, print what kernels on the device have left."""
    buffer = _buffers.get(device)
    if buffer is None:
        hip_api.synchronize(device, stream)
        return
    with _lock:
        try:
            hip_api.synchronize(device, stream)
        except DriverError:
            buffer.print_lines()
            raise
        if stream is None:
            buffer.empty()
        else:
            buffer.print_lines()


def _print_at_exit() -> None:
    """Wait for the devices and print; a device that is lost has its lines in the host's memory all the same."""
    for device, buffer in _buffers.items():
        try:
            hip_api.synchronize(device)
            buffer.empty()
        except DriverError:
            buffer.print_lines()


def forget() -> None:
    """Print nothing more of what there was, and make new buffers. For tests, which change the library under them."""
    _buffers.clear()
    atexit.unregister(_print_at_exit)
