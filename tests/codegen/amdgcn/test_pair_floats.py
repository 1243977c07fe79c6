"""Packed f32 operations: where they come from, that they cost no moves, and that they compute what the tile simulator does."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mimw
import mimw.language as ml
from mimw.codegen.amdgcn import finish
from mimw.codegen.amdgcn.printer import print_inst
from mimw.codegen.amdgcn.ssa.pair_floats import pair_floats
from mimw.codegen.machine import Block, Function, Imm, Inst, Reg, Symbol, Terminator
from tests.amdgcn_kit import run_compiled
from tests.test_examples import load

TARGETS = ["gfx942", "gfx950"]


@mimw.kernel
def scaled_sum(x_ptr, y_ptr, out_ptr, factor, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.load(x_ptr + offs) * factor + ml.load(y_ptr + offs))


@mimw.kernel
def rescaled(x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    acc = ml.zeros((BLOCK,), ml.float32)
    for i in range(n):
        acc = acc * ml.load(y_ptr + i) + x
    ml.store(out_ptr + offs, acc)


@mimw.kernel
def steps(x_ptr, y_ptr, out_ptr, factor, n, CODE: ml.constexpr, ROWS: ml.constexpr, COLS: ml.constexpr):
    """A chain of operations, four bits of CODE each; some turn the tile, reduce it or go round a loop, so that values lie elsewhere."""
    offs = ml.arange(0, ROWS)[:, None] * COLS + ml.arange(0, COLS)[None, :]
    a = ml.load(x_ptr + offs)
    b = ml.load(y_ptr + offs)
    for i in ml.static_range(8):
        how = (CODE >> 4 * i) & 15
        if how == 0:
            a = a + b
        elif how == 1:
            a = a - b
        elif how == 2:
            a = b - a
        elif how == 3:
            a, b = b, a * b
        elif how == 4:
            a = ml.fma(a, b, a)
        elif how == 5:
            b = a * factor - b
        elif how == 6:
            a = a * 0.37 + 1.0
        elif how == 7:
            a = a - ml.max(b, 1)[:, None]
        elif how == 8:
            b = b * ml.sum(a, 0)[None, :]
        elif how == 9:
            a = ml.where(a > b, a, -b)
        elif how == 10:
            for _ in range(n):
                a, b = b * factor, a + b
        elif how == 11:
            a = ml.fma(-a, a, b)
        elif how == 12:
            b = ml.trans(ml.reshape(b, (COLS, ROWS)))
        elif how == 13:
            a = ml.cumsum(a, 1)
        elif how == 14:
            b = ml.abs(a) + b
        else:
            a = (a * b).to(ml.float16).to(ml.float32)
    ml.store(out_ptr + offs, a + b)


def _counts(kernel: Any) -> Counter[str]:
    return Counter(line.split()[0] for line in kernel.asm["amdgcn"].splitlines() if re.match(r"  [a-z]\w+_", line))


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_of_a_load_and_a_scalar(target: str) -> None:
    kernel = scaled_sum.compile(["*f32:16", "*f32:16", "*f32:16", "f32"], {"BLOCK": 2048}, target=target)
    counts = _counts(kernel)
    assert counts["v_pk_fma_f32"] == 4 and not counts["v_fma_f32"]
    assert not counts["v_mov_b32"] and not counts["v_mov_b64"]
    assert "op_sel_hi:[1,0,1]" in kernel.asm["amdgcn"]


@pytest.mark.parametrize("target", TARGETS)
def test_values_of_a_loop(target: str) -> None:
    kernel = rescaled.compile(["*f32:16", "*f32:16", "*f32:16", "i32"], {"BLOCK": 1024}, target=target)
    text = str(kernel.asm["amdgcn"])
    loop = text[text.index("_loop:") : text.index("s_cbranch", text.index("_loop:"))]
    assert loop.count("v_pk_fma_f32") == 2 and "v_fma_f32" not in loop
    assert not re.search(r"v_mov_b\d+ v\S+, v", loop)


@pytest.mark.parametrize("target", TARGETS)
def test_softmax_is_packed_between_its_reductions(target: str) -> None:
    types = ["*f32:16", "*f32:16", "i32:16", "i32:16", "i32"]
    counts = _counts(load("02_softmax.py").softmax_rows.compile(types, {"BLOCK": 2048}, target=target))
    # x - max, times log2(e), times the reciprocal and its scale: 4 pairs each, and sums of pairs
    assert counts["v_pk_mul_f32"] == 12 and counts["v_pk_add_f32"] >= 4


SUMS = (8, 13)
"""Steps whose sums the tile simulator adds up in an order of its own."""


def _as_machine_code(code: int, shape: tuple[int, int], target: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    types = ["*f32:16", "*f32:16", "*f32:16", "f32", "i32"]
    constants = {"CODE": code, "ROWS": shape[0], "COLS": shape[1]}
    kernel = steps.compile(types, constants, target=target, num_warps=1)
    got = np.empty_like(x)
    with np.errstate(all="ignore"):
        run_compiled(kernel, (1,), [x.copy(), y.copy(), got, 0.75, 2])
    return got


def _same(got: np.ndarray, want: np.ndarray) -> bool:
    """Bit for bit; any NaN is like another."""
    return bool(((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))).all())


@settings(max_examples=10)
@given(
    code=st.integers(0, (1 << 32) - 1),
    shape=st.sampled_from([(8, 64), (16, 16), (32, 64), (4, 256)]),
    target=st.sampled_from(TARGETS),
)
def test_chains_agree_with_single_operations_and_the_tile_simulator(
    code: int, shape: tuple[int, int], target: str
) -> None:
    rng = np.random.default_rng(code)
    x, y = (np.ldexp(rng.standard_normal(shape), rng.integers(-70, 40, shape)).astype(np.float32) for _ in range(2))
    x.flat[:4] = [np.nan, -0.0, 1e-42, np.inf]
    got = _as_machine_code(code, shape, target, x, y)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("combine", "pair_floats", "early_masks"):
            patch.setattr(finish, name, lambda fn: 0)
        assert _same(got, _as_machine_code(code, shape, target, x, y))
    if not any(code >> 4 * i & 15 in SUMS for i in range(8)):
        want = np.empty_like(x)
        with np.errstate(all="ignore"):
            steps[(1,)](x, y, want, 0.75, 2, CODE=code, ROWS=shape[0], COLS=shape[1], num_warps=1)
        assert _same(got, want)


# --- the pass by itself


def _body(insts: list[Inst], params: list[Reg]) -> list[str]:
    block = Block("entry")
    block.insts = [*(Inst("p_undef", [reg], 1) for reg in params), *insts]
    block.term = Terminator([])
    fn = Function("k", [])
    fn.blocks = [block]
    pair_floats(fn)
    names: dict[Reg, str] = {}
    for inst in block.insts:
        assert isinstance(inst, Inst)
        for operand in inst.operands:
            if isinstance(operand, Reg):
                operand.name = operand.name or names.setdefault(operand, operand.hint or f"t{len(names)}")
    return [print_inst(i) for i in block.insts if isinstance(i, Inst) and i.opcode.startswith("v_")]


def _regs(names: str) -> list[Reg]:
    return [Reg("v32", name) for name in names.split()]


def test_what_stands_between_moves_up_or_stays_apart() -> None:
    a, b, c, d, e, f, g, h = _regs("a b c d e f g h")
    chain = [
        Inst("v_mul_f32", [c, a, a], 1), Inst("v_exp_f32", [d, c], 1), Inst("v_add_f32", [e, d, a], 1),
        Inst("v_mul_f32", [f, b, b], 1), Inst("v_exp_f32", [g, f], 1), Inst("v_add_f32", [h, g, b], 1),
        Inst("global_store_dwordx2", [Reg("v64", "at"), Reg("v64", "both"), Symbol("off")]),
    ]  # fmt: skip
    chain.insert(6, Inst("p_pack", [chain[6].operands[1], e, h], 1))
    opcodes = [line.split()[0] for line in _body(chain, [a, b])]
    assert opcodes == ["v_pk_mul_f32", "v_exp_f32", "v_exp_f32", "v_pk_add_f32"]


def test_one_that_needs_the_other_is_no_mate() -> None:
    a, b, c, d = _regs("a b c d")
    lines = _body([Inst("v_mul_f32", [c, a, b], 1), Inst("v_mul_f32", [d, c, b], 1)], [a, b])
    assert lines == ["v_mul_f32 c, a, b", "v_mul_f32 d, c, b"]


def test_nothing_moves_before_a_read_that_it_needs() -> None:
    a, b, c, d, e = _regs("a b c d e")
    lines = _body(
        [Inst("v_mul_f32", [c, a, a], 1), Inst("ds_read_b32", [d, b], 1), Inst("v_mul_f32", [e, d, d], 1)], [a, b]
    )
    assert len(lines) == 2 and not any("pk" in line for line in lines)


def test_differences_negate_and_crossed_sources_are_selected() -> None:
    t, u = Reg("v64", "t"), Reg("v64", "u")
    a, b, c, d, x, y = _regs("a b c d x y")
    parts = [Inst("p_part", [reg, of, Imm(i)], 1) for reg, of, i in ((a, t, 0), (b, t, 1), (c, u, 0), (d, u, 1))]
    lines = _body([*parts, Inst("v_sub_f32", [x, a, d], 1), Inst("v_sub_f32", [y, b, c], 1)], [t, u])
    assert len(lines) == 1 and "v_pk_add_f32" in lines[0]
    assert "op_sel:[0,1] op_sel_hi:[1,0] neg_lo:[0,1] neg_hi:[0,1]" in lines[0]
