"""The functions of the MIMW layer one by one: the op that each becomes, with its operands and attributes; arguments in TLX's order."""

from __future__ import annotations

from typing import Any

import pytest

import mimw.language as ml
import mimw.language as tlx
from mimw.frontend.trace import Arg
from mimw.ir.core import OpBase, Value
from mimw.ir.parser import parse_module
from mimw.ir.printer import print_module
from mimw.ir.types import (
    BF16,
    F8E4M3,
    F16,
    F32,
    I8,
    I32,
    I64,
    BarrierType,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
)
from tests.frontend.kernels import INT, P16, P32, PI, build, ops
from tests.ir.structure import difference

DESC = Arg(TensorDescType((64, 64), F16))
WIDE = Arg(I64)


def only(fn: Any, name: str, **signature: Any) -> OpBase:
    """The one op of that name in a kernel; what the kernel prints is parsed back."""
    module = build(fn, **signature)
    text = print_module(module)
    assert difference(module, parse_module(text)) == ""
    found = ops(module, name)
    assert len(found) == 1, text
    return found[0]


def number(v: Value | None) -> Any:
    """The constant behind a value."""
    assert v is not None
    made = v.defining_op
    assert made is not None and made.name == "arith.constant", made
    return made.attrs["value"]


# Barriers.


def test_alloc_barriers() -> None:
    def fn():
        tlx.alloc_barriers(4)

    def counted():
        tlx.alloc_barriers(num_barriers=2, arrive_count=3)

    assert only(fn, "barrier.alloc").results[0].type is BarrierType(4, 1)
    assert only(counted, "barrier.alloc").results[0].type is BarrierType(2, 3)


def test_alloc_warp_barrier() -> None:
    def fn():
        tlx.alloc_warp_barrier(2, num_warps=4, num_arrivals=2)

    op = only(fn, "barrier.alloc")
    assert op.attrs["per_thread"]
    assert op.results[0].type is BarrierType(2, 256)


def test_barrier_wait() -> None:
    def fn(n):
        bars = tlx.alloc_barriers(4)
        tlx.barrier_wait(tlx.local_view(bars, n), n & 1)

    def constant():
        tlx.barrier_wait(tlx.alloc_barriers(4)[3], phase=1, pred=True)

    def predicated(n):
        tlx.barrier_wait(tlx.alloc_barriers(4)[3], n == 2, n > 3)

    op: Any = only(fn, "barrier.wait", n=INT)
    assert op.barrier.type is BarrierType(0, 1)
    assert op.pred is None
    op = only(constant, "barrier.wait")
    assert (number(op.phase), op.pred) == (1, None)
    op = only(predicated, "barrier.wait", n=INT)
    assert op.phase.type is I32
    assert op.pred.defining_op.name == "arith.gt"


