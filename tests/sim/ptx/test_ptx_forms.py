"""Rarer forms, one row each: the instruction, its sources, and what NumPy says of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from .programs import apply
from .test_ptx_float import SPECIAL32, same, singles, small
from .test_ptx_integer import longs, words

F32, U32, I32, U16, U64 = np.float32, np.uint32, np.int32, np.uint16, np.uint64


def i32(a: np.ndarray) -> np.ndarray:
    return a.view(np.int32).astype(np.int64)


def low32(a: Any) -> np.ndarray:
    return np.asarray(a).astype(np.int64).astype(np.uint32)


def flushed(a: np.ndarray) -> np.ndarray:
    return np.where(np.abs(a) < F32(2.0**-126), np.copysign(F32(0), a), a)


def ordered(fn: Any) -> Any:
    return lambda a, b: fn(a, b) & ~np.isnan(a) & ~np.isnan(b)


def half(raw: np.ndarray, kind: str = "f16") -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return raw.view(np.float16 if kind == "f16" else ml_dtypes.bfloat16).astype(np.float64)


def two32(count: int = 512) -> tuple[np.ndarray, np.ndarray]:
    return singles(21, count), singles(22, count)


INTEGER = [
    ("sad.s32 {o}, {0}, {1}, {2};", 3, lambda a, b, c: low32(np.abs(i32(a) - i32(b)) + i32(c))),
    ("sad.u32 {o}, {0}, {1}, {2};", 3, lambda a, b, c: low32(np.abs(a.astype(np.int64) - b) + c)),
    ("mad.lo.s32 {o}, {0}, {1}, {2};", 3, lambda a, b, c: a * b + c),
    ("mad.hi.u32 {o}, {0}, {1}, {2};", 3, lambda a, b, c: low32((a.astype(U64) * b >> U64(32)) + c)),
    ("mul24.lo.u32 {o}, {0}, {1};", 2, lambda a, b: low32((a & U32(0xFFFFFF)).astype(U64) * (b & U32(0xFFFFFF)) & U64(0xFFFFFFFF))),
    ("mul24.hi.s32 {o}, {0}, {1};", 2, lambda a, b: low32((i32(a << U32(8)) >> 8) * (i32(b << U32(8)) >> 8) >> 16)),
    ("add.sat.s32 {o}, {0}, {1};", 2, lambda a, b: low32(np.clip(i32(a) + i32(b), -(2**31), 2**31 - 1))),
    ("sub.sat.s32 {o}, {0}, {1};", 2, lambda a, b: low32(np.clip(i32(a) - i32(b), -(2**31), 2**31 - 1))),
    ("abs.s32 {o}, {0};", 1, lambda a: low32(np.abs(i32(a)))),
    ("neg.s32 {o}, {0};", 1, lambda a: low32(-i32(a))),
    ("not.b32 {o}, {0};", 1, lambda a: ~a),
    ("cnot.b32 {o}, {0};", 1, lambda a: (a == 0).astype(U32)),
    ("max.relu.s32 {o}, {0}, {1};", 2, lambda a, b: low32(np.maximum(np.maximum(i32(a), i32(b)), 0))),
    ("bmsk.clamp.b32 {o}, {0}, 5;", 1, lambda a: low32((1 << np.int64(5)) - 1 << np.minimum(a, 32).astype(np.int64))),
    ("bfind.s32 {o}, {0};", 1, lambda a: low32([(x if x >= 0 else ~x).bit_length() - 1 for x in i32(a).tolist()])),
    ("bfind.shiftamt.u32 {o}, {0};", 1, lambda a: low32([32 - x.bit_length() if x else -1 for x in a.tolist()])),
    ("dp2a.lo.u32.s32 {o}, {0}, {1}, {2};", 3, lambda a, b, c: low32([
        z + (x & 0xFFFF) * ((y & 255) - (y & 128) * 2) + (x >> 16) * ((y >> 8 & 255) - (y >> 8 & 128) * 2)
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])),
]  # fmt: skip


@pytest.mark.parametrize(("form", "count", "reference"), INTEGER, ids=[row[0].split(" ")[0] for row in INTEGER])
def test_integer_forms(form: str, count: int, reference: Any) -> None:
    sources = [words(40 + i) for i in range(count)]
    with np.errstate(over="ignore"):
        want = reference(*sources)
    assert (apply(form, *sources, out=U32) == want).all()


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_f32_flush_and_saturate(op: str) -> None:
    a, b = np.repeat(SPECIAL32.view(F32), 17), np.tile(SPECIAL32.view(F32), 17)
    fn = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
    with np.errstate(all="ignore"):
        want = flushed(fn(flushed(a), flushed(b)))
        same(apply(f"{op}.rn.ftz.f32 {{o}}, {{0}}, {{1}};", a, b, out=F32), want)
        clipped = np.where(fn(a, b) > 0, np.minimum(fn(a, b), F32(1)), F32(0))
        same(apply(f"{op}.rn.sat.f32 {{o}}, {{0}}, {{1}};", a, b, out=F32), clipped)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["min", "max", "min.NaN", "max.NaN"])
def test_half_min_max(op: str, kind: str) -> None:
    a, b = small(23), small(24)
    got = half(apply(f"{op}.{kind} {{o}}, {{0}}, {{1}};", a, b, out=U16), kind)
    table = {"min": np.fmin, "max": np.fmax, "min.NaN": np.minimum, "max.NaN": np.maximum}
    assert np.array_equal(got, table[op](half(a, kind), half(b, kind)), equal_nan=True)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_neg_abs_and_compare(kind: str) -> None:
    a, b = small(25), small(26)
    number = ~np.isnan(half(a, kind))
    got = apply(f"neg.{kind} {{o}}, {{0}};", a, out=U16)
    assert (got[number] == a[number] ^ 0x8000).all()
    got = apply(f"abs.{kind} {{o}}, {{0}};", a, out=U16)
    assert (got[number] == a[number] & 0x7FFF).all()
    va, vb = half(a, kind), half(b, kind)
    assert (apply(f"setp.lt.{kind} {{o}}, {{0}}, {{1}};", a, b, out=np.bool_) == ordered(np.less)(va, vb)).all()
    assert (apply(f"setp.neu.{kind} {{o}}, {{0}}, {{1}};", a, b, out=np.bool_) == (va != vb)).all()
    packed = apply(f"setp.gt.{kind}x2 p38|{{o}}, {{0}}, {{1}};", a.view(U32), b.view(U32), out=np.bool_)
    assert (packed == ordered(np.greater)(va, vb)[1::2]).all()


def test_set_writes_words_and_floats() -> None:
    a, b = two32()
    less = ordered(np.less)(a, b)
    assert (apply("set.lt.u32.f32 {o}, {0}, {1};", a, b, out=U32) == np.where(less, 0xFFFFFFFF, 0)).all()
    assert (apply("set.lt.f32.f32 {o}, {0}, {1};", a, b, out=F32) == less).all()


def test_testp_and_copysign() -> None:
    a, b = two32()
    size = np.abs(a)
    cases = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a), "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & ((size >= 2.0**-126) | (size == 0)), "subnormal": (size > 0) & (size < 2.0**-126),
    }  # fmt: skip
    for name, want in cases.items():
        assert (apply(f"testp.{name}.f32 {{o}}, {{0}};", a, out=np.bool_) == want).all(), name
    number = ~np.isnan(b)
    got = apply("copysign.f32 {o}, {0}, {1};", a, b, out=F32)
    assert (got.view(U32)[number] == np.copysign(b, a).view(U32)[number]).all()


@pytest.mark.parametrize(
    ("kind", "largest"), [("f16", 65504.0), ("bf16", float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))]
)
def test_convert_with_relu_and_satfinite(kind: str, largest: float) -> None:
    x = singles(27)
    with np.errstate(all="ignore"):
        got = half(apply(f"cvt.rn.relu.{kind}.f32 {{o}}, {{0}};", x, out=U16), kind)
        want = half(x.astype(np.float16 if kind == "f16" else ml_dtypes.bfloat16).view(U16), kind)
        assert np.array_equal(got, np.where(want > 0, want, np.where(np.isnan(want), want, 0.0)), equal_nan=True)
        if kind == "f16":
            got = half(apply("cvt.rn.satfinite.f16.f32 {o}, {0};", x, out=U16))
            assert np.array_equal(got, np.clip(want, -largest, largest), equal_nan=True)


def test_convert_f64() -> None:
    x = np.random.default_rng(28).integers(0, 2**64, 256, dtype=U64).view(np.float64)
    x[:128] = np.random.default_rng(29).standard_normal(128)
    with np.errstate(all="ignore"):
        same(apply("cvt.rn.f32.f64 {o}, {0};", x, out=F32), x.astype(F32))
        same(apply("cvt.rn.f16.f64 {o}, {0};", x, out=U16).view(np.float16), x.astype(np.float16))
    y = singles(30)
    same(apply("cvt.f64.f32 {o}, {0};", y, out=np.float64), y.astype(np.float64))
    got = apply("cvt.rzi.s32.f64 {o}, {0};", x, out=I32)
    inside = np.isfinite(x)
    assert (got[inside] == np.trunc(np.clip(x[inside], -(2.0**31), 2.0**31 - 1))).all()
    assert (got[np.isnan(x)] == -(2**31)).all()


def test_convert_sat_and_flush() -> None:
    x = singles(31)
    want = np.where(x > 0, np.minimum(x, F32(1)), F32(0))
    same(apply("cvt.sat.f32.f32 {o}, {0};", x, out=F32), want)
    number = ~np.isnan(x)
    assert (apply("cvt.ftz.f32.f32 {o}, {0};", x, out=F32)[number] == flushed(x)[number]).all()


def test_fp8_from_halves_and_relu() -> None:
    raw = np.arange(0, 65536, 7, dtype=np.uint32).astype(U16)
    raw = raw[np.isfinite(half(raw))]
    raw = raw[: len(raw) // 2 * 2]
    for kind, dtype in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        largest = float(ml_dtypes.finfo(dtype).max)
        got = apply(f"cvt.rn.satfinite.{kind}x2.f16x2 {{o}}, {{0}};", raw.view(U32), out=U16).view(np.uint8)
        want = np.clip(raw.view(np.float16).astype(F32), -largest, largest).astype(dtype).view(np.uint8)
        assert (got == want).all()
        got = apply(f"cvt.rn.satfinite.relu.{kind}x2.f16x2 {{o}}, {{0}};", raw.view(U32), out=U16).view(np.uint8)
        assert (got == np.where(want & 0x80, 0, want)).all()


def test_wide_moves_and_64_bit_selects() -> None:
    a, b = longs(32), longs(33)
    p = (a & U64(1)).astype(np.bool_)
    assert (apply("selp.b64 {o}, {0}, {1}, {2};", a, b, p, out=U64) == np.where(p, a, b)).all()
    assert (apply("mov.b64 {{r38, {o}}}, {0};", a, out=U32) == (a >> U64(32)).astype(U32)).all()
    assert (apply("mad.wide.u32 {o}, r0, 3, {0};", a, out=U64) == a + np.arange(len(a), dtype=U64) * U64(3)).all()
    assert (apply("add.s64 {o}, {0}, -7;", a, out=U64) == a - U64(7)).all()
