"""Floating point, bit by bit, against NumPy, ml_dtypes and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.sim.ptx import floats, formats

from .programs import apply

SPECIAL32 = np.array(
    [0x0, 0x80000000, 0x1, 0x80000001, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
     0x3F800000, 0xBF800000, 0x3F000000, 0x3F800001, 0x7F000000, 0x00800001],
    np.uint32,
)  # fmt: skip


def singles(seed: int, count: int = 512) -> np.ndarray:
    """Random bit patterns, numbers near one, and special values."""
    rng = np.random.default_rng(seed)
    out = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    out[: count // 2] = rng.standard_normal(count // 2).astype(np.float32)
    out[rng.permutation(count)[: len(SPECIAL32)]] = SPECIAL32.view(np.float32)
    return out


def small(seed: int, count: int = 512) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**16, count, dtype=np.uint16)


def exact_round(value: Fraction, fmt: floats.Format, mode: str) -> float:
    """The reference: round an exact value by integer arithmetic on fractions."""
    if value == 0:
        return 0.0
    mag = abs(value)
    e = math.floor(math.log2(mag.numerator) - math.log2(mag.denominator))
    while Fraction(2) ** e > mag:
        e -= 1
    while Fraction(2) ** (e + 1) <= mag:
        e += 1
    quantum = Fraction(2) ** (max(e, fmt.emin) - fmt.p + 1)
    low = mag // quantum
    rest = mag / quantum - low
    up = {"rz": False, "rm": value < 0, "rp": value > 0}.get(
        mode, rest > Fraction(1, 2) or (rest * 2 == 1 and low % 2 == 1)
    )
    out = (low + (1 if up and rest else 0)) * quantum
    if out > Fraction(fmt.max):
        toward_zero = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
        return (-1.0 if value < 0 else 1.0) * (fmt.max if toward_zero else math.inf)
    return (-1.0 if value < 0 else 1.0) * float(out)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal bits, where any NaN equals any NaN."""
    assert a.dtype == b.dtype
    with np.errstate(invalid="ignore"):
        nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    size = {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    bad = (a.view(size) != b.view(size)) & ~nan
    assert not bad.any(), (a[bad][:4], b[bad][:4])


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "fma"])
def test_f32_rounds_once_in_every_mode(op: str, mode: str) -> None:
    a, b, c = singles(1), singles(2), singles(3)
    sources = (a, b, c) if op == "fma" else (a, b)
    got = apply(
        f"{op}.{mode}.f32 {{o}}, {', '.join(f'{{{i}}}' for i in range(len(sources)))};", *sources, out=np.float32
    )
    checked = 0
    for i, args in enumerate(zip(*(s.tolist() for s in sources), strict=False)):
        if not all(math.isfinite(v) for v in args) or (op == "div" and args[1] == 0):
            continue
        exact = [Fraction(v) for v in args]
        value = {
            "add": lambda v: v[0] + v[1], "sub": lambda v: v[0] - v[1], "mul": lambda v: v[0] * v[1],
            "div": lambda v: v[0] / v[1], "fma": lambda v: v[0] * v[1] + v[2],
        }[op](exact)  # fmt: skip
        want = exact_round(value, floats.FORMATS["f32"], mode)
        assert got[i] == want and (want == 0 or got[i] != 0), (op, mode, args, got[i], want)
        checked += 1
    assert checked > 300


def test_f32_special_values() -> None:
    a, b = np.repeat(SPECIAL32.view(np.float32), 17), np.tile(SPECIAL32.view(np.float32), 17)
    with np.errstate(all="ignore"):
        same(apply("add.rn.f32 {o}, {0}, {1};", a, b, out=np.float32), a + b)
        same(apply("mul.rn.f32 {o}, {0}, {1};", a, b, out=np.float32), a * b)
        same(apply("div.rn.f32 {o}, {0}, {1};", a, b, out=np.float32), a / b)
        same(apply("sqrt.rn.f32 {o}, {0};", a, out=np.float32), np.sqrt(a))
    nan = apply("add.rn.f32 {o}, {0}, {1};", a, b, out=np.float32)
    assert set(nan.view(np.uint32)[np.isnan(nan)]) == {0x7FFFFFFF}
    got = apply("add.ftz.f32 {o}, {0}, {1};", a, b, out=np.float32)
    assert not ((np.abs(got) > 0) & (np.abs(got) < 2.0**-126)).any()
    got = apply("add.sat.f32 {o}, {0}, {1};", a, b, out=np.float32)
    with np.errstate(all="ignore"):
        assert (got == np.nan_to_num(np.clip(a + b, 0, 1), nan=0.0)).all()


