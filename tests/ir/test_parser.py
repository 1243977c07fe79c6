"""What the parser refuses, and where it says so."""

from __future__ import annotations

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.ir.parser import ParseError, parse_module


def _kernel(body: str, head: str = "", arguments: str = "%n: i32, %x: ptr<f32>") -> str:
    return f"{head}kernel @k({arguments}) num_warps = 4 {{\n{body}\n  control.return\n}}\n"


WRONG = [
    ("  %a = arith.frob %n : i32", "2:8", "arith.frob is not an op"),
    ("  %a = arith.neg %m : i32", "2:18", "%m is not defined here"),
    ("  %a = arith.neg %n : i33", "2:23", "'i33' is not a type"),
    ("  %a = arith.neg %n", "2:3", "arith.neg has 1 results and 0 result types"),
    ("  %n = arith.neg %n : i32", "2:3", "%n is defined twice"),
    ("  %a = tensor.arange {start = 0} : tensor<4xi32>", "2:8", "tensor.arange needs end"),
    ("  %a = tensor.arange {start = 0, stop = 4} : tensor<4xi32>", "2:22", "tensor.arange has no attribute stop"),
    ("  %a = tensor.arange {start = 0, start = 4} : tensor<4xi32>", "2:34", "start is given twice"),
    ("  %a = control.program_id {axis = 3} : i32", "2:8", "axis is 3, not one of (0, 1, 2)"),
    ("  %a = memory.load %x, mask = : f32", "2:31", "a value is wanted, not ':'"),
    ("  %a = memory.load %x, musk = %n : f32", "2:24", "memory.load has no operand 'musk' here"),
    ("  memory.store %x, %n, %n", "2:24", "memory.store has no operand '%n'"),
    ("  %a = memory.ptr_add %x : ptr<f32>", "2:26", "',' is wanted, not ':'"),
    ("  %a = tensor.splat %n {shape = [4]} : tensor<4xi32, #l9>", "2:54", "#l9 is not defined"),
    ("  %a = tensor.splat %n {shape = [4]} : tensor<4xi32, layout<4; reg 1>>", "2:54", ""),
    ("  %a = tensor.splat %n {shape = [4]} : tensor<4xtensor<4xi32>>", "2:49", "tensor<4xi32> cannot be an element"),
    ("  control.if %n then {\n    control.yield\n  }", "5:3", "region 'orelse'"),
    ("  %a = control.for %n, %n, %n, [%n] body(%i: i32) {\n    control.yield %j\n  } : i32", "3:19", "%j is not"),
    ("  %a = mma.as_inflight %n : inflight<i32>", "2:38", "a tensor is wanted, not i32"),
    ("  %a = arith.constant {value = } : i32", "2:32", "a type is wanted"),
    ('  control.return loc("f":1)', "2:27", "':' is wanted"),
]


@pytest.mark.parametrize(("body", "place", "message"), WRONG)
def test_wrong_text(body: str, place: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(_kernel(body))
    e = caught.value
    assert str(e).startswith(f"{place}: ") and message in e.message, str(e)


def test_values_of_a_region_are_not_visible_after_it() -> None:
    body = (
        "  control.if %b then {\n    %c = arith.neg %n : i32\n    control.yield\n  } orelse {\n    control.yield\n  }\n"
    )
    with pytest.raises(ParseError, match="8:18: %c is not defined here"):
        parse_module(_kernel(f"{body}  %d = arith.neg %c : i32", arguments="%n: i32, %b: i1"))


def test_head() -> None:
    with pytest.raises(ParseError, match="1:1: 'kernel' is wanted, not 'func'"):
        parse_module("func @k() {}")
    with pytest.raises(ParseError, match="num_warps, num_stages and options, not warps"):
        parse_module("kernel @k() warps = 3 { control.return }")
    with pytest.raises(ParseError, match="2:1: the text goes on with '}'"):
        parse_module("kernel @k() { control.return }\n}")
    with pytest.raises(ParseError, match="the end of the text"):
        parse_module("kernel @k() {")
    with pytest.raises(ParseError, match="an argument has a divisor"):
        parse_module("kernel @k(%x: i32 {multiple = 3}) { control.return }")


def test_comments_and_places() -> None:
    text = "// a comment\nkernel @k() { // another\n\n  control.return\n}"
    op = parse_module(text, file="k.mir").function.block.ops[0]
    assert str(op.loc) == "k.mir:4:3"
    assert str(parse_module(text).function.block.ops[0].loc) == "<unknown>:0:0"


def test_attribute_values() -> None:
    body = """  %a = arith.constant {value = -inf} : f32
  %b = arith.constant {value = 1e-30} : f32
  %c = arith.constant {value = true} : i1
  %d = arith.constant {value = -7} : i32
  %e = arith.hint %d {divisor = [4]} : i32
  %f = arith.cast %d {dtype = bf16, saturate = false} : bf16"""
    ops = parse_module(_kernel(body)).function.block.ops
    assert [op.attrs.get("value") for op in ops[:4]] == [float("-inf"), 1e-30, True, -7]
    assert ops[4].attrs["divisor"] == (4,)
    assert str(ops[5].attrs["dtype"]) == "bf16" and ops[5].attrs["saturate"] is False
