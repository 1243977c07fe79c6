"""What Triton makes of kernels without products, run in the PTX simulator: as NumPy has it."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.peers.triton_text import launch

rows = pytest.importorskip("tests.peers.triton_rows", reason="needs the extra `peers`")
pytestmark = pytest.mark.peers

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64


def numbers(*shape: int, seed: int = 0, dtype: Any = F32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(low: int, high: int, *shape: int, seed: int = 0, dtype: Any = I32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [F32, F64, np.float16, ml_dtypes.bfloat16, np.int8, I64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("warps", [1, 4])
def test_vector_add(dtype: Any, warps: int) -> None:
    n = 1000
    if np.dtype(dtype).kind == "i":
        x, y = whole(-60, 60, n, dtype=dtype), whole(-60, 60, n, seed=1, dtype=dtype)
    else:
        x, y = numbers(n, dtype=dtype), numbers(n, seed=1, dtype=dtype)
    out = np.zeros(n, dtype)
    launch(rows.vector_add, (4,), {"x": x, "y": y, "out": out, "n": n, "BLOCK": 256}, num_warps=warps)
    assert (out == x + y).all()


@pytest.mark.parametrize(("arch", "warps"), [(80, 4), (90, 1), (90, 8)])
@pytest.mark.parametrize("dtype", [F32, ml_dtypes.bfloat16], ids=["f32", "bf16"])
def test_softmax(dtype: Any, arch: int, warps: int) -> None:
    x = numbers(6, 781, dtype=dtype)
    out = np.zeros_like(x)
    values = {"x": x, "out": out, "columns": 781, "stride": 781, "BLOCK": 1024}
    launch(rows.softmax, (6,), values, arch=arch, num_warps=warps)
    e = np.exp(x.astype(F64) - x.astype(F64).max(1, keepdims=True))
    rounding = 2.0**-8 if dtype != F32 else 1e-6
    assert np.allclose(out.astype(F64), e / e.sum(1, keepdims=True), rtol=rounding, atol=1e-9)


def test_layer_norm() -> None:
    x, w, b = numbers(5, 700, dtype=np.float16), numbers(700, seed=1), numbers(700, seed=2)
    out, means = np.zeros_like(x), np.zeros(5, F32)
    values = {"x": x, "w": w, "b": b, "out": out, "mean_out": means, "columns": 700, "eps": 1e-5, "BLOCK": 1024}
    launch(rows.layer_norm, (5,), values)
    f = x.astype(F64)
    want = (f - f.mean(1, keepdims=True)) / np.sqrt(f.var(1, keepdims=True) + 1e-5) * w + b
    assert np.allclose(out.astype(F64), want, rtol=2.0**-10, atol=2e-3)
    assert np.allclose(means, f.mean(1), atol=1e-5)


def test_elementary_functions() -> None:
    x = numbers(500) * 3
    out = np.zeros_like(x)
    launch(rows.elementary, (2,), {"x": x, "out": out, "n": 500, "BLOCK": 256})
    v = x.astype(F64)
    a = np.abs(v) + 0.5
    y = np.exp2(-a) + np.log2(a) + np.log(a) + np.sin(v) * np.cos(v) + np.sqrt(a) + 1 / np.sqrt(a)
    y += np.vectorize(math.erf)(v) + np.floor(v) + np.ceil(v) + v * v + 1 + 1 / (1 + np.exp(-v)) + v / a + np.sqrt(a)
    assert np.allclose(out, np.where(v > 1, np.minimum(y, 3), np.maximum(y, -2)), rtol=1e-5, atol=1e-5)


def test_integers() -> None:
    n = 600
    x, y = whole(-(2**31), 2**31, n), whole(-1000, 1000, n, seed=1)
    y[y == 0] = 7
    out, wide = np.zeros(n, I32), np.zeros(n, I64)
    launch(rows.integers, (3,), {"x": x, "y": y, "out": out, "wide": wide, "n": n, "BLOCK": 256})
    a, b = x.astype(I64), y.astype(I64)

    def quotient(p: Any, q: Any) -> Any:
        return np.abs(p) // np.abs(q) * np.sign(p) * np.sign(q)

    rest = a - quotient(a, b) * b
    high = np.array([(int(p) % 2**32) * (int(q) % 2**32) >> 32 for p, q in zip(a, b, strict=True)], I64)
    v = quotient(a, b) * 3 + rest - ((a << 3).astype(I32) ^ (b >> 2)) + (a & b) + (~a | b) + high
    assert (out == v.astype(I32)).all()
    assert (wide == a * b + quotient(a << 20, b * 7 + 1)).all()


def test_casts() -> None:
    x = np.concatenate([numbers(500), numbers(500, seed=1) * 100, numbers(24, seed=2) * 1e-3]).astype(F32)
    x = np.clip(x, -120, 120)
    n = len(x)
    types = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8, F32)
    outs = [np.zeros(n, t) for t in types]
    names = ("f16", "bf16", "e4m3", "e5m2", "i8", "back")
    launch(rows.casts, (4,), {"x": x, **dict(zip(names, outs, strict=True)), "n": n, "BLOCK": 256})
    for out, t in zip(outs[:5], types, strict=False):
        assert (out == x.astype(t)).all(), t
    assert (outs[5] == x.astype(types[2]).astype(F32) + x.astype(types[3]).astype(F32)).all()


def test_truncating_cast() -> None:
    x = numbers(300) * 50
    out = np.zeros(300, np.float16)
    launch(rows.truncating_cast, (2,), {"x": x, "f16": out, "n": 300, "BLOCK": 256})
    nearest = x.astype(np.float16)
    want = np.where(np.abs(nearest.astype(F32)) > np.abs(x), np.nextafter(nearest, np.float16(0)), nearest)
    assert (out == want).all()


@pytest.mark.parametrize("warps", [2, 8])
def test_reductions(warps: int) -> None:
    x = whole(-1000, 1000, 16, 100).astype(F32)
    sums, maxima, places, parity = np.zeros(100, F32), np.zeros(16, F32), np.zeros(16, I32), np.zeros(16, I32)
    values = {"x": x, "sums": sums, "maxima": maxima, "places": places, "parity": parity, "columns": 100}
    launch(rows.reductions, (1,), {**values, "ROWS": 16, "BLOCK": 128}, num_warps=warps)
    assert (sums == x.sum(0)).all()
    assert (maxima == np.maximum(x.max(1), 0)).all()
    assert (places == x.argmin(1)).all()
    assert (parity == np.bitwise_xor.reduce(x.astype(I32), axis=1)).all()


@pytest.mark.parametrize("warps", [1, 4])
def test_scans(warps: int) -> None:
    x = numbers(8, 128)
    sums, products, linear = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    values = {"x": x, "sums": sums, "products": products, "linear": linear, "ROWS": 8, "BLOCK": 128}
    launch(rows.scans, (1,), values, num_warps=warps)
    assert np.allclose(sums, x.astype(F64).cumsum(1), atol=1e-4)
    assert np.allclose(products, (1 + x.astype(F64) * 0.01)[::-1].cumprod(0)[::-1], atol=1e-5)
    want = np.zeros((8, 128))
    for i in range(128):
        want[:, i] = x[:, i] + (0.5 * want[:, i - 1] if i else 0)
    assert np.allclose(linear, want, atol=1e-5)


def test_histogram() -> None:
    x, counts = whole(0, 64, 900), np.zeros(64, I32)
    launch(rows.histogram, (4,), {"x": x, "counts": counts, "n": 900, "BLOCK": 256, "BINS": 64})
    assert (counts == np.bincount(x, minlength=64)).all()


def test_atomics() -> None:
    n, keys = 400, 10
    x, key = whole(0, 1000, n), whole(0, keys, n, seed=1)
    sums, largest, smallest = np.zeros(keys, F32), np.zeros(keys, I32), np.full(keys, 1e9, F32)
    bits, old, halves = np.zeros(keys, I32), np.full(n, 5, I32), np.zeros(keys, np.float16)
    values = {"x": x, "keys": key, "sums": sums, "largest": largest, "smallest": smallest, "bits": bits, "old": old}
    launch(rows.atomics, (2,), {**values, "halves": halves, "n": n, "BLOCK": 256})
    each = [x[key == k] for k in range(keys)]
    assert (sums == [v.sum() for v in each]).all()
    assert (largest == [v.max() for v in each]).all()
    assert (smallest == [v.min() for v in each]).all()
    assert (bits == [np.bitwise_or.reduce(1 << (v.astype(I64) & 31)).astype(I32) for v in each]).all()
    assert (old == x).all()
    assert (halves == [6 * len(v) for v in each]).all()


def test_programs_take_turns_by_compare_and_swap() -> None:
    lock, total = np.zeros(1, I32), np.zeros(1, I32)
    launch(rows.turns, (6,), {"lock": lock, "total": total, "n": 6})
    want = 0
    for me in range(6):
        want = want * 2 + me
    assert total[0] == want
    assert lock[0] == 6


def test_gather() -> None:
    x, at = numbers(32, 64), whole(0, 32, 32, 64)
    out = np.zeros_like(x)
    launch(rows.gather_rows, (1,), {"x": x, "indices": at, "out": out, "ROWS": 32, "COLUMNS": 64})
    assert (out == np.take_along_axis(x, at, 0)).all()


@pytest.mark.parametrize("dtype", [F32, np.float16, np.int8], ids=lambda d: d.__name__)
def test_shapes(dtype: Any) -> None:
    x = whole(-50, 50, 32, 64).astype(dtype)
    out, turned, parts = np.zeros_like(x), np.zeros((64, 32), dtype), np.zeros((32, 32), dtype)
    launch(rows.shapes, (1,), {"x": x, "out": out, "turned": turned, "parts": parts, "R": 32, "C": 64})
    assert (turned == x.T).all()
    assert (parts == x[:, 0::2] - x[:, 1::2]).all()
    swapped = np.stack([x[:, 1::2], x[:, 0::2]], 2).reshape(32, 64)
    assert (out == swapped + x[:, ::-1]).all()


def test_sort() -> None:
    x = numbers(8, 64)
    out = np.zeros_like(x)
    launch(rows.sort_rows, (1,), {"x": x, "out": out, "ROWS": 8, "COLUMNS": 64})
    assert (out == np.sort(x, 1)).all()


def philox(seed: int, counters: Any) -> Any:
    """The first word of Philox 4x32 with ten rounds, counter (i, 0, 0, 0)."""
    c = [counters.astype(np.uint64), *(np.zeros(len(counters), np.uint64) for _ in range(3))]
    k0, k1, low = seed & 0xFFFFFFFF, seed >> 32, np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(k0), b & low, a >> np.uint64(32) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c[0].astype(np.uint32)


def test_dropout_by_philox() -> None:
    x = numbers(300)
    out = np.zeros_like(x)
    launch(rows.dropout, (2,), {"x": x, "out": out, "seed": 1234, "n": 300, "BLOCK": 256})
    word = philox(1234, np.arange(300)).view(I32).astype(I64)
    uniform = np.where(word < 0, -word - 1, word) * 4.6566127342e-10
    kept = uniform > 0.25
    assert ((out != 0) == kept).all()
    assert np.allclose(out[kept], x[kept] / 0.75, rtol=1e-6)


def test_loops_and_branches_on_data() -> None:
    x, out = np.array([1, 2, 7, 27, 97], I32), np.zeros(5, I32)
    launch(rows.collatz, (5,), {"x": x, "out": out, "n": 5, "BLOCK": 1})
    assert out.tolist() == [0, 1, 16, 111, 118]


def test_direct_convolution() -> None:
    x, w = numbers(9, 70), numbers(3, 5, seed=1)
    out = np.zeros_like(x)
    launch(rows.convolution, (9, 2), {"x": x, "w": w, "out": out, "H": 9, "W": 70, "KH": 3, "KW": 5, "BLOCK": 64})
    padded = np.pad(x.astype(F64), ((1, 1), (2, 2)))
    want = sum(padded[a : a + 9, b : b + 70] * w[a, b] for a in range(3) for b in range(5))
    assert np.allclose(out, want, atol=1e-5)
