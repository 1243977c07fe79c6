"""Random instances of the MIMW layer's ops: tasks, barriers, TMA, clusters, atomics. Part of `tests.ir.programs`."""

from __future__ import annotations

from typing import Any

from mimw.diagnostics import Loc
from mimw.ir.core import OpBase, Region, Value
from mimw.ir.opdef import OPS
from mimw.ir.ops.control import YieldOp
from mimw.ir.ops.task import TaskSpec
from mimw.ir.types import (
    F16,
    I1,
    I32,
    I64,
    BarrierType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
)

HERE = Loc("programs.py", 1, 1)
BLOCK = (4, 16)
DESC = TensorDescType(BLOCK, F16)
ONE = BarrierType(0, 2)
MANY = BarrierType(3, 2)


def _op(name: str, *args: Any, **kwargs: Any) -> OpBase:
    cls: Any = OPS[name].cls
    return cls(*args, loc=HERE, **kwargs)


def make_handle(m: Any, t: BarrierType | TensorDescType) -> Value:
    """A value of a barrier's or descriptor's type: an allocation, a view, or the argument."""
    if isinstance(t, TensorDescType):
        return next(v for v in m.function.block.args if v.type is t)
    if t.count:
        op = _op("barrier.alloc", t, per_thread=m.random.random() < 0.5)
    else:
        op = _op("barrier.view", m.value(BarrierType(3, t.arrive_count, t.remote)), m.value(I32))
    m.block.append(op)
    m.pool.extend(op.results)
    return op.results[0]


def _maybe(m: Any, t: Any) -> Value | None:
    return m.random.choice([None, m.value(t)])


def _coords(m: Any) -> list[Value]:
    return [m.value(I32), m.value(I32)]


def _buffer(m: Any) -> Value:
    return m.value(MemDescType(BLOCK, F16))


def _tile(m: Any) -> Value:
    return m.value(TensorType(BLOCK, F16))


def _partition(m: Any) -> OpBase:
    specs = [TaskSpec("default", 4), TaskSpec("a/b", 1, 24, 8), TaskSpec("mma", 4, 232, -1, 1)]
    bodies = [Region() for _ in specs]
    for region in bodies:
        m.fill_region(region.block, lambda m: YieldOp([], loc=HERE))
    return _op("task.partition", tuple(str(s) for s in specs), bodies)


def _make_descriptor(m: Any) -> OpBase:
    shape = [m.value(I32), m.value(I32), m.value(I64), m.value(I64)]
    padding = m.random.choice(["zero", "nan"])
    return _op("async_copy.make_descriptor", m.value(PointerType(F16)), _maybe(m, I32), shape, DESC, padding, slots=3)


def _tma_load(m: Any) -> OpBase:
    eviction = m.random.choice(["", "evict_first"])
    masks = _maybe(m, I1), _maybe(m, I32)
    return _op("async_copy.tma_load", m.value(DESC), _buffer(m), m.value(ONE), *masks, _coords(m), eviction)


def _tma_store(m: Any) -> OpBase:
    return _op("async_copy.tma_store", m.value(DESC), _buffer(m), _coords(m), m.random.choice(["", "add"]))


def _pointers(m: Any) -> tuple[Value, Value, Value]:
    t = m.type(PointerType(I32))
    like = (lambda e: t.with_element(e)) if isinstance(t, TensorType) else (lambda e: e)
    return m.value(t), m.value(like(I32)), m.value(like(I1))


def _rmw(m: Any) -> OpBase:
    ptr, value, mask = _pointers(m)
    kind, scope = m.random.choice(["add", "xchg", "xor"]), m.random.choice(["cta", "gpu", "sys"])
    return _op("atomic.rmw", ptr, value, m.random.choice([None, mask]), kind, "acquire", scope)


def _prefetch(m: Any) -> OpBase:
    ptr, _, mask = _pointers(m)
    return _op("memory.prefetch", ptr, m.random.choice([None, mask]), m.random.choice(["L1", "L2"]))


def _cas(m: Any) -> OpBase:
    ptr, value, _ = _pointers(m)
    return _op("atomic.cas", ptr, value, value, m.random.choice(["relaxed", "acq_rel"]))


def _named(name: str) -> Any:
    def make(m: Any) -> OpBase:
        by_value = m.random.random() < 0.3
        number = -1 if by_value else m.random.choice([-1, 9])
        return _op(name, m.value(I32) if by_value else None, 128, number, "" if by_value or number > 0 else "turn")

    return make