def test_min_max_and_nan() -> None:
    a, b = np.repeat(SPECIAL32.view(np.float32), 17), np.tile(SPECIAL32.view(np.float32), 17)
    got = apply("max.f32 {o}, {0}, {1};", a, b, out=np.float32)
    assert np.array_equal(got, np.fmax(a, b), equal_nan=True)
    zero = apply("max.f32 {o}, {0}, {1};", np.float32([-0.0, 0.0]), np.float32([0.0, -0.0]), out=np.float32)
    assert not np.signbit(zero).any()
    zero = apply("min.f32 {o}, {0}, {1};", np.float32([-0.0, 0.0]), np.float32([0.0, -0.0]), out=np.float32)
    assert np.signbit(zero).all()
    assert np.array_equal(apply("min.NaN.f32 {o}, {0}, {1};", a, b, out=np.float32), np.minimum(a, b), equal_nan=True)
    got = apply("max.xorsign.abs.f32 {o}, {0}, {1};", np.float32([-2, 3]), np.float32([1, -5]), out=np.float32)
    assert got.tolist() == [-2.0, -5.0]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_half_precision_rounds_once(op: str, kind: str) -> None:
    a, b, c = small(1), small(2), small(3)
    sources = (a, b, c) if op == "fma" else (a, b)
    got = apply(f"{op}.rn.{kind} {{o}}, {', '.join(f'{{{i}}}' for i in range(len(sources)))};", *sources, out=np.uint16)
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    with np.errstate(invalid="ignore"):
        values, results = [s.view(dtype).astype(np.float64) for s in sources], got.view(dtype).astype(np.float64)
    checked = 0
    for args, out in zip(zip(*(v.tolist() for v in values), strict=False), results.tolist(), strict=False):
        if not all(math.isfinite(v) for v in args):
            continue
        e = [Fraction(v) for v in args]
        value = {"add": e[0] + e[1], "sub": e[0] - e[1], "mul": e[0] * e[1], "fma": e[0] * e[1] + e[-1]}[op]
        assert out == exact_round(value, floats.FORMATS[kind], "rn"), (op, args)
        checked += 1
    assert checked > 300


def test_packed_halves() -> None:
    a, b = small(4, 256), small(5, 256)
    for kind in ("f16", "bf16"):
        one = apply(f"add.rn.{kind} {{o}}, {{0}}, {{1}};", a, b, out=np.uint16)
        two = apply(f"add.rn.{kind}x2 {{o}}, {{0}}, {{1}};", a.view(np.uint32), b.view(np.uint32), out=np.uint32)
        assert (two.view(np.uint16) == one).all()
        two = apply(
            f"fma.rn.relu.{kind}x2 {{o}}, {{0}}, {{1}}, {{1}};", a.view(np.uint32), b.view(np.uint32), out=np.uint32
        )
        dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
        assert not (two.view(dtype).astype(np.float32) < 0).any()


@given(st.floats(width=64), st.floats(width=64), st.floats(width=64))
def test_f64_fma(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        got = float(floats.fma64(np.array([a]), np.array([b]), np.array([c]), "rn")[0])
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    want = exact_round(exact, floats.Format("f64", 64, 53, -1022, float.fromhex("0x1.fffffffffffffp1023")), "rn")
    assert got == want


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_f64_directed(mode: str) -> None:
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal(128), rng.standard_normal(128) * 10.0 ** rng.integers(-20, 20, 128)
    f64 = floats.Format("f64", 64, 53, -1022, float.fromhex("0x1.fffffffffffffp1023"))
    for op, fn in {"add": lambda x, y: x + y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y}.items():
        got = apply(f"{op}.{mode}.f64 {{o}}, {{0}}, {{1}};", a, b, out=np.float64)
        for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=False):
            assert z == exact_round(fn(Fraction(x), Fraction(y)), f64, mode)
    got = apply(f"sqrt.{mode}.f64 {{o}}, {{0}};", np.abs(a), out=np.float64)
    for x, z in zip(np.abs(a).tolist(), got.tolist(), strict=False):
        low, high = (z, math.nextafter(z, math.inf)) if mode != "rp" else (math.nextafter(z, 0), z)
        assert Fraction(low) ** 2 <= Fraction(x) <= Fraction(high) ** 2


