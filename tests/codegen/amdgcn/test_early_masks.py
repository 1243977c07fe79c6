"""Comparisons move up before their selections, as far as their operands allow."""

from __future__ import annotations

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn.ssa.early_masks import early_masks
from mimw.codegen.machine import Block, Function, Inst, Reg, Terminator


@mimw.kernel
def leaky(x_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    ml.store(out_ptr + offs, ml.where(x > 0, x, x * 0.01))


def _block(rows: int, late: bool) -> Block:
    """Rows of comparison and selection; `late`: of what the selection before made."""
    block = Block("entry")
    before = Reg("v32", "x")
    for _ in range(rows):
        mask, result = Reg("mask"), Reg("v32")
        x = before if late else Reg("v32", "x")
        block.insts.append(Inst("v_cmp_gt_f32", [mask, x, x], 1))
        block.insts.append(Inst("v_cndmask_b32", [result, x, before, mask], 1))
        before = result
    block.term = Terminator([])
    return block


def _moved(block: Block) -> str:
    fn = Function("k", [])
    fn.blocks = [block]
    early_masks(fn)
    return "".join("c" if isinstance(i, Inst) and i.opcode.startswith("v_cmp") else "s" for i in block.insts)


def test_two_others_stand_between() -> None:
    assert _moved(_block(5, late=False)) == "cccscscsss"


def test_what_it_compares_comes_first() -> None:
    assert _moved(_block(3, late=True)) == "cscscs"


def test_a_row_of_selections_waits_once_at_most() -> None:
    for target in ("gfx942", "gfx950"):
        text = str(leaky.compile(["*f32:16", "*f32:16"], {"BLOCK": 8192}, target=target, num_warps=4).asm["amdgcn"])
        assert text.count("v_cndmask_b32") == 32 and text.count("s_nop") <= 1
