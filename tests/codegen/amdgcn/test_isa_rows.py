"""The instruction table against LLVM: every row assembles on exactly the targets that it names; what a row forbids is refused."""

from __future__ import annotations

import re

import pytest

from mimw.codegen.amdgcn.binary.assemble import AssemblerError, assemble
from mimw.codegen.amdgcn.isa import Row, UnknownInstruction, check, resolve, rows
from mimw.codegen.machine import Imm, Inst, Operand, Reg, Symbol
from mimw.diagnostics import InternalError
from mimw.target import get_target

TARGETS = ("gfx942", "gfx950")
_EXTRA = {
    "_dpp": "row_shr:1 row_mask:0xf bank_mask:0xf",
    "_sdwa": "src0_sel:WORD_1",
}


def text_of(row: Row) -> str:
    """One instance of a row, with registers that overlap nowhere."""
    used = {"v": 10, "s": 8, "a": 0}

    def take(file: str, bits: int) -> str:
        count = bits // 32
        align = 1 if count == 1 else 2 if file != "s" or count == 2 else 4
        first = -(-used[file] // align) * align
        used[file] = first + count
        return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"

    out: list[str] = []
    for slot in row.slots:
        if slot.kind in "vV":
            out.append(take("v", slot.bits))
        elif slot.kind in "sSmM":
            out.append("3" if row.name == "v_writelane_b32" and slot.kind == "S" and out[1:] else take("s", slot.bits))
        elif slot.kind == "a":
            out.append(take("a", 32))
        elif slot.kind == "@":
            out.append(take("v", 32 if row.encoding == "mubuf" or row.name.startswith("scratch") else 64))
        else:
            message = "sendmsg(MSG_INTERRUPT)" if row.name == "s_sendmsg" else "hwreg(HW_REG_MODE, 0, 8)"
            out.append({"o": "off", "#": "1", "L": "L0", "T": message, "...": "vmcnt(0)"}[slot.kind])
    text = f"{row.text} {', '.join(out)}"
    if row.encoding == "mubuf" and out:
        text += " offen"
    if "bitop3" in row.modifiers:
        text += " bitop3:0x40"
    for ending, extra in _EXTRA.items():
        if row.name.endswith(ending):
            text += f" {extra if '_pk_' in row.name or ending == '_dpp' else 'src0_sel:BYTE_1'}"
    return f"{text} {row.suffix}".strip()


REAL = [row for row in rows().values() if row.unit != "pseudo"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_row_assembles_where_it_says(target: str) -> None:
    have = [row for row in REAL if row.only in ("", target)]
    text = "L0:\n" + "".join(f"{text_of(row)}\n" for row in have)
    assert assemble(text, target).code


@pytest.mark.parametrize("target", TARGETS)
def test_no_other_target_has_it(target: str) -> None:
    others = [row for row in REAL if row.only not in ("", target)]
    assert others
    with pytest.raises(AssemblerError) as caught:
        assemble("L0:\n" + "".join(f"{text_of(row)}\n" for row in others), target)
    refused = {int(m[1]) for text in caught.value.messages if (m := re.search(r":(\d+):\d+:", text))}
    assert refused == set(range(2, len(others) + 2))


def _inst(name: str, *operands: Operand) -> Inst:
    return Inst(name, list(operands), resolve(name).num_results)


V, S = Reg("v32"), Reg("s32")


@pytest.mark.parametrize(
    ("inst", "message"),
    [
        (_inst("v_add_u32", V, Reg("s64"), V), "operands"),
        (_inst("v_add_u32", V, V), "operands"),
        (_inst("v_add_u32", V, S, Reg("s32")), "reads 2 scalars"),
        (_inst("v_add_u32", V, V, Imm(100)), "no literal"),
        (_inst("v_mul_lo_u32", V, Imm(100), V), "no literal"),
        (_inst("v_add_u32", V, V, V, Symbol("offset:4")), "no modifier offset"),
        (_inst("v_cndmask_b32", V, S, V, Reg("mask")), "reads 2 scalars"),
        (_inst("v_mov_b32_dpp", V, V, Symbol("row_shr:1")), "keeps bits"),
        (Inst("v_add_u32", [V, V, V], 0), "results"),
        (_inst("v_bitop3_b32", V, V, V, V, Symbol("bitop3:1")), "has no"),
    ],
)
def test_what_no_encoding_has_is_refused(inst: Inst, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        check(inst, get_target("gfx942"))


def test_legal_forms_pass() -> None:
    target = get_target("gfx942")
    for inst in (
        _inst("v_add_u32", V, Imm(100), V),
        _inst("v_add_u32", V, S, S),
        _inst("v_cndmask_b32", V, V, Imm(0x3F800000, "f32"), Reg("mask")),
        _inst("global_load_dwordx4", Reg("v128"), Reg("v64"), Symbol("off"), Symbol("offset:16"), Symbol("nt")),
        _inst("s_and_b64", Reg("mask"), Reg("mask"), Reg("s64")),
    ):
        check(inst, target)


def test_unknown_mnemonics_are_named() -> None:
    with pytest.raises(UnknownInstruction, match="v_nonsense"):
        resolve("v_nonsense")
