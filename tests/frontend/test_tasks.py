"""Tasks in tile IR: regions and their specs, replicas, what bodies see and keep, loops that carry handles and positions."""

from __future__ import annotations

from typing import Any

import mimw.language as ml
import mimw.language as tlx
from mimw.frontend.trace import Arg, trace
from mimw.ir.core import Module, OpBase, Region
from mimw.ir.ops.task import PartitionOp
from mimw.ir.types import F16, I32, InflightType, TensorDescType
from mimw.ir.verifier import verify
from tests.frontend.kernels import INT, P32, build, count, kernel, ops

DESC = Arg(TensorDescType((64, 64), F16))


def partition(module: Module) -> PartitionOp:
    found = ops(module, "task.partition")
    assert len(found) == 1
    assert isinstance(found[0], PartitionOp)
    return found[0]


def inside(region: Region, name: str) -> list[OpBase]:
    return [inner for op in region.block.ops for inner in op.walk() if inner.name == name]


def constant(op: OpBase, index: int) -> Any:
    made = op.operands[index].defining_op
    assert made is not None and made.name == "arith.constant"
    return made.attrs["value"]


def test_regions_stand_in_order_with_the_default_first() -> None:
    def fn(x):
        with tlx.async_tasks():
            with tlx.async_task(num_warps=1, num_regs=24):
                ml.store(x, 1.0)
            with tlx.async_task("default"):
                ml.store(x, 2.0)
            with tlx.async_task(num_warps=4, registers=232, replicate=2, name="mma"):
                ml.store(x, 3.0)

    op = partition(build(fn, x=P32))
    assert [(s.name, s.num_warps, s.num_regs, s.start_warp, s.replica) for s in op.specs()] == [
        ("default", 4, 0, 0, 0),
        ("task1", 1, 24, -1, 0),
        ("mma", 4, 232, -1, 0),
        ("mma", 4, 232, -1, 1),
    ]
    assert [constant(inside(r, "memory.store")[0], 1) for r in op.bodies] == [2.0, 1.0, 3.0, 3.0]


def test_the_default_task_has_the_launch_s_warps() -> None:
    def fn(x):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(x, 1.0)
            with tlx.async_task(num_warps=4, warp_group_start_id=8, replicate=2):
                ml.store(x, 2.0)

    module = trace(fn, {"x": P32}, num_warps=8)
    verify(module)
    assert [(s.num_warps, s.start_warp) for s in partition(module).specs()] == [(8, 0), (4, 8), (4, 12)]


def test_replicas_know_their_number() -> None:
    def fn(x):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(x, tlx.async_task_replica_id())
            with tlx.async_task(num_warps=4, replicate=3):
                r = tlx.async_task_replica_id()
                ml.store(x + 10 * r, r)

    op = partition(build(fn, x=Arg(P32.type, 16)))
    stored = [constant(inside(r, "memory.store")[0], 1) for r in op.bodies]
    assert stored == [0, 0, 1, 2]
    assert not ops(build(fn, x=P32), "task.replica_id")


def test_a_lone_default_task_is_ordinary_code() -> None:
    def fn(x, N: ml.constexpr):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(x, 1.0)
            if N > 1:
                with tlx.async_task(num_warps=4, replicate=N):
                    ml.store(x, 2.0)

    alone = build(fn, x=P32, N=1)
    assert not ops(alone, "task.partition")
    assert len(ops(alone, "memory.store")) == 1
    assert len(partition(build(fn, x=P32, N=2)).bodies) == 3


def test_else_branches_and_docstrings_between_tasks() -> None:
    def fn(x, wide: ml.constexpr):
        with tlx.async_tasks():
            """Two shapes of one kernel."""
            with tlx.async_task("default"):
                ml.store(x, 1.0)
            if wide:
                with tlx.async_task(num_warps=8):
                    ml.store(x, 2.0)
            else:
                with tlx.async_task(num_warps=4):
                    ml.store(x, 3.0)

    assert [s.num_warps for s in partition(build(fn, x=P32, wide=True)).specs()] == [4, 8]
    assert [s.num_warps for s in partition(build(fn, x=P32, wide=False)).specs()] == [4, 4]


