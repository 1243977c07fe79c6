"""Which waits join: an earlier one may become stricter, so that nothing sees less than before."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.flat.merge_waits import merge_waits
from tests.codegen.amdgcn.flat_kit import body, text

MFMA = "v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], v[16:31]"

CASES = {
    "writes in a row wait once": (
        "s_waitcnt vmcnt(2)/ds_write_b32 v9, v0/s_waitcnt vmcnt(1)/ds_write_b32 v9, v1/s_waitcnt vmcnt(0)/ds_write_b32 v9, v2",
        "s_waitcnt vmcnt(0)/ds_write_b32 v9, v0/ds_write_b32 v9, v1/ds_write_b32 v9, v2",
    ),
    "two products wait once, a third by itself": (
        f"s_waitcnt lgkmcnt(2)/{MFMA}/s_waitcnt lgkmcnt(1)/{MFMA}/s_waitcnt lgkmcnt(0)/{MFMA}",
        f"s_waitcnt lgkmcnt(1)/{MFMA}/{MFMA}/s_waitcnt lgkmcnt(0)/{MFMA}",
    ),
    "other instructions keep their waits": (
        "s_waitcnt vmcnt(1)/v_mov_b32 v1, v2/s_waitcnt vmcnt(0)/v_mov_b32 v3, v4",
        "s_waitcnt vmcnt(1)/v_mov_b32 v1, v2/s_waitcnt vmcnt(0)/v_mov_b32 v3, v4",
    ),
    "different counters do not join": (
        f"s_waitcnt lgkmcnt(1)/{MFMA}/s_waitcnt vmcnt(0)/{MFMA}",
        f"s_waitcnt lgkmcnt(1)/{MFMA}/s_waitcnt vmcnt(0)/{MFMA}",
    ),
    "what a write raises is not waited for early": (
        "s_waitcnt lgkmcnt(1)/ds_write_b32 v9, v0/s_waitcnt lgkmcnt(0)/ds_write_b32 v9, v1",
        "s_waitcnt lgkmcnt(1)/ds_write_b32 v9, v0/s_waitcnt lgkmcnt(0)/ds_write_b32 v9, v1",
    ),
    "a label keeps waits apart": (
        f"s_waitcnt lgkmcnt(1)/{MFMA}/loop:/s_waitcnt lgkmcnt(0)/{MFMA}",
        f"s_waitcnt lgkmcnt(1)/{MFMA}/loop:/s_waitcnt lgkmcnt(0)/{MFMA}",
    ),
    "a read in between is waited for later": (
        f"s_waitcnt lgkmcnt(2)/{MFMA}/ds_read_b32 v0, v9/s_waitcnt lgkmcnt(0)/{MFMA}",
        f"s_waitcnt lgkmcnt(2)/{MFMA}/ds_read_b32 v0, v9/s_waitcnt lgkmcnt(0)/{MFMA}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_waits(name: str) -> None:
    source, want = CASES[name]
    assert text(merge_waits(body(source.replace("/", "\n")))) == want.split("/")
