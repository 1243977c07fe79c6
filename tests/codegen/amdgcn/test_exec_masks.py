"""Guards become EXEC masks; guarded instructions come together."""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.exec_masks import gather, set_exec_masks
from mimw.codegen.machine import Block, Function, Imm, Inst, Reg, Symbol
from tests.codegen.amdgcn.flat_kit import body, text


def masked(source: str) -> list[str]:
    """The lines with EXEC set."""
    return text(set_exec_masks(body(source)))


def test_neighbours_share_a_region() -> None:
    assert masked(
        """@s[4:5] global_load_dword v1, v0, s[0:1]
        s_add_u32 s6, s6, 1
        @s[4:5] global_load_dword v2, v0, s[0:1]
        v_mov_b32 v3, 0"""
    ) == [
        "s_mov_b64 exec, s[4:5]",
        "global_load_dword v1, v0, s[0:1]",
        "s_add_u32 s6, s6, 1",
        "global_load_dword v2, v0, s[0:1]",
        "s_mov_b64 exec, -1",
        "v_mov_b32 v3, 0",
    ]


def test_another_guard_takes_over() -> None:
    assert masked(
        """@s[4:5] global_store_dword v1, v0, s[0:1]
        @s[6:7] global_store_dword v1, v2, s[0:1]
        s_endpgm"""
    ) == [
        "s_mov_b64 exec, s[4:5]",
        "global_store_dword v1, v0, s[0:1]",
        "s_mov_b64 exec, s[6:7]",
        "global_store_dword v1, v2, s[0:1]",
        "s_mov_b64 exec, -1",
        "s_endpgm",
    ]


def test_a_mask_that_changes_is_read_again() -> None:
    lines = masked(
        """@s[4:5] global_store_dword v1, v0, s[0:1]
        s_and_b64 s[4:5], s[4:5], s[6:7]
        @s[4:5] global_store_dword v1, v2, s[0:1]"""
    )
    assert lines.count("s_mov_b64 exec, s[4:5]") == 2


def test_all_lanes_at_labels_and_branches() -> None:
    lines = masked(
        """@s[4:5] global_store_dword v1, v0, s[0:1]
        next:
        @s[4:5] global_store_dword v1, v0, s[0:1]
        s_branch next"""
    )
    assert lines[2:4] == ["s_mov_b64 exec, -1", "next:"]
    assert lines[-2:] == ["s_mov_b64 exec, -1", "s_branch next"]


def test_lane_moves_ignore_exec() -> None:
    lines = masked(
        """@s[4:5] global_store_dword v1, v0, s[0:1]
        v_readlane_b32 s2, v1, 0
        @s[4:5] global_store_dword v1, v0, s[0:1]
        v_readfirstlane_b32 s2, v1"""
    )
    assert lines == [
        "s_mov_b64 exec, s[4:5]",
        "global_store_dword v1, v0, s[0:1]",
        "v_readlane_b32 s2, v1, 0",
        "global_store_dword v1, v0, s[0:1]",
        "s_mov_b64 exec, -1",
        "v_readfirstlane_b32 s2, v1",
    ]


def gathered(insts: list[Inst]) -> list[str]:
    """Opcodes of a block after `gather`."""
    fn, block = Function("k", []), Block()
    block.insts = list(insts)
    fn.blocks = [block]
    gather(fn)
    return [("@" if inst.guard else "") + inst.opcode for inst in block.insts if isinstance(inst, Inst)]


def load(result: Reg, address: Reg, guard: Reg | None) -> Inst:
    """A load of 32 bits."""
    return Inst("global_load_dword", [result, address, Symbol("off")], 1, guard=guard)


def test_arithmetic_between_goes_in_front() -> None:
    mask, other, address, next_address = Reg("mask"), Reg("mask"), Reg("v64"), Reg("v64")
    step = Inst("v_lshl_add_u64", [next_address, address, Imm(0), Imm(8)], 1)
    loads = [load(Reg("v32"), address, mask), step, load(Reg("v32"), next_address, other)]
    assert gathered(loads) == ["v_lshl_add_u64", "@global_load_dword", "@global_load_dword"]


def test_what_needs_the_load_stays_behind() -> None:
    mask, address, value = Reg("mask"), Reg("v64"), Reg("v32")
    use = Inst("v_add_u32", [Reg("v32"), value, value], 1)
    loads = [load(value, address, mask), use, load(Reg("v32"), address, mask)]
    assert gathered(loads) == ["@global_load_dword", "v_add_u32", "@global_load_dword"]


def test_parts_of_what_is_loaded_are_no_hindrance() -> None:
    mask, address, value = Reg("mask"), Reg("v64"), Reg("v64")
    part = Inst("p_part", [Reg("v32"), value, Imm(1)], 1)
    loads = [load(value, address, mask), part, load(Reg("v32"), address, mask)]
    assert gathered(loads) == ["@global_load_dword", "p_part", "@global_load_dword"]


def test_memory_keeps_its_order() -> None:
    mask, address, data = Reg("mask"), Reg("v64"), Reg("v32")
    plain = Inst("global_store_dword", [address, data, Symbol("off")], 0)
    loads = [load(Reg("v32"), address, mask), plain, load(Reg("v32"), address, mask)]
    assert gathered(loads) == ["@global_load_dword", "global_store_dword", "@global_load_dword"]


def test_constants_of_other_lanes_are_made_in_front() -> None:
    mask, address = Reg("mask"), Reg("v64")
    first, second = load(Reg("v32"), address, mask), load(Reg("v32"), address, mask)
    first.tied_in, second.tied_in = [Imm(0)], [Imm(0)]
    assert gathered([first, second]) == ["p_pack", "p_pack", "@global_load_dword", "@global_load_dword"]
