"""Scalar unit, memories, waits, races, deadlocks: small programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.run import run
from tests.sim.amdgcn.programs import execute, kernel

U32, I32, F32, U64 = np.uint32, np.int32, np.float32, np.uint64
LANE = np.arange(64, dtype=U32)
RANDOM = np.random.default_rng(3).integers(0, 2**32, 64, dtype=U32)


# --- the scalar unit

SCALAR = [
    ("s_add_u32 s4, 0xffffffff, 2\n s_addc_u32 s5, 7, 0", [1, 8]),
    ("s_sub_u32 s4, 1, 2\n s_subb_u32 s5, 7, 0", [2**32 - 1, 6]),
    ("s_mul_i32 s4, s6, 7\n s_mul_hi_u32 s5, s6, s6", [0x12345678 * 7, 0x12345678**2 >> 32]),
    ("s_lshl_b64 s[4:5], s[6:7], 4", [0x23456780, 0xABCDEEF1]),
    ("s_ashr_i64 s[4:5], s[6:7], 36", [0xF9ABCDEE, 0xFFFFFFFF]),
    ("s_bfe_u32 s4, s6, 0x80010\n s_bfe_i32 s5, s7, 0x4001c", [0x34, 0xFFFFFFF9]),
    ("s_ff1_i32_b32 s4, s6\n s_flbit_i32_b32 s5, s6", [3, 3]),
    ("s_bcnt1_i32_b32 s4, s6\n s_bcnt1_i32_b64 s5, s[6:7]", [13, 35]),
    ("s_brev_b32 s4, s6\n s_sext_i32_i8 s5, s7", [0x1E6A2C48, 0xFFFFFFEF]),
    ("s_cmp_gt_i32 s6, s7\n s_cselect_b32 s4, 1, 2\n s_cmp_gt_u32 s6, s7\n s_cselect_b32 s5, 1, 2", [1, 2]),
    ("s_movk_i32 s4, 0xff9c\n s_movk_i32 s5, 0x7fff\n s_addk_i32 s5, 0x1", [2**32 - 100, 0x8000]),
    ("s_pack_ll_b32_b16 s4, s6, s7\n s_pack_hh_b32_b16 s5, s6, s7", [0xDEEF5678, 0x9ABC1234 & 0xFFFF0000 | 0x1234]),
    ("s_lshl2_add_u32 s4, s6, s7\n s_min_i32 s5, s6, s7", [(0x12345678 * 4 + 0x9ABCDEF0 - 1) % 2**32, 0x9ABCDEEF]),
    ("s_bitset1_b32 s4, 31\n s_bitcmp1_b32 s6, 3\n s_cselect_b32 s5, 5, 6", [0x80000000, 5]),
    ("s_absdiff_i32 s4, 3, 10\n s_abs_i32 s5, -5", [7, 5]),
    ("s_andn2_b64 s[4:5], -1, s[6:7]", [0xEDCBA987, 0x65432110]),
    ("s_mov_b64 s[4:5], exec", [2**32 - 1, 2**32 - 1]),
    ("s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 4)\n s_mov_b32 s5, 1.0", [15, 0x3F800000]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), SCALAR, ids=lambda v: v.split()[0] if isinstance(v, str) else "")
def test_scalar(text: str, want: list[int]) -> None:
    body = f"{text}\n v_mov_b32_e32 v100, s4\n v_mov_b32_e32 v101, s5"
    got = execute(body, scalars={4: 0, 5: 0, 6: 0x12345678, 7: 0x9ABCDEEF}, out=2)
    assert [int(got[0, 0]), int(got[1, 0])] == [v % 2**32 for v in want]


def test_divergence_by_exec() -> None:
    body = """
        v_mov_b32_e32 v100, 1
        v_cmp_gt_u32_e32 vcc, 20, v0
        s_and_saveexec_b64 s[4:5], vcc
        s_cbranch_execz past
        v_mov_b32_e32 v100, 2
    past:
        s_xor_b64 exec, exec, s[4:5]
        v_add_u32_e32 v100, v100, v0
        s_or_b64 exec, exec, s[4:5]
    """
    assert (execute(body)[0] == np.where(LANE < 20, 2, 1 + LANE)).all()


# --- LDS


def lds(body: str, out: int = 1, arch: str = "gfx942") -> Any:
    return execute(f"v_lshlrev_b32_e32 v9, 2, v0\n v_lshlrev_b32_e32 v8, 4, v0\n{body}", {1: RANDOM, 2: RANDOM[::-1].copy()}, out=out,
                   lds=2048, arch=arch)  # fmt: skip


def test_narrow_accesses() -> None:
    got = lds(
        """
        ds_write_b32 v9, v1
        ds_read_u8 v100, v9 offset:1
        ds_read_i16 v101, v9 offset:2
        v_mov_b32_e32 v102, -1
        v_mov_b32_e32 v103, -1
        ds_read_u8_d16_hi v102, v9 offset:3
        ds_read_u16_d16 v103, v9
        s_waitcnt lgkmcnt(0)
        """,
        out=4,
    )
    assert (got[0] == RANDOM >> 8 & 255).all()
    assert (got[1].view(I32) == RANDOM.view(I32) >> 16).all()
    assert (got[2] == (0xFFFF | (RANDOM >> 24) << 16)).all()
    assert (got[3] == (0xFFFF0000 | RANDOM & 0xFFFF)).all()


def test_wide_and_double_accesses() -> None:
    got = lds(
        """
        v_mov_b32_e32 v3, v1
        v_mov_b32_e32 v4, v2
        ds_write_b128 v8, v[1:4]
        ds_read2_b32 v[100:101], v8 offset0:1 offset1:2
        ds_write2st64_b32 v9, v1, v2 offset0:4 offset1:5
        ds_read_b64 v[102:103], v8 offset:8
        s_waitcnt lgkmcnt(0)
        """,
        out=4,
    )
    assert (got[0] == RANDOM[::-1]).all()
    assert (got[1] == RANDOM).all()
    low, high = np.arange(64) * 16 + 8, np.arange(64) * 16 + 12
    memory = np.zeros(512, U32)
    memory[0:256] = np.stack([RANDOM, RANDOM[::-1], RANDOM, RANDOM[::-1]], 1).reshape(-1)
    memory[256:320], memory[320:384] = RANDOM, RANDOM[::-1]
    assert (got[2] == memory[low // 4]).all()
    assert (got[3] == memory[high // 4]).all()


@pytest.mark.parametrize(("bits", "name"), [(16, "b64_tr_b16"), (8, "b64_tr_b8"), (4, "b64_tr_b4")])
def test_transposed_loads(bits: int, name: str) -> None:
    """In every 16 lanes lane l gets column l of a tile of 16 columns."""
    store = "v_mov_b32_e32 v3, v2\n v_mov_b32_e32 v2, v1\n v_lshlrev_b32_e32 v8, 3, v0\n ds_write_b64 v8, v[2:3]"
    got = lds(f"{store}\n ds_read_{name} v[100:101], v8\n s_waitcnt lgkmcnt(0)", out=2, arch="gfx950")
    data = np.stack([RANDOM, RANDOM[::-1]], 1).reshape(-1)

    def elements(words: Any) -> Any:
        single = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little").reshape(-1, bits)
        return (single.astype(np.int64) << np.arange(bits)).sum(1)

    rows = 64 // bits
    for block in range(4):
        tile = elements(data[block * 32 : block * 32 + 32]).reshape(rows, 16)
        for lane in range(16):
            mine = elements(np.array([got[0, 16 * block + lane], got[1, 16 * block + lane]], U32))
            assert (mine == tile[:, lane]).all()


def test_crossbar() -> None:
    got = lds(
        """
        v_xor_b32_e32 v3, 0x24, v9
        ds_bpermute_b32 v100, v3, v1
        ds_swizzle_b32 v101, v1 offset:swizzle(BITMASK_PERM,"0p0ip")
        ds_swizzle_b32 v102, v1 offset:swizzle(QUAD_PERM,3,2,1,0)
        ds_permute_b32 v103, v3, v1
        s_waitcnt lgkmcnt(0)
        """,
        out=4,
    )
    assert (got[0] == RANDOM[LANE ^ 9]).all()
    low = LANE & 31
    assert (got[1] == RANDOM[(LANE & 32) | (low & 0b01001) | ((low ^ 2) & 2)]).all()
    assert (got[2] == RANDOM[LANE ^ 3]).all()
    assert (got[3] == RANDOM[LANE ^ 9]).all()


def test_lds_atomics() -> None:
    got = lds(
        """
        v_mov_b32_e32 v5, 0
        v_mov_b32_e32 v6, 16
        ds_write_b32 v5, v5 offset:16
        ds_add_rtn_u32 v100, v6, v0
        ds_read_b32 v101, v6
        s_waitcnt lgkmcnt(0)
        """,
        out=2,
    )
    assert (got[0] == np.concatenate([[0], np.cumsum(LANE)[:-1]])).all()
    assert (got[1] == LANE.sum()).all()


# --- buffers, scratch, global


def test_buffers_have_bounds() -> None:
    body = """
        s_mov_b32 s22, 100
        s_mov_b32 s20, s0
        s_and_b32 s21, s1, 0xffff
        s_mov_b32 s23, 0
        v_mov_b32_e32 v100, -1
        buffer_load_dword v100, v254, s[20:23], 0 offen
        v_mov_b32_e32 v103, v254
        buffer_load_dwordx2 v[101:102], v103, s[20:23], 0 offen offset:4
        s_waitcnt vmcnt(0)
    """
    got = execute(body, {1: RANDOM, 2: RANDOM}, out=3)
    assert (got[0] == np.where(LANE < 25, RANDOM, 0)).all()
    flat = np.concatenate([RANDOM, RANDOM])
    assert (got[1] == np.where(LANE + 1 < 25, flat[LANE + 1], 0)).all()
    assert (got[2] == np.where(LANE + 2 < 25, flat[LANE + 2], 0)).all()


def test_flat_reaches_global_memory_and_lds() -> None:
    body = """
        v_mov_b32_e32 v10, s0
        v_mov_b32_e32 v11, s1
        flat_load_dword v100, v[10:11] offset:8
        ds_write_b32 v254, v0
        s_mov_b64 s[4:5], src_shared_base
        v_mov_b32_e32 v12, 12
        v_mov_b32_e32 v13, s5
        flat_load_dword v101, v[12:13]
        s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    got = execute(body, {1: RANDOM}, out=2, lds=256)
    assert (got[0] == RANDOM[2]).all()
    assert (got[1] == 3).all()


