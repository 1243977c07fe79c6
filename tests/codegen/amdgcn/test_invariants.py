"""Loop-invariant motion: chains of arithmetic leave loops, within bounds; nothing else does."""

from __future__ import annotations

from mimw.codegen.amdgcn.ssa.invariants import hoist
from mimw.codegen.amdgcn.ssa.prepare import prepare
from mimw.codegen.machine import Function, Imm, Inst, Terminator
from tests.codegen.amdgcn.test_regalloc import Program

PLENTY = {"s": 102, "v": 256}


def moved(p: Program, sizes: dict[str, int] = PLENTY) -> tuple[Function, int]:
    """The prepared function after the pass, and how many instructions moved; it must still do the same."""
    p.block.term = Terminator([])
    fn = prepare(p.fn)
    count = hoist(fn, sizes)
    p.done()
    return fn, count


def opcodes(fn: Function, hint: str) -> list[str]:
    """The opcodes in the blocks with a hint."""
    return [inst.opcode for block in fn.blocks if block.hint == hint for inst in block.insts if isinstance(inst, Inst)]


def test_a_chain_leaves_with_its_last_use() -> None:
    p = Program()
    (x,) = p.loop([p.lane])
    first = p.make("v_xor_b32", "v32", p.lane, Imm(3))
    second = p.make("v_xor_b32", "v32", first, Imm(5))
    p.end_loop([p.make("v_mul_lo_u32", "v32", x, second)])
    p.store(x)
    fn, count = moved(p)
    assert count == 2
    assert "v_xor_b32" not in opcodes(fn, "loop")
    assert opcodes(fn, "entry")[-2:] == ["v_xor_b32", "v_xor_b32"]


def test_what_changes_stays() -> None:
    p = Program()
    (x,) = p.loop([p.lane])
    p.end_loop([p.make("v_xor_b32", "v32", x, Imm(3))])
    p.store(x)
    assert moved(p)[1] == 0


def test_constants_and_memory_stay() -> None:
    p = Program()
    (x,) = p.loop([p.lane])
    constant = p.make("v_mov_b32", "v32", Imm(100000))
    loaded = p.make("global_load_dword", "v32", p.lane, p.base)
    p.end_loop([p.make("v_or3_b32", "v32", x, constant, loaded)])
    p.store(x)
    assert moved(p)[1] == 0


def test_guarded_and_tied_instructions_stay() -> None:
    p = Program()
    (x,) = p.loop([p.lane])
    tied = p.make("v_cvt_pk_fp8_f32", "v32", p.lane, p.lane, tied=p.lane)
    p.end_loop([p.make("v_add_u32", "v32", x, tied)])
    p.store(x)
    assert moved(p)[1] == 0


def test_out_of_both_loops() -> None:
    p = Program()
    (x,) = p.loop([p.lane], "outer")
    outer = p.head
    (y,) = p.loop([x], "inner")
    p.end_loop([p.make("v_mul_lo_u32", "v32", y, p.make("v_xor_b32", "v32", p.lane, Imm(3)))])
    p.head = outer
    p.end_loop([y])
    p.store(x)
    fn, count = moved(p)
    assert count == 2  # once out of each
    assert "v_xor_b32" in opcodes(fn, "entry")


def values(p: Program, count: int) -> None:
    """Invariants of a loop, each stored where it is made."""
    for i in range(count):
        p.store(p.make("v_xor_b32", "v32", p.lane, Imm(i)))


def test_only_as_much_as_fits() -> None:
    def count(registers: int) -> int:
        p = Program()
        (x,) = p.loop([p.lane])
        values(p, 60)
        p.end_loop([x])
        p.store(x)
        return moved(p, {"s": 102, "v": registers})[1]

    assert count(256) == 32  # what a loop may keep at most
    assert 0 < count(32) < 20
    assert count(12) == 0
