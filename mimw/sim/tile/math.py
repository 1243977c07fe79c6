"""Mathematical functions: computed in float64, rounded once to f32 (then to the narrower type).

Where the f32 instruction flushes denormals (`.ftz`), so does the simulator: what comes in and what goes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mimw.ir.core import OpBase
from mimw.ir.types import DType, element_of
from mimw.sim.tile.arith import rounded
from mimw.sim.tile.numerics import Array, flush, to_float, wide
from mimw.sim.tile.registry import COMPUTES


def _function(name: str, fn: Callable[[Array], Array], *, ftz: bool = False) -> None:
    def run(op: OpBase, x: Array) -> Array:
        d = element_of(op.results[0].type)
        assert isinstance(d, DType)
        w = wide(x)
        if d.bits == 64:
            return np.asarray(fn(w)).astype(np.float64)
        w = flush(w) if ftz else w
        y = np.asarray(fn(w.astype(np.float64))).astype(np.float32)
        return to_float(flush(y) if ftz else y, d)

    COMPUTES[name] = run


def _exact(name: str, fn: Callable[[Array], Array]) -> None:
    def run(op: OpBase, x: Array) -> Array:
        return rounded(op, fn, x)

    COMPUTES[name] = run


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x)).astype(np.float64)


_function("math.exp2", np.exp2, ftz=True)
_function("math.exp", np.exp, ftz=True)
_function("math.log2", np.log2, ftz=True)
_function("math.log", np.log, ftz=True)
_function("math.sqrt", np.sqrt, ftz=True)
_function("math.rsqrt", lambda x: np.divide(1.0, np.sqrt(x)), ftz=True)
_function("math.sin", np.sin)
_function("math.cos", np.cos)
_function("math.tanh", np.tanh)
_function("math.erf", _erf)
_exact("math.sqrt_rn", np.sqrt)
_exact("math.floor", np.floor)
_exact("math.ceil", np.ceil)
_exact("math.rint", np.rint)
_exact("math.trunc", np.trunc)
