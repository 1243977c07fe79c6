# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Floating-point arithmetic, bit-exact but for the `.approx` forms, which are computed in float64 and rounded once.

Also the dispatch of the mnemonics that integers share (add, sub, mul, div, min, max, neg, abs).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import floats, formats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops import integer
from mimw.sim.ptx.registry import Plain, Step, executes
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import Ctx

MODES = ("rn", "rz", "rm", "rp", "rna")
Fn = Callable[..., Array]


def mode_of(mods: list[str]) -> str:
    """The rounding mode among the modifiers; PTX's default is rn."""
    return next((mod for mod in mods if mod in MODES), "rn")


def lanes_of(kind: str) -> tuple[str, int]:
    """Element type and count of a type: f16x2 is two f16."""
    return (kind[:-2], 2) if kind.endswith("x2") else (kind, 1)


def elementwise(s: Sim, inst: Inst, kind: str, count: int, fn: Fn) -> Plain:
    """d = fn(sources): `fn` takes and gives float arrays (f32 and f64 in their dtype, f16 and bf16 as raw uint16).

    Packed types are split into elements and joined again.
    """
    gets = [s.m.rd(op, kind if kind in ("f32", "f64") else f"b{16 if lanes_of(kind)[1] == 1 else 32}")
            for op in inst.operands[1 : 1 + count]]  # fmt: skip
    packed = lanes_of(kind)[1]
    if kind == "f32x2":
        return _f32x2(s, inst, count, fn)
    if packed == 1:
        put = s.m.wr(inst.operands[0], kind if kind in ("f32", "f64") else "b16")
        return lambda x: put(x, fn(*[get(x) for get in gets]))
    put = s.m.wr(inst.operands[0], "b32")

    def run(x: Ctx) -> None:
        args = [np.ascontiguousarray(x.full(get(x))).view(np.uint16) for get in gets]
        put(x, np.ascontiguousarray(fn(*args)).view(np.uint32))

    return run


def _f32x2(s: Sim, inst: Inst, count: int, fn: Fn) -> Plain:
    gets = [s.m.rd(op, "b64") for op in inst.operands[1 : 1 + count]]
    put = s.m.wr(inst.operands[0], "b64")

    def run(x: Ctx) -> None:
        args = [np.ascontiguousarray(x.full(get(x))).view(np.float32) for get in gets]
        put(x, np.ascontiguousarray(fn(*args)).view(np.uint64))

    return run


def finish32(out: Array, ftz: bool, sat: bool) -> Array:
    """The last steps of an f32 instruction: .ftz on the result, .sat, canonical NaN."""
    if ftz:
        out = floats.flush(out)
    return floats.saturate(out) if sat else floats.canonical(out)


def small_fn(kind: str, mods: list[str], exact: Fn) -> Fn:
    """An f16 or bf16 function from `exact`, which maps float64 operands to the float64 result rounded to odd."""
    mode, sat, relu, ftz = mode_of(mods), "sat" in mods, "relu" in mods, "ftz" in mods

    def fn(*raw: Array) -> Array:
        args = [formats.decode(kind, np.ascontiguousarray(r)) for r in raw]
        if ftz:
            args = [_flush16(a) for a in args]
        out = exact(*args)
        if relu:
            out = np.where(np.isnan(out), out, np.maximum(out, 0.0))
        if sat:
            out = floats.saturate(out)
        if ftz:
            out = _flush16(formats.decode(kind, formats.encode(kind, out, mode)))
        return formats.encode(kind, out, mode)

    return fn


def _flush16(x: Array) -> Array:
    return np.where(np.abs(x) < 2.0**-14, np.copysign(0.0, x), x)


# -- add, sub, mul, fma -------------------------------------------------------------------------------------------


def _add64(a: Array, b: Array, mode: str) -> Array:
    s, err = floats.two_sum(a, b)
    out = floats.nudge(s, np.where(np.isfinite(s), err, 0.0), mode)
    return np.where((out == 0) & (a != 0) & (a == -b), -0.0, out) if mode == "rm" else out


def _round32(exact_odd: Array, mode: str) -> Array:
    if mode == "rn":
        return exact_odd.astype(np.float32)
    return floats.round_to(exact_odd, floats.FORMATS["f32"], mode).astype(np.float32)


def _arith32(root: str, mods: list[str]) -> Fn:
    """add, sub, mul on float32 arrays."""
    mode, ftz, sat = mode_of(mods), "ftz" in mods, "sat" in mods
    native: Fn = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[root]

    def fn(a: Array, b: Array) -> Array:
        if ftz:
            a, b = floats.flush(a), floats.flush(b)
        if mode == "rn":
            out = native(a, b)
        elif root == "mul":
            out = _round32(a.astype(np.float64) * b.astype(np.float64), mode)
        else:
            b = -b if root == "sub" else b
            wide = floats.odd(*floats.two_sum(a.astype(np.float64), b.astype(np.float64)))
            out = _round32(wide, mode)
            if mode == "rm":
                out = np.where((a == -b) & (a != 0), np.float32(-0.0), out)
        return finish32(out, ftz, sat)

    return fn


def _arith64(root: str, mods: list[str]) -> Fn:
    mode = mode_of(mods)
    if root == "mul":
        return lambda a, b: floats.mul64(a, b, mode)
    if root == "sub":
        return lambda a, b: _add64(a, -b, mode)
    return lambda a, b: _add64(a, b, mode)


