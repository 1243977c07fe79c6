"""Hazards: pairs of instructions between which gfx940 and gfx950 want wait states that they do not insert by themselves.

Owns the table; `nops` acts on it. Sources: "AMD Instinct MI300 Instruction Set Architecture", section 4.5 (manually inserted wait
states) and 7.6 (dependencies of matrix products), and the measured table of what LLVM inserts. One instruction is one wait state,
``s_nop n`` is n + 1. A product of N passes is *XDL* unless its inputs are f32 or f64.

| before | after | wait states |
|---|---|---|
| VALU writes a scalar register or VCC | VALU reads it | 2 |
| | vector memory reads it | 5 |
| | v_readlane, v_writelane select a lane by it | 4 |
| VALU writes VCC | v_div_fmas | 4 |
| VALU writes EXEC | VALU with DPP 5, v_readlane, v_readfirstlane, v_writelane 4, product 4 | |
| VALU writes a vector register | DPP reads it | 2 |
| | v_readlane, v_readfirstlane read it | 1 |
| | a product reads it | 2 |
| | v_permlane swap touches it | 2 |
| transcendental | VALU of another kind reads or writes the result | 1 |
| result written in part (op_sel, SDWA, fp8) | VALU reads it | 1 |
| store of more than 64 bits | VALU writes its data | 2 |
| SALU writes M0 | load to shared memory, s_sendmsg | 1 |
| s_setreg | s_getreg, s_setreg, vector instruction | 2 |
| product writes | product adds to the very same registers | 0 (2 passes: 2; f64 4x4: 4) |
| | product adds to registers that overlap | XDL N + 1 (gfx950 + 2), else N; f64: 9 (gfx950: 17) |
| | product multiplies them, VALU or memory touches them | XDL N + 3 (gfx950 + 4), else N + 2; f64: 11 (19), memory 18 |
| product adds to | VALU writes the addend | N - 1 |

Works on bitsets of units.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.effects import VECTOR_UNITS, Effects, operand_mask
from mimw.codegen.amdgcn.registers import EXEC, M0, VCC
from mimw.codegen.machine import Inst, Symbol

WINDOW = 20
"""No hazard reaches further."""

_SCALARS = (1 << 128) - 1
_VECTORS = ((1 << 512) - 1) << 256
_EXEC = 3 << EXEC
_VCC = 3 << VCC
_M0 = 1 << M0
_MODE = 1 << 255
"""Stands for the mode register."""
_DPP = (
    "quad_perm", "row_shl", "row_shr", "row_ror", "row_newbcast", "row_mirror", "row_half_mirror", "wave_", "row_bcast",
)  # fmt: skip
_LANE_ACCESS = frozenset(("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32"))
_HIGH_HALF = ("v_fma_mixhi_f16", "v_cvt_scalef32_")


class Hazards(Effects):
    """What of an instruction matters for hazards.

    `vector` arithmetic (VALU without products), `product`, `memory` (vector or shared), `xdl` and `passes` of a product, `addend` the
    units that it adds to, `factors` those that it multiplies, `dpp`, `part` (the result is shifted in its register), `wide` (the units of
    data that a store of more than 64 bits reads), `lane` (scalar units that select a lane). `touched` and `danger`: only where those of the
    later and the earlier instruction overlap can two be too close.
    """

    __slots__ = (
        "addend",
        "danger",
        "double",
        "dpp",
        "factors",
        "lane",
        "memory",
        "part",
        "passes",
        "product",
        "touched",
        "trans",
        "vector",
        "vmem",
        "wide",
        "xdl",
    )

    def __init__(self, inst: Inst, gfx950: bool) -> None:
        super().__init__(inst)
        row, opcode = self.row, inst.opcode
        self.product = row.unit == "mfma"
        self.trans = row.unit == "trans"
        self.vector = row.unit in ("valu", "trans")
        self.vmem = row.unit == "vmem"
        self.memory = self.vmem or row.unit == "ds"
        self.passes = (row.passes950 if gfx950 else row.passes) if self.product else 0
        self.double = opcode.startswith("v_mfma_f64")
        self.xdl = self.product and not self.double and not (opcode.endswith("_f32") and opcode.count("_f32") == 2)
        self.addend = self.factors = self.wide = self.lane = 0
        if self.product:
            self.addend = operand_mask(inst.operands[3])
            self.factors = self.reads & ~self.addend
            for operand in inst.operands[1:3]:
                self.factors |= operand_mask(operand)
        modifiers = [o.name for o in inst.operands if isinstance(o, Symbol)]
        self.dpp = self.vector and any(m.startswith(_DPP) for m in modifiers)
        self.part = self.vector and (opcode.startswith(_HIGH_HALF) or any(_shifts_result(opcode, m) for m in modifiers))
        if self.vmem and row.writes:
            data = [operand_mask(o) & _VECTORS for o in inst.operands[inst.num_results :]]
            self.wide = next((m for m in data if m.bit_count() > 2), 0)
        if opcode in ("v_readlane_b32", "v_writelane_b32"):
            self.lane = operand_mask(inst.operands[2]) & _SCALARS
        self.touched = self.reads | self.writes | (_EXEC if row.unit in VECTOR_UNITS else 0) | _MODE
        self.danger = self._danger()

    def _danger(self) -> int:
        """The units by which a hazard may begin here: an instruction that touches none of them needs no wait states."""
        if self.product or self.vector:
            return self.writes | self.addend
        if self.inst.opcode.startswith("s_setreg"):
            return _MODE
        return self.wide | self.writes & _M0


def _shifts_result(opcode: str, modifier: str) -> bool:
    """``op_sel:[..,1]`` writes the high half (the last bits are the result's), ``dst_sel`` a byte or a half."""
    if modifier.startswith("dst_sel:"):
        return modifier != "dst_sel:DWORD"
    if not modifier.startswith("op_sel:"):
        return False
    return "1" in modifier if opcode.startswith("v_cvt_") else modifier.rstrip("]").endswith("1")


def wait_states(before: Hazards, after: Hazards, gfx950: bool) -> int:
    """How many wait states must lie between two instructions."""
    need = 0
    if before.product:
        need = _after_product(before, after, gfx950)
    elif before.vector:
        need = _after_vector(before, after)
    elif before.wide & after.writes and after.vector:
        need = 2
    elif before.inst.opcode.startswith("s_setreg"):
        touched = after.inst.opcode.startswith(("s_setreg", "s_getreg")) or after.vector or after.product
        need = 2 if touched else 0
    elif before.writes & _M0 and after.reads & _M0 and before.row.unit == "salu":
        need = 1 if after.vmem or after.row.unit in ("message", "ds") else 0
    return need


def _after_vector(before: Hazards, after: Hazards) -> int:
    need = 0
    writes = before.writes
    scalars = writes & _SCALARS
    if scalars:
        if scalars & _EXEC:
            need = 5 if after.dpp else 4 if after.inst.opcode in _LANE_ACCESS or after.product else 0
        if scalars & after.lane or (scalars & _VCC and after.inst.opcode.startswith("v_div_fmas")):
            need = 4
        if scalars & after.reads & ~_EXEC:
            need = max(need, 5 if after.vmem else 2 if after.vector else 0)
    shared = writes & _VECTORS & (after.reads | after.writes)
    if shared:
        read = shared & after.reads
        if after.vector and before.trans and not after.trans:
            need = max(need, 1)
        if read and (after.dpp or after.product or after.inst.opcode.startswith("v_permlane")):
            need = max(need, 2)
        if read and after.vector and (before.part or after.inst.opcode in _LANE_ACCESS):
            need = max(need, 1)
    return need


def _after_product(before: Hazards, after: Hazards, gfx950: bool) -> int:
    passes, writes = before.passes, before.writes
    more = 1 if gfx950 and passes != 2 else 0
    touched = writes & (after.reads | after.writes)
    if after.product:
        if writes & after.factors:
            return _to_factor(before, more, gfx950)
        return _to_addend(before, after, more, gfx950) if touched else 0
    need = 0
    if touched and (after.vector or after.memory):
        if before.double:
            need = 18 if after.memory else 19 if gfx950 else 11
        else:
            need = passes + 3 + more if before.xdl else passes + 2
    if before.addend & after.writes and after.vector and not before.double:
        need = max(need, passes - 1)
    return need


def _to_factor(before: Hazards, more: int, gfx950: bool) -> int:
    """A product's result is multiplied by the next."""
    if before.double:
        return 19 if gfx950 else 11
    return before.passes + 3 + more if before.xdl else before.passes + 2


def _to_addend(before: Hazards, after: Hazards, more: int, gfx950: bool) -> int:
    """A product's result is added to (or overwritten) by the next: forwarded where both are the very same registers."""
    if before.writes == after.addend and before.writes == after.writes:
        return 2 if before.passes == 2 else 0
    if before.double:
        return 17 if gfx950 else 9
    if not before.xdl:
        return before.passes
    return before.passes + 1 + more