@pytest.mark.parametrize(
    ("form", "fn", "bound"),
    [
        ("ex2.approx.ftz.f32", np.exp2, 2.0**-22), ("lg2.approx.ftz.f32", np.log2, 2.0**-22), ("rcp.approx.ftz.f32", lambda v: 1 / v, 2.0**-23),
        ("rsqrt.approx.f32", lambda v: 1 / np.sqrt(v), 2.0**-22), ("sqrt.approx.f32", np.sqrt, 2.0**-23), ("sin.approx.f32", np.sin, 2.0**-20),
        ("cos.approx.f32", np.cos, 2.0**-20), ("tanh.approx.f32", np.tanh, 2.0**-10),
    ],
)  # fmt: skip
def test_approximations_within_the_isa_bound(form: str, fn: object, bound: float) -> None:
    x = np.abs(singles(7, 256))
    x = np.where(np.isfinite(x) & (x > 1e-3) & (x < 3), x, np.float32(0.75))
    want = fn(x.astype(np.float64))  # type: ignore[operator]
    got = apply(form + " {o}, {0};", x, out=np.float32).astype(np.float64)
    assert (np.abs(got - want) <= bound * np.maximum(np.abs(want), 1)).all()


def test_comparisons_with_nan() -> None:
    a, b = np.repeat(SPECIAL32.view(np.float32), 17), np.tile(SPECIAL32.view(np.float32), 17)
    nan = np.isnan(a) | np.isnan(b)
    for op, ordered in {
        "eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b,
    }.items():  # fmt: skip
        assert (apply(f"setp.{op}.f32 {{o}}, {{0}}, {{1}};", a, b, out=np.bool_) == (ordered & ~nan)).all(), op
        assert (apply(f"setp.{op}u.f32 {{o}}, {{0}}, {{1}};", a, b, out=np.bool_) == (ordered | nan)).all(), op
    assert (apply("setp.nan.f32 {o}, {0}, {1};", a, b, out=np.bool_) == nan).all()
    assert (apply("setp.num.f32 {o}, {0}, {1};", a, b, out=np.bool_) == ~nan).all()


# -- conversions --------------------------------------------------------------------------------------------------


def test_f32_to_bf16_and_f16() -> None:
    x = singles(11)
    with np.errstate(all="ignore"):
        same(
            apply("cvt.rn.bf16.f32 {o}, {0};", x, out=np.uint16).view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16)
        )
        same(apply("cvt.rn.f16.f32 {o}, {0};", x, out=np.uint16).view(np.float16), x.astype(np.float16))
    for kind, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        got = apply(f"cvt.rz.{kind}.f32 {{o}}, {{0}};", x, out=np.uint16).view(dtype).astype(np.float64)
        for v, z in zip(x.tolist(), got.tolist(), strict=False):
            assert not math.isfinite(v) or z == exact_round(Fraction(v), floats.FORMATS[kind], "rz")
        raw = small(12)
        same(apply(f"cvt.f32.{kind} {{o}}, {{0}};", raw, out=np.float32), raw.view(dtype).astype(np.float32))
        pair = apply(f"cvt.rn.{kind}x2.f32 {{o}}, {{0}}, {{1}};", x, -x, out=np.uint32)
        one = apply(f"cvt.rn.{kind}.f32 {{o}}, {{0}};", x, out=np.uint16)
        assert (pair >> 16 == one).all()


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_fp8(kind: str) -> None:
    dtype = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
    x = np.concatenate(
        [singles(13), np.linspace(-600, 600, 512).astype(np.float32), np.linspace(-0.02, 0.02, 512).astype(np.float32)]
    )
    got = (apply(f"cvt.rn.satfinite.{kind}x2.f32 {{o}}, {{0}}, {{0}};", x, out=np.uint16) >> 8).astype(np.uint8)
    largest = float(ml_dtypes.finfo(dtype).max)
    want = np.where(np.isnan(x), x, np.clip(x, -largest, largest)).astype(dtype)
    assert (np.where(np.isnan(x), 0x7F, got & 0xFF) == np.where(np.isnan(x), 0x7F, want.view(np.uint8))).all()
    assert (got[np.isnan(x)] == 0x7F).all()
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(formats.decode(kind, codes), codes.view(dtype).astype(np.float64), equal_nan=True)
    packed = np.arange(0, 65536, 257, dtype=np.uint32).astype(np.uint16)
    wide = apply(f"cvt.rn.f16x2.{kind}x2 {{o}}, {{0}};", packed, out=np.uint32)
    want16 = codes.view(dtype).astype(np.float16)
    same((wide & 0xFFFF).astype(np.uint16).view(np.float16), want16)


