"""What each barrier's uses say by themselves, without running anything."""

from __future__ import annotations

import math

from mimw.diagnostics import CompilationError, Note
from mimw.ir.core import Block, Function, Module, OpBase, Value
from mimw.ir.ops.async_copy import BulkLoadOp, TmaLoadOp
from mimw.ir.ops.barrier import (
    BarrierAllocOp,
    BarrierArriveOp,
    BarrierExpectOp,
    BarrierRemoteViewOp,
    BarrierViewOp,
    BarrierWaitOp,
    NamedArriveOp,
    NamedWaitOp,
)
from mimw.ir.ops.cluster import AsyncRemoteCopyOp, AsyncRemoteStoreOp, RemoteStoreOp
from mimw.ir.ops.control import ForOp, WhileOp
from mimw.ir.ops.memory import LocalViewOp
from mimw.ir.types import BarrierType, MemDescType, TensorDescType
from mimw.passes.folding import constant_of
from mimw.passes.protocol.warn import tell
from mimw.passes.shared_places import barrier_alloc
from mimw.passes.tasks import TaskMap

_WARP = 32
_COUNTED = (TmaLoadOp, BulkLoadOp, AsyncRemoteStoreOp, AsyncRemoteCopyOp)
_USES = (BarrierWaitOp, BarrierArriveOp, BarrierExpectOp, *_COUNTED)


def check(module: Module) -> None:
    """All checks that look at one barrier at a time."""
    fn = module.function
    _indices(fn)
    _named(fn)
    _ranks(fn)
    uses: dict[BarrierAllocOp, list[OpBase]] = {op: [] for op in fn.walk() if isinstance(op, BarrierAllocOp)}
    carried = False  # some barriers go around loops: a use may be of any of them
    for op in fn.walk():
        if isinstance(op, _USES):
            alloc = barrier_alloc(op.barrier)
            if alloc is not None:
                uses[alloc].append(op)
        for v in (*op.results, *(a for r in op.regions for a in r.block.args)) if op.regions else ():
            carried |= isinstance(v.type, BarrierType)
    for alloc, ops in uses.items():
        if not carried:
            _ends_meet(module, alloc, ops)
        _arrivals(alloc, ops)
        _bytes(alloc, ops)
        _phases(module, alloc, ops)


def _ranks(fn: Function) -> None:
    """Constant ranks and multicast masks name CTAs that the cluster has."""
    size = math.prod(fn.options.get("ctas_per_cga") or (1,))
    for op in fn.walk():
        rank = -1
        if isinstance(op, TmaLoadOp) and op.multicast is not None:
            mask = constant_of(op.multicast)
            rank = int(mask).bit_length() - 1 if mask is not None else -1
        elif isinstance(op, BarrierRemoteViewOp | RemoteStoreOp | AsyncRemoteStoreOp | AsyncRemoteCopyOp):
            known = constant_of(op.cta)
            rank = int(known) if known is not None else -1
        if rank >= size:
            raise CompilationError(
                "cluster-rank",
                f"this names the CTA of rank {rank}; the cluster has {size}",
                op.loc,
                hint="launch (or compile) with ctas_per_cga=(x, y, z): its product is the number of CTAs of a cluster",
            )


def barrier_name(alloc: BarrierAllocOp) -> str:
    """How messages call an array of barriers."""
    return alloc.result.name or f"the barrier of line {alloc.loc.line}"


# ------------------------------------------------------------------------------------------------------------ mbarriers


def _ends_meet(module: Module, alloc: BarrierAllocOp, uses: list[OpBase]) -> None:
    """Who waits is woken, who arrives is waited for."""
    waits = [op for op in uses if isinstance(op, BarrierWaitOp)]
    arrives = [op for op in uses if isinstance(op, (BarrierArriveOp, BarrierExpectOp))]
    name = barrier_name(alloc)
    if waits and not arrives:
        copies = [op for op in uses if isinstance(op, _COUNTED)]
        raise CompilationError(
            "barrier-never-arrived",
            f"this waits for {name}, on which nothing ever arrives",
            waits[0].loc,
            notes=[Note("the barrier", alloc.loc)]
            + [Note("a copy only counts its bytes on it", op.loc) for op in copies[:1]],
            hint="call ml.barrier_expect_bytes before the copy"
            if copies
            else "let another task call ml.barrier_arrive or ml.barrier_expect_bytes on it",
        )
    if arrives and not waits:
        text = f"nothing ever waits for {name}, on which this arrives"
        tell(module, "barrier-unawaited", arrives[0].loc, text, [Note("the barrier", alloc.loc)])
    if not uses:
        tell(module, "barrier-unused", alloc.loc, f"nobody uses {name}")


