# pyright: basic
"""Kernels whose waits give up: what they report, and the error made of it.

Owns: `KernelHang`, the memory that such a kernel writes its records to, waiting for its end. A kernel is built so when `hang_timeout` is asked
for (`parse_timeout`); its metadata then has ``extra["hang"]``, the table that says what sites and barriers the numbers in records mean, and
ends in two hidden parameters:

* ``hang_records``: pinned host memory, `MAX_RECORDS` records of `RECORD` bytes (`unpack_records` has the fields), zero before the launch;
* ``hang_state``: 16 bytes of device memory, zero before the launch: u64 time at which the first wait gave up (%globaltimer, nanoseconds;
  0: none), u32 warps that gave up.

The launch of such a kernel waits for its end. Host memory is read while the kernel runs, so a kernel that cannot end is told of, too.
Must not know IR, or how the waits are compiled.
"""

from __future__ import annotations

import ctypes
import linecache
import re
import struct
import threading
import time
from typing import Any

from mimw.diagnostics import LaunchError, Loc
from mimw.runtime import driver_api
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.driver_api import DriverError
from mimw.runtime.launch_errors import caller_loc

RECORD = 48
MAX_RECORDS = 4096
STATE = 16
_FIELDS = struct.Struct("<IIII3ii QQ".replace(" ", ""))
_LOST = 2.0
"""Seconds beyond the time that the kernel has for ending by itself, after which the host stops waiting for it."""
_UNITS = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3}
_ROWS = 20
_PORTABLE_MAPPED = 3  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP


def parse_timeout(given: Any) -> int:
    """Nanoseconds of ``"2s"``, ``"500ms"``, ``"100us"``, or a number of seconds; 0 or ``"off"`` is 0. `ValueError` for anything else."""
    text = str(given).strip().lower()
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us|)", text)
    if text == "off":
        return 0
    if found is None or isinstance(given, bool):
        raise ValueError(f"a time is '2s', '500ms', a number of seconds, or 0 for none; not {given!r}")
    wanted = round(float(found[1]) * _UNITS[found[2]])
    if wanted > 3600 * 10**9:
        raise ValueError(f"at most an hour, not {given!r}")
    return wanted


class HangRecord:
    """One warp that gave up waiting.

    `kind`: ``"mbarrier"``, ``"named"`` or ``"cluster"``. `task`: its name, "" in a kernel without tasks. `barrier` and `slot`: the barrier's name
    and the index in its array (None: a single one). `phase` is what the kernel waited for, `parity` its lowest bit (None where there is no
    phase). `file`, `line`: the wait; `calls`: (file, line) of the calls that it was inlined through. `cta` (x, y, z), `warp` in the CTA, `seconds`
    that it had waited. `after`: it came to its wait when another had given up already.
    """

    __slots__ = (
        "after", "barrier", "calls", "cta", "file", "kind", "line", "parity", "phase", "seconds", "site", "slot", "task",
        "threads", "warp",
    )  # fmt: skip

    def __init__(
        self, site: dict[str, Any], number: int, barrier: str, slot: int | None, fields: tuple[Any, ...]
    ) -> None:
        _, self.warp, _, phase, x, y, z, _, began, end = fields
        self.site = number
        self.kind: str = site["kind"]
        self.task: str = site["task"]
        self.file: str = site["file"]
        self.line: int = site["line"]
        self.calls: list[tuple[str, int]] = [(f, n) for f, n in site["calls"]]
        self.threads: int = site.get("threads", 0)
        self.barrier, self.slot = barrier, slot
        self.phase: int | None = phase if self.kind == "mbarrier" else None
        self.parity: int | None = phase & 1 if self.kind == "mbarrier" else None
        self.cta: tuple[int, int, int] = (x, y, z)
        self.seconds = (end - began) / 1e9
        self.after = False

    def __repr__(self) -> str:
        return f"HangRecord({self.task or 'kernel'!r}, {self.what()!r}, line {self.line}, cta {self.cta}, warp {self.warp})"

    def what(self) -> str:
        """What it waited for, in words."""
        if self.kind == "cluster":
            return "the other CTAs at cluster_barrier"
        place = self.barrier if self.slot is None else f"{self.barrier}[{self.slot}]"
        if self.kind == "named":
            return f"{self.threads} threads at {place}"
        parity = "" if self.phase in (0, 1) else f" (parity {self.parity})"
        return f"phase {self.phase}{parity} of {place}"