def test_tf32() -> None:
    x = singles(14)
    got = apply("cvt.rna.tf32.f32 {o}, {0};", x, out=np.uint32)
    ok = np.isfinite(x) & (np.abs(x) < 1e38)
    want = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    assert (got[ok] == want[ok]).all()


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16", "u8"])
def test_float_to_int_clamps(kind: str) -> None:
    bits, x = (
        int(kind[1:]),
        np.concatenate([singles(15), np.float32([2.5, 3.5, -2.5, -0.5, 2**31, 2**63, 2**64, 255.7, 65535.5])]),
    )
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    for mode, fn in (("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)):
        out = {8: np.uint32, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
        got = apply(f"cvt.{mode}.{kind}.f32 {{o}}, {{0}};", x, out=out)
        for v, z in zip(x.tolist(), got.tolist(), strict=False):
            if math.isnan(v):
                want = 1 << 63 if bits == 64 else 0
            else:
                want = min(max(fn(v) if math.isfinite(v) else (high if v > 0 else low), low), high)
            assert z == want & ((1 << np.dtype(out).itemsize * 8) - 1), (mode, kind, v)


@pytest.mark.parametrize("kind", ["s64", "u64", "s32", "u32"])
def test_int_to_float(kind: str) -> None:
    rng = np.random.default_rng(16)
    x = rng.integers(0, 2**64, 256, dtype=np.uint64) >> rng.integers(0, 64, 256).astype(np.uint64)
    x = x if kind[1:] == "64" else x.astype(np.uint32)
    values = x.view(np.int64 if x.itemsize == 8 else np.int32) if kind[0] == "s" else x
    for mode in ("rn", "rz", "rm", "rp"):
        for out, dtype in (("f32", np.float32), ("f16", np.uint16)):
            got = apply(f"cvt.{mode}.{out}.{kind} {{o}}, {{0}};", x, out=dtype)
            got = got.view(np.float16) if out == "f16" else got
            for v, z in zip(values.tolist(), got.tolist(), strict=False):
                assert z == exact_round(Fraction(v), floats.FORMATS[out], mode)
    f64 = floats.Format("f64", 64, 53, -1022, 1e308)
    got = apply(f"cvt.rz.f64.{kind} {{o}}, {{0}};", x, out=np.float64)
    assert got.tolist() == [exact_round(Fraction(v), f64, "rz") for v in values.tolist()]


def test_integer_widths_and_saturation() -> None:
    x = np.random.default_rng(17).integers(0, 2**32, 64, dtype=np.uint32)
    s = x.view(np.int32)
    assert (apply("cvt.s32.s8 {o}, {0};", x, out=np.int32) == x.astype(np.uint8).view(np.int8)).all()
    assert (apply("cvt.s64.s32 {o}, {0};", x, out=np.int64) == s).all()
    assert (apply("cvt.u64.u32 {o}, {0};", x, out=np.uint64) == x).all()
    assert (apply("cvt.sat.s16.s32 {o}, {0};", x, out=np.int16) == np.clip(s, -32768, 32767)).all()
    assert (apply("cvt.sat.u32.s32 {o}, {0};", x, out=np.uint32) == np.maximum(s, 0)).all()
    assert (apply("cvt.rni.f32.f32 {o}, {0};", np.float32([0.5, 1.5, -2.5]), out=np.float32) == [0, 2, -2]).all()
