"""Every kind of fault that the verifier's documentation lists is found, at its line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.diagnostics import InternalError
from mimw.ir.core import Module, OpBase
from mimw.ir.parser import parse_module
from mimw.ir.types import F32, I32, I64, TensorType
from mimw.ir.verifier import verify

GOOD = """\
kernel @k(%n: i32, %c: i1, %x: ptr<f32>) {
  %r = tensor.arange {start = 0, end = 32} : tensor<32xi32>
  %v = memory.load %x : f32
  %s = control.for %n, %n, %n, [%v] body(%i: i32, %a: f32) {
    control.if %c then {
      control.break %a
    } orelse {
      control.yield
    }
    control.yield %a
  } : f32
  %w = control.while %n condition(%p: i32) {
    control.yield %c
  } body(%q: i32) {
    control.yield %q
  } : i32
  %t = tensor.reduce %r {axis = 0} combine(%d: i32, %e: i32) {
    %f = arith.add %d, %e : i32
    control.yield %f
  } : i32
  %u = control.inlined body {
    control.return %t
  } : i32
  memory.store %x, %s
  control.return
}
"""


def _module() -> Module:
    module = parse_module(GOOD, file="k.mir")
    verify(module)
    return module


def _ops(module: Module) -> dict[str, OpBase]:
    """Ops by name; of several the last."""
    return {op.name: op for op in module.function.walk()}


def _refused(module: Module, line: int, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify(module)
    text = str(caught.value)
    assert f"k.mir:{line}:" in text or not line, text
    assert message in text, text


def _foreign_value(m: Module) -> None:
    o = _ops(m)
    o["control.inlined"].regions[0].block.ops[0].set_operand(0, o["arith.add"].results[0])


def _forgotten_user(m: Module) -> None:
    _ops(m)["memory.load"].results[0].users.clear()


def _extra_user(m: Module) -> None:
    m.function.block.args[0].users.append(_ops(m)["memory.load"])


def _wrong_result_type(m: Module) -> None:
    _ops(m)["memory.load"].results[0].type = I64


def _wrong_shape(m: Module) -> None:
    _ops(m)["tensor.arange"].results[0].type = TensorType((31,), I32)


def _lost_parent(m: Module) -> None:
    _ops(m)["memory.load"].parent = None


def _lost_region(m: Module) -> None:
    _ops(m)["control.while"].regions[0].parent = None


def _early_terminator(m: Module) -> None:
    block = m.function.block
    block.ops.insert(0, block.ops.pop())


def _no_terminator(m: Module) -> None:
    m.function.block.ops.pop()


def _empty_block(m: Module) -> None:
    _ops(m)["control.inlined"].regions[0].block.ops[0].erase()


def _wrong_segments(m: Module) -> None:
    _ops(m)["memory.load"].segments = (1, 1, 0)


def _missing_attribute(m: Module) -> None:
    attrs = _ops(m)["tensor.arange"].attrs
    attrs["stop"] = attrs.pop("end")


def _illegal_attribute(m: Module) -> None:
    _ops(m)["memory.load"].attrs["cache"] = "warm"


def _two_results(m: Module) -> None:
    _ops(m)["memory.load"].add_result(F32)


def _wrong_block_argument(m: Module) -> None:
    _ops(m)["control.for"].regions[0].block.args[0].type = I64


def _wrong_combine_argument(m: Module) -> None:
    _ops(m)["tensor.reduce"].regions[0].block.add_arg(I32)


def _kernel_argument(m: Module) -> None:
    m.function.arguments[0].type = I64


BROKEN: list[tuple[Callable[[Module], None], int, str]] = [
    (_foreign_value, 22, "not visible here"),
    (_forgotten_user, 3, "the users of"),
    (_extra_user, 0, "the users of"),
    (_wrong_result_type, 3, "has results of types [i64], not [f32]"),
    (_wrong_shape, 2, "has results of types [tensor<31xi32>]"),
    (_lost_parent, 3, "does not know the block"),
    (_lost_region, 12, "a region or block that belongs elsewhere"),
    (_early_terminator, 25, "stands before its block's end"),
    (_no_terminator, 24, "ends a block but is no terminator"),
    (_empty_block, 21, "a block is empty"),
    (_wrong_segments, 3, "operand counts (1, 1, 0) for 1 operands"),
    (_missing_attribute, 2, "has no attribute end"),
    (_illegal_attribute, 3, "cache = 'warm'"),
    (_two_results, 3, "has 2 results, declared are 1"),
    (_wrong_block_argument, 4, "region 0 takes [i64, f32]"),
    (_wrong_combine_argument, 17, "region 0 takes [i32, i32, i32], not [i32, i32]"),
    (_kernel_argument, 0, "its block takes [i32, i1, ptr<f32>], not [i64, i1, ptr<f32>]"),
]


@pytest.mark.parametrize(("damage", "line", "message"), BROKEN, ids=lambda p: getattr(p, "__name__", None))
def test_damage_is_found(damage: Callable[[Module], None], line: int, message: str) -> None:
    module = _module()
    damage(module)
    _refused(module, line, message)


WRONG_EXITS = [
    ("control.break", 2, "has no place in the kernel's body"),
    ("control.yield %n", 2, "has no place in the kernel's body"),
    ("control.return %n", 2, "carries [i32], not []"),
    ("control.unreachable", 2, "does not follow an op that leaves"),
    (
        "control.if %c then {\n control.return\n} orelse {\n control.return\n}\ncontrol.return",
        7,
        "cannot be reached: the if before leaves on both sides",
    ),
    (
        "control.if %c then {\n control.yield\n} orelse {\n control.return\n}\ncontrol.unreachable",
        7,
        "follows an if that does not leave on both sides",
    ),
    (
        "%v = control.if %c then {\n control.yield %n\n} orelse {\n control.yield %c\n} : i32\ncontrol.return",
        5,
        "not [i32]",
    ),
    (
        "%v = control.if %c then {\n control.return\n} orelse {\n control.return\n} : i32\ncontrol.unreachable",
        2,
        "has results and leaves on both sides",
    ),
    (
        "control.inlined body {\n control.for %n, %n, %n, [] body(%i: i32) {\n  control.inlined body {\n"
        "   control.break\n  }\n  control.yield\n }\n control.return\n}\ncontrol.return",
        5,
        "control.break has no place in control.inlined",
    ),
    (
        "control.for %n, %n, %n, [] body(%i: i32) {\n control.continue %i\n}\ncontrol.return",
        3,
        "carries [i32], not []",
    ),
    (
        "%w = control.while %n condition(%p: i32) {\n control.yield %p\n} body(%q: i32) {\n control.yield %q\n} : i32\n"
        "control.return",
        3,
        "carries [i32], not [i1]",
    ),
    (
        "%r = tensor.arange {start = 0, end = 4} : tensor<4xi32>\n"
        "%s = tensor.reduce %r {axis = 0} combine(%a: i32, %b: i32) {\n control.return\n} : i32\ncontrol.return",
        4,
        "has no place in tensor.reduce",
    ),
]


@pytest.mark.parametrize(("body", "line", "message"), WRONG_EXITS)
def test_exits_fit_the_op_around(body: str, line: int, message: str) -> None:
    _refused(parse_module(f"kernel @k(%n: i32, %c: i1) {{\n{body}\n}}", file="k.mir"), line, message)


def test_a_tile_in_flight_is_not_used() -> None:
    text = """kernel @k() {
  %a = arith.constant {value = 0.0} : tensor<64x8xf32>
  %b = mma.as_inflight %a : inflight<tensor<64x8xf32>>
  %c = tensor.splat %b {shape = [4]} : tensor<4xf32>
  control.return
}"""
    _refused(parse_module(text, file="k.mir"), 4, "which is still in flight")


def test_layouts_may_differ_from_what_is_inferred() -> None:
    layout = "layout<32; lane 1 2 4 8 16; warp . .>"
    text = f"kernel @k() {{ %r = tensor.arange {{start = 0, end = 32}} : tensor<32xi32, {layout}>\n control.return }}"
    verify(parse_module(text))
