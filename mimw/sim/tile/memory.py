"""Global memory through pointers, shared memory through memdescs."""

from __future__ import annotations

import numpy as np

from mimw.ir.core import OpBase, Value
from mimw.ir.ops.memory import (
    LocalAllocOp,
    LocalCountOp,
    LocalGatherOp,
    LocalReinterpretOp,
    LocalScatterOp,
    LocalSliceOp,
    StorageOp,
    storage_of,
)
from mimw.ir.types import DType, PointerType, element_of
from mimw.sim.errors import SimulationError
from mimw.sim.tile import storage
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.registry import computes, executes
from mimw.sim.tile.shared_memory import READ, WRITE, Buffer, check_write, read, touched, write


def pointee(ptr: Value) -> DType:
    """What a pointer (or tile of pointers) points to."""
    e = element_of(ptr.type)
    assert isinstance(e, PointerType)
    return e.pointee


@computes("memory.ptr_add")
def _ptr_add(op: OpBase, ptr: Array, offset: Array) -> Array:
    return ptr + offset.astype(np.int64) * np.int64(pointee(op.operands[0]).itemsize)


def load_tile(m: Machine, op: OpBase, ptr: Value, mask: Value | None, other: Value | None) -> Array:
    """What a load of `ptr` gives under `mask`; `other` (or zero) where it is false."""
    at, on = m.env[ptr], m.get(mask)
    if m.wrapped:
        m.check_wraps(op, ptr, on)
    d = pointee(ptr)
    fill = m.env[other] if other is not None else np.zeros(at.shape, numpy_dtype(d))
    values = m.memory.load(at, d, on, fill)
    if m.races is not None and not op.attrs.get("volatile") and op.attrs.get("cache") != "cv":
        m.touch(op, READ, at, on, d.itemsize)
    return values


@executes("memory.load")
def _load(m: Machine, op: OpBase) -> None:
    ptr, mask, other = operand_fields(op)
    assert ptr is not None
    if op.attrs["volatile"] or op.attrs["cache"] == "cv":
        m.scheduler.poll(op.loc)
        m.clock.acquire(m.cta.cluster.order)
    m.set(op.results[0], load_tile(m, op, ptr, mask, other))


@executes("memory.prefetch")
def _prefetch(m: Machine, op: OpBase) -> None:
    return None


@executes("memory.store")
def _store(m: Machine, op: OpBase) -> None:
    ptr, value, mask = operand_fields(op)
    assert ptr is not None and value is not None
    on = m.get(mask)
    if m.wrapped:
        m.check_wraps(op, ptr, on)
    d = pointee(ptr)
    m.memory.store(m.env[ptr], d, m.env[value], on)
    m.touch(op, WRITE, m.env[ptr], on, d.itemsize)
    m.scheduler.progress += 1


def operand_fields(op: OpBase) -> list[Value | None]:
    """The operands by declared field (no variadic ones): None where an optional one is absent."""
    out: list[Value | None] = []
    at = 0
    for count in op.segments:
        out.append(op.operands[at] if count else None)
        at += count
    return out


def read_buffer(m: Machine, op: OpBase, b: Buffer) -> Array:
    """A buffer's elements; a warning when some were never written."""
    values, unwritten = read(b, m.clock, op.loc)
    if unwritten:
        warn_unwritten(m, op, b)
    return values


def warn_unwritten(m: Machine, op: OpBase, b: Buffer) -> None:
    """Leave the warning that an op reads what was never written."""
    text = f"{op.name} reads elements of {b} that were never written"
    hint = "write or copy into all of it first; another slot may be meant"
    m.warn(SimulationError("unwritten-read", text, op.loc, hint=hint, slot=str(b)))


@executes("memory.storage")
def _storage(m: Machine, op: StorageOp) -> None:
    m.cta.allocations[op] = storage.allocate(op.result, op)


