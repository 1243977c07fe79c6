"""The register files of gfx9: classes of virtual registers, units, alignment, and the names of physical ones.

A *unit* is one 32-bit register of a file: ``s`` (scalar), ``v`` (vector), ``a`` (accumulators). Units of all files and the special
registers have numbers in one space, so that a set of registers is a set of ints or one int bitset. Knows no instruction.
"""

from __future__ import annotations

from functools import cache

from mimw.diagnostics import InternalError

SCALARS = 102
"""Scalar registers that may be named s0..s101 (behind them: VCC and the other special ones)."""

VCC, M0, EXEC, SCC = 106, 124, 126, 128
"""Units of the special registers; VCC and EXEC have two each."""

FIRST = {"s": 0, "v": 256, "a": 512}
"""Number of a file's first unit."""

_SPECIAL = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "scc": (SCC, 1), "flat_scratch": (102, 2),
    "xnack_mask": (104, 2),
}  # fmt: skip


@cache
def shape(cls: str) -> tuple[str, int]:
    """File and number of units of a register class: ``v128`` -> ("v", 4), ``mask`` -> ("s", 2)."""
    if cls == "mask":
        return "s", 2
    bits = cls[1:]
    if cls[:1] not in FIRST or not bits.isdigit() or int(bits) % 32 or not 32 <= int(bits) <= 1024:
        raise InternalError(f"amdgcn has no register class {cls!r}")
    return cls[0], int(bits) // 32


def alignment(file: str, count: int) -> int:
    """What the first unit of a tuple is a multiple of: vector tuples 2 (gfx90a and later), scalar pairs 2, wider ones 4."""
    if count == 1:
        return 1
    return 2 if file != "s" or count == 2 else 4


@cache
def name(file: str, first: int, count: int) -> str:
    """The text of a physical tuple: ``v3``, ``s[4:7]``."""
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


@cache
def unit_name(unit: int) -> str:
    """The text of one unit, ``vcc_lo`` included."""
    if unit >= 512:
        return f"a{unit - 512}"
    if unit >= 256:
        return f"v{unit - 256}"
    if unit in (VCC, VCC + 1):
        return "vcc_lo" if unit == VCC else "vcc_hi"
    return f"s{unit}"


@cache
def units(text: str) -> range:
    """The units that a physical register's name stands for."""
    special = _SPECIAL.get(text)
    if special is not None:
        return range(special[0], special[0] + special[1])
    file, rest = text[:1], text[1:]
    if file in FIRST and rest:
        low, _, high = rest.strip("[]").partition(":")
        if low.isdigit() and (not high or high.isdigit()):
            first = FIRST[file] + int(low)
            return range(first, first + int(high or low) - int(low) + 1)
    raise InternalError(f"amdgcn has no register {text!r}")