def _arrivals(alloc: BarrierAllocOp, uses: list[OpBase]) -> None:
    most = alloc.type.arrive_count
    for op in uses:
        if isinstance(op, BarrierArriveOp) and op.count > most:
            raise CompilationError(
                "barrier-arrivals",
                f"{op.count} arrivals at once on {barrier_name(alloc)}, whose phase takes {most}",
                op.loc,
                notes=[Note("the barrier", alloc.loc)],
            )


def copied_bytes(op: OpBase) -> int | None:
    """Bytes that a copy counts on its barrier; None when they are not a constant."""
    if isinstance(op, TmaLoadOp):
        t = op.desc.type
        assert isinstance(t, TensorDescType)
        n = t.dtype.itemsize
        for s in t.block_shape:
            n *= s
        return n
    if isinstance(op, BulkLoadOp):
        n = constant_of(op.bytes)
        return None if n is None else int(n)
    return None


def _bytes(alloc: BarrierAllocOp, uses: list[OpBase]) -> None:
    """Where one block expects and loads, straight on, the bytes have to agree."""
    expects = [op for op in uses if isinstance(op, BarrierExpectOp)]
    copies = [op for op in uses if isinstance(op, _COUNTED)]
    if not expects or not copies or any(copied_bytes(op) is None for op in copies):
        return
    if any(isinstance(op, TmaLoadOp) and op.multicast is not None for op in copies):
        return
    if any(op.barrier.defining_op is None or op.barrier.type.remote for op in (*expects, *copies)):  # type: ignore[union-attr]
        return
    homes: dict[Block | None, list[OpBase]] = {}
    for op in (*expects, *copies):
        homes.setdefault(op.parent, []).append(op)
    for block, ops in homes.items():
        own = [op for op in ops if isinstance(op, BarrierExpectOp)]
        if block is None or not own or len(own) == len(ops):
            return  # expected here and loaded elsewhere: the sums are not seen
    for block, ops in homes.items():
        assert block is not None
        _straight(alloc, block, ops)


def _straight(alloc: BarrierAllocOp, block: Block, ops: list[OpBase]) -> None:
    """The expects and copies of one block: those on the same barrier, up to its next expect, belong together."""
    group: dict[Value, tuple[BarrierExpectOp, list[OpBase]]] = {}
    early = False
    for op in sorted(ops, key=block.ops.index):
        if isinstance(op, BarrierExpectOp):
            if op.barrier in group:
                _compare(alloc, *group[op.barrier])
            group[op.barrier] = (op, [])
        else:
            entry = group.get(op.barrier)  # type: ignore[attr-defined]
            if entry is None:
                early = True  # a copy before its expect
                break
            entry[1].append(op)
    if early:
        return
    for expect, copies in group.values():
        _compare(alloc, expect, copies)


def _compare(alloc: BarrierAllocOp, expect: BarrierExpectOp, copies: list[OpBase]) -> None:
    predicates = {getattr(op, "pred", None) for op in copies}
    brought = sum(copied_bytes(op) or 0 for op in copies)
    if brought == expect.bytes or predicates != {expect.pred}:
        return
    what = "the copy on this barrier brings" if len(copies) == 1 else f"the {len(copies)} copies on this barrier bring"
    raise CompilationError(
        "barrier-bytes",
        f"{expect.bytes} bytes are expected on {barrier_name(alloc)}, but {what} {brought}",
        expect.loc,
        notes=[Note(f"{copied_bytes(op)} bytes", op.loc) for op in copies],
        hint=f"expect {brought}",
    )


