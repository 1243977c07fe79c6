"""Vector values that found no vector registers go to accumulation registers, where the machine has some left.

Products of matrices, loads and stores name those themselves; other instructions work on copies.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.groups import Group, Groups
from mimw.codegen.amdgcn.allocation.liveness import Liveness, addend
from mimw.codegen.amdgcn.allocation.rewriter import Rewriter, rebuilt, remakes, touches
from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import Block, Inst, Operand, Reg, operand_regs, written


class ToAccumulators(Rewriter):
    """Victims become values of accumulation registers; what cannot name those works on copies."""

    def __init__(self, live: Liveness, groups: Groups, chosen: dict[int, Group], temps: set[Reg]) -> None:
        super().__init__(live, groups, chosen, temps)
        self.new: dict[Reg, Reg] = {}

    def moved(self, reg: Reg) -> Reg:
        """The accumulation register of a victim."""
        reg = self.live.named(reg)
        found = self.new.get(reg)
        if found is None:
            found = self.new[reg] = Reg(f"a{32 * shape(reg.cls)[1]}", reg.hint)
        return found

    def inst(self, inst: Inst) -> None:
        chosen = [reg for reg in dict.fromkeys(touches(self.live, inst)) if self.is_chosen(reg)]
        if inst.opcode == "p_part" and inst.operands[0] in self.live.parts:
            chosen = [reg for reg in (*written(inst), *operand_regs(inst.operands[1])) if self.is_chosen(reg)]
        if not chosen:
            self.out.append(inst)
            return
        if (
            inst.opcode in ("p_pack", "p_part", "p_copy", "p_undef")
            or self.live.copies(inst) is not None
            or remakes(inst)
        ):
            opcode = inst.opcode if inst.opcode[:2] == "p_" else "p_copy"
            operands = [self.moved(o) if isinstance(o, Reg) and o in chosen else o for o in inst.operands]
            self.emit(opcode, operands, inst.num_results, inst)
            return
        self._real(inst, chosen)

    def _real(self, inst: Inst, chosen: list[Reg]) -> None:
        """An instruction of the machine: accumulation registers where it takes them, copies elsewhere."""
        places = _accumulator_slots(inst)
        together = inst.opcode.startswith("v_mfma_")  # result and addend lie in one file
        in_place = {o for i, o in enumerate(inst.operands) if i in places and o in chosen}
        elsewhere = {o for i, o in enumerate(inst.operands) if i not in places for o in operand_regs(o) if o in chosen}
        result = next(iter(written(inst)), None)
        results = written(inst)
        sources: dict[Reg, Reg] = {}
        made: dict[Reg, Reg] = {}
        in_accumulators = result in in_place and result not in elsewhere
        for reg in dict.fromkeys(self.live.reads(inst)):
            if reg in chosen:
                direct = reg in in_place and reg not in elsewhere
                if together and reg is inst.operands[3]:
                    direct = direct and in_accumulators
                sources[reg] = self.moved(reg) if direct else self._copied(self.moved(reg), "v", inst)
            elif together and in_accumulators and reg is inst.operands[3]:
                sources[reg] = self._copied(reg, "a", inst)
        tied = self._tied(inst, chosen, in_accumulators, sources)
        for reg in results:
            if reg in chosen:
                made[reg] = self.moved(reg) if in_accumulators else self.temp(reg, "v")
        self.out.append(rebuilt(inst, sources, made, tied))
        for reg, temp in made.items():
            if not in_accumulators:
                self.emit("p_copy", [self.moved(reg), temp], 1, inst)

    def _tied(
        self, inst: Inst, chosen: list[Reg], in_accumulators: bool, sources: dict[Reg, Reg]
    ) -> "list[Operand | None] | None":
        if inst.tied_in is None:
            return None
        tied: list[Operand | None] = []
        printed = addend(inst)
        for operand in inst.tied_in:
            value = operand
            if isinstance(operand, Reg):
                if operand in chosen:
                    value = self.moved(operand) if in_accumulators else self._copied(self.moved(operand), "v", inst)
                elif in_accumulators:
                    value = self._copied(operand, "a", inst)
                if operand is printed and isinstance(value, Reg):
                    sources[operand] = value
            tied.append(value)
        return tied

    def _copied(self, source: Reg, file: str, like: Inst) -> Reg:
        temp = self.temp(source, file)
        self.emit("p_copy", [temp, source], 1, like)
        return temp

    def finish(self, block: Block) -> None:
        for edge in self.live.term(block).edges:
            edge.args = [self.moved(a) if isinstance(a, Reg) and self.is_chosen(a) else a for a in edge.args]

    def params(self, block: Block) -> None:
        """Parameters change their class; those that are only a name for a victim are replaced by it everywhere."""
        self.keep(block, [not (self.is_chosen(param) and param in self.live.alias) for param in block.params])
        block.params = [self.moved(p) if self.is_chosen(p) else p for p in block.params]


def _accumulator_slots(inst: Inst) -> set[int]:
    """The operands that may be accumulation registers. Only products may have several: others would need all in one file."""
    slots = resolve(inst.opcode).slots if inst.opcode[:2] != "p_" else ()
    found = {i for i, slot in enumerate(slots) if slot.agpr}
    return found if len(found) == 1 or inst.opcode.startswith("v_mfma_") else set()
