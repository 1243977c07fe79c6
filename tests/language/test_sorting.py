"""`sort`, `topk`, `flip`, `gather`, `histogram` against NumPy, on both simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.language.engines_kit import both

TARGETS = ("sm_90a", "sm_80")


def shuffled(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    n = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(n).reshape(shape) - n // 2).astype(dtype)


@mimw.kernel
def sort_rows(x, y, M: ml.constexpr, N: ml.constexpr, DIM: ml.constexpr, DOWN: ml.constexpr):
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    ml.store(y + at, ml.sort(ml.load(x + at), DIM, DOWN))


@pytest.mark.parametrize(
    ("m", "n", "dim", "down", "dtype"),
    [
        (1, 256, 1, False, np.float32),
        (6, 32, 1, True, np.int32),
        (64, 8, 0, False, np.float16),
        (4, 1, 1, False, np.int8),
    ],
)
def test_sort(m: int, n: int, dim: int, down: bool, dtype: Any) -> None:
    x = shuffled((m, n), dtype)
    got = both(sort_rows, (1,), [x, np.zeros_like(x)], TARGETS, M=m, N=n, DIM=dim, DOWN=down)
    want = np.sort(x, dim)
    np.testing.assert_array_equal(got[1], np.flip(want, dim) if down else want)


@mimw.kernel
def best(x, y, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    out = ml.arange(0, M)[:, None] * K + ml.arange(0, K)[None, :]
    ml.store(y + out, ml.topk(ml.load(x + at), K))


@pytest.mark.parametrize("k", [1, 4, 64])
def test_topk(k: int) -> None:
    x = shuffled((4, 64))
    got = both(best, (1,), [x, np.zeros((4, k), np.float32)], TARGETS, M=4, N=64, K=k)
    np.testing.assert_array_equal(got[1], -np.sort(-x, 1)[:, :k])


@mimw.kernel
def turned(x, y, M: ml.constexpr, N: ml.constexpr, DIM: ml.constexpr):
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    tile = ml.flip(ml.load(x + at), DIM)
    even = ml.flip(tile % 2 == 0, 0)
    ml.store(y + at, ml.where(even, tile, 0))


@pytest.mark.parametrize(("m", "n", "dim"), [(3, 40, 1), (16, 8, 0)])
def test_flip(m: int, n: int, dim: int) -> None:
    x = shuffled((m, n), np.int32)
    got = both(turned, (1,), [x, np.zeros_like(x)], TARGETS, M=m, N=n, DIM=dim)
    tile = np.flip(x, dim)
    np.testing.assert_array_equal(got[1], np.where(np.flip(tile % 2 == 0, 0), tile, 0))


@mimw.kernel
def picked(x, index, y, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    where = ml.arange(0, M)[:, None] * K + ml.arange(0, K)[None, :]
    ml.store(y + where, ml.gather(ml.load(x + at), ml.load(index + where), 1))


@pytest.mark.parametrize("k", [16, 100])
def test_gather(k: int) -> None:
    x = shuffled((8, 48), np.float16)
    index = np.random.default_rng(1).integers(0, 48, (8, k)).astype(np.int64)
    got = both(picked, (1,), [x, index, np.zeros((8, k), np.float16)], TARGETS, M=8, N=48, K=k)
    np.testing.assert_array_equal(got[2], np.take_along_axis(x, index, 1))


@mimw.kernel
def counted(x, y, n, N: ml.constexpr, BINS: ml.constexpr):
    at = ml.arange(0, N)
    values = ml.load(x + at)
    every = ml.histogram(values, BINS)
    some = ml.histogram(values, BINS, mask=at < n)
    ml.store(y + ml.arange(0, BINS), every + 1000 * some)


@pytest.mark.parametrize(("n", "bins", "dtype"), [(512, 16, np.int32), (300, 100, np.int64), (128, 1, np.uint8)])
def test_histogram(n: int, bins: int, dtype: Any) -> None:
    low = 0 if dtype is np.uint8 else -3
    x = np.random.default_rng(2).integers(low, bins + 3, n).astype(dtype)
    got = both(counted, (1,), [x, np.zeros(bins, np.int32), 77], TARGETS, N=n, BINS=bins)
    count = [int((x == i).sum()) + 1000 * int((x[:77] == i).sum()) for i in range(bins)]
    np.testing.assert_array_equal(got[1], count)


@mimw.kernel
def normals(y, z, w, seed, N: ml.constexpr):
    at = ml.arange(0, N)
    a, b, c, d = ml.randint4x(seed, at)
    ml.store(y + at, a)
    ml.store(y + N + at, ml.randint(seed, at.to(ml.int64) + 4294967296, 7))
    ml.store(y + 2 * N + at, b ^ c ^ d)
    ml.store(z + at, ml.rand(seed, at))
    ml.store(w + at, ml.randn(seed, at))


def philox(counter: list[int], key: list[int], rounds: int = 10) -> list[int]:
    """Philox4x32 in plain Python."""
    c, k = list(counter), list(key)
    for _ in range(rounds):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_philox_is_the_published_one() -> None:
    assert philox([0] * 4, [0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("seed", [0, 12345, -7])
def test_random_numbers(seed: int) -> None:
    n = 128
    y, z, w = np.zeros((3, n), np.uint32), np.zeros(n, np.float32), np.zeros(n, np.float32)
    normals[(1,)](y, z, w, seed, N=n)
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    words = np.array([philox([i, 0, 0, 0], key) for i in range(n)], np.uint32)
    np.testing.assert_array_equal(y[0], words[:, 0])
    np.testing.assert_array_equal(y[1], [philox([i, 1, 0, 0], key, 7)[0] for i in range(n)])
    np.testing.assert_array_equal(y[2], words[:, 1] ^ words[:, 2] ^ words[:, 3])
    signed = words[:, 0].view(np.int32)
    np.testing.assert_array_equal(
        z, np.where(signed < 0, ~signed, signed).astype(np.float32) * np.float32(4.6566127342e-10)
    )
    assert (
        (z >= 0).all() and (z < 1).all() and abs(z.mean() - 0.5) < 0.1 and abs(w.mean()) < 0.3 and 0.7 < w.std() < 1.3
    )


@mimw.kernel
def words(y, z, seed, N: ml.constexpr):
    at = ml.arange(0, N)
    a, b, c, d = ml.randint4x(seed, at)
    ml.store(y + at, a ^ b ^ c ^ d)
    ml.store(z + at, ml.rand(seed, at))


@mimw.kernel
def parts(x, y, seed, N: ml.constexpr):
    at = ml.arange(0, N)
    a, b, c, d = ml.philox(seed, at, 1, at * 2, 3)
    ml.store(x + at, a ^ b ^ c ^ d)
    n, m = ml.pair_uniform_to_normal(ml.uint_to_uniform_float(a), ml.rand(seed, at))
    i = 0
    while ml.condition(i < 2):
        i += 1
    ml.store(y, ml.reduce_or((n + m > 0).to(ml.int32) * at) + i)


def test_the_generator_itself() -> None:
    x = np.zeros(64, np.uint32)
    got = both(parts, (1,), [x, np.zeros(1, np.int32), 5], TARGETS, N=64)
    want = np.array([philox([i, 1, 2 * i, 3], [5, 0]) for i in range(64)], np.uint32)
    np.testing.assert_array_equal(got[0], np.bitwise_xor.reduce(want, 1))
    assert got[1][0] == 63 + 2


def test_random_numbers_in_text() -> None:
    both(words, (1,), [np.zeros(256, np.uint32), np.zeros(256, np.float32), 99], TARGETS, N=256)
