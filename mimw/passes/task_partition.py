"""Makes tasks independent and gives them their place in the machine.

1. What a task uses from outside: pure scalars are computed again inside it; results of loads, atomics and the like are published through
   shared memory by the default task; a tile is refused. Buffers, barriers and descriptors stay captured: they are addresses.
2. First warps: tasks of 4 or more warps, and those that use wgmma, start at a multiple of 4; smaller ones share a warp group.
3. Registers (`task_registers`) and hardware barrier ids: the user's numbers are taken first, then one id for each task of several warps, then the
   symbolic barriers.

Writes the specs of the partition, `number` of named barriers, and the function's options `total_warps`, `task_sync_ids`, `task_regs` (one a task;
id 0: a single warp, registers 0: what it has at entry). Must stand after the last pass that merges equal ops across regions.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError, InternalError, Note
from mimw.ir.builder import Builder
from mimw.ir.core import Block, Function, Module, OpBase, Region, Value
from mimw.ir.ops.arith import CastOp, ConstantOp
from mimw.ir.ops.async_copy import MakeDescriptorOp
from mimw.ir.ops.barrier import BarrierAllocOp, NamedArriveOp, NamedWaitOp
from mimw.ir.ops.control import YieldOp
from mimw.ir.ops.memory import LocalAllocOp, LocalLoadOp
from mimw.ir.ops.mma import AsyncDotOp, DotOp
from mimw.ir.ops.task import PartitionOp, ReplicaIdOp, TaskSpec
from mimw.ir.ops.tensor import ReduceOp, SplatOp
from mimw.ir.rewriter import clone
from mimw.ir.types import I1, I8, I32, I64, DType, InflightType, MemDescType, PointerType, TensorType
from mimw.passes.facts import Facts, compute
from mimw.passes.task_registers import WARP_GROUP, Demand, entry_registers, share
from mimw.passes.tasks import partition_of, task_name
from mimw.target import Target

NAME = "task-partition"
_IDS = 16
_UNKNOWN_IDS = range(8, 16)
"""What is left to the user where a barrier number is only known at run time."""


def run(module: Module, target: Target) -> None:
    """Allot and check everything."""
    fn = module.function
    partition = partition_of(fn)
    specs = partition.specs() if partition is not None else []
    if partition is not None:
        _only_one(fn, partition)
        for region, spec in zip(partition.regions, specs, strict=True):
            _replica_ids(region.block, spec.replica)
        published: dict[Value, Value] = {}
        for region, spec in zip(partition.regions[1:], specs[1:], strict=True):
            _Captures(fn, partition, region.block, spec, published).run()
        specs[0].num_warps, specs[0].start_warp = fn.num_warps, 0
        _allot_warps(fn, partition, specs, target)
        _allot_registers(fn, partition, specs, target)
        partition.attrs["tasks"] = tuple(str(s) for s in specs)
    _allot_barriers(fn, specs)


def _only_one(fn: Function, partition: PartitionOp) -> None:
    for op in fn.walk():
        if isinstance(op, PartitionOp) and op is not partition:
            raise CompilationError(
                "not-yet",
                "a second async_tasks, or one inside a loop or branch, is not there yet",
                op.loc,
                notes=[Note("the first one", partition.loc)],
            )


def _replica_ids(block: Block, replica: int) -> None:
    for op in list(block.ops):
        if isinstance(op, ReplicaIdOp):
            constant = ConstantOp(replica, I32, loc=op.loc)
            block.insert_before(op, constant)
            op.result.replace_by(constant.result)
            op.erase()
        for region in op.regions:
            _replica_ids(region.block, replica)


# ------------------------------------------------------------------------------------------------------------ captures


class _Captures:
    """What one task uses from outside, made its own."""

    def __init__(
        self, fn: Function, partition: PartitionOp, block: Block, spec: TaskSpec, published: dict[Value, Value]
    ) -> None:
        self.fn = fn
        self.published = published
        self.partition = partition
        self.block = block
        self.spec = spec
        self.own: dict[Value, Value] = {}
        self.inside: set[Value] = set()

    def run(self) -> None:
        """Every use of an outer value gets the task's own."""
        self.first = self.block.ops[0]
        self._known(self.block)
        for op in list(self.block.ops):
            for inner in op.walk():
                for i, v in enumerate(list(inner.operands)):
                    if v not in self.inside:
                        mine = self.value(v, inner)
                        if mine is not v:
                            inner.set_operand(i, mine)

    def _known(self, block: Block) -> None:
        self.inside.update(block.args)
        for op in block.ops:
            self.inside.update(op.results)
            for region in op.regions:
                self._known(region.block)

    def value(self, v: Value, user: OpBase) -> Value:
        """The task's own copy of an outer value (or the value itself, when it is an address that everyone knows)."""
        found = self.own.get(v)
        if found is None:
            found = self.own[v] = self._make(v, user)
            self.inside.add(found)
        return found

    def _make(self, v: Value, user: OpBase) -> Value:
        op = v.defining_op
        if op is None or isinstance(op, (LocalAllocOp, BarrierAllocOp, MakeDescriptorOp)):
            return v
        if isinstance(v.type, (TensorType, InflightType)):
            raise CompilationError(
                "captured-tile",
                f"task {self.spec.name} uses a tile of the code around it: {v.name or v.type} lies in the registers of the default task's warps",
                user.loc,
                notes=[Note("the tile is made here", op.loc)],
                hint="make it inside the task, or hand it over in shared memory: ml.local_store there, ml.local_load here",
            )
        if _can_repeat(op):
            self._repeat(op, user)
            return self.own[v]
        if isinstance(v.type, (DType, PointerType)):
            return self._publish(v, user)
        raise CompilationError(
            "not-yet",
            f"task {self.spec.name} uses the result of {op.name}, of type {v.type}, from the code around it: not there yet",
            user.loc,
            notes=[Note("the value is made here", op.loc)],
            hint="compute it inside the task",
        )

    def _repeat(self, op: OpBase, user: OpBase) -> None:
        """A copy of a pure op at the task's start, and of what it takes."""
        inner = {v for o in op.walk() for v in (*o.results, *(a for r in o.regions for a in r.block.args))}
        values = {v: self.value(v, user) for o in op.walk() for v in o.operands if v not in inner}
        new = clone(op, values)
        self.block.insert_before(self.first, new)
        for old, mine in zip(op.results, new.results, strict=True):
            self.own[old] = mine
        self._known_op(new)

    def _known_op(self, op: OpBase) -> None:
        self.inside.update(op.results)
        for region in op.regions:
            self._known(region.block)

    def _publish(self, v: Value, user: OpBase) -> Value:
        """Through one element of shared memory, written before the start barrier."""
        element = v.type
        stored = I64 if isinstance(element, PointerType) else I8 if element is I1 else element
        assert isinstance(stored, DType) and isinstance(element, (DType, PointerType))
        buffer = self.published.get(v)
        if buffer is None:
            buffer = self.published[v] = self._buffer(v, stored)
        b = Builder(self.block, user.loc, self.first)
        tile = b.insert(LocalLoadOp(buffer, loc=b.loc)).result
        one = ReduceOp([tile], 0, Region(), loc=b.loc)
        combine = one.combine.block
        x, _ = combine.add_arg(stored), combine.add_arg(stored)
        combine.append(YieldOp([x], loc=b.loc))
        result = b.insert(one).results[0]
        if stored is not element:
            result = b.insert(CastOp(result, element, loc=b.loc)).result
        result.name = v.name
        return result

    def _buffer(self, v: Value, stored: DType) -> Value:
        """Shared memory that holds an outer scalar when the tasks start."""
        b = Builder(self.fn.block, self.partition.loc, self.partition)
        value = v if v.type is stored else b.insert(CastOp(v, stored, loc=b.loc)).result
        tile = b.insert(SplatOp(value, (1,), loc=b.loc)).result
        return b.insert(LocalAllocOp(tile, MemDescType((1,), stored), loc=b.loc)).result


