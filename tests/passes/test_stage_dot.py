"""How products are staged for each target, and that they still mean the same afterwards."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.ir.core import Module
from mimw.ir.types import BF16, F8E4M3, F8E4M3FNUZ, F8E5M2, F16, F32, F64, I8, I32, U8, DType, MemDescType, TensorType
from mimw.passes import pipeline
from mimw.sim.tile import run
from mimw.target import get_target
from tests.passes.build import matmul

NUMPY: dict[DType, Any] = {
    BF16: ml_dtypes.bfloat16,
    F16: np.float16,
    F32: np.float32,
    F64: np.float64,
    F8E4M3: ml_dtypes.float8_e4m3fn,
    F8E5M2: ml_dtypes.float8_e5m2,
    F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    I8: np.int8,
    U8: np.uint8,
    I32: np.int32,
}


def staged(target: str, **how: Any) -> Module:
    """A matmul after all passes."""
    module = matmul(**how)
    pipeline.run(module, get_target(target))
    return module


def remark(module: Module) -> str:
    """What the pass says of its dot."""
    return next(text for kind, _, text in module.remarks if kind == "dot")


def execute(module: Module, m: int, n: int, k: int, dtype: DType, out: DType, turned: bool) -> None:
    """Run on random numbers and compare with NumPy. Two blocks of K."""
    rng = np.random.default_rng(m * n + k)
    total = 2 * k

    def draw(*shape: int) -> Any:
        if dtype.kind != "float":
            return rng.integers(0, 100, shape).astype(NUMPY[dtype])
        return (rng.standard_normal(shape) * 0.5).astype(NUMPY[dtype])

    a, b = draw(m, total), draw(total, n)
    c = np.zeros((m, n), NUMPY[out])
    memory_b = np.ascontiguousarray(b.T) if turned else b
    run(module, [a, memory_b, c, total, total, total if turned else n, n], (1, 1, 1))
    want = a.astype(np.float64) @ b.astype(np.float64)
    loose = 2e-2 if out in (BF16, F16) else 3e-3 * (dtype is F32) + 1e-5
    np.testing.assert_allclose(c.astype(np.float64), want, rtol=loose, atol=loose * np.sqrt(total))


TYPES = [
    (BF16, BF16, F32, "tf32"),
    (F16, F16, F16, "tf32"),
    (F16, F32, F32, "tf32"),
    (F32, F32, F32, "tf32"),
    (F32, F32, F32, "ieee"),
    (F64, F64, F64, "tf32"),
    (F8E4M3, F32, F32, "tf32"),
    (F8E5M2, F32, F32, "tf32"),
    (I8, I32, I32, "tf32"),
    (U8, I32, I32, "tf32"),
]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("dtype", "out", "acc", "precision"), TYPES, ids=lambda x: str(x))
@pytest.mark.parametrize("turned", [False, True])
def test_types(target: str, dtype: DType, out: DType, acc: DType, precision: str, turned: bool) -> None:
    module = staged(target, m=64, n=32, k=32, dtype=dtype, out=out, acc=acc, precision=precision, b_turned=turned)
    execute(module, 64, 32, 32, dtype, out, turned)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(1, 1, 1), (3, 5, 7), (16, 8, 16), (33, 31, 33), (64, 24, 48), (96, 40, 16), (127, 20, 32), (192, 176, 48)],
)
def test_shapes(target: str, m: int, n: int, k: int) -> None:
    module = staged(target, m=m, n=n, k=k, out=F32)
    execute(module, m, n, k, BF16, F32, False)


@pytest.mark.parametrize(
    ("target", "how", "says"),
    [
        ("sm_90a", {}, "wgmma"),
        ("sm_90a", {"num_warps": 2}, "mma.sync: 2 warps"),
        ("sm_90a", {"m": 32}, "mma.sync: 32x128 is smaller"),
        ("sm_90a", {"k": 24}, "mma.sync: K = 24"),
        ("sm_90a", {"dtype": F64, "out": F64, "acc": F64, "k": 16, "n": 32, "m": 32}, "mma.sync"),
        ("sm_80", {}, "mma.sync: sm_80 has no wgmma"),
        ("sm_80", {"dtype": F8E4M3}, "fp8 operands are cast to f16"),
        ("sm_89", {"dtype": F8E4M3}, "mma.sync"),
        (
            "sm_89",
            {"dtype": F8E4M3FNUZ},
            "fp8 operands are cast to f16, as sm_89 has no product of f8e4m3fnuz and f8e4m3fnuz",
        ),
        ("sm_90a", {"dtype": F8E4M3FNUZ}, "fp8 operands are cast to f16"),
        ("gfx942", {"dtype": F8E4M3FNUZ}, "v_mfma"),
        ("gfx950", {"dtype": F8E4M3}, "v_mfma"),
        ("gfx942", {"dtype": F8E4M3}, "fp8 operands are cast to f16"),
        ("gfx950", {"dtype": F8E4M3FNUZ}, "fp8 operands are cast to f16"),
        ("sm_90a", {"dtype": F32, "out": F32, "precision": "ieee", "n": 32}, "fma"),
    ],
)
def test_the_choice_is_said(target: str, how: dict[str, Any], says: str) -> None:
    assert remark(staged(target, **how)).startswith(says)


def test_buffers_cover_what_the_instruction_reads() -> None:
    module = staged("sm_90a", m=96, n=20, k=48)
    (dot,) = [op for op in module.function.walk() if op.name == "mma.async_dot"]
    a, b = (v.type for v in dot.operands[:2])
    assert isinstance(a, MemDescType) and isinstance(b, MemDescType) and a.layout and b.layout
    assert a.shape == (96, 48) and a.layout.shape_padded[0] >= 128 and a.layout.shape_padded[1] == 48
    assert b.shape == (48, 20) and b.layout.shape_padded[1] >= 24 and b.layout.shape_padded[0] == 48


def test_the_operands_of_mma_sync_lie_in_fragments() -> None:
    module = staged("sm_80")
    (dot,) = [op for op in module.function.walk() if op.name == "mma.dot"]
    for v in dot.operands[:2]:
        assert isinstance(v.type, TensorType) and v.defining_op is not None
        assert v.defining_op.name == "memory.local_load"
