"""The tile simulator: executes tile IR on NumPy arrays over a whole grid. It is the definition of the language.

CTAs run one after another, x fastest. Every op rounds to its declared type. Pointers are addresses of a flat space
that holds the caller's arrays; an access outside of them, or one that is misaligned, is a `SimulationError` at the
Python line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from mimw.ir.core import Argument, Module
from mimw.ir.types import DType, PointerType
from mimw.sim.errors import SimulationError
from mimw.sim.tile import arith, async_copy, barrier, control, debug, math, memory, mma, tensor
from mimw.sim.tile.address_space import AddressSpace
from mimw.sim.tile.machine import Machine
from mimw.sim.tile.numerics import Array, numpy_dtype, to_float

FAMILIES = (arith, async_copy, barrier, control, debug, math, memory, mma, tensor)


class SimResult:
    """What a run leaves besides the arrays: lines of `device_print`, warnings (``file:line:column: warning: ...``)."""

    __slots__ = ("printed", "warnings")

    def __init__(self, printed: list[str], warnings: list[str]) -> None:
        self.printed = printed
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"SimResult({len(self.printed)} lines printed, {len(self.warnings)} warnings)"


def run(
    module: Module, args: Sequence[Any], grid: tuple[int, ...], *, seed: int = 0, names: Sequence[str] | None = None
) -> SimResult:
    """Execute a kernel for every CTA of `grid` (up to three sizes), writing the arrays in place.

    `args` fit the kernel's arguments: arrays for pointers (any strides; the first element is what the pointer points
    to), numbers for scalars. `names` are the arrays' names in messages (default: the arguments'). `seed` orders what
    runs at the same time: it changes nothing as long as CTAs run one after another.

    Raises `SimulationError` where the program goes wrong, TypeError when the arguments do not fit.
    """
    arguments = module.function.arguments
    if len(args) != len(arguments):
        raise TypeError(f"{module.function.name} takes {len(arguments)} arguments, not {len(args)}")
    titles = names or [a.name or f"argument {i}" for i, a in enumerate(arguments)]
    arrays: list[tuple[str, Array]] = [(t, x) for t, x in zip(titles, args, strict=True) if isinstance(x, np.ndarray)]
    space = AddressSpace(arrays)
    values = [_argument(a, x, space) for a, x in zip(arguments, args, strict=True)]
    gx, gy, gz = (*grid, 1, 1, 1)[:3]
    size = (gx, gy, gz)
    machine = Machine(module.function, space, size)
    with np.errstate(all="ignore"):
        for z in range(size[2]):
            for y in range(size[1]):
                for x in range(size[0]):
                    machine.run_cta((x, y, z), values)
    return SimResult(machine.printed, machine.warnings)


def _argument(a: Argument, x: Any, space: AddressSpace) -> Array:
    if isinstance(a.type, PointerType):
        if isinstance(x, np.ndarray):
            return np.array(space.address_of(cast("Array", x)), np.int64)
        if isinstance(x, int) and not isinstance(x, bool):
            return np.array(x, np.int64)
        raise TypeError(f"{a.name} takes an array, not {type(x).__name__}")
    if not isinstance(a.type, DType):
        raise TypeError(f"{a.name}: the tile simulator takes no argument of type {a.type}")
    if isinstance(x, np.ndarray) and cast("Array", x).shape != ():
        raise TypeError(f"{a.name} takes a number, not an array")
    return _number(x, a.type)


def _number(x: Any, d: DType) -> Array:
    if d.kind == "float":
        return to_float(np.array(float(x), np.float64), d)
    if d.kind == "bool":
        return np.array(bool(x))
    return np.array(int(x) & ((1 << d.bits) - 1), f"uint{d.bits}").view(numpy_dtype(d))


__all__ = ["SimResult", "SimulationError", "run"]