def _can_repeat(op: OpBase) -> bool:
    """Whether an op may run once more in another task: no effects, no tiles that would have to cross."""
    if not op.spec.pure or op.name == "control.while":
        return False
    for inner in op.walk():
        if inner is not op and not inner.spec.pure and inner.name != "control.yield":
            return False
        if any(isinstance(v.type, (TensorType, InflightType)) for v in inner.operands):
            return False
    return True


# --------------------------------------------------------------------------------------------------------------- warps


def _uses_tensor_core(block: Block) -> bool:
    return any(isinstance(o, (AsyncDotOp, DotOp)) for op in block.ops for o in op.walk())


def _allot_warps(fn: Function, partition: PartitionOp, specs: list[TaskSpec], target: Target) -> None:
    """First warps of all tasks, and their total."""
    taken: dict[int, int] = dict.fromkeys(range(fn.num_warps), 0)
    names = [s.name for s in specs]
    steps = [1, *(_step(s, r.block, target) for s, r in zip(specs[1:], partition.regions[1:], strict=True))]
    for i, s in enumerate(specs):
        if i and s.start_warp >= 0:
            _claim(taken, specs, i, steps[i], partition)
    order = sorted(
        range(1, len(specs)), key=lambda i: steps[i] < WARP_GROUP
    )  # whole groups first: small ones fill what is left
    for i in order:
        s = specs[i]
        if s.start_warp >= 0:
            continue
        at = 0
        while any(w in taken for w in range(at, at + s.num_warps)):
            at += steps[i]
        s.start_warp = at
        _claim(taken, specs, i, steps[i], partition)
    total = max(taken) + 1
    if not target.has("wave_barriers") and (total > WARP_GROUP or target.has("setmaxnreg")):
        total = -(-total // WARP_GROUP) * WARP_GROUP
    if total * target.warp_size > target.max_threads:
        table = "\n".join(f"  {task_name(s.name, s.replica, names)}: {s.num_warps} warps" for s in specs)
        raise CompilationError(
            "bad-task",
            f"the tasks take {total} warps; a CTA has at most {target.max_threads // target.warp_size}\n{table}",
            partition.loc,
        )
    fn.options["total_warps"] = total


def _step(spec: TaskSpec, block: Block, target: Target) -> int:
    """What the first warp must be a multiple of."""
    if target.has("wave_barriers"):
        return 1
    if spec.num_warps >= WARP_GROUP or _uses_tensor_core(block):
        return WARP_GROUP
    return spec.num_warps


def _claim(taken: dict[int, int], specs: list[TaskSpec], i: int, step: int, partition: PartitionOp) -> None:
    s = specs[i]
    names = [t.name for t in specs]
    if s.start_warp % step:
        raise CompilationError(
            "bad-task",
            f"task {s.name} starts at warp {s.start_warp}; it has to start at a multiple of {step}",
            partition.loc,
        )
    for w in range(s.start_warp, s.start_warp + s.num_warps):
        if w in taken:
            other = specs[taken[w]]
            raise CompilationError(
                "bad-task",
                f"task {task_name(s.name, s.replica, names)} starts at warp {s.start_warp}, where {task_name(other.name, other.replica, names)} runs",
                partition.loc,
                hint="leave warp_group_start_id away: the compiler finds room",
            )
        taken[w] = i


# ----------------------------------------------------------------------------------------------------------- registers


def _allot_registers(fn: Function, partition: PartitionOp, specs: list[TaskSpec], target: Target) -> None:
    total = fn.options["total_warps"]
    asked = any(s.num_regs for s in specs)
    if target.has("wave_barriers"):
        _advised_registers(fn, partition, specs, target)
        return
    if not target.has("setmaxnreg") or total % WARP_GROUP:
        if asked:
            raise CompilationError(
                "unsupported", f"num_regs: {target.name} cannot move registers between warps", partition.loc
            )
        fn.options["task_regs"] = (0,) * len(specs)
        return
    groups = [Demand() for _ in range(total // WARP_GROUP)]
    for i, (spec, region) in enumerate(zip(specs, partition.regions, strict=True)):
        blocks = [region.block] if i else [region.block, fn.block]
        light, wanted = _needs(blocks, spec.num_warps)
        for g in groups[spec.start_warp // WARP_GROUP : (spec.start_warp + spec.num_warps - 1) // WARP_GROUP + 1]:
            g.fixed = max(g.fixed, spec.num_regs)
            if not light:
                g.wanted = (
                    0 if spec.num_warps >= WARP_GROUP or (not g.light and not g.wanted) else max(g.wanted, wanted)
                )
                g.light = False
    names = [s.name for s in specs]
    rows = [
        f"  {task_name(s.name, s.replica, names)}: {s.num_warps} warps from {s.start_warp}, num_regs={s.num_regs or 'not given'}"
        for s in specs
    ]
    entry = entry_registers(total * target.warp_size, int(fn.options.get("maxnreg") or 0))
    values = share(groups, entry, "\n".join(rows), partition.loc)
    for s in specs:
        s.num_regs = values[s.start_warp // WARP_GROUP]
    fn.options["task_regs"] = tuple(s.num_regs for s in specs)


def _advised_registers(fn: Function, partition: PartitionOp, specs: list[TaskSpec], target: Target) -> None:
    """All waves have the same registers: what a task asks for has to be possible, and changes nothing."""
    for spec in specs:
        if spec.num_regs > target.thread_registers:
            raise CompilationError(
                "registers",
                f"task {spec.name} asks for {spec.num_regs} registers; a thread of {target.name} has {target.thread_registers} at most",
                partition.loc,
            )
        spec.num_regs = 0
    fn.options["task_regs"] = (0,) * len(specs)


def _needs(blocks: list[Block], num_warps: int) -> tuple[bool, int]:
    """Whether a task does without tiles, and else a guess at its registers: twice its largest tile."""
    largest = 0
    for block in blocks:
        for op in block.ops:
            if isinstance(op, PartitionOp):
                continue
            for inner in op.walk():
                for r in inner.results:
                    t = r.type.tensor if isinstance(r.type, InflightType) else r.type
                    if isinstance(t, TensorType) and t.numel > 1:
                        bits = t.element.bits if isinstance(t.element, DType) else 64
                        largest = max(largest, -(-t.numel * bits // (32 * 32 * num_warps)))
    return largest == 0, min(240, (2 * largest + 40 + 7) // 8 * 8)


# ------------------------------------------------------------------------------------------------------- barrier ids


def _allot_barriers(fn: Function, specs: list[TaskSpec]) -> None:
    """Hardware barriers: 0 is the whole CTA's."""
    named = [op for op in fn.walk() if isinstance(op, (NamedWaitOp, NamedArriveOp))]
    if not specs and not named:
        return
    users = _user_ids(fn, named)
    free = [i for i in range(1, _IDS) if i not in users]
    wanted = [s.name for s in specs if s.num_warps > 1]
    symbols = list(dict.fromkeys(op.name_hint for op in named if op.id is None and op.number < 0))
    if len(wanted) + len(symbols) > len(free):
        rows = [f"  {len(users)} by number: {', '.join(map(str, sorted(users)))}"] if users else []
        rows += [f"  one for task {name}" for name in wanted] + [f"  {name}" for name in symbols]
        raise CompilationError(
            "named-barrier",
            f"the kernel needs {len(users) + len(wanted) + len(symbols)} hardware barriers; {_IDS - 1} are there\n"
            + "\n".join(rows),
            named[0].loc if named else fn.loc,
            hint="mbarriers (ml.alloc_barriers) have no such limit",
        )
    ids = iter(free)
    if specs:
        fn.options["task_sync_ids"] = tuple(next(ids) if s.num_warps > 1 else 0 for s in specs)
    numbers = {name: next(ids) for name in symbols}
    for op in named:
        if op.id is None and op.number < 0:
            op.attrs["number"] = numbers[op.name_hint]


def _user_ids(fn: Function, named: list[NamedWaitOp | NamedArriveOp]) -> set[int]:
    facts: Facts | None = None
    users: set[int] = set()
    for op in named:
        if op.id is None:
            if op.number >= _IDS:
                raise CompilationError(
                    "named-barrier", f"hardware barrier {op.number}: they go from 0 to {_IDS - 1}", op.loc
                )
            if op.number >= 0:
                users.add(op.number)
            elif not op.name_hint:
                raise InternalError(f"{op.name} without number and name", op.loc)
            continue
        facts = facts or compute(fn)
        fact = facts.of(op.id)
        known = fact.lo is not None and fact.hi is not None and fact.lo >= 0 and fact.hi < _IDS
        users.update(range(fact.lo or 0, (fact.hi or 0) + 1) if known else _UNKNOWN_IDS)
    users.discard(0)
    return users
