"""Wrong kernels of the MIMW layer: each gives exactly one error, with this code, at this line and column, saying this, with a hint
where one is to be expected. The markers are those of `test_wrong_kernels`.
"""

# fmt: off
# ruff: noqa: E501, F841, SIM117, B007
from __future__ import annotations

from typing import Any

import pytest

import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.frontend.error_codes import ERROR_CODES
from mimw.frontend.trace import Arg
from mimw.ir.types import F16, F32, TensorDescType
from tests.frontend.kernels import INT, P16, P32, build, kernel
from tests.frontend.test_wrong_kernels import expectation

DESC = Arg(TensorDescType((64, 64), F16))
DESC32 = Arg(TensorDescType((64, 64), F32))
WRONG: list[tuple[Any, dict[str, Any]]] = []


def wrong(**signature: Any) -> Any:
    def add(fn: Any) -> Any:
        WRONG.append((fn, signature))
        return fn

    return add


# Regions and tasks.


@wrong(x=P32)
def captured_tile(x):
    offs = ml.arange(0, 128)
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            ml.store(x + offs, 1.0)  # ! captured-tile @ x + offs | offs (tensor<128xi32>) is computed outside of this task


@wrong(x=P32)
def captured_tile_in_a_loop(x):
    acc = ml.zeros((16,), ml.float32)
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            for i in range(4):  # ! captured-tile @ for i | acc (tensor<16xf32>) is computed outside of this task
                acc += i
            ml.store(x + ml.arange(0, 16), acc)


@wrong(x=P32)
def statement_between(x):
    with ml.async_tasks():
        y = ml.program_id(0)  # ! statement-between-tasks @ y = | only tasks stand in the body of async_tasks
        with ml.async_task("default"):
            ml.store(x, y)


@wrong(x=P32)
def other_with_between(x):
    with ml.async_tasks():
        with ml.async_tasks():  # ! statement-between-tasks @ with ml | only tasks stand in the body of async_tasks
            pass


@wrong(n=INT)
def dynamic_if_around_a_task(n):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        if n > 0:  # ! constexpr-needed @ n > 0 | an if around tasks needs a constant condition
            with ml.async_task(num_warps=4):
                pass


@wrong(x=P32)
def no_default(x):
    with ml.async_tasks():  # ! bad-task @ with ml | async_tasks has no default task
        with ml.async_task(num_warps=4):
            pass


