"""Compile-time checks of barriers: what cannot work is refused with its lines, what works passes."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module
from mimw.ir.parser import parse_module
from mimw.passes import canonicalize, task_partition
from mimw.passes.protocol import check
from mimw.target import get_target

HEAD = """  %i0 = arith.constant {value = 0} : i32
  %i1 = arith.constant {value = 1} : i32
  %i2 = arith.constant {value = 2} : i32
  %i64 = arith.constant {value = 64} : i32
  %trips = arith.div %n, %i64 : i32
  %r = memory.local_alloc : memdesc<2x64x64xf16, shared>
  %full = barrier.alloc : barrier<2, arrive 1>
"""


def build(*bodies: str, before: str = "", empty: int = 1) -> Module:
    """A kernel with a ring of two buffers; the first body is the default task's (none: no tasks at all)."""
    text = f"kernel @k(%n: i32, %p: ptr<i32>, %t: tensor_desc<64x64xf16>) num_warps = 4 {{\n{HEAD}"
    text += f"  %empty = barrier.alloc : barrier<2, arrive {empty}>\n{before}\n"
    if bodies:
        specs = ", ".join(
            f'"{name}/4/0/{-1 if i else 0}/0"' for i, name in enumerate(("default", "second", "third")[: len(bodies)])
        )
        regions = " ".join(f"bodies {{\n{_renamed(body, i)}\n    control.yield\n  }}" for i, body in enumerate(bodies))
        text += f"  task.partition {{tasks = [{specs}]}} {regions}\n"
    module = parse_module(text + "  control.return\n}\n", file="k.mir")
    target = get_target("sm_90a")
    canonicalize.run(module, target)
    task_partition.run(module, target)
    check.run(module, target)
    return module


def _renamed(body: str, task: int) -> str:
    """Values named with a trailing underscore are each task's own."""
    return (
        body.replace("_ ", f"_{task} ")
        .replace("_,", f"_{task},")
        .replace("_:", f"_{task}:")
        .replace("_]", f"_{task}]")
        .replace("_\n", f"_{task}\n")
    )


def fails(code: str, *bodies: str, before: str = "", empty: int = 1) -> CompilationError:
    with pytest.raises(CompilationError) as e:
        build(*bodies, before=before, empty=empty)
    assert e.value.code == code, str(e.value)
    assert e.value.loc.line
    return e.value


def ring(body: str, phase: int, trips: str = "%trips") -> str:
    """A loop over slots: `body` has %slot_ and %phase_, the barriers %f_ and %e_ of the slot."""
    return f"""    %o_, %q_ = control.for %i0, {trips}, %i1, [%i0, %i{phase}] body(%i_: i32, %slot_: i32, %phase_: i32) {{
      %f_ = barrier.view %full, %slot_ : barrier<0, arrive 1>
      %e_ = barrier.view %empty, %slot_ : barrier<0, arrive 1>
{body}
      %next_ = arith.add %slot_, %i1 : i32
      %wrap_ = arith.eq %next_, %i2 : i1
      %slot1_ = arith.select %wrap_, %i0, %next_ : i32
      %flip_ = arith.xor %phase_, %i1 : i32
      %phase1_ = arith.select %wrap_, %flip_, %phase_ : i32
      control.yield %slot1_, %phase1_
    }} : i32, i32
"""


def produce(bytes: int = 8192, copies: int = 1, phase: int = 1, trips: str = "%trips") -> str:
    body = f"      barrier.wait %e_, %phase_\n      barrier.expect %f_ {{bytes = {bytes}}}\n"
    body += "      %s_ = memory.local_view %r, %slot_ : memdesc<64x64xf16, shared, alloc 2x64x64>\n"
    body += "      async_copy.tma_load %t, %s_, %f_, [%i0, %i0]\n" * copies
    return ring(body, phase, trips)


def consume(arrive: str = "      barrier.arrive %e_\n", phase: int = 0, trips: str = "%trips") -> str:
    return ring("      barrier.wait %f_, %phase_\n" + arrive, phase, trips)


# The ring.


def test_a_ring_that_works() -> None:
    assert not build(produce(), consume()).remarks
    assert not build(produce(), consume(), consume(), empty=2).remarks


