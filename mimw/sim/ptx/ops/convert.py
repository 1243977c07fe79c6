# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""cvt between all types: integers, f16, bf16, f32, f64, tf32, fp8 pairs, packed halves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mimw.codegen.machine import Inst
from mimw.sim.ptx import floats, formats
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.ops.floating import mode_of
from mimw.sim.ptx.registry import Step, executes, not_yet
from mimw.sim.ptx.sim import Sim
from mimw.sim.ptx.state import UNSIGNED, Ctx, bits_of, dtype_of

_TO_INT = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
_PAIRS = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}


def _integer_limits(kind: str) -> tuple[int, int]:
    size = bits_of(kind)
    return (-(1 << size - 1), (1 << size - 1) - 1) if kind[0] == "s" else (0, (1 << size) - 1)


def _int_to_int(out: str, src: str, sat: bool) -> Callable[[Array], Array]:
    dtype = dtype_of(out)
    if not sat:
        return lambda a: a.astype(dtype)
    (low, high), (slow, shigh) = _integer_limits(out), _integer_limits(src)
    low, high = max(low, slow), min(high, shigh)
    return lambda a: np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)


def float_to_int(a: Array, out: str, mode: str, from_f64: bool) -> Array:
    """float64 values to integers of type `out`, clamped; NaN is 0, or only the top bit for 64-bit or from f64."""
    size, dtype = bits_of(out), dtype_of(out)
    low, high = _integer_limits(out)
    y = floats.to_integer(a, mode)
    nan = np.isnan(y)
    special = (1 << size - 1) if from_f64 or size == 64 else 0
    over, under = y >= float(high), y <= float(low)
    safe = np.where(over | under | nan, 0.0, y)
    wide = safe.astype(np.int64) if out[0] == "s" else safe.astype(np.uint64)
    unsigned = UNSIGNED[size]
    raw = wide.astype(dtype).view(unsigned)
    raw = np.where(over, unsigned(high), np.where(under, unsigned(low & ((1 << size) - 1)), raw))
    return np.where(nan, unsigned(special), raw).view(dtype)


def _int_to_float(out: str, mode: str) -> Callable[[Array], Array]:
    def fn(a: Array) -> Array:
        if out == "f64":
            if a.dtype.itemsize < 8:
                return a.astype(np.float64)
            high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
            low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
            return floats.nudge(*floats.two_sum(high, low), mode)
        wide = a.astype(np.float64) if a.dtype.itemsize < 8 else floats.int64_odd(a)
        return formats.encode(out, wide, mode)

    return fn


def _float_to_float(out: str, src: str, mods: list[str]) -> Callable[[Array], Array]:
    """From decoded float64 to the bits (or f64 values) of `out`."""
    ftz, sat, relu, satfinite = "ftz" in mods, "sat" in mods, "relu" in mods, "satfinite" in mods
    whole = next((_TO_INT[mod] for mod in mods if mod in _TO_INT), None)
    mode = mode_of(mods)

    def fn(a: Array) -> Array:
        if ftz and src == "f32":
            a = np.where(np.abs(a) < 2.0**-126, np.copysign(0.0, a), a)
        if whole is not None:
            a = floats.to_integer(a, whole)
        if relu:
            a = np.where(np.isnan(a), a, np.maximum(a, 0.0))
        if sat:
            a = floats.saturate(a)
        if out == "f64":
            return a
        bits = formats.encode(out, a, mode, satfinite)
        if ftz and out == "f32":
            bits = floats.flush(bits.view(np.float32)).view(np.uint32)
        return bits

    return fn


