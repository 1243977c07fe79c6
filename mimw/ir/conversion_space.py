"""Coordinates of a conversion's scratch: the live bits of every dimension, the last one lowest; odd digits that both sides share apart.

Pure functions of the two layouts. What order the scratch puts coordinates in is `conversion_shared`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.conversion_problem import Problem
from mimw.ir.layout import Layout, Vector


class View:
    """One side's columns in scratch coordinates."""

    __slots__ = ("digits", "lane", "layout", "needed", "reg", "reg_bits", "vector_reg", "warp")

    def __init__(self, space: ScratchSpace, layout: Layout) -> None:
        self.layout = layout
        self.reg = [space.pack(v) for v in layout.reg]
        self.lane = [space.pack(v) for v in layout.lane]
        self.warp = [space.pack(v) for v in layout.warp]
        self.reg_bits: list[int] = []  # scratch coordinate bits of each register
        self.digits: list[int] = []  # linear digit number of each register, -1: a hole whatever the thread
        self.needed: list[int] = []  # registers that hold elements in some thread
        dead = space.dead_of(layout)
        # A register bit that also leads into holes cannot be part of a vector: the other half would be no element.
        self.vector_reg = [
            0 if any(x & m for x, m in zip(v, dead, strict=True)) else packed
            for v, packed in zip(layout.reg, self.reg, strict=True)
        ]
        low = len(layout.reg)
        table = f2.span_table(self.reg)
        threads = [0] * layout.rank
        for vector in (*layout.lane, *layout.warp):
            threads = [x | y for x, y in zip(threads, vector, strict=True)]
        fixed_dead = tuple(x & ~y for x, y in zip(dead, threads, strict=True))
        exact = layout.shape_padded == space.problem.shape
        for reg, coordinate in enumerate(layout.reg_coords()):
            bits, digit = space.locate(coordinate) if reg >> low else (table[reg], 0)
            if not exact and _always_hole(coordinate, layout, fixed_dead, space.problem.shape):
                digit = -1
            else:
                self.needed.append(reg)
            self.reg_bits.append(bits)
            self.digits.append(digit)


class ScratchSpace:
    """The coordinates of a scratch for `problem`: per dimension `bits` of it and `counts` of digits that both sides share; `src` and `dst` in them."""

    __slots__ = ("bits", "counts", "dst", "problem", "shifts", "src", "total")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        src, dst = problem.src, problem.dst
        self.bits: list[int] = []
        self.counts: list[int] = []
        for size, ours, theirs in zip(problem.shape, src.dims, dst.dims, strict=True):
            shared = ours == theirs and ours[1] > 1
            self.bits.append(ours[0] if shared else (size - 1).bit_length())
            self.counts.append(-(-size >> ours[0]) if shared else 1)
        self.shifts: list[int] = []
        self.total = 0
        for width in reversed(self.bits):
            self.shifts.append(self.total)
            self.total += width
        self.shifts.reverse()
        self.src = View(self, src)
        self.dst = View(self, dst)

    def pack(self, vector: Sequence[int]) -> int:
        """The bits of a coordinate in one integer."""
        packed = 0
        for component, shift, width in zip(vector, self.shifts, self.bits, strict=True):
            packed |= (component & ((1 << width) - 1)) << shift
        return packed

    def locate(self, coordinate: Vector) -> tuple[int, int]:
        """(packed bits, linear digit) of a register's coordinates; digits past the scratch's count as holes
        elsewhere."""
        digit = 0
        for x, width, count in zip(coordinate, self.bits, self.counts, strict=True):
            digit = digit * count + (min(x >> width, count - 1) if count > 1 else 0)
        return self.pack(coordinate), digit

    def dead_of(self, layout: Layout) -> Vector:
        """Per dimension the coordinate bits that are set in holes only (below the digits)."""
        return tuple(
            ((1 << a) - 1) & ~((1 << (size - 1).bit_length()) - 1)
            for (a, _), size in zip(layout.dims, self.problem.shape, strict=True)
        )


def _always_hole(coordinate: Vector, layout: Layout, fixed_dead: Vector, shape: Vector) -> bool:
    """True when the register holds holes in every thread (`fixed_dead`: dead bits that no thread can flip)."""
    extents = zip(coordinate, layout.dims, fixed_dead, shape, strict=True)
    return any(x >> a << a >= size or x & dead for x, (a, _), dead, size in extents)
