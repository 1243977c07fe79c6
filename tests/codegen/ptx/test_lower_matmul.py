"""The matrix product kernel: right in the PTX simulator, accepted by ptxas without spills or serialised products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.sim.ptx.run import run_ptx


@mimw.kernel
def product(
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_ak, stride_bk, stride_bn,
    M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr, ACC: ml.constexpr,
):  # fmt: skip
    m, n, k = ml.arange(0, M), ml.arange(0, N), ml.arange(0, BK)
    a = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = ml.zeros((M, N), dtype=ACC)
    for start in range(0, K, BK):
        inside = start + k < K
        acc = ml.dot(ml.load(a, mask=inside[None, :], other=0.0), ml.load(b, mask=inside[:, None], other=0.0), acc)
        a += BK * stride_ak
        b += BK * stride_bk
    ml.store(c_ptr + m[:, None] * N + n[None, :], acc)


_NUMPY = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
}


def _compile(dtype: str, shape: tuple[int, int, int], target: str, majors: str, warps: int, stages: int) -> Any:
    m, n, bk = shape
    out = "i32" if dtype == "i8" else "f64" if dtype == "f64" else "f32"
    # A leading dimension of rows or columns: the other stride is 1.
    signature = {"a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16", "c_ptr": f"*{out}:16", "K": "i32:16"}
    signature |= (
        {"stride_am": "i32:16", "stride_ak": "=1"} if majors[0] == "N" else {"stride_am": "=1", "stride_ak": "i32:16"}
    )
    signature |= (
        {"stride_bk": "i32:16", "stride_bn": "=1"} if majors[1] == "N" else {"stride_bk": "=1", "stride_bn": "i32:16"}
    )
    acc = {"i32": ml.int32, "f64": ml.float64}.get(out, ml.float32)
    return product.compile(
        signature, {"M": m, "N": n, "BK": bk, "ACC": acc}, target=target, num_warps=warps, num_stages=stages
    )


def _inputs(dtype: str, m: int, n: int, k: int, majors: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n)
    # Numbers with few bits: products and sums are exact in every engine, so that results must agree to the last bit.
    a = rng.integers(-4, 5, (m, k)).astype(_NUMPY[dtype])
    b = rng.integers(-4, 5, (k, n)).astype(_NUMPY[dtype])
    return (a if majors[0] == "N" else np.ascontiguousarray(a.T).T), (
        b if majors[1] == "N" else np.ascontiguousarray(b.T).T
    )


_CASES = [
    ("bf16", (128, 128, 64), "sm_90a", "NN", 4, 3),
    ("bf16", (128, 128, 64), "sm_90a", "NT", 8, 2),
    ("f16", (64, 96, 32), "sm_90a", "TN", 4, 3),
    ("f16", (64, 256, 16), "sm_90a", "TT", 4, 1),
    ("bf16", (256, 64, 64), "sm_90a", "NN", 8, 1),
    ("bf16", (64, 128, 64), "sm_90a", "NT", 8, 2),
    ("f32", (64, 64, 32), "sm_90a", "NN", 4, 2),
    ("f8e4m3", (64, 64, 64), "sm_90a", "NT", 4, 2),
    ("i8", (64, 40, 64), "sm_90a", "NN", 4, 2),
    ("bf16", (64, 64, 32), "sm_80", "NN", 4, 3),
    ("f16", (48, 80, 48), "sm_80", "TT", 4, 2),
    ("f32", (32, 64, 16), "sm_80", "NN", 2, 1),
    ("f64", (16, 24, 8), "sm_80", "NN", 1, 1),
    ("i8", (32, 32, 64), "sm_80", "NT", 4, 2),
    ("f8e4m3", (32, 32, 32), "sm_89", "NN", 4, 2),
    ("f8e4m3", (32, 32, 32), "sm_80", "NN", 4, 2),
    ("bf16", (17, 9, 5), "sm_80", "NN", 1, 1),
    ("bf16", (16, 16, 16), "sm_120a", "NN", 4, 2),
]


@pytest.mark.parametrize(("dtype", "shape", "target", "majors", "warps", "stages"), _CASES, ids=str)
def test_a_product_is_exact(
    dtype: str, shape: tuple[int, int, int], target: str, majors: str, warps: int, stages: int
) -> None:
    kernel = _compile(dtype, shape, target, majors, warps, stages)
    meta = kernel.metadata
    assert not meta.warnings and not meta.spill_bytes
    text = kernel.asm["ptx"]
    assert ("wgmma.mma_async" in text) == (target == "sm_90a")
    assert "wgmma" in text or "mma.sync" in text
    m, n, bk = shape
    k = 3 * bk if bk % 16 == 0 else bk + 16 - bk % 16
    a, b = _inputs(dtype, m, n, k, majors)
    out = np.zeros((m, n), np.int32 if dtype == "i8" else np.float64 if dtype == "f64" else np.float32)
    strides = [s // x.itemsize for x in (a, b) for s in x.strides]
    args = [_flat(a), _flat(b), out, k, *(s for s in strides if s != 1)]
    run_ptx(text, None, (1, 1, 1), args, shared_bytes=meta.shared_bytes)
    assert (out == a.astype(np.float64) @ b.astype(np.float64)).all()


def _flat(x: Any) -> Any:
    """The memory behind a matrix of either order."""
    return x.reshape(-1) if x.flags.c_contiguous else x.T.reshape(-1)