def test_scalars_pointers_and_handles_are_captured() -> None:
    def fn(x, d, n):
        buf = tlx.local_alloc((64, 64), ml.float16, 2)
        bars = tlx.alloc_barriers(2)
        at = ml.program_id(0) * 64
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.barrier_expect_bytes(bars[0], 8192)
                tlx.async_descriptor_load(d, buf[0], [at, n], bars[0])
            with tlx.async_task(num_warps=4):
                tlx.barrier_wait(bars[0], 0)
                ml.store(x + at, ml.sum(tlx.local_load(buf[0]).to(ml.float32)))

    op = partition(build(fn, x=P32, d=DESC, n=INT))
    (load,) = inside(op.bodies[0], "async_copy.tma_load")
    assert load.operands[0].type is DESC.type
    assert op.parent is not None


def test_each_task_starts_from_what_was_before() -> None:
    def fn(x):
        y = 1.0
        with tlx.async_tasks():
            with tlx.async_task("default"):
                y = y + 1.0
                ml.store(x, y)
            with tlx.async_task(num_warps=4):
                ml.store(x, y)

    op = partition(build(fn, x=P32))
    assert [constant(inside(r, "memory.store")[0], 1) for r in op.bodies] == [2.0, 1.0]


def test_a_name_may_be_assigned_anew_after_the_region() -> None:
    def fn(x):
        y = 1.0
        with tlx.async_tasks():
            with tlx.async_task("default"):
                y = 2.0
            with tlx.async_task(num_warps=4):
                pass
        y = 3.0
        ml.store(x, y)

    assert constant(ops(build(fn, x=P32), "memory.store")[0], 1) == 3.0


def test_tasks_in_a_called_function_and_kernels_called_in_tasks() -> None:
    @kernel
    def helper(x, i):
        if i > 0:
            return x + i
        return x

    @kernel
    def body(x, n):
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(helper(x, n), 1.0)
            with tlx.async_task(num_warps=4):
                for i in range(n):
                    if i == 3:
                        break
                    ml.store(x + i, 2.0)

    def fn(x, n):
        body(x, n)

    op = partition(build(fn, x=P32, n=INT))
    assert inside(op.bodies[0], "control.inlined")
    assert inside(op.bodies[1], "control.break")


def test_an_endless_task() -> None:
    def fn(x):
        bars = tlx.alloc_barriers(1)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(x, 1.0)
            with tlx.async_task(num_warps=1):
                while True:
                    tlx.barrier_wait(bars[0], 0)

    assert partition(build(fn, x=P32)).bodies[1].block.ops[-1].name == "control.unreachable"


def test_a_loop_carries_an_accumulator_in_flight() -> None:
    def fn(x, n):
        a = tlx.local_alloc((64, 64), ml.float16, 2)
        b = tlx.local_alloc((64, 64), ml.float16, 2)
        acc = ml.zeros((64, 64), ml.float32)
        for i in range(n):
            acc = tlx.async_dot(a[i % 2], b[i % 2], acc)
            acc = tlx.async_dot_wait(1, acc)
        acc = tlx.async_dot_wait(0, acc)
        ml.store(x, ml.sum(acc))

    module = build(fn, x=P32, n=INT)
    (loop,) = ops(module, "control.for")
    assert isinstance(loop.results[0].type, InflightType)
    assert len(ops(module, "mma.as_inflight")) == 1


def test_a_loop_carries_a_buffer() -> None:
    def fn(x, n):
        buf = tlx.local_alloc((64,), ml.float32, 4)
        now = buf[0]
        for i in range(n):
            ml.store(x + i, ml.sum(tlx.local_load(now)))
            now = buf[i % 4]

    (loop,) = ops(build(fn, x=P32, n=INT), "control.for")
    assert str(loop.results[0].type) == "memdesc<64xf32, shared, alloc 4x64>"


def test_a_dead_view_is_not_carried() -> None:
    def fn(x, n):
        buf = tlx.local_alloc((64,), ml.float32, 4)
        now = buf[0]
        ml.store(x, ml.sum(tlx.local_load(now)))
        for i in range(n):
            now = buf[i % 4]
            ml.store(x + i, ml.sum(tlx.local_load(now)))

    (loop,) = ops(build(fn, x=P32, n=INT), "control.for")
    assert not loop.results


