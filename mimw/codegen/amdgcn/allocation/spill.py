"""Spill code: groups of values that found no registers go to memory.

A spilled group lives in one place of the frame: values that shared registers share memory, so that ties, parameters and parts of tuples
cost nothing there. Every definition saves, every use restores into a temporary of its own; a constant is made anew instead.
"""

from __future__ import annotations

from itertools import pairwise

from mimw.codegen.amdgcn.allocation.frame import Frame
from mimw.codegen.amdgcn.allocation.groups import Group, Groups
from mimw.codegen.amdgcn.allocation.liveness import Liveness, addend
from mimw.codegen.amdgcn.allocation.parallel import schedule
from mimw.codegen.amdgcn.allocation.rewriter import Rewriter, rebuilt, remakes
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import Block, Comment, Edge, Imm, Inst, Operand, Reg, written


class ToMemory(Rewriter):
    """Victims go to the frame; constants among them are made anew."""

    def __init__(self, live: Liveness, groups: Groups, chosen: dict[int, Group], frame: Frame, temps: set[Reg]) -> None:
        super().__init__(live, groups, chosen, temps)
        self.file = next(iter(chosen.values())).file
        self.remade: dict[Reg, Inst] = self._constants()
        alone = {id(groups.group_of[live.of(reg)[0]]) for reg in self.remade}
        self.base = {
            key: frame.place(group.file, group.width) - group.low for key, group in chosen.items() if key not in alone
        }

    def _constants(self) -> dict[Reg, Inst]:
        """Victims that consist of one constant."""
        members: dict[int, set[Reg]] = {}
        for key, group in self.chosen.items():
            members[key] = {self.live.owner[atom] for atoms in group.cells.values() for atom in atoms}
        found: dict[Reg, Inst] = {}
        for block in self.live.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst) and remakes(inst):
                    reg = inst.operands[0]
                    if isinstance(reg, Reg) and members.get(id(self.groups.group_of[self.live.of(reg)[0]])) == {reg}:
                        found[reg] = inst
        return found

    def word(self, atom: int) -> int:
        """The place of an atom in the frame."""
        return self.base[id(self.groups.group_of[atom])] + self.groups.offset_of[atom]

    def remade_part(self, reg: Reg) -> tuple[Inst, int] | None:
        """The constant that a register is (a part of), and from which word on."""
        atoms = self.live.of(reg)
        made = self.remade.get(self.live.owner[atoms[0]])
        return None if made is None else (made, self.groups.offset_of[atoms[0]])

    def reload(self, reg: Reg, like: Inst | None) -> Reg:
        """A temporary that holds the victim `reg` now."""
        temp = self.temp(reg)
        made = self.remade_part(reg)
        if made is not None:
            constant = made[0].operands[1]
            assert isinstance(constant, Imm)
            count = shape(reg.cls)[1]
            if count == shape(self.live.owner[self.live.of(reg)[0]].cls)[1]:
                self.emit(made[0].opcode, [temp, constant], 1, like)
            else:
                self.emit("p_copy", [temp, Imm(constant.value >> (32 * made[1]), constant.cls)], 1, like)
        else:
            self.emit("p_restore", [temp, Imm(self.word(self.live.of(reg)[0]))], 1, like)
        return temp

    def inst(self, inst: Inst) -> None:
        live = self.live
        if inst.opcode == "p_part" and inst.operands[0] in live.parts:
            if not self.is_chosen(written(inst)[0]):
                self.out.append(inst)
            return
        if remakes(inst) and inst.operands[0] in self.remade:
            return
        results = [reg for reg in written(inst) if self.is_chosen(reg)]
        if inst.opcode in ("p_pack", "p_copy") and results:
            self._pack(inst, results[0])
            return
        new = {reg: self.reload(reg, inst) for reg in dict.fromkeys(live.reads(inst)) if self.is_chosen(reg)}
        tied = self._tied(inst, new)
        made = {reg: self.temp(reg) for reg in results}
        self.out.append(rebuilt(inst, new, made, tied) if new or made or tied else inst)
        for reg, temp in made.items():
            self.emit("p_save", [Imm(self.word(live.of(reg)[0])), temp], 0, inst)

    def _tied(self, inst: Inst, new: dict[Reg, Reg]) -> "list[Operand | None] | None":
        if inst.tied_in is None:
            return None
        printed = addend(inst)
        tied: list[Operand | None] = []
        for operand in inst.tied_in:
            if isinstance(operand, Reg) and self.is_chosen(operand):
                temp = self.reload(operand, inst)
                if operand is printed:
                    new[operand] = temp
                tied.append(temp)
            else:
                tied.append(operand)
        return tied

    def _pack(self, inst: Inst, result: Reg) -> None:
        """A tuple in memory: parts that are elsewhere go there. All are fetched first where they come out of the same place."""
        at = 0
        home = self.groups.group_of[self.live.of(result)[0]]
        target = self.word(self.live.of(result)[0])
        late: list[Inst | Comment] = []
        for operand in inst.operands[1:]:
            count = 1 if inst.opcode == "p_pack" else shape(result.cls)[1]
            source = operand
            if isinstance(operand, Reg):
                count = shape(operand.cls)[1]
                if self.is_chosen(operand):
                    first = self.live.of(operand)[0]
                    made = self.remade_part(operand)
                    if made is None and self.word(first) == target + at:
                        at += count
                        continue
                    source = self.reload(operand, inst)
                    home_too = made is None and self.groups.group_of[first] is home
                    late = late if home_too or late else self.out
            source = self._in_file(source, count, inst)
            save = Inst("p_save", [Imm(target + at), source], 0, inst.loc)
            (late if late is not self.out else self.out).append(save)
            at += count
        if late is not self.out:
            self.out += late

    def _in_file(self, source: Operand, count: int, like: Inst | None) -> Reg:
        """`source` in a register that can be saved from."""
        if isinstance(source, Reg) and shape(source.cls)[0] == self.file:
            return source
        temp = Reg(f"{self.file}{32 * count}")
        self.temps.add(temp)
        self.emit("p_copy", [temp, source], 1, like)
        return temp

    def finish(self, block: Block) -> None:
        term = self.live.term(block)
        if term.cond is not None and self.is_chosen(term.cond):
            term.cond = self.reload(term.cond, None)
        for edge in term.edges:
            self._edge(edge)

    def _edge(self, edge: Edge) -> None:
        """Arguments of register parameters are fetched, then those of parameters in memory are brought there, all at once."""
        moves: list[tuple[object, object]] = []
        sources: dict[object, Reg | Imm] = {}
        for i, (param, arg) in enumerate(zip(edge.block.params, edge.args, strict=True)):
            if param in self.live.alias:
                continue
            if not self.is_chosen(param):
                if isinstance(arg, Reg) and self.is_chosen(arg):
                    edge.args[i] = self.reload(arg, None)
                continue
            self._to_parameter(param, arg, moves, sources)
        ordered, cycles = schedule(moves)
        for dst, src in ordered:
            self._save_word(dst, sources[src] if src in sources else self._fetched(src))
        for cycle in cycles:
            kept = self._fetched(cycle[0])
            for dst, src in pairwise(cycle):
                self._save_word(dst, self._fetched(src))
            self._save_word(cycle[-1], kept)

    def _save_word(self, word: object, value: Reg | Imm) -> None:
        assert isinstance(word, int)
        self.emit("p_save", [Imm(word), self._in_file(value, 1, None)], 0, None)

    def _to_parameter(
        self, param: Reg, arg: Reg | Imm, moves: list[tuple[object, object]], sources: dict[object, Reg | Imm]
    ) -> None:
        """Note the moves, word by word, that bring `arg` to the place of `param`."""
        target = self.word(self.live.of(param)[0])
        count = shape(param.cls)[1]
        made = self.remade_part(arg) if isinstance(arg, Reg) and self.is_chosen(arg) else None
        if isinstance(arg, Reg) and self.is_chosen(arg) and made is None:
            first = self.word(self.live.of(arg)[0])
            moves += [(target + k, first + k) for k in range(count) if first != target]
            return
        for k in range(count):
            key = (target, k)
            moves.append((target + k, key))
            if isinstance(arg, Imm) or made is not None:
                constant = arg if isinstance(arg, Imm) else made[0].operands[1] if made is not None else None
                assert isinstance(constant, Imm)
                shift = 32 * (k + (made[1] if made is not None else 0))
                sources[key] = Imm(constant.value >> shift & 0xFFFFFFFF)
            else:
                sources[key] = self._part(arg, k, count)

    def _part(self, reg: Reg, index: int, count: int) -> Reg:
        """One 32-bit register of a value."""
        if count == 1:
            return reg
        part = Reg(f"{shape(reg.cls)[0]}32", reg.hint)
        self.emit("p_part", [part, reg, Imm(index)], 1, None)
        return part

    def _fetched(self, word: object) -> Reg:
        temp = Reg(f"{self.file}32")
        self.temps.add(temp)
        assert isinstance(word, int)
        self.emit("p_restore", [temp, Imm(word)], 1, None)
        return temp

    def params(self, block: Block) -> None:
        """Parameters that live in memory are none any more."""
        self.keep(block, [not self.is_chosen(param) for param in block.params])
