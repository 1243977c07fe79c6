"""Copies from global memory straight into LDS (``global_load_lds_*``, ``buffer_load_* lds``), which need no registers and count on ``vmcnt``.

One instruction copies 4 bytes a lane (16 on gfx950, too): lane l's go to ``M0 + l * size``. The immediate offset would be added on both
sides, so there is none. Lanes that EXEC leaves out write nothing; lanes that are out of a buffer's range write zeros. Which tiles can be copied
so is said by `ir.lane_runs`.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.builder.core import is_scalar, signed32
from mimw.codegen.amdgcn.builder.memory import in_range_where, modifiers
from mimw.codegen.lane import CTA, LANE, Lane, wrap_int
from mimw.codegen.lowering import Shared
from mimw.codegen.machine import Imm, Operand, Symbol
from mimw.ir.lane_runs import RunOffsets, offsets_of
from mimw.ir.layout import Layout, SharedLayout
from mimw.ir.types import I32, I64, U32, U64
from mimw.target import Target

_SIZES = {4: "dword", 16: "dwordx4"}


class Runs:
    """A tile's way into a buffer: `size` bytes a lane and instruction, `width` registers of the layout each."""

    __slots__ = ("_b", "_offsets", "_warp_part", "size", "width")

    def __init__(self, b: AmdgcnBuilder, size: int, offsets: RunOffsets, place: Shared) -> None:
        self.size = size
        self.width = offsets.width
        self._b = b
        self._offsets = offsets
        self._warp_part = b.add(place.address, _warp_part(b, offsets.warps))

    def base(self, r: int) -> Lane:
        """Where in LDS lane 0's register r goes: one in the wave."""
        return self._b.plus(self._warp_part, self._offsets.registers[r // self.width])

    def copy(self, r: int, pointer: Lane, guard: Lane | None, how: str) -> None:
        """Start copying registers ``r .. r + width - 1``, whose first lies at `pointer` in global memory."""
        self._emit("global", [*_address(self._b, pointer)], r, guard, modifiers(how))

    def copy_or_zero(self, r: int, pointer: Lane, wanted: Lane, guard: Lane | None, how: str) -> bool:
        """As `copy`, with zeros in lanes where `wanted` is false; False, and nothing done, where the pointer is not known by its parts."""
        b = self._b
        found = in_range_where(b, pointer, self.size, wanted)
        if found is None:
            return False
        place, words, off = found
        rest: Operand = b.scalar_register(b.const(U32, off)) if off else Imm(0)
        self._emit("buffer", [place, words, rest], r, guard, [Symbol("offen"), *modifiers(how)])
        return True

    def _emit(self, how: str, address: list[Operand], r: int, guard: Lane | None, more: list[Operand]) -> None:
        b = self._b
        place = self.base(r)
        start = b.scalar(place if place.reg is None else b.base(place))
        step = Imm(signed32(place.off) if place.reg is not None else 0)
        b.emit(f"p_{how}_load_lds_{_SIZES[self.size]}", [*address, start, step, *more], 0, guard)

    def write(self, r: int, values: list[Lane], guard: Lane | None) -> None:
        """Store the same registers from lanes: what a copy does not bring."""
        b = self._b
        mine = b.shift(b.bit_and(Lane(U32, b.thread_id().reg, uniform=LANE), 63), self.size.bit_length() - 1)
        b.store("shared", b.add(self.base(r), mine), values, guard)


def runs_of(
    b: AmdgcnBuilder, target: Target, layout: Layout, shared: SharedLayout, elem_bytes: int, place: Shared, most: int
) -> Runs | None:
    """How a tile in `layout` is copied to a buffer, whose elements' addresses allow accesses of `most` bytes; None where it can't be."""
    for size in target.lane_copies:
        if size > most or place.align % size:
            continue
        offsets = offsets_of(layout, shared, elem_bytes, size, place.mix)
        if offsets is not None:
            return Runs(b, size, offsets, place)
    return None


def _warp_part(b: AmdgcnBuilder, bases: list[int]) -> Lane:
    """The sum of bases over the set bits of the warp's number, in scalar registers."""
    total = b.const(U32, 0)
    bit = 0
    while bit < len(bases):
        end = bit + 1
        while bases[bit] and end < len(bases) and bases[end] == 2 * bases[end - 1]:
            end += 1
        if bases[bit]:
            warp = b.uniform_warp_id()
            warp = Lane(U32, b.register(warp), uniform=warp.uniform)
            if end < len(bases):
                warp = b.bit_and(warp, (1 << end) - 1)
            total = b.add(total, b.times(b.shift(warp, -bit), bases[bit]))
        bit = end
    return total


def _address(b: AmdgcnBuilder, lane: Lane) -> tuple[Operand, Operand]:
    """(vector address, scalar base or ``off``) of a pointer, with nothing left for an immediate."""
    split = b.splits.get(lane.reg) if lane.reg is not None else None
    if split is not None:
        base = Lane(U64, split[0], wrap_int(lane.off, I64), uniform=CTA)
        return split[1], b.register(base)
    reg = b.register(lane)
    if is_scalar(reg):
        return b.vector(b.const(I32, 0)), reg
    return reg, Symbol("off")


def end_copy(b: AmdgcnBuilder) -> int:
    """The copies since the last end of a group or copy, by a number that `wait_copy` takes."""
    number = b.next_copy()
    b.emit("p_end_copy", [Imm(number)])
    return number


def wait_copy(b: AmdgcnBuilder, number: int) -> None:
    """Wait until what `end_copy` numbered has arrived."""
    b.emit("p_wait_copy", [Imm(number)])


def end_group(b: AmdgcnBuilder) -> None:
    """The copies since the last end are a group."""
    b.emit("p_commit_group", [])


def wait_groups(b: AmdgcnBuilder, pending: int) -> None:
    """Wait until all groups but the latest `pending` have arrived."""
    b.emit("p_wait_group", [Imm(pending)])


__all__ = ["Runs", "end_copy", "end_group", "runs_of", "wait_copy", "wait_groups"]
