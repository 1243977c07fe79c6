"""The values of an SSA function, taken apart into 32-bit registers.

Owns the numbering of *atoms* (one 32-bit register of one value), which atoms a value is made of, and which hold equal values. ``p_part``
makes no atoms: its result *is* some of its source's. A ``p_pack`` or copy makes new ones that are equal to their sources, so that they
may share registers even while both are live. Checks that the function is valid SSA. Knows nothing of physical registers.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.registers import alignment, shape
from mimw.codegen.dataflow import named, trivial_parameters
from mimw.codegen.machine import Block, Function, Imm, Inst, Reg, Terminator, operand_regs, reachable_blocks, written
from mimw.diagnostics import InternalError, Loc

_TESTS = ("s_cmp_", "s_bitcmp")
MOVES = frozenset(("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64"))


def words(value: Imm, count: int) -> list[Imm]:
    """An integer as `count` 32-bit words, low to high."""
    return [Imm((value.value >> (32 * i)) & 0xFFFFFFFF) for i in range(count)]


class Atoms:
    """The atoms of `fn`. `InternalError` when the function is no valid SSA.

    `atoms` of a register are numbers; of each, `owner` is the register that was defined with it and `value` is equal for those that hold
    equal values. `alias` are parameters that are only another value's name, `parts` the registers that are parts of others. `depth` is
    the loop nesting of a block.
    """

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.blocks = reachable_blocks(fn)
        self.order = {id(block): i for i, block in enumerate(self.blocks)}
        self.parts: dict[Reg, tuple[Reg, int]] = {}
        self.atoms: dict[Reg, list[int]] = {}
        self.owner: list[Reg] = []
        self.value: list[int] = []
        self._check_edges()
        self.alias = trivial_parameters(self.blocks, lambda value, param: shape(value.cls) == shape(param.cls))
        self._find_parts()
        self._number()
        self._equal_values()
        self.depth = self._depths()

    # --- shape of the function

    def term(self, block: Block) -> Terminator:
        """The terminator of a reachable block."""
        assert block.term is not None
        return block.term

    def _check_edges(self) -> None:
        entered: set[int] = set()
        for block in self.blocks:
            term = self.term(block)
            fused = (
                bool(block.insts) and isinstance(block.insts[-1], Inst) and block.insts[-1].opcode.startswith(_TESTS)
            )
            if len(term.edges) > 2 or (len(term.edges) == 2) != (term.cond is not None or fused):
                raise InternalError(f"a block ends in {len(term.edges)} edges, condition {term.cond!r}", term.loc)
            for edge in term.edges:
                entered.add(id(edge.block))
                if len(edge.args) != len(edge.block.params):
                    raise InternalError(f"an edge brings {len(edge.args)} of {len(edge.block.params)} values", term.loc)
        if self.blocks and (self.blocks[0].params or id(self.blocks[0]) in entered):
            raise InternalError(f"the first block of {self.fn.name} has parameters or predecessors")

    def _depths(self) -> dict[int, int]:
        """Nesting by backward edges of the layout: what lies between target and source is inside the loop."""
        depth = dict.fromkeys(self.order, 0)
        seen: set[int] = set()
        for i in range(len(self.blocks) - 1, -1, -1):
            for edge in self.term(self.blocks[i]).edges:
                first = self.order[id(edge.block)]
                if first <= i and first not in seen:
                    seen.add(first)
                    for block in self.blocks[first : i + 1]:
                        depth[id(block)] += 1
        return depth

    # --- names of values

    def named(self, reg: Reg) -> Reg:
        """The value that stands for `reg` once trivial parameters are gone."""
        return named(reg, self.alias)

    def _find_parts(self) -> None:
        """Parts that are aligned are names for registers of their source; the others are copies."""
        for block in self.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst) and inst.opcode == "p_part":
                    dst, src, index = inst.operands
                    if not isinstance(dst, Reg) or not isinstance(src, Reg) or not isinstance(index, Imm):
                        raise InternalError("p_part takes a result, a tuple and a number", inst.loc)
                    (file, count), (other, size) = shape(dst.cls), shape(src.cls)
                    if index.value < 0 or index.value + count > size:
                        raise InternalError(f"{src.cls} has no {dst.cls} at {index.value}", inst.loc)
                    if file == other and index.value % alignment(file, count) == 0:
                        self.parts[dst] = (src, index.value)

    def _number(self) -> None:
        for block in self.blocks:
            for param in block.params:
                if param not in self.alias:
                    self._define(param, None)
            for inst in block.insts:
                if isinstance(inst, Inst):
                    for reg in written(inst):
                        if reg not in self.parts:
                            self._define(reg, inst.loc)
        for reg in self.parts:
            self.atoms[reg] = self._part_atoms(reg)
        for reg in self.alias:
            self.atoms[reg] = self._atoms_of_definition(self.named(reg))

    def _define(self, reg: Reg, loc: Loc | None) -> None:
        if reg in self.atoms:
            raise InternalError(f"register {reg!r} is defined twice", loc)
        first = len(self.owner)
        count = shape(reg.cls)[1]
        self.atoms[reg] = list(range(first, first + count))
        self.owner += [reg] * count
        self.value += range(first, first + count)

    def _part_atoms(self, reg: Reg) -> list[int]:
        index, count = 0, shape(reg.cls)[1]
        seen = 0
        while reg in self.parts:
            reg, offset = self.parts[reg]
            reg = self.named(reg)
            index += offset
            seen += 1
            if seen > len(self.parts):
                raise InternalError(f"p_part of {reg!r} is made from itself")
        return self._atoms_of_definition(reg)[index : index + count]

    def _atoms_of_definition(self, reg: Reg) -> list[int]:
        found = self.atoms.get(reg)
        if found is None:
            raise InternalError(f"register {reg!r} is used and never defined")
        return found

    def of(self, reg: Reg) -> list[int]:
        """The atoms of a register."""
        found = self.atoms.get(reg)
        return found if found is not None else self._atoms_of_definition(reg)

    def file_of(self, atom: int) -> str:
        """The register file of an atom."""
        return shape(self.owner[atom].cls)[0]

    # --- copies

    def copies(self, inst: Inst) -> list[tuple[int, int | Imm]] | None:
        """(target atom, source) of what only moves registers; None of other instructions."""
        opcode = inst.opcode
        if opcode in ("p_pack", "p_copy"):
            pass
        elif opcode == "p_part":
            dst, src, index = inst.operands
            if dst in self.parts:
                return []
            assert isinstance(dst, Reg) and isinstance(src, Reg) and isinstance(index, Imm)
            return list(zip(self.of(dst), self.of(src)[index.value :], strict=False))
        elif not self._plain_move(inst):
            return None
        targets = [atom for reg in operand_regs(inst.operands[0]) for atom in self.of(reg)]
        sources: list[int | Imm] = []
        for operand in inst.operands[1:]:
            if isinstance(operand, Reg):
                sources += self.of(operand)
            elif isinstance(operand, Imm):
                sources += words(operand, 1 if opcode == "p_pack" else len(targets))
            else:
                raise InternalError(f"{opcode} of {operand!r}", inst.loc)
        if len(sources) != len(targets):
            raise InternalError(f"{opcode} makes {len(targets)} registers of {len(sources)}", inst.loc)
        return list(zip(targets, sources, strict=True))

    def _plain_move(self, inst: Inst) -> bool:
        """A move between registers of one file that all lanes make."""
        if inst.opcode not in MOVES or inst.guard is not None or inst.tied_in is not None or len(inst.operands) != 2:
            return False
        dst, src = inst.operands
        return isinstance(dst, Reg) and isinstance(src, Reg) and shape(dst.cls) == shape(src.cls)

    def _equal_values(self) -> None:
        """Number the values of copies as those of their sources."""
        source: dict[int, int] = {}
        for block in self.blocks:
            for inst in block.insts:
                if isinstance(inst, Inst) and (inst.opcode[:2] == "p_" or inst.opcode in MOVES):
                    for dst, src in self.copies(inst) or ():
                        if isinstance(src, int) and self.file_of(src) == self.file_of(dst):
                            source[dst] = src
        for atom in source:
            root = atom
            while root in source:
                root = source[root]
            self.value[atom] = root