def _indices(m: Any) -> Value:
    return m.value(TensorType((3, 16), I32))


MIMW_FILLERS: dict[str, Any] = {
    "task.partition": _partition,
    "task.replica_id": lambda m: _op("task.replica_id"),
    "barrier.alloc": lambda m: _op("barrier.alloc", MANY, m.random.random() < 0.5),
    "barrier.view": lambda m: _op("barrier.view", m.value(MANY), m.value(I32)),
    "barrier.remote_view": lambda m: _op("barrier.remote_view", m.value(m.random.choice([ONE, MANY])), m.value(I32)),
    "barrier.wait": lambda m: _op("barrier.wait", m.value(ONE), m.value(I32), _maybe(m, I1)),
    "barrier.parity": lambda m: _op("barrier.parity", m.value(ONE)),
    "barrier.arrive": lambda m: _op("barrier.arrive", m.value(ONE), _maybe(m, I1), m.random.choice([1, 2])),
    "barrier.expect": lambda m: _op("barrier.expect", m.value(ONE), _maybe(m, I1), 4096),
    "barrier.named_wait": _named("barrier.named_wait"),
    "barrier.named_arrive": _named("barrier.named_arrive"),
    "barrier.fence": lambda m: _op("barrier.fence", m.random.choice(["gpu", "sys"])),
    "async_copy.make_descriptor": _make_descriptor,
    "async_copy.tma_load": _tma_load,
    "async_copy.tma_store": _tma_store,
    "async_copy.tma_store_wait": lambda m: _op("async_copy.tma_store_wait", 1, m.random.random() < 0.5),
    "async_copy.tma_prefetch": lambda m: _op("async_copy.tma_prefetch", m.value(DESC), _maybe(m, I1), _coords(m)),
    "async_copy.prefetch_descriptor": lambda m: _op("async_copy.prefetch_descriptor", m.value(DESC)),
    "async_copy.made_descriptor": lambda m: _op("async_copy.made_descriptor", _maybe(m, I32), DESC, 2),
    "memory.prefetch": _prefetch,
    "debug.clock": lambda m: _op("debug.clock"),
    "async_copy.block_load": lambda m: _op("async_copy.block_load", m.value(DESC), _coords(m)),
    "async_copy.block_store": lambda m: _op(
        "async_copy.block_store", m.value(DESC), _tile(m), _coords(m), m.random.choice(["", "xor"])
    ),
    "async_copy.bulk_load": lambda m: _op(
        "async_copy.bulk_load", m.value(PointerType(F16)), _buffer(m), m.value(ONE), m.value(I32), _maybe(m, I1)
    ),
    "async_copy.bulk_store": lambda m: _op(
        "async_copy.bulk_store", m.value(PointerType(F16)), _buffer(m), m.value(I32)
    ),
    "cluster.cta_rank": lambda m: _op("cluster.cta_rank"),
    "cluster.size": lambda m: _op("cluster.size"),
    "cluster.sync": lambda m: _op("cluster.sync"),
    "cluster.remote_store": lambda m: _op("cluster.remote_store", _buffer(m), _tile(m), m.value(I32)),
    "cluster.async_remote_store": lambda m: _op(
        "cluster.async_remote_store", _buffer(m), _tile(m), m.value(I32), m.value(ONE)
    ),
    "cluster.async_remote_copy": lambda m: _op(
        "cluster.async_remote_copy", _buffer(m), _buffer(m), m.value(I32), m.value(ONE)
    ),
    "atomic.rmw": _rmw,
    "atomic.cas": _cas,
    "memory.storage": lambda m: _op("memory.storage", 4096, m.random.choice(["", "shared(0, 2*distinct(1, 2))"])),
    "memory.local_slice": lambda m: _op("memory.local_slice", _buffer(m), _coords(m), (2, 8)),
    "memory.local_gather": lambda m: _op("memory.local_gather", _buffer(m), _indices(m), 0),
    "memory.local_count": lambda m: _op(
        "memory.local_count",
        m.value(MemDescType((8,), I32)),
        m.value(TensorType((31,), I32)),
        _maybe(m, TensorType((31,), I1)),
    ),
    "memory.local_scatter": lambda m: _op(
        "memory.local_scatter", _buffer(m), m.value(TensorType((3, 16), F16)), _indices(m), 0
    ),
}
