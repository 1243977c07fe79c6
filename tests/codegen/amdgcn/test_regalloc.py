"""Allocation: no copies where none are needed, right ones where they are, and spilling when registers are few."""

from __future__ import annotations

import pytest

from mimw.codegen.amdgcn.allocation.parallel import schedule
from mimw.codegen.amdgcn.allocation.regalloc import Budget, budget
from mimw.codegen.amdgcn.finish import Finished, finish
from mimw.codegen.amdgcn.isa import check
from mimw.codegen.amdgcn.registers import units
from mimw.codegen.machine import Block, Edge, Function, Imm, Inst, Operand, Reg, Symbol, Terminator
from mimw.diagnostics import InternalError
from mimw.target import get_target
from tests.codegen.amdgcn.machine_kit import After, Before, entry_values

MOVES = ("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64", "v_swap_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32")


class Program:
    """An SSA function under construction."""

    def __init__(self) -> None:
        self.fn = Function("k", [])
        self.block = Block("entry")
        self.fn.blocks = [self.block]
        self.base = self.make("p_entry", "s64", Symbol("s[0:1]"))
        self.n = self.make("p_entry", "s32", Symbol("s2"))
        self.lane = self.make("p_entry", "v32", Symbol("v0"))

    def make(self, opcode: str, cls: str, *operands: Operand, tied: Operand | None = None) -> Reg:
        reg = Reg(cls)
        self.block.insts.append(Inst(opcode, [reg, *operands], 1, tied_in=None if tied is None else [tied]))
        return reg

    def store(self, data: Reg, guard: Reg | None = None) -> None:
        words = {"v32": "dword", "v64": "dwordx2", "v128": "dwordx4"}[data.cls]
        self.block.insts.append(Inst(f"global_store_{words}", [self.lane, data, self.base], 0, guard=guard))

    def loop(self, starts: list[Reg], hint: str = "loop") -> list[Reg]:
        """Open a loop of three rounds; returns what it carries."""
        self.head = Block(hint, [Reg("s32"), *(Reg(reg.cls) for reg in starts)])
        self.block.term = Terminator([Edge(self.head, [Imm(0), *starts])])
        self.fn.blocks.append(self.head)
        self.block = self.head
        return self.head.params[1:]

    def end_loop(self, args: list[Reg]) -> None:
        after = Block("after")
        counter = self.make("s_add_u32", "s32", self.head.params[0], Imm(1))
        again = self.make("p_cmp_lt_u32", "mask", counter, Imm(3))
        self.block.term = Terminator([Edge(self.head, [counter, *args]), Edge(after, [])], again, True)
        self.fn.blocks.append(after)
        self.block = after

    def done(self, limits: Budget | None = None) -> Finished:
        """Finish, and check that both forms do the same."""
        self.block.term = Terminator([])
        out = finish(self.fn, get_target("gfx942"), waves=4, limits=limits)
        assert After(out.flat, entry_values()).run().stores == Before(self.fn, entry_values()).run().stores
        return out


def opcodes(out: Finished, *wanted: str) -> list[str]:
    """The opcodes of the body that are among `wanted`."""
    return [item.opcode for item in out.flat.body if isinstance(item, Inst) and item.opcode in wanted]


def test_accumulators_stay_in_place() -> None:
    """A product around a loop takes no copies; its parts are stored from where they are."""
    p = Program()
    zero = p.make("p_pack", "v512", *[Imm(0)] * 16)
    (acc,) = p.loop([zero])
    pair = p.make("global_load_dwordx2", "v64", p.lane, p.base)
    total = p.make("v_mfma_f32_32x32x8_f16", "v512", pair, pair, acc)
    p.end_loop([total])
    for i in range(0, 16, 4):
        p.store(p.make("p_part", "v128", total, Imm(i)))
    out = p.done()
    assert len(opcodes(out, "v_mov_b64")) == 8  # the zeros
    assert not opcodes(out, "v_mov_b32", "v_swap_b32")
    assert out.agprs == 0


def test_tuples_are_made_in_place() -> None:
    p = Program()
    parts = [p.make("v_xor_b32", "v32", p.lane, Imm(i)) for i in range(4)]
    p.store(p.make("p_pack", "v128", *parts))
    assert not opcodes(p.done(), *MOVES)


