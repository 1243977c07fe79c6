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

The records, their fields and the table that explains them are `codegen.shared.hang`'s.
"""

from __future__ import annotations

from mimw.codegen.lowering import Lowering
from mimw.codegen.shared.hang import RECORDS, STATE, HangBuild, named_barriers, wanted
from mimw.diagnostics import CompilationError
from mimw.ir.core import Function
from mimw.target import Target

SETTLE = 1_000_000
"""Nanoseconds that copies under way get before a CTA ends in which a wait gave up. They take some microseconds."""
_LOADS = frozenset(
    ("async_copy.tma_load", "async_copy.bulk_load", "cluster.async_remote_copy", "cluster.async_remote_store")
)


class PtxHangBuild(HangBuild):
    """`mark` is the offset in shared memory of the word with a bit for each warp that gave up, `end` that of the end of all barriers; `loads`:
    whether copies that count on a barrier may be under way."""

    __slots__ = ("end", "loads", "mark")

    def __init__(self, function: Function, timeout: int, start: int) -> None:
        super().__init__(function, timeout)
        self.mark = -(-start // 16) * 16
        self.end = self.mark + 8
        self.loads = any(op.name in _LOADS for op in function.walk())
        for key in named_barriers(function):
            self.named[key] = self.end
            self.end += 8


def begin(ctx: Lowering) -> PtxHangBuild | None:
    """Prepare the kernel if its function asks for such a build and waits for anything; shared memory grows by the barriers' bytes."""
    function = ctx.function
    timeout = wanted(function)
    if not timeout or not ctx.target.has("mbarrier"):
        return None
    build = PtxHangBuild(function, timeout, int(function.options.get("shared_bytes", 0)))
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
