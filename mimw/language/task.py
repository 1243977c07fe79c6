"""Tasks: warp groups that run different code side by side.

    with ml.async_tasks():
        with ml.async_task("default"):
            ...
        with ml.async_task(num_warps=4, num_regs=232, replicate=2):
            ...

What stands outside runs on the default task's warps. The objects here only hold what was asked; `mimw.frontend.tasks` traces the bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mimw.ir.builder import current_builder
from mimw.language.core import const_bool, const_int, const_str, explain, is_tuple, unwrap
from mimw.language.errors import fail
from mimw.language.handles import traced

MAX_WARPS = 32


class async_tasks(traced):
    """``with ml.async_tasks():`` opens the one region of tasks of a kernel.

    The body holds ``with ml.async_task(...)`` and ``if`` on constants only; exactly one task is the default. When no other is left, it is run as
    ordinary code. `exclusive`, `no_ending_cluster_sync` and `mbarrier_try_wait_suspend_ns` are accepted for TLX's sake and change nothing.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # for checkers of kernel code: the frontend opens the region itself

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def __init__(
        self,
        exclusive: bool = False,
        no_ending_cluster_sync: bool = False,
        mbarrier_try_wait_suspend_ns: int | None = None,
    ) -> None:
        current_builder("async_tasks")
        const_bool(exclusive, "async_tasks: exclusive")
        const_bool(no_ending_cluster_sync, "async_tasks: no_ending_cluster_sync")
        if unwrap(mbarrier_try_wait_suspend_ns) is not None:
            const_int(mbarrier_try_wait_suspend_ns, "async_tasks: mbarrier_try_wait_suspend_ns")


class async_task(traced):
    """``with ml.async_task("default"):``, on the launch's warps, or ``with ml.async_task(num_warps=4):``, on warps of its own.

    `num_warps` is a power of two; `num_regs` (or `registers`) registers a thread, a multiple of 8 from 24 to 256, given for all tasks beside the
    default or for none; `replicate` makes that many copies; `warp_group_start_id` is the first warp (allotted when absent). `name` shows up in
    messages and in the emitted text (an addition to TLX).
    """

    __slots__ = ("is_default", "name", "num_regs", "num_warps", "replicate", "start_warp")

    if TYPE_CHECKING:  # for checkers of kernel code: the frontend opens the region itself

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def __init__(
        self,
        *args: Any,
        num_warps: int | None = None,
        num_regs: int | None = None,
        registers: int | None = None,
        replicate: int = 1,
        warp_group_start_id: int | None = None,
        name: str = "",
    ) -> None:
        current_builder("async_task")
        self.is_default = _is_default(args)
        self.name = const_str(name, "async_task: name")
        self.num_warps = _warps(num_warps, self.is_default)
        if unwrap(num_regs) is not None and unwrap(registers) is not None:
            fail("bad-task", "async_task: num_regs and registers are two names for one thing", "give one of them")
        self.num_regs = _registers(registers if unwrap(num_regs) is None else num_regs)
        self.replicate = const_int(replicate, "async_task: replicate")
        if self.replicate < 1 or (self.is_default and self.replicate != 1):
            what = "the default task" if self.is_default else "a task"
            fail("bad-task", f"async_task: replicate={self.replicate} for {what}")
        start = unwrap(warp_group_start_id)
        self.start_warp = -1 if start is None else const_int(start, "async_task: warp_group_start_id")
        if start is not None and (self.is_default or self.start_warp < 0):
            hint = "the default task has the first warps of the CTA"
            fail("bad-task", f"async_task: warp_group_start_id={self.start_warp} cannot be", hint)


def _is_default(args: tuple[Any, ...]) -> bool:
    args = tuple(unwrap(a) for a in args)
    if not args:
        return False
    if args == ("default",):
        return True
    if len(args) == 1 and is_tuple(args[0]):
        fail("not-yet", "async_task([task ids]): automatic warp specialisation is not there yet", "write the tasks out")
    what = ", ".join(explain(a) for a in args)
    return fail(
        "bad-task", f"async_task({what}): the only positional argument is 'default'", 'write num_warps=4, or "default"'
    )


def _warps(num_warps: Any, is_default: bool) -> int:
    n = unwrap(num_warps)
    if is_default:
        if n is not None:
            fail("bad-task", "async_task: the default task has the launch's num_warps", "leave num_warps away here")
        return 0
    if n is None:
        fail(
            "bad-task",
            "async_task: num_warps is missing",
            'write ml.async_task(num_warps=4), or ml.async_task("default")',
        )
    n = const_int(n, "async_task: num_warps")
    if n not in (1, 2, 4, 8, 16):
        fail("bad-task", f"async_task: num_warps={n}; it is 1, 2, 4, 8 or 16")
    return n


def _registers(num_regs: Any) -> int:
    n = unwrap(num_regs)
    if n is None:
        return 0
    n = const_int(n, "async_task: num_regs")
    if n % 8 or not 24 <= n <= 256:
        fail("bad-task", f"async_task: num_regs={n}; it is a multiple of 8 from 24 to 256")
    return n


def async_task_replica_id() -> int:
    """Index of this replica of the task: a compile-time integer, 0 in a task that is not replicated."""
    replica = current_builder("async_task_replica_id").replica
    if replica is None:
        fail(
            "outside-task",
            "async_task_replica_id() stands outside of a task",
            "it has a meaning inside `with ml.async_task(...)` only",
        )
    return replica