def test_wide_counters_index_and_wait() -> None:
    def fn(n):
        bars = tlx.alloc_barriers(4)
        tlx.barrier_wait(bars[n % 4], n // 4)

    op: Any = only(fn, "barrier.wait", n=WIDE)
    assert op.phase.type is I32
    assert op.barrier.defining_op.operands[1].type is I32


def test_barrier_expect_bytes() -> None:
    def fn(n):
        tlx.barrier_expect_bytes(tlx.alloc_barriers(1)[0], 1024, n > 0)

    op: Any = only(fn, "barrier.expect", n=INT)
    assert op.bytes == 1024
    assert op.pred is not None


def test_barrier_arrive() -> None:
    def fn():
        tlx.barrier_arrive(tlx.alloc_barriers(1, 4)[0], 2)

    def remote(n):
        tlx.barrier_arrive(tlx.alloc_barriers(1, 4)[0], 1, n, n > 0)

    def viewed(n):
        tlx.barrier_arrive(tlx.remote_view(tlx.alloc_barriers(1, 4)[0], n))

    op: Any = only(fn, "barrier.arrive")
    assert (op.count, op.pred, op.barrier.type) == (2, None, BarrierType(0, 4))
    op = only(remote, "barrier.arrive", n=INT)
    assert op.barrier.type is BarrierType(0, 4, True)
    assert op.pred is not None
    assert only(viewed, "barrier.arrive", n=INT).operands[0].type is BarrierType(0, 4, True)


def test_named_barriers() -> None:
    def wait():
        tlx.named_barrier_wait(9, 256)

    def arrive(n):
        tlx.named_barrier_arrive(n + 8, 64)

    op: Any = only(wait, "barrier.named_wait")
    assert (op.id, op.number, op.count) == (None, 9, 256)
    op = only(arrive, "barrier.named_arrive", n=INT)
    assert (op.id.type, op.number, op.count) == (I32, -1, 64)


@pytest.mark.parametrize(
    ("scope", "name"),
    [("gpu", "barrier.fence"), ("sys", "barrier.fence"), ("async_shared", "barrier.fence_async_shared")],
)
def test_fences(scope: str, name: str) -> None:
    def fn(scope: ml.constexpr):
        tlx.fence(scope)

    op = only(fn, name, scope=scope)
    assert op.attrs.get("scope", scope) == scope


def test_fence_async_shared_and_a_fence_that_is_the_compiler_s_work() -> None:
    def fn():
        tlx.fence_mbarrier_init_cluster()
        tlx.fence_async_shared()

    assert [op.name for op in build(fn).function.walk()] == ["barrier.fence_async_shared", "control.return"]
    only(fn, "barrier.fence_async_shared")


# Buffers.


def test_local_alloc_and_views() -> None:
    def fn(n):
        buf = tlx.local_alloc((32, 64), ml.bfloat16, 3, tlx.storage_kind.smem)
        one = tlx.local_view(buf, n)
        part = tlx.local_slice(one, [0, 16], [32, 16])
        turned = tlx.local_trans(part)
        tlx.local_store(turned, ml.zeros(turned.shape, turned.dtype))

    module = build(fn, n=INT)
    assert [
        str(op.results[0].type) for op in module.function.walk() if op.name.startswith("memory.") and op.results
    ] == [
        "memdesc<3x32x64xbf16, shared>",
        "memdesc<32x64xbf16, shared, alloc 3x32x64>",
        "memdesc<32x16xbf16, shared, alloc 3x32x64>",
        "memdesc<16x32xbf16, shared, alloc 3x32x64>",
    ]
    only(fn, "memory.local_store", n=INT)


def test_reinterpret_and_reshape() -> None:
    def fn():
        buf = tlx.local_alloc((32, 64), ml.float16, 1)
        tlx.local_load(tlx.local_reinterpret(buf[0], ml.float32, [32, 32]))

    def same_shape():
        buf = tlx.local_alloc((32, 64), ml.float16, 1)
        tlx.local_load(tlx.local_reinterpret(buf[0], ml.bfloat16))

    def reshaped():
        buf = tlx.local_alloc((32, 64), ml.float16, 1)
        tlx.local_load(tlx.local_reshape(buf[0], (16, 128)))

    assert only(fn, "memory.local_load").results[0].type is TensorType((32, 32), F32)
    assert only(same_shape, "memory.local_load").results[0].type is TensorType((32, 64), BF16)
    assert only(reshaped, "memory.local_load").results[0].type is TensorType((16, 128), F16)


def test_local_load_and_store() -> None:
    def fn():
        buf = tlx.local_alloc((64,), ml.float32, 2)
        tlx.local_store(buf[1], tlx.local_load(buf[0], None) + 1.0)

    def spread():
        buf = tlx.local_alloc((64,), ml.float16, 2)
        tlx.local_store(buf[1], 1)

    op: Any = only(fn, "memory.local_store")
    assert number(op.dst.defining_op.operands[1]) == 1
    op = only(spread, "memory.local_store")
    assert op.src.type is TensorType((64,), F16)


def test_gather_and_scatter() -> None:
    def gather():
        buf = tlx.local_alloc((64, 8), ml.float32, 1)
        tlx.local_gather(buf[0], ml.zeros((4, 8), ml.int64), 0)

    def scatter():
        buf = tlx.local_alloc((64,), ml.float32, 1)
        tlx.local_scatter(buf[0], ml.zeros((16,), ml.float32), ml.arange(0, 16), -1)

    op: Any = only(gather, "memory.local_gather")
    assert (op.axis, op.result.type, op.indices.type) == (0, TensorType((4, 8), F32), TensorType((4, 8), I32))
    assert only(scatter, "memory.local_scatter").attrs["axis"] == 0


# Asynchronous copies.


def test_async_descriptor_load() -> None:
    def fn(d, n):
        buf = tlx.local_alloc(d.block_shape, d.dtype, 2)
        bars = tlx.alloc_barriers(1)
        tlx.async_descriptor_load(d, buf[1], [n, 64], bars[0], eviction_policy="evict_last")

    op: Any = only(fn, "async_copy.tma_load", d=DESC, n=INT)
    assert (op.eviction, op.pred, op.multicast) == ("evict_last", None, None)
    assert number(op.coords[1]) == 64
    assert op.dst.type.shape == (64, 64)


def test_multicast_masks() -> None:
    def fixed(d):
        buf = tlx.local_alloc((64, 64), ml.float16, 1)
        tlx.async_descriptor_load(d, buf[0], [0, 0], tlx.alloc_barriers(1)[0], None, "", "", [0, 3])

    def moving(d, n):
        buf = tlx.local_alloc((64, 64), ml.float16, 1)
        bar = tlx.alloc_barriers(1)[0]
        tlx.async_descriptor_load(d, buf[0], [0, 0], bar, pred=n > 0, multicast_targets=[n, 1])

    op: Any = only(fixed, "async_copy.tma_load", d=DESC)
    assert number(op.multicast) == 0b1001
    op = only(moving, "async_copy.tma_load", d=DESC, n=INT)
    assert op.multicast.defining_op.name == "arith.or"
    assert op.multicast.type is I32


def test_async_descriptor_store() -> None:
    def fn(d):
        buf = tlx.local_alloc((64, 64), ml.float16, 1)
        tlx.async_descriptor_store(d, buf[0], [0, 64], store_reduce="add")
        tlx.async_descriptor_store_wait(1)

    op: Any = only(fn, "async_copy.tma_store", d=DESC)
    assert (op.reduce, op.eviction) == ("add", "")
    assert only(fn, "async_copy.tma_store_wait", d=DESC).attrs["pendings"] == 1


def test_descriptor_store_is_one_op() -> None:
    def method(d):
        d.store([0, 0], ml.zeros((64, 64), ml.float16))

    def function(d):
        ml.store_tensor_descriptor(d, [0, 0], ml.zeros((64, 64), ml.float16))

    for fn in (method, function):
        names = [op.name for op in build(fn, d=DESC).function.walk() if not op.name.startswith("arith.")]
        assert names == ["async_copy.block_store", "control.return"]


def test_prefetch() -> None:
    def fn(d, n):
        tlx.async_descriptor_prefetch_tensor(d, [n, n], n > 0)

    assert only(fn, "async_copy.tma_prefetch", d=DESC, n=INT).operands[1].type is not I32


def test_make_tensor_descriptor_in_both_spellings() -> None:
    def triton(x, n):
        ml.make_tensor_descriptor(x, shape=[n, 64], strides=[64, 1], block_shape=[32, 64])

    def tlx_way(x, n):
        tlx.make_tensor_descriptor(None, x, [n, 64], [64, 1], [32, 64], "nan")

    def slotted(x, n):
        room = tlx.allocate_tensor_descriptor(3)
        tlx.make_tensor_descriptor(desc_ptr=room[n % 3], base=x, shape=[n, 64], strides=[64, 1], block_shape=[32, 64])

    op: Any = only(triton, "async_copy.make_descriptor", x=P16, n=INT)
    assert op.result.type is TensorDescType((32, 64), F16)
    assert [v.type for v in op.shape] == [I32, I32, I64, I64]
    assert (op.padding, op.slot, op.slots) == ("zero", None, 1)
    assert only(tlx_way, "async_copy.make_descriptor", x=P16, n=INT).attrs["padding"] == "nan"
    op = only(slotted, "async_copy.make_descriptor", x=P16, n=INT)
    assert (op.slot.type, op.slots) == (I32, 3)


def test_async_load() -> None:
    def fn(x, n):
        buf = tlx.local_alloc((8, 64), ml.float32, 1)
        cols = ml.arange(0, 64)
        rows = ml.arange(0, 8)
        token = tlx.async_load(x + rows[:, None] * 64 + cols[None, :], buf[0], mask=(cols < n)[None, :], other=0.5)
        token = tlx.async_load_commit_group([token])
        tlx.async_load_wait_group(0, [token])

    op: Any = only(fn, "async_copy.load", x=P32, n=INT)
    assert op.mask.type.shape == (8, 64)
    assert number(op.other) == 0.5
    assert only(fn, "async_copy.wait_group", x=P32, n=INT).attrs["pendings"] == 0
    only(fn, "async_copy.commit_group", x=P32, n=INT)


def test_a_loop_carries_a_token() -> None:
    def fn(x, n):
        buf = tlx.local_alloc((64,), ml.float32, 2)
        token = tlx.async_load_commit_group([tlx.async_load(x + ml.arange(0, 64), buf[0])])
        for i in range(n):
            tlx.async_load_wait_group(0, [token])
            token = tlx.async_load(x + i * 64 + ml.arange(0, 64), buf[i % 2])
            token = tlx.async_load_commit_group([token])

    (loop,) = ops(build(fn, x=P32, n=INT), "control.for")
    assert not loop.results


def test_bulk_copies() -> None:
    def load(x, n):
        buf = tlx.local_alloc((64,), ml.float32, 2)
        bars = tlx.alloc_barriers(1)
        tlx.async_load(x + n, buf[0], bulk=True, barrier=bars[0])

    def sized(x, n):
        buf = tlx.local_alloc((64,), ml.float32, 2)
        tlx.async_load(x, buf[0], bulk=True, bulk_size=n * 16, barrier=tlx.alloc_barriers(1)[0])

    def store(x):
        buf = tlx.local_alloc((64,), ml.float32, 2)
        tlx.async_store(x, buf[1], 128)

    op: Any = only(load, "async_copy.bulk_load", x=P32, n=INT)
    assert number(op.bytes) == 256
    op = only(sized, "async_copy.bulk_load", x=P32, n=INT)
    assert op.bytes.defining_op.name == "arith.mul"
    assert number(only(store, "async_copy.bulk_store", x=P32).operands[2]) == 128


# Products.


def dot_kernel(a: Any, b: Any, acc: Any, out: Any) -> Any:
    def fn(a: ml.constexpr, b: ml.constexpr, acc: ml.constexpr, out: ml.constexpr):
        x = tlx.local_alloc((64, 32), a, 1)
        y = tlx.local_alloc((32, 16), b, 1)
        if acc is None:
            tlx.async_dot_wait(0, tlx.async_dot(x[0], y[0], out_dtype=out))
        else:
            tlx.async_dot_wait(0, tlx.async_dot(x[0], y[0], ml.zeros((64, 16), acc)))

    return only(fn, "mma.async_dot_wait", a=a, b=b, acc=acc, out=out).results[0].type.element  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("a", "b", "acc", "out", "result"),
    [
        (F16, F16, None, F32, F32),
        (F16, F16, None, F16, F16),
        (F16, F16, F16, F32, F16),
        (BF16, BF16, None, F32, F32),
        (F32, F32, F32, F32, F32),
        (F8E4M3, F8E4M3, None, F32, F32),
        (I8, I8, None, F32, I32),
        (I8, I8, I32, F32, I32),
    ],
)
def test_types_of_async_dot(a: Any, b: Any, acc: Any, out: Any, result: Any) -> None:
    assert dot_kernel(a, b, acc, out) is result


