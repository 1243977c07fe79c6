"""Data-parallel primitives: which lane a lane reads, and which lanes take part.

From "AMD Instinct MI300 Instruction Set Architecture", section "Data Parallel Processing (DPP)". Rows are 16 lanes, banks
are 4 lanes of a row. Knows no registers.
"""

from __future__ import annotations

import numpy as np

from mimw.sim.amdgcn.decode import DecodeError, Inst
from mimw.sim.amdgcn.state import LANES, Array

_LANE = np.arange(LANES)
_ROW, _IN_ROW = _LANE // 16, _LANE % 16


class Dpp:
    """`source`: the lane that each lane reads; `valid`: whether that lane exists; `takes_part`: the row and bank masks;
    `zero_fill` (bound_ctrl): a lane without a valid source gets 0, otherwise it is not written."""

    __slots__ = ("source", "takes_part", "valid", "zero_fill")

    def __init__(self, source: Array, valid: Array, takes_part: Array, zero_fill: bool) -> None:
        self.source, self.valid, self.takes_part, self.zero_fill = source, valid, takes_part, zero_fill


def dpp_of(inst: Inst) -> Dpp:
    """The lane control of a ``_dpp`` instruction."""
    source, valid = _control(inst)
    rows, banks = inst.number("row_mask", 15), inst.number("bank_mask", 15)
    takes_part = ((rows >> _ROW) & 1 == 1) & ((banks >> (_IN_ROW // 4)) & 1 == 1)
    return Dpp(np.where(valid, source, 0), valid, takes_part, "bound_ctrl" in inst.mods)


def _control(inst: Inst) -> tuple[Array, Array]:
    always = np.ones(LANES, np.bool_)
    quad = inst.mods.get("quad_perm")
    if isinstance(quad, list):
        return _LANE // 4 * 4 + np.array(quad)[_LANE % 4], always
    for word in inst.operands:
        text = getattr(word, "text", "")
        if text == "row_mirror":
            return _ROW * 16 + 15 - _IN_ROW, always
        if text == "row_half_mirror":
            return _LANE // 8 * 8 + 7 - _LANE % 8, always
    for name, value in inst.mods.items():
        found = _shift(name, value if isinstance(value, int) else 0)
        if found is not None:
            return found
    raise DecodeError(f"no DPP control in `{inst.text}`")


def _shift(name: str, n: int) -> tuple[Array, Array] | None:
    """The controls that carry a number; None for another modifier."""
    always = np.ones(LANES, np.bool_)
    if name == "row_shl":
        return _LANE + n, _IN_ROW + n < 16
    if name == "row_shr":
        return _LANE - n, n <= _IN_ROW
    if name == "row_ror":
        return _ROW * 16 + (_IN_ROW - n) % 16, always
    if name == "row_newbcast":
        return _ROW * 16 + n, always
    if name == "row_bcast":
        return (_ROW * 16 - 1, _ROW > 0) if n == 15 else (np.full(LANES, 31), _ROW > 1)
    if name in ("wave_shl", "wave_rol"):
        return (_LANE + 1) % LANES, always if name == "wave_rol" else _LANE < LANES - 1
    if name in ("wave_shr", "wave_ror"):
        return (_LANE - 1) % LANES, always if name == "wave_ror" else _LANE > 0
    return None
