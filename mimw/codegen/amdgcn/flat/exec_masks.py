"""Guards become EXEC masks.

Owns the rule that EXEC is all ones outside guarded instructions: a workgroup is whole waves and control flow is uniform. So a region
begins with ``s_mov_b64 exec, mask`` and ends with ``s_mov_b64 exec, -1``. Guarded neighbours share a region, those with the same guard
one mask; scalar instructions may stand inside, and nothing has to be saved. `gather` (on SSA, before allocation) brings guarded
instructions together.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.atoms import words
from mimw.codegen.amdgcn.flat.effects import VECTOR_UNITS, mask_of, operand_mask
from mimw.codegen.amdgcn.flat.expand import physical
from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import Comment, Function, Imm, Inst, Label, Reg, read, written

LONGEST = 8
"""How many guarded instructions are gathered at most: each keeps its address alive until then."""

_EVERY_LANE = frozenset(("v_readlane_b32", "v_writelane_b32"))
_PURE_UNITS = frozenset(("valu", "trans", "salu"))


def gather(fn: Function) -> None:
    """Move arithmetic that stands between guarded instructions, and needs nothing of them, in front of them."""
    for block in fn.blocks:
        if any(isinstance(inst, Inst) and inst.guard is not None for inst in block.insts):
            block.insts = _gathered(block.insts)


def _gathered(insts: list[Inst | Comment]) -> list[Inst | Comment]:
    out: list[Inst | Comment] = []
    held: list[Inst] = []
    made: set[Reg] = set()
    count = 0
    for inst in insts:
        if isinstance(inst, Comment):
            out.append(inst)
            continue
        guarded = inst.guard is not None
        free = made.isdisjoint(read(inst))
        if not free and inst.opcode == "p_part":  # a name for registers: no code
            held.append(inst)
            made.update(written(inst))
            continue
        if held and not (free and (count < LONGEST if guarded else _pure(inst))):
            out += held
            held, count = [], 0
            made.clear()
        if guarded:
            held.append(_with_start(inst, out))
            made.update(written(inst))
            count += 1
        else:
            out.append(inst)
    return out + held


def _with_start(inst: Inst, out: list[Inst | Comment]) -> Inst:
    """A guarded instruction whose other lanes hold a constant: that is made in front of all that are gathered."""
    if inst.tied_in is None or not isinstance(inst.tied_in[0], Imm):
        return inst
    result = inst.operands[0]
    assert isinstance(result, Reg)
    start = Reg(result.cls, result.hint)
    count = shape(result.cls)[1]
    out.append(Inst("p_pack", [start, *words(inst.tied_in[0], count)], 1, inst.loc))
    return Inst(inst.opcode, inst.operands, inst.num_results, inst.loc, inst.guard, tied_in=[start])


def _pure(inst: Inst) -> bool:
    """Whether only registers are touched."""
    if inst.opcode[:2] == "p_":
        return inst.num_results > 0 and "_load_" not in inst.opcode and inst.opcode != "p_restore"
    row = resolve(inst.opcode)
    return row.unit in _PURE_UNITS and row.removable and not row.reads


def set_exec_masks(body: "list[Inst | Label | Comment]") -> "list[Inst | Label | Comment]":
    """The body with EXEC set where guards want it; no guard is left."""
    out: list[Inst | Label | Comment] = []
    guard: Reg | None = None
    stale = False
    for item in body:
        if isinstance(item, Inst) and item.guard is not None:
            if guard is None or stale or guard.name != item.guard.name:
                out.append(_set_exec(item, item.guard))
            guard, stale = item.guard, False
            out.append(Inst(item.opcode, item.operands, item.num_results, item.loc))
            continue
        if guard is not None and not isinstance(item, Comment):
            if isinstance(item, Label) or _needs_all_lanes(item):
                out.append(_set_exec(item if isinstance(item, Inst) else None, None))
                guard = None
            elif any(operand_mask(o) & mask_of(guard.name) for o in item.operands[: item.num_results]):
                stale = True
        out.append(item)
    return out


def _set_exec(like: Inst | None, mask: Reg | None) -> Inst:
    source = mask if mask is not None else Imm(-1)
    return Inst("s_mov_b64", [physical("exec"), source], 1, like.loc if like is not None else None)


def _needs_all_lanes(inst: Inst) -> bool:
    """Vector instructions without a guard, and whatever leaves the block."""
    if inst.opcode in _EVERY_LANE:
        return False
    if inst.opcode.startswith("p_"):
        return False
    unit = resolve(inst.opcode).unit
    return unit in VECTOR_UNITS or unit == "branch"
