"""Programs that other tile languages compile without a word: here each is refused by the compiler, or by one run in the tile simulator.

``# ! code`` marks the line that is told. `COMPILE` are errors of a compile, which needs no arrays; `RUN` are faults that every schedule
shows, so that one run is enough; `SAFE` are programs that would be wrong elsewhere and that the compiler makes right.
"""

# ruff: noqa: F841
from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw import CompilationError, SimulationError, TensorDescriptor
from mimw.compiler import Options, compile_kernel
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.test_descriptor_arguments import simulated_map

pytestmark = pytest.mark.filterwarnings("ignore::mimw.MimwWarning")

COMPILE: list[tuple[mimw.Kernel, str]] = []
RUN: list[tuple[mimw.Kernel, str]] = []
SAFE: list[tuple[mimw.Kernel, str]] = []

N = 64 * 64


def refused(fn: Any) -> Any:
    COMPILE.append((mimw.kernel(fn), fn.__name__))
    return fn


def faulty(fn: Any) -> Any:
    RUN.append((mimw.kernel(fn), fn.__name__))
    return fn


def safe(fn: Any) -> Any:
    SAFE.append((mimw.kernel(fn), fn.__name__))
    return fn


def arguments(fn: mimw.Kernel) -> list[Any]:
    """What the parameters' names ask for: x, y: 4096 floats; a, d: descriptors of [64, 64] halves of a [128, 64] array; n: 3."""
    made: dict[str, Any] = {"x": np.arange(N, dtype=np.float32), "y": np.zeros(N, np.float32), "n": 3}
    for name, start in (("a", 1), ("d", 0)):
        array = np.full((128, 64), start, np.float16)
        made[name] = TensorDescriptor(array, array.shape, (64, 1), (64, 64))
    return [made[name] for name in fn.parameter_names]


def marked(fn: mimw.Kernel) -> tuple[int, str]:
    """The line that is told, and the code."""
    lines, first = inspect.getsourcelines(fn.fn)
    for i, line in enumerate(lines):
        found = re.search(r"# ! ([\w-]+)", line)
        if found:
            return first + i, found[1]
    raise AssertionError(f"{fn.name} has no marker")


# Deadlocks.


@refused
def a_wait_that_nobody_ends(x):
    bars = ml.alloc_barriers(1)
    ml.barrier_wait(bars[0], 0)  # ! barrier-never-arrived
    ml.store(x, 1.0)


@refused
def three_arrivals_and_one_arrives(x):
    bars = ml.alloc_barriers(1, 3)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(bars[0], 0)  # ! deadlock
            ml.store(x, 1.0)
        with ml.async_task(num_warps=4):
            ml.barrier_arrive(bars[0])


@refused
def two_tasks_that_wait_for_each_other(x):
    ping, pong = ml.alloc_barriers(1), ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(pong[0], 0)  # ! deadlock
            ml.barrier_arrive(ping[0])
        with ml.async_task(num_warps=4):
            ml.barrier_wait(ping[0], 0)
            ml.barrier_arrive(pong[0])


@faulty
def a_wait_that_depends_on_data(x):
    """Nothing is known of it when it is compiled."""
    bars = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(bars[0], 0)  # ! deadlock
        with ml.async_task(num_warps=4):
            if ml.load(x) > 0.0:
                ml.barrier_arrive(bars[0])


# Races for shared memory.


@faulty
def one_task_reads_what_another_writes(x, y):
    buf = ml.local_alloc((64,), ml.float32, 1)
    at = ml.arange(0, 64)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.local_store(buf[0], ml.load(x + ml.arange(0, 64)))
        with ml.async_task(num_warps=4):
            ml.store(y + ml.arange(0, 64), ml.local_load(buf[0]))  # ! race


@faulty
def a_slot_is_filled_again_before_it_was_read(x, y, n):
    buf = ml.local_alloc((64,), ml.float32, 1)
    full = ml.alloc_barriers(3)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(n):
                ml.local_store(buf[0], ml.load(x + i * 64 + ml.arange(0, 64)))
                ml.barrier_arrive(full[i])
        with ml.async_task(num_warps=4):
            for i in range(n):
                ml.barrier_wait(full[i], 0)
                ml.store(y + i * 64 + ml.arange(0, 64), ml.local_load(buf[0]))  # ! race


