"""Where buffers that share memory lie in it: each one's start, and the distance of its slots.

Stands after `memdesc_layout`, which says how large a slot is. The start (relative to the storage) goes into the attribute `offset`, to which
`shared_allocation` adds the storage's own; the distance of slots becomes the size of the layout, so that whoever takes a slot finds it. Where a
group makes slots lie unevenly (two small ones in a large unit), indices are rewritten.

Which slots share bytes must not depend on paddings: a storage without a tree has its buffers lie by their bytes, and where the compiler had to make
slots larger than these say, its buffers lie side by side instead.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError, Note
from mimw.ir.builder import Builder
from mimw.ir.core import Module, Value
from mimw.ir.ops.memory import LocalAllocOp, LocalViewOp, StorageOp, members_of, overlap_of, storage_of
from mimw.ir.overlap import DISTINCT, Group, Place, place
from mimw.ir.scratch import natural_slot, slot_distance
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import I32, MemDescType
from mimw.passes.folding import constant_of
from mimw.passes.memdesc_flow import Flow, Home
from mimw.target import Target

NAME = "storage-overlap"


def run(module: Module, target: Target) -> None:
    """Place the buffers of every storage."""
    fn = module.function
    allocs = [op for op in fn.walk() if isinstance(op, LocalAllocOp)]
    storages = dict.fromkeys(s for op in allocs if (s := storage_of(op)) is not None)
    if not storages:
        return
    flow = Flow(fn, MemDescType)
    for storage in storages:
        _storage(module, storage, flow)


def _storage(module: Module, storage: Value, flow: Flow) -> None:
    members = members_of(storage)
    for m in members:
        _alone(m, flow)
    rings = [(m.type.shape[0], _slot(m.type)) for m in members]
    tree = overlap_of(storage)
    own = storage.defining_op
    if (not isinstance(own, StorageOp) or not own.overlap) and any(
        size != natural_slot(m.type) for m, (_, size) in zip(members, rings, strict=True)
    ):
        tree = Group(range(len(members)), DISTINCT)
        module.remark("storage", members[0].loc, "padded slots: the buffers lie side by side")
    total, places = place(tree, rings)
    for m, (_, size), where in zip(members, rings, places, strict=True):
        assert where is not None
        m.attrs["slot"], m.attrs["offset"] = size, where.start
        if m.type.layout is not None:
            _spread(flow.home[m.result], m, where)
    if isinstance(own, StorageOp):
        own.attrs["total"] = max(total, own.bytes)
    else:
        assert isinstance(own, LocalAllocOp)
        own.attrs["total"] = total


def _slot(t: MemDescType) -> int:
    return slot_distance(t) if t.layout is not None else natural_slot(t)


def _alone(m: LocalAllocOp, flow: Flow) -> None:
    """Refuse what has no slots to place, and what a branch may take for another buffer."""
    others = [v.defining_op for v in flow.home[m.result].members if isinstance(v.defining_op, LocalAllocOp)]
    other = next((op for op in others if op is not m), None)
    if other is not None:
        raise CompilationError(
            "not-yet",
            "a buffer that shares its memory flows together with another one: not there yet",
            m.loc,
            notes=[Note("the other buffer", other.loc)],
        )
    if m.type.layout is not None and len(m.type.layout.dims) != len(m.type.shape) - 1:
        raise CompilationError(
            "not-yet",
            "a ring that shares its memory is used as a whole: not there yet",
            m.loc,
            hint="use its slots one by one",
        )


def _spread(home: Home, m: LocalAllocOp, where: Place) -> None:
    """The distance of slots becomes part of all types; uneven slots get other indices."""
    slots = where.turn(m.type.shape[0] - 1) + 1
    ring = m.type.shape
    for v in home.members:
        t = v.type
        assert isinstance(t, MemDescType)
        layout = _pitched(t, where.pitch)
        whole = len(t.shape) == len(ring)
        shape = (slots, *t.shape[1:]) if whole else t.shape
        alloc_shape = (slots, *t.alloc_shape[1:]) if len(t.alloc_shape) == len(ring) else t.alloc_shape
        v.type = MemDescType(shape, t.dtype, t.space, layout, alloc_shape)
        op = v.defining_op
        if op is not None and "type" in op.attrs:
            op.attrs["type"] = v.type
        if whole and not where.plain:
            for user in dict.fromkeys(v.users):
                if isinstance(user, LocalViewOp):
                    _turn(user, where)


def _pitched(t: MemDescType, pitch: int) -> SharedLayout:
    layout = t.layout
    assert layout is not None
    return SharedLayout.get(layout.dims, layout.bases, layout.strides, pitch // t.dtype.itemsize)


def _turn(op: LocalViewOp, where: Place) -> None:
    """An index of the user's as the number of pitches to its slot."""
    assert op.parent is not None
    b = Builder(op.parent, op.loc, op)
    known = constant_of(op.index)
    if known is not None:
        op.set_operand(1, b.constant(where.turn(int(known)), I32))
        return
    total: Value | None = None
    rest = op.index
    for count, step in where.digits:
        digit = b.elementwise("arith.rem", rest, b.constant(count, I32)) if count else rest
        part = b.elementwise("arith.mul", digit, b.constant(step, I32)) if step != 1 else digit
        total = part if total is None else b.elementwise("arith.add", total, part)
        if count:
            rest = b.elementwise("arith.div", rest, b.constant(count, I32))
    assert total is not None
    op.set_operand(1, total)