def test_a_younger_product_finishes_the_older_one() -> None:
    def fn(x):
        a = tlx.local_alloc((64, 64), ml.float16, 1)
        first = tlx.async_dot(a[0], a[0])
        second = tlx.async_dot(a[0], a[0])
        first = tlx.async_dot_wait(1, first)
        ml.store(x, ml.sum(first))
        ml.store(x, ml.sum(tlx.async_dot_wait(0, second)))

    waits = ops(build(fn, x=P32), "mma.async_dot_wait")
    assert [(w.attrs["pendings"], w.attrs["finished"]) for w in waits] == [(1, True), (0, False)]


def test_a_product_of_the_pass_before_is_finished_by_this_one_s() -> None:
    def fn(x, n):
        a = tlx.local_alloc((64, 64), ml.float16, 1)
        late = tlx.async_dot(a[0], a[0])
        for i in range(n):
            now = tlx.async_dot(a[0], a[0])
            late = tlx.async_dot_wait(1, late)
            ml.store(x + i, ml.sum(late))
            late = now
        ml.store(x, ml.sum(tlx.async_dot_wait(0, late)))

    module = build(fn, x=P32, n=INT)
    assert [w.attrs["finished"] for w in ops(module, "mma.async_dot_wait")] == [True, False]


# Pipelines.


def test_a_pipeline_carries_slot_and_phase() -> None:
    def fn(a, b, x, n):
        pipe = ml.pipeline(3, a=((64, 64), ml.float16), b=((64, 64), ml.float16), consumers=2)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                for k in range(n):
                    with pipe.produce() as s:
                        tlx.async_descriptor_load(a, s.a, [0, k], s.full)
                        tlx.async_descriptor_load(b, s.b, [k, 0], s.full)
            with tlx.async_task(num_warps=4, replicate=2):
                for k in range(n):
                    with pipe.consume() as s:
                        ml.store(x + k, ml.sum(tlx.local_load(s.a).to(ml.float32)))

    module = build(fn, a=DESC, b=DESC, x=P32, n=INT)
    full, empty = ops(module, "barrier.alloc")
    assert (full.results[0].type.arrive_count, empty.results[0].type.arrive_count) == (1, 2)
    op = partition(module)
    (expect,) = inside(op.bodies[0], "barrier.expect")
    assert expect.attrs["bytes"] == 2 * 64 * 64 * 2
    for region in op.bodies:
        (loop,) = inside(region, "control.for")
        assert [r.type for r in loop.results] == [I32, I32]  # slot and phase, nothing else
    (wait,) = inside(op.bodies[0], "barrier.wait")
    assert wait.operands[0].defining_op is not None
    assert wait.operands[0].defining_op.operands[0] is empty.results[0]
    (loop,) = inside(op.bodies[0], "control.for")
    assert [constant(loop, i) for i in (3, 4)] == [0, 1]  # the producer's first wait passes
    (loop,) = inside(op.bodies[1], "control.for")
    assert [constant(loop, i) for i in (3, 4)] == [0, 0]


def test_a_pipeline_over_nested_loops() -> None:
    def fn(a, n, m):
        pipe = ml.pipeline(3, a=((64, 64), ml.float16))
        with tlx.async_tasks():
            with tlx.async_task("default"):
                for i in range(m):
                    for k in range(n):
                        s = pipe.acquire()
                        tlx.async_descriptor_load(a, s.a, [i, k], s.full)
                        pipe.commit()
            with tlx.async_task(num_warps=4):
                for _ in range(m):
                    for _ in range(n):
                        s = pipe.wait()
                        pipe.release()

    op = partition(build(fn, a=DESC, n=INT, m=INT))
    assert [len(loop.results) for loop in inside(op.bodies[0], "control.for")] == [2, 2]
    assert [len(loop.results) for loop in inside(op.bodies[1], "control.for")] == [3, 3]  # waited, its phase, released


def test_a_consumer_gives_back_an_older_slot() -> None:
    def fn(x, n):
        pipe = ml.pipeline(4, a=((64, 64), ml.float16))
        pipe.wait()
        for k in range(n):
            s = pipe.wait()
            ml.store(x + k, ml.sum(tlx.local_load(s.a).to(ml.float32)))
            pipe.release()
        pipe.release()

    module = build(fn, x=P32, n=INT)
    (loop,) = ops(module, "control.for")
    assert sorted(constant(loop, i) for i in range(3, 6)) == [0, 0, 1]  # released 0, phase 0, waited 1


