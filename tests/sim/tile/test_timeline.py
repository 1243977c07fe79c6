"""Times of a simulated run: engines do one thing after another, waiting ends when what is waited for is there, more slots hide more."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mimw.sim.agents import Event
from mimw.sim.tile import TensorDescriptor, run
from mimw.sim.tile.speeds import SPEEDS, TENSOR_CORE, TMA_LOAD, Speeds
from mimw.sim.tile.timeline import Timeline, lane_name, lanes
from tests.sim.tile.mimw_programs import RING, RING_ARGUMENTS, kernel
from tests.sim.tile.test_mimw_faults import gemm_args
from tests.sim.tile.test_mimw_tasks import GEMM_ARGUMENTS, gemm_text

SPEED = SPEEDS["sm_90a"]


def timed(
    text: str, arguments: str, args: list[object], grid: tuple[int, ...] = (1,), speeds: Speeds = SPEED
) -> Timeline:
    timeline = Timeline(speeds)
    run(kernel(arguments, text), args, grid, timeline=timeline)
    return timeline


def ring(trips: int, slots: int = 2, grid: tuple[int, ...] = (1,), speeds: Speeds = SPEED) -> Timeline:
    """The ring of `mimw_programs`, with any number of slots."""
    text = RING.replace("%two = arith.constant {value = 2}", f"%two = arith.constant {{value = {slots}}}")
    text = text.replace("2x8x8", f"{slots}x8x8").replace("barrier<2,", f"barrier<{slots},")
    x, y = np.ones((8 * trips, 8), np.float32), np.zeros((8 * trips, 8), np.float32)
    timeline = timed(
        text, RING_ARGUMENTS, [TensorDescriptor(x, (8, 8)), TensorDescriptor(y, (8, 8)), trips], grid, speeds
    )
    assert (y == 2).all()
    return timeline


def end(events: list[Event]) -> float:
    return max(e.end for e in events)


def test_lanes_are_tasks_and_engines() -> None:
    timeline = ring(3)
    (group, names), *others = lanes(timeline.events).items()
    assert group == "CTA (0, 0, 0)" and others == []
    assert [lane_name(n, group) for n in names] == [
        "the kernel",
        "task 'default'",
        "task 'producer'",
        "TMA load",
        "TMA store",
    ]
    assert sum(e.kind == "engine" and e.agent == TMA_LOAD for e in timeline.events) == 3


def test_nobody_does_two_things_at_once() -> None:
    events = ring(9).events
    for name in ("task 'default'", "task 'producer'"):
        own = sorted((e for e in events if e.agent == name), key=lambda e: e.start)
        assert len(own) > 20 and all(a.end <= b.start for a, b in pairwise(own))


def test_who_waits_goes_on_when_the_copy_has_landed() -> None:
    events = ring(5).events
    landed = [e.end for e in events if e.agent == TMA_LOAD]
    waits = [e.end for e in events if e.kind == "wait" and "full[" in e.what]
    assert waits and set(waits) <= set(landed)
    first = next(e for e in events if e.agent == TMA_LOAD)
    assert first.end - first.start == SPEED.latency[TMA_LOAD] + 256 / SPEED.rate[TMA_LOAD]


def test_slots_hide_latency() -> None:
    one, two, eight = (end(ring(16, slots).events) for slots in (1, 2, 8))
    assert one > 1.5 * two > 2.0 * eight
    assert one > 16 * SPEED.latency[TMA_LOAD] and eight < 8 * SPEED.latency[TMA_LOAD]


def test_times_of_a_product() -> None:
    """Eight m64n32k16 a block would take 8 * 16 cycles: 2048 multiplications of 16-bit numbers a cycle."""
    timeline = timed(gemm_text(), GEMM_ARGUMENTS, gemm_args())
    products = sorted((e for e in timeline.events if e.agent == TENSOR_CORE), key=lambda e: e.start)
    assert len(products) == 2 * 6
    assert {e.end - e.start for e in products} == {64 * 32 * 16 / 2048 + SPEED.latency[TENSOR_CORE]}
    assert all(b.start - a.start >= 64 * 32 * 16 / 2048 for a, b in pairwise(products))


def test_a_faster_machine_is_faster() -> None:
    slow = Speeds("slow", 1.0, 256)
    slow.latency[TMA_LOAD] = 5000.0
    assert end(ring(8, speeds=slow).events) > 2 * end(ring(8).events)


def test_the_first_ctas_of_a_grid() -> None:
    assert len(lanes(ring(1, grid=(9,)).events)) == 4


@pytest.mark.parametrize("name", SPEEDS)
def test_every_target_has_speeds(name: str) -> None:
    speeds = SPEEDS[name]
    assert speeds.name == name and min(*speeds.rate.values(), *speeds.latency.values()) > 0
    assert end(ring(3, speeds=speeds).events) > 2 * speeds.latency[TMA_LOAD]
