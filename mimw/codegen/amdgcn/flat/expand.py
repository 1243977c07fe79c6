"""Pseudo instructions: what lowerings write for things that gfx9 does through SCC, VCC, M0 or several instructions.

Owns their expansion on physical registers, after allocation. Results stand first, as in every `Inst`; ``mask`` values are 64-bit
lane masks in scalar pairs, uniform ones all ones or zero. In SSA form these exist:

| pseudo | meaning |
|---|---|
| ``p_entry d, Symbol("s[0:1]")`` | d is what the physical register holds when the wave starts; in the first block only |
| ``p_pack d, a, b, ..`` | a tuple of its parts, low to high; an Imm is one 32-bit register. Free where parts can be made in place |
| ``p_part d, s, Imm(i)`` | the registers of s from its i-th 32-bit register on, as many as d has. Free |
| ``p_copy d, s`` | a move of any size between any files (vector to scalar: of the first lane); s may be an Imm for 32 and 64 bits |
| ``p_undef d`` | a value that nobody may look at |
| ``p_cmp_lt_i32 d, a, b`` | (every comparison of scalars) d = the comparison as a mask |
| ``p_select_b32 d, a, b, c`` | (and ``_b64``) d = c ? a : b for a uniform mask c |
| ``p_add_u64 d, a, b`` | (and ``p_sub_u64``) 64-bit scalar arithmetic; a and b may be Imm |
| ``p_div_fmas_f32 d, a, b, c, m`` | (and ``_f64``) the mask m instead of VCC |
| ``p_global_load_lds_dword .., x, Imm(n)`` | (and buffer forms) a load into shared memory with M0 = x + n, the last operands before modifiers |
| ``p_wait_vm Imm(n)`` | until at most n vector-memory instructions of this wave are not done (``p_wait_lgkm``: of LDS and scalar loads) |
| ``p_commit_group`` | the loads to shared memory since the last one are a group |
| ``p_wait_group Imm(n)`` | until all groups but the latest n (at most 14) have arrived |
| ``p_end_copy Imm(i)`` | the loads to shared memory since the last end of a group or copy are copy i, too |
| ``p_wait_copy Imm(i)`` | until copy i has arrived |

Those of them that allocation resolves (entry, pack, part, undef, copies) never come here, except for moves of single units.
An instruction that clobbers SCC as a side effect (``s_and_b32``) may stand anywhere: SCC lives across nothing in SSA form.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import FIRST, unit_name, units
from mimw.codegen.machine import Imm, Inst, Operand, Reg
from mimw.diagnostics import InternalError, Loc


def physical(text: str) -> Reg:
    """A physical register by its name, as an operand."""
    found = units(text)
    file = "a" if found.start >= FIRST["a"] else "v" if found.start >= FIRST["v"] else "s"
    return Reg(f"{file}{32 * len(found)}", name=text)


def part_of(operand: Operand, index: int) -> Operand:
    """The index-th 32-bit word of a physical 64-bit operand or of an integer immediate."""
    if isinstance(operand, Reg):
        return physical(unit_name(units(operand.name)[index]))
    if isinstance(operand, Imm):
        return Imm(signed(operand.value >> (32 * index)))
    raise InternalError(f"no 64-bit scalar operand: {operand!r}")


def signed(value: int) -> int:
    """The low 32 bits as a signed number: so are inline constants written."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def inline(value: int) -> bool:
    """Whether an integer is an inline constant, which every instruction takes."""
    return -16 <= value <= 64


def expand(inst: Inst) -> Sequence[Inst]:
    """The instructions that a pseudo stands for (itself, when it is none or is left to the pass of wait counts)."""
    opcode = inst.opcode
    if not opcode.startswith("p_") or opcode.startswith(("p_wait_", "p_commit_", "p_end_")):
        return (inst,)
    if opcode.startswith("p_cmp_"):
        return _compare(inst)
    if opcode.startswith("p_select_"):
        return _select(inst)
    if opcode.startswith("p_div_fmas_"):
        return _div_fmas(inst)
    if "_load_lds_" in opcode:
        return _load_to_shared(inst)
    if opcode in ("p_add_u64", "p_sub_u64"):
        return _wide_sum(inst)
    raise InternalError(f"no expansion of {opcode}", inst.loc)


def test_mask(mask: Operand, loc: Loc | None) -> Inst:
    """SCC = whether a uniform mask is true."""
    return Inst("s_cmp_lg_u64", [mask, Imm(0)], 0, loc)


def _compare(inst: Inst) -> list[Inst]:
    result, *sources = inst.operands
    return [
        Inst("s_" + inst.opcode[2:], sources, 0, inst.loc),
        Inst("s_cselect_b64", [result, Imm(-1), Imm(0)], 1, inst.loc),
    ]


def _select(inst: Inst) -> list[Inst]:
    """By a mask, or by a comparison of its own (``p_select_b32.s_cmp_lt_i32 d, a, b, x, y``, made by `prepare`)."""
    result, a, b, *rest = inst.operands
    opcode, _, comparison = inst.opcode.partition(".")
    test = Inst(comparison, rest, 0, inst.loc) if comparison else test_mask(rest[0], inst.loc)
    return [test, Inst("s_cselect" + opcode[8:], [result, a, b], 1, inst.loc)]


def _div_fmas(inst: Inst) -> list[Inst]:
    result, a, b, c, mask, *modifiers = inst.operands
    vcc = physical("vcc")
    return [
        Inst("s_mov_b64", [vcc, mask], 1, inst.loc),
        Inst("v_" + inst.opcode[2:], [result, a, b, c, *modifiers], 1, inst.loc),
    ]


def _load_to_shared(inst: Inst) -> list[Inst]:
    """M0 is the sum of the row's last two operands; what follows them are modifiers."""
    count = len(resolve(inst.opcode).slots)
    value, more = inst.operands[count - 2 : count]
    operands = inst.operands[: count - 2] + inst.operands[count:]
    assert isinstance(more, Imm)
    m0 = physical("m0")
    if isinstance(value, Imm):
        value, more = Imm(signed(value.value + more.value)), Imm(0)
    base = (
        Inst("s_add_i32", [m0, value, more], 1, inst.loc) if more.value else Inst("s_mov_b32", [m0, value], 1, inst.loc)
    )
    opcode = inst.opcode[2:]
    if opcode.startswith("buffer_"):  # buffer_load_dword .. lds
        opcode = opcode.replace("_load_lds_", "_load_") + "_lds"
    return [base, Inst(opcode, operands, 0, inst.loc, inst.guard)]


def _wide_sum(inst: Inst) -> list[Inst]:
    """Low words, then high words with carry. Scalar pairs are aligned, so the first result overwrites no later operand."""
    result, a, b = inst.operands
    low, high = ("s_add_u32", "s_addc_u32") if inst.opcode == "p_add_u64" else ("s_sub_u32", "s_subb_u32")
    return [
        Inst(low, [part_of(result, 0), part_of(a, 0), part_of(b, 0)], 1, inst.loc),
        Inst(high, [part_of(result, 1), part_of(a, 1), part_of(b, 1)], 1, inst.loc),
    ]
