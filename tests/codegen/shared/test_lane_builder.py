"""Folding, constants kept apart, value numbering and its scopes, on the PTX builder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.codegen.lane import Lane, LazyTile, wrap_int
from mimw.codegen.machine import Inst, Reg
from mimw.codegen.ptx.builder import PtxBuilder
from mimw.ir.types import BF16, F16, F32, I1, I8, I32, I64, U8, U32, DType
from mimw.target import get_target


def builder(target: str = "sm_90a") -> PtxBuilder:
    return PtxBuilder(get_target(target))


def insts(b: PtxBuilder) -> list[Inst]:
    return [i for i in b.block.insts if isinstance(i, Inst)]


def lane(dtype: DType, cls: str = "b32") -> Lane:
    return Lane(dtype, Reg(cls))


_PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("dtype", [I8, U8, I32, U32, I64], ids=str)
@pytest.mark.parametrize("prim", list(_PYTHON))
@given(x=st.integers(-(1 << 70), 1 << 70), y=st.integers(-(1 << 70), 1 << 70))
def test_constants_fold_and_wrap(dtype: DType, prim: str, x: int, y: int) -> None:
    b = builder()
    x, y = wrap_int(x, dtype), wrap_int(y, dtype)
    found = b.op(prim, dtype, b.const(dtype, x), b.const(dtype, y))
    assert found.reg is None and found.off == wrap_int(_PYTHON[prim](x, y), dtype)
    assert insts(b) == []


def test_division_by_a_constant_zero_is_left_to_the_machine() -> None:
    b = builder()
    found = b.op("div", I32, b.const(I32, 1), b.const(I32, 0))
    assert found.reg is not None and [i.opcode for i in insts(b)] == ["mov.b32", "div.s32"]


def test_truncating_division_and_clamped_shifts_fold() -> None:
    b = builder()
    assert b.op("div", I32, b.const(I32, -7), b.const(I32, 2)).off == -3
    assert b.op("rem", I32, b.const(I32, -7), b.const(I32, 2)).off == -1
    assert b.op("shl", I32, b.const(I32, 1), b.const(I32, 32)).off == 0
    assert b.op("shr", I32, b.const(I32, -8), b.const(I32, 40)).off == -1
    assert b.op("shr", U32, b.const(U32, 8), b.const(U32, 40)).off == 0


def test_constants_stay_beside_the_register() -> None:
    b = builder()
    x, y = lane(I32), lane(I32)
    total = b.add(b.plus(x, 3), b.plus(y, 4))
    assert total.off == 7
    assert b.times(total, 8).off == 56
    assert [i.opcode for i in insts(b)] == ["add.s32", "mul.lo.s32"]


def test_equal_instructions_are_made_once() -> None:
    b = builder()
    x, y = lane(I32), lane(I32)
    assert b.op("xor", I32, x, y).reg is b.op("xor", I32, x, y).reg
    assert len(insts(b)) == 1


def test_a_region_does_not_leak_its_values() -> None:
    b = builder()
    x, y = lane(I32), lane(I32)
    b.open_scope()
    inside = b.op("xor", I32, x, y)
    b.close_scope()
    assert b.op("xor", I32, x, y).reg is not inside.reg


def test_a_loop_keeps_what_it_used_and_drops_the_rest() -> None:
    b = builder()
    x, y = lane(I32), lane(I32)
    used, unused = b.op("xor", I32, x, y), b.op("and", I32, x, y)
    b.open_loop()
    assert b.op("xor", I32, x, y).reg is used.reg
    b.close_loop()
    assert b.op("xor", I32, x, y).reg is used.reg
    assert b.op("and", I32, x, y).reg is not unused.reg


def test_a_loop_inside_a_region_does_not_leak_the_regions_values() -> None:
    b = builder()
    x, y = lane(I32), lane(I32)
    b.op("or", I32, x, y)
    b.open_scope()
    inside = b.op("xor", I32, x, y)
    b.open_loop()
    assert b.op("xor", I32, x, y).reg is inside.reg
    b.close_loop()
    b.close_scope()
    assert b.op("xor", I32, x, y).reg is not inside.reg


def test_boolean_identities() -> None:
    b = builder()
    p = Lane(I1, Reg("pred"))
    true, false = b.const(I1, 1), b.const(I1, 0)
    assert b.op("and", I1, p, true).reg is p.reg
    assert b.op("and", I1, p, false).reg is None
    assert b.op("or", I1, p, true).off == 1
    assert b.both(None, true) is true and b.both(p, true) is not None
    assert insts(b) == []


def test_packs_survive_and_unpack_once() -> None:
    b = builder()
    word = Reg("b32")
    lo, hi = b.halves(word, F16)
    assert b.pack([lo, hi]) is word
    b.register(lo)
    b.register(hi)
    assert [i.opcode for i in insts(b)] == ["mov.b32"]
    assert b.pack([hi, lo]) is not word


@pytest.mark.parametrize("prim", ["add", "sub", "mul"])
def test_bf16_before_sm_90_goes_through_fma(prim: str) -> None:
    old, new = builder("sm_80"), builder("sm_90a")
    for b, want in ((old, "fma.rn.bf16x2"), (new, f"{prim}.rn.bf16x2")):
        b.packed_op(prim, BF16, [b.halves(Reg("b32"), BF16), b.halves(Reg("b32"), BF16)])
        assert insts(b)[-1].opcode == want


def test_lazy_tiles_make_lanes_where_they_are_used() -> None:
    b = builder()
    x = lane(F32, "f32")
    tile = LazyTile(4, lambda i: b.compare("lt", x, b.const(F32, float(i))))
    assert insts(b) == []
    assert tile[1].dtype is I1 and len(tile[0:2]) == 2 and len(list(tile)) == 4
    assert len(insts(b)) == 4
