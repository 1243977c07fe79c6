"""What a physical instruction reads and writes, as bitsets over units (`registers`): what waits and hazards are decided by.

Knows the instruction table and nothing of the passes that ask.
"""

from __future__ import annotations

from functools import cache

from mimw.codegen.amdgcn.isa import Row, resolve
from mimw.codegen.amdgcn.registers import EXEC, M0, SCC, VCC, units
from mimw.codegen.machine import Inst, Not, Operand, Reg

_IMPLICIT = {"vcc": 3 << VCC, "exec": 3 << EXEC, "m0": 1 << M0, "scc": 1 << SCC}
VECTOR_UNITS = frozenset(("valu", "trans", "mfma", "vmem", "ds"))


@cache
def mask_of(name: str) -> int:
    """The units of a physical register as a bitset."""
    found = units(name)
    return ((1 << len(found)) - 1) << found.start


def operand_mask(operand: Operand) -> int:
    """The units that an operand names."""
    if isinstance(operand, Reg):
        return mask_of(operand.name)
    return mask_of(operand.reg.name) if isinstance(operand, Not) else 0


class Effects:
    """One instruction: its row, and the units that it reads and writes (with the implicit ones, EXEC only where it is changed)."""

    __slots__ = ("inst", "reads", "row", "writes")

    def __init__(self, inst: Inst) -> None:
        self.inst = inst
        self.row: Row = resolve(inst.opcode)
        self.reads = 0
        self.writes = 0
        for i, operand in enumerate(inst.operands):
            if i < inst.num_results:
                self.writes |= operand_mask(operand)
            else:
                self.reads |= operand_mask(operand)
        if self.row.partial:
            self.reads |= self.writes
        if inst.guard is not None:
            self.reads |= mask_of(inst.guard.name)
        for name in self.row.implicit_reads:
            self.reads |= _IMPLICIT[name]
        for name in self.row.implicit_writes:
            self.writes |= _IMPLICIT[name]
