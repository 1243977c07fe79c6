"""What Triton makes of matrix products and attention, run in the PTX simulator: as NumPy has it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.sim.ptx.errors import SimulationError
from tests.peers.triton_text import Described, launch

products = pytest.importorskip("tests.peers.triton_products", reason="needs the extra `peers`")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.peers

F16, BF16, F32, F64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def numbers(*shape: int, seed: int = 0, dtype: Any = F16) -> Any:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def operands(m: int, n: int, k: int, dtype: Any, turned: str) -> tuple[Any, Any]:
    """a (m, k) and b (k, n); `turned` names those that lie in memory column by column."""
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, seed=1, dtype=dtype)
    return np.asfortranarray(a) if "a" in turned else a, np.asfortranarray(b) if "b" in turned else b


def strides(array: Any) -> list[int]:
    return [stride // array.itemsize for stride in array.strides]


def close(got: Any, want: Any, rtol: float = 1e-3, atol: float = 1e-3) -> None:
    np.testing.assert_allclose(got.astype(F64), want, rtol=rtol, atol=atol)


def multiply(
    a: Any,
    b: Any,
    out: Any,
    block: tuple[int, int, int],
    precision: str = "tf32",
    total: Any = tl.float32,
    **options: Any,
) -> Any:
    (m, k), n = a.shape, b.shape[1]
    c = np.zeros((m, n), out)
    (am, ak), (bk, bn), (cm, cn) = strides(a), strides(b), strides(c)
    values = {
        "a": a,
        "b": b,
        "c": c,
        "M": m,
        "N": n,
        "K": k,
        "am": am,
        "ak": ak,
        "bk": bk,
        "bn": bn,
        "cm": cm,
        "cn": cn,
    }
    values |= {"BM": block[0], "BN": block[1], "BK": block[2], "PRECISION": precision, "SUM": total}
    launch(products.matmul, (-(-m // block[0]), -(-n // block[1])), values, **options)
    return c


# target, element type, block, what lies turned, options of Triton
MATMULS = [
    (80, F16, (64, 64, 32), "", {"num_warps": 4, "num_stages": 3}),
    (80, F16, (64, 64, 32), "ab", {"num_warps": 8, "num_stages": 4}),
    (80, BF16, (32, 64, 32), "a", {"num_warps": 2, "num_stages": 2}),
    (80, F32, (64, 64, 32), "b", {"num_warps": 4, "num_stages": 3}),
    (86, F16, (16, 128, 64), "b", {"num_warps": 4, "num_stages": 1}),
    (89, E4M3, (64, 64, 64), "b", {"num_warps": 4, "num_stages": 3}),
    (89, E5M2, (64, 64, 64), "", {"num_warps": 4, "num_stages": 2}),
    (90, F16, (64, 64, 32), "", {"num_warps": 4, "num_stages": 3}),
    (90, F16, (128, 128, 64), "ab", {"num_warps": 8, "num_stages": 3}),
    (90, BF16, (64, 128, 64), "a", {"num_warps": 4, "num_stages": 4}),
    (90, BF16, (128, 64, 32), "b", {"num_warps": 4, "num_stages": 1}),
    (90, F32, (64, 64, 32), "b", {"num_warps": 4, "num_stages": 3}),
    (90, F32, (64, 64, 32), "", {"num_warps": 4, "num_stages": 2}),
    (90, E4M3, (64, 64, 64), "b", {"num_warps": 4, "num_stages": 3}),
    (90, E5M2, (64, 64, 64), "", {"num_warps": 4, "num_stages": 2}),
]


@pytest.mark.parametrize(("arch", "dtype", "block", "turned", "options"), MATMULS)
def test_matmul(arch: int, dtype: Any, block: Any, turned: str, options: Any) -> None:
    a, b = operands(128, 128, 192, dtype, turned)
    got = multiply(a, b, F32, block, arch=arch, **options)
    slack = {"float32": 0.1, "float8_e4m3fn": 1e-2, "float8_e5m2": 1e-2}.get(np.dtype(dtype).name, 1e-3)
    close(got, a.astype(F64) @ b.astype(F64), atol=slack)


@pytest.mark.parametrize("arch", [80, 90])
def test_matmul_of_odd_shapes(arch: int) -> None:
    a, b = operands(100, 72, 88, F16, "")
    close(multiply(a, b, F16, (64, 64, 32), arch=arch), a.astype(F64) @ b.astype(F64), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(("arch", "turned"), [(80, ""), (90, "b"), (90, "")])
def test_integer_matmul(arch: int, turned: str) -> None:
    a, b = operands(64, 64, 128, np.int8, turned)
    got = multiply(a, b, np.int32, (64, 64, 64), total=tl.int32, arch=arch)
    assert (got == a.astype(np.int64) @ b.astype(np.int64)).all()


@pytest.mark.parametrize(("precision", "slack"), [("ieee", 1e-4), ("tf32x3", 1e-4)])
@pytest.mark.parametrize("arch", [80, 90])
def test_precise_f32_matmul(arch: int, precision: str, slack: float) -> None:
    a, b = operands(64, 64, 64, F32, "b")
    close(multiply(a, b, F32, (32, 32, 32), precision, arch=arch), a.astype(F64) @ b.astype(F64), atol=slack)


def test_f64_matmul() -> None:
    a, b = operands(32, 32, 48, F64, "")
    close(multiply(a, b, F64, (16, 16, 16), "ieee", tl.float64), a @ b, rtol=1e-12, atol=1e-12)


def test_cp_async_without_a_proxy_fence_is_reported() -> None:
    """Triton leaves the fence between cp.async and wgmma out. The ISA asks for it; `launch` adds it elsewhere."""
    a, b = operands(64, 64, 64, F16, "")
    with pytest.raises(SimulationError, match=r"cp\.async.*wrote through the generic proxy"):
        multiply(a, b, F32, (64, 64, 32), as_made=True)


# Element type, block, whether b lies turned, stages, warp-specialised (blocks of 64 rows: Triton 3.6 divides larger ones between two
# consumers, gets their rows and boxes wrong, and the simulator says so), warps.
DESCRIBED = [
    (F16, (64, 64, 64), False, 3, False, 4),
    (F16, (128, 128, 64), True, 2, False, 8),
    (BF16, (64, 128, 32), False, 4, False, 4),
    (E4M3, (64, 64, 128), True, 2, False, 4),
    (F16, (64, 64, 64), True, 3, True, 4),
    (BF16, (64, 128, 64), True, 2, True, 4),
]


@pytest.mark.parametrize(("dtype", "block", "turned", "stages", "specialize", "warps"), DESCRIBED)
def test_matmul_by_descriptors(dtype: Any, block: Any, turned: bool, stages: int, specialize: bool, warps: int) -> None:
    bm, bn, bk = block
    m, n, k = 256, 128, 256
    a, b = numbers(m, k, dtype=dtype), numbers(*((n, k) if turned else (k, n)), seed=1, dtype=dtype)
    c = np.zeros((m, n), F16)
    values = {
        "a": Described(a, (bm, bk)), "b": Described(b, (bn, bk) if turned else (bk, bn)), "N": n, "K": k, "BM": bm, "BN": bn,
        "c": c if specialize else Described(c, (bm, bn)), "BK": bk, "TRANSPOSED": turned, "STAGES": stages, "SPECIALIZE": specialize,
    }  # fmt: skip
    launch(products.described_matmul, (m // bm, n // bn), values, num_warps=warps)
    right = b.astype(F64).T if turned else b.astype(F64)
    close(c, a.astype(F64) @ right, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("stages", [2, 3])
def test_matmul_by_descriptors_of_its_own(stages: int) -> None:
    m, n, k = 160, 128, 136
    a, b, c = numbers(m, k), numbers(k, n, seed=1), np.zeros((m, n), F16)
    values = {"a": a, "b": b, "c": c, "M": m, "N": n, "K": k, "BM": 64, "BN": 64, "BK": 64}
    launch(products.self_described_matmul, (3,), values, num_stages=stages)
    close(c, a.astype(F64) @ b.astype(F64), rtol=2e-3, atol=2e-2)


def test_reducing_copies() -> None:
    x, out = np.random.default_rng(0).integers(-9, 9, (128, 64)).astype(F32), np.zeros((32, 64), F32)
    launch(products.reducing_store, (4, 2), {"x": x, "out": out, "M": 128, "N": 64, "BM": 32, "BN": 32})
    assert (out == x.reshape(4, 32, 64).sum(0)).all()


def test_gathered_rows() -> None:
    x, rows = numbers(100, 64), np.random.default_rng(0).integers(0, 100, 32).astype(np.int32)
    out = np.zeros((32, 64), F16)
    launch(products.gathered_rows, (1,), {"x": x, "rows": rows, "out": out, "N": 64, "BM": 32, "BN": 64})
    assert (out == x[rows]).all()


def attend(q: Any, k: Any, v: Any, scale: float, causal: bool) -> Any:
    s = np.einsum("hid,hjd->hij", q.astype(F64), k.astype(F64)) * scale
    if causal:
        s = np.where(np.tri(s.shape[1], dtype=bool), s, -np.inf)
    p = np.exp2(s - s.max(2, keepdims=True))
    return np.einsum("hij,hjd->hid", p / p.sum(2, keepdims=True), v.astype(F64))


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("arch", "block", "warps", "stages"), [(80, 64, 4, 2), (90, 64, 4, 2), (90, 128, 8, 3)])
def test_attention(arch: int, block: int, warps: int, stages: int, causal: bool) -> None:
    heads, length, d = 2, 256, 64
    q, k, v = (numbers(heads, length, d, seed=i) for i in range(3))
    out = np.zeros_like(q)
    values = {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "length": length,
        "scale": 0.18,
        "CAUSAL": causal,
        "BM": block,
        "BN": 64,
        "D": d,
    }
    launch(products.attention, (length // block, heads), values, arch=arch, num_warps=warps, num_stages=stages)
    close(out, attend(q, k, v, 0.18, causal), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("specialize", [False, True], ids=["plain", "specialized"])
def test_attention_by_descriptors(specialize: bool) -> None:
    heads, length, d = 2, 256, 64
    q, k, v = (numbers(heads, length, d, seed=i, dtype=BF16) for i in range(3))
    out = np.zeros_like(q)
    flat = {n: x.reshape(heads * length, d) for n, x in zip("qkv", (q, k, v), strict=True)}
    block = 64 if specialize else 128
    values = {n: Described(x, (block if n == "q" else 64, d)) for n, x in flat.items()}
    values |= {
        "out": out if specialize else Described(out.reshape(heads * length, d), (block, d)),
        "length": length,
        "scale": 0.18,
    }
    values |= {"BM": block, "BN": 64, "D": d, "SPECIALIZE": specialize}
    launch(products.described_attention, (length // block, heads), values, num_warps=4)
    close(out, attend(q, k, v, 0.18, False), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("arch", [80, 90])
def test_convolution(arch: int) -> None:
    h, w, c, f = 12, 20, 32, 64
    x, weights, out = numbers(h, w, c), numbers(3, 3, c, f, seed=1), np.zeros((h, w, f), F32)
    values = {"x": x, "w": weights, "out": out, "H": h, "W": w, "C": c, "KH": 3, "KW": 3, "F": f, "BLOCK": 64}
    launch(products.convolution, (-(-h * w // 64),), values, arch=arch)
    padded = np.pad(x.astype(F64), ((1, 1), (1, 1), (0, 0)))
    want = sum(padded[i : i + h, j : j + w] @ weights[i, j].astype(F64) for i in range(3) for j in range(3))
    close(out, want)
