"""The frame of a kernel: tasks as groups of a workgroup's waves, and the words of shared memory through which they meet.

At the start the first thread zeroes every barrier's word (and those of named barriers and of tasks, behind the kernel's shared memory), and
all waves meet at ``s_barrier``: the one place, with the start of the tasks, where all of them surely come by. Then each wave branches to its
task by its index, which is one in the wave. Code around the partition belongs to the default task. A wave whose task is over ends.

Assumes that `task_partition` has allotted first waves (``options["total_warps"]``) and a number for each task's word
(``options["task_sync_ids"]``). Waves that only copy get issue priority: what they start is waited for by the others.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.lower import watch
from mimw.codegen.amdgcn.lower.barrier import check_named, meet
from mimw.codegen.amdgcn.lower.descriptor import ROOM_BYTES, made_fields
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import Lane
from mimw.codegen.lowering import Lowering, lowers
from mimw.codegen.machine import Block, Edge, Imm, Terminator
from mimw.codegen.shared.control import run_region
from mimw.codegen.shared.hang import HangBuild, named_barriers, wanted
from mimw.codegen.shared.shared_memory import place_buffer
from mimw.diagnostics import CompilationError, InternalError
from mimw.ir.core import Block as IrBlock
from mimw.ir.core import Function, OpBase, Value
from mimw.ir.ops.async_copy import MakeDescriptorOp
from mimw.ir.ops.barrier import BarrierAllocOp, NamedArriveOp, NamedWaitOp
from mimw.ir.ops.memory import LocalAllocOp, StorageOp
from mimw.ir.ops.task import PartitionOp, TaskSpec
from mimw.ir.types import I32, U32

_WORD = 4


class Words:
    """What stands behind a function's buffers: `count` words from byte `offset` of shared memory on, then the `mark` of waves that end early
    (None: nobody asks), then its `rooms` for descriptors (number -> byte), to byte `end`."""

    __slots__ = ("count", "end", "mark", "offset", "rooms")

    def __init__(self, function: Function) -> None:
        given = int(function.options.get("shared_bytes", 0))
        self.offset = -(-given // _WORD) * _WORD
        self.rooms: dict[int, int] = {}
        numbers = [int(x) for x in function.options.get("task_sync_ids") or ()]
        slots: dict[int, int] = {}
        marked = watch.needs_mark(function)
        for op in function.walk():
            if isinstance(op, (NamedWaitOp, NamedArriveOp)):
                numbers.append(op.number if op.id is None else 15)
            elif isinstance(op, MakeDescriptorOp) and op.room >= 0:
                slots[op.room] = max(op.slots, slots.get(op.room, 0))
        self.count = max(numbers) + 1 if any(numbers) else 0
        end = self.offset + _WORD * self.count
        self.mark = end if marked else None
        end += _WORD if marked else 0
        for room, count in slots.items():
            self.rooms[room] = end
            end += count * ROOM_BYTES
        self.end = end if self.count or slots or marked else given


def begin_watch(ctx: Lowering) -> HangBuild | None:
    """Prepare a build whose waits give up, if the function asks for one. Named barriers have their words anyway."""
    timeout = wanted(ctx.function)
    if not timeout:
        return None
    build = ctx.hang = HangBuild(ctx.function, timeout, _WORD)
    words = Words(ctx.function).offset
    build.named = {(number, count): words + _WORD * number for number, count in named_barriers(ctx.function)}
    return build


def run_kernel(ctx: Lowering) -> None:
    """Lower the whole function, with its tasks."""
    _Frame(ctx).run()


class _Frame:
    """The lowering of one kernel's frame."""

    def __init__(self, ctx: Lowering) -> None:
        self.ctx = ctx
        self.b: AmdgcnBuilder = amdgcn_builder(ctx)
        self.function = ctx.function
        self.ops = ctx.function.block.ops
        self.partition = next((o for o in self.ops if isinstance(o, PartitionOp)), None)
        self.words = Words(ctx.function)

    def run(self) -> None:
        """Words first, then the tasks."""
        ctx, b = self.ctx, self.b
        self.check_room()
        check_named(list(self.function.walk()))
        b.named_words, b.rooms, b.mark = b.const(U32, self.words.offset), self.words.rooms, self.words.mark
        if self.zero_words():
            b.emit("p_wait_lgkm", [Imm(0)])
            b.emit("s_barrier", [])
        if self.partition is None:
            ctx.run_block(self.function.block)
            return
        self.run_tasks(self.partition)

    def check_room(self) -> None:
        """The words have to fit, too."""
        most = self.ctx.target.max_shared_bytes
        if self.words.end > most:
            raise CompilationError(
                "shared-memory",
                f"kernel {self.function.name} needs {self.words.end} bytes of shared memory with the words of its tasks and descriptors; "
                f"{self.ctx.target.name} has {most}",
                self.function.loc,
            )

    def zero_words(self) -> bool:
        """The first thread zeroes all words; says whether there are any."""
        b = self.b
        places = [self.words.offset + _WORD * i for i in range(self.words.count)]
        if self.words.mark is not None:
            places.append(self.words.mark)
        for op in self.function.walk():
            if isinstance(op, BarrierAllocOp):
                if op.offset < 0:
                    raise InternalError("a barrier without an offset", op.loc)
                places += [op.offset + 8 * i for i in range(max(1, op.type.count))]
        if not places:
            return False
        b.open_scope()
        first = b.compare("eq", b.thread_id(), b.const(I32, 0))
        for place in places:
            b.store("shared", b.const(U32, place), [b.const(U32, 0)], first)
        b.close_scope()
        return True

    # ---------------------------------------------------------------------------------------------------- several tasks

    def run_tasks(self, partition: PartitionOp) -> None:
        """Each task in a branch of its own; waves that have none end at once."""
        ctx, b = self.ctx, self.b
        arguments = dict(ctx.lanes)
        tasks = self.tasks(partition)
        b.hint = "wave"
        warp = b.uniform_warp_id()
        at, total = 0, int(self.function.options["total_warps"])
        for spec, sync_id, region in tasks:
            if spec.start_warp > at:
                rest = self.split(warp, spec.start_warp, "idle")
                self.idle()
                ctx.place(rest)
            at = spec.start_warp + spec.num_warps
            rest = self.split(warp, at, spec.name) if at < total else None
            b.open_scope()
            ctx.lanes, ctx.shared, ctx.inflight = dict(arguments), {}, {}
            self.run_task(spec, sync_id, region)
            b.close_scope()
            if rest is not None:
                ctx.place(rest)
        if at < total:
            self.idle()

    def tasks(self, partition: PartitionOp) -> list[tuple[TaskSpec, int, IrBlock | None]]:
        """(spec, number of its word, its region), by first wave; the default task's code is the function's."""
        specs = partition.specs()
        ids = tuple(self.function.options.get("task_sync_ids") or ())
        if "total_warps" not in self.function.options or len(ids) != len(specs):
            raise InternalError("tasks without allotted waves and words", partition.loc)
        specs[0].start_warp, specs[0].num_warps = 0, self.function.num_warps
        regions: list[IrBlock | None] = [None, *(r.block for r in partition.regions[1:])]
        found = [(s, int(i), r) for s, i, r in zip(specs, ids, regions, strict=True)]
        return sorted(found, key=lambda task: task[0].start_warp)

    def split(self, warp: Lane, end: int, hint: str) -> Block:
        """Go on with the waves below `end`; the block for the others."""
        ctx, b = self.ctx, self.b
        mine, rest = Block(hint), Block("more_waves")
        below = b.register(b.compare("lt", warp, b.const(I32, end)))
        b.close_block()
        b.block.term = Terminator([Edge(mine, []), Edge(rest, [])], below, True, b.loc)
        ctx.place(mine)
        return rest

    def idle(self) -> None:
        """What waves without a task do."""
        if self.starts_together():
            self.b.emit("s_barrier", [])
        self.ctx.leave()

    def starts_together(self) -> bool:
        """Whether the default task does something before the partition, which the others have to wait for."""
        assert self.partition is not None
        before = self.ops[: self.ops.index(self.partition)]
        return not all(_is_silent(op) for op in before)

    def run_task(self, spec: TaskSpec, sync_id: int, region: IrBlock | None) -> None:
        """One task, from its start to its end."""
        ctx, b = self.ctx, self.b
        ctx.num_warps, b.first_warp = spec.num_warps, spec.start_warp
        place = b.const(U32, self.words.offset + _WORD * sync_id)
        b.meet = (lambda: meet(ctx, place)) if spec.num_warps > 1 else b.warp_barrier
        last = spec.start_warp + spec.num_warps - 1
        waves = f"wave {last}" if spec.num_warps == 1 else f"waves {spec.start_warp} to {last}"
        b.comment(f"---- task {spec.name}, {waves}")
        if region is None:
            ctx.before_leave = self.refuse_return if self.partition is not None else None
            ctx.run_block(self.function.block)
        else:
            self.start(region)
            for value in _captures(region):
                self.bring(value)
            if run_region(ctx, region) is not None:
                ctx.leave()
        b.first_warp, b.meet, ctx.before_leave = 0, None, None

    def start(self, region: IrBlock) -> None:
        """Where a task's waves begin; copying ones are served first."""
        b = self.b
        if self.starts_together():
            b.emit("s_barrier", [])
        copies, products = _work(region)
        if copies and not products:
            b.emit("s_setprio", [Imm(1)])

    def refuse_return(self) -> None:
        """The other tasks would wait for this one for ever."""
        raise CompilationError("not-yet", "return before async_tasks is not supported yet", self.b.loc)

    def bring(self, value: Value) -> None:
        """Compute a captured value again, where the task runs: values of the default task's branch are not seen here."""
        ctx = self.ctx
        if value in ctx.lanes or value in ctx.shared:
            return
        op = value.defining_op
        known = isinstance(op, (LocalAllocOp, BarrierAllocOp, MakeDescriptorOp, StorageOp))
        if op is None or op.regions or not (op.spec.pure or known):
            where = op.loc if op is not None else self.function.loc
            raise InternalError(f"a task captures the result of {op.name if op is not None else 'a region'}", where)
        if isinstance(op, LocalAllocOp):
            place_buffer(ctx, op)
            return
        for operand in op.operands:
            self.bring(operand)
        if isinstance(op, MakeDescriptorOp):
            ctx.set(value, made_fields(ctx, op))
        else:
            ctx.lower(op)


