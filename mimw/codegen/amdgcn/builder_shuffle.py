"""Exchanges between the lanes of a wave: data-parallel primitives inside rows of 16 lanes, swizzles in halves, permutes through LDS hardware.

Rows of 16: `quad_perm` and mirrors are free of LDS. XOR by 16 is a swizzle, XOR by 32 a permute (on gfx950 a swap of halves).
"""

from __future__ import annotations

from collections.abc import Callable

from mimw.codegen.amdgcn.builder_core import Core
from mimw.codegen.lane import Lane, bits_of
from mimw.codegen.machine import Imm, Operand, Reg, Symbol
from mimw.ir.types import I1, I32, U32

_ROW: dict[int, str] = {
    1: "quad_perm:[1,0,3,2]", 2: "quad_perm:[2,3,0,1]", 3: "quad_perm:[3,2,1,0]", 7: "row_half_mirror", 8: "row_ror:8", 15: "row_mirror",
}  # fmt: skip
"""lane XOR -> control of the data-parallel primitive that does it."""


def _steps(mask: int) -> tuple[int, ...]:
    """The XORs of one instruction each whose sum is a mask below 16."""
    if mask in _ROW:
        return (mask,)
    return next((a, a ^ mask) for a in _ROW if a ^ mask in _ROW)


def shuffle_xor(b: Core, lane: Lane, mask: int) -> Lane:
    """The value of the lane whose index differs by `mask`."""
    if lane.reg is None or mask == 0:
        return lane
    return _by_words(b, lane, lambda reg: _xor_word(b, reg, mask))


def _xor_word(b: Core, reg: Reg, mask: int) -> Reg:
    if mask < 16:
        for step in _steps(mask):
            out = b.reg("v32")
            control: list[Operand] = [Symbol(_ROW[step]), Symbol("row_mask:0xf"), Symbol("bank_mask:0xf")]
            b.emit("v_mov_b32_dpp", [out, reg, *control], 1, tied=[None])
            reg = out
        return reg
    out = b.reg("v32")
    if mask < 32:
        b.emit("ds_swizzle_b32", [out, reg, Symbol(f"offset:{mask << 10 | 0x1F}")], 1)
        return out
    other = b.op("xor", I32, lane_id(b), b.const(I32, mask))
    b.emit("ds_bpermute_b32", [out, b.vector(b.shift(other, 2)), reg], 1)
    return out


def shuffle_from(b: Core, lane: Lane, source: Lane) -> Lane:
    """The value that lane `source` of the warp holds."""
    if lane.reg is None:
        return lane
    place = b.vector(b.shift(Lane(U32, source.reg, source.off, uniform=source.uniform), 2))

    def fetch(reg: Reg) -> Reg:
        out = b.reg("v32")
        b.emit("ds_bpermute_b32", [out, place, reg], 1)
        return out

    return _by_words(b, lane, fetch)


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
        moved = Lane(U32, move(b.vector(word)))
        return b.compare("ne", moved, b.const(U32, 0))
    if bits_of(dtype) == 64:
        halves = [Lane(U32, move(b.vector(x))) for x in b.words(lane)]
        return b.wide(halves[0], halves[1], dtype)
    return Lane(dtype, move(b.vector(lane)))
