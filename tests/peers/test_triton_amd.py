"""What Triton makes for gfx942 and gfx950, run in the AMDGCN simulator: as NumPy has it.

Waits, races in LDS, wait states and bounds are checked on the way: a false alarm of the simulator fails here.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

rows = pytest.importorskip("tests.peers.triton_rows", reason="needs the extra `peers`")
products = pytest.importorskip("tests.peers.triton_products")
tl = pytest.importorskip("triton.language")

from tests.peers.triton_amd import launch  # noqa: E402
from tests.peers.triton_amd_kernels import scaled_product, word_atomics  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.parametrize("arch", ["gfx942", "gfx950"])]

F16, BF16, F32, F64, I32, I64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int32, np.int64
FNUZ = {
    "gfx942": (ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz),
    "gfx950": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
}


def numbers(*shape: int, seed: int = 0, dtype: Any = F32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(low: int, high: int, *shape: int, seed: int = 0, dtype: Any = I32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("buffers", [False, True], ids=["global", "buffer"])
@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, np.int8, I64], ids=lambda d: d.__name__)
def test_vector_add(arch: str, dtype: Any, buffers: bool) -> None:
    n = 1000
    whole_type = np.dtype(dtype).kind == "i"
    x = whole(-60, 60, n, dtype=dtype) if whole_type else numbers(n, dtype=dtype)
    y = whole(-60, 60, n, seed=1, dtype=dtype) if whole_type else numbers(n, seed=1, dtype=dtype)
    out = np.zeros(n, dtype)
    launch(rows.vector_add, (4,), {"x": x, "y": y, "out": out, "n": n, "BLOCK": 256}, arch, buffers=buffers)
    assert (out == x + y).all()


@pytest.mark.parametrize("warps", [1, 8])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_softmax(arch: str, dtype: Any, warps: int) -> None:
    x = numbers(6, 781, dtype=dtype)
    out = np.zeros_like(x)
    launch(
        rows.softmax, (6,), {"x": x, "out": out, "columns": 781, "stride": 781, "BLOCK": 1024}, arch, num_warps=warps
    )
    e = np.exp(x.astype(F64) - x.astype(F64).max(1, keepdims=True))
    rounding = 2.0**-8 if dtype != F32 else 1e-6
    assert np.allclose(out.astype(F64), e / e.sum(1, keepdims=True), rtol=rounding, atol=1e-9)


def test_layer_norm(arch: str) -> None:
    x, w, b = numbers(5, 700, dtype=F16), numbers(700, seed=1), numbers(700, seed=2)
    out, means = np.zeros_like(x), np.zeros(5, F32)
    values = {"x": x, "w": w, "b": b, "out": out, "mean_out": means, "columns": 700, "eps": 1e-5, "BLOCK": 1024}
    launch(rows.layer_norm, (5,), values, arch)
    f = x.astype(F64)
    want = (f - f.mean(1, keepdims=True)) / np.sqrt(f.var(1, keepdims=True) + 1e-5) * w + b
    assert np.allclose(out.astype(F64), want, rtol=2.0**-10, atol=2e-3)
    assert np.allclose(means, f.mean(1), atol=1e-5)


def test_elementary_functions(arch: str) -> None:
    x = numbers(500) * 3
    out = np.zeros_like(x)
    launch(rows.elementary, (2,), {"x": x, "out": out, "n": 500, "BLOCK": 256}, arch)
    v = x.astype(F64)
    a = np.abs(v) + 0.5
    y = np.exp2(-a) + np.log2(a) + np.log(a) + np.sin(v) * np.cos(v) + np.sqrt(a) + 1 / np.sqrt(a)
    y += np.vectorize(math.erf)(v) + np.floor(v) + np.ceil(v) + v * v + 1 + 1 / (1 + np.exp(-v)) + v / a + np.sqrt(a)
    assert np.allclose(out, np.where(v > 1, np.minimum(y, 3), np.maximum(y, -2)), rtol=1e-5, atol=1e-5)


def test_integers(arch: str) -> None:
    n = 600
    x, y = whole(-(2**31), 2**31, n), whole(-1000, 1000, n, seed=1)
    y[y == 0] = 7
    out, wide = np.zeros(n, I32), np.zeros(n, I64)
    launch(rows.integers, (3,), {"x": x, "y": y, "out": out, "wide": wide, "n": n, "BLOCK": 256}, arch)
    a, b = x.astype(I64), y.astype(I64)

    def quotient(p: Any, q: Any) -> Any:
        return np.abs(p) // np.abs(q) * np.sign(p) * np.sign(q)

    rest = a - quotient(a, b) * b
    high = np.array([(int(p) % 2**32) * (int(q) % 2**32) >> 32 for p, q in zip(a, b, strict=True)], I64)
    v = quotient(a, b) * 3 + rest - ((a << 3).astype(I32) ^ (b >> 2)) + (a & b) + (~a | b) + high
    assert (out == v.astype(I32)).all()
    assert (wide == a * b + quotient(a << 20, b * 7 + 1)).all()


def test_casts(arch: str) -> None:
    x = np.concatenate([numbers(500), numbers(500, seed=1) * 100, numbers(24, seed=2) * 1e-3]).astype(F32)
    x = np.clip(x, -120, 120)
    n = len(x)
    types = (F16, BF16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8, F32)
    outs = [np.zeros(n, t) for t in types]
    names = ("f16", "bf16", "e4m3", "e5m2", "i8", "back")
    launch(rows.casts, (4,), {"x": x, **dict(zip(names, outs, strict=True)), "n": n, "BLOCK": 256}, arch)
    for out, t in zip(outs[:5], types, strict=False):
        assert (out == x.astype(t)).all(), t
    assert (outs[5] == x.astype(types[2]).astype(F32) + x.astype(types[3]).astype(F32)).all()


@pytest.mark.parametrize("warps", [2, 8])
def test_reductions(arch: str, warps: int) -> None:
    x = whole(-1000, 1000, 16, 100).astype(F32)
    sums, maxima, places, parity = np.zeros(100, F32), np.zeros(16, F32), np.zeros(16, I32), np.zeros(16, I32)
    values = {"x": x, "sums": sums, "maxima": maxima, "places": places, "parity": parity, "columns": 100}
    launch(rows.reductions, (1,), {**values, "ROWS": 16, "BLOCK": 128}, arch, num_warps=warps)
    assert (sums == x.sum(0)).all()
    assert (maxima == np.maximum(x.max(1), 0)).all()
    assert (places == x.argmin(1)).all()
    assert (parity == np.bitwise_xor.reduce(x.astype(I32), axis=1)).all()


@pytest.mark.parametrize("warps", [1, 4])
def test_scans(arch: str, warps: int) -> None:
    x = numbers(8, 128)
    sums, factors, linear = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    values = {"x": x, "sums": sums, "products": factors, "linear": linear, "ROWS": 8, "BLOCK": 128}
    launch(rows.scans, (1,), values, arch, num_warps=warps)
    assert np.allclose(sums, x.astype(F64).cumsum(1), atol=1e-4)
    assert np.allclose(factors, (1 + x.astype(F64) * 0.01)[::-1].cumprod(0)[::-1], atol=1e-5)


def test_histogram(arch: str) -> None:
    x, counts = whole(0, 64, 900), np.zeros(64, I32)
    launch(rows.histogram, (4,), {"x": x, "counts": counts, "n": 900, "BLOCK": 256, "BINS": 64}, arch)
    assert (counts == np.bincount(x, minlength=64)).all()


def test_atomics(arch: str) -> None:
    n, keys = 400, 10
    x, key = whole(0, 1000, n), whole(0, keys, n, seed=1)
    sums, largest, smallest = np.zeros(keys, F32), np.zeros(keys, I32), np.full(keys, 1e9, F32)
    bits, old, places = np.zeros(keys, I32), np.full(n, 5, I32), key.copy()
    values = {"x": x, "keys": places, "sums": sums, "largest": largest, "smallest": smallest, "bits": bits, "old": old}
    launch(word_atomics, (2,), {**values, "n": n, "BLOCK": 256}, arch)
    each = [x[key == k] for k in range(keys)]
    assert (sums == [v.sum() for v in each]).all()
    assert (largest == [v.max() for v in each]).all()
    assert (smallest == [v.min() for v in each]).all()
    assert (bits == [np.bitwise_or.reduce(1 << (v.astype(I64) & 31)).astype(I32) for v in each]).all()
    assert (old == x).all()
    assert (places == 5).all()


def test_programs_take_turns_by_compare_and_swap(arch: str) -> None:
    lock, total = np.zeros(1, I32), np.zeros(1, I32)
    launch(rows.turns, (6,), {"lock": lock, "total": total, "n": 6}, arch)
    want = 0
    for me in range(6):
        want = want * 2 + me
    assert total[0] == want
    assert lock[0] == 6


def test_gather(arch: str) -> None:
    x, at = numbers(32, 64), whole(0, 32, 32, 64)
    out = np.zeros_like(x)
    launch(rows.gather_rows, (1,), {"x": x, "indices": at, "out": out, "ROWS": 32, "COLUMNS": 64}, arch)
    assert (out == np.take_along_axis(x, at, 0)).all()


@pytest.mark.parametrize("dtype", [F32, F16, np.int8], ids=lambda d: d.__name__)
def test_shapes(arch: str, dtype: Any) -> None:
    x = whole(-50, 50, 32, 64).astype(dtype)
    out, turned, parts = np.zeros_like(x), np.zeros((64, 32), dtype), np.zeros((32, 32), dtype)
    launch(rows.shapes, (1,), {"x": x, "out": out, "turned": turned, "parts": parts, "R": 32, "C": 64}, arch)
    assert (turned == x.T).all()
    assert (parts == x[:, 0::2] - x[:, 1::2]).all()


def test_sort(arch: str) -> None:
    x = numbers(8, 64)
    out = np.zeros_like(x)
    launch(rows.sort_rows, (1,), {"x": x, "out": out, "ROWS": 8, "COLUMNS": 64}, arch)
    assert (out == np.sort(x, 1)).all()


def test_loops_and_branches_on_data(arch: str) -> None:
    x, out = np.array([1, 2, 7, 27, 97], I32), np.zeros(5, I32)
    launch(rows.collatz, (5,), {"x": x, "out": out, "n": 5, "BLOCK": 1}, arch)
    assert out.tolist() == [0, 1, 16, 111, 118]


# --- products


def multiply(a: Any, b: Any, out: Any, block: tuple[int, int, int], arch: str, precision: str = "ieee",
             total: Any = tl.float32, **options: Any) -> Any:  # fmt: skip
    (m, k), n = a.shape, b.shape[1]
    c = np.zeros((m, n), out)
    values: dict[str, Any] = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "PRECISION": precision, "SUM": total}
    values |= {f"{name}{axis}": stride // array.itemsize for name, axes, array in (("a", "mk", a), ("b", "kn", b), ("c", "mn", c))
               for axis, stride in zip(axes, array.strides, strict=True)}  # fmt: skip
    values |= {"BM": block[0], "BN": block[1], "BK": block[2]}
    launch(products.matmul, (-(-m // block[0]), -(-n // block[1])), values, arch, **options)
    return c


@pytest.mark.parametrize("buffers", [False, True], ids=["global", "buffer"])
@pytest.mark.parametrize(
    ("dtype", "block", "turned", "warps", "stages"),
    [
        (F16, (64, 64, 32), "", 4, 2),
        (F16, (128, 128, 64), "ab", 8, 3),
        (BF16, (32, 64, 32), "a", 2, 1),
        (BF16, (128, 64, 64), "b", 4, 2),
        (F32, (64, 64, 32), "b", 4, 2),
        ("e4m3", (64, 64, 64), "b", 4, 2),
        ("e5m2", (64, 64, 128), "", 4, 2),
    ],
    ids=str,
)
def test_matmul(arch: str, dtype: Any, block: Any, turned: str, warps: int, stages: int, buffers: bool) -> None:
    if isinstance(dtype, str):
        dtype = FNUZ[arch][dtype == "e5m2"]
    a, b = numbers(128, 192, dtype=dtype), numbers(192, 128, seed=1, dtype=dtype)
    a, b = np.asfortranarray(a) if "a" in turned else a, np.asfortranarray(b) if "b" in turned else b
    got = multiply(a, b, F32, block, arch, num_warps=warps, num_stages=stages, buffers=buffers)
    assert np.allclose(got, a.astype(F64) @ b.astype(F64), rtol=1e-4, atol=1e-3)


def test_matmul_of_odd_shapes(arch: str) -> None:
    a, b = numbers(100, 88, dtype=F16), numbers(88, 72, seed=1, dtype=F16)
    got = multiply(a, b, F16, (64, 64, 32), arch)
    assert np.allclose(got.astype(F64), a.astype(F64) @ b.astype(F64), rtol=2e-3, atol=2e-2)


def test_integer_matmul(arch: str) -> None:
    a, b = whole(-100, 100, 64, 128, dtype=np.int8), whole(-100, 100, 128, 64, seed=1, dtype=np.int8)
    got = multiply(a, b, I32, (64, 64, 64), arch, total=tl.int32)
    assert (got == a.astype(I64) @ b.astype(I64)).all()


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("block", "warps", "stages"), [(64, 4, 2), (128, 8, 3), (32, 2, 1)])
def test_attention(arch: str, block: int, warps: int, stages: int, causal: bool) -> None:
    heads, length, d = 2, 128, 64
    q, k, v = (numbers(heads, length, d, seed=i, dtype=F16) for i in range(3))
    out = np.zeros_like(q)
    scale = 1.4426950408889634 / 8
    values = {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "length": length,
        "scale": scale,
        "CAUSAL": causal,
        "BM": block,
        "BN": block,
        "D": d,
    }
    launch(products.attention, (length // block, heads), values, arch, num_warps=warps, num_stages=stages)
    s = np.einsum("hid,hjd->hij", q.astype(F64), k.astype(F64)) * scale
    s = np.where(np.tri(length, dtype=bool), s, -np.inf) if causal else s
    p = np.exp2(s - s.max(2, keepdims=True))
    want = np.einsum("hij,hjd->hid", p / p.sum(2, keepdims=True), v.astype(F64))
    assert np.allclose(out.astype(F64), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_matmul_under_other_interleavings(arch: str, seed: int) -> None:
    a, b = numbers(64, 128, dtype=F16), numbers(128, 64, seed=1, dtype=F16)
    got = multiply(a, b, F32, (64, 64, 32), arch, seed=seed)
    assert np.allclose(got, a.astype(F64) @ b.astype(F64), rtol=1e-4, atol=1e-3)


_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _values(kind: str, raw: Any) -> Any:
    if kind == "e2m1":
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
        return np.where(codes & 8, -1, 1) * _FP4[codes & 7]
    return raw.view({"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]).astype(F64)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m1"])
def test_scaled_product(arch: str, kind: str) -> None:
    if arch == "gfx942":
        pytest.skip("gfx942 has no scaled matrix instructions")
    m, n, k, pack = 32, 32, 128, 2 if kind == "e2m1" else 1
    if kind == "e2m1":
        a, b = whole(0, 256, m, k // 2, dtype=np.uint8), whole(0, 256, n, k // 2, seed=1, dtype=np.uint8)
    else:
        dtype = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
        a, b = numbers(m, k, dtype=dtype).view(np.uint8), numbers(n, k, seed=1, dtype=dtype).view(np.uint8)
    sa, sb = whole(120, 134, m, k // 32, dtype=np.uint8), whole(120, 134, n, k // 32, seed=1, dtype=np.uint8)
    c = np.zeros((m, n), F32)
    values = {
        "a": a,
        "sa": sa,
        "b": b,
        "sb": sb,
        "c": c,
        "M": m,
        "N": n,
        "K": k,
        "PACK": pack,
        "KIND_A": kind,
        "KIND_B": kind,
    }
    launch(scaled_product, (1,), values, arch)
    left, right = (
        _values(kind, raw) * np.repeat(2.0 ** (s.astype(F64) - 127), 32, axis=1) for raw, s in ((a, sa), (b, sb))
    )
    want = left @ right.T
    assert np.allclose(c, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
