"""Read-modify-write: what an atomic op or a reducing store makes of the old value and the new one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.ir.types import DType
from mimw.sim.tile.arith import larger, smaller
from mimw.sim.tile.numerics import Array, to_float, wide

_BITS: dict[str, Callable[[Array, Array], Array]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


def combined(kind: str, old: Array, new: Array, d: DType) -> Array:
    """`old` and `new` (of type `d`) under `kind`: add (rounded once), min and max (of floats: maxNum, -0 below +0), and, or, xor, xchg."""
    if kind == "xchg":
        return new
    if kind in _BITS:
        return _BITS[kind](old, new)
    if d.kind == "float":
        a, b = wide(old), wide(new)
        out = a + b if kind == "add" else smaller(np.fmin)(a, b) if kind == "min" else larger(np.fmax)(a, b)
        return to_float(np.asarray(out), d)
    out = old + new if kind == "add" else np.minimum(old, new) if kind == "min" else np.maximum(old, new)
    return np.asarray(out).astype(old.dtype)
