"""Conversions, checked against rounding written down here from the formats alone: exhaustive where 2^16 inputs cover the type."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import DTYPES, INTS, Run, array, data, each, empty, exact, is_float, wide, zoo

ML_TYPES = {
    "i8": ml.int8,
    "i16": ml.int16,
    "i32": ml.int32,
    "i64": ml.int64,
    "u8": ml.uint8,
    "u16": ml.uint16,
    "u32": ml.uint32,
    "u64": ml.uint64,
    "f16": ml.float16,
    "bf16": ml.bfloat16,
    "f32": ml.float32,
    "f64": ml.float64,
    "e4m3": ml.float8e4nv,
    "e5m2": ml.float8e5,
    "e4m3z": ml.float8e4b8,
    "e5m2z": ml.float8e5b16,
}
SMALL = ("e4m3", "e5m2", "e4m3z", "e5m2z")
# exponent bits, mantissa bits, whether the top exponent holds numbers (e4m3: all but the last code). In those that end in z a code stands for half
# as much, NaN is where -0 would be, and every other code is a number.
_FORMAT = {
    "f16": (5, 10, False),
    "bf16": (8, 7, False),
    "f32": (8, 23, False),
    "e4m3": (4, 3, True),
    "e5m2": (5, 2, False),
    "e4m3z": (4, 3, True),
    "e5m2z": (5, 2, True),
}


def decode(codes: Any, fmt: str) -> Any:
    """float64 values of the codes of a format."""
    e_bits, m_bits, dense = _FORMAT[fmt]
    codes = np.asarray(codes, np.int64)
    sign = np.where(codes >> (e_bits + m_bits) & 1, -1.0, 1.0)
    e = codes >> m_bits & (1 << e_bits) - 1
    m = codes & (1 << m_bits) - 1
    fnuz = fmt.endswith("z")
    bias = (1 << e_bits - 1) - (not fnuz)
    normal = np.ldexp(1.0 + m / (1 << m_bits), e - bias)
    value = np.where(e == 0, np.ldexp(m / (1 << m_bits), 1 - bias), normal)
    top = e == (1 << e_bits) - 1
    if fnuz:
        value = np.where(codes & 0xFF == 0x80, np.nan, value)
    elif dense:
        value = np.where(top & (m == (1 << m_bits) - 1), np.nan, value)
    else:
        value = np.where(top, np.where(m == 0, np.inf, np.nan), value)
    return sign * value


def encode(values: Any, fmt: str, *, toward_zero: bool = False) -> Any:
    """Codes of float64 values in a format of at most 16 bits: nearest even or toward zero; 8-bit formats saturate."""
    e_bits, m_bits, _ = _FORMAT[fmt]
    sign_bit = 1 << (e_bits + m_bits)
    table = decode(np.arange(sign_bit), fmt)
    table = table[np.isfinite(table)]  # ascending, code = position
    size = np.abs(values)
    low = np.clip(np.searchsorted(table, size, side="right") - 1, 0, len(table) - 1)
    high = np.minimum(low + 1, len(table) - 1)
    middle = (table[low] + table[high]) / 2
    up = (size > middle) | ((size == middle) & (low % 2 == 1))
    code = np.where(up & (not toward_zero), high, low)
    largest = len(table) - 1
    if fmt not in SMALL:
        step = table[largest] - table[largest - 1]
        over = np.isinf(values) | ((size >= table[largest] + step / 2) & (not toward_zero))
        code = np.where(over, largest + 1, code)
    code = np.where(np.isnan(values), sign_bit if fmt.endswith("z") else sign_bit - 1, code)
    signed = np.signbit(values) & ~np.isnan(values) & ~((code == 0) & fmt.endswith("z"))
    return np.where(signed, code | sign_bit, code)


def from_codes(codes: Any, fmt: str) -> Any:
    """An array of the format with these codes."""
    d = DTYPES[fmt]
    return np.asarray(codes).astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[d.itemsize]).view(d)


@mimw.kernel
def convert(x_ptr, out_ptr, n, TO: ml.constexpr, ROUNDING: ml.constexpr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    ml.store(out_ptr + offs, x.to(TO, fp_downcast_rounding=ROUNDING), mask=mask)


def _convert(x: Any, want: Any, to: str, rounding: str | None = None, block: int = 1024) -> Run:
    out = empty(x.shape, to)
    constants = {"TO": ML_TYPES[to], "ROUNDING": rounding, "BLOCK": block}
    return Run(convert, (mimw.cdiv(x.size, block),), (x, out, x.size), [(out, exact(want))], constants)


@zoo(
    *[{"fmt": f, "rounding": r, "to": t} for t in SMALL for f in ("f16", "bf16") for r in (None, "rtz")],
    sm80=True,
)
def to_fp8_exhaustive_case(rng: Any, fmt: str, rounding: str | None, to: str) -> Run:
    codes = np.arange(1 << 16)
    x = array(from_codes(codes, fmt), fmt)
    return _convert(
        x, from_codes(encode(decode(codes, fmt), to, toward_zero=rounding == "rtz"), to), to, rounding, 4096
    )


@zoo(*[{"fmt": f, "to": t} for f in SMALL for t in ("f16", "bf16", "f32")], sm80=True)
def from_fp8_exhaustive_case(rng: Any, fmt: str, to: str) -> Run:
    codes = np.arange(256)
    return _convert(array(from_codes(codes, fmt), fmt), decode(codes, fmt), to, block=256)


@zoo(*[{"fmt": f, "to": t} for f in SMALL for t in SMALL if f != t], sm80=True)
def between_fp8_exhaustive_case(rng: Any, fmt: str, to: str) -> Run:
    codes = np.arange(256)
    return _convert(array(from_codes(codes, fmt), fmt), from_codes(encode(decode(codes, fmt), to), to), to, block=256)


@zoo(*[{"fmt": f, "to": t} for f, t in (("f16", "bf16"), ("bf16", "f16"), ("f16", "f32"), ("bf16", "f32"))])
def halves_exhaustive_case(rng: Any, fmt: str, to: str) -> Run:
    codes = np.arange(1 << 16)
    value = decode(codes, fmt)
    want = value if to == "f32" else from_codes(encode(value, to), to)
    return _convert(array(from_codes(codes, fmt), fmt), want, to, block=4096)


@zoo(*[{"to": t, "rounding": r} for t in (*SMALL, "bf16", "f16") for r in (None, "rtz")], sm80=True)
def narrow_f32_case(rng: Any, to: str, rounding: str | None) -> Run:
    # Ties between neighbours, and what lies one f32 step beside them: where rounding twice goes wrong.
    table = decode(np.arange(1 << (7 if to.startswith("e") else 15)), to)
    table = table[np.isfinite(table)]
    ties = ((table[:-1] + table[1:]) / 2).astype(np.float32)
    if len(ties) > 1000:
        ties = rng.choice(ties, 1000)
    around = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    special = np.array(
        [0.0, np.inf, np.nan, 1e30, 1e-30, 3.4e38, 2.0**-149, 448.0, 464.0, 465.0, 57344.0, 61440.0, 65519.0, 65520.0],
        np.float32,
    )
    x = np.concatenate([*around, special, rng.standard_normal(100).astype(np.float32)])
    x = np.concatenate([x, -x])
    want = from_codes(encode(x.astype(np.float64), to, toward_zero=rounding == "rtz"), to)
    return _convert(array(x, "f32"), want, to, rounding)


@mimw.kernel
def convert_integers(x_ptr, out_ptr, n, TO: ml.constexpr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    ml.store(out_ptr + offs, ml.cast(ml.load(x_ptr + offs, mask=mask), TO), mask=mask)


PAIRS = [(a, b) for a in INTS for b in INTS if a != b]


@zoo(*[{"fmt": a, "to": b} for a, b in PAIRS[::3]])
def integers_case(rng: Any, fmt: str, to: str) -> Run:
    n = 100
    x, out = data(rng, n, fmt), empty(n, to)
    constants = {"TO": ML_TYPES[to], "BLOCK": 64}
    return Run(convert_integers, (2,), (x, out, n), [(out, exact(x.astype(DTYPES[to])))], constants)


@mimw.kernel
def float_to_integer(x_ptr, out_ptr, n, TO: ml.constexpr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    ml.store(out_ptr + offs, ml.load(x_ptr + offs, mask=mask).to(TO), mask=mask)


@zoo(
    *[
        {"fmt": a, "to": b}
        for a, b in (
            ("f32", "i32"),
            ("f16", "i8"),
            ("f64", "u64"),
            ("bf16", "u16"),
            ("f32", "u8"),
            ("f32", "i64"),
            ("f64", "i32"),
            ("f16", "u32"),
            ("f32", "i16"),
        )
    ]
)
def float_to_integer_case(rng: Any, fmt: str, to: str) -> Run:
    info = np.iinfo(DTYPES[to])
    values = [
        0.0,
        -0.0,
        0.9,
        -0.9,
        1.5,
        -1.5,
        100.7,
        -100.7,
        np.inf,
        -np.inf,
        np.nan,
        1e9,
        -1e9,
        float(info.max),
        float(info.min),
    ]
    with np.errstate(all="ignore"):
        x = array(np.concatenate([values, rng.standard_normal(50) * 60]), fmt)
    want = [
        0
        if np.isnan(v)
        else min(max(int(v), info.min), info.max)
        if np.isfinite(v)
        else (info.max if v > 0 else info.min)
        for v in wide(x)
    ]
    out = empty(x.size, to)
    constants = {"TO": ML_TYPES[to], "BLOCK": 64}
    return Run(
        float_to_integer,
        (mimw.cdiv(x.size, 64),),
        (x, out, x.size),
        [(out, exact(np.array(want, DTYPES[to])))],
        constants,
    )


@mimw.kernel
def integer_to_float(x_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    ml.store(out_ptr + offs, ml.load(x_ptr + offs, mask=mask).to(out_ptr.dtype.element_ty), mask=mask)


@zoo(
    *[
        {"fmt": a, "to": b}
        for a, b in (
            ("i32", "f32"),
            ("i64", "f32"),
            ("u64", "f64"),
            ("i8", "f16"),
            ("u32", "bf16"),
            ("i64", "bf16"),
            ("i16", "e5m2"),
            ("u8", "e4m3"),
            ("i64", "e4m3z"),
            ("i32", "e5m2z"),
            ("i32", "f16"),
            ("u64", "f32"),
        )
    ]
)
def integer_to_float_case(rng: Any, fmt: str, to: str) -> Run:
    n = 200
    x, out = data(rng, n, fmt), empty(n, to)
    x[:6] = [0, 1, np.iinfo(x.dtype).max, np.iinfo(x.dtype).min, 65, 127]
    if to in ("f32", "f64"):
        want = x.astype(DTYPES[to])
    else:
        # One rounding of the exact integer: float64 holds those up to 2^53, of larger ones the cut bits only break ties.
        jam = [
            float(int(v)) if abs(int(v)) < 2**53 else float(int(v) >> 12 << 12 | (int(v) & 4095 != 0) << 12) for v in x
        ]
        want = from_codes(encode(np.array(jam), to), to)
    return Run(integer_to_float, (2,), (x, out, n), [(out, exact(want))], {"BLOCK": 128})


@mimw.kernel
def bitcasts(x_ptr, out_ptr, back_ptr, n, TO: ml.constexpr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    bits = x.to(TO, bitcast=True)
    ml.store(out_ptr + offs, bits, mask=mask)
    ml.store(back_ptr + offs, bits.to(x.dtype, bitcast=True), mask=mask)


@zoo(
    *[
        {"fmt": a, "to": b}
        for a, b in (
            ("f32", "i32"),
            ("bf16", "u16"),
            ("f64", "u64"),
            ("e4m3", "u8"),
            ("f16", "bf16"),
            ("e5m2", "i8"),
            ("e4m3z", "i8"),
        )
    ]
)
def bitcasts_case(rng: Any, fmt: str, to: str) -> Run:
    n = 130
    x = data(rng, n, fmt)
    out, back = empty(n, to), empty(n, fmt)
    outputs = [(out, exact(x.view(DTYPES[to]))), (back, exact(np.array(x)))]
    return Run(bitcasts, (2,), (x, out, back, n), outputs, {"TO": ML_TYPES[to], "BLOCK": 96})


@mimw.kernel
def to_bool(x_ptr, out_ptr, count_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    b = ml.load(x_ptr + offs).to(ml.int1)
    ml.store(out_ptr + offs, b)
    ml.store(count_ptr, ml.sum(b.to(ml.int32), axis=0))


@zoo(*each("fmt", ("f32", "i8", "i64", "bf16", "bool")))
def to_bool_case(rng: Any, fmt: str) -> Run:
    n = 64
    if is_float(fmt):
        x = array(rng.choice([0.0, -0.0, 1.0, 0.25, np.nan, np.inf], n), fmt)
    else:
        x = array(rng.choice([0, 1], n), fmt)
    want = wide(x) != 0
    out, count = empty(n, "bool"), empty(1, "i32")
    return Run(to_bool, (1,), (x, out, count), [(out, exact(want)), (count, exact([want.sum()]))], {"BLOCK": n})


@zoo(*each("to", ("f32", "f16", "bf16")))
def from_f64_case(rng: Any, to: str) -> Run:
    # Half a unit plus a little that f32 does not see: rounding through f32 would tie.
    base = rng.integers(1, 1 << 10, 200) * 2.0
    unit = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[to]
    x = (1 + np.round(base % 64) * unit / 2 + rng.choice([0, 2.0**-45, -(2.0**-45)], 200)) * 2.0 ** rng.integers(
        -8, 8, 200
    )
    want = x.astype(np.float32) if to == "f32" else from_codes(encode(x, to), to)
    return _convert(array(x, "f64"), want, to, block=256)
