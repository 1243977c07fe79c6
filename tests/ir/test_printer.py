"""The text form: what it looks like, and that printing, parsing and printing again changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.diagnostics import Loc
from mimw.ir.core import Argument, Function, Module
from mimw.ir.layout import Layout
from mimw.ir.opdef import OPS
from mimw.ir.ops.arith import ConstantOp
from mimw.ir.ops.control import ReturnOp
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.ops.tensor import ArangeOp, ConvertLayoutOp
from mimw.ir.parser import parse_module
from mimw.ir.printer import print_module, print_op
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import F16, F32, I32, MemDescType, PointerType, TensorType
from mimw.ir.verifier import verify
from tests.ir.programs import HERE, TERMINATORS, Maker
from tests.ir.structure import difference

TEXT = """\
#l0 = layout<128; reg 1 2; lane 4 8 16 32 64; warp . .>
#s1 = shared<4x8; 8 16; 1 2 4; size 32>
kernel @k(%x: ptr<f32> {divisor = 16}, %n: i32) num_warps = 4 num_stages = 2 options {debug = true} {
  %offs = tensor.arange {start = 0, end = 128} : tensor<128xi32>
  %there = tensor.convert_layout %offs {reason = "test"} : tensor<128xi32, #l0>
  %0 = arith.constant {value = -0.5} : tensor<128xf32, #l0>
  %buffer = memory.local_alloc : memdesc<4x8xf16, shared, #s1>
  control.return
}
"""


def _module() -> Module:
    layout = Layout.get([(7, 1)], [(1,), (2,)], [(4,), (8,), (16,), (32,), (64,)], [(0,), (0,)])
    f = Function("k", [Argument("x", PointerType(F32), 16), Argument("n", I32)], HERE, 4, 2)
    f.options["debug"] = True
    offs = ArangeOp(0, 128, loc=HERE)
    offs.results[0].name = "offs"
    there = ConvertLayoutOp(offs.results[0], TensorType((128,), I32, layout), reason="test", loc=HERE)
    there.results[0].name = "there"
    constant = ConstantOp(-0.5, TensorType((128,), F32, layout), loc=HERE)
    shared = SharedLayout.row_major((4, 8))
    buffer = LocalAllocOp(type=MemDescType((4, 8), F16, "shared", shared), loc=HERE)
    buffer.results[0].name = "buffer"
    for op in (offs, there, constant, buffer, ReturnOp([], loc=HERE)):
        f.block.append(op)
    return Module(f)


def test_text() -> None:
    module = _module()
    verify(module)
    assert print_module(module) == TEXT
    assert difference(module, parse_module(TEXT)) == ""


def test_locations() -> None:
    module = _module()
    call = Loc("main.py", 30, 2)
    module.function.block.ops[0].loc = Loc('a "b".py', 7, 5, call_site=call)
    text = print_module(module, locs=True)
    assert 'loc("a \\"b\\".py":7:5 at "main.py":30:2)' in text
    again = parse_module(text)
    assert print_module(again, locs=True) == text
    assert again.function.block.ops[0].loc.call_site == call
    assert "loc(" not in print_module(module)


def test_names_are_made_unique() -> None:
    f = Function("k", [Argument("a", I32)], HERE)
    for name in ("a", "a", "a_1", "", "", "0", "3d", "é"):
        op = ConstantOp(1, I32, loc=HERE)
        op.results[0].name = name
        f.block.append(op)
    f.block.append(ReturnOp([], loc=HERE))
    names = [line.split()[0] for line in print_module(Module(f)).splitlines() if "=" in line][1:]
    assert names == ["%a_1", "%a_2", "%a_1_1", "%0", "%1", "%_0", "%_3d", "%_"]


def test_op_alone() -> None:
    op = _module().function.block.ops[1]
    assert print_op(op).endswith('%there = tensor.convert_layout %offs {reason = "test"} : tensor<128xi32, #l0>')


@pytest.mark.parametrize("name", sorted(OPS.keys() - TERMINATORS))
def test_round_trip_of_each_op(name: str) -> None:
    for seed in range(8):
        maker = Maker(seed)
        assert maker.op(OPS[name]) is not None, f"{name}: no attempt gave an op"
        _round_trip(maker.module(0))


@given(st.integers(0, 10**9))
def test_round_trip_of_programs(seed: int) -> None:
    _round_trip(Maker(seed).module(25))


def _round_trip(module: Module) -> None:
    verify(module)
    text = print_module(module, locs=True)
    again = parse_module(text)
    verify(again)
    assert difference(module, again) == ""
    assert print_module(again, locs=True) == text
