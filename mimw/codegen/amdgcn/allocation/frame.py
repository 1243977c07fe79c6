"""Where spilled values lie: lanes of vector registers for scalars, scratch memory for vectors.

Owns the layout of both and the instructions that go there (`save`, `restore`), on physical registers. Scratch addresses count in bytes
per lane; the hardware swizzles them. One wave reads and writes its scratch in order, so no wait stands between a save and its restore
but the one for the data.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.flat.expand import physical
from mimw.codegen.amdgcn.registers import FIRST, name
from mimw.codegen.machine import Imm, Inst, Operand, Symbol
from mimw.diagnostics import Loc

LANES = 64
_FAR = 4096
_PIECES = ((4, "dwordx4"), (2, "dwordx2"), (1, "dword"))


class Frame:
    """What a function keeps outside registers: `lane_words` scalars, `scratch_words` 32-bit words a lane."""

    __slots__ = ("lane_words", "scratch_words")

    def __init__(self) -> None:
        self.lane_words = 0
        self.scratch_words = 0

    @property
    def lane_registers(self) -> int:
        """Vector registers whose lanes hold scalars."""
        return -(-self.lane_words // LANES)

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory, bytes a lane, a multiple of 16."""
        return -(-self.scratch_words * 4 // 16) * 16

    def place(self, file: str, words: int) -> int:
        """The first word of a new place for a group of a file."""
        if file == "s":
            base = self.lane_words
            self.lane_words += words
        else:
            base = self.scratch_words
            self.scratch_words += words
        return base


def save(registers: range, word: int, reserved: list[int], loc: Loc | None) -> list[Inst]:
    """Put physical units to the frame at `word`. `reserved` are the vector registers whose lanes hold scalars."""
    if registers.start < FIRST["v"]:
        out: list[Inst] = []
        for i, unit in enumerate(registers):
            row, lane = divmod(word + i, LANES)
            holder = physical(f"v{reserved[row]}")
            out.append(Inst("v_writelane_b32", [holder, physical(f"s{unit}"), Imm(lane)], 1, loc))
        return out
    return _scratch("scratch_store_", registers, word, loc)


def restore(registers: range, word: int, reserved: list[int], loc: Loc | None) -> list[Inst]:
    """Fetch physical units from the frame."""
    if registers.start < FIRST["v"]:
        out: list[Inst] = []
        for i, unit in enumerate(registers):
            row, lane = divmod(word + i, LANES)
            holder = physical(f"v{reserved[row]}")
            out.append(Inst("v_readlane_b32", [physical(f"s{unit}"), holder, Imm(lane)], 1, loc))
        return out
    return _scratch("scratch_load_", registers, word, loc)


def _scratch(opcode: str, registers: range, word: int, loc: Loc | None) -> list[Inst]:
    """Loads or stores of the largest pieces; far offsets have their high part in VCC, which holds nothing between instructions."""
    out: list[Inst] = []
    file = "a" if registers.start >= FIRST["a"] else "v"
    first, count = registers.start - FIRST[file], len(registers)
    done, base = 0, -1
    while done < count:
        size, suffix = next(piece for piece in _PIECES if piece[0] <= count - done)
        high, low = divmod((word + done) * 4, _FAR)
        address: Operand = Symbol("off")
        if high:
            address = physical("vcc_lo")
            if high != base:
                out.append(Inst("s_mov_b32", [address, Imm(high * _FAR)], 1, loc))
                base = high
        data = physical(name(file, first + done, size))
        tail: list[Operand] = [Symbol(f"offset:{low}")] if low else []
        if opcode == "scratch_load_":
            out.append(Inst(opcode + suffix, [data, Symbol("off"), address, *tail], 1, loc))
        else:
            out.append(Inst(opcode + suffix, [Symbol("off"), data, address, *tail], 0, loc))
        done += size
    return out
