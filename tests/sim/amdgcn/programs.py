"""Hand-written programs for the AMDGCN simulator, and how to run a few instructions on chosen register values."""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.sim.amdgcn.run import run

LANES = 64


def execute(
    body: str,
    vectors: dict[int, Any] | None = None,
    scalars: dict[int, int] | None = None,
    *,
    out: int = 1,
    first: int = 100,
    arch: str = "gfx942",
    lds: int = 0,
    check: bool = True,
) -> np.ndarray:
    """Run instructions on one wave and return `out` registers from v`first` on, (out, 64) uint32.

    `vectors` gives VGPRs their (64,) values (any 4-byte type, or (2, 64) uint32 for pairs), `scalars` SGPRs theirs.
    """
    loads: list[str] = []
    data: list[np.ndarray] = []
    for number, value in (vectors or {}).items():
        words = np.atleast_2d(np.ascontiguousarray(np.broadcast_to(value, np.shape(value) or (LANES,)))).view(np.uint32)
        for k, row in enumerate(words):
            loads.append(f"global_load_dword v{number + k}, v254, s[0:1] offset:{256 * len(data)}")
            data.append(np.broadcast_to(row, LANES))
    moves = [f"s_mov_b32 s{n}, {v & 0xFFFFFFFF:#x}" for n, v in (scalars or {}).items()]
    stores = [f"global_store_dword v254, v{first + k}, s[2:3] offset:{256 * k}" for k in range(out)]
    table = np.concatenate(data).astype(np.uint32) if data else np.zeros(LANES, np.uint32)
    result = np.zeros((out, LANES), np.uint32)
    setup = """
        s_load_dwordx4 s[0:3], s[0:1], 0x0
        v_lshlrev_b32_e32 v254, 2, v0
        s_waitcnt lgkmcnt(0)
    """
    text = kernel(
        "\n".join([setup, *loads, *moves, "s_waitcnt vmcnt(0)\n s_nop 15", body, "s_nop 15\n s_nop 15", *stores]),
        lds=lds,
        kernarg=16,
    )
    run(text, None, (1, 1, 1), (LANES, 1, 1), [table, result], arch=arch, check=check)
    return result


def kernel(body: str, *, lds: int = 0, kernarg: int = 64, name: str = "kernel", dims: int = 0) -> str:
    """The text of a kernel: s[0:1] the arguments, s2 the work-group's x (overwritten at will), v0 the work-item ids."""
    return f"""
{name}:
{body}
    s_endpgm
    .amdhsa_kernel {name}
        .amdhsa_group_segment_fixed_size {lds}
        .amdhsa_kernarg_size {kernarg}
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        .amdhsa_system_sgpr_workgroup_id_x 1
        .amdhsa_system_vgpr_workitem_id {dims}
        .amdhsa_float_denorm_mode_32 3
    .end_amdhsa_kernel
"""
