"""Live ranges of 32-bit registers in SSA machine code.

Owns the numbering of *atoms* (one 32-bit register of one value), which atoms a value is made of, where each is live, and which hold
equal values. ``p_part`` makes no atoms: its result *is* some of its source's. A ``p_pack`` or copy makes new ones that are equal to
their sources, so that they may share registers even while both are live. Knows nothing of physical registers.

Live ranges are int bitsets over program points, as in `codegen.coalesce`: a block has one point at its start, where parameters are
written, and one at its end, where arguments of edges are read. An instruction has three: tied values are read, then the other operands,
then results are written. Tied results are written one point earlier (they are copied there), and so are results that an
instruction writes before it has read everything (`writes_early`).
"""

from __future__ import annotations

from mimw.codegen.amdgcn.registers import alignment, shape
from mimw.codegen.machine import (
    Block,
    Comment,
    Function,
    Imm,
    Inst,
    Not,
    Reg,
    Terminator,
    operand_regs,
    reachable_blocks,
    ties,
    written,
)
from mimw.diagnostics import InternalError, Loc

_TESTS = ("s_cmp_", "s_bitcmp")
MOVES = frozenset(("v_mov_b32", "v_mov_b64", "s_mov_b32", "s_mov_b64"))


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


def words(value: Imm, count: int) -> list[Imm]:
    """An integer as `count` 32-bit words, low to high."""
    return [Imm((value.value >> (32 * i)) & 0xFFFFFFFF) for i in range(count)]


class Liveness:
    """What is live where in `fn`. `InternalError` when the function is no valid SSA.

    `atoms` of a register are indices into `live` (points) and `value` (equal numbers hold equal values); `file_of` an atom is its
    register file. `start`, `end` are the points of a block, `depth` its loop nesting; the points of the i-th instruction of a block are
    ``start + 1 + 3 i`` and the two behind it.
    """

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.blocks = reachable_blocks(fn)
        self.order = {id(block): i for i, block in enumerate(self.blocks)}
        self.alias: dict[Reg, Reg] = {}
        self._reads: dict[int, list[Reg]] = {}
        self.parts: dict[Reg, tuple[Reg, int]] = {}
        self.atoms: dict[Reg, list[int]] = {}
        self.owner: list[Reg] = []
        self.value: list[int] = []
        self.live: list[int] = []
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self._check_edges()
        self._forward_params()
        self._find_parts()
        self._number()
        self._equal_values()
        self._ranges()
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
        while reg in self.alias:
            reg = self.alias[reg]
        return reg

    def _forward_params(self) -> None:
        """A parameter that only ever gets one value (or itself) is that value."""
        incoming: dict[Reg, list[Reg | Imm]] = {}
        for block in self.blocks:
            for edge in self.term(block).edges:
                for param, arg in zip(edge.block.params, edge.args, strict=True):
                    incoming.setdefault(param, []).append(arg)
        changed = True
        while changed:
            changed = False
            for param, args in incoming.items():
                if param in self.alias:
                    continue
                others = {self.named(arg) if isinstance(arg, Reg) else arg for arg in args} - {param}
                only = others.pop() if len(others) == 1 else None
                if isinstance(only, Reg) and shape(only.cls) == shape(param.cls):
                    self.alias[param] = only
                    changed = True

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
        self.live += [0] * count
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

    # --- ranges

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
        term = self.term(block)
        uses = [term.cond] if term.cond is not None else []
        for edge in term.edges:
            for param, arg in zip(edge.block.params, edge.args, strict=True):
                if isinstance(arg, Reg) and param not in self.alias:
                    uses.append(arg)
        return uses

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
        needs: dict[int, int] = {}
        gives: dict[int, int] = {}
        for block in self.blocks:
            needs[id(block)], gives[id(block)] = self._block_uses(block)
        live_in, live_out = dict(needs), dict.fromkeys(needs, 0)
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                key = id(block)
                out = 0
                for edge in self.term(block).edges:
                    out |= live_in[id(edge.block)]
                new = needs[key] | (out & ~gives[key])
                live_out[key] = out
                if new != live_in[key]:
                    live_in[key] = new
                    changed = True
        if self.blocks and live_in[id(self.blocks[0])]:
            names = {repr(self.owner[atom]) for atom in bits(live_in[id(self.blocks[0])])}
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


def bits(mask: int) -> list[int]:
    """The indices of the ones of `mask`, ascending."""
    text = bin(mask)[:1:-1]
    found: list[int] = []
    at = text.find("1")
    while at >= 0:
        found.append(at)
        at = text.find("1", at + 1)
    return found
