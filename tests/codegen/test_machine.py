"""Machine IR: what an instruction reads and writes, reachability, ties."""

from __future__ import annotations

import pytest

from mimw.codegen.machine import (
    Addr,
    Block,
    Edge,
    Function,
    Imm,
    Inst,
    Not,
    Pair,
    Reg,
    Sink,
    Terminator,
    Vec,
    operand_regs,
    reachable_blocks,
    read,
    ties,
    written,
)
from mimw.diagnostics import InternalError

A, B, C, P = Reg("b32", "", "a"), Reg("b32", "", "b"), Reg("b64", "", "c"), Reg("pred", "", "p")


def test_operand_registers() -> None:
    assert operand_regs(Addr(C, 8, [A, Imm(1), B])) == [C, A, B]
    assert operand_regs(Vec([A, Sink(), B])) == [A, B]
    assert operand_regs(Pair(Sink(), P)) == [P]
    assert operand_regs(Not(P)) == [P]
    assert operand_regs(Imm(3)) == operand_regs(None) == []


def test_address_of_a_store_is_read_and_guard_and_ties_too() -> None:
    inst = Inst("st.global.b32", [Addr(C), A], 0, guard=P)
    assert (written(inst), read(inst)) == ([], [C, A, P])
    inst = Inst("ld.global.b32", [A, Addr(C)], 1, guard=P, tied_in=[B])
    assert (written(inst), read(inst), read(inst, tied=False)) == ([A], [C, P, B], [C, P])


def test_wait_redefines_without_printing() -> None:
    new = [Reg("f32"), Reg("f32")]
    old = [Reg("f32"), Reg("f32")]
    inst = Inst("wgmma.wait_group.sync.aligned", [Imm(0)], 0, tied_in=[Vec([*old])], redefined=[Vec([*new])])
    assert written(inst) == new
    assert ties(inst) == list(zip(new, old, strict=True))


def test_ties_of_two_shapes_are_refused() -> None:
    with pytest.raises(InternalError, match="joins 2 and 1 registers"):
        ties(Inst("x", [Vec([A, B])], 1, tied_in=[A]))
    with pytest.raises(InternalError, match="joins b32 and b64 registers"):
        ties(Inst("x", [A], 1, tied_in=[C]))


def test_a_short_list_of_ties_leaves_results_free() -> None:
    assert ties(Inst("x", [A, B], 2, tied_in=[None])) == []
    other = Reg("b32")
    assert ties(Inst("x", [A, B], 2, tied_in=[other])) == [(A, other)]


def test_reachable_blocks_keep_their_order() -> None:
    one, two, three = Block("one"), Block("two"), Block("three")
    one.term = Terminator([Edge(three, [])])
    three.term = Terminator([])
    fn = Function("k", [])
    fn.blocks = [one, two, three]
    assert reachable_blocks(fn) == [one, three]
    three.term = None
    with pytest.raises(InternalError, match="has no terminator"):
        reachable_blocks(fn)
