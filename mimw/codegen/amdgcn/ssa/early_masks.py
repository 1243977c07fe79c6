"""Comparisons stand a little before what selects by them: a lane mask may be read two instructions after a vector instruction made it.

Lowering makes each comparison where it is used; between a row of them and their selections the machine would wait every time. Here each one
moves up across a few vector instructions that it does not need, before masks share registers. Assumes a prepared function, changes it.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.machine import Comment, Function, Inst, read, written

WAIT = 2
"""Wait states between a vector instruction that writes a scalar register and one that reads it (`hazards`)."""


def early_masks(fn: Function) -> int:
    """Move comparisons up; returns how many."""
    return sum(_in_block(block.insts) for block in fn.blocks)


def _in_block(insts: list[Inst | Comment]) -> int:
    moved = 0
    for i, inst in enumerate(insts):
        if (
            isinstance(inst, Inst)
            and inst.opcode.startswith("v_cmp_")
            and inst.guard is None
            and _is_read_soon(insts, i)
        ):
            place = _higher(insts, i)
            if place < i:
                del insts[i]
                insts.insert(place, inst)
                moved += 1
    return moved


def _is_read_soon(insts: list[Inst | Comment], i: int) -> bool:
    inst = insts[i]
    assert isinstance(inst, Inst)
    (mask,) = written(inst)
    return any(isinstance(after, Inst) and mask in read(after) for after in insts[i + 1 : i + 1 + WAIT])


def _higher(insts: list[Inst | Comment], i: int) -> int:
    """Where the comparison at `i` may stand instead."""
    inst = insts[i]
    assert isinstance(inst, Inst)
    needs = set(read(inst))
    place = i
    while place and i - place < WAIT:
        above = insts[place - 1]
        if not isinstance(above, Inst) or not needs.isdisjoint(written(above)) or not _is_arithmetic(above):
            break
        place -= 1
    return place


def _is_arithmetic(inst: Inst) -> bool:
    if inst.opcode[:2] == "p_":
        return False
    row = resolve(inst.opcode)
    return row.unit in ("valu", "trans") and inst.guard is None
