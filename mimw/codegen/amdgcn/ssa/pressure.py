"""How many registers are live at once in SSA code, per file, before any is placed.

An estimate for passes that trade registers for time (`invariants`, `schedule`): parts of tuples count as the tuple, values that may
share registers (copies, ties) count once where one ends as the other begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import Block, Comment, Function, Inst, Operand, Reg, read, written


class Pressure:
    """Live ranges of a function across blocks; asks nothing of allocation."""

    def __init__(self, fn: Function) -> None:
        self._out = _live_out(fn)
        self._parts: dict[Operand, Operand] = {
            inst.operands[0]: inst.operands[1]
            for block in fn.blocks
            for inst in block.insts
            if isinstance(inst, Inst) and inst.opcode == "p_part"
        }

    def whole(self, reg: Reg) -> Reg:
        """The tuple that a register is a part of, or itself."""
        while reg in self._parts:
            found = self._parts[reg]
            assert isinstance(found, Reg)
            reg = found
        return reg

    def at_end(self, block: Block) -> set[Reg]:
        """What is live at the end of a block, tuples whole."""
        return {self.whole(reg) for reg in self._out[id(block)] | _end_reads(block)}

    def most(self, blocks: Iterable[Block], ignored: frozenset[Reg] | set[Reg] = frozenset()) -> dict[str, int]:
        """The most registers of each file that are live at once in the blocks, without the values in `ignored`."""
        most = {"s": 0, "v": 0, "a": 0}
        for block in blocks:
            for count in self._counts(block, ignored):
                for file, number in count.items():
                    if number > most[file]:
                        most[file] = number
        return most

    def _counts(self, block: Block, ignored: frozenset[Reg] | set[Reg]) -> Iterable[dict[str, int]]:
        """Live registers after each instruction, from the last one up."""
        live = self.at_end(block) - ignored
        count = {"s": 0, "v": 0, "a": 0}
        for reg in live:
            count[shape(reg.cls)[0]] += shape(reg.cls)[1]
        for inst in reversed(block.insts):
            yield count
            if isinstance(inst, Comment):
                continue
            for reg in written(inst):
                if reg in live:
                    live.remove(reg)
                    count[shape(reg.cls)[0]] -= shape(reg.cls)[1]
            for reg in read(inst):
                whole = self.whole(reg)
                if whole not in live and whole not in ignored:
                    live.add(whole)
                    file, size = shape(whole.cls)
                    count[file] += size


def _end_reads(block: Block) -> set[Reg]:
    term = block.term
    assert term is not None
    regs = {arg for edge in term.edges for arg in edge.args if isinstance(arg, Reg)}
    return regs if term.cond is None else regs | {term.cond}


def _live_out(fn: Function) -> dict[int, set[Reg]]:
    """What is live at the end of each block beyond what its terminator reads."""
    needs: dict[int, set[Reg]] = {}
    gives: dict[int, set[Reg]] = {}
    for block in fn.blocks:
        need = _end_reads(block)
        give: set[Reg] = set(block.params)
        for inst in reversed(block.insts):
            if isinstance(inst, Inst):
                results = written(inst)
                need.difference_update(results)
                give.update(results)
                need.update(read(inst))
        needs[id(block)], gives[id(block)] = need - set(block.params), give
    out: dict[int, set[Reg]] = {id(block): set() for block in fn.blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(fn.blocks):
            assert block.term is not None
            key = id(block)
            for edge in block.term.edges:
                after = id(edge.block)
                new = needs[after] | (out[after] - gives[after])
                if not new <= out[key]:
                    out[key] |= new
                    changed = True
    return out
