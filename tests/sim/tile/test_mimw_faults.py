"""Programs of the MIMW layer that are wrong: what is said, and at which line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.tile import TensorDescriptor
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, fault, kernel, line_of
from tests.sim.tile.test_mimw_tasks import GEMM_ARGUMENTS, gemm_text


def ring_args(trips: int = 5) -> list[Any]:
    x, y = np.ones((40, 8), np.float32), np.zeros((40, 8), np.float32)
    return [TensorDescriptor(x, (8, 8)), TensorDescriptor(y, (8, 8)), trips]


def changed(text: str, old: str, new: str, which: int = 0) -> str:
    """The program with the `which`-th `old` replaced."""
    parts = text.split(old)
    assert len(parts) > which + 1, old
    return old.join(parts[: which + 1]) + new + old.join(parts[which + 1 :])


# -- deadlocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_deadlock_names_every_task_and_what_it_waits_for(seed: int) -> None:
    text = changed(RING, "    barrier.arrive %e\n", "\n")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args(), seed=seed)
    assert e.code == "deadlock" and e.loc is not None
    lines = e.message.splitlines()
    assert lines[0] == "deadlock: all 2 tasks wait, and no copy or product is under way that could help"
    consumer, producer = line_of(text, "barrier.wait %f"), line_of(text, "barrier.wait %e")
    assert (
        lines[1:]
        == [
            f"  k.mir:{consumer}:5: task 'default' waits for phase 0 (parity 0) of full[0]: 1 phases complete, in the one under way "
            "0 of 1 arrivals; arrivals come from producer",
            f"  k.mir:{producer}:5: task 'producer' waits for phase 0 (parity 0) of empty[0]: 0 phases complete, in the one under way "
            "0 of 1 arrivals; nobody arrives on it",
        ]
        or lines[1:][::-1]
    )
    assert "hint: nothing has ever arrived on empty[0]" in str(e)


def test_deadlock_of_a_producer_that_starts_with_phase_0() -> None:
    text = changed(
        RING,
        "    %turn = arith.add %trip, %one : i32\n    %phase = arith.and %turn, %one",
        "    %phase = arith.and %trip, %one",
    )
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert e.code == "deadlock" and "(a producer for an empty slot) waits for phase 1" in str(e)


def test_deadlock_by_wrong_bytes_tells_both_numbers() -> None:
    text = RING.replace("bytes = 256", "bytes = 512")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert "1 of 1 arrivals, 256 of 512 bytes" in e.message
    assert "hint: full[0] was told to expect 512 bytes, its copies bring 256" in str(e)
    e = fault(kernel(RING_ARGUMENTS, RING.replace("bytes = 256", "bytes = 128")), ring_args())
    assert "full[0] was told to expect 128 bytes, its copies bring 256" in str(e)


def test_deadlock_by_a_missing_expect() -> None:
    text = changed(RING, "    barrier.expect %f {bytes = 256}\n", "")
    assert "256 bytes landed on full[0], but only 0 were expected: barrier_expect_bytes is missing" in str(
        fault(kernel(RING_ARGUMENTS, text), ring_args())
    )


def test_deadlock_by_too_few_arrivals() -> None:
    text = RING.replace(
        "%empty = barrier.alloc : barrier<2, arrive 1>", "%empty = barrier.alloc : barrier<2, arrive 2>"
    )
    text = text.replace(
        "%e = barrier.view %empty, %slot : barrier<0, arrive 1>",
        "%e = barrier.view %empty, %slot : barrier<0, arrive 2>",
    )
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert "1 of 2 arrivals" in e.message and "gets 1 of its 2 arrivals: arrive_count does not fit" in str(e)


CYCLE = """
%zero = arith.constant {value = 0} : i32
%p = barrier.alloc : barrier<1, arrive 1>
%q = barrier.alloc : barrier<1, arrive 1>
%p0 = barrier.view %p, %zero : barrier<0, arrive 1>
%q0 = barrier.view %q, %zero : barrier<0, arrive 1>
barrier.arrive %p0
barrier.arrive %q0
task.partition {tasks = ["default/4/0/-1/0", "left/1/0/-1/0"]} bodies {
  %one = arith.constant {value = 1} : i32
  barrier.wait %p0, %one
  barrier.arrive %q0
  control.yield
} bodies {
  %one = arith.constant {value = 1} : i32
  barrier.wait %q0, %one
  barrier.arrive %p0
  control.yield
}
"""


def test_deadlock_of_a_cycle() -> None:
    e = fault(kernel("", CYCLE), [], (2, 1))
    assert e.message.splitlines()[1:] == [
        "  k.mir:10:3: task 'default' of CTA (0, 0, 0) waits for phase 1 (parity 1) of p[0]: 1 phases complete, in the one under way "
        "0 of 1 arrivals; arrivals come from left, the code outside of tasks",
        "  k.mir:15:3: task 'left' of CTA (0, 0, 0) waits for phase 1 (parity 1) of q[0]: 1 phases complete, in the one under way "
        "0 of 1 arrivals; arrivals come from default, the code outside of tasks",
    ]
    assert e.program is None and str(e).endswith("look for the cycle")


def test_deadlock_without_tasks() -> None:
    text = "%zero = arith.constant {value = 0} : i32\n%b = barrier.alloc : barrier<1, arrive 1>\n"
    text += "%b0 = barrier.view %b, %zero : barrier<0, arrive 1>\nbarrier.wait %b0, %zero"
    e = fault(kernel("", text), [])
    assert e.code == "deadlock" and "the one task left waits" in e.message and e.loc is not None and e.loc.line == 4
    assert "the kernel waits for phase 0 (parity 0) of b[0]" in e.message and "nobody arrives on it" in e.message


def test_deadlock_at_a_named_barrier() -> None:
    text = """task.partition {tasks = ["default/4/0/-1/0", "one/1/0/-1/0"]} bodies {
  barrier.named_wait {count = 256, number = 3}
  control.yield
} bodies {
  barrier.named_arrive {count = 256, number = 3}
  control.yield
}"""
    e = fault(kernel("", text), [])
    assert "waits for named barrier 3: 160 of 256 threads" in e.message
    assert "hint: named barrier 3 gets 160 of its 256 threads" in str(e)


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_that_nobody_waits_for_until_the_kernel_ends(seed: int) -> None:
    text = changed(RING, "control.for %zero, %n, %one", "control.for %one, %n, %one")  # the consumer, one trip less
    text = changed(text, "%slot = arith.rem %i, %two", "%k = arith.sub %i, %one : i32\n    %slot = arith.rem %k, %two")
    text = changed(text, "%trip = arith.div %i, %two", "%trip = arith.div %k, %two")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args(), seed=seed)
    assert e.code == "unawaited-copy" and e.loc is not None and e.loc.line == line_of(text, "async_copy.tma_load")
    assert e.message == (
        "a TMA copy into ring[0] may still be under way when the kernel ends: nothing waits for this phase of full[0]"
    )
    assert e.program == (0, 0, 0) and e.iteration == (("i", 4),)


@pytest.mark.parametrize(("how", "line"), [(" {volatile = true}", 3), ("", 2)])  # the load that polls, or the loop
def test_livelock_by_polling(how: str, line: int) -> None:
    text = f"""%zero = arith.constant {{value = 0}} : i32
