"""Rewriting an SSA function so that some groups of values live elsewhere: what spilling and moving to other files share.

Owns the walk over the blocks and the substitution of registers inside instructions. Assumes that edges which bring parameters leave
blocks with one successor.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.groups import Group, Groups
from mimw.codegen.amdgcn.allocation.liveness import Liveness
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import Block, Comment, Imm, Inst, Not, Operand, Reg, operand_regs, written


def touches(live: Liveness, inst: Inst) -> list[Reg]:
    """The registers that `inst` really reads or writes."""
    regs = list(live.reads(inst))
    if inst.tied_in is not None:
        for operand in inst.tied_in:
            regs += operand_regs(operand)
    if not (inst.opcode == "p_part" and inst.operands[0] in live.parts):
        regs += written(inst)
    return regs


def remakes(inst: Inst) -> bool:
    """Whether making the result again is as good as keeping it: a move of a constant."""
    return (
        inst.opcode in ("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64", "s_movk_i32", "p_copy")
        and inst.guard is None
        and inst.tied_in is None
        and len(inst.operands) == 2
        and isinstance(inst.operands[1], Imm)
    )


class Rewriter:
    """What both kinds share: walking the blocks, and substituting registers inside instructions."""

    def __init__(self, live: Liveness, groups: Groups, chosen: dict[int, Group], temps: set[Reg]) -> None:
        self.live = live
        self.groups = groups
        self.chosen = chosen
        self.temps = temps
        self.out: list[Inst | Comment] = []

    def run(self) -> None:
        """Rewrite every block in place."""
        for block in self.live.blocks:
            self.out = []
            self.begin(block)
            for inst in block.insts:
                if isinstance(inst, Comment):
                    self.out.append(inst)
                else:
                    self.inst(inst)
            self.finish(block)
            block.insts = self.out
        for block in self.live.blocks:
            self.params(block)

    def begin(self, block: Block) -> None:
        """Called before the instructions of a block."""

    def inst(self, inst: Inst) -> None:
        """Append what replaces an instruction."""
        raise NotImplementedError

    def finish(self, block: Block) -> None:
        """Called after the instructions of a block: rewrites its terminator."""
        raise NotImplementedError

    def params(self, block: Block) -> None:
        """Called for every block when all terminators are rewritten."""

    def keep(self, block: Block, wanted: list[bool]) -> None:
        """Drop the other parameters of a block, and their arguments."""
        if all(wanted):
            return
        for other in self.live.blocks:
            for edge in self.live.term(other).edges:
                if edge.block is block:
                    edge.args = [arg for arg, keep in zip(edge.args, wanted, strict=True) if keep]
        block.params = [param for param, keep in zip(block.params, wanted, strict=True) if keep]

    def is_chosen(self, reg: Reg) -> bool:
        """Whether the value is one of the victims'."""
        return id(self.groups.group_of[self.live.of(reg)[0]]) in self.chosen

    def temp(self, like: Reg, file: str = "") -> Reg:
        """A temporary shaped like a value (in another file)."""
        cls = f"{file}{32 * shape(like.cls)[1]}" if file else like.cls
        reg = Reg(cls, like.hint)
        self.temps.add(reg)
        return reg

    def emit(self, opcode: str, operands: list[Operand], results: int, like: Inst | None) -> None:
        """Append an instruction at the place of another."""
        self.out.append(Inst(opcode, operands, results, like.loc if like is not None else None))


def _replace(operand: Operand, new: dict[Reg, Reg]) -> Operand:
    if isinstance(operand, Reg):
        return new.get(operand, operand)
    if isinstance(operand, Not):
        return Not(new.get(operand.reg, operand.reg))
    return operand


def rebuilt(inst: Inst, sources: dict[Reg, Reg], results: dict[Reg, Reg], tied: "list[Operand | None] | None") -> Inst:
    """`inst` with other registers."""
    operands = [_replace(o, results if i < inst.num_results else sources) for i, o in enumerate(inst.operands)]
    guard = sources.get(inst.guard, inst.guard) if inst.guard is not None else None
    return Inst(inst.opcode, operands, inst.num_results, inst.loc, guard, inst.guard_neg, tied, inst.redefined)
