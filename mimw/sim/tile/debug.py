"""Printing and assertions."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np

from mimw.ir.core import OpBase
from mimw.ir.types import DType, element_of
from mimw.sim.errors import SimulationError
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.memory import operand_fields
from mimw.sim.tile.numerics import Array, bits_of
from mimw.sim.tile.registry import executes

_TICKS = count(1)
"""What the clock shows; goes up over all programs of the process, since nobody may depend on it."""


@executes("debug.clock")
def _clock(m: Machine, op: OpBase) -> None:
    m.env[op.results[0]] = np.int64(next(_TICKS))


@executes("debug.device_print")
def _device_print(m: Machine, op: OpBase) -> None:
    head = f"pid ({', '.join(map(str, m.pid))})"
    prefix: str = op.attrs["prefix"]
    if not op.operands:
        _say(m, f"{head} {prefix}")
    for n, v in enumerate(op.operands):
        x: Array = m.env[v]
        which = f" (operand {n})" if len(op.operands) > 1 else ""
        for index in np.ndindex(x.shape):
            place = f"idx ({', '.join(map(str, index))})"
            _say(m, f"{head} {place} {prefix}{which} {_show(x[index], element_of(v.type), op.attrs['hex'])}")


def _say(m: Machine, line: str) -> None:
    m.run.printed.append(line)
    print(line)


def _show(x: Any, e: Any, as_hex: bool) -> str:
    if as_hex or not isinstance(e, DType):
        bits = bits_of(np.asarray(x))
        return f"0x{int(bits):0{bits.dtype.itemsize * 2}x}"
    if e.kind == "float":
        return f"{float(x):f}"
    return str(int(x))


@executes("debug.device_assert")
def _device_assert(m: Machine, op: OpBase) -> None:
    cond, mask = operand_fields(op)
    assert cond is not None
    bad = ~m.env[cond] if mask is None else ~m.env[cond] & m.env[mask]
    if np.any(bad):
        index = [int(i) for i in np.argwhere(bad)[0]]
        raise SimulationError("device-assert", f"{op.attrs['message']}" + (f" (element {index})" if index else ""))
