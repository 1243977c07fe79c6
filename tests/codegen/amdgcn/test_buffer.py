"""Resources of buffer instructions: their words, and that equal ones are one."""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.buffer import FORMAT, HALF, resource
from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.isa import check
from mimw.codegen.lane import CTA, Lane
from mimw.codegen.machine import Imm, Inst, Reg
from mimw.ir.types import U32, U64
from mimw.target import get_target


def _insts(b: AmdgcnBuilder) -> list[Inst]:
    return [inst for inst in b.block.insts if isinstance(inst, Inst)]


def test_the_words_are_base_size_and_format() -> None:
    b = AmdgcnBuilder(get_target("gfx942"))
    found = resource(b, Lane(U64, Reg("s64"), uniform=CTA), 4096)
    assert found.cls == "s128"
    last = _insts(b)[-1]
    assert last.opcode == "p_pack"
    assert [x.value for x in last.operands[3:] if isinstance(x, Imm)] == [4096, FORMAT]
    masked = next(inst for inst in _insts(b) if inst.opcode == "s_and_b32")
    assert masked.operands[0] is last.operands[2], "the base has 48 bits; above them are stride and swizzle"
    for inst in _insts(b):
        check(inst, get_target("gfx942"))


def test_equal_resources_are_one() -> None:
    b = AmdgcnBuilder(get_target("gfx950"))
    base = Lane(U64, Reg("s64"), uniform=CTA)
    records = Lane(U32, Reg("s32"), uniform=CTA)
    first = resource(b, base, records)
    count = len(_insts(b))
    assert resource(b, base, records) is first and len(_insts(b)) == count
    assert resource(b, base) is not first


def test_resources_without_bounds_share_their_upper_words() -> None:
    b = AmdgcnBuilder(get_target("gfx942"))
    resource(b, Lane(U64, Reg("s64"), uniform=CTA))
    resource(b, Lane(U64, Reg("s64"), uniform=CTA), wild=False)
    (upper,) = [
        inst
        for inst in _insts(b)
        if inst.opcode == "p_pack" and len(inst.operands) == 3 and isinstance(inst.operands[1], Imm)
    ]
    assert [x.value & 0xFFFFFFFF for x in upper.operands[1:] if isinstance(x, Imm)] == [HALF, FORMAT]
    assert len([inst for inst in _insts(b) if upper.operands[0] in inst.operands[1:]]) == 2
    assert len([inst for inst in _insts(b) if inst.opcode == "s_and_b32"]) == 1, "only a wild base is masked"
