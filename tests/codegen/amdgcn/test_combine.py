"""Two instructions in one: which become one, which do not."""

from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn.printer import print_inst
from mimw.codegen.amdgcn.ssa.combine import combine
from mimw.codegen.machine import Block, Function, Imm, Inst, Operand, Reg, Symbol, Terminator
from tests.amdgcn_kit import same_on_amd


def combined(text: str, wanted: str) -> list[str]:
    """The lines of a block after `combine`; ``v..`` and ``s..`` are registers, all but those made here come from outside; `wanted` are stored."""
    regs: dict[str, Reg] = {}

    def operand(word: str) -> Operand:
        if word[0] in "vs" and word[1:].isalnum():
            return regs.setdefault(word, Reg(f"{word[0]}32", word, word))
        return Imm(int(word, 0)) if word.lstrip("-")[0].isdigit() else Symbol(word)

    insts: list[Inst] = []
    for line in text.strip().splitlines():
        opcode, _, rest = line.strip().partition(" ")
        operands = [operand(word) for word in rest.replace(" row", ", row").replace(" quad", ", quad").split(", ")]
        if opcode == "v_mov_b32_dpp":
            operands += [Symbol("row_mask:0xf"), Symbol("bank_mask:0xf")]
        insts.append(Inst(opcode, operands, 1, tied_in=[None] if opcode.endswith("_dpp") else None))
    block = Block("entry")
    block.insts = list(insts)
    block.insts += [Inst("ds_write_b32", [operand("vaddress"), operand(word)]) for word in wanted.split()]
    block.term = Terminator([])
    fn = Function("k", [])
    fn.blocks = [block]
    combine(fn)
    return [print_inst(inst) for inst in block.insts if isinstance(inst, Inst) and inst.opcode[:2] == "v_"]


def test_a_shift_and_a_sum() -> None:
    assert combined("v_lshlrev_b32 va, 2, vx\n v_add_u32 vb, va, vy", "vb") == ["v_lshl_add_u32 vb, vx, 2, vy"]
    assert combined("v_and_b32 va, 7, vx\n v_or_b32 vb, vy, va", "vb") == ["v_and_or_b32 vb, 7, vx, vy"]


def test_what_took_a_move_between_lanes_is_no_source_of_a_pair() -> None:
    text = "v_mov_b32_dpp va, vx row_mirror\n v_and_b32 vb, vy, va\n v_or_b32 vc, vb, 1"
    first, second = combined(text, "vc")
    assert first.startswith("v_and_b32_dpp vb, vx, vy row_mirror") and second == "v_or_b32 vc, vb, 1"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v_lshlrev_b32 va, 2, vx\n v_add_u32 vb, va, vy", "va vb"),  # two readers
        ("v_and_b32 va, 2047, vx\n v_or_b32 vb, va, vy", "vb"),  # a literal
        ("v_lshlrev_b32 va, sk, vx\n v_add_u32 vb, sl, va", "vb"),  # two scalars
        ("v_add_f32 va, vx, vy\n v_add_f32 vb, va, vz", "vb"),  # rounds
    ],
)
def test_what_stays_apart(text: str, wanted: str) -> None:
    assert combined(text, wanted) == [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("count", range(3, 20))
def test_a_tree_takes_half_the_instructions(count: int) -> None:
    lines = ["v_max_f32 va1, vx0, vx1"] + [f"v_max_f32 va{i}, va{i - 1}, vx{i}" for i in range(2, count)]
    found = combined("\n".join(lines), f"va{count - 1}")
    assert len(found) == count // 2
    assert sum(line.startswith("v_max3_f32") for line in found) == (count - 1) // 2


def test_a_move_between_lanes_goes_into_its_reader() -> None:
    text = "v_mov_b32_dpp va, vx quad_perm:[1,0,3,2]\n v_add_f32 vb, vy, va"
    assert combined(text, "vb") == ["v_add_f32_dpp vb, vx, vy quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"]
    assert len(combined(text, "va vb")) == 2
    assert len(combined("v_mov_b32_dpp va, vx row_mirror\n v_sub_f32 vb, vy, va", "vb")) == 2


@mimw.kernel
def extremes(x_ptr, i_ptr, out_ptr, index_ptr, ROWS: ml.constexpr, COLS: ml.constexpr):
    rows = ml.arange(0, ROWS)
    offs = rows[:, None] * COLS + ml.arange(0, COLS)[None, :]
    x, i = ml.load(x_ptr + offs), ml.load(i_ptr + offs)
    ml.store(out_ptr + rows, ml.max(x, 1))
    ml.store(out_ptr + ROWS + rows, ml.min(x, 1))
    ml.store(index_ptr + rows, ml.sum(i, 1))
    ml.store(index_ptr + ROWS + rows, ml.max(i, 1))
    ml.store(index_ptr + 2 * ROWS + rows, ml.min(i | (i << 3), 1))


@pytest.mark.parametrize(("rows", "cols"), [(64, 24), (8, 40), (128, 8)])
def test_extremes_agree_with_the_tile_simulator(rows: int, cols: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    x.flat[::7], x.flat[3::11] = np.nan, -0.0
    x.flat[5::13] = 0.0
    index = rng.integers(-(2**31), 2**31, (rows, cols)).astype(np.int32)
    outs = [np.zeros(2 * rows, np.float32), np.zeros(3 * rows, np.int32)]
    same_on_amd(extremes, (1,), [x, index, *outs], (0,), ROWS=rows, COLS=cols, num_warps=1)


@mimw.kernel
def both_bits(a, b):
    return (a & b) | 1


@mimw.kernel
def reduce_two_steps(x_ptr, out_ptr, N: ml.constexpr):
    x = ml.load(x_ptr + ml.arange(0, N))
    ml.store(out_ptr, ml.reduce(x, 0, both_bits))
    ml.store(out_ptr + 1 + ml.arange(0, N), ml.associative_scan(x, 0, both_bits))


def test_a_combination_of_two_operations() -> None:
    x = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 128).astype(np.int32) | 0x0F0F0F0F
    same_on_amd(reduce_two_steps, (1,), [x, np.zeros(129, np.int32)], N=128, num_warps=2)
