"""Global memory through pointers, shared memory through memdescs."""

from __future__ import annotations

import numpy as np

from mimw.ir.core import OpBase, Value
from mimw.ir.types import DType, MemDescType, PointerType, element_of
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.registry import computes, executes
from mimw.sim.tile.shared_memory import Buffer


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
    return m.memory.load(at, d, on, fill)


@executes("memory.load")
def _load(m: Machine, op: OpBase) -> None:
    ptr, mask, other = operand_fields(op)
    assert ptr is not None
    m.set(op.results[0], load_tile(m, op, ptr, mask, other))


@executes("memory.store")
def _store(m: Machine, op: OpBase) -> None:
    ptr, value, mask = operand_fields(op)
    assert ptr is not None and value is not None
    on = m.get(mask)
    if m.wrapped:
        m.check_wraps(op, ptr, on)
    m.memory.store(m.env[ptr], pointee(ptr), m.env[value], on)


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
    values, unwritten = m.shared.read(b)
    if unwritten:
        m.warn(op.loc, f"{op.name} reads elements of {b} that were never written")
    return values


@executes("memory.local_alloc")
def _local_alloc(m: Machine, op: OpBase) -> None:
    t = op.results[0].type
    assert isinstance(t, MemDescType)
    buffer = Buffer.new(t.shape, t.dtype, op.results[0].name)
    if op.operands:
        m.shared.write(buffer, m.env[op.operands[0]])
    m.env[op.results[0]] = buffer


@executes("memory.local_view")
def _local_view(m: Machine, op: OpBase) -> None:
    source, index = op.operands
    m.env[op.results[0]] = m.env[source].slot(int(m.env[index]))


@executes("memory.local_trans")
def _local_trans(m: Machine, op: OpBase) -> None:
    m.env[op.results[0]] = m.env[op.operands[0]].transposed(op.attrs["order"])


@executes("memory.local_reinterpret")
def _local_reinterpret(m: Machine, op: OpBase) -> None:
    t = op.results[0].type
    assert isinstance(t, MemDescType) and t.layout is not None
    m.env[op.results[0]] = m.env[op.operands[0]].reinterpreted(t.shape, t.layout, op.attrs["start"])


@executes("memory.local_load")
def _local_load(m: Machine, op: OpBase) -> None:
    m.set(op.results[0], read_buffer(m, op, m.env[op.operands[0]]))


@executes("memory.local_store")
def _local_store(m: Machine, op: OpBase) -> None:
    target, source = op.operands
    m.shared.write(m.env[target], m.env[source])
