"""Live ranges of 32-bit registers (`atoms`) in SSA machine code.

Live ranges are int bitsets over program points, as in `codegen.coalesce`: a block has one point at its start, where parameters are
written, and one at its end, where arguments of edges are read. An instruction has three: tied values are read, then the other operands,
then results are written. Tied results are written one point earlier (they are copied there), and so are results that an
instruction writes before it has read everything (`writes_early`).
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.atoms import Atoms
from mimw.codegen.dataflow import bits, end_reads, live_at_ends
from mimw.codegen.machine import Block, Comment, Function, Inst, Not, Reg, ties, written
from mimw.diagnostics import InternalError


def writes_early(inst: Inst) -> bool:
    """Whether results may be written before all operands are read: products of matrices, and scalar loads that may be replayed."""
    opcode = inst.opcode
    return opcode.startswith(("v_mfma_", "v_smfmac_", "s_load_dwordx", "s_buffer_load_dwordx"))


def addend(inst: Inst) -> Reg | None:
    """The register that a product of matrices adds to, where that is tied to the result: it is printed as an operand too."""
    if inst.opcode.startswith("v_mfma_") and inst.tied_in:
        operand = inst.operands[3]
        return operand if isinstance(operand, Reg) and operand is inst.tied_in[0] else None
    return None


class Liveness(Atoms):
    """What is live where: `live` has a bitset of points for every atom.

    `start`, `end` are the points of a block; those of its i-th instruction are ``start + 1 + 3 i`` and the two behind it.
    """

    def __init__(self, fn: Function) -> None:
        super().__init__(fn)
        self.live = [0] * len(self.owner)
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self._reads: dict[int, list[Reg]] = {}
        self._ranges()

    def reads(self, inst: Inst) -> list[Reg]:
        """Registers that `inst` reads at its second point: not the tied ones, not what a part is a name for."""
        found = self._reads.get(id(inst))
        if found is None:
            found = self._reads[id(inst)] = self._find_reads(inst)
        return found

    def _find_reads(self, inst: Inst) -> list[Reg]:
        if inst.opcode == "p_part" and inst.operands[0] in self.parts:
            return []
        regs = [
            operand.reg if isinstance(operand, Not) else operand
            for operand in inst.operands[inst.num_results :]
            if isinstance(operand, (Reg, Not))
        ]
        if inst.guard is not None:
            regs.append(inst.guard)
        tied = addend(inst)
        return regs if tied is None else [reg for reg in regs if reg is not tied]

    def end_reads(self, block: Block) -> list[Reg]:
        """What the terminator reads: its condition and arguments of real parameters."""
        return end_reads(block, self.alias)

    def _ranges(self) -> None:
        out = self._live_out()
        point = 0
        for block in self.blocks:
            start = self.start[id(block)] = point
            end = self.end[id(block)] = start + 1 + 3 * len(block.insts)
            point = end + 1
            last = dict.fromkeys(bits(out[id(block)]), end)
            self._walk_back(block, start, end, last)
            for atom, upto in last.items():
                self.live[atom] |= (2 << upto) - (1 << start)
            for param in block.params:
                if param not in self.alias:
                    for atom in self.atoms[param]:
                        self.live[atom] |= 1 << start

    def _walk_back(self, block: Block, start: int, end: int, last: dict[int, int]) -> None:
        """Fill the ranges that end inside `block`; leaves in `last` what is live at its start, with its last point."""
        live = self.live
        for reg in self.end_reads(block):
            for atom in self.of(reg):
                last.setdefault(atom, end)
        for i in range(len(block.insts) - 1, -1, -1):
            inst = block.insts[i]
            if isinstance(inst, Comment):
                continue
            at = start + 1 + 3 * i
            tied = dict(ties(inst)) if inst.tied_in is not None else {}
            early = writes_early(inst)
            for reg in written(inst):
                if reg in self.parts:
                    continue
                begin = at + 1 if early or reg in tied else at + 2
                for atom in self.atoms[reg]:
                    live[atom] |= (2 << last.pop(atom, at + 2)) - (1 << begin)
            for reg in self.reads(inst):
                for atom in self.of(reg):
                    last.setdefault(atom, at + 1)
            for value in tied.values():
                if isinstance(value, Reg):
                    for atom in self.of(value):
                        last.setdefault(atom, at)

    def _live_out(self) -> dict[int, int]:
        """What is live at the end of each block beyond its own edge arguments, as a bitset over atoms."""
        at_entry, live_out = live_at_ends(self.blocks, self._block_uses)
        if at_entry:
            names = {repr(self.owner[atom]) for atom in bits(at_entry)}
            raise InternalError(f"{self.fn.name} uses registers before they are defined: {sorted(names)[:4]}")
        return live_out

    def _block_uses(self, block: Block) -> tuple[int, int]:
        """Atoms that `block` reads before it writes them, and those that it writes (parameters are written)."""
        need, give = 0, 0
        for reg in self.end_reads(block):
            need |= self._mask(reg)
        for inst in reversed(block.insts):
            if isinstance(inst, Comment) or (inst.opcode == "p_part" and inst.operands[0] in self.parts):
                continue
            for reg in written(inst):
                mask = self._mask(reg)
                give |= mask
                need &= ~mask
            for reg in self.reads(inst):
                need |= self._mask(reg)
            for value in inst.tied_in or ():
                need |= self._mask(value) if isinstance(value, Reg) else 0
        for param in block.params:
            if param not in self.alias:
                mask = self._mask(param)
                give |= mask
                need &= ~mask
        return need, give

    def _mask(self, reg: Reg) -> int:
        atoms = self.of(reg)
        return ((1 << len(atoms)) - 1) << atoms[0]
