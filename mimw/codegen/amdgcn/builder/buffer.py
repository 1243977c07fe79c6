"""Buffer resources: the four scalar words that tell a buffer instruction where memory begins and how many bytes of it there are.

Words as in AMD's "MI300 Instruction Set Architecture", chapter "Buffer resource": base (48 bits) with stride 0 (raw: offsets are bytes),
`num_records` in bytes, and the format of dwords, which raw accesses do not look at but which must not be 0. An access whose offset (of each dword,
for wide ones: offset of the vector register plus the immediate) is not below `num_records` is out of range: loads give 0, stores
do nothing. Owns how such words are made; knows nothing of pointers' types and of who accesses what.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder.core import Core
from mimw.codegen.lane import CTA, Lane
from mimw.codegen.machine import Imm, Inst, Operand, Reg
from mimw.ir.types import U32

FORMAT = 4 << 15 | 7 << 12
"""Word 3 on gfx942 and gfx950: data format 32 bits, number format float."""

HALF = 1 << 31
"""`num_records` of a resource without bounds of its own: offsets below it are in range, and `HALF` itself is not, whatever the immediate adds."""

_BASE_HIGH = 0xFFFF


def resource(b: Core, base: Lane, records: Lane | int = HALF, wild: bool = True) -> Reg:
    """The resource (s128) of the `records` bytes (u32) from the uniform address `base` on.

    `wild`: the address may be none of the 48 bits that hardware knows, as nobody need access what it names; its upper bits, where stride and
    swizzle are, then go. Equal resources are made once; what a loop does not change moves out of it with all other invariants, and what
    it does change costs it moves of the base.
    """
    address = b.scalar_register(base)
    tail = _tail(b) if isinstance(records, int) and records == HALF else None
    if tail is not None and not wild:
        return b.reg_of(b.pure("p_pack", U32, [address, tail], CTA, "s128"))
    low, high = b.words(Lane(base.dtype, address, uniform=base.uniform))
    if wild:
        high = b.bit_and(high, _BASE_HIGH)
    words: list[Operand] = [b.scalar(low), b.scalar(high)]
    if tail is not None:
        words.append(tail)
    else:
        words += [Imm(_signed(records)) if isinstance(records, int) else b.scalar(records), Imm(FORMAT)]
    return b.reg_of(b.pure("p_pack", U32, words, CTA, "s128"))


def _tail(b: Core) -> Reg:
    """Words 2 and 3 of resources without bounds, made where the kernel begins: two moves that no loop repeats."""
    if b.resource_tail is None:
        b.resource_tail = Reg("s64", "resource")
        b.entry.insts.append(Inst("p_pack", [b.resource_tail, Imm(_signed(HALF)), Imm(FORMAT)], 1))
    return b.resource_tail


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