@faulty
def a_copy_lands_in_a_slot_that_is_read(a, y):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    full = ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_expect_bytes(full[0], 8192)
            ml.async_descriptor_load(a, buf[0], [0, 0], full[0])
            ml.barrier_wait(full[0], 0)
        with ml.async_task(num_warps=4):
            total = ml.sum(ml.local_load(buf[0]).to(ml.float32))  # ! read-before-wait
            ml.store(y, total)


# What is asynchronous and was not waited for.


@refused
def a_product_is_read_before_its_wait(y):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    c = ml.async_dot(a[0], b[0])
    rows = ml.arange(0, 64)
    ml.store(y + rows[:, None] * 64 + rows[None, :], c)  # ! in-flight


@faulty
def an_operand_is_overwritten_before_the_wait(y):
    a, b = ml.local_alloc((64, 64), ml.float16, 1), ml.local_alloc((64, 64), ml.float16, 1)
    ml.local_store(a[0], ml.full((64, 64), 1.0, ml.float16))
    ml.local_store(b[0], ml.full((64, 64), 1.0, ml.float16))
    ml.fence_async_shared()
    c = ml.async_dot(a[0], b[0])
    ml.local_store(a[0], ml.zeros((64, 64), ml.float16))  # ! write-before-wait
    c = ml.async_dot_wait(0, c)
    rows = ml.arange(0, 64)
    ml.store(y + rows[:, None] * 64 + rows[None, :], c)


@faulty
def a_slot_is_given_back_while_the_product_reads_it(a, y):
    ring = ml.local_alloc((64, 64), ml.float16, 1)
    full, empty = ml.alloc_barriers(1), ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(2):
                ml.barrier_wait(empty[0], i & 1 ^ 1)
                ml.barrier_expect_bytes(full[0], 8192)
                ml.async_descriptor_load(a, ring[0], [i * 64, 0], full[0])  # ! write-before-wait
        with ml.async_task(num_warps=4):
            acc = ml.alloc_accumulator((64, 64), ml.float32)
            for i in range(2):
                ml.barrier_wait(full[0], i & 1)
                acc = ml.async_dot(ring[0], ring[0], acc)
                ml.barrier_arrive(empty[0])
            acc = ml.async_dot_wait(0, acc)
            rows = ml.arange(0, 64)
            ml.store(y + rows[:, None] * 64 + rows[None, :], acc)


@faulty
def a_stored_buffer_is_overwritten(d):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    for i in range(2):
        ml.local_store(buf[0], ml.full((64, 64), 1.0, ml.float16))  # ! write-before-wait
        ml.fence_async_shared()
        ml.async_descriptor_store(d, buf[0], [i * 64, 0])
    ml.async_descriptor_store_wait(0)


@faulty
def a_copy_is_read_before_it_has_landed(a, y):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], 8192)
    ml.async_descriptor_load(a, buf[0], [0, 0], full[0])
    ml.store(y, ml.sum(ml.local_load(buf[0]).to(ml.float32)))  # ! read-before-wait
    ml.barrier_wait(full[0], 0)


@safe
def a_store_without_its_fence(d):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    ml.local_store(buf[0], ml.full((64, 64), 3.0, ml.float16))
    ml.async_descriptor_store(d, buf[0], [0, 0])
    ml.async_descriptor_store_wait(0)


# Bytes.


@refused
def half_of_the_bytes(a, y):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], 4096)  # ! barrier-bytes
    ml.async_descriptor_load(a, buf[0], [0, 0], full[0])
    ml.barrier_wait(full[0], 0)
    ml.store(y, ml.sum(ml.local_load(buf[0]).to(ml.float32)))


@refused
def no_bytes(a, y):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    full = ml.alloc_barriers(1)
    ml.async_descriptor_load(a, buf[0], [0, 0], full[0])
    ml.barrier_wait(full[0], 0)  # ! barrier-never-arrived
    ml.store(y, ml.sum(ml.local_load(buf[0]).to(ml.float32)))


# What is out of range or beyond what the machine has.


@refused
def slot_7_of_2(x):
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.local_store(buf[7], ml.zeros((64,), ml.float32))  # ! bad-index


@faulty
def slot_3_of_2_by_a_number_of_the_launch(x, n):
    buf = ml.local_alloc((64,), ml.float32, 2)
    ml.local_store(buf[n], ml.zeros((64,), ml.float32))  # ! slot-out-of-range


@refused
def barrier_5_of_1(x):
    bars = ml.alloc_barriers(1)
    ml.barrier_arrive(bars[5])  # ! bad-index