def test_a_pipeline_of_one_slot_and_of_stored_slots() -> None:
    def fn(x, n):
        pipe = ml.pipeline(1, a=((64,), ml.float32), tma=False)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                for _ in range(n):
                    with pipe.produce() as s:
                        tlx.local_store(s.a, ml.load(x + ml.arange(0, 64)))
            with tlx.async_task(num_warps=4):
                for k in range(n):
                    with pipe.consume() as s:
                        ml.store(x + k, ml.sum(tlx.local_load(s.a)))

    op = partition(build(fn, x=P32, n=INT))
    assert not inside(op.bodies[0], "barrier.expect")
    assert len(inside(op.bodies[0], "barrier.arrive")) == 1
    assert all(len(inside(r, "control.for")[0].results) == 1 for r in op.bodies)  # the phase alone


def test_a_straight_line_has_constant_positions() -> None:
    def fn(x):
        pipe = ml.pipeline(2, a=((64,), ml.float32))
        for _ in ml.static_range(3):
            s = pipe.wait()
            ml.store(x, ml.sum(tlx.local_load(s.a)))
            pipe.release()

    module = build(fn, x=P32)
    waits = ops(module, "barrier.wait")
    views = [w.operands[0].defining_op for w in waits]
    assert [(constant(v, 1), constant(w, 1)) for v, w in zip(views, waits, strict=True) if v] == [
        (0, 0),
        (1, 0),
        (0, 1),
    ]


def test_an_unused_slot_makes_no_views() -> None:
    def fn(n):
        pipe = ml.pipeline(2, a=((64,), ml.float32))
        for _ in range(n):
            with pipe.consume():
                pass

    assert not count(build(fn, n=INT))["memory.local_view"]


def test_a_pipeline_is_passed_to_a_kernel() -> None:
    @kernel
    def consume(pipe, x, n):
        for k in range(n):
            with pipe.consume() as s:
                ml.store(x + k, ml.sum(tlx.local_load(s.a)))

    def fn(x, n):
        pipe = ml.pipeline(2, a=((64,), ml.float32))
        consume(pipe, x, n)
        consume(pipe, x, n)

    first, second = ops(build(fn, x=P32, n=INT), "control.for")
    assert set(first.results) <= set(second.operands)  # the second goes on where the first ended


def test_symbolic_named_barriers_have_names_of_their_own() -> None:
    def fn(x):
        mine = ml.named_barrier(256)
        other = ml.named_barrier(128)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                mine.wait()
                other.arrive()
            with tlx.async_task(num_warps=4):
                mine.arrive()
                tlx.named_barrier_wait(9, 256)

    op = partition(build(fn, x=P32))
    (a,), (b,) = inside(op.bodies[0], "barrier.named_wait"), inside(op.bodies[0], "barrier.named_arrive")
    (c,), (d,) = inside(op.bodies[1], "barrier.named_arrive"), inside(op.bodies[1], "barrier.named_wait")
    assert a.attrs["name_hint"] == c.attrs["name_hint"] != b.attrs["name_hint"] != ""
    assert (a.attrs["count"], b.attrs["count"], d.attrs["number"], d.attrs["name_hint"]) == (256, 128, 9, "")


def test_slots_are_values_that_loops_and_branches_carry() -> None:
    def fn(x, n):
        pipe = ml.pipeline(3, a=((64,), ml.float32))
        s = pipe.wait()
        for i in range(n):
            ml.store(x + i, ml.sum(tlx.local_load(s.a)))
            pipe.release()
            if i > 2:
                s = pipe.wait()
        ml.store(x, ml.sum(tlx.local_load(s.a)))

    (loop,) = ops(build(fn, x=P32, n=INT), "control.for")
    assert [r.type for r in loop.results] == [I32] * 4  # the slot, waited, its phase, released
    (branch,) = ops(build(fn, x=P32, n=INT), "control.if")
    assert [r.type for r in branch.results] == [I32] * 3


def test_a_pipeline_in_a_record() -> None:
    def fn(a, x, n):
        both = (ml.pipeline(2, a=((64, 64), ml.float16)), 3)
        for k in range(n):
            for i in range(both[1]):
                with both[0].produce() as s:
                    tlx.async_descriptor_load(a, s.a, [i, k], s.full)

    outer, inner = ops(build(fn, a=DESC, x=P32, n=INT), "control.for")
    assert len(outer.results) == len(inner.results) == 2
