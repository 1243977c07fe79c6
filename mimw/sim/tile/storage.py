"""Memory that several buffers share: one allocation, of which each of them is a part.

Before the passes have placed the buffers, they lie by the bytes of their types, slots at multiples of `SLOT_ALIGN`; afterwards where the
passes say. Knows of ops what makes the buffers.
"""

from __future__ import annotations

import numpy as np

from mimw.ir.core import Value
from mimw.ir.ops.memory import LocalAllocOp, StorageOp, members_of, overlap_of
from mimw.ir.overlap import Place, place
from mimw.ir.scratch import natural_slot, slot_distance
from mimw.ir.types import U8
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.shared_memory import Allocation, Buffer


def allocate(storage: Value, key: object) -> Allocation:
    """The bytes of a storage, and the names of the buffers in it."""
    members = members_of(storage)
    total, _ = _places(storage, members)
    alloc = Allocation((max(total, 1),), U8, key)
    alloc.names = {i + 1: m.result.name or "another buffer" for i, m in enumerate(members)}
    return alloc


def member(alloc: Allocation, storage: Value, op: LocalAllocOp) -> Buffer:
    """One of the buffers of a storage."""
    members = members_of(storage)
    _, places = _places(storage, members)
    index = members.index(op)
    where = places[index]
    t, dtype = op.type, numpy_dtype(op.type.dtype)
    slots = 1 + where.turn(t.shape[0] - 1)
    inner = np.empty(t.shape[1:], dtype).strides
    data: Array = np.ndarray((slots, *t.shape[1:]), dtype, alloc.raw, where.start, (where.pitch, *inner))
    return Buffer(data, alloc, op.result.name, index + 1, None if where.plain else where)


def _places(storage: Value, members: list[LocalAllocOp]) -> tuple[int, list[Place]]:
    own = storage.defining_op
    assert isinstance(own, (StorageOp, LocalAllocOp))
    if own.total:  # placed by the passes
        base = max(0, own.offset)
        return own.total, [Place(m.offset - base, slot_distance(m.type), m.type.shape[0]) for m in members]
    rings = [(m.type.shape[0], natural_slot(m.type)) for m in members]
    total, found = place(overlap_of(storage), rings)
    size = max(total, own.bytes) if isinstance(own, StorageOp) else total
    return size, [where for where in found if where is not None]
