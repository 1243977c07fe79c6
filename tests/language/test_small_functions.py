"""`prefetch`, `clock64`, `debug_barrier`, `squeeze`, `unsqueeze`, `get_fp8_format_name`, `thread_id`, and products of three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.language.engines_kit import both, compile_for

TARGETS = ("sm_90a", "sm_80")


@mimw.kernel
def prefetched(x, y, n, N: ml.constexpr):
    at = ml.arange(0, N)
    ml.prefetch(x + at, "L1", mask=at < n)
    ml.prefetch(x)
    ml.debug_barrier()
    ml.store(y + at, ml.load(x + at, mask=at < n), mask=at < n)


def test_prefetch() -> None:
    x = np.arange(200, dtype=np.float32)
    got = both(prefetched, (1,), [x, np.zeros_like(x), 200], TARGETS, N=256)
    np.testing.assert_array_equal(got[1], x)
    text = compile_for(prefetched, [x, x, 200], {"N": 256}, "sm_90a").asm["ptx"]
    assert "prefetch.global.L1 [" in text and "prefetch.global.L2 [" in text


@mimw.kernel
def prefetched_map(x, y, N: ml.constexpr):
    ml.prefetch(x, tensormap=True)
    ml.store(y + ml.arange(0, N), x.load([0]))


def test_prefetch_of_a_descriptor() -> None:
    x = np.arange(64, dtype=np.float32)
    d = TensorDescriptor.from_tensor(x, [64])
    got = both(prefetched_map, (1,), [d, np.zeros_like(x)], N=64)
    np.testing.assert_array_equal(got[1], x)


@mimw.kernel
def timed(x, t, N: ml.constexpr):
    total = ml.clock64() * 0
    for _ in range(4):
        start = ml.clock64()
        ml.store(x + ml.arange(0, N), ml.load(x + ml.arange(0, N)) + 1)
        total += ml.clock64() - start
    ml.store(t, total)


def test_clock_goes_up() -> None:
    x, t = np.zeros(64, np.float32), np.zeros(1, np.int64)
    timed[(1,)](x, t, N=64)
    assert (x == 4).all() and t[0] > 0
    text = compile_for(timed, [x, t], {"N": 64}, "sm_90a").asm["ptx"]
    assert text.count("%clock64") >= 2


@mimw.kernel
def decided(x):
    start = ml.clock64()
    while ml.clock64() - start < 100:
        ml.store(x, 1.0)


@mimw.kernel
def branched(x):
    late = ml.clock64() > 5
    if late:
        ml.store(x, 1.0)


@pytest.mark.parametrize(("fn", "line"), [(decided, 3), (branched, 3)])
def test_nothing_is_decided_by_the_clock(fn: Any, line: int) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_for(fn, [np.zeros(1, np.float32)], {}, "sm_90a")
    assert caught.value.code == "unsupported" and "depends on the clock" in str(caught.value)
    assert caught.value.loc.line == fn.fn.__code__.co_firstlineno + line


@mimw.kernel
def squeezed(x, y, N: ml.constexpr, NAME: ml.constexpr):
    ml.static_assert(ml.get_fp8_format_name(ml.float8e5) == NAME)
    tile = ml.load(x + ml.arange(0, N)).unsqueeze(0).unsqueeze(2)
    ml.static_assert(tile.shape[0] == 1 and tile.shape[1] == N and tile.shape[2] == 1)
    ml.store(y + ml.arange(0, N), ml.squeeze(tile.squeeze(2), 0))


def test_squeeze() -> None:
    x = np.arange(48, dtype=np.float32)
    got = both(squeezed, (1,), [x, np.zeros_like(x)], TARGETS, N=48, NAME="e5m2")
    np.testing.assert_array_equal(got[1], x)


@mimw.kernel
def first_thread(x):
    if ml.thread_id(0) == 0:
        ml.store(x, 1.0)


def test_threads_have_no_values() -> None:
    with pytest.raises(CompilationError, match="none of them has a value of its own") as caught:
        compile_for(first_thread, [np.zeros(1, np.float32)], {}, "sm_90a")
    assert caught.value.hint


@mimw.kernel
def batched(a, b, c, B: ml.constexpr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    rows, columns, inner = ml.arange(0, M), ml.arange(0, N), ml.arange(0, K)
    batch = ml.arange(0, B)[:, None, None]
    x = ml.load(a + batch * M * K + rows[None, :, None] * K + inner[None, None, :])
    y = ml.load(b + batch * K * N + inner[None, :, None] * N + columns[None, None, :])
    at = c + batch * M * N + rows[None, :, None] * N + columns[None, None, :]
    ml.store(at, ml.dot(x, y, ml.load(at)))


@pytest.mark.parametrize("sizes", [(2, 16, 16, 16), (3, 64, 16, 32), (1, 16, 8, 16)])
def test_products_of_three_dimensions(sizes: tuple[int, int, int, int]) -> None:
    b, m, n, k = sizes
    rng = np.random.default_rng(0)
    x, y = rng.integers(-4, 5, (b, m, k)).astype(np.float16), rng.integers(-4, 5, (b, k, n)).astype(np.float16)
    c = rng.integers(-9, 9, (b, m, n)).astype(np.float32)
    got = both(batched, (1,), [x, y, c], TARGETS, B=b, M=m, N=n, K=k)
    np.testing.assert_array_equal(got[2], c + x.astype(np.float32) @ y.astype(np.float32))
