# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""min, max, neg, abs, copysign, testp: float instructions that round nothing. Also the integer forms of min, max, neg, abs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import floats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops import integer
from mimw.sim.ptx.ops.floating import Fn, elementwise, lanes_of, small_fn
from mimw.sim.ptx.registry import Step, executes
from mimw.sim.ptx.sim import Sim


def _pick(kind: str, mods: list[str], largest: bool) -> Fn:
    """min or max on values: -0 below +0; a NaN loses unless .NaN is given."""
    nan, xorsign, mag = "NaN" in mods, "xorsign" in mods, "abs" in mods

    def two(a: Array, b: Array) -> Array:
        va, vb = (np.abs(a), np.abs(b)) if mag else (a, b)
        first = (va > vb) if largest else (va < vb)
        equal = va == vb
        if equal.any():
            sa, sb = np.signbit(va), np.signbit(vb)
            first = np.where(equal, (~sa | sb) if largest else (sa | ~sb), first)
        out = np.where(first, va, vb)
        na, nb = np.isnan(va), np.isnan(vb)
        if na.any() or nb.any():
            out = np.where(na | nb, va.dtype.type(np.nan), out) if nan else np.where(na, vb, np.where(nb, va, out))
        if xorsign:
            out = np.where(np.signbit(a) ^ np.signbit(b), -np.abs(out), np.abs(out))
        return out

    return two


@executes("min", "max")
def _min_max(s: Sim, inst: Inst, mods: list[str]) -> Step:
    root, kind = inst.opcode.split(".")[0], mods[-1]
    if not integer.is_float(kind):
        return integer.decode_min_max(s, inst, mods)
    two = _pick(kind, mods, root == "max")
    count = len(inst.operands) - 1

    def fold(*args: Array) -> Array:
        out = two(args[0], args[1])
        return out if len(args) == 2 else two(out, args[2])

    if kind == "f32":
        ftz = "ftz" in mods

        def fn(*args: Array) -> Array:
            flat = [floats.flush(a) for a in args] if ftz else args
            return floats.canonical(fold(*flat))

        return elementwise(s, inst, kind, count, fn)
    if kind == "f64":
        return elementwise(s, inst, kind, count, fold)
    return elementwise(s, inst, kind, count, small_fn(lanes_of(kind)[0], mods, fold))


@executes("neg", "abs")
def _neg_abs(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, negate = mods[-1], inst.opcode.startswith("neg")
    if not integer.is_float(kind):
        return integer.decode_neg_abs(s, inst, mods)
    ftz = "ftz" in mods
    if kind in ("f32", "f64", "f32x2"):

        def fn(a: Array) -> Array:
            v = floats.flush(a) if ftz and kind == "f32" else a
            return -v if negate else np.abs(v)

        return elementwise(s, inst, kind, 1, fn)
    sign, is_f16 = np.uint16(0x8000), lanes_of(kind)[0] == "f16"

    def half(a: Array) -> Array:
        out = a ^ sign if negate else a & ~sign
        # f16 gives the canonical NaN, bf16 keeps its bits (seen on an H200).
        return np.where((a & ~sign) > 0x7C00, np.uint16(0x7FFF), out) if is_f16 else out

    return elementwise(s, inst, kind, 1, half)


@executes("copysign")
def _copysign(s: Sim, inst: Inst, mods: list[str]) -> Step:
    return elementwise(s, inst, mods[-1], 2, lambda a, b: np.copysign(b, a))


@executes("testp")
def _testp(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    tiny = np.finfo(np.float32 if kind == "f32" else np.float64).tiny
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan, "number": lambda a: ~np.isnan(a),
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)), "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny),
    }  # fmt: skip
    test, a, put = tests[mods[0]], s.m.rd(inst.operands[1], kind), s.m.wr(inst.operands[0], "pred")
    return lambda x: put(x, test(a(x)))
