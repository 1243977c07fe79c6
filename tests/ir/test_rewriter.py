"""Rewriting helpers keep uses and visibility right; the verifier says whether they did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.core import Module, OpBase
from mimw.ir.opdef import elementwise
from mimw.ir.parser import parse_module
from mimw.ir.printer import print_module
from mimw.ir.rewriter import (
    clone_function,
    erase_dead,
    replace,
)
from mimw.ir.verifier import verify
from tests.ir.programs import HERE, Maker
from tests.ir.structure import difference

TEXT = """kernel @k(%n: i32, %c: i1, %x: ptr<i32>) {
  %unused = arith.add %n, %n : i32
  %twice = arith.mul %n, %n : i32
  %r = control.if %c then {
    %deep = arith.neg %unused : i32
    %a = arith.add %twice, %n : i32
    control.yield %a
  } orelse {
    control.yield %n
  } : i32
  memory.store %x, %r
  control.return
}"""


def _module() -> Module:
    return parse_module(TEXT)


def _named(module: Module, name: str) -> OpBase:
    return next(op for op in module.function.walk() if op.results and op.results[0].name == name)


@given(st.integers(0, 10**9))
def test_a_clone_is_equal_and_apart(seed: int) -> None:
    module = Maker(seed).module(15)
    copy = Module(clone_function(module.function))
    verify(copy)
    verify(module)
    assert difference(module, copy) == ""
    text = print_module(module)
    for op in reversed(list(copy.function.block.ops)):
        op.drop()
    assert print_module(module) == text


def test_erase_dead_goes_inside() -> None:
    module = _module()
    assert erase_dead(module.function.block)
    verify(module)
    names = {op.results[0].name for op in module.function.walk() if op.results}
    assert names == {"twice", "r", "a"}
    assert not erase_dead(module.function.block)


def test_replace() -> None:
    module = _module()
    replace(_named(module, "twice"), [module.function.block.args[0]])
    verify(module)
    assert _named(module, "a").operands == [module.function.block.args[0]] * 2


def test_an_op_that_does_not_fit_leaves_no_use() -> None:
    module = _module()
    n, c = module.function.block.args[:2]
    before = list(n.users)
    try:
        elementwise("arith.add", n, c, loc=HERE)
    except ValueError as e:
        assert "i32 and i1 differ" in str(e)
    assert n.users == before
    verify(module)