_EXACT: dict[str, Fn] = {
    "add": lambda a, b: floats.odd(*floats.two_sum(a, b)),
    "sub": lambda a, b: floats.odd(*floats.two_sum(a, -b)),
    "mul": lambda a, b: a * b,
    "fma": floats.fma_odd,
}


def _mixed(s: Sim, inst: Inst, mods: list[str]) -> Plain:
    """add, sub, fma .f32.{f16,bf16}: the first operands are narrow, the last is f32."""
    root, narrow = inst.opcode.split(".")[0], mods[-1]
    count = 2 if root == "fma" else 1
    gets = [s.m.rd(op, "b16") for op in inst.operands[1 : 1 + count]]
    last, put, mode, sat = (
        s.m.rd(inst.operands[1 + count], "f32"),
        s.m.wr(inst.operands[0], "f32"),
        mode_of(mods),
        "sat" in mods,
    )
    exact = _EXACT[root]

    def run(x: Ctx) -> None:
        args = [formats.decode(narrow, np.ascontiguousarray(get(x))) for get in gets]
        put(x, finish32(_round32(exact(*args, last(x).astype(np.float64)), mode), False, sat))

    return run


@executes("add", "sub", "mul", "addc", "subc")
def _arith(s: Sim, inst: Inst, mods: list[str]) -> Step:
    root, kind = inst.opcode.split(".")[0], mods[-1]
    if not integer.is_float(kind):
        return integer.decode_mul(s, inst, mods) if root == "mul" else integer.decode_add_sub(s, inst, mods)
    if len(mods) > 1 and mods[-2] == "f32" and kind in ("f16", "bf16"):
        return _mixed(s, inst, mods)
    if kind in ("f32", "f32x2"):
        return elementwise(s, inst, kind, 2, _arith32(root, mods))
    if kind == "f64":
        return elementwise(s, inst, kind, 2, _arith64(root, mods))
    return elementwise(s, inst, kind, 2, small_fn(lanes_of(kind)[0], mods, _EXACT[root]))


@executes("fma")
def _fma(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    mode, ftz, sat = mode_of(mods), "ftz" in mods, "sat" in mods
    if len(mods) > 1 and mods[-2] == "f32" and kind in ("f16", "bf16"):
        return _mixed(s, inst, mods)
    if kind == "f64":
        return elementwise(s, inst, kind, 3, lambda a, b, c: floats.fma64(a, b, c, mode))
    if kind in ("f32", "f32x2"):

        def fn(a: Array, b: Array, c: Array) -> Array:
            if ftz:
                a, b, c = floats.flush(a), floats.flush(b), floats.flush(c)
            wide = floats.fma_odd(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))
            return finish32(_round32(wide, mode), ftz, sat)

        return elementwise(s, inst, kind, 3, fn)
    return elementwise(s, inst, kind, 3, small_fn(lanes_of(kind)[0], mods, floats.fma_odd))


# -- division and elementary functions ----------------------------------------------------------------------------


def _via64(fn: Fn, mods: list[str], approximate: bool) -> Fn:
    """An f32 function computed in float64 and rounded once: correct for quotients and roots, near for the rest."""
    mode, ftz, sat = "rn" if approximate else mode_of(mods), "ftz" in mods, "sat" in mods

    def run(*args: Array) -> Array:
        if ftz:
            args = tuple(floats.flush(a) for a in args)
        return finish32(_round32(fn(*[a.astype(np.float64) for a in args]), mode), ftz, sat)

    return run


@executes("div")
def _div(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = mods[-1]
    if kind == "f64":
        mode = mode_of(mods)
        return elementwise(s, inst, kind, 2, lambda a, b: floats.div64(a, b, mode))
    if kind != "f32":
        return integer.decode_div(s, inst, mods)
    return elementwise(s, inst, kind, 2, _via64(np.divide, mods, "approx" in mods or "full" in mods))


def _lg2(a: Array) -> Array:
    return np.where(a < 0, np.nan, np.log2(np.abs(a)))


def _rsqrt(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


_FUNCTIONS: dict[str, Fn] = {
    "rcp": lambda a: 1.0 / a, "sqrt": np.sqrt, "rsqrt": _rsqrt, "ex2": np.exp2, "lg2": _lg2, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh,
}  # fmt: skip


@executes("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _function(s: Sim, inst: Inst, mods: list[str]) -> Step:
    root, kind, mode = inst.opcode.split(".")[0], mods[-1], mode_of(mods)
    fn = _FUNCTIONS[root]
    if kind == "f32":
        return elementwise(s, inst, kind, 1, _via64(fn, mods, "approx" in mods))
    if kind == "f64":
        if root == "sqrt":
            return elementwise(s, inst, kind, 1, lambda a: floats.sqrt64(a, mode))
        if root == "rcp" and "approx" not in mods:
            return elementwise(s, inst, kind, 1, lambda a: floats.div64(np.ones_like(a), a, mode))
        return elementwise(s, inst, kind, 1, lambda a: _approx64(fn(floats.flush64(a))))
    return elementwise(s, inst, kind, 1, small_fn(lanes_of(kind)[0], [], fn))


def _approx64(v: Array) -> Array:
    """rcp and rsqrt .approx.ftz.f64 give the upper 32 bits only."""
    bits = np.ascontiguousarray(v).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
    return floats.flush64(bits.view(np.float64))
