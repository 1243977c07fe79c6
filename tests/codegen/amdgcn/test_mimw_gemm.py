"""`mimw.kernels.matmul` by its warp-specialised kernels, unchanged, as machine code of AMD's. NaN lies beyond the operands' edges; the tile
simulator's result is the measure."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.kernels import GemmConfig, matmul
from tests.amdgcn_kit import launch_in_amdgcn
from tests.kernels.test_matmul import matrix

F16, BF16 = np.float16, ml_dtypes.bfloat16
CONFIGS = (
    GemmConfig("cooperative", 64, 64, 32, 2),
    GemmConfig("cooperative", 128, 64, 32, 2, COLUMNS=32),
    GemmConfig("cooperative", 64, 64, 32, 3, COLUMNS=32, SIDE_BY_SIDE=True, TRANSPOSED=True),
    GemmConfig("pingpong", 64, 64, 32, 3, COLUMNS=32, BUFFERS=1),
    GemmConfig("split", 128, 64, 32, 2, SPLITS=2),
)


def small(shape: tuple[int, int], dtype: Any, by_columns: bool, seed: int) -> Any:
    """Small integers, whose sums are exact, inside of NaN."""
    found = matrix(*shape, dtype, by_columns, seed=seed)
    found[...] = np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)
    return found


def _cases() -> list[Any]:
    """Every configuration on one target with every change, on the other with the long checks."""
    out: list[Any] = []
    for i, config in enumerate(CONFIGS):
        for j, target in enumerate(("gfx942", "gfx950")):
            marks = () if (i + j) % 2 == 0 else (pytest.mark.deep,)
            out.append(pytest.param(config, target, id=f"{config.kernel}{i}-{target}", marks=marks))
    return out


@pytest.mark.parametrize(("config", "target"), _cases())
def test_products(monkeypatch: pytest.MonkeyPatch, config: GemmConfig, target: str) -> None:
    at = CONFIGS.index(config)
    dtype = (F16, BF16)[at % 2]
    m, n, k = 136, 88, 104
    a, b = small((m, k), dtype, at % 3 == 1, 0), small((k, n), dtype, at % 2 == 1, 1)
    bias = np.arange(n).astype(np.float32)
    want = matmul(a, b, bias=bias, activation="relu", config=config)
    ran = launch_in_amdgcn(monkeypatch, target, seed=at)
    got = matmul(a, b, np.full((m, n), np.nan, dtype), bias=bias, activation="relu", config=config)
    assert [kernel.metadata.name for kernel in ran] == [f"gemm_{config.kernel}"]
    assert ran[0].metadata.spill_bytes == 0
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0).astype(dtype))
