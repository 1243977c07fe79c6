"""One element in a thread, as lowerings see it: `Lane`; tiles of them; arithmetic on constants.

A tile is a list of lanes, one an element that a thread holds; a lane may be a part of a packed 32-bit register (two 16-bit or four
8-bit elements), unpacked only when somebody needs it alone.

**Integers and pointers** are ``reg + off``: the constant is carried beside the register and ends in the immediate of an address.
The sum wraps as the type does, so it may always be formed late. A lane without a register is a constant: `off` is its value
(floats: its bits). Makes no instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mimw.codegen.machine import Reg
from mimw.ir.types import U32, Element, PointerType

LANE, WARP, CTA = 0, 1, 2
"""Uniformity: the value differs between lanes; is one in a warp; is one in the CTA."""


class Lane:
    """One element in a thread: ``reg + off`` (integers, pointers), a constant (`reg` None), or part `part` of a packed register."""

    __slots__ = ("dtype", "off", "part", "reg", "uniform")

    def __init__(self, dtype: Element, reg: Reg | None, off: int = 0, part: int = -1, uniform: int = LANE) -> None:
        self.dtype = dtype
        self.reg = reg
        self.off = off
        self.part = part
        self.uniform = uniform

    def key(self) -> tuple[Reg | None, int, int]:
        """Equal keys (and types) are equal values."""
        return (self.reg, self.off, self.part)

    def __repr__(self) -> str:
        return f"Lane({self.dtype}, {self.reg}, {self.off}, {self.part})"


Tile = Sequence[Lane]


class LazyTile(Sequence[Lane]):
    """A tile whose lanes are made where they are used. For i1 tiles: predicates kept alive cost more than the compare."""

    __slots__ = ("make", "size")

    def __init__(self, count: int, make: Callable[[int], Lane]) -> None:
        self.size = count
        self.make = make

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self.make(k) for k in range(*i.indices(self.size))]
        if not 0 <= i < self.size:
            raise IndexError(i)
        return self.make(i)


def wrap_int(value: int, dtype: Element) -> int:
    """An integer as `dtype` holds it (pointers: 64 bits unsigned; i1: 0 or 1)."""
    if isinstance(dtype, PointerType):
        return value & 0xFFFFFFFFFFFFFFFF
    if dtype.kind == "bool":
        return value & 1
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def is_integer(dtype: Element) -> bool:
    """Whether lanes of the type may carry a constant offset: integers of at least 32 bits, and pointers."""
    return isinstance(dtype, PointerType) or (dtype.kind in ("int", "uint") and dtype.bits >= 32)


def bits_of(dtype: Element) -> int:
    """Width of an element in memory."""
    return 64 if isinstance(dtype, PointerType) else dtype.bits


def as_u32(lane: Lane) -> Lane:
    """An i32 lane seen as u32 (same register)."""
    return Lane(U32, lane.reg, wrap_int(lane.off, U32) if lane.reg is None else lane.off, lane.part, lane.uniform)


def _truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


def _shift_right(a: int, b: int, bits: int) -> int:
    return a >> min(b & ((1 << bits) - 1), bits)


FOLD: dict[str, Callable[[int, int, int], int | None]] = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul": lambda a, b, n: a * b,
    "div": lambda a, b, n: _truncated(a, b) if b else None,
    "rem": lambda a, b, n: a - b * _truncated(a, b) if b else None,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
    "and": lambda a, b, n: a & b,
    "or": lambda a, b, n: a | b,
    "xor": lambda a, b, n: a ^ b,
    "shl": lambda a, b, n: a << (b & ((1 << n) - 1)) if (b & ((1 << n) - 1)) < n else 0,
    "shr": _shift_right,
}
"""Integer primitives on constants: (a, b, bits of the type) -> the value before wrapping; None where it is undefined."""

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
