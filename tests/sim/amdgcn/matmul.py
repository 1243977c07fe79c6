"""A hand-written matrix product of two waves through LDS, as text for gfx942 and gfx950.

C (64 x 32, f32) = A (64 x K) B (32 x K)^T in f16, K in steps of 16: both waves load tiles of A and B (A straight to LDS on
gfx942, B by registers), wait, meet, read their operands and multiply. Each wave owns 32 rows. The lines that a mutation may
drop end in a comment ``; <name>``.
"""

from __future__ import annotations

import numpy as np

from tests.sim.amdgcn.programs import kernel

# LDS: A's tile (64 rows of 16 halves) at 0, B's (32 rows) at 2048. One step is 32 bytes a row.
BODY = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_load_dwordx2 s[8:9], s[0:1], 0x10
    s_load_dword s10, s[0:1], 0x18
    v_lshrrev_b32_e32 v1, 6, v0                 ; wave
    s_nop 0 ; lane read
    v_readfirstlane_b32 s11, v1
    v_and_b32_e32 v2, 63, v0                    ; lane
    s_waitcnt lgkmcnt(0) ; arguments
    s_lshl_b32 s12, s10, 1                      ; bytes of a row
    ; each lane copies a dword: row v0 / 8 of 16, dword v0 % 8; A takes four rounds, B two
    v_lshrrev_b32_e32 v3, 3, v0
    v_and_b32_e32 v4, 7, v0
    v_lshlrev_b32_e32 v4, 2, v4
    v_mul_lo_u32 v5, v3, s12
    v_add_u32_e32 v5, v5, v4                    ; global offset of the lane's dword
    v_lshlrev_b32_e32 v6, 2, v0                 ; its LDS offset
    s_lshl_b32 s13, s12, 4                      ; 16 rows
    s_lshl_b32 s14, s11, 8                      ; the wave's 256 bytes of each round
    ; operands: lane l reads 8 bytes at row l % 32, k = 4 (l / 32)
    v_and_b32_e32 v7, 31, v2
    v_lshrrev_b32_e32 v8, 5, v2
    v_lshlrev_b32_e32 v7, 5, v7
    v_lshl_or_b32 v7, v8, 3, v7
    s_lshl_b32 s15, s11, 10
    v_add_u32_e32 v8, s15, v7                   ; in A
    ; C: rows 8 (r / 4) + 4 (l / 32) + r % 4 of the wave's 32, column l % 32
    v_lshrrev_b32_e32 v20, 5, v2
    v_lshlrev_b32_e32 v20, 9, v20
    v_and_b32_e32 v21, 31, v2
    v_lshl_or_b32 v20, v21, 2, v20
    s_lshl_b32 s18, s11, 12
    v_add_u32_e32 v20, s18, v20
    ; the accumulator
{zeros}
    s_mov_b32 s16, 0
loop:
    v_mov_b32_e32 v9, v5
{copy_a}
    global_load_dword v10, v5, s[6:7]
    v_add_u32_e32 v9, s13, v5
    global_load_dword v11, v9, s[6:7]
    s_waitcnt vmcnt(1) ; first of B
    ds_write_b32 v6, v10 offset:2048
    s_waitcnt vmcnt(0) ; second of B and A
    ds_write_b32 v6, v11 offset:2560
    s_waitcnt lgkmcnt(0) ; writes
    s_barrier ; tiles are there
    ds_read_b64 v[12:13], v8
    ds_read_b64 v[14:15], v8 offset:16
    ds_read_b64 v[16:17], v7 offset:2048
    ds_read_b64 v[18:19], v7 offset:2064
    s_waitcnt lgkmcnt(1) ; first operands
    v_mfma_f32_32x32x8_f16 v[32:47], v[12:13], v[16:17], v[32:47]
    s_waitcnt lgkmcnt(0) ; second operands
    v_mfma_f32_32x32x8_f16 v[32:47], v[14:15], v[18:19], v[32:47]
    s_barrier ; tiles are read
    v_add_u32_e32 v5, 32, v5
    s_add_i32 s16, s16, 16
    s_cmp_lt_i32 s16, s10
    s_cbranch_scc1 loop
{nops}
{stores}
"""

COPY_BY_DMA = """
    s_mov_b32 m0, s14
    s_nop 0 ; m0
    global_load_lds_dword v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    s_add_i32 s17, s14, 512
    s_mov_b32 m0, s17
    s_nop 0 ; m0 again
    global_load_lds_dword v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    s_add_i32 s17, s17, 512
    s_mov_b32 m0, s17
    s_nop 0 ; m0 a third time
    global_load_lds_dword v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    s_add_i32 s17, s17, 512
    s_mov_b32 m0, s17
    s_nop 0 ; m0 a fourth time
    global_load_lds_dword v9, s[4:5]
"""
COPY_BY_REGISTERS = """
    global_load_dword v22, v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    global_load_dword v23, v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    global_load_dword v24, v9, s[4:5]
    v_add_u32_e32 v9, s13, v9
    global_load_dword v25, v9, s[4:5]
    s_waitcnt vmcnt(3) ; A 0
    ds_write_b32 v6, v22
    s_waitcnt vmcnt(2) ; A 1
    ds_write_b32 v6, v23 offset:512
    s_waitcnt vmcnt(1) ; A 2
    ds_write_b32 v6, v24 offset:1024
    s_waitcnt vmcnt(0) ; A 3
    ds_write_b32 v6, v25 offset:1536
"""


def matmul_text(arch: str, by_dma: bool) -> str:
    """The kernel's text; `by_dma` copies A without registers."""
    zeros = "\n".join(f"    v_mov_b32_e32 v{32 + r}, 0" for r in range(16))
    stores: list[str] = []
    for r in range(16):
        row = 8 * (r // 4) + r % 4
        stores.append(f"    global_store_dword v20, v{32 + r}, s[8:9] offset:{128 * row}")
    body = BODY.format(
        zeros=zeros,
        copy_a=COPY_BY_DMA if by_dma else COPY_BY_REGISTERS,
        nops=f"    s_nop {5 if arch == 'gfx942' else 6} ; result",
        stores="\n".join(stores),
    )
    return kernel(body, lds=3072, kernarg=32)


def operands(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A (64, K), B (32, K), room for C, and what C must be."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, k)).astype(np.float16), rng.standard_normal((32, k)).astype(np.float16)
    return a, b, np.zeros((64, 32), np.float32), a.astype(np.float64) @ b.astype(np.float64).T