def test_a_part_may_outlive_its_tuple() -> None:
    p = Program()
    whole = p.make("global_load_dwordx4", "v128", p.lane, p.base)
    last = p.make("p_part", "v32", whole, Imm(3))
    filler = [p.make("v_xor_b32", "v32", p.lane, Imm(i)) for i in range(8)]
    p.store(p.make("p_pack", "v128", *filler[:4]))
    p.store(last)
    assert not opcodes(p.done(), *MOVES)


def test_one_value_in_two_tuples_is_copied_once() -> None:
    p = Program()
    a, b = (p.make("v_xor_b32", "v32", p.lane, Imm(i)) for i in (1, 2))
    p.store(p.make("p_pack", "v64", a, b))
    p.store(p.make("p_pack", "v64", b, a))
    assert len(opcodes(p.done(), "v_mov_b32", "v_swap_b32")) <= 2


def test_tied_value_that_lives_on_is_copied() -> None:
    p = Program()
    old = p.make("v_xor_b32", "v32", p.lane, Imm(9))
    new = p.make("v_cvt_pk_fp8_f32", "v32", p.lane, p.lane, tied=old)
    p.store(old)
    p.store(new)
    assert opcodes(p.done(), *MOVES) == ["v_mov_b32"]


def test_product_whose_addend_lives_on_needs_no_copy() -> None:
    """The result goes elsewhere: products have three operands."""
    p = Program()
    pair = p.make("global_load_dwordx2", "v64", p.lane, p.base)
    addend = p.make("global_load_dwordx4", "v128", p.lane, p.base)
    total = p.make("v_mfma_f32_16x16x16_f16", "v128", pair, pair, addend)
    p.store(addend)
    p.store(total)
    assert not opcodes(p.done(), *MOVES)


def test_constants_are_made_where_they_are_needed() -> None:
    """No register keeps the zero of other lanes, nor what a product begins with."""
    p = Program()
    zero = p.make("v_mov_b32", "v32", Imm(0))
    four = p.make("p_pack", "v128", zero, zero, zero, zero)
    mask = p.make("v_cmp_gt_u32", "mask", p.lane, Imm(1))
    for _ in range(2):
        loaded = p.make("global_load_dwordx4", "v128", p.lane, p.base, tied=four)
        p.block.insts[-1].guard = mask  # type: ignore[union-attr]
        p.store(loaded)
    pair = p.make("global_load_dwordx2", "v64", p.lane, p.base)
    p.store(p.make("v_mfma_f32_16x16x16_f16", "v128", pair, pair, four, tied=four))
    out = p.done()
    assert sorted(opcodes(out, *MOVES)) == ["s_mov_b64"] * 4 + ["v_mov_b64"] * 4  # the former of EXEC
    (product,) = [i for i in out.flat.body if isinstance(i, Inst) and i.opcode.startswith("v_mfma")]
    assert isinstance(product.operands[3], Imm)


@pytest.mark.parametrize("cls", ["v32", "v128", "s32", "s64", "mask"])
def test_rotation_around_a_loop(cls: str) -> None:
    """Three values that change places every round, and one that keeps its first value."""
    p = Program()
    starts = [_value(p, cls, i) for i in range(3)]
    a, b, c = p.loop(starts)
    p.end_loop([b, c, a])
    for reg in (a, b, c, starts[0]):
        _show(p, reg)
    p.done()


