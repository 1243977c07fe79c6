"""Races for shared memory: found whatever the schedule was, told with both lines; every way of handing over is none."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.tile import run
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, fault, kernel, line_of
from tests.sim.tile.test_mimw_faults import changed, ring_args

# One task writes, the other reads, %HAND and %TAKE order the two.
PAIR = """
%zero = arith.constant {{value = 0}} : i32
%one = arith.constant {{value = 1}} : i32
%s = memory.local_alloc : memdesc<2x8xf32, shared>
%s0 = memory.local_view %s, %zero : memdesc<8xf32, shared, alloc 2x8>
%s1 = memory.local_view %s, %one : memdesc<8xf32, shared, alloc 2x8>
%bars = barrier.alloc : barrier<1, arrive 1>
%b = barrier.view %bars, %zero : barrier<0, arrive 1>
task.partition {{tasks = ["default/4/0/-1/0", "reader/4/0/-1/0"]}} bodies {{
  %x = arith.constant {{value = 1.0}} : tensor<8xf32>
  memory.local_store {written}, %x
  {hand}
  control.yield
}} bodies {{
  {take}
  %y = memory.local_load %s0 : tensor<8xf32>
  control.yield
}}
"""

ORDERED = {
    "mbarrier": ("barrier.arrive %b", "barrier.wait %b, %zero"),
    "named barrier": ("barrier.named_arrive {count = 256, number = 2}", "barrier.named_wait {count = 256, number = 2}"),
    "both wait": ("barrier.named_wait {count = 256, number = 2}", "barrier.named_wait {count = 256, number = 2}"),
    "cluster": ("cluster.sync", "cluster.sync"),
}


def pair(hand: str, take: str, written: str = "%s0") -> str:
    return PAIR.format(hand=hand, take=take, written=written)


@pytest.mark.parametrize("way", ORDERED)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_handed_over_is_no_race(way: str, seed: int) -> None:
    run(kernel("", pair(*ORDERED[way])), [], (1,), seed=seed)


@pytest.mark.parametrize("seed", range(6))
def test_different_slots_are_no_race(seed: int) -> None:
    run(kernel("", pair("", "", "%s1")), [], (1,), seed=seed)


def test_a_wait_for_the_wrong_phase_orders_nothing() -> None:
    text = pair("barrier.arrive %b", "barrier.wait %b, %one")
    assert {fault(kernel("", text), [], seed=seed).code for seed in range(8)} == {"race", "deadlock"}


@pytest.mark.parametrize("seed", range(6))
def test_a_race_is_found_by_every_schedule_and_told_with_both_lines(seed: int) -> None:
    text = pair("barrier.arrive %b", "")
    e = fault(kernel("", text), [], seed=seed)
    store, load = line_of(text, "memory.local_store"), line_of(text, "memory.local_load")
    assert e.code == "race" and e.loc is not None and e.notes[0].loc is not None
    assert {e.loc.line, e.notes[0].loc.line} == {store, load}
    first = "task 'default'" if e.loc.line == load else "task 'reader'"
    did, other = ("read", "written") if e.loc.line == load else ("written", "read")
    assert e.message == f"s[0] is {did} here and {other} by {first}, and nothing says which comes first"
    assert "hint: let the one that comes first arrive on a barrier" in str(e)


@pytest.mark.parametrize("seed", range(6))
def test_a_producer_that_does_not_wait_for_its_slot(seed: int) -> None:
    text = changed(RING, "    barrier.wait %e, %phase\n", "")
    assert fault(kernel(RING_ARGUMENTS, text), ring_args(), seed=seed).code in (
        "race",
        "write-before-wait",
        "barrier-overrun",
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_consumer_that_gives_its_slot_back_too_early(seed: int) -> None:
    text = changed(RING, "    barrier.arrive %e\n", "")
    text = changed(text, "    barrier.wait %f, %phase\n", "    barrier.wait %f, %phase\n    barrier.arrive %e\n")
    e = fault(kernel(RING_ARGUMENTS, text), ring_args(), seed=seed)
    assert e.code in ("race", "read-before-wait"), str(e)


@pytest.mark.parametrize("seed", range(6))
def test_a_right_ring_has_no_race(seed: int) -> None:
    args = ring_args()
    run(kernel(RING_ARGUMENTS, RING), args, (1,), seed=seed)
    np.testing.assert_array_equal(args[1].tensor, 2 * args[0].tensor)
