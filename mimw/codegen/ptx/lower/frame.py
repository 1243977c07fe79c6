"""The frame of a kernel: who runs what, the barrier at the start, registers, the end.

Text order: the entry picks a warp group's branch, `setmaxnreg` is the first thing in it, then the branch of each task. Every task begins
with the start barrier, which all threads of the CTA (of the cluster, where there is one) pass once mbarriers are initialised and the
default task has reached the partition. Code around the partition belongs to the default task.

Assumes that `task_partition` has allotted first warps, registers and barrier ids: ``options["total_warps"]``,
``options["task_sync_ids"]`` (one hardware barrier a task), the specs in the op. Warps that belong to no task only pass the barriers.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering
from mimw.codegen.machine import Block, Edge, Imm, Terminator
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.codegen.ptx.lower import hang_wait, tensor_map
from mimw.codegen.ptx.lower.mma import ptx_builder
from mimw.codegen.ptx.lower.task import (
    LED,
    WARP_GROUP,
    captures,
    cluster_barrier,
    cluster_size,
    elect,
    end_of,
    entry_registers,
    inner_ops,
    own_ops,
    run_light,
    start_barrier,
)
from mimw.codegen.shared.hang import WAITS
from mimw.codegen.shared.shared_memory import place_buffer
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Value
from mimw.ir.ops.async_copy import MadeDescriptorOp, MakeDescriptorOp
from mimw.ir.ops.barrier import BarrierAllocOp
from mimw.ir.ops.cluster import ClusterSyncOp
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.ops.task import PartitionOp, TaskSpec
from mimw.ir.types import I32, BarrierType, TensorDescType
from mimw.target import Target


class Task:
    """One task at lowering: its spec, its hardware barrier, its region (None: the default task, whose code is the function's)."""

    __slots__ = ("region", "spec", "sync_id")

    def __init__(self, spec: TaskSpec, sync_id: int, region: IrBlock | None) -> None:
        self.spec = spec
        self.sync_id = sync_id
        self.region = region

    @property
    def end_warp(self) -> int:
        """The first warp after the task's."""
        return self.spec.start_warp + self.spec.num_warps


class Group:
    """Warps that share a register count: the warp groups of one task, or one warp group with several small tasks."""

    __slots__ = ("end", "first", "tasks")

    def __init__(self, first: int, end: int, tasks: list[Task]) -> None:
        self.first = first
        self.end = end
        self.tasks = tasks

    @property
    def registers(self) -> int:
        """Registers a thread that its tasks want; 0 for what they have at entry."""
        return max(t.spec.num_regs for t in self.tasks)


def run_kernel(ctx: Lowering, maxnreg: int = 0) -> None:
    """Lower the whole function, with its tasks."""
    ops = ctx.function.block.ops
    partition = next((o for o in ops if isinstance(o, PartitionOp)), None)
    frame = _Frame(ctx, partition)
    if partition is None:
        frame.run_alone()
    else:
        frame.run_tasks(partition, maxnreg)


class _Frame:
    """The lowering of one kernel's frame."""

    def __init__(self, ctx: Lowering, partition: PartitionOp | None) -> None:
        self.ctx = ctx
        self.b: PtxBuilder = ptx_builder(ctx)
        self.function = ctx.function
        self.target: Target = ctx.target
        self.clustered = cluster_size(ctx.function) > 1
        self.partition = partition
        self.makes_maps = bool(tensor_map.makers(ctx.function))
        if self.clustered and not self.target.has("cluster"):
            raise CompilationError("unsupported", f"{self.target.name} has no clusters", self.function.loc)

    # ------------------------------------------------------------------------------------------------- one task only

    def run_alone(self) -> None:
        """A kernel without tasks."""
        ctx = self.ctx
        if self.clustered or self.makes_maps:
            ctx.exit = Block("exit")
        self.open_task(self.function.block)
        self.prefetch()
        if self.makes_maps:
            tensor_map.take_entry(ctx)
        if self.init_barriers() or self.clustered or self.makes_maps:
            start_barrier(self.ctx)
        if self.makes_maps:
            tensor_map.read_entry(ctx)
        ctx.run_block(self.function.block)
        self.place_exit()

    def place_exit(self) -> None:
        """The block in which all threads end together: no CTA of a cluster may go while another can still reach its memory, and no tensor
        map while a copy can go through it."""
        ctx = self.ctx
        if ctx.exit is None:
            return
        block, ctx.exit, ctx.before_leave = ctx.exit, None, None
        ctx.place(block)
        if self.clustered:
            cluster_barrier(self.b)
            if ctx.hang is not None:
                hang_wait.settle(ctx)
        else:
            self.b.emit("bar.sync", [Imm(0)])
        if self.makes_maps:
            tensor_map.give_entry_back(ctx)
        ctx.leave()

    # ------------------------------------------------------------------------------------------------- several tasks

    def run_tasks(self, partition: PartitionOp, maxnreg: int) -> None:
        """A kernel with tasks."""
        ctx, b = self.ctx, self.b
        groups = self.groups(partition)
        pool = maxnreg or entry_registers(int(self.function.options["total_warps"]) * 32)
        arguments = dict(ctx.lanes)
        if self.clustered or self.makes_maps:
            ctx.exit = Block("exit")
        b.hint = "warp"
        warp = b.warp = b.cta_warp_id()
        for i, group in enumerate(groups):
            rest = self.split(warp, group.end, f"warps{group.first}") if i + 1 < len(groups) else None
            b.open_scope()
            self.reallocate(group, pool)
            self.run_group(group, warp, arguments, partition)
            b.close_scope()
            if rest is not None:
                ctx.place(rest)
        self.place_exit()

    def split(self, warp: Lane, end: int, hint: str) -> Block:
        """Go on with the warps below `end`; the block for the others."""
        ctx, b = self.ctx, self.b
        mine, rest = Block(hint), Block("more_warps")
        b.hint = "below"
        ctx.b.block.term = Terminator(
            [Edge(mine, []), Edge(rest, [])], b.register(b.compare("lt", warp, b.const(I32, end))), True, b.loc
        )
        ctx.place(mine)
        return rest

    def reallocate(self, group: Group, pool: int) -> None:
        """Hand registers back, or ask for more."""
        registers = group.registers
        if not registers or registers == pool:
            return
        if not self.target.has("setmaxnreg"):
            raise CompilationError("unsupported", f"{self.target.name} has no setmaxnreg (num_regs)", self.function.loc)
        how = "inc" if registers > pool else "dec"
        self.b.emit(f"setmaxnreg.{how}.sync.aligned.u32", [Imm(registers)])

    def run_group(self, group: Group, warp: Lane, arguments: dict[Value, Any], partition: PartitionOp) -> None:
        """The tasks of a group, each in a branch of its own; warps that have none pass the barriers."""
        ctx, b = self.ctx, self.b
        at = group.first
        for task in group.tasks:
            if task.spec.start_warp > at:
                self.split_idle(warp, task.spec.start_warp)
            at = task.end_warp
            rest = self.split(warp, at, task.spec.name) if at < group.end else None
            b.open_scope()
            ctx.lanes, ctx.shared, ctx.inflight = dict(arguments), {}, {}
            self.run_task(task, partition)
            b.close_scope()
            if rest is not None:
                ctx.place(rest)
        if at < group.end:
            self.idle()

    def split_idle(self, warp: Lane, end: int) -> None:
        """The warps below `end` belong to no task."""
        rest = self.split(warp, end, "idle")
        self.idle()
        self.ctx.place(rest)

    def idle(self) -> None:
        """What warps without a task do."""
        self.b.comment("warps without a task")
        self.pass_barriers(before=True)
        self.pass_barriers(before=False)
        self.ctx.leave()

    def run_task(self, task: Task, partition: PartitionOp) -> None:
        """One task, from its first barrier to its end."""
        ctx, b, spec = self.ctx, self.b, task.spec
        ctx.num_warps = b.task_warps = spec.num_warps
        b.first_warp = spec.start_warp
        b.sync_id = task.sync_id
        block = task.region
        first = partition if block is None or not block.ops else block.ops[0]
        warps = f"warp {spec.start_warp}" if spec.num_warps == 1 else f"warps {spec.start_warp} to {task.end_warp - 1}"
        b.comment(f"---- task {spec.name}, {warps}, line {first.loc.line}")
        if block is None:
            self.open_task(self.function.block)
            self.prefetch()
            if self.makes_maps:
                tensor_map.take_entry(ctx)
            if (self.init_barriers() and self.uses_barriers_early()) or self.makes_maps:
                b.barrier()
            if self.makes_maps:
                tensor_map.read_entry(ctx)
            ctx.run_block(self.function.block)
        else:
            self.pass_barriers(before=True)
            self.open_task(block)
            outer = captures(block)
            made = [v for v in outer if isinstance(v.defining_op, MakeDescriptorOp)]
            if made or any(isinstance(o, (MakeDescriptorOp, MadeDescriptorOp)) for o in own_ops(block)):
                tensor_map.read_entry(ctx)
            for value in outer:
                self.bring(value)
            if run_light(ctx, block):
                self.pass_barriers(before=False)
                ctx.leave()
        b.first_warp = b.task_warps = b.sync_id = 0
        ctx.leader = ctx.before_leave = ctx.maps = None

    def open_task(self, block: IrBlock) -> None:
        """Elect the thread that speaks for the task, where anything in it is done by one thread."""
        ctx, b = self.ctx, self.b
        default = block is self.function.block
        names = {o.name for o in own_ops(block)}
        if (default and self.function_has_barriers()) or names & LED:
            ctx.leader = elect(b, ctx.num_warps)
        ctx.before_leave = end_of(ctx, names)
        if default and self.partition is not None:
            ctx.before_leave = self.refuse_return

    def refuse_return(self) -> None:
        """The other tasks would wait for this one for ever."""
        raise CompilationError("not-yet", "return before async_tasks is not supported yet", self.b.loc)

    def function_has_barriers(self) -> bool:
        """Whether there are mbarriers, or descriptors to fetch or make."""
        return (
            self.makes_maps
            or self.ctx.hang is not None
            or any(isinstance(a.type, TensorDescType) for a in self.function.arguments)
            or any(isinstance(o, BarrierAllocOp) for o in self.function.walk())
        )

    def bring(self, value: Value) -> None:
        """Compute a captured value again, where the task runs: values of the default task's branch are not seen here."""
        ctx = self.ctx
        if value in ctx.lanes or value in ctx.shared:
            return
        op = value.defining_op
        if isinstance(op, MakeDescriptorOp):
            if op.slot is not None:
                self.bring(op.slot)
            ctx.set(value, [tensor_map.map_address(ctx, op)])
            tensor_map.acquire_map(ctx, ctx.scalar(value))
            return
        if op is None or not (op.spec.pure or isinstance(op, (LocalAllocOp, BarrierAllocOp))) or op.regions:
            where = op.loc if op is not None else self.function.loc
            raise InternalError(f"a task captures the result of {op.name if op is not None else 'a region'}", where)
        if isinstance(op, LocalAllocOp):
            place_buffer(ctx, op)
            return
        for operand in op.operands:
            self.bring(operand)
        ctx.lower(op)

    # ---------------------------------------------------------------------------------------------------- who is where

    def groups(self, partition: PartitionOp) -> list[Group]:
        """The tasks by the warp groups that they share, in the order of warps."""
        tasks = self.tasks(partition)
        total = int(self.function.options["total_warps"])
        out: list[Group] = []
        for task in sorted(tasks, key=lambda t: t.spec.start_warp):
            first = task.spec.start_warp // WARP_GROUP * WARP_GROUP
            end = min(total, -(-task.end_warp // WARP_GROUP) * WARP_GROUP)
            if out and first < out[-1].end:
                if task.spec.start_warp < out[-1].tasks[-1].end_warp:
                    raise InternalError(f"task {task.spec.name} shares warps with another", partition.loc)
                out[-1].end = max(out[-1].end, end)
                out[-1].tasks.append(task)
            else:
                out.append(Group(out[-1].end if out else 0, end, [task]))
        if out[-1].end < total:
            out[-1].end = total
        return out

    def tasks(self, partition: PartitionOp) -> list[Task]:
        """The tasks with what was allotted to them."""
        specs = partition.specs()
        ids = tuple(self.function.options.get("task_sync_ids") or ())
        if "total_warps" not in self.function.options or len(ids) != len(specs):
            raise InternalError("tasks without allotted warps and barriers", partition.loc)
        specs[0].start_warp, specs[0].num_warps = 0, self.function.num_warps
        regions: list[IrBlock | None] = [None, *(r.block for r in partition.regions[1:])]
        for spec in specs:
            if spec.start_warp < 0:
                raise InternalError(f"task {spec.name} has no first warp", partition.loc)
        return [Task(s, int(i), r) for s, i, r in zip(specs, ids, regions, strict=True)]

    # ------------------------------------------------------------------------------------------------ barriers, maps

    def init_barriers(self) -> bool:
        """The leader initialises every mbarrier of the kernel; says whether there are any."""
        ctx, b = self.ctx, self.b
        allocs = [o for o in self.function.walk() if isinstance(o, BarrierAllocOp)]
        for op in allocs:
            if op.offset < 0:
                raise InternalError("a barrier without an offset", op.loc)
            b.loc = op.loc
            for i in range(max(1, op.type.count)):
                place = b.plus(b.shared_base(), op.offset + 8 * i)
                b.emit(
                    "mbarrier.init.shared::cta.b64",
                    [b.address("shared", place), Imm(op.type.arrive_count)],
                    0,
                    ctx.leader,
                )
        found = hang_wait.init(ctx) or bool(allocs)
        if found:
            b.emit("fence.mbarrier_init.release.cluster", [], 0, ctx.leader)
        return found

    def prefetch(self) -> None:
        """Bring tensor maps into the descriptor cache."""
        ctx, b = self.ctx, self.b
        for value in self.function.block.args:
            if isinstance(value.type, TensorDescType):
                b.emit("prefetch.tensormap", [b.address("global", ctx.scalar(value))], 0, ctx.leader)

    def uses_barriers_early(self) -> bool:
        """Whether the default task touches barriers before the partition."""
        ops = self.function.block.ops
        assert self.partition is not None
        for op in ops[: ops.index(self.partition)]:
            for inner in (op, *inner_ops(op)):
                if not inner.spec.pure and any(isinstance(v.type, BarrierType) for v in inner.operands):
                    return True
                if inner.name in WAITS and self.ctx.hang is not None:
                    return True
        return False

    def pass_barriers(self, before: bool) -> None:
        """What a warp outside of the default task has to pass: the cluster barriers of the code around the partition, the start."""
        assert self.partition is not None
        ops = self.function.block.ops
        at = ops.index(self.partition)
        for op in ops[:at] if before else ops[at:]:
            if isinstance(op, ClusterSyncOp):
                cluster_barrier(self.b)
        if before:
            start_barrier(self.ctx)
