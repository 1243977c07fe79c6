"""Wait counts: the fewest that are right, across blocks and loops."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.flat.waitcnt import insert_waits
from tests.codegen.amdgcn.flat_kit import body, text


def waits(source: str) -> list[str]:
    """The waits that the pass adds, each with the line behind it."""
    lines = text(insert_waits(body(source)))
    return [
        f"{line.removeprefix('s_waitcnt ')} | {lines[i + 1] if i + 1 < len(lines) else ''}"
        for i, line in enumerate(lines)
        if line.startswith("s_waitcnt")
    ]


CASES = {
    "a load is waited for where it is used": (
        """global_load_dword v1, v0, s[0:1]
        v_mov_b32 v2, 1
        v_add_u32 v3, v1, v2
        v_add_u32 v4, v1, v2""",
        ["vmcnt(0) | v_add_u32 v3, v1, v2"],
    ),
    "younger loads stay in flight": (
        """global_load_dword v1, v0, s[0:1]
        global_load_dwordx4 v[4:7], v0, s[0:1]
        global_store_dword v0, v9, s[0:1]
        v_add_u32 v3, v1, v1
        v_add_u32 v3, v6, v1""",
        ["vmcnt(2) | v_add_u32 v3, v1, v1", "vmcnt(1) | v_add_u32 v3, v6, v1"],
    ),
    "a register with a load pending is not overwritten": (
        """global_load_dword v1, v0, s[0:1]
        v_mov_b32 v1, 0""",
        ["vmcnt(0) | v_mov_b32 v1, 0"],
    ),
    "stores need no wait, nor do their sources": (
        """global_store_dword v0, v9, s[0:1]
        v_mov_b32 v9, 0
        s_endpgm""",
        [],
    ),
    "scalar loads come in any order": (
        """s_load_dword s4, s[0:1], 0
        s_load_dword s5, s[0:1], 4
        s_mov_b32 s6, s4
        s_mov_b32 s7, s5""",
        ["lgkmcnt(0) | s_mov_b32 s6, s4"],
    ),
    "shared memory answers in order": (
        """ds_read_b32 v1, v0
        ds_read_b32 v2, v0, offset:4
        v_mov_b32 v3, v1
        v_mov_b32 v4, v2""",
        ["lgkmcnt(1) | v_mov_b32 v3, v1", "lgkmcnt(0) | v_mov_b32 v4, v2"],
    ),
    "with a scalar load between, shared memory is waited for to the end": (
        """ds_read_b32 v1, v0
        s_load_dword s4, s[0:1], 0
        v_mov_b32 v3, v1""",
        ["lgkmcnt(0) | v_mov_b32 v3, v1"],
    ),
    "a barrier wants writes to shared memory done, and no global ones": (
        """ds_write_b32 v0, v1
        global_load_dword v2, v0, s[0:1]
        s_barrier
        s_barrier""",
        ["lgkmcnt(0) | s_barrier"],
    ),
    "a barrier does not wait for scalar loads": (
        """s_load_dword s4, s[0:1], 0
        s_barrier""",
        [],
    ),
    "loads to shared memory are counted, explicit waits name how many may remain": (
        """global_load_lds_dword v0, s[0:1]
        global_load_lds_dword v0, s[0:1], offset:4
        global_load_lds_dword v0, s[0:1], offset:8
        p_wait_vm 2
        p_wait_vm 2
        p_wait_vm 0
        s_barrier""",
        ["vmcnt(2) | vmcnt(0)", "vmcnt(0) | s_barrier"],
    ),
    "groups of loads to shared memory: other instructions do not spoil the count": (
        """global_load_lds_dword v0, s[0:1]
        global_load_lds_dword v0, s[0:1], offset:4
        p_commit_group
        global_load_dword v1, v0, s[0:1]
        global_load_lds_dword v0, s[0:1], offset:8
        p_commit_group
        global_load_dword v2, v0, s[0:1]
        p_wait_group 1
        s_barrier
        p_wait_group 1
        p_wait_group 0
        s_barrier""",
        ["vmcnt(3) | s_barrier", "vmcnt(1) | s_barrier"],
    ),
    "a load to shared memory does not wait in its queue, so what stands there must be done": (
        """ds_read_b32 v1, v0
        global_load_dword v2, v0, s[0:1]
        global_load_lds_dword v0, s[0:1]
        global_load_lds_dword v0, s[2:3]""",
        ["lgkmcnt(0) | global_load_lds_dword v0, s[0:1]"],
    ),
    "what belongs to no group yet is not waited for": (
        """global_load_lds_dword v0, s[0:1]
        p_wait_group 0
        p_commit_group
        p_wait_group 0""",
        ["vmcnt(0) | "],
    ),
    "copies are waited for one by one, and stay in their groups": (
        """global_load_lds_dword v0, s[0:1]
        p_end_copy 1
        global_load_lds_dword v0, s[2:3]
        global_load_lds_dword v0, s[4:5]
        p_end_copy 2
        global_load_lds_dword v0, s[6:7]
        p_commit_group
        global_load_lds_dword v0, s[8:9]
        p_end_copy 20
        p_wait_copy 1
        p_wait_group 14
        p_wait_copy 2
        p_wait_group 0
        p_wait_copy 20""",
        ["vmcnt(4) | vmcnt(2)", "vmcnt(2) | vmcnt(1)", "vmcnt(1) | vmcnt(0)", "vmcnt(0) | "],
    ),
    "of a copy that one path makes, all that another has made later stays": (
        """s_cbranch_scc0 L1
        global_load_lds_dword v0, s[0:1]
        p_end_copy 1
        L1:
        global_load_lds_dword v0, s[2:3]
        p_end_copy 2
        p_wait_copy 1
        s_barrier""",
        ["vmcnt(1) | s_barrier"],
    ),
    "one instruction may want both counters": (
        """global_load_dword v1, v0, s[0:1]
        ds_read_b32 v2, v0
        v_add_u32 v3, v1, v2""",
        ["vmcnt(0), lgkmcnt(0) | v_add_u32 v3, v1, v2"],
    ),
    "an invalidation of caches is not counted": (
        """global_load_dword v1, v0, s[0:1]
        buffer_inv sc1
        v_mov_b32 v2, v1""",
        ["vmcnt(0) | v_mov_b32 v2, v1"],
    ),
    "atomics without a result count as stores": (
        """global_load_dword v1, v0, s[0:1]
        global_atomic_add v0, v9, s[0:1]
        v_mov_b32 v2, v1""",
        ["vmcnt(1) | v_mov_b32 v2, v1"],
    ),
    "partial loads read what they keep": (
        """global_load_short_d16 v1, v0, s[0:1]
        global_load_short_d16_hi v1, v0, s[0:1]
        v_mov_b32 v2, v1""",
        ["vmcnt(0) | global_load_short_d16_hi v1, v0, s[0:1]", "vmcnt(0) | v_mov_b32 v2, v1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_straight(name: str) -> None:
    source, wanted = CASES[name]
    found = [w.replace("s_waitcnt ", "") for w in waits(source)]
    assert found == wanted


def test_paths_meet() -> None:
    """The nearer of two loads decides; a path without any adds nothing."""
    source = """s_cbranch_scc1 other
        global_load_dword v1, v0, s[0:1]
        global_load_dword v2, v0, s[0:1]
        s_branch join
        other:
        global_load_dword v1, v0, s[0:1]
        join:
        v_mov_b32 v3, v1
        v_mov_b32 v4, v2"""
    assert waits(source) == ["vmcnt(0) | v_mov_b32 v3, v1"]


def test_loop_carries_loads_around() -> None:
    """A load for the next round is pending when the loop starts again, and one of the first round when it is entered."""
    source = """global_load_dword v1, v0, s[0:1]
        loop:
        v_mov_b32 v5, v1
        global_load_dword v1, v0, s[0:1]
        global_load_dword v2, v0, s[0:1]
        v_add_u32 v6, v5, v5
        s_cbranch_scc1 loop
        v_mov_b32 v7, v2"""
    assert waits(source) == ["vmcnt(0) | v_mov_b32 v5, v1", "vmcnt(0) | v_mov_b32 v7, v2"]


def test_loop_waits_for_the_worse_way_in() -> None:
    """Two loads are younger around the loop, none at its entry: the wait must do for both."""
    source = """global_load_dword v1, v0, s[0:1]
        loop:
        v_mov_b32 v5, v1
        global_load_dword v1, v0, s[0:1]
        global_store_dword v0, v5, s[0:1]
        global_store_dword v0, v5, s[0:1]
        s_cbranch_scc1 loop
        s_endpgm"""
    assert waits(source) == ["vmcnt(0) | v_mov_b32 v5, v1"]
    assert waits(source.replace("loop:\n", "global_store_dword v0, v9, s[0:1]\nloop:\n", 1)) == [
        "vmcnt(1) | v_mov_b32 v5, v1"
    ]


def test_groups_around_a_loop() -> None:
    """Three groups ahead: the wait leaves two of them (and the store) in flight, in the first round too."""
    fetch = "global_load_lds_dword v0, s[0:1]\nglobal_load_lds_dword v0, s[2:3]\np_commit_group"
    source = f"""{fetch}
        {fetch}
        loop:
        {fetch}
        p_wait_group 2
        s_barrier
        global_store_dword v0, v9, s[0:1]
        s_cbranch_scc1 loop"""
    assert waits(source) == ["vmcnt(4) | s_barrier"]


def test_more_than_the_counter_holds() -> None:
    """With 70 loads pending the oldest needs a wait for 62, the highest that says anything."""
    lines = [f"global_load_dword v{i}, v100, s[0:1]" for i in range(70)]
    found = waits("\n".join([*lines, "v_mov_b32 v101, v2", "v_mov_b32 v101, v60"]))
    assert found == ["vmcnt(62) | v_mov_b32 v101, v2", "vmcnt(9) | v_mov_b32 v101, v60"]


def test_unused_branch_leaves_queue() -> None:
    """A wait on one path does not count on the other."""
    source = """global_load_dword v1, v0, s[0:1]
        s_cbranch_scc1 join
        v_mov_b32 v2, v1
        join:
        v_mov_b32 v3, v1"""
    assert waits(source) == ["vmcnt(0) | v_mov_b32 v2, v1", "vmcnt(0) | v_mov_b32 v3, v1"]
