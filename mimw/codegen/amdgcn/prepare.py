"""What an SSA function goes through before allocation: a copy of its own, edges that can hold copies, fused branches.

Owns the rules that the allocator assumes: an edge that brings arguments leaves a block with one successor; what the wave starts with
stands first; a product of matrices is tied to what it adds to; a comparison that decides the branch of its block stands last and leaves
its answer in SCC (such a terminator has two edges and no condition).
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import resolve
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
        block.insts = [_tied(inst, constants) for inst in block.insts]
    _fuse_comparisons(out)
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
    """Registers that hold one 32-bit constant."""
    found: dict[Reg, Imm] = {}
    for block in fn.blocks:
        for inst in block.insts:
            if isinstance(inst, Inst) and inst.opcode == "v_mov_b32" and inst.guard is None and inst.tied_in is None:
                reg, value = inst.operands[:2]
                if isinstance(reg, Reg) and isinstance(value, Imm) and len(inst.operands) == 2:
                    found[reg] = value
    return found


def _tied(inst: Inst | Comment, constants: dict[Reg, Imm]) -> Inst | Comment:
    """Products are tied to what they add to; a tied constant is made in place."""
    if isinstance(inst, Comment):
        return inst
    tied = inst.tied_in
    if tied is None:
        addend = inst.operands[3] if inst.opcode.startswith("v_mfma_") else None
        if not isinstance(addend, Reg):
            return inst
        tied = [addend]
    elif any(isinstance(value, Reg) and value in constants for value in tied):
        tied = [constants.get(value, value) if isinstance(value, Reg) else value for value in tied]
    else:
        return inst
    return Inst(
        inst.opcode, inst.operands, inst.num_results, inst.loc, inst.guard, inst.guard_neg, tied, inst.redefined
    )


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


def _fused_selection(inst: Inst | Comment, compared: dict[Operand, Inst]) -> Inst | Comment:
    """``p_select_b32 d, a, b, m`` as ``p_select_b32.s_cmp_lt_i32 d, a, b, x, y``."""
    if isinstance(inst, Comment) or not inst.opcode.startswith("p_select_"):
        return inst
    comparison = compared.get(inst.operands[3])
    if comparison is None:
        return inst
    opcode = f"{inst.opcode}.s_{comparison.opcode[2:]}"
    return Inst(opcode, [*inst.operands[:3], *comparison.operands[1:]], 1, inst.loc)
