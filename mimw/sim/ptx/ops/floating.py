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
from mimw.sim.ptx.registry import Plain, Step, executes, not_yet
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
    last, put, mode, sat = s.m.rd(inst.operands[1 + count], "f32"), s.m.wr(inst.operands[0], "f32"), mode_of(mods), "sat" in mods
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


# -- min, max, neg, abs, copysign, testp --------------------------------------------------------------------------


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


# -- comparisons --------------------------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}


def _float_compare(op: str) -> Callable[[Array, Array], Array]:
    """Ordered comparisons are false on NaN (ne included), unordered ones true."""
    if op == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if op == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if op in _UNORDERED:
        base = _COMPARE[_UNORDERED[op]]
        return lambda a, b: base(a, b) | np.isnan(a) | np.isnan(b)
    base = _COMPARE[op]
    if op == "ne":
        return lambda a, b: (a != b) & ~(np.isnan(a) | np.isnan(b))
    return base


def compare(op: str, kind: str, ftz: bool) -> Callable[[Array, Array], Array]:
    """The comparison `op` on operands as `Machine.rd` gives them for `kind` (f16 and bf16: decoded here)."""
    if not integer.is_float(kind):
        return _COMPARE[op]
    fn = _float_compare(op)
    if kind == "f32" and ftz:
        return lambda a, b: fn(floats.flush(a), floats.flush(b))
    if kind == "bf16":
        return lambda a, b: fn(formats.bf16_to_f32(a), formats.bf16_to_f32(b))
    return fn


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@executes("setp")
def _setp(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind, op = mods[-1], mods[0]
    first, second = integer.second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "pred"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    combine = next((_COMBINE[mod] for mod in mods[1:-1] if mod in _COMBINE), None)
    c = s.m.rd(inst.operands[3], "pred") if combine is not None and len(inst.operands) > 3 else None
    if kind in ("f16x2", "bf16x2"):
        return _setp_packed(s, inst, mods)
    fn = compare(op, kind, "ftz" in mods)
    a, b = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind)
    if combine is None and first is inst.operands[0]:
        return lambda x: put(x, fn(a(x), b(x)))

    def run(x: Ctx) -> None:
        out = fn(a(x), b(x))
        no = ~out
        if combine is not None and c is not None:
            extra = c(x)
            out, no = combine(out, extra), combine(no, extra)
        put(x, out)
        put2(x, no)

    return run


def _setp_packed(s: Sim, inst: Inst, mods: list[str]) -> Step:
    kind = lanes_of(mods[-1])[0]
    first, second = integer.second_result(inst.operands[0])
    put, put2 = s.m.wr(first, "pred"), s.m.wr(second, "pred")  # type: ignore[arg-type]
    if len(inst.operands) > 3:
        raise not_yet("setp on packed types with a third source")
    fn = _float_compare(mods[0])
    a, b = s.m.rd(inst.operands[1], "b32"), s.m.rd(inst.operands[2], "b32")

    def run(x: Ctx) -> None:
        va, vb = a(x), b(x)
        for shift, setter in ((0, put), (16, put2)):
            ea, eb = ((v >> np.uint32(shift)).astype(np.uint16) for v in (va, vb))
            setter(x, fn(formats.decode(kind, ea), formats.decode(kind, eb)))

    return run


@executes("set")
def _set(s: Sim, inst: Inst, mods: list[str]) -> Step:
    out_kind, kind = mods[-2], mods[-1]
    if kind in ("f16x2", "bf16x2") or out_kind not in ("u32", "s32", "f32", "u16", "s16"):
        raise not_yet(f"set.{out_kind}.{kind}")
    fn, combine = compare(mods[0], kind, "ftz" in mods), next((_COMBINE[m] for m in mods[1:-2] if m in _COMBINE), None)
    a, b, put = s.m.rd(inst.operands[1], kind), s.m.rd(inst.operands[2], kind), s.m.wr(inst.operands[0], out_kind)
    c = s.m.rd(inst.operands[3], "pred") if combine is not None else None
    true = {"u32": np.uint32(0xFFFFFFFF), "s32": np.int32(-1), "f32": np.float32(1), "u16": np.uint16(0xFFFF)}.get(
        out_kind, np.int16(-1)
    )

    def run(x: Ctx) -> None:
        out = fn(a(x), b(x))
        if combine is not None and c is not None:
            out = combine(out, c(x))
        put(x, np.where(out, true, true.dtype.type(0)))

    return run
