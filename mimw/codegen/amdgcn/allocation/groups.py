"""Values that share registers: atoms at fixed distances from each other form a group, which gets consecutive registers.

Owns the joining of atoms by ties, parameters and copies, with the alignment of tuples as a congruence on the place of a group. Two atoms
may be in one register (a *cell* of the group) where they are never live at once, or hold equal values. Joins that are not possible
stay copies. Says nothing of which registers a group gets.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.allocation.liveness import Liveness
from mimw.codegen.amdgcn.registers import alignment, shape
from mimw.codegen.machine import Inst, Reg, ties, written

WIDEST = {"s": 16, "v": 48, "a": 48}
"""How many registers a group may come to span by joins; values themselves may be as wide as their class."""


class Group:
    """Atoms that are placed together.

    `cells` maps an offset (from the group's place) to the atoms there, `lives` to the union of their ranges. The place p obeys
    ``p % modulus == residue``; `low` and `high` bound the offsets. `cost` is what spilling would cost, infinite where it may not be.
    """

    __slots__ = ("cells", "cost", "file", "high", "lives", "low", "modulus", "place", "residue", "wanted")

    def __init__(self, file: str, atoms: list[int], live: list[int]) -> None:
        self.file = file
        self.cells = {i: [atom] for i, atom in enumerate(atoms)}
        self.lives = {i: live[atom] for i, atom in enumerate(atoms)}
        self.low, self.high = 0, len(atoms) - 1
        self.modulus = alignment(file, len(atoms))
        self.residue = 0
        self.place: int | None = None
        self.wanted: int | None = None
        self.cost = 0.0

    @property
    def width(self) -> int:
        """How many registers the group spans."""
        return self.high - self.low + 1


class Groups:
    """All groups of a function; `group_of` and `offset_of` say for an atom where it went."""

    def __init__(self, live: Liveness) -> None:
        self.live = live
        count = len(live.owner)
        self.offset_of = [0] * count
        groups: list[Group] = []
        self.group_of: list[Group] = []
        i = 0
        while i < count:
            file, size = shape(live.owner[i].cls)
            group = Group(file, list(range(i, i + size)), live.live)
            groups.append(group)
            for k in range(size):
                self.group_of.append(group)
                self.offset_of[i + k] = k
            i += size
        for _, _, a, b in sorted(self._wishes(), key=lambda wish: wish[:2]):
            self.join(a, b)
        self.all = [group for group in groups if group.cells]
        self._wants()

    def _wishes(self) -> list[tuple[int, int, int, int]]:
        """(rank, number, atom, atom): joins that save a copy; those in inner loops first, then ties before parameters before copies."""
        live = self.live
        wishes: list[tuple[int, int, int, int]] = []

        def wish(depth: int, kind: int, a: int, b: int) -> None:
            wishes.append((kind - 4 * depth, len(wishes), a, b))

        for block in live.blocks:
            depth = live.depth[id(block)]
            for inst in block.insts:
                if not isinstance(inst, Inst):
                    continue
                for result, tied in ties(inst):
                    if isinstance(tied, Reg):
                        for a, b in zip(live.of(result), live.of(tied), strict=True):
                            wish(depth, 0, a, b)
                for dst, src in live.copies(inst) or ():
                    if isinstance(src, int):
                        wish(depth, 2, dst, src)
            for edge in live.term(block).edges:
                for param, arg in zip(edge.block.params, edge.args, strict=True):
                    if isinstance(arg, Reg) and param not in live.alias:
                        for a, b in zip(live.of(param), live.of(arg), strict=True):
                            wish(depth, 1, a, b)
        return wishes

    def _wants(self) -> None:
        """What the wave starts with is best left where it is."""
        for block in self.live.blocks[:1]:
            for inst in block.insts:
                if isinstance(inst, Inst) and inst.opcode == "p_entry":
                    source = inst.operands[1]
                    atom = self.live.of(written(inst)[0])[0]
                    text = repr(source).strip("sv[]").partition(":")[0]
                    if text.isdigit():
                        self.group_of[atom].wanted = int(text) - self.offset_of[atom]

    # --- joining

    def join(self, a: int, b: int) -> bool:
        """Put atom b where atom a is, if nothing speaks against it; says whether they are together now."""
        left, right = self.group_of[a], self.group_of[b]
        if left is right:
            return self.offset_of[a] == self.offset_of[b]
        if left.file != right.file:
            return False
        if len(left.cells) < len(right.cells):
            left, right, a, b = right, left, b, a
        shift = self.offset_of[a] - self.offset_of[b]
        congruence = self._congruence(left, right, shift)
        low, high = min(left.low, right.low + shift), max(left.high, right.high + shift)
        if congruence is None or high - low >= max(WIDEST[left.file], left.width, right.width):
            return False
        if any(self._clash(left, offset + shift, right, offset) for offset in right.cells):
            return False
        left.modulus, left.residue = congruence
        left.low, left.high = low, high
        for offset, atoms in right.cells.items():
            at = offset + shift
            left.cells.setdefault(at, []).extend(atoms)
            left.lives[at] = left.lives.get(at, 0) | right.lives[offset]
            for atom in atoms:
                self.group_of[atom] = left
                self.offset_of[atom] = at
        right.cells = {}
        return True

    @staticmethod
    def _congruence(left: Group, right: Group, shift: int) -> tuple[int, int] | None:
        """Where `left` may stand so that both are aligned; None where there is no such place. Moduli are powers of two."""
        residue = (right.residue - shift) % right.modulus
        if left.modulus >= right.modulus:
            return (left.modulus, left.residue) if left.residue % right.modulus == residue else None
        return (right.modulus, residue) if residue % left.modulus == left.residue else None

    def _clash(self, left: Group, at: int, right: Group, offset: int) -> bool:
        """Whether two cells hold different values at some point."""
        if at not in left.lives or not left.lives[at] & right.lives[offset]:
            return False
        ranges, values = self.live.live, self.live.value
        return any(
            ranges[x] & ranges[y] and values[x] != values[y] for x in left.cells[at] for y in right.cells[offset]
        )

    # --- where things are

    def unit(self, atom: int) -> int:
        """The register number, within its file, of an atom whose group has a place."""
        place = self.group_of[atom].place
        assert place is not None
        return place + self.offset_of[atom]
