"""Exchanges between the lanes of a wave, by the cheapest means: data-parallel primitives, swaps of rows, one lane read, LDS hardware.

Inside rows of 16 lanes nothing goes through LDS (`lane_moves` says which controls). XOR by 16 and 32 is a swap of rows or halves on gfx950,
a swizzle and a permute on gfx942. Steps of scans and reductions, which only some lanes wait for, need neither.
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.amdgcn.builder import lane_moves
from mimw.codegen.amdgcn.builder.core import Core, is_scalar
from mimw.codegen.lane import LANE, WARP, Lane, bits_of
from mimw.codegen.machine import Imm, Operand, Reg, Symbol
from mimw.ir.types import I1, I32, U32


def shuffle_xor(b: Core, lane: Lane, mask: int) -> Lane:
    """The value of the lane whose index differs by `mask`."""
    if lane.reg is None or mask == 0:
        return lane
    return _by_words(b, lane, lambda reg: _xor_word(b, reg, mask))


def partners(b: Core, lane: Lane, mask: int, same: int) -> tuple[Lane, Lane]:
    """The values of a lane and of the one whose index differs by `mask`, either first; bits of `same` make no difference."""
    if lane.reg is None:
        return lane, lane
    if mask in (16, 32) and b.target.has("permlane_swap") and lane.dtype is not I1 and bits_of(lane.dtype) <= 32:
        low, high = _swap(b, b.vector(lane), mask)
        return Lane(lane.dtype, low), Lane(lane.dtype, high)
    if mask < 16:
        return lane, _by_words(b, lane, lambda reg: _moved(b, reg, lane_moves.xor_steps(mask, same & 15)))
    return lane, shuffle_xor(b, lane, mask)


def shuffle_step(b: Core, lane: Lane, clear: int, set_bits: int, guard: tuple[int, int]) -> Lane | None:
    """The value of lane ``own & ~clear | set_bits`` in the lanes that `guard` names; None where it needs an address."""
    if lane.reg is None:
        return lane
    controls = lane_moves.step(clear, set_bits, *guard)
    if controls is not None:
        return _by_words(b, lane, lambda reg: _moved(b, reg, controls))
    only = lane_moves.one_source(clear, set_bits, *guard)
    if only is not None:
        return shuffle_from(b, lane, b.const(I32, only))
    offset = lane_moves.swizzle(clear, set_bits)
    return None if offset is None else _by_words(b, lane, lambda reg: _swizzled(b, reg, offset))


def _moved(b: Core, reg: Reg, controls: tuple[str, ...]) -> Reg:
    """A register through data-parallel primitives; lanes without a source get 0."""
    for control in controls:
        out = b.reg("v32")
        whole = control.startswith(("quad_perm", "row_half", "row_mirror", "row_ror", "row_newbcast"))
        modifiers: list[Operand] = [Symbol(control), Symbol("row_mask:0xf"), Symbol("bank_mask:0xf")]
        b.emit("v_mov_b32_dpp", [out, reg, *modifiers, *([] if whole else [Symbol("bound_ctrl:0")])], 1, tied=[None])
        reg = out
    return reg


def _swizzled(b: Core, reg: Reg, offset: int) -> Reg:
    out = b.reg("v32")
    b.emit("ds_swizzle_b32", [out, reg, Symbol(f"offset:{offset}")], 1)
    return out


def _xor_word(b: Core, reg: Reg, mask: int) -> Reg:
    if b.target.has("permlane_swap"):
        for far in (16, 32):
            if mask & far:
                reg = _swapped(b, reg, far)
        mask &= 15
    if mask < 16:
        return _moved(b, reg, lane_moves.xor_steps(mask)) if mask else reg
    if mask < 32:
        return _swizzled(b, reg, mask << 10 | 0x1F)
    out = b.reg("v32")
    other = b.op("xor", I32, lane_id(b), b.const(I32, mask))
    b.emit("ds_bpermute_b32", [out, b.vector(b.shift(other, 2)), reg], 1)
    return out


def _swap(b: Core, reg: Reg, mask: int) -> tuple[Reg, Reg]:
    """Two copies of a register, the odd rows (or the second half) of the one exchanged with the even (first) of the other."""
    low, high = b.reg("v32"), b.reg("v32")
    b.emit(f"v_permlane{mask}_swap_b32", [low, high], 2, tied=[reg, reg])
    return low, high


def _swapped(b: Core, reg: Reg, mask: int) -> Reg:
    """XOR by 16 or 32: what came from the other half of a swap."""
    low, high = _swap(b, reg, mask)
    halves = [Imm(-1), Imm(0)] if mask == 32 else [Imm(0xFFFF), Imm(0xFFFF)]
    first = b.pure("p_pack", I1, halves, LANE, "mask")
    return b.vector(b.select(first, Lane(U32, high), Lane(U32, low)))


def shuffle_from(b: Core, lane: Lane, source: Lane) -> Lane:
    """The value that lane `source` of the warp holds; in a scalar register where all lanes read the same one."""
    if lane.reg is None:
        return lane
    if source.uniform > LANE:
        place = b.scalar(Lane(U32, source.reg, source.off, uniform=source.uniform))
        place = Imm(place.value & 63) if isinstance(place, Imm) else place
        found = _by_words(b, lane, lambda reg: _read_lane(b, reg, place))
        return Lane(found.dtype, found.reg, found.off, found.part, WARP)
    address = b.vector(b.shift(Lane(U32, source.reg, source.off, uniform=source.uniform), 2))

    def fetch(reg: Reg) -> Reg:
        out = b.reg("v32")
        b.emit("ds_bpermute_b32", [out, address, reg], 1)
        return out

    return _by_words(b, lane, fetch)


def _read_lane(b: Core, reg: Reg, place: Operand) -> Reg:
    out = b.reg("s32")
    b.emit("v_readlane_b32", [out, reg, place], 1)
    return out


def lane_id(b: Core) -> Lane:
    """Index of the lane in its warp, i32."""

    def make() -> Lane:
        low = b.pure("v_mbcnt_lo_u32_b32", U32, [Imm(-1), Imm(0)], 0, "v32")
        return b.pure("v_mbcnt_hi_u32_b32", I32, [Imm(-1), b.reg_of(low)], 0, "v32")

    return b.once(("lane",), make)


def _by_words(b: Core, lane: Lane, move: Callable[[Reg], Reg]) -> Lane:
    """A lane moved word by word."""
    dtype = lane.dtype
    if dtype is I1:
        word = b.select(lane, b.const(U32, 1), b.const(U32, 0))
        return b.compare("ne", _as_word(move(b.vector(word))), b.const(U32, 0))
    if bits_of(dtype) == 64:
        low, high = (_as_word(move(b.vector(x))) for x in b.words(lane))
        return b.wide(low, high, dtype)
    moved = move(b.vector(lane))
    return Lane(dtype, moved, uniform=WARP if is_scalar(moved) else LANE)


def _as_word(reg: Reg) -> Lane:
    return Lane(U32, reg, uniform=WARP if is_scalar(reg) else LANE)
