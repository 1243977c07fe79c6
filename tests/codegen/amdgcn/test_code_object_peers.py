"""Code objects that Triton made, of kernels of ours: read, and its text assembled to the same machine code."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mimw.codegen.amdgcn.binary.assemble import assemble, disassemble
from mimw.codegen.amdgcn.binary.code_object import read

pytestmark = pytest.mark.peers


def compiled(target: str) -> Any:
    """Triton's compiled kernel, which sums rows through shared memory; no device is needed."""
    triton: Any = pytest.importorskip("triton", reason="the extra `peers` is not installed")
    tl: Any = triton.language
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    @triton.jit
    def row_sums(x, out, n, columns: tl.constexpr):
        row = tl.program_id(1)
        at = tl.arange(0, columns)
        values = tl.load(x + row * n + at, mask=at < n, other=0.0)
        tl.store(out + row, tl.sum(values))

    source = ASTSource(row_sums, {"x": "*fp32", "out": "*fp32", "n": "i32"}, constexprs={"columns": 2048})
    return triton.compile(source, target=GPUTarget("hip", target, 64), options={"num_warps": 8})


def directive(text: str, name: str) -> int:
    match = re.search(rf"^\s*\.amdhsa_{name} (\d+)$", text, re.MULTILINE)
    assert match is not None, name
    return int(match[1])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_tritons_code_object_is_read(target: str) -> None:
    done = compiled(target)
    text = str(done.asm["amdgcn"])
    code = read(done.asm["hsaco"])
    assert (code.target, list(code.kernels)) == (target, ["row_sums"])
    kernel = code.kernels["row_sums"]
    d = kernel.descriptor
    assert d.kernarg_bytes == directive(text, "kernarg_size")
    assert d.accum_offset == directive(text, "accum_offset")
    assert d.granted_vgprs >= directive(text, "next_free_vgpr")
    assert d.user_sgprs == directive(text, "user_sgpr_count")
    assert d.preload == (directive(text, "user_sgpr_kernarg_preload_length"), 0)
    assert d.workgroup_ids == "".join(a for a in "xyz" if directive(text, f"system_sgpr_workgroup_id_{a}"))
    assert d.initial_sgprs()["kernarg_segment_ptr"] == (0, 2)
    assert kernel.max_threads == 512
    assert [(a.offset, a.size, a.kind) for a in kernel.args[:3]] == [
        (0, 8, "global_buffer"),
        (8, 8, "global_buffer"),
        (16, 4, "by_value"),
    ]
    start = kernel.entry - code.text_address
    machine_code = code.text[start : start + kernel.size]
    assert all(i.text for i in disassemble(machine_code, target))
    again = assemble(text, target)
    assert again.symbols["row_sums"][1] == kernel.size
    assert again.code[: kernel.size] == machine_code
