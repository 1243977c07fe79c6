"""What an SSA function goes through before allocation: a copy of its own, edges that can hold copies, fused branches.

Owns the rules that the allocator assumes: an edge that brings arguments leaves a block with one successor; what the wave starts with
stands first; a product of matrices is tied to what it adds to; a comparison that decides the branch of its block stands last and leaves
its answer in SCC (such a terminator has two edges and no condition); a sum of 64 bits shifts by itself.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.atoms import words
from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.machine import (
    Block,
    Comment,
    Edge,
    Function,
    Imm,
    Inst,
    Operand,
    Reg,
    Terminator,
    dead_code,
    reachable_blocks,
)


def removable(inst: Inst) -> bool:
    """Whether nobody notices when an instruction goes whose results are unused."""
    if inst.opcode[:2] == "p_":
        return inst.num_results > 0 and inst.guard is None
    return resolve(inst.opcode).removable


def prepare(fn: Function) -> Function:
    """A copy of `fn` that obeys the rules above; instructions are shared."""
    out = _copied(fn)
    constants = _constants(out)
    for block in out.blocks:
        block.insts = [_with_constants(inst, constants) for inst in block.insts]
        for edge in block.term.edges if block.term is not None else ():
            edge.args = [constants.get(arg, arg) if isinstance(arg, Reg) else arg for arg in edge.args]
    _fuse_comparisons(out)
    _fold_shifts(out)
    dead_code(out, removable)
    _split_edges(out)
    entries_first(out)
    return out


def _copied(fn: Function) -> Function:
    out = Function(fn.name, fn.params)
    out.directives, out.shared, out.pointers = dict(fn.directives), list(fn.shared), dict(fn.pointers)
    twins: dict[int, Block] = {}
    blocks = reachable_blocks(fn)
    for block in blocks:
        twin = twins[id(block)] = Block(block.hint, list(block.params))
        twin.insts, twin.nounroll = list(block.insts), block.nounroll
    for block in blocks:
        term = block.term
        assert term is not None
        edges = [Edge(twins[id(edge.block)], list(edge.args)) for edge in term.edges]
        twins[id(block)].term = Terminator(edges, term.cond, term.uniform, term.loc)
    out.blocks = [twins[id(block)] for block in blocks]
    return out


def _constants(fn: Function) -> dict[Reg, Imm]:
    """Vector registers that hold constants, those of tuples as one long number."""
    found: dict[Reg, Imm] = {}
    for block in fn.blocks:
        for inst in block.insts:
            if isinstance(inst, Inst) and inst.num_results == 1 and inst.guard is None and inst.tied_in is None:
                value = _constant(inst, found)
                result = inst.operands[0]
                if value is not None and isinstance(result, Reg) and shape(result.cls)[0] == "v":
                    found[result] = value
    return found


def _constant(inst: Inst, known: dict[Reg, Imm]) -> Imm | None:
    sources = [known.get(o, o) if isinstance(o, Reg) else o for o in inst.operands[1:]]
    if inst.opcode == "v_mov_b32" and len(sources) == 1 and isinstance(sources[0], Imm):
        return Imm(sources[0].value & 0xFFFFFFFF)
    if inst.opcode != "p_pack":
        return None
    value = at = 0
    for operand, source in zip(inst.operands[1:], sources, strict=True):
        if not isinstance(source, Imm):
            return None
        width = 32 * shape(operand.cls)[1] if isinstance(operand, Reg) else 32
        value |= (source.value & ((1 << width) - 1)) << at
        at += width
    return Imm(value)


def _with_constants(inst: Inst | Comment, known: dict[Reg, Imm]) -> Inst | Comment:
    """Constants in tuples and ties are made in place."""
    if isinstance(inst, Comment):
        return inst
    if inst.opcode == "p_pack":
        operands: list[Operand] = [inst.operands[0]]
        for operand in inst.operands[1:]:
            value = known.get(operand) if isinstance(operand, Reg) else None
            operands += [operand] if value is None else words(value, shape(operand.cls)[1])  # type: ignore[union-attr]
        return Inst("p_pack", operands, 1, inst.loc)
    if inst.opcode.startswith("v_mfma_"):
        return _product(inst, known)
    tied = inst.tied_in
    if tied is None or not any(isinstance(value, Reg) and value in known for value in tied):
        return inst
    tied = [known.get(value, value) if isinstance(value, Reg) else value for value in tied]
    return Inst(
        inst.opcode, inst.operands, inst.num_results, inst.loc, inst.guard, inst.guard_neg, tied, inst.redefined
    )


def _product(inst: Inst, known: dict[Reg, Imm]) -> Inst:
    """A product of matrices adds to its result's registers, or to the inline constant 0."""
    addend = inst.operands[3]
    if not isinstance(addend, Reg):
        return inst
    value = known.get(addend)
    if value is not None and value.value == 0:
        operands = [*inst.operands[:3], Imm(0), *inst.operands[4:]]
        return Inst(inst.opcode, operands, 1, inst.loc, inst.guard)
    return Inst(inst.opcode, inst.operands, 1, inst.loc, inst.guard, tied_in=[addend])


