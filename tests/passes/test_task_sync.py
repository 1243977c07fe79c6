"""Shared memory of tasks, and the syncs and fences inside one: elected arrives, copies by TMA."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module, OpBase
from mimw.ir.ops.barrier import BarrierAllocOp
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.parser import parse_module
from mimw.passes import shared_allocation, sync_insertion
from mimw.passes.tasks import partition_of
from mimw.target import get_target

TILE = "tensor<64x64xf16>"
BUFFER = "memdesc<64x64xf16, shared>"
HEAD = f"""  %z = arith.constant {{value = 0.0}} : {TILE}
  %i0 = arith.constant {{value = 0}} : i32
  %i1 = arith.constant {{value = 1}} : i32
  %a = memory.local_alloc : {BUFFER}
  %b = memory.local_alloc : {BUFFER}
  %r = memory.local_alloc : memdesc<2x64x64xf16, shared>
  %bar = barrier.alloc : barrier<0, arrive 1>
  %each = barrier.alloc {{per_thread = true}} : barrier<0, arrive 128>
"""


def build(
    default: str, tasks: dict[int, str] | None = None, before: str = "", after: str = "", num_warps: int = 4
) -> Module:
    """A kernel with buffers and barriers at hand; `tasks` maps warps to the body of a task (keys above 100: minus 100)."""
    specs = [f"default/{num_warps}/0/0/0"]
    start = 8
    bodies = [default]
    for warps, body in (tasks or {}).items():
        specs.append(f"t{warps}/{warps % 100}/0/{start}/0")
        bodies.append(body)
        start += 8
    text = f"kernel @k(%n: i32, %t: tensor_desc<64x64xf16>) num_warps = {num_warps} {{\n{HEAD}{before}\n"
    if tasks is None:
        text += default
    else:
        joined = ", ".join(f'"{s}"' for s in specs)
        regions = " ".join(f"bodies {{\n{body}\n    control.yield\n  }}" for body in bodies)
        text += f"  task.partition {{tasks = [{joined}]}} {regions}\n"
    module = parse_module(f"{text}\n{after}\n  control.return\n}}\n")
    shared_allocation.run(module, get_target("sm_90a"))
    sync_insertion.run(module, get_target("sm_90a"))
    return module


def short(ops: list[OpBase]) -> list[str]:
    """The ops that matter here."""
    kept = ("memory.local_load", "memory.local_store", "barrier.", "async_copy.", "mma.", "control.for", "task.")
    found: list[str] = []
    for op in ops:
        if op.name.startswith(kept) and op.name not in ("barrier.alloc", "barrier.view"):
            found.append(op.name.split(".", 1)[1])
        if op.name == "control.for":
            found += [f"  {x}" for x in short(op.regions[0].block.ops)]
    return found


def task(body: str, warps: int = 4) -> list[str]:
    """What becomes of a task's body; the default task only waits."""
    module = build("", {warps: body})
    partition = partition_of(module.function)
    assert partition is not None
    return short(partition.bodies[1].block.ops)


LOAD = f"    %x = memory.local_load %a : {TILE}\n"
STORE = "    memory.local_store %a, %z\n"
WAIT = "    barrier.wait %bar, %i0\n"
ARRIVE = "    barrier.arrive %bar\n"
FILL = "    async_copy.tma_load %t, %a, %bar, [%i0, %i0]\n"
DRAIN = "    async_copy.tma_store %t, %a, [%i0, %i0]\n"


def z(body: str) -> str:
    """A body with the tile of zeros made inside."""
    return f"    %zz = arith.constant {{value = 0.0}} : {TILE}\n" + body.replace("%z\n", "%zz\n")


def dot(a: str = "%a") -> str:
    return f"""    %acc = arith.constant {{value = 0.0}} : tensor<64x64xf32>
    %d = mma.async_dot {a}, %b, %acc : inflight<tensor<64x64xf32>>
    %w = mma.async_dot_wait %d {{pendings = 0}} : tensor<64x64xf32>
"""


# Arrives.


def test_an_arrive_after_reads_by_threads_syncs_the_task() -> None:
    assert task(WAIT + LOAD + ARRIVE) == ["wait", "local_load", "cta_sync", "arrive"]
    assert task(WAIT + LOAD + ARRIVE, warps=1) == ["wait", "local_load", "cta_sync", "arrive"]


