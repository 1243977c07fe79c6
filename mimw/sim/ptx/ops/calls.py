# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Calls into the driver's library: vprintf.

The format is C's as CUDA takes it (B.33 of the programming guide): flags, width, precision, the sizes h, hh, l, ll. Arguments lie in
memory at their natural alignment, at least 4 bytes each; floats are doubles. Lanes print in order, each its whole text at once.
"""

from __future__ import annotations

import math
import re

import numpy as np

from mimw.codegen.machine import Inst, Symbol
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d*)(?:\.(\d+))?(hh|h|ll|l|z|j|t)?(.)", re.S)
_WIDE = frozenset(("ll", "l", "z", "j", "t"))
_LONGEST = 1 << 16


@executes("call")
def _call(s: Sim, inst: Inst, mods: list[str]) -> Step:
    result, callee, text, values = inst.operands
    if not isinstance(callee, Symbol) or callee.name != "vprintf":
        raise not_yet(f"call of {callee!r}")
    text_of, values_of = s.m.rd(text, "u64"), s.m.rd(values, "u64")
    put = s.m.wr(result, "b32")

    def run(x: Ctx) -> None:
        texts, active = x.full(text_of(x)), x.active()
        at = x.full(values_of(x)).astype(np.int64)
        written = np.zeros((x.n, 32), np.uint32)
        lines: dict[tuple[int, int], str] = {}
        for address in np.unique(texts[active]):
            mask = active & (texts == address)
            rows = mask.any(axis=1)
            pieces, count = _Formatter(s, Ctx(x.warps[rows], mask[rows]), at[rows]).run(_string(s, int(address)))
            written[mask] = count
            places = [(int(row), int(lane)) for row, lane in np.argwhere(mask)]
            lines.update(zip(places, pieces, strict=True))
        out = "".join(lines[lane] for lane in sorted(lines))
        s.output.append(out)
        print(out, end="")
        put(x, written)

    return run


def _string(s: Sim, address: int) -> str:
    """The text up to its NUL at a generic address of the global space."""
    region = s.world.find(address)
    if region is None:
        raise SimulationError(f"vprintf: no string lies at {address:#x}")
    data = bytes(region.data[address - region.base :][:_LONGEST])
    end = data.find(b"\0")
    if end < 0:
        raise SimulationError(f"vprintf: the string at {address:#x} has no end")
    return data[:end].decode(errors="replace")


class _Formatter:
    """One format applied to the arguments of the lanes of a group; `at` is each lane's place in them, (n, 32)."""

    def __init__(self, s: Sim, x: Ctx, at: Array) -> None:
        self.s = s
        self.x = x
        self.start = at
        self.at = at.copy()

    def run(self, text: str) -> tuple[list[str], int]:
        """(the text of each executing lane, number of arguments)."""
        lanes = int(self.x.active().sum())
        out = [""] * lanes
        done, count = 0, 0
        while (found := _CONVERSION.search(text, done)) is not None:
            literal = text[done : found.start()]
            out = [line + literal for line in out]
            done = found.end()
            if found[5] == "%":
                out = [line + "%" for line in out]
                continue
            shown = self._shown(found)
            out = [line + part for line, part in zip(out, shown, strict=True)]
            count += 1
        return [line + text[done:] for line in out], count

    def _take(self, width: int) -> Array:
        """The next argument of every lane as unsigned integers, in lane order."""
        self.at = self.start + (self.at - self.start + width - 1) // width * width
        access = self.s.mem.locate(self.x, "generic", self.at, width, False)
        value = self.s.mem.load(self.x, access, width, 1)[0]
        self.at = self.at + width
        return value[self.x.active()]

    def _shown(self, found: re.Match[str]) -> list[str]:
        flags, width, precision, size, kind = found.groups()
        if width == "*":
            raise not_yet("vprintf: a width that is an argument")
        if kind in "di":
            raw = self._take(8 if size in _WIDE else 4)
            bits = {"h": 16, "hh": 8}.get(size or "", 64 if size in _WIDE else 32)
            values = [_signed(int(v), bits) for v in raw]
        elif kind in "uxXo":
            bits = {"h": 16, "hh": 8}.get(size or "", 64 if size in _WIDE else 32)
            values = [int(v) & ((1 << bits) - 1) for v in self._take(8 if size in _WIDE else 4)]
        elif kind in "fFeEgG":
            values = [float(v) for v in self._take(8).view(np.float64)]
        elif kind == "c":
            values = [chr(int(v) & 0xFF) for v in self._take(4)]
        elif kind == "s":
            values = [_string(self.s, int(v)) for v in self._take(8)]
        elif kind == "p":
            values = [f"{int(v):#x}" for v in self._take(8)]
            kind = "s"
        else:
            raise SimulationError(f"vprintf: unknown conversion %{kind}")
        spec = f"{width}{'' if precision is None else '.' + precision}{'d' if kind == 'u' else kind}"
        plain = flags.replace("0", "")  # no zeros stand before inf and nan
        shown = [f"%{flags if _is_finite(v) else plain}{spec}" % v for v in values]
        return [_signed_nan(text, v) for text, v in zip(shown, values, strict=True)]


def _is_finite(value: float | int | str) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _signed_nan(text: str, value: float | int | str) -> str:
    """printf shows the sign of a NaN (measured on an H200); Python's formatting does not."""
    if not isinstance(value, float) or value == value or math.copysign(1, value) > 0:
        return text
    return text[1:].replace("nan", "-nan") if text.startswith(" ") else text.replace("nan", "-nan").removesuffix(" ")


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
