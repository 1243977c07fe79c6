"""Where the instructions of a block stand while some of them become one: what may move up to its mate, and the new order.

Owns the question whether two instructions can be done at the place of the first of them, with what they need moved up before them, and
the writing of the block once pairs are chosen. Only arithmetic on registers moves; all else keeps its order. Knows no packed instruction.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.amdgcn.isa import resolve
from mimw.codegen.machine import Block, Comment, Inst, Reg, read, written

MOST = 48
"""Instructions that may move up for one pair."""

Item = Inst | Comment


class Order:
    """The instructions of `block`, those that are one already counting as one.

    `at` is by when an instruction (by identity) is done at the latest, `maker` who in the block makes a register, `mate` the other half.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.at: dict[int, int] = {}
        self.maker: dict[Reg, Inst] = {}
        self.mate: dict[int, Inst] = {}
        for i, item in enumerate(block.insts):
            if isinstance(item, Inst):
                self.at[id(item)] = i
                for reg in written(item):
                    self.maker[reg] = item

    def join(self, a: Inst, b: Inst) -> bool:
        """Make one of two instructions, at the place of the first, if what they need can be there and neither needs the other."""
        place = min(self.at[id(a)], self.at[id(b)])
        moved = self._moved_up(a, b, place)
        if moved is None:
            return False
        for inst in (*moved, a, b):
            self.at[id(inst)] = min(self.at[id(inst)], place)
        self.mate[id(a)], self.mate[id(b)] = b, a
        return True

    def _moved_up(self, a: Inst, b: Inst, place: int) -> list[Inst] | None:
        """What has to move before `place`; None where that cannot be."""
        moved: dict[int, Inst] = {}
        todo = self._needs(a) + self._needs(b)
        while todo:
            inst = todo.pop()
            if id(inst) in moved or self.at[id(inst)] < place:
                continue
            if inst is a or inst is b or not _movable(inst) or len(moved) > MOST:
                return None
            moved[id(inst)] = inst
            todo += self._needs(inst)
            mate = self.mate.get(id(inst))
            if mate is not None:
                todo.append(mate)
        return list(moved.values())

    def _needs(self, inst: Inst) -> list[Inst]:
        maker = self.maker
        return [maker[reg] for reg in read(inst) if reg in maker]

    def write(self, joined: Callable[[Inst, Inst], list[Item]]) -> None:
        """Give the block its new order; `joined` makes the instructions that stand for two."""
        out: list[Item] = []
        done: set[int] = set()

        def put(inst: Inst) -> None:
            mate = self.mate.get(id(inst))
            done.add(id(inst))
            if mate is not None:
                done.add(id(mate))
            for needed in self._needs(inst) + (self._needs(mate) if mate is not None else []):
                if id(needed) not in done:
                    put(needed)
            out.extend([inst] if mate is None else joined(inst, mate))

        for item in self.block.insts:
            if isinstance(item, Comment):
                out.append(item)
            elif id(item) not in done:
                put(item)
        self.block.insts = out


def _movable(inst: Inst) -> bool:
    """Whether an instruction only computes registers from registers."""
    if inst.guard is not None or inst.tied_in is not None or not inst.num_results:
        return False
    if inst.opcode in ("p_part", "p_pack"):
        return True
    row = resolve(inst.opcode)
    plain = row.unit in ("valu", "trans") and row.removable and not row.reads
    return plain and not row.implicit_reads and not row.implicit_writes
