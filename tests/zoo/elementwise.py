"""One op an element: arithmetic of all dtypes, comparisons, select, NaN rules, division, shifts, functions."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from tests.zoo.registry import (
    DTYPES,
    FLOATS,
    INTS,
    Run,
    array,
    data,
    each,
    empty,
    exact,
    is_float,
    near,
    randoms,
    sizes,
    wide,
    zoo,
)

BLOCK = 128


def grid_of(n: int, block: int = BLOCK) -> tuple[int, ...]:
    return (mimw.cdiv(n, block),)


def rounded(value: Any, dtype: str) -> Any:
    """float64 values in `dtype`, as if computed there (f16 and bf16 through one f32 rounding, which is innocuous for one + - * /)."""
    with np.errstate(all="ignore"):
        return (
            value.astype(DTYPES[dtype]) if dtype in ("f32", "f64") else value.astype(np.float32).astype(DTYPES[dtype])
        )


@mimw.kernel
def arithmetic(x_ptr, y_ptr, add_ptr, sub_ptr, mul_ptr, neg_ptr, abs_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    y = ml.load(y_ptr + offs, mask=mask)
    ml.store(add_ptr + offs, x + y, mask=mask)
    ml.store(sub_ptr + offs, x - y, mask=mask)
    ml.store(mul_ptr + offs, x * y, mask=mask)
    ml.store(neg_ptr + offs, -x, mask=mask)
    ml.store(abs_ptr + offs, ml.abs(x), mask=mask)


@zoo(
    *each("dtype", (*FLOATS, *INTS), n=200),
    {"dtype": "f32", "n": 1},
    {"dtype": "f16", "n": 1000},
    {"dtype": "i8", "n": 33},
    sm80=True,
)
def arithmetic_case(rng: Any, dtype: str, n: int) -> Run:
    x, y = data(rng, n, dtype), data(rng, n, dtype)
    outs = [empty(n, dtype) for _ in range(5)]
    if is_float(dtype):
        a, b = wide(x), wide(y)
        want = [rounded(v, dtype) for v in (a + b, a - b, a * b, -a, np.abs(a))]
    else:
        with np.errstate(all="ignore"):
            want = [x + y, x - y, x * y, np.negative(x), np.abs(x)]
    return Run(
        arithmetic,
        grid_of(n),
        (x, y, *outs, n),
        [(o, exact(w)) for o, w in zip(outs, want, strict=True)],
        {"BLOCK": BLOCK},
    )


@mimw.kernel
def odd_block(x_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.load(x_ptr + offs) * 2 + 1)


@zoo(*[{"block": b, "dtype": d} for b in (1, 3, 31, 33, 96, 127, 176, 192, 1000) for d in ("i32", "i16")], sm80=True)
def odd_block_case(rng: Any, block: int, dtype: str) -> Run:
    x, out = data(rng, 2 * block, dtype), empty(2 * block, dtype)
    with np.errstate(all="ignore"):
        return Run(odd_block, (2,), (x, out), [(out, exact(x * x.dtype.type(2) + x.dtype.type(1)))], {"BLOCK": block})


@mimw.kernel
def bitwise(x_ptr, y_ptr, and_ptr, or_ptr, xor_ptr, not_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    y = ml.load(y_ptr + offs, mask=mask)
    ml.store(and_ptr + offs, x & y, mask=mask)
    ml.store(or_ptr + offs, x | y, mask=mask)
    ml.store(xor_ptr + offs, x ^ y, mask=mask)
    ml.store(not_ptr + offs, ~x, mask=mask)


@zoo(*each("dtype", ("bool", *INTS), n=150))
def bitwise_case(rng: Any, dtype: str, n: int) -> Run:
    x, y = data(rng, n, dtype), data(rng, n, dtype)
    outs = [empty(n, dtype) for _ in range(4)]
    want = [x & y, x | y, x ^ y, ~x]
    return Run(
        bitwise,
        grid_of(n),
        (x, y, *outs, n),
        [(o, exact(w)) for o, w in zip(outs, want, strict=True)],
        {"BLOCK": BLOCK},
    )


@mimw.kernel
def shifts(x_ptr, count_ptr, left_ptr, right_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    count = ml.load(count_ptr + offs)
    ml.store(left_ptr + offs, x << count)
    ml.store(right_ptr + offs, x >> count)


@zoo(*each("dtype", INTS, n=96))
def shifts_case(rng: Any, dtype: str, n: int) -> Run:
    bits = DTYPES[dtype].itemsize * 8
    x = data(rng, n, dtype)
    count = array(np.arange(n) % (bits + 3), dtype)
    left, right = empty(n, dtype), empty(n, dtype)
    want_left = [int(v) << int(c) & (1 << bits) - 1 if c < bits else 0 for v, c in zip(x, count, strict=True)]
    want_right = [int(v) >> int(c) for v, c in zip(x, count, strict=True)]
    unsigned = np.array(want_left, f"uint{bits}").view(DTYPES[dtype])
    return Run(
        shifts,
        (1,),
        (x, count, left, right),
        [(left, exact(unsigned)), (right, exact(np.array(want_right, DTYPES[dtype])))],
        {"BLOCK": n},
    )


@mimw.kernel
def integer_division(x_ptr, y_ptr, div_ptr, rem_ptr, cdiv_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask, other=1)
    y = ml.load(y_ptr + offs, mask=mask, other=1)
    ml.store(div_ptr + offs, x // y, mask=mask)
    ml.store(rem_ptr + offs, x % y, mask=mask)
    ml.store(cdiv_ptr + offs, x // 7 + x % 7, mask=mask)


def truncated(a: int, b: int) -> tuple[int, int]:
    q = abs(a) // abs(b)
    q = q if (a < 0) == (b < 0) else -q
    return q, a - b * q


@zoo(*each("dtype", INTS, n=169))
def integer_division_case(rng: Any, dtype: str, n: int) -> Run:
    info = np.iinfo(DTYPES[dtype])
    edge = [v for v in (0, 1, 2, 3, 7, -1, -2, -3, -7, info.max, info.max - 1, info.min, info.min + 1) if info.min <= v]
    pairs = [(a, b) for a in edge for b in edge if b and not (a == info.min and b == -1)]
    pairs += [(int(a), int(b)) for a, b in zip(randoms(rng, n, dtype), randoms(rng, n, dtype), strict=True) if b]
    pairs = [p for p in pairs if not (p[0] == info.min and p[1] == -1)]
    n = len(pairs)
    x, y = (np.array([p[i] for p in pairs], DTYPES[dtype]) for i in (0, 1))
    outs = [empty(n, dtype) for _ in range(3)]
    both = [truncated(a, b) for a, b in pairs]
    sevens = [truncated(a, 7) for a, _ in pairs]
    want = [[q for q, _ in both], [r for _, r in both], [q + r for q, r in sevens]]
    with np.errstate(all="ignore"):
        outputs = [(o, exact(np.array(w, object).astype(DTYPES[dtype]))) for o, w in zip(outs, want, strict=True)]
    return Run(integer_division, grid_of(n), (array(x, dtype), array(y, dtype), *outs, n), outputs, {"BLOCK": BLOCK})


@mimw.kernel
def division_of_constants(out_ptr, x, y, A: ml.constexpr, B: ml.constexpr):
    # Between constants // and % floor, as Python's; at run time they truncate.
    ml.store(out_ptr + 0, A // B)
    ml.store(out_ptr + 1, A % B)
    ml.store(out_ptr + 2, x // y)
    ml.store(out_ptr + 3, x % y)
    ml.store(out_ptr + 4, ml.cdiv(A, B))


@zoo(*[{"a": a, "b": b} for a in (7, -7, 8) for b in (3, -3, 2)])
def division_of_constants_case(rng: Any, a: int, b: int) -> Run:
    out = empty(5, "i32")
    q, r = truncated(a, b)
    want = np.array([a // b, a % b, q, r, -(-a // b)], np.int32)
    return Run(division_of_constants, (1,), (out, a, b), [(out, exact(want))], {"A": a, "B": b})


@mimw.kernel
def float_division(x_ptr, y_ptr, fast_ptr, exact_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask, other=1.0)
    y = ml.load(y_ptr + offs, mask=mask, other=1.0)
    ml.store(fast_ptr + offs, x / y, mask=mask)
    ml.store(exact_ptr + offs, ml.div_rn(x, y), mask=mask)


@zoo(*each("dtype", ("f32", "f64"), n=333))
def float_division_case(rng: Any, dtype: str, n: int) -> Run:
    x, y = data(rng, n, dtype), data(rng, n, dtype)
    fast, right = empty(n, dtype), empty(n, dtype)
    q = wide(x) / wide(y)
    return Run(
        float_division,
        grid_of(n),
        (x, y, fast, right, n),
        [(fast, near(q, 2.5) if dtype == "f32" else exact(q)), (right, exact(q))],
        {"BLOCK": BLOCK},
    )


@mimw.kernel
def float_remainder(x_ptr, y_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.load(x_ptr + offs) % ml.load(y_ptr + offs))


@zoo(*each("dtype", ("f32", "f64"), n=64))
def float_remainder_case(rng: Any, dtype: str, n: int) -> Run:
    # Multiples of 1/8 and small quotients: fmod is exact then whatever the method.
    x = array(rng.integers(-400, 400, n) / 8, dtype)
    y = array(rng.choice([-3.0, -1.5, 0.5, 0.75, 2.0, 7.0], n), dtype)
    out = empty(n, dtype)
    return Run(float_remainder, (1,), (x, y, out), [(out, exact(np.fmod(wide(x), wide(y))))], {"BLOCK": n})


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 65504.0, 2.0**-14, 3.5]


@mimw.kernel
def nan_rules(x_ptr, y_ptr, max_ptr, min_ptr, max_all_ptr, min_all_ptr, clamp_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    y = ml.load(y_ptr + offs)
    ml.store(max_ptr + offs, ml.maximum(x, y))
    ml.store(min_ptr + offs, ml.minimum(x, y))
    ml.store(max_all_ptr + offs, ml.maximum(x, y, propagate_nan=ml.PropagateNan.ALL))
    ml.store(min_all_ptr + offs, ml.minimum(x, y, propagate_nan=ml.PropagateNan.ALL))
    ml.store(clamp_ptr + offs, ml.clamp(x, -1.0, 1.0))


@zoo(*each("dtype", FLOATS))
def nan_rules_case(rng: Any, dtype: str) -> Run:
    values = [v for v in SPECIAL if v != 0 or not np.signbit(v)]
    pairs = [(a, b) for a in values for b in values]
    x, y = (array([p[i] for p in pairs], dtype) for i in (0, 1))
    n = len(pairs)
    outs = [empty(n, dtype) for _ in range(5)]
    a, b = wide(x), wide(y)
    want = [np.fmax(a, b), np.fmin(a, b), np.maximum(a, b), np.minimum(a, b), np.fmin(np.fmax(a, -1.0), 1.0)]
    return Run(nan_rules, (1,), (x, y, *outs), [(o, exact(w)) for o, w in zip(outs, want, strict=True)], {"BLOCK": n})


@mimw.kernel
def integer_min_max(x_ptr, y_ptr, max_ptr, min_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    y = ml.load(y_ptr + offs, mask=mask)
    ml.store(max_ptr + offs, ml.maximum(x, y), mask=mask)
    ml.store(min_ptr + offs, ml.minimum(x, y), mask=mask)


@zoo(*each("dtype", INTS, n=131))
def integer_min_max_case(rng: Any, dtype: str, n: int) -> Run:
    x, y, hi, lo = data(rng, n, dtype), data(rng, n, dtype), empty(n, dtype), empty(n, dtype)
    outputs = [(hi, exact(np.maximum(x, y))), (lo, exact(np.minimum(x, y)))]
    return Run(integer_min_max, grid_of(n), (x, y, hi, lo, n), outputs, {"BLOCK": BLOCK})


@mimw.kernel
def comparisons(x_ptr, y_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    y = ml.load(y_ptr + offs)
    ml.store(out_ptr + offs, x < y)
    ml.store(out_ptr + BLOCK + offs, x <= y)
    ml.store(out_ptr + 2 * BLOCK + offs, x > y)
    ml.store(out_ptr + 3 * BLOCK + offs, x >= y)
    ml.store(out_ptr + 4 * BLOCK + offs, x == y)
    ml.store(out_ptr + 5 * BLOCK + offs, x != y)


@zoo(*each("dtype", ("f32", "i8", "u64", "bf16", "f16", "f64", "i16", "i32", "i64", "u8", "u16", "u32")))
def comparisons_case(rng: Any, dtype: str) -> Run:
    if is_float(dtype):
        values: list[Any] = SPECIAL
    else:
        info = np.iinfo(DTYPES[dtype])
        values = sorted({0, 1, info.max, info.min, info.max // 2 + 1, 100, info.min // 2})
    pairs = [(a, b) for a in values for b in values]
    x, y = (array(np.array([p[i] for p in pairs], DTYPES[dtype]), dtype) for i in (0, 1))
    n = len(pairs)
    out = empty((6, n), "bool")
    a, b = (wide(x), wide(y)) if is_float(dtype) else (x, y)
    want = np.stack([a < b, a <= b, a > b, a >= b, a == b, a != b])
    return Run(comparisons, (1,), (x, y, out), [(out, exact(want))], {"BLOCK": n})


@mimw.kernel
def chained(x_ptr, out_ptr, low, high, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    inside = (low < x) & (x <= high)
    ml.store(out_ptr + offs, ml.where(inside, x, -1))
    first = ml.load(x_ptr)
    if low < first <= high < 100:
        ml.store(out_ptr + BLOCK, 1)
    else:
        ml.store(out_ptr + BLOCK, 0)


@zoo(*[{"low": a, "high": b} for a, b in ((-5, 5), (0, 200), (-100, 99), (5, -5))])
def chained_case(rng: Any, low: int, high: int) -> Run:
    x = array(rng.integers(-10, 10, 33), "i32")
    out = empty(34, "i32")
    want = np.append(np.where((low < x) & (x <= high), x, -1), int(low < x[0] <= high < 100))
    return Run(chained, (1,), (x, out, low, high), [(out, exact(want))], {"BLOCK": 33})


@mimw.kernel
def select(c_ptr, x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    c = ml.load(c_ptr + offs, mask=mask)
    out = ml.where(c, ml.load(x_ptr + offs, mask=mask), ml.load(y_ptr + offs, mask=mask))
    ml.store(out_ptr + offs, out, mask=mask)


@zoo(*each("dtype", ("f32", "bf16", "i8", "e4m3", "bool", "f16", "f64", "i16", "i64", "u8", "u32", "e5m2"), n=177))
def select_case(rng: Any, dtype: str, n: int) -> Run:
    c, x, y, out = data(rng, n, "bool"), data(rng, n, dtype), data(rng, n, dtype), empty(n, dtype)
    return Run(select, grid_of(n), (c, x, y, out, n), [(out, exact(np.where(c, x, y)))], {"BLOCK": BLOCK})


@mimw.kernel
def fused_multiply_add(x_ptr, y_ptr, z_ptr, out_ptr, contracted_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    y = ml.load(y_ptr + offs, mask=mask)
    z = ml.load(z_ptr + offs, mask=mask)
    ml.store(out_ptr + offs, ml.fma(x, y, z), mask=mask)
    ml.store(contracted_ptr + offs, x * y + z, mask=mask)


@zoo(*each("dtype", ("f32", "f64", "f16"), n=200))
def fused_multiply_add_case(rng: Any, dtype: str, n: int) -> Run:
    from fractions import Fraction

    x, y, z = (array(rng.integers(-999, 999, n) / 256, dtype) for _ in range(3))
    # The exact result: small numbers with few bits, so that f64 holds it; one rounding is left.
    true = [
        float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))) for a, b, c in zip(x, y, z, strict=True)
    ]
    want = np.array(true)
    bound = np.abs(wide(x) * wide(y)) * 2.0 ** -(11 if dtype == "f16" else 24)
    out, contracted = empty(n, dtype), empty(n, dtype)
    return Run(
        fused_multiply_add,
        grid_of(n),
        (x, y, z, out, contracted, n),
        [(out, exact(want)), (contracted, near(want, 0.5, bound, engines_bitwise=True))],
        {"BLOCK": BLOCK},
    )


@mimw.kernel
def exponentials(x_ptr, exp_ptr, exp2_ptr, sigmoid_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    ml.store(exp_ptr + offs, ml.exp(x), mask=mask)
    ml.store(exp2_ptr + offs, ml.exp2(x), mask=mask)
    ml.store(sigmoid_ptr + offs, ml.sigmoid(x), mask=mask)


@zoo(*sizes(33, 500))
def exponentials_case(rng: Any, n: int) -> Run:
    x = array(rng.standard_normal(n) * 20, "f32")
    a = wide(x)
    outs = [empty(n, "f32") for _ in range(3)]
    e, s = np.exp(a), 1 / (1 + np.exp(-a))
    want = [
        near(e, 4, e * (np.abs(a) * 2.0**-23)),
        near(np.exp2(a), 2.5),
        near(s, 8, s * np.abs(a) * 2.0**-23),
    ]
    return Run(exponentials, grid_of(n), (x, *outs, n), list(zip(outs, want, strict=True)), {"BLOCK": BLOCK})


@mimw.kernel
def exponentials_special(x_ptr, exp_ptr, exp2_ptr, log_ptr, sqrt_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + offs)
    ml.store(exp_ptr + offs, ml.exp(x))
    ml.store(exp2_ptr + offs, ml.exp2(x))
    ml.store(log_ptr + offs, ml.log(x))
    ml.store(sqrt_ptr + offs, ml.sqrt(x))


@zoo({})
def exponentials_special_case(rng: Any) -> Run:
    x = array([0.0, np.inf, -np.inf, np.nan, 1.0, 1000.0, -1000.0], "f32")
    outs = [empty(7, "f32") for _ in range(4)]
    inf, nan = np.inf, np.nan
    e = np.exp(1.0)
    want = [
        [1, inf, 0, nan, e, inf, 0],
        [1, inf, 0, nan, 2, inf, 0],
        [-inf, inf, nan, nan, 0, np.log(1000.0), nan],
        [0, inf, nan, nan, 1, np.sqrt(1000.0), nan],
    ]
    return Run(
        exponentials_special,
        (1,),
        (x, *outs),
        [(o, near(np.array(w), 4)) for o, w in zip(outs, want, strict=True)],
        {"BLOCK": 7},
    )


@mimw.kernel
def logarithms(x_ptr, log_ptr, log2_ptr, sqrt_ptr, sqrt_rn_ptr, rsqrt_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask, other=1.0)
    ml.store(log_ptr + offs, ml.log(x), mask=mask)
    ml.store(log2_ptr + offs, ml.log2(x), mask=mask)
    ml.store(sqrt_ptr + offs, ml.sqrt(x), mask=mask)
    ml.store(sqrt_rn_ptr + offs, ml.sqrt_rn(x), mask=mask)
    ml.store(rsqrt_ptr + offs, ml.rsqrt(x), mask=mask)


@zoo(*sizes(31, 400))
def logarithms_case(rng: Any, n: int) -> Run:
    x = array(np.exp(rng.standard_normal(n) * 10), "f32")
    a = wide(x)
    outs = [empty(n, "f32") for _ in range(5)]
    want = [
        near(np.log(a), 4, 2.0**-21),
        near(np.log2(a), 4, 2.0**-22),
        near(np.sqrt(a), 2.5),
        exact(np.sqrt(a)),
        near(1 / np.sqrt(a), 2.5),
    ]
    return Run(logarithms, grid_of(n), (x, *outs, n), list(zip(outs, want, strict=True)), {"BLOCK": BLOCK})


@mimw.kernel
def trigonometry(x_ptr, sin_ptr, cos_ptr, tanh_ptr, erf_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    ml.store(sin_ptr + offs, ml.sin(x), mask=mask)
    ml.store(cos_ptr + offs, ml.cos(x), mask=mask)
    ml.store(tanh_ptr + offs, ml.tanh(x), mask=mask)
    ml.store(erf_ptr + offs, ml.erf(x), mask=mask)


@zoo(*sizes(96, 300))
def trigonometry_case(rng: Any, n: int) -> Run:
    from math import erf

    x = array(rng.standard_normal(n) * 5, "f32")
    a = wide(x)
    outs = [empty(n, "f32") for _ in range(4)]
    values = [np.sin(a), np.cos(a), np.tanh(a), np.array([erf(v) for v in a])]
    want = [near(v, u, 2.0**-21) for v, u in zip(values, (4, 4, 8, 8), strict=True)]
    return Run(trigonometry, grid_of(n), (x, *outs, n), list(zip(outs, want, strict=True)), {"BLOCK": BLOCK})


@mimw.kernel
def half_functions(x_ptr, exp_ptr, sqrt_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask).to(ml.float32)
    ml.store(exp_ptr + offs, ml.exp(x).to(exp_ptr.dtype.element_ty), mask=mask)
    ml.store(sqrt_ptr + offs, ml.sqrt(ml.abs(x)).to(sqrt_ptr.dtype.element_ty), mask=mask)


@zoo(*each("dtype", ("f16", "bf16"), n=127))
def half_functions_case(rng: Any, dtype: str, n: int) -> Run:
    x = data(rng, n, dtype)
    a = wide(x)
    outs = [empty(n, dtype), empty(n, dtype)]
    want = [near(np.exp(a), 0.51), near(np.sqrt(np.abs(a)), 0.51)]
    return Run(half_functions, grid_of(n), (x, *outs, n), list(zip(outs, want, strict=True)), {"BLOCK": BLOCK})


@mimw.kernel
def rounding(x_ptr, floor_ptr, ceil_ptr, n, BLOCK: ml.constexpr):
    offs = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offs < n
    x = ml.load(x_ptr + offs, mask=mask)
    ml.store(floor_ptr + offs, ml.floor(x), mask=mask)
    ml.store(ceil_ptr + offs, ml.ceil(x), mask=mask)


@zoo(*each("dtype", ("f32", "f64"), n=97))
def rounding_case(rng: Any, dtype: str, n: int) -> Run:
    x = array(
        np.concatenate(
            [[0.0, -0.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 2.0**40, -1.0], rng.standard_normal(n - 9) * 9]
        ),
        dtype,
    )
    outs = [empty(n, dtype), empty(n, dtype)]
    want = [np.floor(wide(x)), np.ceil(wide(x))]
    return Run(
        rounding, grid_of(n), (x, *outs, n), [(o, exact(w)) for o, w in zip(outs, want, strict=True)], {"BLOCK": BLOCK}
    )


@mimw.kernel
def high_products(x_ptr, y_ptr, out_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, ml.umulhi(ml.load(x_ptr + offs), ml.load(y_ptr + offs)))


@zoo(*each("dtype", ("u32", "u64"), n=64))
def high_products_case(rng: Any, dtype: str, n: int) -> Run:
    bits = DTYPES[dtype].itemsize * 8
    x, y, out = data(rng, n, dtype), data(rng, n, dtype), empty(n, dtype)
    want = np.array([int(a) * int(b) >> bits for a, b in zip(x, y, strict=True)], DTYPES[dtype])
    return Run(high_products, (1,), (x, y, out), [(out, exact(want))], {"BLOCK": n})


@mimw.kernel
def scalar_arguments(out_ptr, f64_ptr, i, j, f, d, b, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    ml.store(out_ptr + offs, offs.to(ml.int64) * i + j)
    ml.store(f64_ptr + offs, ml.where(b, offs.to(ml.float64) * d + f, d))


@zoo(*[{"i": i, "b": b} for i in (1, 16, 17, -3, 2**40) for b in (True, False)])
def scalar_arguments_case(rng: Any, i: int, b: bool) -> Run:
    ints, floats = empty(40, "i64"), empty(40, "f64")
    f, d = 0.1, np.float64(0.1)
    offs = np.arange(40)
    value = np.where(b, offs * d + float(np.float32(f)), d)
    outputs = [(ints, exact(offs * i + 2**33)), (floats, near(value, 0.5, 2.0**-50, engines_bitwise=True))]
    return Run(scalar_arguments, (1,), (ints, floats, i, 2**33, f, d, b), outputs, {"BLOCK": 40})


@mimw.kernel
def promotion(a_ptr, b_ptr, h_ptr, out_i_ptr, out_f_ptr, BLOCK: ml.constexpr):
    offs = ml.arange(0, BLOCK)
    a = ml.load(a_ptr + offs)  # i8
    b = ml.load(b_ptr + offs)  # u16
    h = ml.load(h_ptr + offs)  # f16
    ml.store(out_i_ptr + offs, a * b + 3)  # u16: the wider one
    ml.store(out_f_ptr + offs, h * a)  # f16


@zoo(*sizes(31, 64))
def promotion_case(rng: Any, n: int) -> Run:
    a, b, h = data(rng, n, "i8"), data(rng, n, "u16"), data(rng, n, "f16")
    i, f = empty(n, "u16"), empty(n, "f16")
    with np.errstate(all="ignore"):
        want_i = a.astype(np.uint16) * b + np.uint16(3)
    want_f = rounded(wide(h) * a.astype(np.float64), "f16")
    return Run(promotion, (1,), (a, b, h, i, f), [(i, exact(want_i)), (f, exact(want_f))], {"BLOCK": n})