def test_async_dot_with_registers_on_the_left() -> None:
    def fn(x):
        y = tlx.local_alloc((32, 16), ml.float16, 1)
        p = ml.load(x + ml.arange(0, 64)[:, None] * 32 + ml.arange(0, 32)[None, :])
        acc = tlx.alloc_accumulator((64, 16), ml.float32)
        tlx.async_dot_wait(0, tlx.async_dot(p, y[0], acc, max_num_imprecise_acc=32))

    op: Any = only(fn, "mma.async_dot", x=P16)
    assert isinstance(op.a.type, TensorType)
    assert isinstance(op.b.type, MemDescType)
    assert op.max_imprecise == 32
    assert number(op.acc) == 0.0


def test_use_acc() -> None:
    def dynamic(n):
        x = tlx.local_alloc((64, 64), ml.float16, 1)
        acc = tlx.alloc_accumulator((64, 64))
        for k in range(n):
            acc = tlx.async_dot(x[0], x[0], acc, use_acc=k > 0)
        tlx.async_dot_wait(0, acc)

    def known(first: ml.constexpr):
        x = tlx.local_alloc((64, 64), ml.float16, 1)
        acc = tlx.async_dot_wait(0, tlx.async_dot(x[0], x[0]))
        tlx.async_dot_wait(0, tlx.async_dot(x[0], x[0], acc, not first))

    op: Any = only(dynamic, "mma.async_dot", n=INT)
    assert op.use_acc.defining_op.name == "arith.gt"
    for first in (True, False):
        op = ops(build(known, first=first), "mma.async_dot")[1]
        assert op.use_acc is None
        assert (op.acc.defining_op.name == "arith.constant") is first


