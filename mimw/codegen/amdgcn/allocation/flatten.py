"""Out of SSA with registers given: an allocated function becomes a flat body of labels and instructions on physical registers.

Owns where the copies stand that allocation could not avoid (on edges, before ties, of tuples), the layout of blocks and branches, and the place
where pseudos are expanded. Adds neither EXEC masks nor waits nor wait states: those passes follow.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation import frame
from mimw.codegen.amdgcn.allocation.copies import Copies, Place
from mimw.codegen.amdgcn.allocation.liveness import addend
from mimw.codegen.amdgcn.allocation.regalloc import Allocation
from mimw.codegen.amdgcn.flat.expand import expand, test_mask
from mimw.codegen.amdgcn.registers import FIRST, name, shape, units
from mimw.codegen.machine import (
    Block,
    Comment,
    FlatFunction,
    Imm,
    Inst,
    Label,
    LabelRef,
    Not,
    Operand,
    Reg,
    Symbol,
    ties,
)
from mimw.diagnostics import InternalError, Loc

_Item = Inst | Label | Comment


def flatten(found: Allocation) -> FlatFunction:
    """The flat form of an allocated function."""
    return _Flattener(found).run()


class _Flattener:
    def __init__(self, found: Allocation) -> None:
        self.found = found
        self.live = found.live
        self.groups = found.groups
        self.regs: dict[tuple[str, int, str, str], Reg] = {}
        self.body: list[_Item] = []
        self.copies = Copies(found.reserved[-1] if found.reserved else -1)
        self.nothing = {
            atom for block in self.live.blocks for atom in self._undefined(block)
        }  # copying what is undefined is no work

    def _undefined(self, block: Block) -> list[int]:
        undefined = [i for i in block.insts if isinstance(i, Inst) and i.opcode == "p_undef"]
        return [atom for inst in undefined for atom in self.live.of(self._result(inst))]

    @staticmethod
    def _result(inst: Inst) -> Reg:
        result = inst.operands[0]
        assert isinstance(result, Reg)
        return result

    def run(self) -> FlatFunction:
        """All blocks, then branches between those that are not empty."""
        fn = self.found.fn
        out = FlatFunction(fn.name, fn.params)
        out.directives, out.shared, out.pointers = dict(fn.directives), list(fn.shared), dict(fn.pointers)
        blocks = self.live.blocks
        bodies: dict[int, list[_Item]] = {}
        for i, block in enumerate(blocks):
            self.body = bodies[id(block)] = []
            if i == 0:
                self._entries(block)
            for inst in block.insts:
                if isinstance(inst, Comment):
                    self.body.append(inst)
                else:
                    self._inst(inst)
            self._arguments(block)
        out.body = _Branches(self, blocks, bodies).run()
        out.regs = list(self.regs.values())
        return out

    # --- registers

    def reg(self, reg: Reg) -> Reg:
        """The physical register of a value."""
        file, count = shape(reg.cls)
        first = self.groups.unit(self.live.of(reg)[0])
        key = (file, first, reg.cls, reg.hint)
        found = self.regs.get(key)
        if found is None:
            found = self.regs[key] = Reg(reg.cls, reg.hint, name(file, first, count))
        return found

    def units_of(self, reg: Reg) -> list[int]:
        """The units of a value."""
        return [self.unit(atom) for atom in self.live.of(reg)]

    def unit(self, atom: int) -> int:
        """The unit of an atom, in the numbering of all files."""
        return FIRST[self.groups.group_of[atom].file] + self.groups.unit(atom)

    def _copy(self, moves: list[tuple[Place, Place]], loc: Loc | None) -> None:
        """Copies that happen at once, here."""
        self.body += self.copies.emit(moves, loc)

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Reg):
            return self.reg(operand)
        return Not(self.reg(operand.reg)) if isinstance(operand, Not) else operand

    # --- instructions

    def _entries(self, block: Block) -> None:
        """What the hardware leaves in fixed registers goes where it was put, all at once."""
        moves: list[tuple[Place, Place]] = []
        for inst in block.insts:
            if isinstance(inst, Inst) and inst.opcode == "p_entry":
                source = inst.operands[1]
                if not isinstance(source, Symbol):
                    raise InternalError(f"p_entry of {source!r}", inst.loc)
                moves += zip(self.units_of(self._result(inst)), units(source.name), strict=True)
        self._copy(moves, None)

    def _inst(self, inst: Inst) -> None:
        opcode = inst.opcode
        if opcode in ("p_entry", "p_undef"):
            return
        copies = self.live.copies(inst) if opcode[:2] == "p_" or "_mov_b" in opcode else None
        if copies is not None:
            self._copy([self._move(dst, src) for dst, src in copies if src not in self.nothing], inst.loc)
            return
        if opcode in ("p_save", "p_restore"):
            self._memory(inst)
            return
        own_addend = self._tie(inst)
        operands = [self._operand(operand) for operand in inst.operands]
        if addend(inst) is not None and not own_addend:
            operands[3] = operands[0]
        guard = self.reg(inst.guard) if inst.guard is not None else None
        self.body += expand(Inst(opcode, operands, inst.num_results, inst.loc, guard, inst.guard_neg))

    def _move(self, dst: int, src: int | Imm) -> tuple[Place, Place]:
        return self.unit(dst), self.unit(src) if isinstance(src, int) else ("imm", src.value & 0xFFFFFFFF)

    def _tie(self, inst: Inst) -> bool:
        """Copy tied values to their results. A product whose addend lies wholly elsewhere reads it there: returns True then."""
        moves: list[tuple[Place, Place]] = []
        for result, tied in ties(inst):
            if isinstance(tied, Imm):
                count = shape(result.cls)[1]
                moves += [
                    (u, ("imm", tied.value >> 32 * i & 0xFFFFFFFF)) for i, u in enumerate(self.units_of(result)[:count])
                ]
                continue
            places = list(zip(self.units_of(result), self.units_of(tied), self.live.of(tied), strict=True))
            same_file = shape(result.cls)[0] == shape(tied.cls)[0]
            if addend(inst) is tied and same_file and not {dst for dst, _, _ in places} & {src for _, src, _ in places}:
                return True
            moves += [(dst, src) for dst, src, atom in places if atom not in self.nothing]
        self._copy(moves, inst.loc)
        return False

    def _memory(self, inst: Inst) -> None:
        reserved = self.found.reserved
        if inst.opcode == "p_save":
            word, reg = inst.operands
            act = frame.save
        else:
            reg, word = inst.operands
            act = frame.restore
        assert isinstance(word, Imm) and isinstance(reg, Reg)
        where = self.units_of(reg)
        self.body += act(range(where[0], where[-1] + 1), word.value, reserved, inst.loc)

    def _arguments(self, block: Block) -> None:
        """The copies on the edge of a block with one successor."""
        term = self.live.term(block)
        for edge in term.edges:
            moves: list[tuple[Place, Place]] = []
            for param, arg in zip(edge.block.params, edge.args, strict=True):
                if param in self.live.alias:
                    continue
                targets = self.live.of(param)
                sources = (
                    self.live.of(arg)
                    if isinstance(arg, Reg)
                    else [Imm(arg.value >> 32 * i) for i in range(len(targets))]
                )
                moves += [self._move(d, s) for d, s in zip(targets, sources, strict=True) if s not in self.nothing]
            self._copy(moves, term.loc)


class _Branches:
    """Puts the blocks into a row; blocks that only jump are passed by."""

    def __init__(self, parent: _Flattener, blocks: list[Block], bodies: dict[int, list[_Item]]) -> None:
        self.parent = parent
        self.live = parent.live
        self.blocks = blocks
        self.bodies = bodies
        self.out: list[_Item] = []
        self.wanted: set[str] = set()

    def run(self) -> list[_Item]:
        """The flat body."""
        kept = [block for i, block in enumerate(self.blocks) if i == 0 or self._goal(block) is block]
        for i, block in enumerate(kept):
            self.out.append(Label(self._label(block), "nounroll" if block.nounroll else ""))
            self.out += self.bodies[id(block)]
            self._terminator(block, kept[i + 1] if i + 1 < len(kept) else None)
        return [item for item in self.out if not isinstance(item, Label) or item.name in self.wanted]

    def _goal(self, block: Block) -> Block:
        """Where a jump to `block` ends: behind blocks that do nothing but jump."""
        seen: set[int] = set()
        while not self.bodies[id(block)] and len(self.live.term(block).edges) == 1 and id(block) not in seen:
            seen.add(id(block))
            block = self.live.term(block).edges[0].block
        return block

    def _label(self, block: Block) -> str:
        hint = "".join(c if c.isalnum() else "_" for c in block.hint)
        number = self.live.order[id(block)]
        return f"L{number}_{hint}" if hint else f"L{number}"

    def _jump(self, opcode: str, block: Block, loc: Loc | None) -> None:
        label = self._label(block)
        self.wanted.add(label)
        self.out.append(Inst(opcode, [LabelRef(label)], 0, loc))

    def _terminator(self, block: Block, following: Block | None) -> None:
        term = self.live.term(block)
        goals = [self._goal(edge.block) for edge in term.edges]
        if not goals:
            self.out.append(Inst("s_endpgm", [], 0, term.loc))
            return
        if len(goals) == 2 and goals[0] is not goals[1]:
            if term.cond is not None:
                self.out.append(test_mask(self.parent.reg(term.cond), term.loc))
            if goals[0] is following:
                self._jump("s_cbranch_scc0", goals[1], term.loc)
                return
            self._jump("s_cbranch_scc1", goals[0], term.loc)
        if goals[-1] is not following:
            self._jump("s_branch", goals[-1], term.loc)