def _value(p: Program, cls: str, i: int) -> Reg:
    if cls == "s32":
        return p.make("s_mul_i32", "s32", p.n, Imm(i))
    if cls == "s64":
        return p.make("p_add_u64", "s64", p.base, Imm(i))
    if cls == "mask":
        return p.make("v_cmp_gt_u32", "mask", p.lane, Imm(i))
    words = [p.make("v_xor_b32", "v32", p.lane, Imm(i + k)) for k in range(int(cls[1:]) // 32)]
    return words[0] if cls == "v32" else p.make("p_pack", cls, *words)


def _show(p: Program, reg: Reg) -> None:
    if reg.cls[0] == "v":
        p.store(reg)
    elif reg.cls == "mask":
        p.store(p.make("v_cndmask_b32", "v32", Imm(1), Imm(2), reg))
    else:
        low = reg if reg.cls == "s32" else p.make("p_part", "s32", reg, Imm(1))
        p.store(p.make("v_mov_b32", "v32", low))


def test_wide_sums_with_selects() -> None:
    p = Program()
    value = p.base
    for i in range(6):
        longer = p.make("p_add_u64", "s64", value, Imm(1 << 33 | i))
        shorter = p.make("p_sub_u64", "s64", value, p.base)
        value = p.make("p_select_b64", "s64", longer, shorter, p.make("p_cmp_eq_i32", "mask", p.n, Imm(i)))
    _show(p, value)
    p.done()


def test_values_live_after_loops() -> None:
    p = Program()
    early = [p.make("v_xor_b32", "v32", p.lane, Imm(i)) for i in range(12)]
    (x,) = p.loop([early[0]])
    inside = p.make("v_xor_b32", "v32", x, early[1])
    p.end_loop([inside])
    for reg in (*early, inside, x):
        p.store(reg)
    p.done()
    p.done(Budget(20, 8, 0))


def test_branch_on_a_comparison_needs_no_mask() -> None:
    p = Program()
    p.loop([])
    p.end_loop([])
    out = p.done()
    assert opcodes(out, "s_cselect_b64", "s_cmp_lg_u64") == []
    assert opcodes(out, "s_cmp_lt_u32", "s_cbranch_scc1") == ["s_cmp_lt_u32", "s_cbranch_scc1"]


# --- few registers


def test_scalars_go_to_lanes() -> None:
    """Masks and scalars that do not fit lie in lanes of one vector register, through a loop."""
    p = Program()
    masks = [p.make("v_cmp_gt_u32", "mask", p.lane, Imm(i)) for i in range(12)]
    scalars = [p.make("s_mul_i32", "s32", p.n, Imm(i)) for i in range(6)]
    (x,) = p.loop([p.lane])
    p.end_loop([p.make("v_xor_b32", "v32", x, Imm(5))])
    for reg in (*masks, *scalars):
        _show(p, reg)
    p.store(x, masks[3])
    out = p.done(Budget(14, 24, 0))
    assert out.spilled_scalars > 0 and out.scratch_bytes == 0
    assert opcodes(out, "v_writelane_b32") and out.sgprs <= 14


def test_vectors_go_to_accumulation_registers_first() -> None:
    p = Program()
    wide = [p.make("global_load_dwordx4", "v128", p.lane, p.base) for _ in range(12)]
    (x,) = p.loop([wide[0]])
    p.end_loop([x])
    for reg in wide:
        p.store(reg)
    out = p.done(Budget(40, 24, 64))
    assert out.agprs > 0 and out.scratch_bytes == 0
    # stores take them as they are
    assert any(
        isinstance(item, Inst) and item.opcode == "global_store_dwordx4" and item.operands[1].name.startswith("a")
        for item in out.flat.body
    )


def test_products_accumulate_there() -> None:
    """More accumulators than vector registers: they live in accumulation registers, and the loop copies none."""
    p = Program()
    starts = [p.make("p_pack", "v512", *[Imm(0)] * 16) for _ in range(6)]
    accs = p.loop(starts)
    pair = p.make("global_load_dwordx2", "v64", p.lane, p.base)
    totals = [p.make("v_mfma_f32_32x32x8_f16", "v512", pair, pair, acc) for acc in accs]
    p.end_loop(totals)
    for total in totals:
        p.store(p.make("p_part", "v128", total, Imm(4)))
    out = p.done(Budget(40, 64, 96))
    assert out.agprs > 0 and out.scratch_bytes == 0
    lines = [item.opcode for item in out.flat.body if isinstance(item, Inst)]
    first = lines.index("global_load_dwordx2")
    assert not {"v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_mov_b32"} & set(
        lines[first : lines.index("s_cmp_lt_u32")]
    )


def test_values_change_places_between_files() -> None:
    """Accumulators take turns around a loop, some in one file and some in the other."""
    p = Program()
    starts = [_value(p, "v128", 10 * i) for i in range(6)]
    carried = p.loop(starts)
    pair = p.make("global_load_dwordx2", "v64", p.lane, p.base)
    p.store(p.make("v_mfma_f32_16x16x16_f16", "v128", pair, pair, carried[0]))
    p.end_loop([*carried[1:], carried[0]])
    for reg in carried:
        p.store(reg)
    out = p.done(Budget(40, 22, 16))
    assert out.agprs > 0
    for item in out.flat.body:
        if isinstance(item, Inst):
            check(item, get_target("gfx942"), flat=True)


def test_then_to_scratch() -> None:
    p = Program()
    wide = [p.make("global_load_dwordx4", "v128", p.lane, p.base) for _ in range(14)]
    (x,) = p.loop([wide[0]])
    p.end_loop([x])
    for reg in wide:
        p.store(reg)
    out = p.done(Budget(40, 24, 8))
    assert out.agprs <= 8 and out.scratch_bytes > 0 and out.scratch_bytes % 16 == 0


def test_scratch_beyond_the_offset_of_an_instruction() -> None:
    """More than 4 KiB a lane."""
    p = Program()
    wide = [p.make("global_load_dwordx4", "v128", p.lane, p.base) for _ in range(300)]
    for reg in wide:
        p.store(reg)
    p.fn.blocks[0].insts.append(Inst("s_barrier", [], 0))
    for reg in reversed(wide):
        p.store(reg)
    out = p.done(Budget(40, 32, 0))
    assert out.scratch_bytes > 4096
    assert any(
        isinstance(i, Inst) and i.opcode.startswith("scratch_") and i.operands[2].name == "vcc_lo"
        for i in out.flat.body
    )


def test_constants_are_made_again_instead() -> None:
    p = Program()
    constants = [p.make("v_mov_b32", "v32", Imm(1000 + i)) for i in range(20)]
    for reg in constants:
        p.store(reg)
    for reg in constants:
        p.store(reg)
    out = p.done(Budget(40, 8, 0))
    assert out.scratch_bytes == 0


def test_parameters_in_memory_change_places() -> None:
    """A permutation of spilled values around a loop, through memory."""
    p = Program()
    starts = [_value(p, "v128", 10 * i) for i in range(5)]
    carried = p.loop(starts)
    filler = [p.make("global_load_dwordx4", "v128", p.lane, p.base) for _ in range(5)]
    for reg in filler:
        p.store(reg)
    p.end_loop([*carried[1:], carried[0]])
    for reg in carried:
        p.store(reg)
    assert p.done(Budget(40, 26, 0)).scratch_bytes > 0


def test_one_instruction_too_wide_for_the_file_says_so() -> None:
    p = Program()
    zero = p.make("p_pack", "v512", *[p.lane] * 16)
    pair = p.make("p_pack", "v64", p.lane, p.lane)
    p.store(p.make("p_part", "v128", p.make("v_mfma_f32_32x32x8_f16", "v512", pair, pair, zero), Imm(0)))
    with pytest.raises(InternalError, match="no place"):
        p.done(Budget(40, 16, 0))


def test_budget() -> None:
    def sizes(waves: int, occupancy: int) -> tuple[int, int]:
        found = budget(waves, occupancy)
        return found.v, found.a

    assert sizes(4, 1) == (256, 256)
    assert sizes(1, 1) == (256, 256)
    assert sizes(8, 1) == (256, 0)
    assert sizes(4, 3) == (168, 0)
    assert sizes(16, 1) == (128, 0)


def test_alignment_of_tuples() -> None:
    """Vector pairs are even, scalar quadruples a multiple of four."""
    p = Program()
    for i in range(5):
        _show(p, _value(p, "s64", i))
        p.store(_value(p, "v128", i))
        p.store(_value(p, "v64", i))
    for item in p.done().flat.body:
        for operand in item.operands if isinstance(item, Inst) else ():
            if isinstance(operand, Reg) and len(units(operand.name)) > 1:
                assert units(operand.name).start % 2 == 0


def test_schedule_of_copies() -> None:
    ordered, cycles = schedule(
        [("b", "a"), ("c", "b"), ("a", "x"), ("p", "q"), ("q", "r"), ("r", "p"), ("z", "p"), ("s", "s")]
    )
    places = {name: name for name in "abcpqrxzs"}
    for dst, src in ordered:
        places[dst] = places[src]
    assert [sorted(cycle) for cycle in cycles] == [["p", "q", "r"]]
    assert places == {"a": "x", "b": "a", "c": "b", "p": "p", "q": "q", "r": "r", "x": "x", "z": "p", "s": "s"}
    (cycle,) = cycles
    assert all(
        (dst, src) in [("p", "q"), ("q", "r"), ("r", "p")]
        for dst, src in zip(cycle, cycle[1:] + cycle[:1], strict=True)
    )