def test_wait_of_several() -> None:
    def fn(n):
        x = tlx.local_alloc((64, 64), ml.float16, 1)
        a, b = tlx.async_dot_wait(0, (tlx.async_dot(x[0], x[0]), tlx.async_dot(x[0], x[0])))
        tlx.local_store(x[0], (a + b).to(ml.float16))

    assert len(ops(build(fn, n=INT), "mma.async_dot_wait")) == 2


# Clusters.


def test_clusters() -> None:
    def fn(n):
        rank = tlx.cluster_cta_rank()
        tlx.cluster_barrier()
        buf = tlx.local_alloc((64,), ml.float32, 2)
        bars = tlx.alloc_barriers(1)
        tlx.remote_shmem_store(buf[0], ml.zeros((64,), ml.float32), rank ^ 1)
        tlx.async_remote_shmem_store(buf[0], ml.zeros((64,), ml.float32), 1, bars[0])
        tlx.async_remote_shmem_copy(buf[0], buf[1], (rank + 1) % tlx.cluster_size_1d(), bars[0])

    names = [op.name for op in build(fn, n=INT).function.walk() if op.name.startswith("cluster.")]
    assert names == [
        "cluster.cta_rank", "cluster.sync", "cluster.remote_store", "cluster.async_remote_store", "cluster.size",
        "cluster.async_remote_copy",
    ]  # fmt: skip
    only(fn, "cluster.sync", n=INT)