def _split_edges(fn: Function) -> None:
    """Give every edge that brings arguments from a fork a block of its own."""
    blocks: list[Block] = []
    for block in fn.blocks:
        blocks.append(block)
        term = block.term
        assert term is not None
        if len(term.edges) < 2:
            continue
        for edge in term.edges:
            if edge.args:
                between = Block(block.hint)
                between.term = Terminator([Edge(edge.block, edge.args)], None, True, term.loc)
                edge.block, edge.args = between, []
                blocks.append(between)
    fn.blocks = blocks


def entries_first(fn: Function) -> None:
    """What the wave starts with is taken before anything else happens."""
    block = fn.blocks[0]
    entries = [i for i in block.insts if isinstance(i, Inst) and i.opcode == "p_entry"]
    if entries:
        block.insts = [
            *entries,
            *(i for i in block.insts if not isinstance(i, Inst) or i.opcode != "p_entry"),
        ]


def _fuse_comparisons(fn: Function) -> None:
    """Let branches and selections look at SCC: each repeats its comparison right before it, which costs what a look at the mask would.

    The comparison as a mask goes where nothing else needs it.
    """
    for block in fn.blocks:
        compared = {
            inst.operands[0]: inst
            for inst in block.insts
            if isinstance(inst, Inst) and inst.opcode.startswith("p_cmp_")
        }
        if not compared:
            continue
        block.insts = [_fused_selection(inst, compared) for inst in block.insts]
        term = block.term
        assert term is not None
        comparison = compared.get(term.cond) if term.cond is not None else None
        if comparison is not None:
            test = Inst("s_" + comparison.opcode[2:], comparison.operands[1:], 0, comparison.loc)
            block.insts.append(test)
            term.cond = None


def _fold_shifts(fn: Function) -> None:
    """A 64-bit sum shifts what it adds, by 4 at most: so bytes are counted there, and not by a shift of its own."""
    shifts: dict[Operand, Inst] = {}
    for block in fn.blocks:
        for i, inst in enumerate(block.insts):
            if not isinstance(inst, Inst):
                continue
            if inst.opcode == "s_lshl_b64" and isinstance(inst.operands[1], Reg):
                amount = inst.operands[2]
                if isinstance(amount, Imm) and 0 < amount.value <= 4:
                    shifts[inst.operands[0]] = inst
            elif inst.opcode == "v_lshl_add_u64" and isinstance(inst.operands[2], Imm) and not inst.operands[2].value:
                result, x, _, y = inst.operands
                x, y = (y, x) if y in shifts else (x, y)
                if x in shifts:
                    operands = [result, shifts[x].operands[1], shifts[x].operands[2], y]
                    block.insts[i] = Inst("v_lshl_add_u64", operands, 1, inst.loc, inst.guard, tied_in=inst.tied_in)


def _fused_selection(inst: Inst | Comment, compared: dict[Operand, Inst]) -> Inst | Comment:
    """``p_select_b32 d, a, b, m`` as ``p_select_b32.s_cmp_lt_i32 d, a, b, x, y``."""
    if isinstance(inst, Comment) or not inst.opcode.startswith("p_select_"):
        return inst
    comparison = compared.get(inst.operands[3])
    if comparison is None:
        return inst
    opcode = f"{inst.opcode}.s_{comparison.opcode[2:]}"
    return Inst(opcode, [*inst.operands[:3], *comparison.operands[1:]], 1, inst.loc)
