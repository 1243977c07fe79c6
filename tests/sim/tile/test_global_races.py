"""Races for global memory: plain accesses of one place that nothing orders are a warning; every way of handing over is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.tile import TensorDescriptor, run
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, kernel, line_of
from tests.sim.tile.test_mimw_faults import ring_args

HEAD = """
%zero = arith.constant {value = 0} : i32
%one = arith.constant {value = 1} : i32
%pid = control.program_id {axis = 0} : i32
%first = arith.eq %pid, %zero : i1
"""

# CTA 0 writes; CTA 1 reads, and both do something before and behind.
HANDED = """
control.if %first then {{
  memory.store %x, %one
  {hand}
  control.yield
}} orelse {{
  {take}
  %v = memory.load %x : i32
  memory.store %y, %v
  control.yield
}}
"""
SET = '%s = atomic.rmw %flag, %one {kind = "xchg"} : i32'
POLL = """control.while condition {
    %v0 = atomic.rmw %flag, %zero {kind = "add"} : i32
    %c = arith.eq %v0, %zero : i1
    control.yield %c
  } body {
    control.yield
  }"""


def found(arguments: str, text: str, args: list[Any], grid: tuple[int, ...], seed: int = 0) -> list[Any]:
    return run(kernel(arguments, text), args, grid, seed=seed, checks="all").findings


POINTERS = "%x: ptr<i32>, %y: ptr<i32>, %flag: ptr<i32>"


def handed(hand: str, take: str) -> str:
    return HEAD + HANDED.format(hand=hand, take=take)


def three() -> list[Any]:
    return [np.zeros(1, np.int32) for _ in range(3)]


@pytest.mark.parametrize("seed", range(3))
def test_a_write_and_a_read_of_two_ctas(seed: int) -> None:
    text = handed("", "")
    (finding,) = found(POINTERS, text, three(), (2,), seed)
    assert (finding.code, finding.severity) == ("global-race", "warning")
    lines = {finding.loc.line, finding.notes[0].loc.line}
    assert lines == {line_of(text, "memory.store %x"), line_of(text, "memory.load %x")}
    assert finding.facts["array"] == "x" and "CTA (0, 0, 0)" in str(finding)


@pytest.mark.parametrize("seed", range(4))
def test_what_an_atomic_hands_over_is_no_race(seed: int) -> None:
    args = three()
    assert found(POINTERS, handed(SET, POLL), args, (2,), seed) == []
    assert args[1][0] == 1


def test_a_flag_that_is_set_too_early_hands_over_nothing() -> None:
    text = handed("", POLL).replace("  memory.store %x", f"  {SET}\n  memory.store %x")
    assert [f.code for f in found(POINTERS, text, three(), (2,), 1)] == ["global-race"]


def test_two_writes_of_one_place() -> None:
    text = "%one = arith.constant {value = 1} : i32\nmemory.store %x, %one"
    (finding,) = found("%x: ptr<i32>", text, [np.zeros(1, np.int32)], (8,))  # once, not for each pair
    assert "x is written here and written by the kernel of CTA (" in finding.message


def test_each_in_its_own_place() -> None:
    text = "%pid = control.program_id {axis = 0} : i32\n%p = memory.ptr_add %x, %pid : ptr<i32>\n"
    text += "%v = memory.load %p : i32\nmemory.store %p, %v"
    assert found("%x: ptr<i32>", text, [np.zeros(8, np.int32)], (8,)) == []


@pytest.mark.parametrize(
    "access", ['atomic.rmw %x, %one {kind = "add"} : i32', "memory.load %x {volatile = true} : i32"]
)
def test_atomics_and_volatile_reads_race_with_nobody(access: str) -> None:
    text = f"%one = arith.constant {{value = 1}} : i32\n%v = {access}"
    assert found("%x: ptr<i32>", text, [np.zeros(1, np.int32)], (4,)) == []


def test_part_of_a_place() -> None:
    """One CTA writes an i32, the other the last byte of it."""
    text = HEAD + "control.if %first then {\n  memory.store %x, %one\n  control.yield\n} orelse {\n"
    text += "  %b = arith.constant {value = 1} : i8\n  memory.store %y, %b\n  control.yield\n}"
    x = np.zeros(2, np.int32)
    args = [x, x.view(np.int8)[3:]]
    assert [f.code for f in found("%x: ptr<i32>, %y: ptr<i8>", text, args, (2,))] == ["global-race"]
    args = [x, x.view(np.int8)[4:]]
    assert found("%x: ptr<i32>, %y: ptr<i8>", text, args, (2,)) == []


PAIR = """
%b = barrier.alloc : barrier<1, arrive 1>
%zero = arith.constant {{value = 0}} : i32
%one = arith.constant {{value = 1}} : i32
%b0 = barrier.view %b, %zero : barrier<0, arrive 1>
task.partition {{tasks = ["default/4/0/-1/0", "reader/4/0/-1/0"]}} bodies {{
  memory.store %x, %one
  {hand}
  control.yield
}} bodies {{
  {take}
  %v = memory.load %x : i32
  memory.store %y, %v
  control.yield
}}
"""


@pytest.mark.parametrize("seed", range(3))
def test_tasks_are_ordered_by_barriers(seed: int) -> None:
    args = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    arguments = "%x: ptr<i32>, %y: ptr<i32>"
    right = PAIR.format(hand="barrier.arrive %b0", take="barrier.wait %b0, %zero")
    assert found(arguments, right, args, (1,), seed) == [] and args[1][0] == 1
    assert [f.code for f in found(arguments, PAIR.format(hand="barrier.arrive %b0", take=""), args, (1,), seed)] == [
        "global-race"
    ]


def test_copies_of_the_tma_engine() -> None:
    """Every CTA of the ring stores the same blocks of y."""
    assert found(RING_ARGUMENTS, RING, ring_args(), (1,)) == []
    assert [f.code for f in found(RING_ARGUMENTS, RING, ring_args(), (2,))] == ["global-race"]
    x = np.ones((40, 8), np.float32)
    both = [TensorDescriptor(x, (8, 8)), TensorDescriptor(x, (8, 8)), 5]
    codes = {f.code for f in found(RING_ARGUMENTS, RING, both, (1,))}
    assert codes <= {
        "global-race"
    }  # the producer reads blocks that the consumer writes later: its waits may order them


def test_only_when_asked_for() -> None:
    text = "%one = arith.constant {value = 1} : i32\nmemory.store %x, %one"
    assert run(kernel("%x: ptr<i32>", text), [np.zeros(1, np.int32)], (8,)).findings == []
