"""Where reads of shared memory stand among products: ahead as far as registers last, never across a wall; what is computed stays the same."""

from __future__ import annotations

from mimw.codegen.amdgcn.ssa.prepare import prepare
from mimw.codegen.amdgcn.ssa.schedule import SLACK, schedule
from mimw.codegen.machine import Function, Imm, Inst, Reg, Symbol, Terminator, read, written
from tests.codegen.amdgcn.test_regalloc import Program

STEPS = 6
READ = 4
"""Registers of one operand."""


def product_program(barrier_at: int = -1) -> Program:
    """`STEPS` reads, then as many products of what they read, all added up."""
    p = Program()
    place = p.make("v_lshlrev_b32", "v32", Imm(4), p.lane)
    parts: list[Reg] = []
    for i in range(STEPS):
        if i == barrier_at:
            p.block.insts.append(Inst("s_barrier", [], 0))
        parts.append(p.make("ds_read_b128", "v128", place, Symbol(f"offset:{1024 * i}")))
    acc = p.make("p_pack", "v512", *[Imm(0)] * 16)
    for part in parts:
        acc = p.make("v_mfma_f32_32x32x16_bf16", "v512", part, part, acc)
    p.store(p.make("p_part", "v32", acc, Imm(0)))
    p.block.term = Terminator([])
    return p


def scheduled(p: Program, registers: int) -> list[str]:
    """ "r" for a read, "p" for a product, "b" for a barrier, in order."""
    fn: Function = prepare(p.fn)
    before = [id(inst) for block in fn.blocks for inst in block.insts]
    schedule(fn, registers)
    insts = [inst for block in fn.blocks for inst in block.insts if isinstance(inst, Inst)]
    assert sorted(before) == sorted(id(inst) for block in fn.blocks for inst in block.insts)
    kinds = {"ds_read_b128": "r", "v_mfma_f32_32x32x16_bf16": "p", "s_barrier": "b"}
    return [kinds[inst.opcode] for inst in insts if inst.opcode in kinds]


def test_with_many_registers_all_reads_stay_in_front() -> None:
    assert "".join(scheduled(product_program(), 512)) == "r" * STEPS + "p" * STEPS


def test_few_registers_hold_a_few_reads() -> None:
    order = "".join(scheduled(product_program(), 16 + SLACK + 3 * READ + 8))
    assert order.startswith("rrr") and order.endswith("ppp")
    ahead = max(order[:i].count("r") - order[:i].count("p") for i in range(len(order)))
    assert 2 <= ahead <= 5


def test_without_room_each_product_reads_its_own() -> None:
    assert "".join(scheduled(product_program(), 16)) == "rp" * STEPS


def test_no_read_crosses_a_barrier() -> None:
    order = "".join(scheduled(product_program(barrier_at=2), 16))
    assert order == "rrb" + "pp" + "rp" * (STEPS - 2)


def test_an_address_is_made_right_before_its_access() -> None:
    p = product_program()
    addresses = [
        p.make("v_lshl_add_u64", "v64", p.base, Imm(0), p.make("p_pack", "v64", p.lane, Imm(0))) for _ in range(3)
    ]
    for value in [p.make("global_load_dword", "v32", address, Symbol("off")) for address in addresses]:
        p.store(value)
    p.block.term = Terminator([])
    fn = prepare(p.fn)
    schedule(fn, 512)
    names = [inst.opcode for block in fn.blocks for inst in block.insts if isinstance(inst, Inst)]
    loads = [i for i, name in enumerate(names) if name == "global_load_dword"]
    assert len(loads) == 3
    assert all(names[i - 1] == "v_lshl_add_u64" for i in loads)


def test_a_read_stays_behind_its_address() -> None:
    """An address that is made among the products, from nothing that was read."""
    p = Program()
    place = p.make("v_lshlrev_b32", "v32", Imm(4), p.lane)
    acc = p.make("p_pack", "v512", *[Imm(0)] * 16)
    for i in range(3):
        place = p.make("v_add_u32", "v32", Imm(16 + i), place)
        part = p.make("ds_read_b128", "v128", place)
        acc = p.make("v_mfma_f32_32x32x16_bf16", "v512", part, part, acc)
    p.store(p.make("p_part", "v32", acc, Imm(0)))
    p.block.term = Terminator([])
    fn = prepare(p.fn)
    schedule(fn, 512)
    made: set[Reg] = set()
    for inst in fn.blocks[0].insts:
        if isinstance(inst, Inst):
            assert made.issuperset(read(inst))
            made.update(written(inst))
