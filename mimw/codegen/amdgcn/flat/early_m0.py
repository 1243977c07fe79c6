"""M0 is set one instruction earlier than where it is wanted: a load to shared memory right behind that would cost an ``s_nop``.

Owns the exchange of an M0 write with the arithmetic before it (the load's address, as a rule). Assumes a flat body with EXEC in place, and
knows nothing of wait states beyond that one instruction between fills the gap (`hazards`).
"""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.effects import Effects
from mimw.codegen.amdgcn.registers import M0
from mimw.codegen.machine import Comment, Inst, Label

_Item = Inst | Label | Comment


def set_m0_early(body: list[_Item]) -> list[_Item]:
    """The body with M0 writes in front of vector arithmetic that they have nothing to do with."""
    out: list[_Item] = []
    for item in body:
        before = out[-1] if out else None
        if isinstance(item, Inst) and isinstance(before, Inst) and _is_m0_write(item) and _apart(before, item):
            out[-1:] = [item, before]
        else:
            out.append(item)
    return out


def _is_m0_write(inst: Inst) -> bool:
    return inst.opcode in ("s_mov_b32", "s_add_i32") and bool(Effects(inst).writes >> M0 & 1)


def _apart(before: Inst, write: Inst) -> bool:
    """Whether the two may change places, and `before` fills the gap."""
    if before.opcode[:2] != "v_" or before.opcode.startswith("v_mfma_"):
        return False
    first, second = Effects(before), Effects(write)
    return not ((first.reads | first.writes) & second.writes or first.writes & second.reads)


__all__ = ["set_m0_early"]
