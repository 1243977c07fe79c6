"""A conversion between two layouts as one F2 matrix.

The odd digits of both sides are written as extra *pseudo register bits* (their binary digits), so that the two
layouts meet on plain binary coordinates whatever their paddings. Pseudo registers whose digit is too large do not
exist (-1). `Transfer` is the matrix from destination hardware (pseudo register, lane, warp) to the source hardware
that holds the same element.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.layout import Layout


class Problem:
    """Both layouts on common binary coordinates, last dimension lowest."""

    __slots__ = (
        "dst",
        "dst_columns",
        "dst_extended",
        "dst_reg_bits",
        "lanes",
        "live",
        "shape",
        "src",
        "src_columns",
        "src_reg_bits",
        "src_registers",
        "warps",
        "widths",
    )

    def __init__(self, src: Layout, dst: Layout, shape: Sequence[int]) -> None:
        """ValueError unless both are layouts of this shape over the same threads and CTAs."""
        if src.rank != dst.rank or src.rank != len(shape):
            raise ValueError(f"ranks differ: {src} and {dst} for shape {tuple(shape)}")
        if (len(src.lane), len(src.warp)) != (len(dst.lane), len(dst.warp)):
            raise ValueError(f"{src} and {dst} are over different numbers of lanes or warps")
        for layout in (src, dst):
            if any(size > padded for size, padded in zip(shape, layout.shape_padded, strict=True)):
                raise ValueError(f"{layout} is too small for shape {tuple(shape)}")
        self.src = src
        self.dst = dst
        self.shape = tuple(shape)
        self.lanes = len(src.lane)
        self.warps = len(src.warp)
        self.widths = tuple(
            (max(p, q) - 1).bit_length() for p, q in zip(src.shape_padded, dst.shape_padded, strict=True)
        )
        shifts: list[int] = []
        total = 0
        for width in reversed(self.widths):
            shifts.append(total)
            total += width
        shifts.reverse()
        self.src_columns, self.src_reg_bits = _columns(src, shifts)
        self.dst_columns, self.dst_reg_bits = _columns(dst, shifts)
        self.live = sum(((1 << (size - 1).bit_length()) - 1) << s for size, s in zip(shape, shifts, strict=True))
        self.live &= ~_cta_bits(src, dst, self.src_columns + self.dst_columns, shifts)
        extended = _extended_registers(src)
        self.src_registers = [-1] * (1 << self.src_reg_bits)
        for reg, ext in enumerate(extended):
            self.src_registers[ext] = reg
        self.dst_extended = _extended_registers(dst)

    def transfer(self) -> Transfer:
        """The matrix of sources, each as near to the destination as there is: same thread, else same warp, else
        anywhere."""
        n, lanes = self.src_reg_bits, self.lanes
        columns = self.src_columns
        own = f2.Span(columns[:n])
        warp = own.copy()
        for column in columns[n : n + lanes]:
            warp.add(column)
        everywhere = warp.copy()
        for column in columns[n + lanes :]:
            everywhere.add(column)
        reachable = 0
        for column in columns:
            reachable |= column
        free = self._free_columns()
        result: list[int] = []
        for index, column in enumerate(self.dst_columns):
            thread = index - self.dst_reg_bits
            near = 1 << n + thread if thread >= 0 else 0
            if free >> index & 1:
                result.append(near)
                continue
            wanted = column & (self.live | reachable)
            offset = wanted ^ columns[n + thread] if thread >= 0 else wanted
            for span in (own, warp, everywhere):
                solution = span.solve(offset)
                if solution is not None:
                    result.append(solution ^ near)
                    break
            else:
                raise ValueError(f"{self.src} does not hold every element of {self.dst} for shape {self.shape}")
        return Transfer(self, result)

    def _free_columns(self) -> int:
        """Destination hardware bits that, when set, make every element a hole: their source is free.

        True of a set of columns that each own a dead coordinate bit; otherwise none is free (their exact source is
        taken).
        """
        dead = [column & ~self.live for column in self.dst_columns]
        seen = twice = 0
        for value in dead:
            twice |= seen & value
            seen |= value
        free = 0
        for index, value in enumerate(dead):
            if value & ~twice:
                free |= 1 << index
            elif value:
                return 0
        return free


class Transfer:
    """columns[i]: the source hardware (pseudo register bits, then lane bits, then warp bits) of destination
    hardware bit i."""

    __slots__ = ("columns", "problem")

    def __init__(self, problem: Problem, columns: list[int]) -> None:
        self.problem = problem
        self.columns = columns

    def parts(self, index: int) -> tuple[int, int, int]:
        """(pseudo register, lane, warp) that destination hardware bit `index` maps to."""
        problem = self.problem
        column = self.columns[index]
        n = problem.src_reg_bits
        return column & ((1 << n) - 1), column >> n & ((1 << problem.lanes) - 1), column >> n + problem.lanes

    def keeps_threads(self) -> bool:
        """Every destination register comes from one source register of the same thread: a rename."""
        n, m = self.problem.src_reg_bits, self.problem.dst_reg_bits
        return all(column >> n == 0 for column in self.columns[:m]) and all(
            column == 1 << n + thread for thread, column in enumerate(self.columns[m:])
        )

    def keeps_warps(self) -> bool:
        """Every element comes from the warp that wants it."""
        problem = self.problem
        n, m = problem.src_reg_bits + problem.lanes, problem.dst_reg_bits + problem.lanes
        return all(column >> n == 0 for column in self.columns[:m]) and all(
            column >> n == 1 << warp for warp, column in enumerate(self.columns[m:])
        )

    def register_table(self) -> list[int]:
        """Source pseudo register of every destination pseudo register, in lane 0 of warp 0."""
        low = (1 << self.problem.src_reg_bits) - 1
        return f2.span_table([column & low for column in self.columns[: self.problem.dst_reg_bits]])


def _columns(layout: Layout, shifts: Sequence[int]) -> tuple[list[int], int]:
    """(packed columns: register bits, digit bits last dimension first, lane bits, warp bits; number of pseudo
    register bits)."""

    def pack(vector: Sequence[int]) -> int:
        packed = 0
        for component, shift in zip(vector, shifts, strict=True):
            packed |= component << shift
        return packed

    columns = [pack(v) for v in layout.reg]
    for (a, o), shift in reversed(list(zip(layout.dims, shifts, strict=True))):
        columns += [1 << shift + a + bit for bit in range((o - 1).bit_length())]
    count = len(columns)
    columns += [pack(v) for v in layout.lane]
    columns += [pack(v) for v in layout.warp]
    return columns, count


def _extended_registers(layout: Layout) -> list[int]:
    """Pseudo register index of every register."""
    low = 1 << len(layout.reg)
    offsets: list[int] = []
    position = len(layout.reg)
    for _, o in reversed(layout.dims):
        offsets.append(position)
        position += (o - 1).bit_length()
    offsets.reverse()
    digits = [0]
    for (_, o), position in zip(layout.dims, offsets, strict=True):
        digits = [head | q << position for head in digits for q in range(o)]
    return [digit | bits for digit in digits for bits in range(low)]


def _cta_bits(src: Layout, dst: Layout, columns: Sequence[int], shifts: Sequence[int]) -> int:
    """Coordinate bits that the CTA decides, the same on both sides and in nothing else: they take no part in a
    conversion."""
    if src.cta != dst.cta:
        raise ValueError(f"{src} and {dst} are spread differently over CTAs")
    mask = 0
    for vector in src.cta:
        for component, shift in zip(vector, shifts, strict=True):
            mask |= component << shift
    if any(column & mask for column in columns):
        raise ValueError(f"{src} or {dst} shares coordinate bits between the CTA and its threads")
    return mask