def _phases(module: Module, alloc: BarrierAllocOp, uses: list[OpBase]) -> None:
    """A wait in a loop for the same phase of the same barrier passes only once as meant."""
    for op in uses:
        if not isinstance(op, BarrierWaitOp) or constant_of(op.phase) is None:
            continue
        loop = _loop_around(op, alloc)
        view = op.barrier.defining_op
        if loop is not None and (not isinstance(view, BarrierViewOp) or not _inside(view.index, loop)):
            text = f"this waits for the same phase of {barrier_name(alloc)} in every trip of the loop in line {loop.loc.line}"
            tell(
                module,
                "barrier-same-phase",
                op.loc,
                text,
                [Note("the barrier", alloc.loc)],
                "a barrier's phase alternates",
            )


def _loop_around(op: OpBase, alloc: OpBase) -> OpBase | None:
    """The innermost loop that may run an op more than once."""
    block = op.parent
    while block is not None and block is not alloc.parent:
        around = block.parent_op
        if isinstance(around, (ForOp, WhileOp)):
            return None if _runs_once(around) else around
        block = around.parent if around is not None else None
    return None


def _runs_once(loop: OpBase) -> bool:
    if not isinstance(loop, ForOp):
        return False
    numbers = [constant_of(v) for v in (loop.lower, loop.upper, loop.step)]
    if any(n is None for n in numbers):
        return False
    lower, upper, step = (int(n) for n in numbers if n is not None)
    return len(range(lower, upper, step or 1)) <= 1


def _inside(v: Value, loop: OpBase) -> bool:
    """Whether a value is made inside a loop."""
    block = v.owner.parent if isinstance(v.owner, OpBase) else v.owner
    while block is not None:
        around = block.parent_op
        if around is loop:
            return True
        block = around.parent if around is not None else None
    return False


# ------------------------------------------------------------------------------------------------------ slots and ids


def _indices(fn: Function) -> None:
    """A slot or barrier that is out of range whatever happens."""
    for op in fn.walk():
        if not isinstance(op, (BarrierViewOp, LocalViewOp)):
            continue
        t = op.operands[0].type
        count = t.count if isinstance(t, BarrierType) else t.shape[0] if isinstance(t, MemDescType) else 0
        index = constant_of(op.index)
        if index is not None and not 0 <= index < count:
            what = "barrier" if isinstance(t, BarrierType) else "slot"
            raise CompilationError("bad-index", f"{what} {index} of {count}", op.loc)


def _named(fn: Function) -> None:
    """Hardware barriers: the counts agree, are whole warps, and can be reached."""
    tasks = TaskMap(fn)
    found: dict[int, list[NamedWaitOp | NamedArriveOp]] = {}
    unknown = False
    for op in fn.walk():
        if isinstance(op, (NamedWaitOp, NamedArriveOp)):
            if op.count <= 0 or op.count % _WARP or op.count > 1024:
                raise CompilationError(
                    "named-barrier",
                    f"a named barrier of {op.count} threads; it counts whole warps, up to 1024 threads",
                    op.loc,
                )
            if op.id is not None:
                unknown = True
            else:
                found.setdefault(op.number, []).append(op)
    for ops in found.values():
        for op in ops[1:]:
            if op.count != ops[0].count:
                raise CompilationError(
                    "named-barrier",
                    f"named barrier {op.number} is used with {op.count} threads here and with {ops[0].count} elsewhere",
                    op.loc,
                    notes=[Note("the other use", ops[0].loc)],
                    hint="every use counts all threads that wait or arrive",
                )
        members = {tasks.of(op.parent) for op in ops}
        threads = _WARP * sum(tasks.warps[i] for i in members)
        if threads < ops[0].count and not unknown:
            names = ", ".join(f"{tasks.names[i]} ({_WARP * tasks.warps[i]})" for i in sorted(members))
            raise CompilationError(
                "named-barrier",
                f"named barrier {ops[0].number} waits for {ops[0].count} threads, but the tasks that use it have {threads}: {names}",
                ops[0].loc,
                hint=f"count {threads}, or let another task arrive on it",
            )
