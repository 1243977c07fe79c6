"""Global and shared memory as PTX instructions: loads and stores of up to 16 bytes, in vectors, guarded by a predicate.

What a guarded load leaves where its guard is false is tied to its result: leaving SSA makes the copy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from mimw.codegen.lane import Lane, Tile, bits_of
from mimw.codegen.machine import Imm, Operand, Reg, Vec
from mimw.codegen.ptx.builder_core import Core
from mimw.codegen.ptx.opcodes import access_of
from mimw.ir.types import Element


def load(
    b: Core,
    space: str,
    dtype: Element,
    address: Lane,
    count: int,
    guard: Lane | None,
    other: Tile | None,
    how: str = "",
) -> list[Lane]:
    """`count` neighbours of type `dtype`, packed where they are narrow; `how` is a cache modifier or ``volatile``."""
    if guard is not None and guard.reg is None and not guard.off:
        return list(other) if other is not None else [b.const_zero(dtype)] * count
    cls, words, kind = access_of(dtype, count)
    regs = [b.reg(cls) for _ in range(words)]
    tied: list[Operand] | None = None
    if guard is not None and guard.reg is not None:
        tied = [_vec([_initial(b, cls, other, i, count // words) for i in range(words)])]
    opcode = _opcode("ld", space, how, words, kind)
    b.emit(opcode, [_vec(regs), b.address(space, address)], 1, guard, tied)
    if count == words:
        return [Lane(dtype, reg) for reg in regs]
    per = 32 // bits_of(dtype)
    return [Lane(dtype, regs[i // per], 0, i % per) for i in range(count)]


def _initial(b: Core, cls: str, other: Tile | None, word: int, per: int) -> Reg | Imm:
    """What a guarded load leaves where its guard is false; leaving SSA makes the copy."""
    if other is None:
        return Imm(0, cls if cls in ("f32", "f64") else "int")
    if per > 1:
        return b.pack(other[word * per : word * per + per])
    lane = other[word]
    return Imm(lane.off) if lane.reg is None and cls == "b16" else b.operand(lane)


def store(b: Core, space: str, address: Lane, values: Tile, guard: Lane | None, how: str = "") -> None:
    """The reverse of `load`: neighbours from `address` on."""
    dtype = values[0].dtype
    count = len(values)
    _, words, kind = access_of(dtype, count)
    per = count // words
    if per == 1:
        regs = [b.register(v) for v in values]
    else:
        regs = [b.packed(values[i * per : i * per + per]) for i in range(words)]
    b.emit(_opcode("st", space, how, words, kind), [b.address(space, address), _vec(regs)], 0, guard)


@functools.cache
def _opcode(verb: str, space: str, how: str, words: int, kind: str) -> str:
    """``ld.global.v4.f32`` and the like; stores take integers as bits."""
    parts = [verb]
    if how == "volatile":
        parts.append(how)
    parts.append(space)
    if how and how != "volatile":
        parts.append(how)
    if words > 1:
        parts.append(f"v{words}")
    if verb == "st" and kind[0] in "su":
        kind = "b" + kind[1:]
    return ".".join([*parts, kind])


def _vec(regs: Sequence[Reg | Imm]) -> Operand:
    return regs[0] if len(regs) == 1 else Vec([*regs])
