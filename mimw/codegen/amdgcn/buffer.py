"""Buffer resources: the four scalar words that tell a buffer instruction where memory begins and how many bytes of it there are.

Words as in AMD's "MI300 Instruction Set Architecture", chapter "Buffer resource": base (48 bits) with stride 0 (raw: offsets are bytes),
`num_records` in bytes, and the format of dwords, which raw accesses do not look at but which must not be 0. An access whose offset (of each dword,
for wide ones: offset of the vector register plus the immediate) is not below `num_records` is out of range: loads give 0, stores
do nothing. Owns how such words are made; knows nothing of pointers' types and of who accesses what.
"""

from __future__ import annotations

from mimw.codegen.amdgcn.builder_core import Core
from mimw.codegen.lane import CTA, Lane
from mimw.codegen.machine import Imm, Operand, Reg
from mimw.ir.types import U32

FORMAT = 4 << 15 | 7 << 12
"""Word 3 on gfx942 and gfx950: data format 32 bits, number format float."""

HALF = 1 << 31
"""`num_records` of a resource without bounds of its own: offsets below it are in range, and `HALF` itself is not, whatever the immediate adds."""

_BASE_HIGH = 0xFFFF


def resource(b: Core, base: Lane, records: Lane | int = HALF) -> Reg:
    """The resource (s128) of the `records` bytes (u32) from the uniform address `base` on.

    Equal ones are made once; what a loop does not change moves out of it with all other invariants.
    """
    low, high = b.words(Lane(base.dtype, b.scalar_register(base), uniform=base.uniform))
    high = b.bit_and(high, _BASE_HIGH)  # above are stride and swizzle, which stay 0 even for an address nobody accesses
    size: Operand = Imm(_signed(records)) if isinstance(records, int) else b.scalar(records)
    return b.reg_of(b.pure("p_pack", U32, [b.scalar(low), b.scalar(high), size, Imm(FORMAT)], CTA, "s128"))


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
