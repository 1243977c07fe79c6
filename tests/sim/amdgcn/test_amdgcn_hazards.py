"""Wait states: each rule is told when one is missing and silent when there are enough."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.amdgcn.errors import SimulationError
from tests.sim.amdgcn.programs import execute

# (needed, first, then, machine); v[20:51] and v2 to v9 hold numbers, s[20:23] a buffer that takes everything.
MFMA16, MFMA32 = (
    "v_mfma_f32_16x16x16_f16 v[20:23], v[2:3], v[4:5], 0",
    "v_mfma_f32_32x32x8_f16 v[20:35], v[2:3], v[4:5], 0",
)
RULES = [
    (7, MFMA16, "v_mov_b32_e32 v10, v20", "gfx942"),
    (8, MFMA16, "v_mov_b32_e32 v10, v20", "gfx950"),
    (11, MFMA32, "v_mov_b32_e32 v10, v35", "gfx942"),
    (12, MFMA32, "global_store_dword v254, v20, s[2:3]", "gfx950"),
    (11, MFMA32, "ds_write_b32 v9, v20", "gfx942"),
    (10, "v_mfma_f32_16x16x4_f32 v[20:23], v2, v4, 0", "v_mov_b32_e32 v10, v20", "gfx942"),
    (18, "v_mfma_f32_32x32x2_f32 v[20:35], v2, v4, 0", "v_mov_b32_e32 v10, v20", "gfx942"),
    (5, "v_mfma_f32_4x4x4_16b_f16 v[20:23], v[2:3], v[4:5], 0", "v_mov_b32_e32 v10, v20", "gfx942"),
    (11, MFMA32, "v_mfma_f32_32x32x8_f16 v[36:51], v[20:21], v[4:5], 0", "gfx942"),
    (9, MFMA32, "v_mfma_f32_16x16x16_f16 v[36:39], v[2:3], v[4:5], v[20:23]", "gfx942"),
    (10, MFMA32, "v_mfma_f32_16x16x16_f16 v[36:39], v[2:3], v[4:5], v[20:23]", "gfx950"),
    (0, MFMA32, "v_mfma_f32_32x32x8_f16 v[20:35], v[2:3], v[4:5], v[20:35]", "gfx942"),
    (11, MFMA32, "v_mov_b32_e32 v20, 0", "gfx942"),
    (7, "v_mfma_f32_32x32x8_f16 v[36:51], v[2:3], v[4:5], v[20:35]", "v_mov_b32_e32 v20, 0", "gfx942"),
    (2, "v_mov_b32_e32 v2, 0", MFMA16, "gfx942"),
    (20, "v_mfma_f32_32x32x64_f8f6f4 v[20:35], v[52:59], v[60:67], 0", "v_mov_b32_e32 v10, v20", "gfx950"),
    (12, "v_mfma_f32_32x32x64_f8f6f4 v[20:35], v[52:55], v[60:63], 0 cbsz:4 blgp:4", "v_mov_b32_e32 v10, v20", "gfx950"),
    (8, "v_mfma_f32_16x16x128_f8f6f4 v[20:23], v[52:55], v[60:63], 0 cbsz:4 blgp:4", "v_mov_b32_e32 v10, v20", "gfx950"),
    (1, "v_rcp_f32_e32 v10, v2", "v_mov_b32_e32 v11, v10", "gfx942"),
    (0, "v_rcp_f32_e32 v10, v2", "v_sqrt_f32_e32 v11, v10", "gfx942"),
    (2, "v_mov_b32_e32 v10, v2", "v_mov_b32_dpp v11, v10 row_ror:1 row_mask:0xf bank_mask:0xf", "gfx942"),
    (1, "v_mov_b32_e32 v10, v2", "v_readfirstlane_b32 s10, v10", "gfx942"),
    (1, "v_mov_b32_e32 v10, v2", "v_readlane_b32 s10, v10, 3", "gfx942"),
    (2, "v_cmp_eq_u32_e32 vcc, v2, v3", "v_cndmask_b32_e32 v10, v2, v3, vcc", "gfx942"),
    (2, "v_cmp_eq_u32_e64 s[10:11], v2, v3", "v_cndmask_b32_e64 v10, v2, v3, s[10:11]", "gfx942"),
    (4, "v_cmp_eq_u32_e32 vcc, v2, v3", "v_div_fmas_f32 v10, v2, v3, v4", "gfx942"),
    (2, "v_readfirstlane_b32 s10, v2", "v_add_u32_e32 v10, s10, v3", "gfx942"),
    (4, "v_readfirstlane_b32 s10, v9", "v_readlane_b32 s11, v2, s10", "gfx942"),
    (5, "v_readfirstlane_b32 s24, v9", "buffer_store_dword v2, v9, s[20:23], s24 offen", "gfx942"),
    (2, "buffer_store_dwordx4 v[2:5], v9, s[20:23], 0 offen", "v_mov_b32_e32 v2, 0", "gfx942"),
    (1, "s_mov_b32 m0, 0", "global_load_lds_dword v254, s[2:3]", "gfx942"),
    (1, "v_or_b32_sdwa v10, v2, v3 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_0", "v_mov_b32_e32 v11, v10", "gfx942"),
    (2, "v_mov_b32_e32 v10, v2\n v_mov_b32_e32 v11, v3", "v_permlane32_swap_b32_e32 v10, v11", "gfx950"),
]  # fmt: skip


def between(first: str, then: str, wait_states: int, arch: str) -> None:
    filler = f"s_nop {wait_states - 1}" if wait_states else ""
    if wait_states > 16:
        filler = f"s_nop 15\n s_nop {wait_states - 17}"
    setup = "\n".join(
        ["s_mov_b32 s20, s2", "s_and_b32 s21, s3, 0xffff", "s_mov_b32 s22, 64", "s_mov_b32 s23, 0", "s_mov_b32 s24, 0"]
    )
    body = f"{setup}\n s_nop 4\n {first}\n {filler}\n {then}\n s_nop 15\n s_nop 15\n s_waitcnt vmcnt(0) lgkmcnt(0)\n v_mov_b32_e32 v100, 0"
    ones = np.ones((32, 64), np.uint32)
    zeros = np.zeros(64, np.uint32)
    execute(body, {2: ones[:7], 9: zeros, 10: ones[:2], 20: ones, 52: ones[:16]}, arch=arch, lds=256)


@pytest.mark.parametrize(("needed", "first", "then", "arch"), RULES)
def test_rule(needed: int, first: str, then: str, arch: str) -> None:
    between(first, then, needed, arch)
    if needed:
        with pytest.raises(SimulationError, match=f"needs {needed} wait states, {needed - 1} lie between") as error:
            between(first, then, needed - 1, arch)
        assert error.value.kind == "hazard"


def test_a_path_around_the_wait_states_is_found() -> None:
    body = f"""
        {MFMA32}
        s_cmp_eq_u32 s2, s2
        s_cbranch_scc0 past
        s_nop 15
    past:
        v_mov_b32_e32 v100, v20
    """
    with pytest.raises(SimulationError, match="needs 11 wait states"):
        execute(body, {2: np.ones((4, 64), np.uint32)})
