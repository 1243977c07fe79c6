"""Proxy fences: with `fences`, what a task wrote plainly needs one before an engine touches it, behind the write and before the hand-over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.tile import TensorDescriptor, run
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, fault, kernel, line_of
from tests.sim.tile.test_mimw_faults import changed, ring_args

FENCE = "    barrier.fence_async_shared\n"
FENCED = changed(RING, "    memory.local_store %out, %w\n", "    memory.local_store %out, %w\n" + FENCE)

# One task writes, another has the engine store.
ACROSS = """
%zero = arith.constant {{value = 0}} : i32
%s = memory.local_alloc : memdesc<8x8xf32, shared>
%bars = barrier.alloc : barrier<1, arrive 1>
%b = barrier.view %bars, %zero : barrier<0, arrive 1>
task.partition {{tasks = ["default/4/0/-1/0", "storer/4/0/-1/0"]}} bodies {{
  %x = arith.constant {{value = 1.0}} : tensor<8x8xf32>
  memory.local_store %s, %x
  {before}
  barrier.arrive %b
  {behind}
  control.yield
}} bodies {{
  barrier.wait %b, %zero
  {there}
  async_copy.tma_store %y, %s, [%zero, %zero]
  async_copy.tma_store_wait {{pendings = 0}}
  control.yield
}}
"""


def across(**where: str) -> Any:
    text = ACROSS.format(**({"before": "", "behind": "", "there": ""} | where))
    return kernel("%y: tensor_desc<8x8xf32>", text), [TensorDescriptor(np.zeros((8, 8), np.float32), (8, 8))]


@pytest.mark.parametrize("seed", range(4))
def test_a_fence_behind_the_write(seed: int) -> None:
    args = ring_args()
    run(kernel(RING_ARGUMENTS, FENCED), args, (1,), seed=seed, fences=True)
    assert (args[1].tensor == 2).all()


@pytest.mark.parametrize("seed", range(4))
def test_no_fence(seed: int) -> None:
    e = fault(kernel(RING_ARGUMENTS, RING), ring_args(), seed=seed, fences=True)
    assert e.code == "missing-fence" and e.loc is not None and e.notes[0].loc is not None
    assert e.loc.line == line_of(RING, "async_copy.tma_store %y")
    assert e.notes[0].loc.line == line_of(RING, "memory.local_store")
    assert "a TMA store touches out, which task 'default' has written with no fence_async_shared behind it" in e.message


def test_a_fence_in_front_of_the_write_is_none() -> None:
    text = changed(RING, "    memory.local_store %out, %w\n", FENCE + "    memory.local_store %out, %w\n")
    assert fault(kernel(RING_ARGUMENTS, text), ring_args(), fences=True).code == "missing-fence"


@pytest.mark.parametrize("seed", range(4))
def test_the_writer_fences_before_it_hands_over(seed: int) -> None:
    fence = "barrier.fence_async_shared"
    module, args = across(before=fence)
    run(module, args, (1,), seed=seed, fences=True)
    for wrong in ({}, {"behind": fence}, {"there": fence}):
        module, args = across(**wrong)
        assert fault(module, args, seed=seed, fences=True).code == "missing-fence", wrong


def test_without_fences_nothing_is_asked() -> None:
    run(kernel(RING_ARGUMENTS, RING), ring_args(), (1,))


LIVE = """
%zero = arith.constant {value = 0} : i32
%two = arith.constant {value = 2} : i32
%one = arith.constant {value = 1} : i32
control.for %zero, %two, %one, [] body(%i: i32) {
  %bars = barrier.alloc : barrier<1, arrive 2>
  %b = barrier.view %bars, %zero : barrier<0, arrive 2>
  barrier.arrive %b
  control.yield
}
"""


def test_a_barrier_that_is_made_anew_while_it_is_in_use() -> None:
    e = fault(kernel("", LIVE), [])
    assert e.code == "barrier-live" and e.loc is not None and e.loc.line == line_of(LIVE, "barrier.alloc")
    assert (
        "bars[0] is made anew while it is in use: 0 phases complete, in the one under way 1 of 2 arrivals" in e.message
    )
    run(kernel("", LIVE.replace("arrive 2", "arrive 1")), [], (1,))  # its phase is complete: nobody hangs on it
