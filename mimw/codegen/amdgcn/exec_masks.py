"""Guards become EXEC masks.

Owns the rule that EXEC is all ones outside guarded instructions: a workgroup is whole waves and control flow is uniform. So a region
begins with ``s_mov_b64 exec, mask`` and ends with ``s_mov_b64 exec, -1``; neighbours with the same guard share one region, scalar
instructions may stand inside, and nothing has to be saved. `gather` (on SSA, before allocation) brings guarded neighbours together.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.effects import VECTOR_UNITS, mask_of, operand_mask
from mimw.codegen.amdgcn.expand import physical
from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.machine import Comment, Function, Imm, Inst, Label, Reg, read, written

LONGEST = 8
"""How many guarded instructions are gathered at most: each keeps its address alive until then."""

_EVERY_LANE = frozenset(("v_readlane_b32", "v_writelane_b32"))
_PURE_UNITS = frozenset(("valu", "trans", "salu"))


def gather(fn: Function) -> None:
    """Move arithmetic that stands between guarded instructions of one guard, and needs nothing of them, in front of them."""
    for block in fn.blocks:
        if any(isinstance(inst, Inst) and inst.guard is not None for inst in block.insts):
            block.insts = _gathered(block.insts)


def _gathered(insts: list[Inst | Comment]) -> list[Inst | Comment]:
    out: list[Inst | Comment] = []
    held: list[Inst] = []
    made: set[Reg] = set()
    for inst in insts:
        if isinstance(inst, Comment):
            out.append(inst)
            continue
        free = made.isdisjoint(read(inst))
        if inst.guard is not None and (not held or (inst.guard is held[0].guard and free and len(held) < LONGEST)):
            held.append(inst)
            made.update(written(inst))
            continue
        if inst.guard is not None or not free or not _pure(inst):
            out += held
            held, made = [], set()
        if inst.guard is not None:
            held, made = [inst], set(written(inst))
        else:
            out.append(inst)
    return out + held


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
