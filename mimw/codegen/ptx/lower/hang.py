"""A build whose waits give up: what it is, and what it adds to a kernel (`hang_wait` emits it).

A kernel is built so when its function has the option ``hang_timeout`` (nanoseconds). A wait polls as always. Every sixteenth poll that fails looks
at the clock, and at a word in global memory that the first wait to give up fills with the time. When its own time is over, or that word is set, the
wait *gives up*: it marks its warp in a word of the CTA's shared memory, writes a record of who waited where (once a warp), and goes on behind the
wait as if it had passed. It never branches to an exit, so every warp still comes to everything that stands behind it: the other waits, which give
up at once, and the hardware's barriers. Once a CTA is marked, its threads neither arrive nor start copies that count on a barrier: no barrier can
overflow, and nothing new is under way when the CTA ends. What is on its way then gets a millisecond to land before the threads leave.

Which barriers must be bounded: mbarriers, and the user's named barriers, whose counts may be wrong; here each named barrier is an mbarrier for each
thread count that it is used with, on which every thread arrives and polls with the token of its own arrival. Which need not be: the compiler's
barriers of one task's warps, of the CTA and of the cluster. All warps of a task run the same ops in the same order (control flow between tasks'
barriers depends on scalars that all of them have), all waits between two such barriers are bounded, and the cluster's barrier counts threads that
have exited as arrived: all who must come do come. A warp that was held up at a `cluster.sync` by somebody who gave up writes its record afterwards.
What can still go on for ever is a loop that only a message ends: a wait that gives up long after the first one (`GRACE`) stops the kernel. And
warps of one task may part at a scalar that each has read for itself from memory that nobody has filled, so that their barrier never meets: the
host, which sees the records, then stops waiting.

Every record is `RECORD` bytes, little-endian: u32 site + 1 (written last), warp in the CTA, byte offset of the barrier in shared memory, phase as
given; i32 CTA index x, y, z, 0; u64 start and end of the wait by %globaltimer. The state is u64 time of the first that gave up (0: nobody), u32
records wanted. `table` tells what sites and offsets mean. `mimw.runtime.hang` reads all that.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lowering import Lowering
from mimw.diagnostics import CompilationError
from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.barrier import BarrierAllocOp, NamedArriveOp, NamedWaitOp
from mimw.passes.tasks import TaskMap
from mimw.target import Target

RECORD = 48
MAX_RECORDS = 4096
GRACE = 5_000_000_000
"""Nanoseconds after the first wait gave up in which the kernel may still end by itself."""
SETTLE = 1_000_000
"""Nanoseconds that copies under way get before a CTA ends in which a wait gave up. They take some microseconds."""
RECORDS, STATE = "hang_records", "hang_state"
"""Names of the hidden parameters, both pointers. A user's parameter is ``p_...`` in the text."""
_HARDWARE_BARRIERS = 16
WAITS = ("barrier.wait", "barrier.named_wait", "cluster.sync")
"""Ops at which a kernel can wait for ever, or be held up by somebody who does."""
_LOADS = frozenset(
    ("async_copy.tma_load", "async_copy.bulk_load", "cluster.async_remote_copy", "cluster.async_remote_store")
)
_SPELLED = {
    "barrier.arrive": "barrier_arrive",
    "barrier.expect": "barrier_expect_bytes",
    "async_copy.tma_load": "async_descriptor_load",
    "async_copy.bulk_load": "async_load",
    "cluster.async_remote_store": "async_remote_shmem_store",
    "cluster.async_remote_copy": "async_remote_shmem_copy",
}


class HangBuild:
    """What such a build keeps while one kernel is lowered.

    `mark` is the offset in shared memory of the word with a bit for each warp that gave up, `named` gives (number, count) of a named barrier
    its mbarrier's offset, `sites` are the waits by number.
    """

    __slots__ = ("end", "loads", "mark", "named", "sites", "tasks", "timeout")

    def __init__(self, function: Function, timeout: int, start: int) -> None:
        self.timeout = timeout
        self.tasks = TaskMap(function)
        self.mark = -(-start // 16) * 16
        self.end = self.mark + 8
        self.named: dict[tuple[int, int], int] = {}
        self.sites: list[dict[str, Any]] = []
        self.loads = any(op.name in _LOADS for op in function.walk())
        for op in function.walk():
            if isinstance(op, (NamedWaitOp, NamedArriveOp)):
                for number in (op.number,) if op.id is None else range(_HARDWARE_BARRIERS):
                    self._take(number, op.count)

    def _take(self, number: int, count: int) -> None:
        if (number, count) not in self.named:
            self.named[number, count] = self.end
            self.end += 8

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


def begin(ctx: Lowering) -> HangBuild | None:
    """Prepare the kernel if its function asks for such a build and waits for anything; shared memory grows by the barriers' bytes."""
    function = ctx.function
    timeout = int(function.options.get("hang_timeout") or 0)
    if not timeout or not ctx.target.has("mbarrier") or not any(op.name in WAITS for op in function.walk()):
        return None
    build = HangBuild(function, timeout, int(function.options.get("shared_bytes", 0)))
    _check_room(function, ctx.target, build.end)
    function.options["shared_bytes"] = build.end
    ctx.hang = build
    return build


def _check_room(function: Function, target: Target, needed: int) -> None:
    if needed > target.max_shared_bytes:
        raise CompilationError(
            "shared-memory",
            f"kernel {function.name} needs {needed} bytes of shared memory with the barriers of a build that explains "
            f"hangs; {target.name} has {target.max_shared_bytes}",
            function.loc,
            hint="use one stage less, or smaller tiles, while you look for the hang; or switch it off (MIMW_HANG_TIMEOUT=0)",
        )


def parameters(build: HangBuild | None) -> list[tuple[str, str, int, int]]:
    """The hidden parameters of the entry."""
    return [] if build is None else [("u64", name, 8, 8) for name in (RECORDS, STATE)]


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
    rows = {key: _row(f"named barrier {key[0]}", at, 0, key[1], 0) for key, at in build.named.items()}
    for op in function.walk():
        if isinstance(op, (NamedWaitOp, NamedArriveOp)):
            what = f"{op.name.replace('.', '_').replace('barrier_named', 'named_barrier')} by {32 * build.tasks.warps_of(op)} threads"
            entry = {"what": what, "task": build.task_of(op), "file": op.loc.file, "line": op.loc.line}
            for (number, count), row in rows.items():
                if count == op.count and (op.id is not None or number == op.number):
                    row["by"].append(entry)
    return list(rows.values())


def _row(name: str, offset: int, count: int, arrivals: int, line: int) -> dict[str, Any]:
    return {"name": name, "offset": offset, "count": count, "arrivals": arrivals, "line": line, "by": []}


def allocation(barrier: Value) -> OpBase | None:
    """The op that made a barrier, through views."""
    op = barrier.defining_op
    while op is not None and not isinstance(op, BarrierAllocOp):
        op = op.operands[0].defining_op
    return op