def test_an_arrive_after_writes_is_fenced_only_for_engines() -> None:
    assert task(z(WAIT + STORE + ARRIVE)) == ["wait", "local_store", "cta_sync", "arrive"]
    module = build(DRAIN, {4: z(WAIT + STORE + ARRIVE)})
    partition = partition_of(module.function)
    assert partition is not None
    assert short(partition.bodies[1].block.ops) == ["wait", "local_store", "fence_async_shared", "cta_sync", "arrive"]


def test_products_of_one_warp_group_need_no_sync_before_the_arrive() -> None:
    assert task(WAIT + dot() + ARRIVE) == ["wait", "async_dot", "async_dot_wait", "arrive"]


def test_products_of_two_warp_groups_do() -> None:
    assert task(WAIT + dot() + ARRIVE, warps=8) == ["wait", "async_dot", "async_dot_wait", "cta_sync", "arrive"]


def test_warps_that_may_still_wait_meet_before_the_arrive() -> None:
    assert task(WAIT + ARRIVE) == ["wait", "cta_sync", "arrive"]
    assert task(WAIT + ARRIVE, warps=1) == ["wait", "arrive"]
    assert task(WAIT + "    barrier.expect %bar {bytes = 8192}\n" + FILL) == ["wait", "cta_sync", "expect", "tma_load"]


def test_a_sync_that_is_there_is_enough() -> None:
    assert task(WAIT + LOAD + "    barrier.cta_sync\n" + ARRIVE) == ["wait", "local_load", "cta_sync", "arrive"]
    named = "    barrier.named_wait {count = 128, number = 3}\n"
    assert task(WAIT + LOAD + named + ARRIVE) == ["wait", "local_load", "named_wait", "arrive"]


def test_every_thread_arrives_for_itself_on_a_per_thread_barrier() -> None:
    assert task(WAIT + LOAD + "    barrier.arrive %each\n") == ["wait", "local_load", "arrive"]
    module = build(DRAIN, {4: z(STORE + "    barrier.arrive %each\n")})
    partition = partition_of(module.function)
    assert partition is not None
    assert short(partition.bodies[1].block.ops) == ["local_store", "fence_async_shared", "arrive"]


def test_named_arrives_and_waits_release_writes_for_engines() -> None:
    for op in ("named_arrive", "named_wait"):
        module = build(DRAIN, {4: z(STORE + f"    barrier.{op} {{count = 256, number = 2}}\n")})
        partition = partition_of(module.function)
        assert partition is not None
        assert short(partition.bodies[1].block.ops) == ["local_store", "fence_async_shared", op]


def test_one_sync_before_a_loop_spares_one_in_every_trip() -> None:
    loop = f"    control.for %i0, %n, %i1, [] body(%i: i32) {{\n{WAIT}{dot()}{ARRIVE}    control.yield\n    }}\n"
    assert task(LOAD + loop) == [
        "local_load",
        "cta_sync",
        "for",
        "  wait",
        "  async_dot",
        "  async_dot_wait",
        "  arrive",
    ]


# Copies by TMA.


def test_a_copy_into_a_buffer_waits_for_its_readers() -> None:
    assert task(LOAD + FILL) == ["local_load", "cta_sync", "tma_load"]
    assert task(FILL + WAIT + LOAD) == ["tma_load", "wait", "local_load"]


def test_a_copy_over_written_bytes_is_fenced() -> None:
    assert task(z(STORE + FILL)) == ["local_store", "fence_async_shared", "cta_sync", "tma_load"]


def test_the_back_edge_is_seen() -> None:
    loop = f"    control.for %i0, %n, %i1, [] body(%i: i32) {{\n{FILL}{WAIT}{LOAD}    control.yield\n    }}\n"
    assert task(loop)[1:] == ["  cta_sync", "  tma_load", "  wait", "  local_load"]


def test_a_store_by_tma_sees_what_threads_wrote_and_is_waited_for() -> None:
    wait = "    async_copy.tma_store_wait {pendings = 0}\n"
    assert task(z(STORE + DRAIN + wait + STORE)) == [
        "local_store",
        "fence_async_shared",
        "cta_sync",
        "tma_store",
        "tma_store_wait",
        "cta_sync",
        "local_store",
    ]


def test_the_elected_thread_needs_no_sync_after_its_own_wait() -> None:
    wait = "    async_copy.tma_store_wait {pendings = 0}\n"
    assert task(DRAIN + wait + ARRIVE) == ["tma_store", "tma_store_wait", "arrive"]
    assert task(DRAIN + wait + FILL) == ["tma_store", "tma_store_wait", "tma_load"]


