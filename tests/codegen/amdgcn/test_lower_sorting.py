"""Elements moved by value or index, through shared memory and between lanes, as machine code for AMD."""

from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.amdgcn_kit import run_compiled


@mimw.kernel
def moved(x_ptr, index_ptr, sorted_ptr, picked_ptr, counts_ptr, N: ml.constexpr, BINS: ml.constexpr):
    at = ml.arange(0, N)
    x = ml.load(x_ptr + at)
    index = ml.load(index_ptr + at)
    ml.store(sorted_ptr + at, ml.sort(x))
    ml.store(picked_ptr + at, ml.gather(x, index, 0))
    ml.store(counts_ptr + ml.arange(0, BINS), ml.histogram(index, BINS))


@pytest.mark.parametrize(("target", "n", "warps"), [("gfx942", 256, 2), ("gfx950", 64, 4), ("gfx942", 512, 1)])
def test_sort_gather_histogram(target: str, n: int, warps: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32)
    index = rng.integers(0, n, n).astype(np.int32)
    ordered, picked, counts = np.zeros(n, np.float32), np.zeros(n, np.float32), np.full(n, -1, np.int32)
    types = ["*f32:16", "*i32:16", "*f32:16", "*f32:16", "*i32:16"]
    kernel = moved.compile(types, {"N": n, "BINS": n}, target=target, num_warps=warps)
    run_compiled(kernel, (1,), [x, index, ordered, picked, counts])
    np.testing.assert_array_equal(ordered, np.sort(x))
    np.testing.assert_array_equal(picked, x[index])
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=n))
