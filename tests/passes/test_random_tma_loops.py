"""Loops over blocks by TMA, drawn at random: what else a trip does, trips, slots, warps, tiles that follow each other; both simulators and NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.language.engines_kit import both


@mimw.kernel
def tiles(
    a, b, c, rows, columns, K, P,
    M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr, ALSO: ml.constexpr, AFTER: ml.constexpr,
):  # fmt: skip
    """`ALSO`: what a trip does beside its product. `AFTER`: how the old block of c is added."""
    for tile in range(ml.program_id(0), rows * columns, P):
        m, n = (tile // columns) * M, (tile % columns) * N
        acc = ml.zeros((M, N), ml.float32)
        last = 0
        for k in range(0, K, BK):
            if ALSO == "break" and k >= 3 * BK:
                break
            if ALSO == "continue" and k == BK:
                continue
            x = a.load([m, k])
            y = b.load([n, k])
            acc += ml.dot(x, y.T)
            if ALSO == "again":
                acc += ml.dot(x, y.T)
            if ALSO == "earlier":
                acc = ml.dot(x, b.load([n, last]).T, acc)
            if ALSO == "sum":
                acc += ml.sum(x.to(ml.float32), 1)[:, None]
            if ALSO == "halve" and k > BK:
                acc *= 0.5
            if ALSO == "wrap":
                acc = ml.where(acc > 50, acc - 50, acc)
            last = k
        if AFTER == "always" or (AFTER == "even" and tile % 2 == 0):
            acc += c.load([m, n])
        if AFTER == "loop":
            for _ in range(2):
                acc += c.load([m, n]) * 0.5
        c.store([m, n], acc)


def expected(a: np.ndarray, b: np.ndarray, c: np.ndarray, trips: int, tile: int, bk: int, also: str, after: str):
    """One tile of the result, from its rows of a and b and its block of c."""
    acc, last = np.zeros(c.shape), 0
    for i in range(trips):
        if also == "break" and i >= 3:
            break
        if also == "continue" and i == 1:
            continue
        x, y, before = (t[:, j * bk : (j + 1) * bk].astype(float) for t, j in ((a, i), (b, i), (b, last)))
        acc += x @ y.T
        if also == "again":
            acc += x @ y.T
        if also == "earlier":
            acc += x @ before.T
        if also == "sum":
            acc += x.sum(1)[:, None]
        if also == "halve" and i > 1:
            acc *= 0.5
        if also == "wrap":
            acc = np.where(acc > 50, acc - 50, acc)
        last = i
    return acc + c if after in ("always", "loop") or (after == "even" and tile % 2 == 0) else acc


def check(seed: int) -> None:
    r = random.Random(seed)
    m, n, bk = 64, r.choice([16, 32]), r.choice([16, 32, 64])
    rows, columns, programs, trips = r.randint(1, 2), r.randint(1, 2), r.randint(1, 3), r.randrange(8)
    also = r.choice(["nothing", "break", "continue", "again", "earlier", "sum", "halve", "wrap"])
    after = r.choice(["never", "always", "even", "loop"])
    dtype = r.choice([np.float16, np.float32])
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2, 3, (k, max(1, trips) * bk)).astype(dtype) for k in (m * rows, n * columns))
    c = rng.integers(-4, 5, (m * rows, n * columns)).astype(np.float32)
    args = [
        TensorDescriptor(t, t.shape, [t.shape[1], 1], block) for t, block in ((a, [m, bk]), (b, [n, bk]), (c, [m, n]))
    ]
    options = {"num_warps": r.choice([2, 4, 8]), "num_stages": r.choice([1, 2, 3, 4, 5])}
    constants = {"M": m, "N": n, "BK": bk, "ALSO": also, "AFTER": after}
    got = both(tiles, (programs,), [*args, rows, columns, trips * bk, programs], **constants, **options)
    for tile in range(rows * columns):
        i, j = tile // columns, tile % columns
        here = slice(i * m, (i + 1) * m), slice(j * n, (j + 1) * n)
        want = expected(a[here[0]], b[here[1]], c[here], trips, tile, bk, also, after)
        np.testing.assert_allclose(got[2][here], want, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")


@pytest.mark.parametrize("seed", range(6))
def test_some_loops(seed: int) -> None:
    check(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6, 150))
def test_many_loops(seed: int) -> None:
    check(seed)