# Atomics.


@pytest.mark.parametrize("kind", ["add", "max", "min", "and", "or", "xor", "xchg"])
def test_read_modify_write(kind: str) -> None:
    def fn(x, kind: ml.constexpr):
        p = x + ml.arange(0, 16)
        if kind == "add":
            old = ml.atomic_add(p, 1)
        elif kind == "max":
            old = ml.atomic_max(p, 1, None, "relaxed", "cta")
        elif kind == "min":
            old = ml.atomic_min(p, 1, mask=ml.arange(0, 16) < 3)
        elif kind == "and":
            old = ml.atomic_and(p, 1)
        elif kind == "or":
            old = p.atomic_or(1)
        elif kind == "xor":
            old = ml.atomic_xor(p, 1)
        else:
            old = ml.atomic_xchg(p, 1, sem="release", scope="sys")
        ml.store(x + ml.arange(0, 16), old)

    op: Any = only(fn, "atomic.rmw", x=PI, kind=kind)
    assert op.kind == kind
    assert op.result.type is TensorType((16,), I32)
    order = {"max": ("relaxed", "cta"), "xchg": ("release", "sys")}.get(kind, ("acq_rel", "gpu"))
    assert (op.sem, op.scope) == order
    assert (op.mask is not None) == (kind == "min")


def test_atomics_cast_and_spread() -> None:
    def fn(x, n):
        ml.atomic_add(x, n)

    def spread(x, n):
        ml.atomic_add(x, ml.arange(0, 4) * 0.5)

    op: Any = only(fn, "atomic.rmw", x=P16, n=INT)
    assert op.value.type is F16
    op = only(spread, "atomic.rmw", x=P32, n=INT)
    assert op.ptr.type is TensorType((4,), PointerType(F32))


def test_compare_and_swap() -> None:
    def fn(x, n):
        ml.store(x, ml.atomic_cas(x, 0, n, sem="acquire"))

    op: Any = only(fn, "atomic.cas", x=PI, n=INT)
    assert (number(op.compare), op.sem, op.scope) == (0, "acquire", "gpu")


# Questions.


def test_queries() -> None:
    def fn(x, d, n):
        ml.static_assert(tlx.dtype_of(x) == ml.float16)
        ml.static_assert(tlx.dtype_of(d) == ml.float16)
        ml.static_assert(tlx.dtype_of(n) == ml.int32)
        ml.static_assert(tlx.dtype_of(tlx.local_alloc((4,), ml.int8, 1)) == ml.int8)
        ml.static_assert(tlx.size_of(tlx.dtype_of(d)) == 2)
        ml.static_assert(d.block_shape == (64, 64))

    build(fn, x=P16, d=DESC, n=INT)


def test_slots_and_phases_of_a_count() -> None:
    def fn(x):
        for i in ml.static_range(10):
            slot, phase = tlx.warp_spec.get_bufidx_phase(i, 3)
            ml.static_assert(slot == i % 3 and phase == i // 3 % 2)

    def moving(x, n):
        slot, phase = tlx.warp_spec.get_bufidx_phase(n, 3)
        ml.store(x, slot + phase)

    build(fn, x=P32)
    names = [op.name for op in ops(build(moving, x=PI, n=INT))]
    assert [n for n in names if n in ("arith.rem", "arith.div", "arith.and")] == ["arith.rem", "arith.div", "arith.and"]