@faulty
def barrier_3_of_1_by_a_number_of_the_launch(x, n):
    bars = ml.alloc_barriers(1)
    ml.barrier_arrive(bars[n])  # ! barrier-out-of-range


@refused
def registers_of_more_than_a_cta(x):
    with ml.async_tasks():  # ! registers
        with ml.async_task("default", num_regs=200):
            ml.store(x, 1.0)
        with ml.async_task(num_warps=4, num_regs=200, replicate=2):
            ml.store(x + 1, 1.0)


@refused
def a_megabyte_of_shared_memory(x):
    buf = ml.local_alloc((256, 1024), ml.float32, 1)  # ! shared-memory
    at = ml.arange(0, 256)[:, None] * 1024 + ml.arange(0, 1024)[None, :]
    ml.local_store(buf[0], ml.load(x + at))
    ml.store(x + at, ml.local_load(buf[0]))


@refused
def tensor_memory_where_there_is_none(x):
    t = ml.local_alloc((128, 128), ml.float32, 1, ml.storage_kind.tmem)  # ! not-yet


@refused
def named_barrier_99(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.named_barrier_wait(99, 256)  # ! bad-argument
        with ml.async_task(num_warps=4):
            ml.named_barrier_arrive(99, 256)


@refused
def a_named_barrier_of_100_threads(x):
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.named_barrier_wait(3, 100)  # ! bad-argument
        with ml.async_task(num_warps=4):
            ml.named_barrier_arrive(3, 100)


@safe
def named_barrier_1(x):
    """The compiler's own barriers take other numbers."""
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.named_barrier_wait(1, 256)
            ml.store(x, ml.sum(ml.load(x + ml.arange(0, 1024))))
        with ml.async_task(num_warps=4):
            ml.store(x + 1024, ml.sum(ml.load(x + ml.arange(1024, 2048))))
            ml.named_barrier_arrive(1, 256)


@refused
def a_captured_tile(x):
    at = ml.arange(0, 128)
    with ml.async_tasks():
        with ml.async_task("default"):
            pass
        with ml.async_task(num_warps=4):
            ml.store(x + at, 1.0)  # ! captured-tile


def compiled(fn: mimw.Kernel, args: list[Any]) -> Any:
    signature = fn.signature(fn.specialise(args), args)
    return compile_kernel(fn.fn, signature, get_target("sm_90a"), Options(), assembled=False)


@pytest.mark.parametrize("fn", [f for f, _ in COMPILE], ids=[name for _, name in COMPILE])
def test_the_compiler_refuses(fn: mimw.Kernel) -> None:
    with pytest.raises(CompilationError) as caught:
        compiled(fn, arguments(fn))
    error = caught.value
    assert (error.loc.line, error.code) == marked(fn), str(error)
    assert error.loc.file == __file__


@pytest.mark.parametrize("fn", [f for f, _ in RUN], ids=[name for _, name in RUN])
def test_one_run_is_enough(fn: mimw.Kernel) -> None:
    """Each schedule ends in a fault; the plain one in that of the marked line."""
    compiled(fn, arguments(fn))
    with pytest.raises(SimulationError) as caught:
        fn.check(*arguments(fn), grid=1, schedules=1)
    error = caught.value
    assert error.loc is not None
    places = {error.loc.line, *(n.loc.line for n in error.notes if n.loc is not None)}
    line, code = marked(fn)
    assert error.code == code and line in places, str(error)


@pytest.mark.parametrize("fn", [f for f, _ in SAFE], ids=[name for _, name in SAFE])
def test_the_compiler_makes_it_right(fn: mimw.Kernel) -> None:
    args = arguments(fn)
    kernel = compiled(fn, args)
    records = iter(kernel.metadata.extra["descriptors"])
    passed = [simulated_map(a, next(records)) if isinstance(a, TensorDescriptor) else a for a in args]
    run_ptx(kernel.asm["ptx"], None, (1, 1, 1), passed, shared_bytes=kernel.metadata.shared_bytes)
    if fn.name == "a_store_without_its_fence":
        assert "fence.proxy.async" in str(kernel.asm["ptx"])
        assert (args[0].base[:64] == 3.0).all()
        return
    x = np.arange(N, dtype=np.float64)
    assert (args[0][0], args[0][1024]) == (x[:1024].sum(), x[1024:2048].sum())
    fn.check(*arguments(fn), grid=1)
