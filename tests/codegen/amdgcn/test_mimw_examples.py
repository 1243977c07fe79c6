"""The examples of the MIMW layer, unchanged, as machine code of AMD's: through LLVM, in the simulator with its checks for races and waits,
under several orders of the waves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.amdgcn_kit import run_compiled

EXAMPLES = Path(__file__).parents[3] / "examples"
TARGETS = ("gfx942", "gfx950")


def load(name: str) -> Any:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers, whose sums are exact in any order."""
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_sums_through_a_descriptor(target: str, num_warps: int) -> None:
    types = ["tensor_desc<32x64xf32>", "*f32:16", "i32", "i32"]
    constants = {"BM": 32, "BN": 64, "STAGES": 3}
    kernel = load("04_async_copy.py").sums_by_tma.compile(types, constants, target=target, num_warps=num_warps)
    for rows, columns in ((50, 336), (33, 64)):
        x, out = numbers((rows, columns), "float32"), np.full(rows, np.nan, np.float32)
        run_compiled(kernel, (2,), [TensorDescriptor.from_tensor(x, [32, 64]), out, rows, columns], seed=num_warps)
        np.testing.assert_array_equal(out, x.sum(axis=1))


@pytest.mark.parametrize("target", TARGETS)
def test_a_tensor_that_ends_inside_a_vector(target: str) -> None:
    types = ["tensor_desc<32x64xf16>", "*f32:16", "i32", "i32"]
    kernel = load("04_async_copy.py").sums_by_tma.compile(types, {"BM": 32, "BN": 64, "STAGES": 3}, target=target)
    x, out = numbers((40, 112), "float16"), np.full(35, np.nan, np.float32)
    described = TensorDescriptor(x, [35, 101], [112, 1], [32, 64])
    run_compiled(kernel, (2,), [described, out, 35, 101])
    np.testing.assert_array_equal(out, x[:35, :101].sum(axis=1, dtype=np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_by_bulk_copies(target: str) -> None:
    types = ["*f32:16", "*i32:16", "*f32:16", "i32"]
    kernel = load("04_async_copy.py").gather.compile(types, {"D": 96, "ROWS": 4}, target=target)
    table, index = numbers((50, 96), "float32"), np.random.default_rng(0).integers(0, 50, 30).astype(np.int32)
    out = np.zeros((30, 96), np.float32)
    run_compiled(kernel, (8,), [table, index, out, 30])
    np.testing.assert_array_equal(out, table[index])


SMALL = {"BM": 64, "BN": 64, "BK": 32, "STAGES": 2}


def product(
    kernel: CompiledKernel, planned: Any, shape: tuple[int, int, int], seed: int, more: tuple[int, ...]
) -> None:
    """Run a product of small integers; the result must be exact. `more`: arguments behind the planned ones."""
    m, n, k = shape
    a, b = numbers((m, k), "float16"), numbers((k, n), "float16")
    c = np.full((m, n), np.nan, np.float16)
    grid, arguments = planned(a, b, c)
    run_compiled(kernel, grid, [*arguments, *more], seed=seed)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["with_pipeline", "with_barriers"])
def test_warp_specialised_product(name: str, target: str) -> None:
    module = load("05_warp_specialized_matmul.py")
    types = ["tensor_desc<64x32xf16>", "tensor_desc<32x64xf16>", "tensor_desc<32x64xf16>", "i32"]
    kernel = getattr(module, name).compile(types, SMALL, target=target)
    for seed, shape in enumerate(((64, 64, 32), (100, 72, 136))):
        product(kernel, lambda a, b, c: module.plan(a, b, c, **SMALL), shape, seed, ())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [0, 1])
def test_taking_turns(seed: int, target: str) -> None:
    """Two programs for six tiles, so that consumers come round again; K of no multiple of a block."""
    module = load("06_pingpong_matmul.py")
    types = ["tensor_desc<64x32xf16>", "tensor_desc<32x64xf16>", "tensor_desc<64x64xf16>", *["i32"] * 3]
    kernel = module.matmul_kernel.compile(types, SMALL, target=target)
    product(kernel, lambda a, b, c: module.plan(a, b, c, 2, **SMALL), (136, 104, 72), seed, ())