@executes("cvt")
def _cvt(s: Sim, inst: Inst, mods: list[str]) -> Step:
    if mods[0] == "pack":
        return _pack(s, inst, mods)
    out, src = mods[-2], mods[-1]
    if out in _PAIRS or src in _PAIRS:
        return _pairs(s, inst, mods)
    mode, sat = mode_of(mods), "sat" in mods
    fin, fout = src in _FLOATS, out in _FLOATS
    if (not fin and src[0] not in "su") or (not fout and out[0] not in "su"):
        raise not_yet(inst.opcode)
    read = s.m.rd(inst.operands[1], f"b{bits_of(src)}" if fin and src != "f64" else src)
    put = s.m.wr(inst.operands[0], f"b{bits_of(out)}" if fout and out != "f64" else out)
    if fin and fout:
        if src == "f32" and out == "bf16" and mods == ["rn", "bf16", "f32"]:
            return lambda x: put(x, formats.f32_to_bf16(np.ascontiguousarray(read(x)).view(np.float32)))
        if mods == ["f32", "bf16"]:  # keeps the bits of a NaN, as hardware does
            return lambda x: put(x, formats.bf16_to_f32(read(x)).view(np.uint32))
        fn = _float_to_float(out, src, mods)
        if out == "tf32":
            return _to_tf32(s, inst, fn)
        return lambda x: put(x, fn(formats.decode(src, np.ascontiguousarray(read(x)))))
    if fin:
        whole = next((_TO_INT[mod] for mod in mods if mod in _TO_INT), "rz")
        ftz = "ftz" in mods and src == "f32"

        def run(x: Ctx) -> None:
            a = formats.decode(src, np.ascontiguousarray(read(x)))
            if ftz:
                a = np.where(np.abs(a) < 2.0**-126, np.copysign(0.0, a), a)
            put(x, float_to_int(a, out, whole, src == "f64"))

        return run
    if fout:
        convert = _int_to_float(out, mode)
        if sat:
            plain = convert
            return lambda x: put(x, plain(np.clip(read(x), 0, 1)))
        return lambda x: put(x, convert(read(x)))
    narrow = _int_to_int(out, src, sat)
    return lambda x: put(x, narrow(read(x)))


def _to_tf32(s: Sim, inst: Inst, fn: Callable[[Array], Array]) -> Step:
    """f32 to tf32: a NaN only loses its low bits (seen on an H200)."""
    read, put = s.m.rd(inst.operands[1], "f32"), s.m.wr(inst.operands[0], "b32")

    def run(x: Ctx) -> None:
        a = read(x)
        put(x, np.where(np.isnan(a), a.view(np.uint32) & np.uint32(0xFFFFE000), fn(a.astype(np.float64))))

    return run


def _pairs(s: Sim, inst: Inst, mods: list[str]) -> Step:
    """d = {hi, lo} from two f32 sources, or one packed type to another."""
    out, src = mods[-2], mods[-1]
    if out not in _PAIRS:
        raise not_yet(inst.opcode)
    base = _PAIRS[out]
    put = s.m.wr(inst.operands[0], f"b{bits_of(out)}")
    half = bits_of(out) // 2
    narrow, whole = UNSIGNED[half], UNSIGNED[half * 2]
    if src == "f32":
        fn = _float_to_float(base, "f32", mods)
        gets = [s.m.rd(inst.operands[1], "f32"), s.m.rd(inst.operands[2], "f32")]
        fast = base == "bf16" and mods[:-2] == ["rn"]

        def run(x: Ctx) -> None:
            high, low = (
                formats.f32_to_bf16(get(x)) if fast else fn(get(x).astype(np.float64)) for get in gets
            )  # fmt: skip
            put(x, low.astype(whole) | (high.astype(whole) << whole(half)))

        return run
    if src not in _PAIRS:
        raise not_yet(inst.opcode)
    fn, inner = _float_to_float(base, _PAIRS[src], mods), _PAIRS[src]
    read, size = s.m.rd(inst.operands[1], f"b{bits_of(src)}"), UNSIGNED[bits_of(src) // 2]

    def widen(x: Ctx) -> None:
        pair = np.ascontiguousarray(read(x))[..., None].view(size)
        put(x, np.ascontiguousarray(fn(formats.decode(inner, pair)).astype(narrow, copy=False)).view(whole)[..., 0])

    return widen


def _pack(s: Sim, inst: Inst, mods: list[str]) -> Step:
    """cvt.pack.sat.{s16,u16}.s32 d, a, b and the 8-bit forms that shift c up."""
    out, src = mods[2], mods[3]
    low, high = _integer_limits(out)
    size = bits_of(out)
    if size < 8:
        raise not_yet(inst.opcode)
    a, b = s.m.rd(inst.operands[1], src), s.m.rd(inst.operands[2], src)
    c = s.m.rd(inst.operands[3], "b32") if len(inst.operands) > 3 else None
    put, keep = s.m.wr(inst.operands[0], "b32"), (1 << size) - 1

    def run(x: Ctx) -> None:
        va, vb = (np.clip(get(x).astype(np.int64), low, high) & keep for get in (a, b))
        word = vb | (va << size)
        if c is not None:
            word = word | (c(x).astype(np.int64) << 2 * size)
        put(x, word.astype(np.uint32))

    return run