def test_scratch_belongs_to_each_lane() -> None:
    text = kernel("""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        scratch_store_dword off, v0, off offset:8
        scratch_load_dword v2, off, off offset:8
        s_waitcnt vmcnt(0) lgkmcnt(0)
        global_store_dword v1, v2, s[4:5]
    """).replace(".amdhsa_kernarg_size", ".amdhsa_private_segment_fixed_size 16\n        .amdhsa_kernarg_size")
    out = np.zeros(128, U32)
    run(text, None, (1, 1, 1), (128, 1, 1), [out])
    assert (out == np.arange(128)).all()
    with pytest.raises(SimulationError, match="16 bytes are declared"):
        run(text.replace("offset:8", "offset:16"), None, (1, 1, 1), (128, 1, 1), [out])


def test_many_work_groups_in_three_dimensions() -> None:
    text = kernel(
        """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        v_and_b32_e32 v1, 0x3ff, v0
        v_bfe_u32 v2, v0, 10, 10
        v_lshl_add_u32 v1, v2, 3, v1
        s_lshl_b32 s5, s2, 4
        s_lshl_b32 s8, s3, 6
        s_add_i32 s5, s5, s8
        v_add_u32_e32 v1, s5, v1
        v_lshlrev_b32_e32 v2, 2, v1
        s_waitcnt lgkmcnt(0)
        global_store_dword v2, v1, s[6:7]
        """,
        dims=2,
    ).replace(".amdhsa_system_vgpr", ".amdhsa_system_sgpr_workgroup_id_y 1\n        .amdhsa_system_vgpr")
    out = np.zeros(4 * 50 * 16, U32)
    run(text, None, (4, 50, 1), (8, 2, 1), [out])
    assert (out == np.arange(len(out))).all()