def _is_silent(op: OpBase) -> bool:
    """Whether an op before the partition leaves no trace in memory."""
    if isinstance(op, LocalAllocOp):
        return op.src is None
    return op.spec.pure or isinstance(op, (BarrierAllocOp, MakeDescriptorOp, StorageOp))


def _captures(block: IrBlock) -> list[Value]:
    """What a region uses from outside of it, in the order of use."""
    inside: set[Value] = set()
    found: dict[Value, None] = {}

    def visit(b: IrBlock) -> None:
        inside.update(b.args)
        for op in b.ops:
            found.update((v, None) for v in op.operands if v not in inside)
            inside.update(op.results)
            for region in op.regions:
                visit(region.block)

    visit(block)
    return list(found)


def _work(block: IrBlock) -> tuple[bool, bool]:
    """Whether the ops of a block copy to shared memory, and whether they multiply."""
    names = {inner.name for op in block.ops for inner in op.walk()}
    copies = names & {"async_copy.tma_load", "async_copy.load", "async_copy.bulk_load"}
    return bool(copies), "mma.dot" in names


@lowers("task.partition", target="amd")
def lower_partition(ctx: Lowering, op: Any) -> None:
    """In the default task: everybody starts here, then its own body, then what comes after."""
    b = amdgcn_builder(ctx)
    b.finish_copies()
    before = ctx.function.block.ops[: ctx.function.block.ops.index(op)]
    if not all(_is_silent(o) for o in before):
        b.emit("p_wait_lgkm", [Imm(0)])
        b.emit("s_barrier", [])
    ctx.before_leave = None
    block: IrBlock = op.regions[0].block
    copies, products = _work(block)
    if copies and not products:
        b.emit("s_setprio", [Imm(1)])
    if run_region(ctx, block) is None:
        raise CompilationError("not-yet", "return, break or continue out of a task is not supported yet", op.loc)


@lowers("task.replica_id", target="amd")
def lower_replica_id(ctx: Lowering, op: Any) -> None:
    """A constant of the region: passes make it one; outside of tasks it is 0."""
    ctx.set(op.result, [ctx.b.const(I32, 0)])


__all__ = ["Words", "begin_watch", "run_kernel"]