def test_the_producer_starts_with_the_wrong_phase() -> None:
    e = fails("deadlock", produce(phase=0), consume())
    assert "default (line" in e.message and "second (line" in e.message
    assert "empty[0], phase 0" in e.message and "full[0]" in e.message
    assert e.hint is not None and "parity 1" in e.hint and len(e.notes) == 1


def test_nobody_frees_the_slots() -> None:
    e = fails("barrier-never-arrived", produce(), consume(arrive=""))
    assert "empty" in e.message


def test_too_few_consumers_arrive() -> None:
    e = fails("deadlock", produce(), consume(), empty=2)
    assert "1 of 2 arrivals" in e.message


def test_a_consumer_that_arrives_too_often() -> None:
    fails("deadlock", produce(), consume("      barrier.arrive %e_\n      barrier.arrive %e_\n"))
    more = "      barrier.arrive %e_\n      barrier.arrive %e_ {count = 2}\n"
    e = fails("barrier-arrivals", produce(), consume(more), empty=2)
    assert "3 arrivals" in e.message
    fails("barrier-arrivals", produce(), consume("      barrier.arrive %e_ {count = 2}\n"))


def test_trip_counts_that_differ() -> None:
    before = "  %more = arith.add %trips, %i1 : i32\n"
    e = fails("deadlock", produce(), consume(trips="%more"), before=before)
    assert e.message.startswith("second waits")
    build(produce(trips="%more"), consume(), before=before)  # a ring of two has room for one more


def test_expected_bytes_that_are_not_what_the_copies_bring() -> None:
    e = fails("barrier-bytes", produce(bytes=4096), consume())
    assert "4096" in e.message and "8192" in e.message and e.hint == "expect 8192"
    e = fails("barrier-bytes", produce(bytes=8192, copies=2), consume())
    assert len(e.notes) == 2


def test_bytes_that_only_the_play_can_add_up() -> None:
    expect = ring("      barrier.wait %e_, %phase_\n      barrier.expect %f_ {bytes = 16384}\n", 1)
    view = "      %s_ = memory.local_view %r, %slot_ : memdesc<64x64xf16, shared, alloc 2x64x64>\n"
    copy = ring(view + "      async_copy.tma_load %t, %s_, %f_, [%i0, %i0]\n", 0, "%i1")
    e = fails("barrier-bytes", expect, consume(), copy)
    assert "8192 of 16384 bytes" in e.message


def test_unknown_numbers_give_no_verdict() -> None:
    before = "  %m = memory.load %p : i32\n"
    build(produce(), consume(trips="%m"), before=before)
    build(
        ring(
            "      %x_ = memory.load %p : i32\n      barrier.wait %e_, %x_\n      barrier.expect %f_ {bytes = 0}\n", 0
        ),
        consume(),
    )


def test_long_loops_end_the_play() -> None:
    before = "  %many = arith.constant {value = 100000} : i32\n"
    build(produce(trips="%many"), consume(trips="%many"), before=before)


def test_breaks_and_branches_are_played() -> None:
    body = """      barrier.wait %f_, %phase_
      %c_ = arith.eq %i_, %i1 : i1
      control.if %c_ then {
        control.break %slot_, %phase_
      } orelse {
        control.yield
      }
      barrier.arrive %e_
"""
    e = fails("deadlock", produce(), ring(body, 0))
    assert e.message.startswith("default waits") and "empty[1]" in e.message


def test_a_while_loop_is_played() -> None:
    def loop(first: int) -> str:
        return f"""    %o_, %q_ = control.while %i0, %i{first} condition(%i_: i32, %phase_: i32) {{
      %c_ = arith.lt %i_, %trips : i1
      control.yield %c_
    }} body(%j_: i32, %w_: i32) {{
      %e_ = barrier.view %empty, %i0 : barrier<0, arrive 1>
      %f_ = barrier.view %full, %i0 : barrier<0, arrive 1>
      BODY
      %k_ = arith.add %j_, %i1 : i32
      %v_ = arith.xor %w_, %i1 : i32
      control.yield %k_, %v_
    }} : i32, i32
"""

    wait_first = "barrier.wait %e_, %w_\n      barrier.arrive %f_"
    answer = "barrier.wait %f_, %w_\n      barrier.arrive %e_"
    build(loop(1).replace("BODY", wait_first), loop(0).replace("BODY", answer))
    fails("deadlock", loop(0).replace("BODY", wait_first), loop(0).replace("BODY", answer))