control.while condition {{
  %v = memory.load %x{how} : i32
  %c = arith.eq %v, %zero : i1
  control.yield %c
}} body {{
  control.yield
}}"""
    e = fault(kernel("%x: ptr<i32>", text), [np.zeros(1, np.int32)], (2,))
    assert e.code == "livelock" and e.loc is not None and e.loc.line == line


# -- slots and barriers used wrongly --------------------------------------------------------------------------------------


def test_reading_a_slot_before_its_copy_has_landed() -> None:
    text = changed(RING, "    barrier.wait %f, %phase\n", "")
    text = changed(text, "    %v = memory.local_load", "    barrier.wait %e, %one\n    %v = memory.local_load")
    found = set()
    for seed in range(1, 80):
        e = fault(kernel(RING_ARGUMENTS, text), ring_args(), seed=seed)
        found.add(e.code)
        if e.code == "read-before-wait":
            assert e.loc is not None and e.loc.line == line_of(text, "%v = memory.local_load")
            assert e.notes[0].loc is not None and e.notes[0].loc.line == line_of(text, "async_copy.tma_load")
            assert "] is read while a TMA copy into it is under way" in e.message
            assert "a barrier_wait for full[" in e.message
            assert e.task == "default" and "[program (0, 0, 0), task 'default', i = " in str(e)
    assert found == {"read-before-wait", "race", "deadlock"}  # while the copy is under way; before or after it


def test_overwriting_what_a_store_still_reads() -> None:
    text = changed(RING, "    async_copy.tma_store_wait {pendings = 0}\n", "")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert e.code == "write-before-wait" and e.loc is not None and e.loc.line == line_of(text, "memory.local_store")
    assert "out is written while a TMA store still reads it: an async_descriptor_store_wait is missing" in e.message
    assert e.notes[0].loc is not None and e.notes[0].loc.line == line_of(text, "async_copy.tma_store %y")
    assert f"k.mir:{e.notes[0].loc.line}:5: note: a TMA store was started here, i = 0" in str(e)


def gemm_args(trips: int = 6) -> list[Any]:
    a, b, c = np.ones((128, 96), np.float16), np.ones((96, 32), np.float16), np.zeros((128, 32), np.float16)
    return [TensorDescriptor(a, (128, 16)), TensorDescriptor(b, (16, 32)), TensorDescriptor(c, (64, 32)), trips]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_giving_back_a_slot_that_a_product_still_reads(seed: int) -> None:
    text = gemm_text(pendings=3)
    e = fault(kernel(GEMM_ARGUMENTS, text), gemm_args(), seed=seed)
    assert e.code == "write-before-wait" and e.task == "default" and e.loc is not None
    assert e.loc.line == line_of(text, "async_copy.tma_load %a")
    assert "is written while an asynchronous dot still reads it: an async_dot_wait is missing" in e.message
    assert e.notes[0].loc is not None and "mma.async_dot" in text.strip().splitlines()[e.notes[0].loc.line - 1]


def test_one_arrival_too_many() -> None:
    text = changed(RING, "    barrier.arrive %e\n", "    barrier.arrive %e {count = 2}\n")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert e.code == "barrier-overrun" and e.loc is not None and e.loc.line == line_of(text, "barrier.arrive %e")
    assert "empty[0] takes 1 arrivals a phase, this one makes 2 in phase 0" in e.message


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        (
            "%two = arith.constant {value = 2}",
            "%two = arith.constant {value = 3}",
            "barrier-out-of-range",
            "barrier 2 of full, which has 2",
        ),
        ("memdesc<2x8x8xf32", "memdesc<1x8x8xf32", "slot-out-of-range", "slot 1 of ring, which has 1"),
        ("bytes = 256", "bytes = 1048576", "barrier-bytes", "full[0] has more than 1048575 bytes under way"),
    ],
)
def test_out_of_range(old: str, new: str, code: str, says: str) -> None:
    text = RING.replace(old, new).replace("alloc 2x8x8", "alloc 1x8x8" if "1x8" in new else "alloc 2x8x8")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args())
    assert e.code == code and says in e.message and e.loc is not None


@pytest.mark.parametrize(
    ("op", "code", "says"),
    [
        ("barrier.named_wait {count = 128, number = 16}", "named-barrier-id", "named barrier 16: ids are 0 to 15"),
        (
            "barrier.named_wait {count = 100, number = 1}",
            "named-barrier-count",
            "100 threads at named barrier 1: a multiple of 32",
        ),
        (
            "barrier.named_wait {count = 96, number = 1}",
            "named-barrier-count",
            "128 threads come to named barrier 1, which takes 96",
        ),
        (
            "barrier.named_arrive {count = 256, number = 1} barrier.named_wait {count = 288, number = 1}",
            "named-barrier-count",
            "is used with 288 threads, and with 256 by those that wait at it",
        ),
    ],
)
def test_named_barriers_used_wrongly(op: str, code: str, says: str) -> None:
    e = fault(kernel("", op), [])
    assert e.code == code and says in e.message and e.loc is not None


def test_a_fault_in_one_task_ends_all() -> None:
    text = """%false = arith.constant {value = false} : i1
