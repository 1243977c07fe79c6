"""From a module to a code object: what the text says and what the object says are the same."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.binary.assemble import AssemblerError, assemble, disassemble
from mimw.codegen.amdgcn.binary.build import build
from mimw.codegen.amdgcn.binary.code_object import read
from mimw.codegen.amdgcn.binary.elf import Elf
from mimw.codegen.amdgcn.module import AmdgcnModule, KernelFacts
from mimw.codegen.machine import FlatFunction, Imm, Inst, Reg
from mimw.diagnostics import Loc

LOC = Loc("kernel.py", 7, 5)


def module(target: str, *insts: Inst, **facts: object) -> AmdgcnModule:
    """A kernel of these instructions."""
    described = KernelFacts()
    for name, value in facts.items():
        setattr(described, name, value)
    function = FlatFunction("kernel", [])
    function.body = list(insts)
    return AmdgcnModule(target, function, described)


def physical(name: str, cls: str = "s32") -> Reg:
    reg = Reg(cls)
    reg.name = name
    return reg


def move(source: int) -> Inst:
    return Inst("s_mov_b32", [physical("s4"), Imm(source, "int")], num_results=1, loc=LOC)


END = Inst("s_endpgm", [])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"vgprs": 37, "agprs": 16, "sgprs": 30, "lds_bytes": 65536, "workgroup_ids": "xz", "threads": 512},
        {"vgprs": 256, "agprs": 256, "sgprs": 102, "scratch_bytes": 128, "kernarg_bytes": 28, "workgroup_ids": "xyz"},
    ],
)
def test_code_object_says_what_the_module_says(target: str, facts: dict[str, object]) -> None:
    args = [
        ("x_ptr", 0, 8, "global_buffer"),
        ("n", 8, 4, "by_value"),
        ("hidden_block_count_x", 16, 4, "hidden_block_count_x"),
    ]
    made = module(target, move(3), END, args=args, **facts)
    text, hsaco = build(made)
    code = read(hsaco)
    kernel = code.kernels["kernel"]
    assert (code.target, kernel.size) == (target, 8)
    assert [(a.name, a.offset, a.size, a.kind) for a in kernel.args] == args
    assert kernel.max_threads == made.facts.threads
    d = kernel.descriptor
    # Whoever assembles the text by other means gets the same kernel: its directives make the same descriptor.
    rodata = Elf(assemble(text, target).object).section(".rodata")
    assert rodata is not None
    assert d.pack(0).hex(" ", 4) == rodata.data.hex(" ", 4)
    assert (d.lds_bytes, d.scratch_bytes, d.kernarg_bytes) == (
        made.facts.lds_bytes,
        made.facts.scratch_bytes,
        made.facts.kernarg_bytes,
    )
    assert d.workgroup_ids == made.facts.workgroup_ids
    assert d.vgprs >= made.facts.vgprs and d.agprs >= made.facts.agprs and d.sgprs >= made.facts.sgprs
    assert [i.text for i in disassemble(code.text[:8], target)] == ["s_mov_b32 s4, 3", "s_endpgm"]


def test_refused_instructions_name_the_users_line() -> None:
    wrong = Inst("s_mov_b32", [physical("s4"), physical("v[0:3]")], num_results=1, loc=LOC)
    with pytest.raises(AssemblerError) as caught:
        build(module("gfx942", END, wrong))
    assert caught.value.loc == LOC