def unpack_records(table: dict[str, Any], memory: bytes, first: int = 0) -> list[HangRecord]:
    """The records in the kernel's memory, in the order in which they were claimed. `first`: when the first wait gave up (0: not known)."""
    out: list[HangRecord] = []
    for at in range(0, len(memory) - RECORD + 1, RECORD):
        fields = _FIELDS.unpack_from(memory, at)
        if not 0 < fields[0] <= len(table["sites"]):
            continue
        site = table["sites"][fields[0] - 1]
        barrier, slot = ("", None) if site["kind"] == "cluster" else _barrier_at(table, fields[2])
        record = HangRecord(site, fields[0] - 1, barrier, slot, fields)
        record.after = bool(first) and fields[8] > first
        out.append(record)
    return out


def _barrier_at(table: dict[str, Any], offset: int) -> tuple[str, int | None]:
    for row in table["barriers"]:
        count = row["count"]
        if row["offset"] <= offset < row["offset"] + 8 * max(1, count):
            return row["name"], (offset - row["offset"]) // 8 if count else None
    return "a barrier outside of every array: the index is out of range", None


class KernelHang(LaunchError):
    """Waits of a kernel gave up: it would never have ended. `records` has one `HangRecord` for each warp that waited (4096 at most), `total` counts
    them all. `lost`: the kernel did not end even so, or had to be stopped, so that the process cannot use the device any more."""

    def __init__(self, message: str, loc: Loc, records: list[HangRecord], total: int, lost: bool, hint: str) -> None:
        super().__init__("kernel-hang", message, loc, hint=hint)
        self.records = records
        self.total = total
        self.lost = lost


# --------------------------------------------------------------------------------------------------------------------- the message


def explain(head: str, table: dict[str, Any], records: list[HangRecord], total: int, lost: str, loc: Loc) -> KernelHang:
    """The error: who waited where, in rows of equal waits, each with its line; then who completes what was waited for.

    `head` names the launch, `lost` says what became of the kernel if it did not end ("": it did).
    """
    shown = [r for r in records if not r.after] or records
    groups: dict[tuple[Any, ...], list[HangRecord]] = {}
    for r in shown:
        groups.setdefault((r.task, r.site, r.barrier, r.slot, r.parity), []).append(r)
    limit = table["timeout"] / 1e9
    lines = [f"{head} hangs: {_count(total, 'warp')} gave up waiting, the first after {limit:g} s"]
    for rows in list(groups.values())[:_ROWS]:
        lines += _row(rows)
    if len(groups) > _ROWS:
        lines.append(f"  and {len(groups) - _ROWS} more places (all are in .records)")
    lines += [f"  no warp of task {name} waited: it had ended, or was computing" for name in _absent(table, shown)]
    later = sum(r.after for r in records)
    if later and later < len(records):
        lines.append(f"  ({_count(later, 'warp')} came to a wait after that and passed through)")
    lines += _completers(table, shown)
    if lost:
        lines.append(f"  {lost}: restart the process")
    return KernelHang("\n".join(lines), loc, records, total, bool(lost), _hint(shown))


def _absent(table: dict[str, Any], shown: list[HangRecord]) -> list[str]:
    """The tasks of which no warp gave up."""
    waited = {r.task for r in shown}
    return [name for name in table["tasks"] if name not in waited]


def _row(rows: list[HangRecord]) -> list[str]:
    r = rows[0]
    ctas = sorted({x.cta for x in rows})
    warps = sorted({x.warp for x in rows})
    longest = max(x.seconds for x in rows)
    who = f"task {r.task}, " if r.task else ""
    where = f"cta{'s' if len(ctas) > 1 else ''} {_ctas(ctas)}, warp{'s' if len(warps) > 1 else ''} {_ranges(warps)}"
    out = [
        f"  {who}{where}: waited {longest:.3g} s for {r.what()}",
        f"    {r.file}:{r.line}: {_source(r.file, r.line)}",
    ]
    out += [f"      called from {file}:{line}: {_source(file, line)}" for file, line in r.calls]
    return out


