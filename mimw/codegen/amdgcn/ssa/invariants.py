"""Loop-invariant motion: what a loop computes anew each round, from nothing that changes, is computed once before it.

`ptxas` does this for PTX; here nobody else does. Owns the choice of what moves: arithmetic on registers alone, as long as the values that
the loop keeps alive for it fit in the registers. Constants stay (they are cheap to make where they are needed), and so does what a loop
computes for a branch that is never left. Assumes a prepared function (`prepare`); changes it.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.amdgcn.registers import shape
from mimw.codegen.amdgcn.ssa.pressure import Pressure
from mimw.codegen.machine import Block, Function, Inst, Reg, read, written

SLACK = {"s": 24, "v": 12}
"""Registers of each file that are left for what happens inside the loop."""

MOST = {"s": 48, "v": 32}
"""Registers of each file that a loop may keep alive for what left it: more would cost waves that hide latencies."""

_PSEUDO = ("p_part", "p_add_u64", "p_sub_u64", "p_cmp_", "p_select_", "p_pack")


class Loop:
    """The blocks of a natural loop (by layout index) with its head, and the block before it that only leads there."""

    __slots__ = ("before", "blocks", "head")

    def __init__(self, head: Block, before: Block, blocks: list[Block]) -> None:
        self.head = head
        self.before = before
        self.blocks = blocks


def hoist(fn: Function, sizes: dict[str, int]) -> int:
    """Move invariants out of every loop, innermost first; `sizes` are the registers of each file. Returns how many moved."""
    moved = 0
    for loop in _loops(fn):
        movable = _invariants(loop)
        if movable:
            moved += _move(fn, loop, movable, sizes)
    return moved


def _loops(fn: Function) -> list[Loop]:
    """Natural loops, those with fewest blocks first. One that is entered from several blocks is left alone."""
    order = {id(block): i for i, block in enumerate(fn.blocks)}
    before: dict[int, list[Block]] = {}
    for block in fn.blocks:
        assert block.term is not None
        for edge in block.term.edges:
            before.setdefault(id(edge.block), []).append(block)
    found: list[Loop] = []
    for head in fn.blocks:
        back = [b for b in before.get(id(head), []) if order[id(b)] >= order[id(head)]]
        outside = [b for b in before.get(id(head), []) if order[id(b)] < order[id(head)]]
        if not back or len(outside) != 1 or outside[0].term is None or len(outside[0].term.edges) != 1:
            continue
        inside = {id(head): head}
        todo = list(back)
        while todo:
            block = todo.pop()
            if id(block) not in inside:
                inside[id(block)] = block
                todo += before.get(id(block), [])
        if id(outside[0]) not in inside:
            found.append(Loop(head, outside[0], sorted(inside.values(), key=lambda b: order[id(b)])))
    return sorted(found, key=lambda loop: len(loop.blocks))


def _invariants(loop: Loop) -> list[Inst]:
    """Instructions of the loop that compute from what is made outside it, in order."""
    changing: set[Reg] = set()
    for block in loop.blocks:
        changing.update(block.params)
        for inst in block.insts:
            if isinstance(inst, Inst):
                changing.update(written(inst))
    found: list[Inst] = []
    for block in loop.blocks:
        for inst in block.insts:
            if isinstance(inst, Inst) and _pure(inst) and changing.isdisjoint(read(inst)):
                found.append(inst)
                changing.difference_update(written(inst))
    return found


def _pure(inst: Inst) -> bool:
    """Whether an instruction only computes registers from registers, and is no constant."""
    if not inst.num_results or inst.guard is not None or inst.tied_in is not None or not read(inst):
        return False
    if inst.opcode[:2] == "p_":
        return inst.opcode.startswith(_PSEUDO)
    row = resolve(inst.opcode)
    plain = row.unit in ("valu", "trans", "salu") and row.removable and not row.reads
    return plain and not row.implicit_reads and not row.implicit_writes - {"scc"}


def _move(fn: Function, loop: Loop, movable: list[Inst], sizes: dict[str, int]) -> int:
    """Move what fits: chains from their end, since only what the loop still reads stays alive in it."""
    room = _room(fn, loop, sizes)
    users = _users(loop)
    makers = {reg: inst for inst in movable for reg in written(inst)}
    moving = {id(inst) for inst in movable}
    chosen: dict[int, Inst] = {}
    for inst in reversed(movable):
        if id(inst) in chosen or all(users.get(reg, moving) <= moving for reg in written(inst)):
            continue
        wider = chosen | _chain(inst, makers)
        need = _need(wider, users)
        if all(need[file] <= room[file] for file in need):
            chosen = wider
    if not chosen:
        return 0
    for block in loop.blocks:
        block.insts = [inst for inst in block.insts if id(inst) not in chosen]
    loop.before.insts += [inst for inst in movable if id(inst) in chosen]
    return len(chosen)


def _chain(inst: Inst, makers: dict[Reg, Inst]) -> dict[int, Inst]:
    """An instruction with all that it needs from inside the loop."""
    chain: dict[int, Inst] = {}
    todo = [inst]
    while todo:
        found = todo.pop()
        if id(found) not in chain:
            chain[id(found)] = found
            todo += [makers[reg] for reg in read(found) if reg in makers]
    return chain


def _users(loop: Loop) -> dict[Reg, set[int]]:
    """By whom each register is read in the loop: instructions by identity, ends of blocks as 0."""
    users: dict[Reg, set[int]] = {}
    for block in loop.blocks:
        for inst in block.insts:
            if isinstance(inst, Inst):
                for reg in read(inst):
                    users.setdefault(reg, set()).add(id(inst))
        term = block.term
        assert term is not None
        ends = [arg for edge in term.edges for arg in edge.args if isinstance(arg, Reg)]
        for reg in ends + ([term.cond] if term.cond is not None else []):
            users.setdefault(reg, set()).add(0)
    return users


def _need(moved: dict[int, Inst], users: dict[Reg, set[int]]) -> dict[str, int]:
    """Registers that the results of `moved` take throughout the loop: those that something staying there reads."""
    need = {"s": 0, "v": 0}
    for inst in moved.values():
        for reg in written(inst):
            file, count = shape(reg.cls)
            if file in need and not users.get(reg, set()) <= moved.keys():
                need[file] += count
    return need


def _room(fn: Function, loop: Loop, sizes: dict[str, int]) -> dict[str, int]:
    """Registers of each file that a loop may take for invariants."""
    used = Pressure(fn).most(loop.blocks)
    return {file: min(MOST[file], sizes[file] - SLACK[file] - used[file]) for file in SLACK}
