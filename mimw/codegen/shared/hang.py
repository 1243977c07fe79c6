"""A build whose waits give up, on any target: the records that it writes, and the table that says what they mean.

A kernel is built so when its function has the option ``hang_timeout`` (nanoseconds) and it waits for anything. How waits give up is each target's
own. Every record is `RECORD` bytes, little-endian: u32 site + 1 (written last), warp in the CTA, byte offset of the barrier in shared memory, phase
as given; i32 CTA index x, y, z, 0; u64 start and end of the wait in nanoseconds of a clock that the device has one of. The state is u64 time of the
first that gave up (0: nobody), u32 records wanted. `table` tells what sites and offsets mean. `mimw.runtime.hang` reads all that.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.barrier import BarrierAllocOp, NamedArriveOp, NamedWaitOp
from mimw.passes.tasks import TaskMap

RECORD = 48
MAX_RECORDS = 4096
GRACE = 5_000_000_000
"""Nanoseconds after the first wait gave up in which the kernel may still end by itself."""
RECORDS, STATE = "hang_records", "hang_state"
"""Names of the hidden parameters, both pointers."""
WAITS = ("barrier.wait", "barrier.named_wait", "cluster.sync")
"""Ops at which a kernel can wait for ever, or be held up by somebody who does."""
_NUMBERS = 16
_SPELLED = {
    "barrier.arrive": "barrier_arrive",
    "barrier.expect": "barrier_expect_bytes",
    "async_copy.tma_load": "async_descriptor_load",
    "async_copy.bulk_load": "async_load",
    "cluster.async_remote_store": "async_remote_shmem_store",
    "cluster.async_remote_copy": "async_remote_shmem_copy",
}


class HangBuild:
    """What such a build keeps while one kernel is lowered: `sites` are the waits by number, `named` gives (number, count) of a named barrier
    the offset of what stands for it in shared memory, which takes `named_bytes`."""

    __slots__ = ("named", "named_bytes", "sites", "tasks", "timeout")

    def __init__(self, function: Function, timeout: int, named_bytes: int = 8) -> None:
        self.timeout = timeout
        self.tasks = TaskMap(function)
        self.named: dict[tuple[int, int], int] = {}
        self.named_bytes = named_bytes
        self.sites: list[dict[str, Any]] = []

    def task_of(self, op: OpBase) -> str:
        """The name of the task that runs an op; "" in a kernel without tasks."""
        return self.tasks.names[self.tasks.of(op.parent)] if self.tasks.partition is not None else ""

    def site(self, kind: str, op: OpBase, **more: Any) -> int:
        """The number of a wait."""
        calls: list[list[Any]] = []
        call = op.loc.call_site
        while call is not None:
            calls.append([call.file, call.line])
            call = call.call_site
        where = {"task": self.task_of(op), "file": op.loc.file, "line": op.loc.line, "calls": calls}
        self.sites.append({"kind": kind, **where, **more})
        return len(self.sites) - 1


def wanted(function: Function) -> int:
    """Nanoseconds after which waits of the kernel give up; 0 where they do not, or there are none."""
    timeout = int(function.options.get("hang_timeout") or 0)
    return timeout if timeout and any(op.name in WAITS for op in function.walk()) else 0


def named_barriers(function: Function) -> list[tuple[int, int]]:
    """(number, count) of all named barriers; a number that is known at run time only may be any."""
    found: dict[tuple[int, int], None] = {}
    for op in function.walk():
        if isinstance(op, (NamedWaitOp, NamedArriveOp)):
            for number in (op.number,) if op.id is None else range(_NUMBERS):
                found[number, op.count] = None
    return list(found)


def table(build: HangBuild, function: Function) -> dict[str, Any]:
    """What records mean, as JSON values: ``sites`` by number, ``barriers`` with offset, count and who completes their phases, names of ``tasks``."""
    rows: dict[BarrierAllocOp, dict[str, Any]] = {}
    for op in function.walk():
        if isinstance(op, BarrierAllocOp):
            rows[op] = _row(op.result.name or "barrier", op.offset, op.type.count, op.type.arrive_count, op.loc.line)
    for op in function.walk():
        spelled = _SPELLED.get(op.name)
        if spelled is None:
            continue
        row = rows.get(allocation(op.barrier))  # type: ignore[attr-defined, arg-type]
        if row is not None:
            amount = f" of {op.attrs['bytes']} bytes" if op.name == "barrier.expect" else ""
            row["by"].append(
                {"what": spelled + amount, "task": build.task_of(op), "file": op.loc.file, "line": op.loc.line}
            )
    barriers = [*rows.values(), *_named_rows(build, function)]
    tasks = build.tasks.names if build.tasks.partition is not None else []
    return {"timeout": build.timeout, "grace": GRACE, "sites": build.sites, "barriers": barriers, "tasks": tasks}


def _named_rows(build: HangBuild, function: Function) -> list[dict[str, Any]]:
    """Named barriers: those who wait or arrive with the same count, at that number or at one that is known at run time only."""
    rows = {
        key: _row(f"named barrier {key[0]}", at, 0, key[1], 0, build.named_bytes) for key, at in build.named.items()
    }
    for op in function.walk():
        if isinstance(op, (NamedWaitOp, NamedArriveOp)):
            what = f"{op.name.replace('.', '_').replace('barrier_named', 'named_barrier')} by {32 * build.tasks.warps_of(op)} threads"
            entry = {"what": what, "task": build.task_of(op), "file": op.loc.file, "line": op.loc.line}
            for (number, count), row in rows.items():
                if count == op.count and (op.id is not None or number == op.number):
                    row["by"].append(entry)
    return list(rows.values())


def _row(name: str, offset: int, count: int, arrivals: int, line: int, size: int = 8) -> dict[str, Any]:
    return {"name": name, "offset": offset, "size": size, "count": count, "arrivals": arrivals, "line": line, "by": []}


def allocation(barrier: Value) -> OpBase | None:
    """The op that made a barrier, through views."""
    op = barrier.defining_op
    while op is not None and not isinstance(op, BarrierAllocOp):
        op = op.operands[0].defining_op
    return op
