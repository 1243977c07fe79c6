"""The simulator end to end: loads, arithmetic, stores, out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.run import run
from tests.sim.amdgcn.programs import execute, kernel


def test_one_instruction() -> None:
    a, b = np.arange(64, dtype=np.uint32), np.arange(64, dtype=np.uint32) * 7
    assert (execute("v_add_u32_e32 v100, v1, v2", {1: a, 2: b})[0] == a + b).all()


def test_store_outside_an_array() -> None:
    text = kernel("""
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        global_store_dword v1, v0, s[4:5]
    """)
    out = np.zeros(63, np.uint32)
    with pytest.raises(
        SimulationError, match=r"store of 4 bytes .* outside every allocation.*\[workgroup \(0,0,0\) wave 0 lane 63\]"
    ):
        run(text, None, (1, 1, 1), (64, 1, 1), [out])
