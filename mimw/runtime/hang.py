"""Kernels whose waits give up: what they report, and the error made of it.

Owns: `KernelHang` and its records; `hang_watch` launches such kernels. A kernel is built so when `hang_timeout` is asked for (`parse_timeout`); its
metadata then has ``extra["hang"]``, the table that says what sites and barriers the numbers in records mean, and ends in two hidden parameters:

* ``hang_records``: pinned host memory, `MAX_RECORDS` records of `RECORD` bytes (`unpack_records` has the fields), zero before the launch;
* ``hang_state``: 16 bytes of device memory, zero before the launch: u64 time at which the first wait gave up (nanoseconds of
  the device's clock; 0: none), u32 warps that gave up.

Must not know IR, how the waits are compiled, or a driver.
"""

from __future__ import annotations

import linecache
import re
import struct
from typing import Any

from mimw.diagnostics import LaunchError, Loc

RECORD = 48
MAX_RECORDS = 4096
STATE = 16
_FIELDS = struct.Struct("<3Ii4i2Q")
_UNITS = {"": 10**9, "s": 10**9, "ms": 10**6, "us": 10**3}
_ROWS = 20


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
        if row["offset"] <= offset < row["offset"] + row["size"] * max(1, count):
            return row["name"], (offset - row["offset"]) // row["size"] if count else None
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