@executes("memory.local_alloc")
def _local_alloc(m: Machine, op: LocalAllocOp) -> None:
    shared = storage_of(op)
    if shared is None:
        buffer = Buffer.new(op.type.shape, op.type.dtype, op.result.name, op)
        m.cta.allocations[op] = buffer.alloc
    else:
        own = shared.defining_op
        if own is op:
            m.cta.allocations[op] = storage.allocate(shared, op)
        buffer = storage.member(m.cta.allocations[own], shared, op)
    if op.src is not None:
        write(buffer, m.env[op.src], m.clock, op.loc)
    m.env[op.result] = buffer


@executes("memory.local_view")
def _local_view(m: Machine, op: OpBase) -> None:
    source, index = op.operands
    m.env[op.results[0]] = m.env[source].slot(int(m.env[index]))


@executes("memory.local_trans")
def _local_trans(m: Machine, op: OpBase) -> None:
    m.env[op.results[0]] = m.env[op.operands[0]].transposed(op.attrs["order"])


@executes("memory.local_reinterpret")
def _local_reinterpret(m: Machine, op: LocalReinterpretOp) -> None:
    t = op.type
    m.env[op.result] = m.env[op.src].reinterpreted(t.shape, t.dtype, t.layout, op.start)


@executes("memory.local_slice")
def _local_slice(m: Machine, op: LocalSliceOp) -> None:
    m.env[op.result] = m.env[op.src].box([int(m.env[v]) for v in op.offsets], op.shape)


def _along(buffer: Buffer, indices: Array, axis: int) -> tuple[Array, ...]:
    """The places that a gather or scatter touches, as index arrays; an index out of range is an error."""
    shape = buffer.data.shape
    bad = (indices < 0) | (indices >= shape[axis])
    if bad.any():
        at = [int(i) for i in np.argwhere(bad)[0]]
        text = f"index {int(indices[tuple(at)])} (element {at}) along dimension {axis} of {buffer}, which has {shape[axis]}"
        raise SimulationError("index-out-of-range", text)
    if any(n > size for d, (n, size) in enumerate(zip(indices.shape, shape, strict=True)) if d != axis):
        raise SimulationError(
            "index-out-of-range", f"indices of shape {list(indices.shape)} for {buffer}, which has {list(shape)}"
        )
    places: list[Array] = [np.asarray(i) for i in np.indices(indices.shape)]
    places[axis] = indices
    return tuple(places)


@executes("memory.local_gather")
def _local_gather(m: Machine, op: LocalGatherOp) -> None:
    buffer = m.env[op.src]
    values, unwritten = read(buffer, m.clock, op.loc)
    places = _along(buffer, m.env[op.indices], op.axis)
    if unwritten and not buffer.state()[places].all():
        warn_unwritten(m, op, buffer)
    m.set(op.result, values[places])


@executes("memory.local_scatter")
def _local_scatter(m: Machine, op: LocalScatterOp) -> None:
    buffer = m.env[op.dst]
    check_write(buffer, m.clock)
    places = _along(buffer, m.env[op.indices], op.axis)
    buffer.data[places] = m.env[op.src]
    buffer.state()[places] = buffer.tag
    touched(buffer, WRITE, m.clock, op.loc)


@executes("memory.local_count")
def _local_count(m: Machine, op: LocalCountOp) -> None:
    buffer = m.env[op.dst]
    values = read_buffer(m, op, buffer)
    indices = m.env[op.indices].reshape(-1)
    if op.mask is not None:
        indices = indices[m.env[op.mask].reshape(-1)]
    np.add.at(values, _along(buffer, indices, 0), 1)
    write(buffer, values, m.clock, op.loc)


@executes("memory.local_load")
def _local_load(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], read_buffer(m, op, m.env[op.operands[0]]))


@executes("memory.local_store")
def _local_store(m: Machine, op: OpBase) -> None:
    target, source = op.operands
    write(m.env[target], m.env[source], m.clock, op.loc)