def test_a_kernel_without_tasks_that_waits_before_it_copies() -> None:
    view = "  %f0 = barrier.view %full, %i0 : barrier<0, arrive 1>\n"
    copy = """  %s = memory.local_view %r, %i0 : memdesc<64x64xf16, shared, alloc 2x64x64>
  barrier.expect %f0 {bytes = 8192}
  async_copy.tma_load %t, %s, %f0, [%i0, %i0]
"""
    wait = "  barrier.wait %f0, %i0\n"
    build(before=view + copy + wait)
    e = fails("deadlock", before=view + wait + copy)
    assert "default waits for a barrier" in e.message


# Single barriers.


def test_a_copy_alone_does_not_arrive() -> None:
    copy = """  %f0 = barrier.view %full, %i0 : barrier<0, arrive 1>
  %s = memory.local_view %r, %i0 : memdesc<64x64xf16, shared, alloc 2x64x64>
  async_copy.tma_load %t, %s, %f0, [%i0, %i0]
  barrier.wait %f0, %i0
"""
    e = fails("barrier-never-arrived", before=copy)
    assert e.hint is not None and "barrier_expect_bytes" in e.hint


def test_arrivals_that_nobody_waits_for_are_remarked() -> None:
    module = build("    %e_ = barrier.view %empty, %i0 : barrier<0, arrive 1>\n    barrier.arrive %e_\n", "")
    assert {kind for kind, _, _ in module.remarks} == {"protocol"}
    texts = [text for _, _, text in module.remarks]
    assert len(texts) == 2 and "nobody uses full" in texts and any("empty" in text for text in texts)


def test_the_same_phase_in_every_trip_is_remarked() -> None:
    loop = """    %e_ = barrier.view %empty, %i0 : barrier<0, arrive 1>
    control.for %i0, %m, %i1, [] body(%i_: i32) {
      barrier.wait %e_, %i1
      control.yield
    }
"""
    arrive = "    %e_ = barrier.view %empty, %i0 : barrier<0, arrive 1>\n    barrier.arrive %e_\n"
    module = build(loop, arrive, before="  %m = memory.load %p : i32\n")
    assert any("same phase of empty" in text for _, _, text in module.remarks)
    once = loop.replace("%i0, %m,", "%i0, %i1,")
    assert [text for _, _, text in build(once, arrive).remarks] == ["nobody uses full"]


def test_an_index_out_of_range() -> None:
    fails("bad-index", before="  %f0 = barrier.view %full, %i2 : barrier<0, arrive 1>\n  barrier.arrive %f0\n")
    slot = "  %s = memory.local_view %r, %i64 : memdesc<64x64xf16, shared, alloc 2x64x64>\n  %x = memory.local_load %s : tensor<64x64xf16>\n"
    arrive = (
        "  %f0 = barrier.view %full, %i0 : barrier<0, arrive 1>\n  barrier.arrive %f0\n  memory.local_store %s, %x\n"
    )
    fails("bad-index", before=slot + arrive)


# Named barriers.


def named(op: str, count: int, number: int = 2) -> str:
    return f"    barrier.named_{op} {{count = {count}, number = {number}}}\n"


def test_named_barriers_that_work() -> None:
    build(named("wait", 256) + named("arrive", 256, 3), named("arrive", 256) + named("wait", 256, 3))
    build(named("wait", 128), named("wait", 128, 4))


def test_two_tasks_at_each_others_named_barrier() -> None:
    e = fails("deadlock", named("wait", 256) + named("arrive", 256, 3), named("wait", 256, 3) + named("arrive", 256))
    assert "named barrier 2" in e.message and "named barrier 3" in e.message


@pytest.mark.parametrize("count", [100, 0, 2048])
def test_counts_are_whole_warps(count: int) -> None:
    fails("named-barrier", named("wait", count), "")


def test_counts_agree() -> None:
    e = fails("named-barrier", named("wait", 256), named("arrive", 128))
    assert e.notes


def test_counts_can_be_reached() -> None:
    e = fails("named-barrier", named("wait", 384), named("arrive", 384))
    assert "default (128), second (128)" in e.message


def test_numbers_are_in_range() -> None:
    fails("named-barrier", named("wait", 128, 16), "")
