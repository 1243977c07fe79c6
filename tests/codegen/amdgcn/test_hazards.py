"""Wait states: each row of the table of hazards, on both machines, across loops, and not where nothing is near."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.flat.nops import insert_nops
from mimw.codegen.machine import Imm, Inst
from tests.codegen.amdgcn.flat_kit import body, text

MFMA16 = "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[0:3]"
MFMA32 = "v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]"
FLOAT16 = "v_mfma_f32_16x16x4_f32 v[0:3], v8, v9, v[0:3]"
FLOAT32 = "v_mfma_f32_32x32x2_f32 v[0:15], v16, v17, v[0:15]"
DOUBLE = "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]"


def states(source: str, gfx950: bool = False) -> int:
    """How many wait states the pass adds in all."""
    items = insert_nops(body(source), gfx950)
    nops = [item for item in items if isinstance(item, Inst) and item.opcode == "s_nop"]
    return sum(nop.operands[0].value + 1 for nop in nops if isinstance(nop.operands[0], Imm))


PAIRS = [
    # before, after, wait states on gfx942, on gfx950
    ("v_cmp_lt_i32 s[2:3], v0, v1", "v_cndmask_b32 v2, v0, v1, s[2:3]", 2, 2),
    ("v_cmp_lt_i32 vcc, v0, v1", "v_cndmask_b32 v2, v0, v1, vcc", 2, 2),
    ("v_readfirstlane_b32 s2, v0", "v_add_u32 v1, s2, v1", 2, 2),
    ("v_readfirstlane_b32 s2, v0", "s_add_u32 s3, s2, s2", 0, 0),
    ("v_readfirstlane_b32 s2, v0", "global_load_dword v1, v2, s[2:3]", 5, 5),
    ("v_readfirstlane_b32 s2, v0", "buffer_load_dword v1, v2, s[4:7], s2, offen", 5, 5),
    ("s_mov_b32 s2, 1", "global_load_dword v1, v2, s[2:3]", 0, 0),
    ("v_readfirstlane_b32 s2, v0", "v_readlane_b32 s3, v1, s2", 4, 4),
    ("v_readfirstlane_b32 s2, v0", "v_writelane_b32 v1, s5, s2", 4, 4),
    ("v_cmp_lt_i32 vcc, v0, v1", "v_div_fmas_f32 v2, v3, v4, v5", 4, 4),
    ("s_mov_b64 vcc, s[2:3]", "v_div_fmas_f32 v2, v3, v4, v5", 0, 0),
    ("v_add_u32 v1, v2, v3", "v_mov_b32_dpp v4, v1, quad_perm:[1,0,3,2], row_mask:0xf", 2, 2),
    ("v_add_u32 v1, v2, v3", "v_readlane_b32 s2, v1, 3", 1, 1),
    ("v_add_u32 v1, v2, v3", "v_readfirstlane_b32 s2, v1", 1, 1),
    ("v_add_u32 v1, v2, v3", "v_add_u32 v4, v1, v1", 0, 0),
    ("v_add_u32 v8, v2, v3", MFMA16, 2, 2),
    ("v_exp_f32 v1, v2", "v_add_f32 v3, v1, v1", 1, 1),
    ("v_exp_f32 v1, v2", "v_rcp_f32 v3, v1", 0, 0),
    ("v_cvt_pk_fp8_f32 v1, v2, v3, op_sel:[0,0,1]", "v_add_u32 v3, v1, v1", 1, 1),
    ("v_cvt_pk_fp8_f32 v1, v2, v3", "v_add_u32 v3, v1, v1", 0, 0),
    ("global_store_dwordx4 v0, v[4:7], s[0:1]", "v_mov_b32 v5, 0", 2, 2),
    ("global_store_dwordx2 v0, v[4:5], s[0:1]", "v_mov_b32 v5, 0", 0, 0),
    ("global_store_dwordx4 v0, v[4:7], s[0:1]", "v_mov_b32 v8, v4", 0, 0),
    ("s_mov_b32 m0, s4", "global_load_lds_dword v0, s[0:1]", 1, 1),
    ("s_mov_b32 m0, s4", "s_sendmsg sendmsg(MSG_INTERRUPT)", 1, 1),
    # products: to arithmetic and memory
    (MFMA16, "v_add_f32 v20, v0, v0", 7, 8),
    (MFMA32, "v_add_f32 v20, v0, v0", 11, 12),
    (MFMA32, "v_mov_b32 v3, 0", 11, 12),
    (MFMA32, "global_store_dwordx4 v20, v[12:15], s[0:1]", 11, 12),
    (MFMA32, "ds_write_b32 v20, v3", 11, 12),
    (MFMA32, "ds_read_b32 v3, v20", 11, 12),
    (FLOAT16, "v_add_f32 v20, v0, v0", 10, 10),
    (FLOAT32, "v_add_f32 v20, v0, v0", 18, 18),
    (MFMA16, "v_add_f32 v20, v8, v8", 0, 0),
    # to each other
    (MFMA16, MFMA16, 0, 0),
    (MFMA32, MFMA32, 0, 0),
    (MFMA16, "v_mfma_f32_16x16x16_f16 v[2:5], v[8:9], v[10:11], v[2:5]", 5, 6),
    (MFMA16, "v_mfma_f32_16x16x16_f16 v[12:15], v[0:1], v[10:11], v[12:15]", 7, 8),
    (FLOAT16, "v_mfma_f32_16x16x4_f32 v[2:5], v8, v9, v[2:5]", 8, 8),
    (FLOAT16, "v_mfma_f32_16x16x4_f32 v[12:15], v0, v9, v[12:15]", 10, 10),
    (MFMA16, "v_mfma_f32_16x16x16_f16 v[12:15], v[8:9], v[10:11], v[12:15]", 0, 0),
    (DOUBLE, "v_mov_b32 v20, v0", 11, 19),
    (DOUBLE, "global_store_dwordx2 v20, v[0:1], s[0:1]", 18, 18),
    (DOUBLE, DOUBLE, 0, 0),
    # what is added to may not be overwritten before it is read
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[4:7]", "v_mov_b32 v5, 0", 3, 3),
]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=[f"{a} | {b}" for a, b, _, _ in PAIRS])
def test_pairs(pair: tuple[str, str, int, int]) -> None:
    before, after, first, second = pair
    assert states(f"{before}\n{after}") == first
    assert states(f"{before}\n{after}", gfx950=True) == second


@pytest.mark.parametrize("between", range(9))
def test_instructions_between_count(between: int) -> None:
    filler = "\n".join(["s_add_u32 s4, s4, 1"] * between)
    assert states(f"{MFMA16}\n{filler}\nv_add_f32 v20, v0, v0") == max(0, 7 - between)


def test_nops_count_what_they_wait() -> None:
    assert states(f"{MFMA16}\ns_nop 4\nv_add_f32 v20, v0, v0") == 5 + 2
    assert states("v_cmp_lt_i32 s[2:3], v0, v1\ns_waitcnt lgkmcnt(0)\nv_cndmask_b32 v2, v0, v1, s[2:3]") == 1


def test_one_wait_serves_all() -> None:
    """The longest of several hazards decides, and what was waited for is not waited for again."""
    source = f"v_exp_f32 v21, v22\n{MFMA32}\nv_add_f32 v20, v0, v21\nv_add_f32 v20, v1, v21"
    assert states(source) == 11


def test_around_a_loop() -> None:
    """The end of a loop's body stands before its start."""
    source = f"""loop:
        v_add_f32 v20, v0, v0
        v_add_f32 v21, v20, v20
        {MFMA16}
        s_cbranch_scc1 loop
        s_endpgm"""
    assert states(source) == 6


