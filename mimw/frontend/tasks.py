"""`with`: the region of tasks and its tasks, and the ends of a pipeline.

Each task's body is traced from the state before the region, into a region of `task.partition`: what a body assigns is its own. Checks what the
frontend can see of tasks: their number, warps and registers, where they stand, what they capture. Warp ids and the like are a pass's work.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from mimw.diagnostics import CompilationError, Loc, Note
from mimw.frontend.calls import call_language
from mimw.frontend.scope import Context, Frame, Key, Undefined, class_of
from mimw.frontend.statements import assign_target
from mimw.frontend.tracer import Flow, Tracer
from mimw.ir.core import Function, OpBase, Region, Value
from mimw.ir.ops.control import YieldOp
from mimw.ir.ops.task import PartitionOp, TaskSpec
from mimw.ir.types import InflightType, TensorType
from mimw.language.core import explain, tensor
from mimw.language.handles import traced
from mimw.language.task import MAX_WARPS, async_task, async_tasks


class Task:
    """One ``with ml.async_task(...)``: what was asked, its statement, its place."""

    __slots__ = ("asked", "loc", "node")

    def __init__(self, asked: async_task, node: ast.With, loc: Loc) -> None:
        self.asked = asked
        self.node = node
        self.loc = loc


def visit_with(t: Tracer, node: ast.With) -> Flow:
    if len(node.items) != 1:
        t.error("unsupported-syntax", "with of several things", node, "nest them: one with a line")
    item = node.items[0]
    obj = t.expr(item.context_expr)
    if isinstance(obj, async_tasks):
        _no_name(t, item)
        return _partition(t, node)
    if isinstance(obj, async_task):
        t.error("bad-task", "async_task outside of async_tasks", node, "put it into `with ml.async_tasks():`")
    if isinstance(obj, traced) and hasattr(class_of(obj), "leave"):
        return _managed(t, node, item, obj)
    return t.error(
        "unsupported-syntax",
        f"with {explain(obj)} cannot be used in a kernel",
        node,
        "with takes ml.async_tasks() and ml.async_task()",
    )


def _no_name(t: Tracer, item: ast.withitem) -> None:
    if item.optional_vars is not None:
        t.error("unsupported-syntax", "a task has no value to name", item.optional_vars, "leave `as` away")


# Context managers of the language.


def _managed(t: Tracer, node: ast.With, item: ast.withitem, obj: Any) -> Flow:
    """Enter, body, exit; nothing may leave the body on another way."""
    leaves = _leaving(node.body, False)
    if leaves is not None:
        word = type(leaves).__name__.lower()
        t.error(
            "unsupported-syntax",
            f"{word} out of a with",
            leaves,
            "call the two ends yourself: acquire and commit, wait and release",
        )
    value = call_language(t, obj.enter, [], {}, item.context_expr)
    if item.optional_vars is not None:
        assign_target(t, item.optional_vars, value)
    flow = t.body(node.body)
    if flow is Flow.NEXT:
        call_language(t, obj.leave, [], {}, item.context_expr)
    return flow


def _leaving(nodes: list[ast.stmt], in_loop: bool) -> ast.stmt | None:
    """The first statement that leaves the nodes: return, or break and continue of a loop around them."""
    for node in nodes:
        if isinstance(node, ast.Return) or (isinstance(node, (ast.Break, ast.Continue)) and not in_loop):
            return node
        inner = in_loop or isinstance(node, (ast.For, ast.While))
        for field in ("body", "orelse"):
            found = _leaving(getattr(node, field, []), inner)
            if found is not None:
                return found
    return None


# Tasks.


def _partition(t: Tracer, node: ast.With) -> Flow:
    loc = t.builder.loc
    _check_place(t, node)
    tasks: list[Task] = []
    _collect(t, node.body, tasks)
    _check_default(t, node, tasks)
    base = t.capture()
    gone: dict[Key, Undefined] = {}
    if len(tasks) == 1:
        _body(t, tasks[0], 0, gone)
        t.restore(base)
    else:
        specs = _specs(t, tasks)
        regions: list[Region] = []
        for task, spec in specs:
            region = t.region()
            regions.append(region)
            with t.builder.at(region.block):
                if _body(t, task, spec.replica, gone) is not Flow.LEFT:
                    t.builder.insert(YieldOp([], loc=task.loc))
            t.restore(base)
            _check_captures(region, task)
        t.builder.insert(PartitionOp(tuple(str(s) for _, s in specs), regions, loc=loc))
        t.attach(regions)
    for key, u in gone.items():
        t.set_slot(key, u)
    return Flow.NEXT


def _check_place(t: Tracer, node: ast.With) -> None:
    """One region a kernel, at its top level."""
    frame: Frame | None = t.frame
    while frame is not None:
        for context in frame.contexts:
            if context.kind == "task":
                t.error("bad-task", "async_tasks inside a task", node, None, [Note("the task around", context.loc)])
            if context.kind in ("loop", "if"):
                what = "a run-time loop" if context.kind == "loop" else "a run-time branch"
                hint = "put the loop or branch into each task"
                t.error(
                    "not-yet",
                    f"async_tasks inside {what} is not there yet",
                    node,
                    hint,
                    [Note(f"{what} around", context.loc)],
                )
        if frame.inlined is not None:
            hint = "return at the end of the function only"
            t.error("not-yet", "async_tasks in a function that returns early is not there yet", node, hint)
        frame = frame.caller
    for op in t.builder.block.ops:
        if isinstance(op, PartitionOp):
            hint = "put both parts into one async_tasks"
            t.error(
                "not-yet",
                "a second async_tasks in a kernel is not there yet",
                node,
                hint,
                [Note("the first one", op.loc)],
            )


def _collect(t: Tracer, nodes: list[ast.stmt], tasks: list[Task]) -> None:
    """The tasks that the body of `async_tasks` opens; anything but tasks and ifs on constants is refused."""
    for node in nodes:
        if isinstance(node, ast.With):
            tasks.extend(_task(t, node))
        elif isinstance(node, ast.If):
            test = t.expr(node.test)
            if isinstance(test, tensor):
                hint = "a task is there or not when the kernel is compiled; branch inside of it"
                t.error("constexpr-needed", "an if around tasks needs a constant condition", node.test, hint)
            _collect(t, node.body if test else node.orelse, tasks)
        elif not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            hint = "put it before async_tasks, or into a task"
            t.error("statement-between-tasks", "only tasks stand in the body of async_tasks", node, hint)


def _task(t: Tracer, node: ast.With) -> list[Task]:
    out: list[Task] = []

    def visit(t: Tracer, node: ast.With) -> Flow:
        item = node.items[0]
        obj = t.expr(item.context_expr)
        if len(node.items) != 1 or not isinstance(obj, async_task):
            hint = "put it before async_tasks, or into a task"
            t.error("statement-between-tasks", "only tasks stand in the body of async_tasks", node, hint)
        _no_name(t, item)
        out.append(Task(obj, node, t.loc(node)))
        return Flow.NEXT

    t.guarded(visit, node)
    return out


def _check_default(t: Tracer, node: ast.With, tasks: list[Task]) -> None:
    defaults = [x for x in tasks if x.asked.is_default]
    if not defaults:
        t.error(
            "bad-task",
            "async_tasks has no default task",
            node,
            'write `with ml.async_task("default"):` around what the launch\'s own warps do',
        )
    if len(defaults) > 1:
        raise CompilationError(
            "bad-task", "a second default task", defaults[1].loc, notes=[Note("the first one", defaults[0].loc)],
            hint="the other tasks have num_warps=",
        )  # fmt: skip


def _specs(t: Tracer, tasks: list[Task]) -> list[tuple[Task, TaskSpec]]:
    """One entry a region: the default task first, then the others in order, their replicas one by one."""
    others = [x for x in tasks if not x.asked.is_default]
    _check_all_or_none(others, "num_regs", lambda a: a.num_regs > 0)
    _check_all_or_none(others, "warp_group_start_id", lambda a: a.start_warp >= 0)
    default = next(x for x in tasks if x.asked.is_default)
    name = default.asked.name or "default"
    out = [(default, TaskSpec(name, t.num_warps, default.asked.num_regs, 0, 0))]
    names = {name: default}
    taken = [(0, t.num_warps, default)]
    for i, x in enumerate(others, 1):
        a = x.asked
        own = a.name or f"task{i}"
        if own in names:
            raise CompilationError(
                "bad-task", f"two tasks are named {own}", x.loc, notes=[Note("the other one", names[own].loc)]
            )
        names[own] = x
        for r in range(a.replicate):
            start = a.start_warp + r * a.num_warps if a.start_warp >= 0 else -1
            out.append((x, TaskSpec(own, a.num_warps, a.num_regs, start, r)))
            taken.append((start, a.num_warps, x))
    _check_warps(taken)
    return out


def _check_all_or_none(tasks: list[Task], what: str, given: Callable[[async_task], bool]) -> None:
    has = [x for x in tasks if given(x.asked)]
    lacks = [x for x in tasks if not given(x.asked)]
    if has and lacks:
        raise CompilationError(
            "bad-task", f"{what} is given for some tasks and not for this one", lacks[0].loc,
            notes=[Note("it is given here", has[0].loc)], hint="give it for all tasks beside the default, or for none",
        )  # fmt: skip


def _check_warps(taken: list[tuple[int, int, Task]]) -> None:
    total = sum(n for _, n, _ in taken)
    if total > MAX_WARPS:
        counts = " + ".join(str(n) for _, n, _ in taken)
        raise CompilationError(
            "bad-task", f"the tasks have {counts} = {total} warps; a CTA has at most {MAX_WARPS}", taken[-1][2].loc
        )
    if any(start < 0 for start, _, _ in taken):
        return
    for i, (start, n, task) in enumerate(taken):
        if start + n > MAX_WARPS:
            raise CompilationError(
                "bad-task", f"warps {start} to {start + n - 1}: a CTA has at most {MAX_WARPS}", task.loc
            )
        for other, m, before in taken[:i]:
            if start < other + m and other < start + n:
                raise CompilationError(
                    "bad-task", f"warps {start} to {start + n - 1} of this task overlap warps {other} to {other + m - 1}", task.loc,
                    notes=[Note("the other task", before.loc)], hint="leave warp_group_start_id away: the compiler allots warps",
                )  # fmt: skip


def _body(t: Tracer, task: Task, replica: int, gone: dict[Key, Undefined]) -> Flow:
    """Trace a task's body at the insertion point; notes in `gone` what it assigned, which is lost after the region."""
    before = t.capture().slots
    t.frame.contexts.append(Context("task", task.loc))
    saved, t.builder.replica = t.builder.replica, replica

    def visit(t: Tracer, node: ast.With) -> Flow:
        return t.body(node.body)

    flow = t.guarded(visit, task.node)
    t.builder.replica = saved
    t.frame.contexts.pop()
    after = t.capture()
    for key, v in after.slots.items():
        if (isinstance(key, str) or key in before) and before.get(key, _MISSING) is not v:
            notes = [("it is assigned here", after.assigned[key])] if key in after.assigned else []
            hint = "store it to memory in the task, or compute it before async_tasks"
            gone.setdefault(
                key, Undefined("task-local", "{name} was assigned inside a task, where it is local", notes, hint)
            )
    return flow


