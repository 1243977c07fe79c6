# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""How a vector instruction is written as a row: result type, source types, a function of arrays.

Owns DPP's write mask and the saturation of integers under `clamp`. Knows no instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.registry import DECODERS, Step
from mimw.sim.amdgcn.state import Array, Ctx
from mimw.sim.amdgcn.types import DTYPES

Function = Callable[..., Array]


def row(name: str, result: str, sources: str, fn: Function, keep_high: bool = False) -> None:
    """Register `name`: operand 0 is a `result`, the others are `sources` (types, split by blanks)."""

    def decode(d: Operands) -> Step:
        return vector_step(d, result, sources.split(), fn, keep_high)

    DECODERS[name] = decode


def rows(table: dict[str, Function], result: str, sources: str) -> None:
    """Register several rows with the same types."""
    for name, fn in table.items():
        row(name, result, sources, fn)


def vector_step(d: Operands, result: str, sources: list[str], fn: Function, keep_high: bool = False) -> Step:
    """The step of a row: read, compute, write in the lanes that are on (and that DPP lets through)."""
    put = d.dst(0, result, keep_high)
    gets = [d.src(i + 1, kind, i) for i, kind in enumerate(sources)]
    if len(gets) == 1:
        (a,) = gets
        return masked(d, lambda x: put(x, fn(a(x))))
    if len(gets) == 2:
        a, b = gets
        return masked(d, lambda x: put(x, fn(a(x), b(x))))
    a, b, c = gets
    return masked(d, lambda x: put(x, fn(a(x), b(x), c(x))))


def masked(d: Operands, step: Step) -> Step:
    """Under DPP the step writes only the lanes that DPP lets through; without DPP it is the step itself."""
    if d.dpp is None:
        return step

    def run(x: Ctx) -> None:
        saved = x.mask
        # Sources are read under the narrower mask too: a lane that is not written needs no source.
        x.mask = d.dpp_mask(x)
        try:
            step(x)
        finally:
            x.mask = saved

    return run


def saturating(kind: str, fn: Callable[[Any, Any], Any]) -> Function:
    """`fn` of two integers in 64 bits, clamped to the range of `kind`."""
    info = np.iinfo(DTYPES[kind])

    def compute(a: Array, b: Array) -> Array:
        wide = fn(a.astype(np.int64), b.astype(np.int64))
        return np.clip(wide, info.min, info.max).astype(DTYPES[kind])

    return compute
