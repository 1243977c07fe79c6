"""Shared-memory allocation and barrier insertion: who may share bytes, where barriers and fences stand."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import CompilationError
from mimw.ir.core import Module
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.parser import parse_module
from mimw.passes import shared_allocation, sync_insertion
from mimw.target import get_target

TARGET = get_target("sm_90a")
TILE = "tensor<64x64xf32>"
BUFFER = "memdesc<64x64xf32, shared>"


def build(body: str, target: str = "sm_90a") -> Module:
    """A kernel with `body`, after allocation and barrier insertion."""
    module = parse_module(f"kernel @k(%n: i32, %c: i1) num_warps = 4 {{\n{body}\n  control.return\n}}\n")
    shared_allocation.run(module, get_target(target))
    sync_insertion.run(module, get_target(target))
    return module


def names(module: Module) -> list[str]:
    """The ops that matter here, in order."""
    kept = ("memory.local", "barrier.", "async_copy.", "mma.")
    return [op.name.split(".", 1)[1] for op in module.function.walk() if op.name.startswith(kept)]


def offsets(module: Module) -> list[int]:
    return [op.offset for op in module.function.walk() if isinstance(op, LocalAllocOp)]


ZERO = f"  %z = arith.constant {{value = 0.0}} : {TILE}\n"


def test_store_then_load_needs_a_barrier_between() -> None:
    module = build(ZERO + f"  %a = memory.local_alloc src = %z : {BUFFER}\n  %r = memory.local_load %a : {TILE}")
    assert names(module) == ["local_alloc", "cta_sync", "local_load"]


def test_two_loads_need_none() -> None:
    text = f"  %a = memory.local_alloc src = %z : {BUFFER}\n  %r = memory.local_load %a : {TILE}\n  %s = memory.local_load %a : {TILE}"
    assert names(build(ZERO + text)).count("cta_sync") == 1


def test_buffers_alive_together_lie_apart_and_others_share() -> None:
    together = build(
        ZERO
        + f"""  %a = memory.local_alloc src = %z : {BUFFER}
  %b = memory.local_alloc src = %z : {BUFFER}
  %r = memory.local_load %a : {TILE}
  %s = memory.local_load %b : {TILE}"""
    )
    assert sorted(offsets(together)) == [0, 64 * 64 * 4]
    in_turn = build(
        ZERO
        + f"""  %a = memory.local_alloc src = %z : {BUFFER}
  %r = memory.local_load %a : {TILE}
  %b = memory.local_alloc src = %z : {BUFFER}
  %s = memory.local_load %b : {TILE}"""
    )
    assert offsets(in_turn) == [0, 0]
    assert names(in_turn) == [
        "local_alloc",
        "cta_sync",
        "local_load",
        "cta_sync",
        "local_alloc",
        "cta_sync",
        "local_load",
    ]


def test_back_edge_of_a_loop_is_seen() -> None:
    module = build(
        ZERO
        + f"""  %a = memory.local_alloc : {BUFFER}
  %lo = arith.constant {{value = 0}} : i32
  %one = arith.constant {{value = 1}} : i32
  control.for %lo, %n, %one, [] body(%i: i32) {{
    memory.local_store %a, %z
    %r = memory.local_load %a : {TILE}
    control.yield
  }}"""
    )
    assert names(module) == ["local_alloc", "cta_sync", "local_store", "cta_sync", "local_load"]


def test_a_buffer_used_in_a_loop_lives_through_it() -> None:
    module = build(
        ZERO
        + f"""  %a = memory.local_alloc src = %z : {BUFFER}
  %lo = arith.constant {{value = 0}} : i32
  %one = arith.constant {{value = 1}} : i32
  control.for %lo, %n, %one, [] body(%i: i32) {{
    %r = memory.local_load %a : {TILE}
    %b = memory.local_alloc src = %r : {BUFFER}
    %s = memory.local_load %b : {TILE}
    control.yield
  }}"""
    )
    assert len(set(offsets(module))) == 2


def test_store_in_one_branch_is_seen_after_the_join() -> None:
    module = build(
        ZERO
        + f"""  %a = memory.local_alloc : {BUFFER}
  control.if %c then() {{
    memory.local_store %a, %z
    control.yield
  }} orelse() {{
    control.yield
  }}
  %r = memory.local_load %a : {TILE}"""
    )
    assert names(module) == ["local_alloc", "local_store", "cta_sync", "local_load"]


def test_generic_write_before_a_product_is_fenced() -> None:
    half = "tensor<64x64xf16>"
    module = build(
        f"""  %z = arith.constant {{value = 0.0}} : {half}
  %acc = arith.constant {{value = 0.0}} : {TILE}
  %a = memory.local_alloc src = %z : memdesc<64x64xf16, shared>
  %d = mma.async_dot %a, %a, %acc : inflight<{TILE}>
  %w = mma.async_dot_wait %d {{pendings = 0}} : {TILE}
  memory.local_store %a, %z"""
    )
    assert names(module) == [
        "local_alloc",
        "fence_async_shared",
        "cta_sync",
        "async_dot",
        "async_dot_wait",
        "cta_sync",
        "local_store",
    ]


def test_a_barrier_that_is_there_gets_the_fence_before_it() -> None:
    half = "tensor<64x64xf16>"
    module = build(
        f"""  %z = arith.constant {{value = 0.0}} : {half}
  %acc = arith.constant {{value = 0.0}} : {TILE}
  %a = memory.local_alloc src = %z : memdesc<64x64xf16, shared>
  %b = memory.local_alloc src = %acc : {BUFFER}
  barrier.cta_sync
  %d = mma.async_dot %a, %a, %acc : inflight<{TILE}>
  %w = mma.async_dot_wait %d {{pendings = 0}} : {TILE}"""
    )
    assert names(module)[2:5] == ["fence_async_shared", "cta_sync", "async_dot"]


def test_async_copy_counts_at_its_wait() -> None:
    module = build(
        f"""  %p = arith.constant {{value = 0}} : i64
  %ptr = arith.cast %p {{dtype = ptr<f32>}} : ptr<f32>
  %ps = tensor.splat %ptr {{shape = [64, 64]}} : tensor<64x64xptr<f32>>
  %a = memory.local_alloc : {BUFFER}
  async_copy.load %ps, %a
  async_copy.commit_group
  async_copy.wait_group {{pendings = 0}}
  %r = memory.local_load %a : {TILE}
  async_copy.load %ps, %a"""
    )
    assert names(module)[-5:] == ["wait_group", "cta_sync", "local_load", "cta_sync", "load"]


def test_too_much_shared_memory_is_refused_at_the_biggest_buffer() -> None:
    big = "memdesc<256x256xf32, shared>"
    with pytest.raises(CompilationError) as caught:
        build(
            f"  %z = arith.constant {{value = 0.0}} : tensor<256x256xf32>\n  %a = memory.local_alloc src = %z : {big}"
        )
    assert caught.value.code == "shared-memory"
    assert "262144 bytes" in caught.value.message and "232448" in caught.value.message


@pytest.mark.parametrize(("wait", "shared"), [("", False), ("{pendings = 1}", False), ("{pendings = 0}", True)])
def test_a_copy_that_nobody_waited_for_keeps_its_buffer(wait: str, shared: bool) -> None:
    """Also where it is never read: the last copies of a ring, which run past the end, still write zeros."""
    line = f"  async_copy.wait_group {wait}\n" if wait else ""
    module = build(
        ZERO
        + f"""  %p = arith.constant {{value = 0}} : i64
  %q = arith.cast %p {{dtype = ptr<f32>}} : ptr<f32>
  %t = tensor.splat %q {{shape = [64, 64]}} : tensor<64x64xptr<f32>>
  %a = memory.local_alloc : {BUFFER}
  async_copy.load %t, %a
  async_copy.commit_group
{line}  %b = memory.local_alloc src = %z : {BUFFER}
  %s = memory.local_load %b : {TILE}"""
    )
    assert (sorted(offsets(module)) == [0, 0]) == shared
