"""M0 is written before the arithmetic that stands between it and its load, where neither touches what the other does."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.flat.early_m0 import set_m0_early
from tests.codegen.amdgcn.flat_kit import body, text

LOAD = "global_load_lds_dword v[2:3], off"


@pytest.mark.parametrize(
    ("before", "write", "moves"),
    [
        ("v_lshl_add_u64 v[2:3], v[4:5], 0, s[6:7]", "s_add_i32 m0, s8, 1024", True),
        ("v_lshl_add_u64 v[2:3], v[4:5], 0, s[6:7]", "s_mov_b32 m0, s8", True),
        ("v_readfirstlane_b32 s8, v1", "s_mov_b32 m0, s8", False),  # makes what M0 gets
        ("s_add_u32 s6, s6, s4", "s_add_i32 m0, s8, 1024", False),  # a carry may be on its way
        ("v_lshl_add_u64 v[2:3], v[4:5], 0, s[6:7]", "s_mov_b32 s9, s8", False),  # no write of M0
        ("v_mfma_f32_32x32x8_f16 v[16:31], v[2:3], v[4:5], v[16:31]", "s_mov_b32 m0, s8", False),  # its wait states are others'
    ],
)  # fmt: skip
def test_what_changes_places(before: str, write: str, moves: bool) -> None:
    lines = text(set_m0_early(body("\n".join((before, write, LOAD)))))
    first, second = (write, before) if moves else (before, write)
    assert [line.split()[0] for line in lines] == [first.split()[0], second.split()[0], LOAD.split()[0]]