# --- what is told


FAULTS = [
    ("wait", "s_load_dword s4, s[0:1], 0x0\n v_mov_b32_e32 v100, s4"),
    ("wait", "s_load_dword s4, s[0:1], 0x0\n ds_read_b32 v3, v5\n s_waitcnt lgkmcnt(1)\n v_mov_b32_e32 v100, s4"),
    ("wait", "global_load_dword v100, v254, s[0:1]\n v_add_u32_e32 v100, 1, v100"),
    ("wait", "global_load_dword v100, v254, s[0:1]\n v_mov_b32_e32 v100, 0"),
    ("wait", "global_load_dword v100, v254, s[0:1]\n ds_read_b32 v100, v5\n s_waitcnt vmcnt(0) lgkmcnt(0)"),
    ("wait", "global_load_dword v100, v254, s[0:1]\n global_load_dword v101, v254, s[0:1]\n s_waitcnt vmcnt(1)\n v_mov_b32_e32 v100, v101"),
    ("wait", "s_mov_b32 m0, 0\n s_nop 0\n global_load_lds_dword v254, s[0:1]\n ds_read_b32 v100, v254\n s_waitcnt lgkmcnt(0)"),
    ("wait", "v_mov_b32_e32 v10, s0\n v_mov_b32_e32 v11, s1\n flat_load_dword v100, v[10:11]\n s_waitcnt vmcnt(0)\n v_add_u32_e32 v100, 1, v100"),
    ("wait", "v_mov_b32_e32 v10, s0\n v_mov_b32_e32 v11, s1\n flat_load_dword v100, v[10:11]\n s_waitcnt lgkmcnt(0)\n v_add_u32_e32 v100, 1, v100"),
    ("uninitialised", "v_mov_b32_e32 v100, v77"),
    ("uninitialised", "v_mov_b32_e32 v100, s77"),
    ("uninitialised", "s_mov_b64 exec, 1\n v_mov_b32_e32 v77, 0\n s_mov_b64 exec, -1\n v_mov_b32_e32 v100, v77"),
    ("bounds", "v_mov_b32_e32 v3, 0x800\n ds_read_b32 v100, v3\n s_waitcnt lgkmcnt(0)"),
    ("bounds", "global_load_dword v100, v254, s[0:1] offset:4000\n s_waitcnt vmcnt(0)"),
    ("deadlock", "forever:\n s_branch forever"),
    ("deadlock", "v_mov_b32_e32 v3, 0\nforever:\n ds_read_b32 v4, v3\n s_waitcnt lgkmcnt(0)\n v_cmp_ne_u32_e32 vcc, 1, v4\n s_cbranch_vccnz forever"),
    ("unsupported", "v_no_such_thing v1, v2"),
    ("unsupported", "s_branch nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body"), FAULTS)