def test_constant_slots_of_a_ring_are_told_apart() -> None:
    views = "".join(
        f"    %s{i} = memory.local_view %r, %i{i} : memdesc<64x64xf16, shared, alloc 2x64x64>\n" for i in (0, 1)
    )
    load = f"    %x = memory.local_load %s0 : {TILE}\n"
    fill = "    async_copy.tma_load %t, %s{}, %bar, [%i0, %i0]\n"
    assert task(views + load + fill.format(1)) == ["local_load", "tma_load"]
    assert task(views + load + fill.format(0)) == ["local_load", "cta_sync", "tma_load"]


# Around the partition.


def test_what_was_written_before_the_tasks_is_fenced_for_their_engines() -> None:
    module = build("", {4: dot()}, before=STORE)
    assert short(module.function.block.ops) == ["local_store", "fence_async_shared", "partition"]
    module = build("", {4: LOAD}, before=STORE)
    assert short(module.function.block.ops) == ["local_store", "partition"]


def test_the_default_task_goes_on_after_the_partition() -> None:
    module = build(z(STORE), {4: ""}, after=LOAD)
    assert short(module.function.block.ops) == ["partition", "cta_sync", "local_load"]


def test_kernels_without_tasks_follow_the_same_rules() -> None:
    module = build(FILL + WAIT + LOAD + FILL)
    assert short(module.function.block.ops) == ["tma_load", "wait", "local_load", "cta_sync", "tma_load"]


# Allocation.


def spans(module: Module) -> list[tuple[int, int]]:
    return [
        (op.offset, op.offset + shared_allocation.buffer_bytes(op.type))
        for op in module.function.walk()
        if isinstance(op, LocalAllocOp)
    ]


def test_barriers_have_places_of_their_own() -> None:
    module = build(DRAIN, {4: LOAD})
    places = [op.offset for op in module.function.walk() if isinstance(op, BarrierAllocOp)]
    assert len(set(places)) == 2 and all(p % 16 == 0 for p in places)
    assert all(not lo <= p < hi for p in places for lo, hi in spans(module))


def test_what_two_tasks_have_lies_apart_and_one_task_uses_bytes_again() -> None:
    def own(i: int) -> str:
        return z(
            f"    %p{i} = memory.local_alloc src = %z\n".replace("%z\n", f"%z : {BUFFER}\n").replace("%z ", "%zz ")
        )

    two = own(0) + f"    %x0 = memory.local_load %p0 : {TILE}\n"
    two += f"    %p1 = memory.local_alloc src = %zz : {BUFFER}\n    %x1 = memory.local_load %p1 : {TILE}\n"
    other = own(2) + f"    %x2 = memory.local_load %p2 : {TILE}\n"
    found = spans(build("", {4: two, 104: other}))
    p0, p1, p2 = found[3:]
    assert p0 == p1 and (p2[0] >= p0[1] or p2[1] <= p0[0])


def test_captured_buffers_live_beside_everything() -> None:
    own = f"    %zz = arith.constant {{value = 0.0}} : {TILE}\n    %p = memory.local_alloc src = %zz : {BUFFER}\n"
    after = f"  %q = memory.local_alloc src = %z : {BUFFER}\n  %y = memory.local_load %q : {TILE}\n"
    module = build("", {4: LOAD + own + f"    %v = memory.local_load %p : {TILE}\n"}, after=after)
    a, *_, p, q = spans(module)
    for one, two in ((a, p), (a, q), (p, q)):
        assert one[1] <= two[0] or two[1] <= one[0]


def test_the_largest_pieces_are_named_when_memory_runs_out() -> None:
    big = "  %big = memory.local_alloc : memdesc<4x128x128xf32, shared>\n  %g = memory.local_alloc : memdesc<3x128x64xf32, shared>\n"
    use = "    %v = memory.local_view %big, %i0 : memdesc<128x128xf32, shared, alloc 4x128x128>\n    %x = memory.local_load %v : tensor<128x128xf32>\n"
    use += "    %w = memory.local_view %g, %i0 : memdesc<128x64xf32, shared, alloc 3x128x64>\n    %y = memory.local_load %w : tensor<128x64xf32>\n"
    with pytest.raises(CompilationError) as e:
        build("", {4: use}, before=big)
    assert e.value.code == "shared-memory" and e.value.notes
