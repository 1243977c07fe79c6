"""The simulator end to end: loads, arithmetic, stores, out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.codegen.amdgcn import isa
from mimw.sim.amdgcn.decode import Inst
from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.registry import find
from mimw.sim.amdgcn.run import run
from tests.sim.amdgcn.matmul import matmul_text, operands
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


@pytest.mark.parametrize(("text", "message"), [
    ("v_mov_b32_e32 v8, v0", "v8 is beyond the 8 registers"),
    ("v_accvgpr_write_b32 a8, v0", "a8 is beyond the 8 registers"),
    ("s_mov_b32 s16, 0", "s16 is beyond the 16 registers"),
])  # fmt: skip
def test_registers_beyond_those_granted(text: str, message: str) -> None:
    code = kernel(text).replace(
        ".amdhsa_kernarg_size",
        ".amdhsa_next_free_vgpr 16\n .amdhsa_accum_offset 8\n .amdhsa_next_free_sgpr 12\n .amdhsa_kernarg_size",
    )
    with pytest.raises(SimulationError, match=message):
        run(code, None, (1, 1, 1), (64, 1, 1), [])


def test_machine_code_does_as_its_text() -> None:
    """The same program assembled, packed into a code object, disassembled and run."""
    llvm = pytest.importorskip("mimw.codegen.amdgcn.binary.llvm")
    if llvm.find_llvm() is None:
        pytest.skip(llvm.why_no_llvm())
    from mimw.codegen.amdgcn.binary.code_object import KernelArg, KernelCode, write
    from mimw.codegen.amdgcn.binary.elf import Elf
    from mimw.codegen.amdgcn.binary.kernel_descriptor import KernelDescriptor

    a, b, c, want = operands(48)
    text = matmul_text("gfx942", True).split(".amdhsa_kernel")[0]
    section = Elf(llvm.assemble_text(text, "gfx942")[0]).section(".text")
    descriptor = KernelDescriptor(lds_bytes=3072, kernarg_bytes=32, vgprs=64, sgprs=32)
    args = [KernelArg(n, 8 * i, 8, "global_buffer") for i, n in enumerate("abc")] + [KernelArg("k", 24, 4, "by_value")]
    code = write("gfx942", section.data, [KernelCode("product", 0, len(section.data), descriptor, args)])
    run(code, "product", (1, 1, 1), (128, 1, 1), [a, b, c, 48])
    assert np.abs(c - want).max() < 1e-4


def test_every_row_of_the_instruction_table_runs() -> None:
    """Names that the table alone uses (a form by its modifier) are left out."""
    names = [
        n for n in isa.rows() if not n.startswith("p_") and not n.endswith("_lds") and not n.startswith("global_atomic")
    ]
    assert [n for n in names if find(Inst(n).mnemonic) is None] == []


def test_arguments_that_come_in_registers() -> None:
    code = kernel("v_lshlrev_b32_e32 v1, 2, v0\n v_mov_b32_e32 v2, s4\n global_store_dword v1, v2, s[2:3]", kernarg=16)
    code = code.replace(".amdhsa_kernarg_size", ".amdhsa_user_sgpr_kernarg_preload_length 3\n .amdhsa_kernarg_size")
    out = np.zeros(64, np.uint32)
    run(code, None, (1, 1, 1), (64, 1, 1), [out, 77])
    assert (out == 77).all()