%zero = arith.constant {value = 0} : i32
%b = barrier.alloc : barrier<1, arrive 1>
%b0 = barrier.view %b, %zero : barrier<0, arrive 1>
task.partition {tasks = ["default/4/0/-1/0", "one/1/0/-1/0", "two/1/0/-1/0"]} bodies {
  barrier.wait %b0, %zero
  control.yield
} bodies {
  barrier.wait %b0, %zero
  control.yield
} bodies {
  debug.device_assert %false {message = "stop"}
  control.yield
}"""
    for seed in range(4):
        e = fault(kernel("", text), [], seed=seed)
        assert (e.code, e.task, e.program) == ("device-assert", "two", (0, 0, 0))


def test_a_fault_of_an_engine_is_told_at_the_line_and_task_that_started_it() -> None:
    text = """%zero = arith.constant {value = 0} : i32
%buf = memory.local_alloc : memdesc<512x512xf32, shared>
%b = barrier.alloc : barrier<1, arrive 1>
%b0 = barrier.view %b, %zero : barrier<0, arrive 1>
task.partition {tasks = ["default/4/0/-1/0", "loader/1/0/-1/0"]} bodies {
  barrier.wait %b0, %zero
  control.yield
} bodies {
  async_copy.tma_load %x, %buf, %b0, [%zero, %zero]
  barrier.wait %b0, %zero
  control.yield
}"""
    x = np.zeros((512, 512), np.float32)
    e = fault(kernel("%x: tensor_desc<512x512xf32>", text), [TensorDescriptor(x, (512, 512))], (2,))
    assert (e.code, e.task, e.program) == ("barrier-bytes", "loader", (0, 0, 0))
    assert e.loc is not None and e.loc.line == 9
    assert "1048576 bytes landed on b[0], 0 were expected" in e.message