_MISSING = object()


def _check_captures(region: Region, task: Task) -> None:
    """Tiles do not cross into a task: its warps do not hold them."""
    own: set[Value] = set()
    for op in _ops(region):
        for v in op.operands:
            if v not in own and isinstance(v.type, (TensorType, InflightType)):
                made = v.defining_op
                name = v.name or "a tile"
                raise CompilationError(
                    "captured-tile", f"{name} ({v.type}) is computed outside of this task, in registers of other warps", op.loc,
                    notes=[*([Note("it is computed here", made.loc)] if made else []), Note("the task", task.loc)],
                    hint="compute it inside the task, or hand it over through a buffer (ml.local_alloc)",
                )  # fmt: skip
        own.update(op.results)
        for r in op.regions:
            own.update(r.block.args)


def _ops(region: Region) -> list[OpBase]:
    return [inner for op in region.block.ops for inner in op.walk()]


_ALLOCATIONS = {"barrier.alloc": "barriers are", "memory.local_alloc": "a buffer is"}


def check_placement(function: Function) -> None:
    """Barriers and rings of buffers are allocated once, at the top level of the kernel, before its tasks."""
    partition = next((op for op in function.block.ops if isinstance(op, PartitionOp)), None)
    after = False
    for op in function.block.ops:
        after = after or op is partition
        for inner in op.walk():
            what = _ALLOCATIONS.get(inner.name)
            if what is None or inner.operands:
                continue
            if inner is not op or after:
                where = (
                    "after the tasks"
                    if inner is op
                    else "in a task"
                    if op is partition
                    else "in a run-time loop or branch"
                )
                raise CompilationError(
                    "allocation-place", f"{what} allocated {where}", inner.loc,
                    hint="allocate at the top level of the kernel, before async_tasks",
                )  # fmt: skip


TASKS: dict[type[ast.AST], Callable[[Tracer, Any], Flow]] = {ast.With: visit_with}
