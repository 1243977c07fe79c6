"""Two instructions in one: what moves between lanes as a source of its only reader, and sums, maxima and shifts of three sources.

Owns which pairs of opcodes have a common form. An instruction goes into its reader where that is the only one, in the same block, and the
form takes the operands (three-source forms: one scalar register, no literal). Trees of one associative operation are written anew, three
sources an instruction; f32 additions are not, since they round. Assumes a prepared function (`prepare`); changes it.
"""

from __future__ import annotations

from collections import Counter

from mimw.codegen.amdgcn.builder.opcodes import COMMUTES
from mimw.codegen.amdgcn.isa import inline, rows
from mimw.codegen.machine import Block, Comment, Function, Imm, Inst, Operand, Reg, Symbol, read, written

THREE = {
    "v_max_f32": "v_max3_f32", "v_min_f32": "v_min3_f32", "v_max_i32": "v_max3_i32", "v_min_i32": "v_min3_i32",
    "v_max_u32": "v_max3_u32", "v_min_u32": "v_min3_u32", "v_max_f16": "v_max3_f16", "v_min_f16": "v_min3_f16",
    "v_add_u32": "v_add3_u32", "v_or_b32": "v_or3_b32",
}  # fmt: skip
"""Operations whose order does not matter -> the form of three sources."""

MIXED = {
    ("v_add_u32", "v_lshlrev_b32"): ("v_lshl_add_u32", (1, 0, 2)),
    ("v_or_b32", "v_lshlrev_b32"): ("v_lshl_or_b32", (1, 0, 2)),
    ("v_or_b32", "v_and_b32"): ("v_and_or_b32", (0, 1, 2)),
    ("v_add_u32", "v_xor_b32"): ("v_xad_u32", (0, 1, 2)),
}  # fmt: skip
"""(outer, inner): the form, and which of (inner's first source, its second, the other source of outer) each operand is."""

NEAR = 4
"""A tree is written anew if it spans at most this many instructions for each of its leaves: else values would live longer."""


def combine(fn: Function) -> int:
    """Combine all that can be; returns how many instructions went."""
    readers = Counter(_reads(fn))
    return sum(_Combiner(block, readers).run() for block in fn.blocks)


def _reads(fn: Function) -> list[Reg]:
    found: list[Reg] = []
    for block in fn.blocks:
        for inst in block.insts:
            if isinstance(inst, Inst):
                found += read(inst)
        assert block.term is not None
        found += [arg for edge in block.term.edges for arg in edge.args if isinstance(arg, Reg)]
        if block.term.cond is not None:
            found.append(block.term.cond)
    return found


def _plain(inst: Inst) -> bool:
    return inst.guard is None and inst.tied_in is None and not isinstance(inst.operands[-1], Symbol)


def _takes(operands: list[Operand]) -> bool:
    """Whether an instruction of three sources takes these."""
    if any(isinstance(x, Imm) and not inline(x) for x in operands):
        return False
    return len({x for x in operands if isinstance(x, Reg) and x.cls[0] in "sm"}) <= 1


