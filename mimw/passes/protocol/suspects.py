"""Likely faults in how tasks use their buffers: each has a right use that looks the same, so that they are warnings.

Looks at straight pieces of code and at loop bodies, by the names of things: the same slot is the same index value, or the same constant. What this
does not see is the simulators' business.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimw.diagnostics import Note
from mimw.ir.core import Block, Module, OpBase, Value
from mimw.ir.ops.async_copy import BulkLoadOp, BulkStoreOp, TmaLoadOp, TmaStoreOp, TmaStoreWaitOp
from mimw.ir.ops.barrier import BarrierArriveOp, BarrierRemoteViewOp, BarrierViewOp, BarrierWaitOp
from mimw.ir.ops.control import ForOp, WhileOp
from mimw.ir.ops.memory import LocalAllocOp, LocalViewOp
from mimw.ir.ops.mma import AsyncDotOp, AsyncDotWaitOp
from mimw.ir.types import MemDescType
from mimw.passes.folding import constant_of
from mimw.passes.protocol.warn import tell
from mimw.passes.shared_places import barrier_alloc
from mimw.passes.tasks import TaskMap

Slot = tuple[OpBase, object]
"""What made a ring, and an index: a constant, or the value."""


class _Guards:
    """For barriers that tasks wait for in front of writes: the rings that those writes go to, and the tasks."""

    def __init__(self, tasks: TaskMap) -> None:
        self.tasks = tasks
        self.of: dict[OpBase, set[tuple[OpBase, int]]] = {}

    def rings(self, alloc: OpBase | None, arrive: OpBase) -> list[OpBase]:
        """The rings that an arrive on a barrier gives back: those that another task fills."""
        own = self.tasks.of(arrive.parent)
        return [ring for ring, task in self.of.get(alloc, ()) if task != own] if alloc is not None else []


def check(module: Module) -> None:
    """All of them."""
    guards = _guards(module, TaskMap(module.function))
    for block in _blocks(module.function.block):
        _released(module, block, guards)
        for op in block.ops:
            if isinstance(op, (TmaLoadOp, BulkLoadOp)):
                _mismatch(module, op)
    for op in module.function.walk():
        if isinstance(op, (ForOp, WhileOp)):
            _store_wait(module, op)
            _dot_wait(module, op, guards)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        for region in op.regions:
            yield from _blocks(region.block)


# -- slots ---------------------------------------------------------------------------------------------------------------


def _index(v: Value) -> object:
    number = constant_of(v)
    return v if number is None else int(number)


def slot_of(v: Value) -> Slot | None:
    """The slot that a buffer or a view of one is part of; the index of a buffer that is no ring is 0. None when it is not seen."""
    index: object = 0
    op = v.defining_op
    while op is not None and not isinstance(op, LocalAllocOp):
        if isinstance(op, LocalViewOp):
            index = _index(op.index)
        if op.regions or not op.operands or not isinstance(op.operands[0].type, MemDescType):
            return None
        op = op.operands[0].defining_op
    return None if op is None else (op, index)


def _barrier_slot(v: Value) -> Slot | None:
    """The same of a barrier."""
    alloc = barrier_alloc(v)
    index: object = 0
    op = v.defining_op
    while isinstance(op, (BarrierViewOp, BarrierRemoteViewOp)):
        if isinstance(op, BarrierViewOp):
            index = _index(op.index)
        op = op.barriers.defining_op
    return None if alloc is None else (alloc, index)


def _touched(op: OpBase, access: str) -> list[Value]:
    """The buffers that an op reads, or writes ("read", "write")."""
    names = [e.operand for e in op.spec.effects if e.space == "shared" and e.kind == access]
    values = [getattr(op, name, None) for name in names if name]
    return [v for v in values if isinstance(v, Value) and isinstance(v.type, MemDescType)]


def _guards(module: Module, tasks: TaskMap) -> _Guards:
    """Who fills what after which waits."""
    out = _Guards(tasks)
    for block in _blocks(module.function.block):
        waited: list[Slot] = []
        for op in block.ops:
            if isinstance(op, BarrierWaitOp):
                slot = _barrier_slot(op.barrier)
                if slot is not None:
                    waited.append(slot)
            for v in _touched(op, "write"):
                target = slot_of(v)
                for alloc, index in waited:
                    if target is not None and target[1] == index:
                        out.of.setdefault(alloc, set()).add((target[0], tasks.of(block)))
    return out


# -- the suspects --------------------------------------------------------------------------------------------------------


def _released(module: Module, block: Block, guards: _Guards) -> None:
    """A read of a slot behind the arrive that gives it back, with no wait between."""
    given: dict[Slot, BarrierArriveOp] = {}
    for op in block.ops:
        if isinstance(op, BarrierWaitOp) or op.regions:
            given.clear()
        if isinstance(op, BarrierArriveOp):
            slot = _barrier_slot(op.barrier)
            if slot is not None:
                given.update({(ring, slot[1]): op for ring in guards.rings(slot[0], op)})
        for v in _touched(op, "read"):
            found = slot_of(v)
            arrive = given.get(found) if found is not None else None
            if arrive is not None and found is not None:
                text = f"{_name(found[0])} is read after its slot was given back"
                notes = [Note("given back here", arrive.loc)]
                tell(module, "read-after-release", op.loc, text, notes, "arrive behind the last read")


def _mismatch(module: Module, op: TmaLoadOp | BulkLoadOp) -> None:
    """A copy into slot i of a ring that counts on barrier j of as many."""
    target, bar = slot_of(op.dst), _barrier_slot(op.barrier)
    if target is None or bar is None or target[1] == bar[1]:
        return
    ring, barriers = target[0].results[0].type, bar[0].results[0].type
    assert isinstance(ring, MemDescType)
    if ring.shape[0] == getattr(barriers, "count", 0) > 1 and not _known(target[1], bar[1]):
        text = f"this copies into one slot of {_name(target[0])} and counts on {_name(bar[0])} of another"
        tell(module, "slot-mismatch", op.loc, text, [Note("the barriers", bar[0].loc)], "use one index for both")


def _known(*indices: object) -> bool:
    """Whether an index is a constant: then it is chosen on purpose."""
    return any(isinstance(i, int) for i in indices)


def _store_wait(module: Module, loop: OpBase) -> None:
    """A loop that fills a buffer and starts stores from it, and waits for no store."""
    ops = [op for op in loop.walk() if op is not loop]
    if any(isinstance(op, TmaStoreWaitOp) for op in ops):
        return
    writes = {
        slot_of(v): op for op in ops for v in _touched(op, "write") if not isinstance(op, (TmaLoadOp, BulkLoadOp))
    }
    for op in ops:
        if isinstance(op, (TmaStoreOp, BulkStoreOp)):
            slot = slot_of(op.src)
            write = writes.get(slot) if slot is not None else None
            if write is not None and slot is not None and isinstance(slot[1], int):
                text = f"every trip of this loop stores from {_name(slot[0])} and writes it again, and none waits for the store"
                hint = "call ml.async_descriptor_store_wait(0) before the buffer is written again"
                tell(module, "store-wait", op.loc, text, [Note("written here", write.loc)], hint)
                return


def _dot_wait(module: Module, loop: OpBase, guards: _Guards) -> None:
    """A loop that starts products and gives their slots back, and waits for no product."""
    ops = [op for op in loop.walk() if op is not loop]
    if any(isinstance(op, AsyncDotWaitOp) for op in ops):
        return
    rings: dict[OpBase, AsyncDotOp] = {}
    for op in ops:
        if isinstance(op, AsyncDotOp):
            rings.update({s[0]: op for s in (slot_of(v) for v in (op.a, op.b)) if s is not None})
    for op in ops:
        if isinstance(op, BarrierArriveOp):
            for ring in guards.rings(barrier_alloc(op.barrier), op):
                if ring in rings:
                    text = f"{_name(ring)} is given back while the products that read it may still run"
                    hint = "call ml.async_dot_wait in the loop, before the slot is given back"
                    tell(module, "dot-wait", op.loc, text, [Note("a product", rings[ring].loc)], hint)
                    return


def _name(op: OpBase) -> str:
    return op.results[0].name or f"the buffer of line {op.loc.line}"