@wrong(x=P32)
def two_defaults(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task("default"):  # ! bad-task @ with ml | a second default task
            pass


@wrong(x=P32)
def unknown_keyword(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warp=4):  # ! bad-call @ ml.async_task | no parameter is named num_warp
            pass


@wrong(x=P32)
def unknown_keyword_of_the_region(x):
    with ml.async_tasks(exklusive=True):  # ! bad-call @ ml.async_tasks | no parameter is named exklusive
        pass


@wrong(x=P32)
def unknown_positional(x):
    with ml.async_tasks():
        with ml.async_task("producer"):  # ! bad-task @ ml.async_task | the only positional argument is 'default'
            pass


@wrong(x=P32)
def task_ids(x):
    with ml.async_tasks():
        with ml.async_task([0]):  # ! not-yet @ ml.async_task | automatic warp specialisation
            pass


@wrong(x=P32)
def warps_missing(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task():  # ! bad-task @ ml.async_task | num_warps is missing
            pass


@wrong(x=P32)
def three_warps(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=3):  # ! bad-task @ ml.async_task | num_warps=3; it is 1, 2, 4, 8 or 16
            pass


@wrong(x=P32)
def warps_of_default(x):
    with ml.async_tasks():
        with ml.async_task("default", num_warps=4):  # ! bad-task @ ml.async_task | the default task has the launch's num_warps
            pass


@wrong(x=P32)
def too_many_warps(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=16, replicate=2):  # ! bad-task @ with ml | 4 + 16 + 16 = 36 warps; a CTA has at most 32
            pass


@wrong(x=P32)
def odd_registers(x):
    with ml.async_tasks():
        with ml.async_task(num_warps=4, num_regs=100):  # ! bad-task @ ml.async_task | num_regs=100; it is a multiple of 8 from 24 to 256
            pass


@wrong(x=P32)
def few_registers(x):
    with ml.async_tasks():
        with ml.async_task(num_warps=4, registers=16):  # ! bad-task @ ml.async_task | num_regs=16; it is a multiple of 8
            pass


@wrong(x=P32)
def registers_twice(x):
    with ml.async_tasks():
        with ml.async_task(num_warps=4, registers=32, num_regs=32):  # ! bad-task @ ml.async_task | two names for one thing
            pass


@wrong(x=P32)
def registers_of_some(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4, num_regs=40):
            pass
        with ml.async_task(num_warps=4):  # ! bad-task @ with ml | num_regs is given for some tasks and not for this one
            pass


@wrong(x=P32)
def starts_of_some(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):  # ! bad-task @ with ml | warp_group_start_id is given for some tasks and not for this one
            pass
        with ml.async_task(num_warps=4, warp_group_start_id=4):
            pass


@wrong(x=P32)
def overlap_with_default(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4, warp_group_start_id=2):  # ! bad-task @ with ml | warps 2 to 5 of this task overlap warps 0 to 3
            pass


@wrong(x=P32)
def overlap_of_replicas(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4, warp_group_start_id=4, replicate=2):
            pass
        with ml.async_task(num_warps=1, warp_group_start_id=11):  # ! bad-task @ with ml | warps 11 to 11 of this task overlap warps 8 to 11
            pass


@wrong(x=P32)
def start_past_the_end(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4, warp_group_start_id=30):  # ! bad-task @ with ml | warps 30 to 33: a CTA has at most 32
            pass


@wrong(x=P32)
def replicated_default(x):
    with ml.async_tasks():
        with ml.async_task("default", replicate=2):  # ! bad-task @ ml.async_task | replicate=2 for the default task
            pass


@wrong(x=P32)
def same_names(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=1, name="load"):
            pass
        with ml.async_task(num_warps=1, name="load"):  # ! bad-task @ with ml | two tasks are named load
            pass


@wrong(n=INT)
def region_in_a_loop(n):
    for i in range(n):
        with ml.async_tasks():  # ! not-yet @ with ml | async_tasks inside a run-time loop
            with ml.async_task("default"):
                pass


@wrong(n=INT)
def region_in_a_branch(n):
    if n > 0:
        with ml.async_tasks():  # ! not-yet @ with ml | async_tasks inside a run-time branch
            with ml.async_task("default"):
                pass


@kernel
def opens_tasks():
    with ml.async_tasks():  # ! not-yet @ with ml | async_tasks inside a run-time loop
        with ml.async_task("default"):
            pass


@wrong()
def second_region():
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            pass
    with ml.async_tasks():  # ! not-yet @ with ml | a second async_tasks in a kernel
        with ml.async_task("default"):
            pass


@wrong()
def region_in_a_task():
    with ml.async_tasks():
        with ml.async_task("default"):
            with ml.async_tasks():  # ! bad-task @ with ml | async_tasks inside a task
                pass


@wrong()
def task_alone():
    with ml.async_task("default"):  # ! bad-task @ with ml | async_task outside of async_tasks
        pass


@wrong(n=INT)
def return_in_a_task(n):
    with ml.async_tasks():
        with ml.async_task("default"):
            if n > 0:
                return  # ! return-in-task @ return | return inside a task
        with ml.async_task(num_warps=4):
            pass


@wrong(n=INT)
def break_out_of_a_task(n):
    for i in ml.static_range(1):
        with ml.async_tasks():
            with ml.async_task("default"):
                if n > 0:
                    break  # ! unsupported-syntax @ break | break out of a task
            with ml.async_task(num_warps=4):
                pass


@wrong(x=P32)
def read_after_the_region(x):
    y = 1.0
    with ml.async_tasks():
        with ml.async_task("default"):
            y = 2.0
        with ml.async_task(num_warps=4):
            pass
    ml.store(x, y)  # ! task-local @ y) | y was assigned inside a task, where it is local


@wrong(x=P32)
def made_in_the_region(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            y = 2.0
        with ml.async_task(num_warps=4):
            pass
    ml.store(x, y)  # ! task-local @ y) | y was assigned inside a task, where it is local


@wrong(x=P32)
def made_in_the_only_task(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            y = 2.0
    ml.store(x, y)  # ! task-local @ y) | y was assigned inside a task, where it is local


@wrong(x=P32)
def read_in_another_task(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            y = 2.0
        with ml.async_task(num_warps=4):
            ml.store(x, y)  # ! undefined-name @ y) | y is used before it is assigned


@wrong(x=P32)
def replica_outside(x):
    ml.store(x, ml.async_task_replica_id())  # ! outside-task @ ml.async_task_replica_id | outside of a task


@wrong(x=P32)
def named_task(x):
    with ml.async_tasks():
        with ml.async_task("default") as t:  # ! unsupported-syntax @ t: | a task has no value to name
            pass


@wrong(x=P32)
def with_a_tile(x):
    with ml.load(x):  # ! unsupported-syntax @ with ml | with an f32 cannot be used in a kernel
        pass


@wrong()
def with_two():
    with ml.async_tasks(), ml.async_task("default"):  # ! unsupported-syntax @ with ml | with of several things
        pass


# Allocation.


@wrong()
def barriers_in_a_task():
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            ml.barrier_wait(ml.alloc_barriers(1)[0], 0)  # ! allocation-place @ ml.alloc_barriers | barriers are allocated in a task


@wrong(n=INT)
def barriers_in_a_loop(n):
    for i in range(n):
        ml.barrier_wait(ml.alloc_barriers(1)[0], 0)  # ! allocation-place @ ml.alloc_barriers | barriers are allocated in a run-time loop or branch


@wrong()
def buffer_in_a_task():
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            b = ml.local_alloc((64,), ml.float32, 1)  # ! allocation-place @ ml.local_alloc | a buffer is allocated in a task


@wrong()
def buffer_after_the_tasks():
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            pass
    b = ml.local_alloc((64,), ml.float32, 1)  # ! allocation-place @ ml.local_alloc | a buffer is allocated after the tasks


@wrong(n=INT)
def dynamic_ring(n):
    b = ml.local_alloc((64,), ml.float32, n)  # ! constexpr-needed @ ml.local_alloc | num must be a compile-time integer


@wrong()
def empty_ring():
    b = ml.local_alloc((64,), ml.float32, 0)  # ! bad-argument @ ml.local_alloc | 0 buffers


@wrong()
def tensor_memory():
    b = ml.local_alloc((64, 64), ml.float32, 1, ml.storage_kind.tmem)  # ! not-yet @ ml.local_alloc | tensor_memory


@wrong()
def odd_storage():
    b = ml.local_alloc((64, 64), ml.float32, 1, "smem")  # ! bad-argument @ ml.local_alloc | storage is 'smem'


@wrong()
def no_shape():
    b = ml.local_alloc((), ml.float32, 1)  # ! bad-shape @ ml.local_alloc | the shape is empty


@wrong()
def bools():
    b = ml.local_alloc((16,), ml.int1, 1)  # ! bad-argument @ ml.local_alloc | i1


# Barriers.


@wrong()
def no_barriers():
    b = ml.alloc_barriers(0)  # ! bad-argument @ ml.alloc_barriers | 0 barriers


@wrong()
def no_arrivals():
    b = ml.alloc_barriers(1, arrive_count=0)  # ! bad-argument @ ml.alloc_barriers | 0 arrivals a phase


@wrong()
def no_warps():
    b = ml.alloc_warp_barrier(1, num_warps=0)  # ! bad-argument @ ml.alloc_warp_barrier | 0 warps


@wrong()
def barrier_index():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(bars[2], 0)  # ! bad-index @ bars[2] | index 2 of an array of barriers with 2


@wrong()
def negative_index():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(bars[-1], 0)  # ! bad-index @ bars[-1] | index -1 of an array of barriers with 2


@wrong()
def whole_array():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(bars, 0)  # ! not-a-barrier @ ml.barrier_wait | one barrier, not an array of 2


@wrong()
def twice_indexed():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(bars[0][0], 0)  # ! bad-index @ bars[0][0] | one barrier, not an array


@wrong()
def wait_on_a_buffer():
    buf = ml.local_alloc((64,), ml.float32, 1)
    ml.barrier_wait(buf[0], 0)  # ! not-a-barrier @ ml.barrier_wait | takes a barrier of ml.alloc_barriers


@wrong()
def remote_wait():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(ml.remote_view(bars[0], 1), 0)  # ! remote-wait @ ml.barrier_wait | only the CTA that owns a barrier can wait on it


@wrong()
def remote_of_data():
    buf = ml.local_alloc((64,), ml.float32, 1)
    ml.remote_view(buf[0], 1)  # ! not-a-barrier @ ml.remote_view | remote_view takes barriers


@wrong()
def phase_of_floats():
    bars = ml.alloc_barriers(2)
    ml.barrier_wait(bars[0], 1.0)  # ! type-mismatch @ ml.barrier_wait | barrier_wait: phase is an integer, not 1.0


@wrong(n=INT)
def dynamic_bytes(n):
    bars = ml.alloc_barriers(2)
    ml.barrier_expect_bytes(bars[0], n)  # ! constexpr-needed @ ml.barrier_expect_bytes | size must be a compile-time integer


@wrong()
def too_many_bytes():
    bars = ml.alloc_barriers(2)
    ml.barrier_expect_bytes(bars[0], 1 << 20)  # ! bad-argument @ ml.barrier_expect_bytes | 1048576 bytes; a phase counts 0 to 1048575


@wrong()
def too_many_arrivals():
    bars = ml.alloc_barriers(2, 2)
    ml.barrier_arrive(bars[0], 3)  # ! bad-argument @ ml.barrier_arrive | 3 arrivals on a barrier whose phase takes 2


@wrong()
def float_predicate():
    bars = ml.alloc_barriers(2, 2)
    ml.barrier_arrive(bars[0], pred="yes")  # ! type-mismatch @ ml.barrier_arrive | pred is a condition


@wrong()
def named_zero():
    ml.named_barrier_wait(0, 64)  # ! bad-argument @ ml.named_barrier_wait | barrier number 0; they go from 1 to 15


@wrong()
def named_sixteen():
    ml.named_barrier_arrive(16, 64)  # ! bad-argument @ ml.named_barrier_arrive | barrier number 16


@wrong()
def named_count():
    ml.named_barrier_wait(1, 100)  # ! bad-argument @ ml.named_barrier_wait | 100 threads; a named barrier counts whole warps


@wrong()
def symbolic_count():
    b = ml.named_barrier(0)  # ! bad-argument @ ml.named_barrier | 0 threads


@wrong()
def fence_scope():
    ml.fence("cta")  # ! bad-argument @ ml.fence | fence: scope is 'cta'


# Buffers.


@wrong()
def slot_out_of_range():
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.local_load(buf[7])  # ! bad-index @ buf[7] | index 7 of a ring of buffers with 2


@wrong()
def slot_of_a_slot():
    buf = ml.local_alloc((64, 64), ml.float32, 2)
    ml.local_load(buf[0][0])  # ! bad-index @ buf[0][0] | is one buffer, not a ring


@wrong(x=P32)
def swapped_store(x):
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.local_store(ml.load(x + ml.arange(0, 64)), buf[0])  # ! not-a-buffer @ ml.local_store | local_store takes a buffer of ml.local_alloc, not a tensor<64xf32>


@wrong(x=P32)
def store_shape(x):
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.local_store(buf[0], ml.load(x + ml.arange(0, 32)))  # ! shape-mismatch @ ml.local_store | tensor<32xf32> does not fit the buffer


@wrong(x=P32)
def store_dtype(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    ml.local_store(buf[0], ml.load(x + ml.arange(0, 64)))  # ! type-mismatch @ ml.local_store | tensor<64xf32> does not fit the buffer


@wrong()
def store_of_a_ring():
    buf = ml.local_alloc((64,), ml.float16, 2)
    ml.local_store(buf, ml.zeros((64,), ml.float16))  # ! shape-mismatch @ ml.local_store | does not fit the buffer memdesc<2x64xf16


@wrong()
def arithmetic_on_a_buffer():
    buf = ml.local_alloc((64,), ml.float16, 2)
    x = buf[0] + 1  # ! type-mismatch @ buf[0] + | no value to compute with


@wrong()
def method_of_a_buffer():
    buf = ml.local_alloc((64,), ml.float16, 2)
    x = buf[0].sum()  # ! unknown-attribute @ buf[0].sum | has no attribute sum


@wrong()
def slice_outside():
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    x = ml.local_slice(buf[0], [0, 48], [64, 32])  # ! bad-index @ ml.local_slice | 48 to 80 of dimension 1, which has 64 elements


@wrong()
def slice_rank():
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    x = ml.local_slice(buf[0], [0], [64])  # ! rank @ ml.local_slice | 1 offsets and 1 sizes


@wrong()
def reinterpret_size():
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    x = ml.local_reinterpret(buf[0], ml.float32)  # ! shape-mismatch @ ml.local_reinterpret | has 8192 bytes, [64, 64] of f32 has 16384


@wrong()
def reshape_size():
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    x = ml.local_reshape(buf[0], (64, 32))  # ! shape-mismatch @ ml.local_reshape | has 8192 bytes


@wrong()
def trans_order():
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    x = ml.local_trans(buf[0], (1, 1))  # ! bad-axis @ ml.local_trans | no permutation of the 2 dimensions


@wrong(x=P32)
def gather_by_floats(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    y = ml.local_gather(buf[0], ml.zeros((32,), ml.float32), 0)  # ! type-mismatch @ ml.local_gather | the indices are integers


@wrong(x=P32)
def gather_rank(x):
    buf = ml.local_alloc((64, 8), ml.float16, 2)
    y = ml.local_gather(buf[0], ml.arange(0, 32), 0)  # ! rank @ ml.local_gather | indices tensor<32xi32>


@wrong()
def columns():
    ml.subslice(None, 0, 16)  # ! not-yet @ ml.subslice | subslice of tensor memory


# TMA.


@wrong(d=DESC)
def load_of_a_ring(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(d, buf, [0, 0], bars[0])  # ! shape-mismatch @ ml.async_descriptor_load | blocks of [64, 64] do not fit the buffer


@wrong(d=DESC32)
def load_dtype(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(d, buf[0], [0, 0], bars[0])  # ! type-mismatch @ ml.async_descriptor_load | blocks of f32 do not fit the buffer


@wrong(d=DESC)
def load_offsets(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(d, buf[0], [0], bars[0])  # ! rank @ ml.async_descriptor_load | offsets has 1 items for a block of 2 dimensions


@wrong(x=P16)
def load_through_a_pointer(x):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(x, buf[0], [0, 0], bars[0])  # ! not-a-descriptor @ ml.async_descriptor_load | takes a tensor descriptor, not a ptr<f16>


@wrong(d=DESC)
def load_cta_pair(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(d, buf[0], [0, 0], bars[0], two_ctas=True)  # ! not-yet @ ml.async_descriptor_load | two_ctas=True


@wrong(d=DESC)
def multicast_far(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_descriptor_load(d, buf[0], [0, 0], bars[0], multicast_targets=[0, 16])  # ! bad-argument @ ml.async_descriptor_load | multicast to CTA 16


@wrong(d=DESC)
def reduce_bits_of_floats(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    ml.async_descriptor_store(d, buf[0], [0, 0], store_reduce="xor")  # ! type-mismatch @ ml.async_descriptor_store | takes integers, not f16


@wrong(d=DESC)
def swapped_descriptor_store(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    ml.async_descriptor_store(buf[0], d, [0, 0])  # ! not-a-descriptor @ ml.async_descriptor_store | takes a tensor descriptor


@wrong(d=DESC)
def eviction(d):
    buf = ml.local_alloc((64, 64), ml.float16, 2)
    ml.async_descriptor_store(d, buf[0], [0, 0], "evict_soon")  # ! bad-argument @ ml.async_descriptor_store | eviction_policy is 'evict_soon'


@wrong(d=DESC)
def gather_rows(d):
    x = d.gather(ml.arange(0, 8), 0)  # ! not-yet @ d.gather | on Blackwell only


@wrong(d=DESC)
def load_a_row(d):
    x = d.load([0])  # ! rank @ d.load | offsets has 1 items


@wrong(d=DESC)
def least_of_bits(d):
    d.atomic_and([0, 0], ml.zeros((64, 64), ml.float16))  # ! type-mismatch @ d.atomic_and | takes i32, u32, i64, u64, not f16


@wrong(d=DESC)
def descriptor_shape(d):
    x = d.shape  # ! not-yet @ d.shape | the shape of a tensor descriptor


@wrong(x=P16)
def descriptor_stride(x):
    d = ml.make_tensor_descriptor(x, [128, 128], [128, 2], [64, 64])  # ! bad-argument @ ml.make_tensor_descriptor | the last stride is 2


@wrong(x=P16)
def descriptor_row(x):
    d = ml.make_tensor_descriptor(x, [128, 100], [100, 1], [64, 64])  # ! bad-argument @ ml.make_tensor_descriptor | a stride of 100 elements is no multiple of 16 bytes


@wrong(x=P16)
def descriptor_upwards(x):
    d = ml.make_tensor_descriptor(x, [128, 128], [-128, 1], [64, 64])  # ! bad-argument @ ml.make_tensor_descriptor | a stride of -128 elements; TMA needs positive ones


@wrong(x=P16)
def descriptor_inner(x):
    d = ml.make_tensor_descriptor(x, [128, 128], [128, 1], [64, 4])  # ! bad-shape @ ml.make_tensor_descriptor | has 8 bytes


@wrong(x=P16)
def descriptor_rank(x):
    d = ml.make_tensor_descriptor(x, [128], [128, 1], [64, 64])  # ! rank @ ml.make_tensor_descriptor | shape has 1 items


@wrong(x=P16)
def descriptor_argument_missing(x):
    d = ml.make_tensor_descriptor(None, x, [128, 128], [128, 1])  # ! bad-call @ ml.make_tensor_descriptor | the argument block_shape is missing


@wrong(x=P16)
def descriptor_whole_scratch(x):
    room = ml.allocate_tensor_descriptor(2)
    d = ml.make_tensor_descriptor(desc_ptr=room, base=x, shape=[128, 128], strides=[128, 1], block_shape=[64, 64])  # ! bad-argument @ ml.make_tensor_descriptor | room for 2 descriptors


@wrong(x=P16)
def descriptor_slot_range(x):
    room = ml.allocate_tensor_descriptor(2)
    d = room[2]  # ! bad-index @ room[2] | index 2 of room for 2 descriptors


@wrong(x=P16)
def bulk_without_barrier(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    ml.async_load(x, buf[0], bulk=True)  # ! bad-argument @ ml.async_load | bulk=True needs the barrier=


@wrong(x=P16)
def bulk_size(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    bars = ml.alloc_barriers(1)
    ml.async_load(x, buf[0], bulk=True, bulk_size=24, barrier=bars[0])  # ! bad-argument @ ml.async_load | 24 bytes; a bulk copy moves multiples of 16


@wrong(x=P16)
def bulk_too_large(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    ml.async_store(x, buf[0], 256)  # ! bad-argument @ ml.async_store | 256 bytes, the buffer


@wrong(x=P32)
def copy_dtype(x):
    buf = ml.local_alloc((64,), ml.float16, 2)
    ml.async_load(x + ml.arange(0, 64), buf[0])  # ! type-mismatch @ ml.async_load | elements of f32 do not fit the buffer


@wrong(x=P32)
def other_without_mask(x):
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.async_load(x + ml.arange(0, 64), buf[0], other=1.0)  # ! bad-argument @ ml.async_load | other= without mask=


@wrong(x=P32)
def odd_token(x):
    ml.async_load_commit_group([x])  # ! type-mismatch @ ml.async_load_commit_group | tokens are what ml.async_load gives


@wrong()
def negative_pendings():
    ml.async_load_wait_group(-1)  # ! bad-argument @ ml.async_load_wait_group | -1 pendings


# Products.


@wrong(x=P32)
def used_in_flight(x):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], b[0])
    y = c * 2.0  # ! in-flight @ c * | is still being written by async_dot


@wrong(x=P32)
def cast_in_flight(x):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], b[0])
    y = c.to(ml.float16)  # ! in-flight @ c.to | is still being written by async_dot


@wrong(x=P32)
def stored_in_flight(x):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float32, 1)
    c = ml.async_dot(a[0], ml.local_trans(a[0]))
    ml.local_store(b[0], c)  # ! in-flight @ ml.local_store | is still being written by async_dot


@wrong(x=P32)
def still_in_flight(x):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot_wait(1, ml.async_dot(a[0], b[0]))
    y = c + 1.0  # ! in-flight @ c + | is still being written by async_dot


@wrong(x=P32)
def wait_for_a_tile(x):
    y = ml.async_dot_wait(0, ml.zeros((64, 64), ml.float32))  # ! type-mismatch @ ml.async_dot_wait | takes what async_dot gives, not a finished tile


@wrong()
def inner_sizes():
    a, b = ml.local_alloc((64, 32), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], b[0])  # ! shape-mismatch @ ml.async_dot | K is 32


@wrong()
def right_in_registers():
    a = ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], ml.zeros((64, 64), ml.float16))  # ! not-a-buffer @ ml.async_dot | async_dot: B is a buffer in shared memory


@wrong()
def dot_of_rings():
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a, b)  # ! rank @ ml.async_dot | takes two-dimensional operands


@wrong()
def accumulator_shape():
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], b[0], ml.alloc_accumulator((64, 32)))  # ! shape-mismatch @ ml.async_dot | the accumulator is [64, 32], the product [64, 64]


@wrong()
def accumulator_dtype():
    a, b = ml.local_alloc((64, 64), ml.bfloat16, 1), ml.local_alloc((64, 64), ml.bfloat16, 1)
    c = ml.async_dot(a[0], b[0], ml.zeros((64, 64), ml.float16))  # ! type-mismatch @ ml.async_dot | accumulates in f32, not in f16


@wrong()
def dot_barriers():
    a, b = ml.local_alloc((64, 64), ml.bfloat16, 1), ml.local_alloc((64, 64), ml.bfloat16, 1)
    bars = ml.alloc_barriers(1)
    c = ml.async_dot(a[0], b[0], mBarriers=[bars[0]])  # ! not-yet @ ml.async_dot | mBarriers=


@wrong(n=INT)
def dot_predicate(n):
    a, b = ml.local_alloc((64, 64), ml.bfloat16, 1), ml.local_alloc((64, 64), ml.bfloat16, 1)
    c = ml.async_dot(a[0], b[0], pred=n > 0)  # ! not-yet @ ml.async_dot | pred=


@wrong(n=INT)
def use_of_nothing(n):
    a, b = ml.local_alloc((64, 64), ml.bfloat16, 1), ml.local_alloc((64, 64), ml.bfloat16, 1)
    c = ml.async_dot(a[0], b[0], use_acc=n > 0)  # ! bad-argument @ ml.async_dot | use_acc= without acc=


# Atomics, clusters, queries, pipelines.


@wrong(x=P32)
def atomic_order(x):
    ml.atomic_add(x, 1.0, sem="seq_cst")  # ! bad-argument @ ml.atomic_add | sem is 'seq_cst'


@wrong(x=P32)
def atomic_bits_of_floats(x):
    ml.atomic_xor(x, 1)  # ! type-mismatch @ ml.atomic_xor | atomic_xor takes integers, not f32


@wrong(n=INT)
def atomic_of_integer(n):
    ml.atomic_max(n, 1)  # ! not-a-pointer @ ml.atomic_max | atomic_max takes a pointer


@wrong(x=P32, n=INT)
def atomic_mask(x, n):
    ml.atomic_max(x, 1.0, mask=n)  # ! bad-mask @ ml.atomic_max | the mask is i32


@wrong()
def remote_shape():
    buf = ml.local_alloc((64,), ml.float32, 1)
    ml.remote_shmem_store(buf[0], ml.zeros((32,), ml.float32), 1)  # ! shape-mismatch @ ml.remote_shmem_store | does not fit the buffer


@wrong()
def remote_barrier_given():
    buf = ml.local_alloc((64,), ml.float32, 1)
    bars = ml.alloc_barriers(1)
    ml.async_remote_shmem_copy(buf[0], buf[0], 1, ml.remote_view(bars[0], 1))  # ! bad-argument @ ml.async_remote_shmem_copy | takes this CTA's barrier


@wrong(x=P32)
def size_of_a_pointer(x):
    y = ml.size_of(x)  # ! bad-argument @ ml.size_of | size_of takes a dtype


@wrong()
def ring_of_zero():
    y = ml.warp_spec.get_bufidx_phase(3, 0)  # ! bad-argument @ ml.warp_spec | 3 in a ring of 0


@wrong()
def pipeline_of_nothing():
    pipe = ml.pipeline(4)  # ! bad-argument @ ml.pipeline | no buffers


@wrong()
def pipeline_buffer():
    pipe = ml.pipeline(4, a=ml.float16)  # ! bad-argument @ ml.pipeline | a is the type f16


@wrong()
def pipeline_name():
    pipe = ml.pipeline(4, full=((64,), ml.float16))  # ! bad-argument @ ml.pipeline | a buffer cannot be named full


@wrong()
def pipeline_unknown_buffer():
    pipe = ml.pipeline(4, a=((64,), ml.float16))
    s = pipe.wait()
    x = ml.local_load(s.b)  # ! unknown-attribute @ s.b | has no attribute b


@wrong(n=INT)
def break_out_of_a_slot(n):
    pipe = ml.pipeline(4, a=((64,), ml.float16))
    for i in range(n):
        with pipe.consume() as s:
            if i > 2:
                break  # ! unsupported-syntax @ break | break out of a with


@wrong()
def pipeline_after_the_tasks():
    pipe = ml.pipeline(4, a=((64,), ml.float16))
    with ml.async_tasks():
        with ml.async_task("default"):
            s = pipe.acquire()
        with ml.async_task(num_warps=4):
            pass
    s = pipe.acquire()  # ! task-local @ pipe.acquire | this end of the pipeline was used inside a task


@pytest.mark.parametrize(("fn", "signature"), WRONG, ids=[fn.__name__ for fn, _ in WRONG])
def test_wrong_tasks(fn: Any, signature: dict[str, Any]) -> None:
    expected = expectation(fn)
    assert expected is not None
    line, column, code, what = expected
    with pytest.raises(CompilationError) as caught:
        build(fn, **signature)
    error = caught.value
    assert (error.code, error.loc.line, error.loc.col) == (code, line, column), str(error)
    assert error.loc.file == __file__
    assert what in error.message
    assert str(error).startswith(f"{__file__}:{line}:{column}: error[{code}]: ")
    assert code in ERROR_CODES


def _error(fn: Any, **signature: Any) -> CompilationError:
    with pytest.raises(CompilationError) as caught:
        build(fn, **signature)
    return caught.value


def test_a_captured_tile_is_told_with_both_lines() -> None:
    shown = str(_error(captured_tile, x=P32))
    assert "note: it is computed here\n    offs = ml.arange(0, 128)" in shown
    assert "note: the task\n    with ml.async_task(num_warps=4):" in shown
    assert "hint: compute it inside the task" in shown


def test_a_name_of_a_task_is_told_with_its_assignment() -> None:
    shown = str(_error(made_in_the_region, x=P32))
    assert "note: it is assigned here\n    y = 2.0" in shown


def test_two_default_tasks_are_told_with_both_lines() -> None:
    error = _error(two_defaults, x=P32)
    assert [n.loc.line for n in error.notes if n.loc] == [error.loc.line - 2]


def test_a_region_in_a_function_called_in_a_loop() -> None:
    def caller(n):
        for i in range(n):
            opens_tasks()

    error = _error(caller, n=INT)
    assert error.code == "not-yet"
    assert error.loc.call_site is not None
    assert error.notes[0].loc is not None


@pytest.mark.parametrize(
    "fn",
    [remote_wait, swapped_store, used_in_flight, registers_of_some, overlap_with_default, load_of_a_ring, named_zero, inner_sizes],
    ids=lambda fn: fn.__name__,
)
def test_hints(fn: Any) -> None:
    signature = next(s for f, s in WRONG if f is fn)
    assert _error(fn, **signature).hint