class _Combiner:
    """The instructions of one block; `maker` are those that may go into their only reader, `gone` those that did."""

    def __init__(self, block: Block, readers: Counter[Reg]) -> None:
        self.block = block
        self.readers = readers
        self.maker: dict[Reg, Inst] = {}
        self.place = {id(inst): i for i, inst in enumerate(block.insts)}
        self.gone: set[int] = set()

    def run(self) -> int:
        """Trees first, from their roots; then pairs."""
        opcodes = {inst.opcode for inst in self.block.insts if isinstance(inst, Inst)}
        if opcodes.isdisjoint(THREE) and "v_mov_b32_dpp" not in opcodes:
            return 0
        before = sum(isinstance(inst, Inst) for inst in self.block.insts)
        self._find_makers()
        self.block.insts = self._with_trees()
        self._find_makers()
        self.block.insts = self._with_pairs()
        return before - sum(isinstance(inst, Inst) for inst in self.block.insts)

    def _find_makers(self) -> None:
        self.maker = {}
        for inst in self.block.insts:
            if isinstance(inst, Inst) and inst.num_results == 1:
                result = written(inst)[0]
                if self.readers[result] == 1:
                    self.maker[result] = inst

    def _inner(self, operand: Operand) -> Inst | None:
        return self.maker.get(operand) if isinstance(operand, Reg) else None

    # --- trees

    def _with_trees(self) -> list[Inst | Comment]:
        new: dict[int, list[Inst]] = {}
        for inst in reversed(self.block.insts):
            if isinstance(inst, Inst) and inst.opcode in THREE and id(inst) not in self.gone and _plain(inst):
                inner: list[Inst] = []
                leaves = self._leaves(inst, inst.opcode, inner)
                if len(leaves) > 2 and _takes(leaves) and self._are_near(inst, inner, len(leaves)):
                    new[id(inst)] = _tree(inst, leaves)
                    self.gone.update(id(x) for x in inner)
        out: list[Inst | Comment] = []
        for inst in self.block.insts:
            if id(inst) in new:
                out += new[id(inst)]
            elif id(inst) not in self.gone:
                out.append(inst)
        return out

    def _leaves(self, root: Inst, opcode: str, inner: list[Inst]) -> list[Operand]:
        """The operands of a tree of one operation, in order; `inner` are its instructions but the root."""
        found: list[Operand] = []
        todo: list[Operand] = root.operands[:0:-1]
        while todo:
            operand = todo.pop()
            maker = self._inner(operand)
            if maker is not None and maker.opcode == opcode and _plain(maker) and _takes(maker.operands[1:]):
                inner.append(maker)
                todo += maker.operands[:0:-1]
            else:
                found.append(operand)
        return found

    def _are_near(self, root: Inst, inner: list[Inst], leaves: int) -> bool:
        first = min(self.place[id(inst)] for inst in inner)
        return self.place[id(root)] - first <= NEAR * leaves

    # --- pairs

    def _with_pairs(self) -> list[Inst | Comment]:
        gone: set[int] = set()
        out: list[Inst | Comment] = []
        for inst in self.block.insts:
            if isinstance(inst, Inst) and inst.num_results == 1 and _plain(inst):
                found = self._mixed(inst, gone) or self._through_lanes(inst, gone)
                inst = found or inst
                (result,) = written(inst)
                if result in self.maker:  # whose reader asks for what it is now
                    self.maker[result] = inst
            out.append(inst)
        return [inst for inst in out if id(inst) not in gone]

    def _mixed(self, inst: Inst, gone: set[int]) -> Inst | None:
        """``v_add_u32 d, t, y`` with ``v_lshlrev_b32 t, k, x`` as ``v_lshl_add_u32 d, x, k, y``, and the like."""
        if inst.opcode not in ("v_add_u32", "v_or_b32"):
            return None
        for i in (1, 2):
            maker = self._inner(inst.operands[i])
            form = MIXED.get((inst.opcode, maker.opcode)) if maker is not None else None
            if maker is None or form is None or not _plain(maker):
                continue
            sources = [*maker.operands[1:], inst.operands[3 - i]]
            if _takes(sources):
                gone.add(id(maker))
                return Inst(form[0], [inst.operands[0], *(sources[k] for k in form[1])], 1, inst.loc)
        return None

    def _through_lanes(self, inst: Inst, gone: set[int]) -> Inst | None:
        """What moved between lanes, as the first source of an operation."""
        if len(inst.operands) != 3 or f"{inst.opcode}_dpp" not in rows():
            return None
        for i in (1, 2):
            maker = self._inner(inst.operands[i])
            other = inst.operands[3 - i]
            if maker is None or maker.opcode != "v_mov_b32_dpp" or not _moves_every_lane(maker):
                continue
            if (i == 1 or inst.opcode in COMMUTES) and isinstance(other, Reg) and other.cls == "v32":
                gone.add(id(maker))
                operands = [inst.operands[0], maker.operands[1], other, *maker.operands[2:]]
                return Inst(f"{inst.opcode}_dpp", operands, 1, inst.loc, tied_in=[None])
        return None


def _moves_every_lane(inst: Inst) -> bool:
    """Whether a move between lanes keeps nothing of what its result held."""
    return inst.guard is None and inst.tied_in is not None and list(inst.tied_in) == [None]


def _tree(root: Inst, leaves: list[Operand]) -> list[Inst]:
    """The leaves three by three."""
    out: list[Inst] = []
    while len(leaves) > 3:
        level: list[Operand] = []
        for i in range(0, len(leaves), 3):
            group = leaves[i : i + 3]
            if len(group) < 3:
                level += group
                continue
            result = Reg("v32", _hint(root))
            out.append(_of(root, result, group))
            level.append(result)
        leaves = level
    out.append(_of(root, root.operands[0], leaves))
    return out


def _of(root: Inst, result: Operand, sources: list[Operand]) -> Inst:
    opcode = THREE[root.opcode] if len(sources) == 3 else root.opcode
    if len(sources) == 2 and isinstance(sources[1], (Imm, Reg)) and _is_bus(sources[1]):
        sources = sources[::-1]
    return Inst(opcode, [result, *sources], 1, root.loc)


def _is_bus(operand: Operand) -> bool:
    return isinstance(operand, Imm) or (isinstance(operand, Reg) and operand.cls[0] == "s")


def _hint(inst: Inst) -> str:
    result = inst.operands[0]
    return result.hint if isinstance(result, Reg) else ""
