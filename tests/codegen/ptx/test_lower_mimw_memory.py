"""Clusters, atomics, and views of shared memory in PTX, run in the simulator against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.codegen.ptx.assemble import assemble
from mimw.diagnostics import CompilationError
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import blocked
from mimw.ir.ops.task import TaskSpec
from mimw.ir.scratch import scratch_bytes
from mimw.ir.types import BF16, F16, F32, F64, I8, I16, I32, I64, U8, U32, DType, PointerType
from tests.codegen.ptx.mimw_kit import MimwKernel, descriptor, swizzled

_NUMPY: dict[str, Any] = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------- clusters


def test_a_block_goes_to_both_ctas_of_a_cluster() -> None:
    t = descriptor((16, 64))
    k = MimwKernel([("src", t), ("x", PointerType(BF16))], num_warps=4, cluster=(2, 1, 1))
    src, x = k.args
    full, empty = k.view(k.barriers(1), k.i32(0)), k.view(k.barriers(1, 2), k.i32(0))
    buffer = k.buffer((16, 64), BF16, swizzled((16, 64)))
    rank = k.op("cluster.cta_rank")

    def consumer() -> None:
        k.op("barrier.wait", full, k.i32(0))
        layout = blocked((16, 64), (1, 0), 4, 2)
        tile = k.op("memory.local_load", buffer, layout=layout)
        k.op("barrier.arrive", k.op("barrier.remote_view", empty, k.i32(0)))
        where = k.op("memory.ptr_add", x, k.arith("mul", rank, 16 * 64))
        k.store_tile(where, tile, 64)

    def producer() -> None:
        k.op("barrier.expect", full, bytes=16 * 64 * 2)
        first = k.op("arith.eq", rank, k.i32(0))
        k.op("async_copy.tma_load", src, buffer, full, first, k.i32(3), [k.i32(0), k.i32(0)])
        k.op("barrier.wait", empty, k.i32(0), first)

    k.tasks(consumer, (TaskSpec("producer", 1, 0, 4), producer))
    a = np.random.default_rng(0).integers(-9, 9, (16, 64)).astype(ml_dtypes.bfloat16)
    out = np.zeros((2, 16, 64), ml_dtypes.bfloat16)
    for seed in (0, 2):
        text = k.simulate([(a, t), out], grid=(2, 1, 1), seed=seed)
        assert (out == a).all()
    assert ".reqnctapercluster 2, 1, 1" in text and ".explicitcluster" in text
    assert "mbarrier.arrive.shared::cluster.b64 _" in text and "multicast::cluster" in text
    assert text.count("barrier.cluster.arrive") == 3  # start of two tasks, the common end
    assert not assemble(text, "sm_90a").warnings


@pytest.mark.parametrize("how", ["store", "async_store", "copy"])
def test_a_tile_goes_to_the_other_cta(how: str) -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=4, cluster=(2, 1, 1))
    (x,) = k.args
    layout = blocked((256,), (0,), 4, 2)
    bar = k.view(k.barriers(1), k.i32(0))
    mine = k.buffer((256,), I32, swizzled((256,), I32, 0))
    theirs = k.buffer((256,), I32, swizzled((256,), I32, 0))
    rank = k.op("cluster.cta_rank")
    other = k.arith("xor", rank, 1)
    offsets = k.arange(256, layout)
    tile = k.op("arith.add", offsets, k.splat(k.arith("mul", rank, 1000), (256,), layout))
    if how == "store":
        k.op("cluster.remote_store", theirs, tile, other)
        k.op("cluster.sync")
    else:
        k.op("barrier.expect", bar, bytes=1024)
        if how == "async_store":
            k.op("cluster.async_remote_store", theirs, tile, other, bar)
        else:
            k.op("memory.local_store", mine, tile)
            k.op("barrier.fence_async_shared")
            k.op("barrier.cta_sync")
            k.op("cluster.async_remote_copy", theirs, mine, other, bar)
        k.op("barrier.wait", bar, k.i32(0))
    got = k.op("memory.local_load", theirs, layout=layout)
    k.store(k.op("memory.ptr_add", x, k.arith("mul", rank, 256)), offsets, got)
    out = np.zeros(512, np.int32)
    text = k.simulate([out], grid=(2, 1, 1))
    assert list(out) == [*range(1000, 1256), *range(256)]
    assert not assemble(text, "sm_90a").warnings


def test_an_arrival_at_the_other_cta_releases_what_was_stored_there() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=4, cluster=(2, 1, 1))
    layout = blocked((256,), (0,), 4, 2)
    bar = k.view(k.barriers(1), k.i32(0))
    buffer = k.buffer((256,), I32, swizzled((256,), I32, 0))
    rank = k.op("cluster.cta_rank")
    other = k.arith("xor", rank, 1)
    offsets = k.arange(256, layout)
    tile = k.op("arith.add", offsets, k.splat(k.arith("mul", rank, 1000), (256,), layout))
    k.op("cluster.remote_store", buffer, tile, other)
    k.op("barrier.arrive", k.op("barrier.remote_view", bar, other))
    k.op("barrier.wait", bar, k.i32(0))
    got = k.op("memory.local_load", buffer, layout=layout)
    k.store(k.op("memory.ptr_add", k.args[0], k.arith("mul", rank, 256)), offsets, got)
    out = np.zeros(512, np.int32)
    text = k.simulate([out], grid=(2, 1, 1))
    assert list(out) == [*range(1000, 1256), *range(256)]
    assert "mbarrier.arrive.release.cluster.shared::cluster.b64" in text
    assert "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64" in text
    assert not assemble(text, "sm_90a").warnings


def test_cluster_barriers_around_tasks_are_passed_by_every_warp() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=1, cluster=(2, 1, 1))
    k.op("cluster.sync")
    k.tasks(
        lambda: None,
        (TaskSpec("other", 1, 0, 1), lambda: k.op("memory.store", k.args[0], k.op("cluster.size"))),
        total=4,
    )
    k.op("cluster.sync")
    out = np.zeros(1, np.int32)
    k.simulate([out], grid=(2, 1, 1))
    assert out[0] == 2


# ---------------------------------------------------------------------------------------------------------------------- atomics


def _atomic(
    dtype: DType, kind: str, layout: Layout, size: int, returns: bool = True, sem: str = "acq_rel"
) -> MimwKernel:
    """old = atomic(table[i % 5], values[i]) over a tile, masked to i < n."""
    k = MimwKernel(
        [("table", PointerType(dtype)), ("values", PointerType(dtype)), ("olds", PointerType(dtype)), ("n", I32)]
    )
    table, values, olds, n = k.args
    offsets = k.arange(size, layout)
    where = k.op("arith.rem", offsets, k.const(5, offsets.type))
    mask = k.op("arith.lt", offsets, k.splat(n, (size,), layout))
    value = k.load(values, offsets)
    if kind == "cas":
        compare = k.op("memory.load", k.pointers(table, where))
        old = k.op("atomic.cas", k.pointers(table, offsets), compare, value, sem=sem, layout=layout)
    else:
        old = k.op("atomic.rmw", k.pointers(table, where), value, mask, kind=kind, sem=sem, layout=layout)
    if returns:
        k.store(olds, offsets, old)
        op = old.defining_op
        op.attrs["scratch"] = k._take(scratch_bytes(op), 16) if scratch_bytes(op) else -1
    return k


def _apply(kind: str, old: Any, new: Any, dtype: Any) -> Any:
    if kind in ("max", "min"):
        return (max if kind == "max" else min)(old, new)
    fns = {"add": lambda a, b: a + b, "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    return new if kind == "xchg" else dtype(fns[kind](old, new))


_PLAIN = blocked((64,), (0,), 4, 1)  # 64 elements on 128 threads: the upper warps hold copies
_KINDS = [
    *((d, k) for d in (I32, U32, I64, I16, I8, U8) for k in ("add", "max", "min", "and", "or", "xor", "xchg")),
    *((d, k) for d in (F32, F64, F16, BF16) for k in ("add", "max", "min", "xchg")),
]


@pytest.mark.parametrize(("dtype", "kind"), _KINDS, ids=lambda v: str(v))
def test_every_element_happens_once(dtype: DType, kind: str) -> None:
    np_type = _NUMPY[dtype.name]
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        table = rng.integers(0, 9, 8).astype(np_type)
        values = rng.integers(0, 9, 64).astype(np_type)
        olds = np.zeros(64, np_type)
        n = 50
        expected, all_olds = table.copy(), [set() for _ in range(5)]
        for i in range(n):
            expected[i % 5] = _apply(kind, expected[i % 5], values[i], np_type)
        k = _atomic(dtype, kind, _PLAIN, 64)
        k.simulate([table, values, olds, n])
    if kind != "xchg":
        assert (table == expected).all()
    else:
        for slot in range(5):  # each old value is another's new one: a permutation of what was there
            assert sorted([*olds[slot:n:5], table[slot]]) == sorted([*values[slot:n:5], *_first(3, np_type, slot)])
    assert not olds[n:].any()
    del all_olds


def _first(seed: int, np_type: Any, slot: int) -> list[Any]:
    return [np.random.default_rng(seed).integers(0, 9, 8).astype(np_type)[slot]]


@pytest.mark.parametrize("dtype", [I32, I8, I16, F16, F64], ids=str)
def test_compare_and_swap(dtype: DType) -> None:
    np_type = _NUMPY[dtype.name]
    table = (np.arange(64) % 7).astype(np_type)
    before = table.copy()
    values, olds = np.arange(64).astype(np_type), np.zeros(64, np_type)
    k = _atomic(dtype, "cas", _PLAIN, 64)
    k.simulate([table, values, olds, 64])
    same = before == before[np.arange(64) % 5]
    # The comparison's loads may come after another warp's swap of the first five: they keep their value, being swapped for themselves.
    assert (olds == before).all()
    assert (table[5:] == np.where(same, values, before)[5:]).all()


def test_orders_are_in_the_text_and_unused_results_are_reductions() -> None:
    text = _atomic(I32, "add", _PLAIN, 64, returns=False, sem="relaxed").text()
    assert "red.relaxed.gpu.global.add.s32" in text and "bar.sync" not in text
    text = _atomic(I32, "add", _PLAIN, 64, returns=False).text()
    assert "bar.sync 0" in text.split("red.release.gpu.global.add.s32")[0]
    text = _atomic(F32, "max", _PLAIN, 64).text()
    assert "atom.acq_rel.gpu.global.cas.b32" in text


@pytest.mark.parametrize("dtype", [I8, I16, I32, I64, F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_ptxas_takes_every_atomic(dtype: DType, target: str) -> None:
    for kind in ("add", "max", "xchg", "cas") if dtype.kind == "float" else ("add", "max", "and", "xchg", "cas"):
        assemble(_atomic(dtype, kind, _PLAIN, 64).text(target), target)


@pytest.mark.parametrize("warps", [1, 4])
def test_a_scalar_happens_once_and_all_threads_see_the_old_value(warps: int) -> None:
    k = MimwKernel([("counter", PointerType(I32)), ("x", PointerType(I32))], num_warps=warps)
    old = k.op("atomic.rmw", k.args[0], k.i32(5), kind="add")
    layout = blocked((32 * warps,), (0,), warps, 1)
    k.store(k.args[1], k.arange(32 * warps, layout), k.splat(old, (32 * warps,), layout))
    op = old.defining_op
    op.attrs["scratch"] = k._take(scratch_bytes(op), 16)
    counter, out = np.array([7], np.int32), np.zeros(32 * warps, np.int32)
    k.simulate([counter, out])
    assert counter[0] == 12 and (out == 7).all()


# ------------------------------------------------------------------------------------------------------------------------ views


@pytest.mark.parametrize(
    ("span", "offsets", "shape"),
    [(128, (0, 32), (32, 32)), (128, (8, 0), (8, 64)), (128, (16, 48), (16, 16)), (64, (32, 0), (32, 128)), (0, (3, 5), (8, 8)),
     (128, (24, 64), (8, 64))],
)  # fmt: skip
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_slice_is_read_and_written(
    span: int, offsets: tuple[int, int], shape: tuple[int, int], dynamic: bool
) -> None:
    whole = (64, 128)
    k = MimwKernel([("x", PointerType(BF16)), ("y", PointerType(BF16)), ("row", I32)], num_warps=4)
    x, y, row = k.args
    buffer = k.buffer(whole, BF16, swizzled(whole, BF16, span))
    layout = blocked(whole, (1, 0), 4, 4)
    tile = k.load(x, k.offsets(whole, layout, 128))
    k.op("memory.local_store", buffer, tile)
    k.op("barrier.cta_sync")
    first = k.arith("mul", row, 8) if dynamic and offsets[0] % 8 == 0 else row if dynamic else k.i32(offsets[0])
    part = k.op("memory.local_slice", buffer, [first, k.i32(offsets[1])], shape)
    small = blocked(shape, (1, 0), 4, 2)
    got = k.op("memory.local_load", part, layout=small)
    k.store_tile(y, got, shape[1])
    k.op("barrier.cta_sync")
    k.op("memory.local_store", part, k.op("arith.add", got, got))
    k.op("barrier.cta_sync")
    k.store(x, k.offsets(whole, layout, 128), k.op("memory.local_load", buffer, layout=layout))
    a = np.random.default_rng(0).integers(-9, 9, whole).astype(ml_dtypes.bfloat16)
    before, out = a.copy(), np.zeros(shape, ml_dtypes.bfloat16)
    k.simulate([a, out, offsets[0] // 8 if offsets[0] % 8 == 0 else offsets[0]])
    where = tuple(slice(o, o + n) for o, n in zip(offsets, shape, strict=True))
    assert (out == before[where]).all()
    before[where] *= 2
    assert (a == before).all()


def test_a_slice_across_the_swizzle_is_refused() -> None:
    k = MimwKernel([("col", I32)], num_warps=4)
    buffer = k.buffer((64, 64), BF16, swizzled((64, 64)))
    part = k.op("memory.local_slice", buffer, [k.i32(0), k.args[0]], (64, 32))
    k.op("memory.local_load", part, layout=blocked((64, 32), (1, 0), 4, 2))
    with pytest.raises(CompilationError, match="constant multiple of 32") as caught:
        k.text()
    assert caught.value.code == "local-slice" and "plain rows" in (caught.value.hint or "")


@pytest.mark.parametrize(("row", "col", "good"), [(8, 0, True), (16, 64, True), (4, 0, False), (8, 32, False)])
def test_engines_take_slices_that_start_where_the_swizzle_does(row: int, col: int, good: bool) -> None:
    shape = (4, 64) if row == 4 else (8, 32) if col == 32 else (8, 64)
    t = descriptor(shape, BF16)
    k = MimwKernel([("dst", t)], num_warps=1)
    buffer = k.buffer((64, 128), BF16, swizzled((64, 128)))
    part = k.op("memory.local_slice", buffer, [k.i32(row), k.i32(col)], shape)
    k.op("async_copy.tma_store", k.args[0], part, [k.i32(0), k.i32(0)])
    if good:
        assert "cp.async.bulk.tensor" in k.text()
        return
    with pytest.raises(CompilationError) as caught:
        k.text()
    assert caught.value.code in ("local-slice", "tma-block")


@pytest.mark.parametrize("shape", [(16, 64), (12, 40)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("span", [0, None])
def test_gather_and_scatter(shape: tuple[int, int], axis: int, span: int | None) -> None:
    if span is None and shape == (12, 40):
        span = 0
    k = MimwKernel(
        [("x", PointerType(I32)), ("index", PointerType(I32)), ("y", PointerType(I32)), ("z", PointerType(I32))]
    )
    x, index, y, z = k.args
    layout = blocked(shape, (1, 0), 4, 2)
    offsets = k.offsets(shape, layout, shape[1])
    buffer = k.buffer(shape, I32, swizzled(shape, I32, span))
    other = k.buffer(shape, I32, swizzled(shape, I32, span))
    k.op("memory.local_store", buffer, k.load(x, offsets))
    k.op("barrier.cta_sync")
    indices = k.load(index, offsets)
    got = k.op("memory.local_gather", buffer, indices, axis, layout=layout)
    k.store(y, offsets, got)
    k.op("memory.local_scatter", other, got, indices, axis)
    k.op("barrier.cta_sync")
    k.store(z, offsets, k.op("memory.local_load", other, layout=layout))
    rng = np.random.default_rng(5)
    a = rng.integers(-99, 99, shape).astype(np.int32)
    steps = np.broadcast_to(np.expand_dims(np.arange(shape[axis]), 1 - axis), shape)
    where = np.ascontiguousarray(rng.permuted(steps, axis=axis), np.int32)
    out, back = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    k.simulate([a, where, out, back])
    assert (out == np.take_along_axis(a, where, axis)).all()
    expected = np.zeros(shape, np.int32)
    np.put_along_axis(expected, where, out, axis)
    assert (back == expected).all()
