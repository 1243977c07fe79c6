"""Copies between physical registers that happen at once, as instructions.

Owns which move serves between which files, pairs that one 64-bit move does, and cycles. All lanes are copied: EXEC must be all ones.
"""

from __future__ import annotations

from itertools import pairwise

from mimw.codegen.amdgcn.allocation.parallel import schedule
from mimw.codegen.amdgcn.flat.expand import inline, physical, signed
from mimw.codegen.amdgcn.registers import FIRST, VCC, name, unit_name
from mimw.codegen.machine import Imm, Inst, Operand, Reg
from mimw.diagnostics import Loc

Place = int | tuple[str, int]
"""A unit, or ("imm", 32-bit value)."""


class Copies:
    """Writes copies; `spare` is the vector register that may be overwritten, where accumulation registers are in use."""

    def __init__(self, spare: int) -> None:
        self.spare = spare
        self.out: list[Inst] = []

    def emit(self, moves: list[tuple[Place, Place]], loc: Loc | None) -> list[Inst]:
        """The instructions for copies that happen at once."""
        self.out = []
        ordered, cycles = schedule(moves)
        done = 0
        while done < len(ordered):
            done += self._one_or_two(ordered, done, loc)
        for cycle in cycles:
            self._cycle([place for place in cycle if isinstance(place, int)], loc)
        return self.out

    def _one_or_two(self, moves: list[tuple[Place, Place]], i: int, loc: Loc | None) -> int:
        """Emit the i-th move, with the next one where both are halves of aligned pairs; returns how many."""
        dst, src = moves[i]
        assert isinstance(dst, int)
        if i + 1 < len(moves):
            pair = _pair(moves[i], moves[i + 1])
            if pair is not None:
                file = "s" if pair[0] < FIRST["v"] else "v"
                low, source = pair
                operand = Imm(source[1]) if isinstance(source, tuple) else physical(_pair_name(source))
                self._emit(f"{file}_mov_b64", [physical(_pair_name(low)), operand], loc)
                return 2
        self._single(dst, src, loc)
        return 1

    def _single(self, dst: int, src: Place, loc: Loc | None) -> None:
        """One 32-bit register."""
        target = physical(unit_name(dst))
        if isinstance(src, int):
            source: Operand = physical(unit_name(src))
        else:
            source = Imm(signed(src[1]))
        if dst < FIRST["v"]:
            if isinstance(src, int) and src >= FIRST["a"]:
                self._emit("v_accvgpr_read_b32", [self._spare(), source], loc)
                source = self._spare()
            vector = isinstance(src, int) and src >= FIRST["v"]
            self._emit("v_readfirstlane_b32" if vector else "s_mov_b32", [target, source], loc)
        elif dst < FIRST["a"]:
            far = isinstance(src, int) and src >= FIRST["a"]
            self._emit("v_accvgpr_read_b32" if far else "v_mov_b32", [target, source], loc)
        elif isinstance(src, int) and src >= FIRST["a"]:
            self._emit("v_accvgpr_mov_b32", [target, source], loc)
        else:
            if isinstance(source, Imm) and not inline(source.value):
                self._emit("v_mov_b32", [self._spare(), source], loc)
                source = self._spare()
            self._emit("v_accvgpr_write_b32", [target, source], loc)

    def _spare(self) -> Reg:
        """The vector register that is kept for copies of accumulation registers."""
        return physical(f"v{self.spare}")

    def _cycle(self, cycle: list[int], loc: Loc | None) -> None:
        """a <- b <- c <- a. Vectors are swapped; where there is a scalar it goes through VCC, accumulation registers through the spare one."""
        if all(FIRST["v"] <= unit < FIRST["a"] for unit in cycle):
            for a, b in pairwise(cycle):
                self.out.append(Inst("v_swap_b32", [physical(unit_name(a)), physical(unit_name(b))], 2, loc))
            return
        start = cycle.index(min(cycle))
        cycle = cycle[start:] + cycle[:start]
        temp = VCC if cycle[0] < FIRST["v"] else FIRST["v"] + self.spare
        for dst, src in zip([temp, *cycle], [*cycle, temp], strict=True):
            self._single(dst, src, loc)

    def _emit(self, opcode: str, operands: list[Operand], loc: Loc | None) -> None:
        self.out.append(Inst(opcode, operands, 1, loc))


def _pair(first: tuple[Place, Place], second: tuple[Place, Place]) -> tuple[int, Place] | None:
    """(low target, low source) of two moves that one 64-bit move does, or None."""
    (a, b), (c, d) = first, second
    if not isinstance(a, int) or not isinstance(c, int) or a >= FIRST["a"]:
        return None
    if a > c:
        (a, b), (c, d) = second, first
        assert isinstance(a, int) and isinstance(c, int)
    if a % 2 or c != a + 1:
        return None
    if isinstance(b, int) and isinstance(d, int):
        same_file = (a < FIRST["v"]) == (b < FIRST["v"]) and b < FIRST["a"]
        return (a, b) if same_file and b % 2 == 0 and d == b + 1 else None
    if isinstance(b, tuple) and isinstance(d, tuple) and d[1] == 0:
        return (a, b) if b[1] <= 64 or (a < FIRST["v"] and b[1] < 1 << 31) else None
    return None


def _pair_name(low: int) -> str:
    if low == VCC:
        return "vcc"
    file = "s" if low < FIRST["v"] else "v"
    return name(file, low - FIRST[file], 2)