def test_fault(kind: str, body: str) -> None:
    with pytest.raises(SimulationError) as error:
        execute(f"v_mov_b32_e32 v100, 0\n v_mov_b32_e32 v5, 0\n s_nop 1\n {body}", {1: RANDOM}, lds=2048)
    assert error.value.kind == kind
    assert error.value.inst is not None or kind == "deadlock"


def two_waves(body: str, check: bool = True, seed: int = 0) -> Any:
    """Run 128 work-items: v0 the id, v1 the wave, s4 the wave; v100 is stored."""
    text = kernel(
        f"""
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        v_lshrrev_b32_e32 v1, 6, v0
        v_lshlrev_b32_e32 v2, 2, v0
        v_mov_b32_e32 v5, 0
        v_readfirstlane_b32 s4, v1
        s_waitcnt lgkmcnt(0)
        {body}
        global_store_dword v2, v100, s[2:3]
        """,
        lds=1024,
    )
    out = np.zeros(128, U32)
    run(text, None, (1, 1, 1), (128, 1, 1), [out], check=check, seed=seed)
    return out


FLAG = """
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 consumer
    v_mov_b32_e32 v3, 42
    ds_write_b32 v5, v3 offset:512
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v3, 1
    ds_add_u32 v5, v3 offset:516
    v_mov_b32_e32 v100, 0
    s_branch done
consumer:
    ds_read_b32 v6, v5 offset:516
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s6, v6
    s_cmp_lt_u32 s6, 1
    s_cbranch_scc1 consumer
    ds_read_b32 v100, v5 offset:512
    s_waitcnt lgkmcnt(0)
done:
"""


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_an_lds_atomic_publishes(seed: int) -> None:
    assert (two_waves(FLAG, seed=seed)[64:] == 42).all()


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("ds_write_b32 v5, v3 offset:512\n    s_waitcnt lgkmcnt(0)", "ds_write_b32 v5, v3 offset:512", "race"),
    ("ds_add_u32 v5, v3 offset:516", "ds_add_u32 v5, v3 offset:520", "deadlock"),
    ("s_cmp_lt_u32 s6, 1", "s_cmp_lt_u32 s6, 0", "race"),
])  # fmt: skip
def test_broken_flags_are_told(old: str, new: str, kind: str) -> None:
    assert FLAG.count(old) == 1
    kinds: set[str] = set()
    for seed in range(6):
        try:
            two_waves(FLAG.replace(old, new), seed=seed)
        except SimulationError as error:
            kinds.add(error.kind)
    assert kinds == {kind}


def test_waves_that_end_leave_the_barrier() -> None:
    out = two_waves("v_mov_b32_e32 v100, 7\n s_cmp_eq_u32 s4, 0\n s_cbranch_scc1 past\n s_barrier\npast:")
    assert (out == 7).all()


def test_equal_values_may_be_written_by_two_waves() -> None:
    body = "v_mov_b32_e32 v3, {}\n ds_write_b32 v5, v3\n s_waitcnt lgkmcnt(0)\n s_barrier\n ds_read_b32 v100, v5\n s_waitcnt lgkmcnt(0)"
    assert (two_waves(body.format("9")) == 9).all()
    with pytest.raises(SimulationError, match="race: write of LDS byte 0"):
        two_waves(body.format("v1"))
