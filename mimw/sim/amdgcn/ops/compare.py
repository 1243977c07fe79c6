# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Comparisons of the vector unit: one bit a lane into a pair of scalar registers; `v_cmpx` also into EXEC (gfx9).

Lanes that are off get 0. The float comparisons whose names begin with n are true for unordered operands.
"""

from __future__ import annotations

import re

import numpy as np

from mimw.sim.amdgcn.decode import EXEC, Reg
from mimw.sim.amdgcn.operands import Operands
from mimw.sim.amdgcn.ops.vector import Function, masked
from mimw.sim.amdgcn.registry import Step, executes, family
from mimw.sim.amdgcn.state import Array, Ctx


def _ordered(a: Array, b: Array) -> Array:
    return ~(np.isnan(a) | np.isnan(b))


_INTEGER: dict[str, Function] = {
    "f": lambda a, b: (a == b) & False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: (a == b) | True,
}
_FLOAT: dict[str, Function] = {
    "f": _INTEGER["f"],
    "lt": _INTEGER["lt"],
    "eq": _INTEGER["eq"],
    "le": _INTEGER["le"],
    "gt": _INTEGER["gt"],
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": _INTEGER["ge"],
    "o": _ordered,
    "u": lambda a, b: ~_ordered(a, b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "tru": _INTEGER["t"],
}


@family(r"v_cmp(x?)_(\w+)_([fiu](?:16|32|64))")
def _compare(d: Operands, match: re.Match[str]) -> Step:
    cond, kind = match[2], match[3]
    table = _FLOAT if kind[0] == "f" else _INTEGER
    if cond not in table:
        raise d.fault(f"comparison {d.inst.mnemonic} is unknown", "unsupported")
    return _step(d, table[cond], kind, kind, bool(match[1]))


def _step(d: Operands, fn: Function, first: str, second: str, to_exec: bool) -> Step:
    put = d.mask_dst(d.op(0))
    put_exec = d.mask_dst(Reg("s", EXEC, 2)) if to_exec else None
    a, b = d.src(1, first, 0), d.src(2, second, 1)

    def run(x: Ctx) -> None:
        out = fn(a(x), b(x))
        put(x, out)
        if put_exec is not None:
            put_exec(x, out)

    return masked(d, run)


def classes(v: Array, wanted: Array) -> Array:
    """v_cmp_class: whether a value is in one of the classes whose bits are set in `wanted`."""
    bits = v.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[v.dtype.itemsize])
    quiet_bit = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[v.dtype.itemsize]
    tiny, nan, neg = np.finfo(v.dtype).tiny, np.isnan(v), np.signbit(v)
    quiet = (bits & bits.dtype.type(quiet_bit)) != 0
    inf, zero = np.isinf(v), v == 0
    small = (np.abs(v) < tiny) & ~zero
    normal = ~(nan | inf | zero | small)
    kinds = [nan & ~quiet, nan & quiet, inf & neg, normal & neg, small & neg, zero & neg, zero & ~neg, small & ~neg,
             normal & ~neg, inf & ~neg]  # fmt: skip
    out = np.zeros(np.broadcast_shapes(v.shape, wanted.shape), np.bool_)
    for k, is_kind in enumerate(kinds):
        out |= is_kind & ((wanted >> wanted.dtype.type(k)) & wanted.dtype.type(1) != 0)
    return out


@executes(
    "v_cmp_class_f32", "v_cmp_class_f64", "v_cmp_class_f16", "v_cmpx_class_f32", "v_cmpx_class_f64", "v_cmpx_class_f16"
)
def _class(d: Operands) -> Step:
    kind = d.inst.mnemonic[-3:]
    return _step(d, classes, kind, "u16" if kind == "f16" else "u32", "cmpx" in d.inst.mnemonic)