def _source(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _ctas(ctas: list[tuple[int, int, int]]) -> str:
    """CTAs by x where that is all there is, else up to four in full."""
    if all(y == 0 and z == 0 for _, y, z in ctas):
        return _ranges([x for x, _, _ in ctas])
    shown = ", ".join(map(str, ctas[:4]))
    return shown if len(ctas) <= 4 else f"{shown} and {len(ctas) - 4} more"


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers as ``0-3, 8``."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    text = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts[:6])
    return text if len(parts) <= 6 else f"{text}, ..."


def _completers(table: dict[str, Any], shown: list[HangRecord]) -> list[str]:
    """For every barrier that somebody waited for: what its phases need, and the lines that bring it."""
    out: list[str] = []
    waited = {r.barrier for r in shown}
    for row in table["barriers"]:
        if row["name"] not in waited:
            continue
        if row["line"]:
            need = f"a phase of {row['name']} (line {row['line']}) takes {_count(row['arrivals'], 'arrival')} and the bytes expected"
        else:
            need = f"{row['name']} takes {row['arrivals']} threads"
        out.append(f"  {need}; they come from:")
        for by in row["by"]:
            who = f" in task {by['task']}" if by["task"] else ""
            out.append(f"    {by['file']}:{by['line']}: {by['what']}{who}")
        if not row["by"]:
            out.append("    nowhere")
    return out


def _hint(shown: list[HangRecord]) -> str:
    kinds = {r.kind for r in shown}
    if kinds == {"cluster"}:
        return "look for the CTA of the cluster that took another branch, or waits for something else"
    if "named" in kinds and "mbarrier" not in kinds:
        return "the thread count of a named barrier is that of all who wait or arrive there: 32 for each warp of each of these tasks"
    tasks = {r.task for r in shown if r.kind == "mbarrier"}
    if len(tasks) > 1:
        return (
            "these tasks wait for each other: find the wait that comes one phase too early, or the arrival or copy that is missing or "
            "skipped; a fresh barrier has completed the phase of parity 1 (a producer's first wait is for phase ^ 1)"
        )
    return (
        "find what did not come: an arrival that a branch skips, fewer bytes than expected, a count that is too high, or a phase that "
        "is completed already (a fresh barrier has completed the phase of parity 1)"
    )


# ------------------------------------------------------------------------------------------------------------- memory and the launch


class _Memory:
    """The records and the state of one launch on one device."""

    __slots__ = ("device", "host", "records", "state")

    def __init__(self, device: int) -> None:
        self.device = device
        with driver_api.current(device):
            self.host = int(driver_api.call("cuMemHostAlloc", RECORD * MAX_RECORDS, _PORTABLE_MAPPED))
            self.records = int(driver_api.call("cuMemHostGetDevicePointer", self.host, 0))
            self.state = int(driver_api.call("cuMemAlloc", STATE))
        self.clear()

    def clear(self) -> None:
        """Zero again."""
        ctypes.memset(self.host, 0, RECORD * MAX_RECORDS)
        with driver_api.current(self.device):
            driver_api.call("cuMemsetD32", self.state, 0, STATE // 4)
            driver_api.call("cuCtxSynchronize")

    def told(self) -> bool:
        """Whether a record is there. May be asked while the kernel runs."""
        return ctypes.c_uint32.from_address(self.host).value != 0

    def read_state(self) -> tuple[int, int]:
        """(time of the first that gave up, warps that gave up), after the kernel's end."""
        out = ctypes.create_string_buffer(STATE)
        with driver_api.current(self.device):
            driver_api.call("cuMemcpyDtoH", ctypes.addressof(out), self.state, STATE)
        first, count = struct.unpack_from("<QI", out.raw)
        return first, count


_free: dict[int, list[_Memory]] = {}
_lock = threading.Lock()


def _take(device: int) -> _Memory:
    with _lock:
        kept = _free.setdefault(device, [])
        if kept:
            return kept.pop()
    return _Memory(device)


class Watch:
    """One launch of a kernel that tells of its hangs. `arguments` are the values of its hidden parameters."""

    __slots__ = ("arguments", "device", "memory", "table")

    def __init__(self, meta: KernelMetadata, device: int, stream: int) -> None:
        self.table: dict[str, Any] = meta.extra["hang"]
        self.device = device
        with driver_api.current(device):
            capturing = driver_api.call("cuStreamIsCapturing", driver_api.stream_handle(stream))
        if int(capturing):
            text = f"kernel {meta.name!r}: its launch waits for its end (hang_timeout or debug), which a stream that is captured cannot"
            raise LaunchError("launch-option", text, caller_loc(), hint="switch that off for graphs: hang_timeout=0")
        self.memory = _take(device)
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
        while not _is_done(self.device, stream):
            if self.memory.told():
                since = since or time.monotonic()
                if time.monotonic() - since > allowed:
                    return False
            time.sleep(pause)
            pause = min(2 * pause, 2e-4)
        return True


def _is_done(device: int, stream: int) -> bool:
    try:
        with driver_api.current(device):
            driver_api.call("cuStreamQuery", driver_api.stream_handle(stream))
    except DriverError as error:
        if error.name == "CUDA_ERROR_NOT_READY":
            return False
        raise
    return True
