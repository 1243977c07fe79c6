"""Trivial parameters and liveness at the ends of blocks, on small functions."""

from __future__ import annotations

from mimw.codegen.dataflow import bits, end_reads, live_at_ends, trivial_parameters
from mimw.codegen.machine import Block, Edge, Imm, Reg, Terminator


def _loop(carried: Reg | Imm, start: Reg) -> tuple[list[Block], Reg]:
    """entry -> loop(param) -> loop(carried) or exit; the loop's parameter."""
    param, cond = Reg("b32", "param"), Reg("pred", "cond")
    entry, loop, done = Block("entry"), Block("loop", [param]), Block("done")
    entry.term = Terminator([Edge(loop, [start])])
    loop.term = Terminator([Edge(loop, [param if carried is start else carried]), Edge(done, [])], cond)
    done.term = Terminator([])
    return [entry, loop, done], param


def test_a_parameter_that_keeps_its_value_is_a_name() -> None:
    start = Reg("b32", "start")
    blocks, param = _loop(start, start)
    assert trivial_parameters(blocks, lambda a, b: a.cls == b.cls) == {param: start}
    assert trivial_parameters(blocks, lambda a, b: False) == {}
    assert start not in end_reads(blocks[0], {param: start}) and start in end_reads(blocks[0], {})


def test_a_parameter_with_two_values_is_none() -> None:
    for other in (Reg("b32", "other"), Imm(3)):
        blocks, _ = _loop(other, Reg("b32", "start"))
        assert trivial_parameters(blocks, lambda a, b: True) == {}


def test_what_a_loop_reads_is_live_around_it() -> None:
    blocks, _ = _loop(Imm(3), Reg("b32", "start"))
    entry, loop, done = blocks
    uses = {id(entry): (0, 0b01), id(loop): (0b01, 0b10), id(done): (0b10, 0)}
    at_entry, out = live_at_ends(blocks, lambda block: uses[id(block)])
    assert (at_entry, out[id(entry)], out[id(loop)], out[id(done)]) == (0, 0b01, 0b11, 0)
    uses[id(entry)] = (0b100, 0)
    at_entry, _ = live_at_ends(blocks, lambda block: uses[id(block)])
    assert at_entry == 0b101  # bit 0 is read before anybody writes it


def test_bits() -> None:
    assert bits(0) == [] and bits(0b1000_0101) == [0, 2, 7]
