"""Tasks, barriers and TMA in PTX: what the text says, that ptxas takes it without complaint, that the simulator agrees with NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mimw.codegen.ptx.assemble import assemble
from mimw.diagnostics import CompilationError
from mimw.ir.core import Value
from mimw.ir.layout_factories import blocked, wgmma_accumulator
from mimw.ir.ops.control import IfOp
from mimw.ir.ops.task import TaskSpec
from mimw.ir.types import BF16, F32, I32, PointerType, TensorDescType, TensorType
from tests.codegen.ptx.lowering_kit import LOC
from tests.codegen.ptx.mimw_kit import MimwKernel, descriptor, swizzled


def product_ring(
    m: int = 64, n: int = 64, bk: int = 64, stages: int = 3, registers: int = 0, pending: int = 0
) -> MimwKernel:
    """C = A @ B for one tile: a producer warp with TMA, the default task with wgmma."""
    a_desc, b_desc = descriptor((m, bk)), descriptor((bk, n))
    k = MimwKernel([("a", a_desc), ("b", b_desc), ("c", PointerType(F32)), ("trips", I32)])
    k.registers = registers and 232
    a, b, c, trips = k.args
    full, empty = k.barriers(stages), k.barriers(stages)
    a_ring = k.buffer((m, bk), BF16, swizzled((m, bk)), stages)
    b_ring = k.buffer((bk, n), BF16, swizzled((bk, n)), stages)
    acc_type = TensorType((m, n), F32, wgmma_accumulator((m, n), 4))

    def at(i: Value) -> tuple[Value, Value]:
        return k.arith("rem", i, stages), k.arith("and", k.arith("div", i, stages), 1)

    def consumer() -> None:
        acc = k.op("mma.as_inflight", k.const(0.0, acc_type))
        with k.loop(trips, [acc]) as loop:
            slot, phase = at(loop.i)
            k.op("barrier.wait", k.view(full, slot), phase)
            first = k.op("arith.gt", loop.i, k.i32(0))
            made = k.op("mma.async_dot", k.view(a_ring, slot), k.view(b_ring, slot), loop.args[0], use_acc=first)
            done = k.op("mma.async_dot_wait", [made], pending)
            if pending:
                previous = k.arith("sub", loop.i, 1)
                k.op(
                    "barrier.arrive",
                    k.view(empty, k.arith("rem", previous, stages)),
                    k.op("arith.ge", previous, k.i32(0)),
                )
            else:
                k.op("barrier.arrive", k.view(empty, slot))
                done = k.op("mma.as_inflight", done)
            loop.next = [done]
        tile = k.op("mma.async_dot_wait", loop.outs, 0)
        k.store_tile(c, tile, n)

    def producer() -> None:
        with k.loop(trips, []) as loop:
            slot, phase = at(loop.i)
            k.op("barrier.wait", k.view(empty, slot), k.arith("xor", phase, 1))
            bar = k.view(full, slot)
            k.op("barrier.expect", bar, bytes=(m + n) * bk * 2)
            here = k.arith("mul", loop.i, bk)
            k.op("async_copy.tma_load", a, k.view(a_ring, slot), bar, None, None, [k.i32(0), here])
            k.op(
                "async_copy.tma_load", b, k.view(b_ring, slot), bar, None, None, [here, k.i32(0)], eviction="evict_last"
            )

    k.tasks(consumer, (TaskSpec("producer", 1, registers, 4), producer), total=8 if registers else 5)
    return k


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    ("m", "n", "bk", "stages", "pending", "trips"),
    [
        (64, 64, 64, 3, 0, 5),
        (64, 128, 64, 2, 1, 4),
        (128, 96, 32, 3, 0, 1),
        (64, 256, 64, 2, 0, 0),
        (64, 64, 128, 1, 0, 3),
        (64, 32, 64, 4, 1, 9),
    ],
)
def test_a_producer_feeds_a_consumer(m: int, n: int, bk: int, stages: int, pending: int, trips: int, seed: int) -> None:
    rng = np.random.default_rng(trips)
    depth = max(8, bk * trips)
    a = rng.integers(-3, 4, (m, depth)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (depth, n)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), 7, np.float32)
    k = product_ring(m, n, bk, stages, registers=40, pending=pending)
    k.simulate([(a, k.args[0].type), (b, k.args[1].type), c, trips], seed=seed)
    assert (c == (a.astype(np.float32) @ b.astype(np.float32) if trips else 0)).all()


def test_the_text_has_a_section_a_task_and_ptxas_keeps_products_in_flight() -> None:
    text = product_ring(128, 128, registers=40, pending=1).text()
    assert ".reqntid 256, 1, 1" in text and ".minnctapersm 1" in text
    assert ".param .align 64 .b8 p_a[128]" in text and "cvta.param.u64" in text
    default, producer = text.split("// ---- task producer, warp 4")
    assert "// ---- task default, warps 0 to 3" in default
    assert default.count("setmaxnreg.dec.sync.aligned.u32 232") == 1
    assert (
        default.count("setmaxnreg.dec.sync.aligned.u32 40") == 1
    )  # first in the warp group's branch, before the task's
    assert "cp.async.bulk.tensor" in producer and "wgmma" not in producer
    assert producer.count("elect.sync") == 1 and producer.count("bar.sync \t0;".replace("\t", "")) == 2
    done = assemble(text, "sm_90a")
    assert not done.warnings and not done.spill_stores


def test_registers_are_handed_over_only_when_asked() -> None:
    assert "setmaxnreg" not in product_ring().text()


def test_several_small_tasks_share_a_warp_group() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=1)
    (x,) = k.args

    def put(at: int) -> None:
        k.op("memory.store", k.op("memory.ptr_add", x, k.i32(at)), k.i32(at + 10))

    k.tasks(
        lambda: put(0),
        (TaskSpec("one", 1, 0, 1), lambda: put(1)),
        (TaskSpec("two", 2, 0, 4), lambda: put(2)),
        (TaskSpec("late", 1, 0, 7), lambda: put(3)),
        total=8,
    )
    out = np.zeros(5, np.int32)
    text = k.simulate([out])
    assert list(out) == [10, 11, 12, 13, 0]
    assert [t for t in ("default", "one", "two", "late") if f"task {t}," in text] == ["default", "one", "two", "late"]
    assert text.count("bar.sync 0") == 6  # four tasks, and the idle warps 2, 3 and 6


def test_thread_indices_count_from_the_tasks_first_warp() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=4)
    (x,) = k.args

    def put(warps: int, base: int) -> None:
        layout = blocked((32 * warps,), (0,), warps, 1)
        offsets = k.arange(32 * warps, layout)
        k.store(x, k.op("arith.add", offsets, k.const(base, offsets.type)), offsets)

    k.tasks(
        lambda: put(4, 0),
        (TaskSpec("one", 1, 0, 4), lambda: put(1, 128)),
        (TaskSpec("b", 4, 0, 8), lambda: put(4, 160)),
    )
    out = np.zeros(288, np.int32)
    k.simulate([out])
    assert list(out) == [*range(128), *range(32), *range(128)]


def test_captured_addresses_are_formed_again_in_each_task() -> None:
    k = MimwKernel([("x", PointerType(I32)), ("n", I32)], num_warps=4)
    x, n = k.args
    bars = k.barriers(2)
    second = k.view(bars, k.i32(1))
    twice = k.arith("mul", n, 2)
    buffer = k.buffer((32,), I32, swizzled((32,), I32, 0))

    def reader() -> None:
        k.op("barrier.wait", second, k.i32(0))
        tile = k.op("memory.local_load", buffer, layout=blocked((32,), (0,), 4, 1))
        k.store(x, k.arange(32, tile.type.layout), tile)

    def writer() -> None:
        t = TensorType((32,), I32, blocked((32,), (0,), 1, 1))
        k.op("memory.local_store", buffer, k.splat(twice, (32,), t.layout))
        k.op("barrier.arrive", second)

    k.tasks(reader, (TaskSpec("writer", 1, 0, 4), writer))
    out = np.zeros(32, np.int32)
    text = k.simulate([out, 21])
    assert (out == 42).all()
    assert "bar.warp.sync" in text.split("task writer")[1]  # the leader speaks when all lanes have written


def test_a_return_before_the_tasks_is_refused() -> None:
    k = MimwKernel([("n", I32)])
    branch = IfOp(k.op("arith.gt", k.args[0], k.i32(3)), loc=LOC)
    with k.b.at(branch.then.block):
        k.op("control.return", [])
    with k.b.at(branch.orelse.block):
        k.op("control.yield", [])
    k.b.insert(branch)
    k.tasks(lambda: None, (TaskSpec("other", 1, 0, 4), lambda: None))
    with pytest.raises(CompilationError, match="return before async_tasks") as caught:
        k.text()
    assert caught.value.code == "not-yet"


# --------------------------------------------------------------------------------------------------------------------- barriers


def test_named_barriers_join_two_tasks() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=4)
    (x,) = k.args
    buffer = k.buffer((128,), I32, swizzled((128,), I32, 0))
    layout = blocked((128,), (0,), 4, 1)

    def reader() -> None:
        k.op("barrier.named_wait", None, count=256, number=9)
        tile = k.op("memory.local_load", buffer, layout=layout)
        k.store(x, k.arange(128, layout), tile)

    def writer() -> None:
        k.op("memory.local_store", buffer, k.arange(128, layout))
        k.op("barrier.named_arrive", k.i32(9), count=256)

    k.tasks(reader, (TaskSpec("writer", 4, 0, 4), writer))
    out = np.zeros(128, np.int32)
    text = k.simulate([out])
    assert list(out) == list(range(128))
    assert "bar.sync 9, 256" in text and "bar.arrive 9, 256" in text


def test_every_thread_arrives_on_a_warp_barrier() -> None:
    k = MimwKernel([("x", PointerType(I32))], num_warps=4)
    bar = k.view(k.barriers(1, 32, per_thread=True), k.i32(0))

    def reader() -> None:
        k.op("barrier.wait", bar, k.i32(0))
        k.op("memory.store", k.args[0], k.i32(5))

    k.tasks(reader, (TaskSpec("speaker", 1, 0, 4), lambda: k.op("barrier.arrive", bar) and None))
    out = np.zeros(1, np.int32)
    text = k.simulate([out])
    assert out[0] == 5
    assert "@" not in text.split("mbarrier.arrive")[0].splitlines()[-1]


@pytest.mark.parametrize("pred", [False, True])
def test_predicates_of_waits_and_arrivals(pred: bool) -> None:
    k = MimwKernel([("n", I32), ("x", PointerType(I32))], num_warps=4)
    bar = k.view(k.barriers(1, 2), k.i32(0))
    yes = k.op("arith.gt", k.args[0], k.i32(3))
    k.op("barrier.arrive", bar, yes, count=2)
    k.op("barrier.wait", bar, k.i32(0), yes)
    k.op("memory.store", k.args[1], k.i32(5))
    out = np.zeros(1, np.int32)
    k.simulate([4 if pred else 3, out])
    assert out[0] == 5


def test_a_task_of_several_warps_meets_before_it_speaks() -> None:
    k = MimwKernel([], num_warps=4)
    bar = k.view(k.barriers(1), k.i32(0))
    k.op("barrier.wait", bar, k.i32(1))
    k.op("barrier.arrive", bar)
    k.op("barrier.arrive", bar)
    text = k.text()
    assert text.count("bar.sync 0") == 2  # the start, and one for both arrivals


# -------------------------------------------------------------------------------------------------------------------------- TMA


@pytest.mark.parametrize(
    ("shape", "block", "span", "at"),
    [
        ((40, 72), (16, 64), None, (32, 16)),
        ((64, 256), (64, 256), None, (0, 0)),
        ((16, 48), (8, 16), 0, (8, 40)),
        ((4, 8, 64), (2, 8, 64), None, (1, 0, 0)),
        ((64,), (32,), 0, (48,)),
        ((600, 32), (512, 32), None, (88, 0)),
    ],
)
@pytest.mark.parametrize("reduce", ["", "add"])
def test_blocks_go_in_and_out(
    shape: tuple[int, ...], block: tuple[int, ...], span: int | None, at: tuple[int, ...], reduce: str
) -> None:
    t = descriptor(block, BF16, span)
    k = MimwKernel([("src", t), ("dst", t), *((f"c{i}", I32) for i in range(len(shape)))], num_warps=4)
    src, dst, *coords = k.args
    bar = k.view(k.barriers(1), k.i32(0))
    buffer = k.buffer(block, BF16, swizzled(block, BF16, span))
    k.op("barrier.expect", bar, bytes=2 * int(np.prod(block)))
    k.op("async_copy.tma_load", src, buffer, bar, None, None, coords)
    k.op("barrier.wait", bar, k.i32(0))
    k.op("async_copy.tma_store", dst, buffer, coords, reduce=reduce)
    k.op("async_copy.tma_store_wait", pendings=0)
    rng = np.random.default_rng(1)
    a = rng.integers(-9, 9, shape).astype(ml_dtypes.bfloat16)
    b = rng.integers(-9, 9, shape).astype(ml_dtypes.bfloat16)
    expected = b.copy()
    where = tuple(slice(x, x + n) for x, n in zip(at, block, strict=True))
    expected[where] = a[where] + b[where] if reduce else a[where]
    k.simulate([(a, t), (b, t), *at])
    assert (b == expected).all()
    assert not assemble(k.text(), "sm_90a").warnings


def test_bytes_go_in_and_out() -> None:
    k = MimwKernel([("src", PointerType(I32)), ("dst", PointerType(I32)), ("n", I32)], num_warps=1)
    bar = k.view(k.barriers(1), k.i32(0))
    buffer = k.buffer((64,), I32, swizzled((64,), I32, 0))
    k.op("barrier.expect", bar, bytes=64)
    k.op("async_copy.bulk_load", k.args[0], buffer, bar, k.args[2])
    k.op("barrier.wait", bar, k.i32(0))
    k.op("async_copy.bulk_store", k.args[1], buffer, k.args[2])
    src, dst = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    text = k.simulate([src, dst, 64])
    assert (dst[:16] == src[:16]).all() and not dst[16:].any()
    assert "cp.async.bulk.wait_group 0" in text  # nobody waited: the task does before it ends


def test_a_block_that_tma_cannot_copy_is_refused() -> None:
    t = TensorDescType((8, 9), BF16, swizzled((8, 9), BF16, 0))
    k = MimwKernel([("src", t)])
    bar = k.view(k.barriers(1), k.i32(0))
    k.op(
        "async_copy.tma_load",
        k.args[0],
        k.buffer((8, 9), BF16, swizzled((8, 9), BF16, 0)),
        bar,
        None,
        None,
        [k.i32(0)] * 2,
    )
    with pytest.raises(CompilationError, match="multiple of 16 bytes"):
        k.text()


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_copies_assemble_on_every_target_with_tma(target: str) -> None:
    t = descriptor((64, 64), F32)
    k = MimwKernel([("src", t), ("dst", t)], num_warps=4)
    full = k.view(k.barriers(1), k.i32(0))
    buffer = k.buffer((64, 64), F32, swizzled((64, 64), F32))
    at = [k.i32(0), k.i32(64)]

    def copier() -> None:
        k.op("async_copy.tma_prefetch", k.args[0], None, at)
        k.op("barrier.expect", full, bytes=64 * 64 * 4)
        k.op("async_copy.tma_load", k.args[0], buffer, full, None, None, at, eviction="evict_first")

    def storer() -> None:
        k.op("barrier.wait", full, k.i32(0))
        k.op("async_copy.tma_store", k.args[1], buffer, at, eviction="evict_last")
        k.op("async_copy.tma_store_wait", pendings=0, whole=True)

    k.tasks(storer, (TaskSpec("copier", 4, 0 if target == "sm_120a" else 40, 4), copier))
    text = k.text(target)
    assert not assemble(text, target).warnings
    assert text.count("L2::cache_hint") == 4 and text.count("bulk.prefetch.tensor") == 2


def test_a_task_without_tiles_runs_on_one_of_its_warps() -> None:
    k = product_ring()
    text = k.text()
    producer = text.split("task producer")[1]
    assert "first_warp" not in producer  # it has one warp
    k = MimwKernel([("x", PointerType(I32))], num_warps=4)
    bars = k.barriers(2)
    one, two = k.view(bars, k.i32(0)), k.view(bars, k.i32(1))

    def light() -> None:
        k.op("barrier.arrive", one)
        k.op("barrier.wait", two, k.i32(0))
        k.op("memory.store", k.args[0], k.i32(7))

    def heavy() -> None:
        k.op("barrier.wait", one, k.i32(0))
        layout = blocked((128,), (0,), 4, 1)
        k.store(k.op("memory.ptr_add", k.args[0], k.i32(1)), k.arange(128, layout), k.arange(128, layout))
        k.op("barrier.arrive", two)

    k.tasks(light, (TaskSpec("heavy", 4, 0, 4), heavy))
    k.op("memory.store", k.op("memory.ptr_add", k.args[0], k.i32(129)), k.i32(9))
    out = np.zeros(130, np.int32)
    text = k.simulate([out], seed=4)
    assert list(out) == [7, *range(128), 9]
    default, other = text.split("task heavy")
    assert "task_done:" in default and "task_done:" not in other
    assert default.count("bar.sync 1, 128") == 1  # the task's warps meet before they go on


def test_waits_that_give_up_cost_neither_spills_nor_warnings() -> None:
    k = product_ring(pending=1)
    k.function.options["hang_timeout"] = 10**9
    text = k.text()
    assert text.count("%globaltimer") == 6 and text.count("@!%ends") == 2
    done = assemble(text, "sm_90a")
    assert not done.warnings and not done.spill_stores