def test_both_sides_of_a_branch() -> None:
    source = f"""s_cbranch_scc1 join
        {MFMA16}
        join:
        v_add_f32 v20, v0, v0"""
    assert states(source) == 7


def order(source: str) -> list[str]:
    """The lines after the pass."""
    return text(insert_nops(body(source), False))


def test_gaps_are_filled_with_what_comes_later() -> None:
    assert order(
        """v_cmp_lt_i32 s[2:3], v0, v1
        v_cndmask_b32 v2, v0, v1, s[2:3]
        v_add_u32 v3, v2, v2
        v_xor_b32 v4, v0, v1
        s_add_u32 s5, s6, s7"""
    ) == [
        "v_cmp_lt_i32 s[2:3], v0, v1",
        "v_xor_b32 v4, v0, v1",
        "s_add_u32 s5, s6, s7",
        "v_cndmask_b32 v2, v0, v1, s[2:3]",
        "v_add_u32 v3, v2, v2",
    ]


WALLS = {
    "it overwrites what is read before": "v_mov_b32 v0, 1",
    "it overwrites what is written before": "v_mov_b32 v2, 1",
    "it reads what is written before": "v_add_u32 v3, v2, v2",
    "a wait stands between": "s_waitcnt vmcnt(0)\nv_mov_b32 v9, 1",
    "EXEC changes between": "s_mov_b64 exec, s[8:9]\nv_mov_b32 v9, 1",
    "SCC is another's": "s_cselect_b32 s2, 1, 0\ns_add_u32 s5, s6, s7",
    "it touches memory": "global_load_dword v9, v8, s[0:1]",
    "a label stands between": "next:\nv_mov_b32 v9, 1",
}


@pytest.mark.parametrize("why", WALLS)
def test_what_may_not_move(why: str) -> None:
    lines = order(f"v_cmp_lt_i32 s[2:3], v0, v1\nv_cndmask_b32 v2, v0, v1, s[2:3]\n{WALLS[why]}")
    assert lines[1:3] == ["s_nop 1", "v_cndmask_b32 v2, v0, v1, s[2:3]"]


CLAUSES = {
    # loads in a row that may be replayed
    "global_load_dword v1, v0, s[0:1] | global_load_dword v2, v0, s[0:1]": 0,
    "global_load_dword v1, v[2:3], off | global_load_dword v2, v[4:5], off": 1,
    "global_load_dword v1, v[2:3], off | s_add_u32 s4, s4, 1 | global_load_dword v2, v[4:5], off": 0,
    "global_load_dword v1, v[2:3], off | s_branch next | next: | global_load_dword v2, v[4:5], off": 0,
    "global_load_dword v1, v[2:3], off | next: | global_load_dword v2, v[4:5], off": 1,
    "global_load_dword v1, v0, s[0:1] | global_store_dword v0, v9, s[0:1]": 1,
    "global_store_dword v0, v9, s[0:1] | global_store_dword v0, v8, s[0:1]": 0,
    "s_load_dword s4, s[0:1], 0 | s_load_dword s1, s[2:3], 0": 1,
    "s_load_dword s4, s[0:1], 0 | s_load_dword s5, s[2:3], 0": 0,
    "s_load_dword s4, s[0:1], 0 | global_load_dword v1, v0, s[0:1]": 0,
}


@pytest.mark.parametrize("source", CLAUSES)
def test_clauses_that_may_be_replayed(source: str) -> None:
    assert states(source.replace(" | ", "\n")) == CLAUSES[source]
