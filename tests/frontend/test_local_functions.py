"""Lambdas and nested functions in kernels: what they see, as combine functions and called; `and`, `or`, `not` of tiles."""

# ruff: noqa: E731
from __future__ import annotations

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from tests.language.engines_kit import both

TARGETS = ("sm_90a", "sm_80")


@mimw.kernel
def combined(x, y, scale, N: ml.constexpr):
    at = ml.arange(0, N)
    v = ml.load(x + at)
    most = ml.reduce(v, 0, lambda a, b: ml.maximum(a, b))
    where = ml.reduce((v, at), 0, lambda a, i, b, j: (ml.maximum(a, b), ml.where(a > b, i, j)))[1]

    def add(a, b):
        if N > 4:  # the kernel's constants, and its run-time values
            return a + b + 0 * scale
        return a

    ml.store(y + at, ml.associative_scan(v, 0, add) + most)
    ml.store(y + N, where)


def test_combine_functions() -> None:
    x = np.random.default_rng(0).permutation(64).astype(np.float32)
    got = both(combined, (1,), [x, np.zeros(65, np.float32), 3.0], TARGETS, N=64)
    np.testing.assert_array_equal(got[1][:64], np.cumsum(x) + 63)
    assert got[1][64] == x.argmax()


@mimw.kernel
def called(x, y, n):
    total = 0.0
    step = 2.0
    twice = lambda a, times=2: a * times

    def walk(lo, hi):
        if hi < lo:
            return 0.0  # from inside a branch that is decided at run time
        found = 0.0
        for i in range(lo, hi):
            found += twice(ml.load(x + i)) + step
        return found

    for k in range(2):
        total += walk(k, n)
        step += 1.0  # seen by the next call: names are looked up when a function is called
    ml.store(y, total)
    ml.store(y + 1, twice(total, times=3))
    ml.store(y + 2, (lambda f, a: f(f(a)))(twice, 5.0))


def test_calls() -> None:
    x = np.arange(8, dtype=np.float32)
    want = sum(2 * x[:5] + 2) + sum(2 * x[1:5] + 3)
    got = both(called, (1,), [x, np.zeros(3, np.float32), 5], TARGETS)
    np.testing.assert_array_equal(got[1], [want, 3 * want, 20])
    got = both(called, (1,), [x, np.zeros(3, np.float32), -1], TARGETS)
    np.testing.assert_array_equal(got[1], [0, 0, 20])


@mimw.kernel
def truths(x, y, n, M: ml.constexpr, N: ml.constexpr):
    rows, cols = ml.arange(0, M)[:, None], ml.arange(0, N)[None, :]
    mask = rows < n and cols < n + 1 and True
    v = ml.load(x + rows * N + cols, mask=mask)
    ml.store(y + rows * N + cols, ml.where(not v or (n > 2 and v > 3), 1, v))


def test_tiles_of_truth_values() -> None:
    """Of each two elements, broadcast, as in Triton; numbers count as true where they are not 0."""
    x = np.arange(128).reshape(8, 16) % 5
    x = x.astype(np.int32)
    for n in (2, 6):
        got = both(truths, (1,), [x, np.zeros_like(x), n], TARGETS, M=8, N=16)
        v = np.where((np.arange(8)[:, None] < n) & (np.arange(16) < n + 1), x, 0)
        np.testing.assert_array_equal(got[1], np.where((v == 0) | ((n > 2) & (v > 3)), 1, v))


@mimw.kernel
def listed(y, n):
    i = 40
    add = [lambda a, k=i: a + k for i in range(2)]
    squares = [i * i for i in range(1, 6, 2)]
    for k in ml.static_range(3):
        ml.store(y + k, add[k % 2](squares[k]) + n)
    ml.store(y + 3, i)  # the comprehension's own variable is gone


def test_comprehensions() -> None:
    got = both(listed, (1,), [np.zeros(4, np.int32), 100], TARGETS)
    np.testing.assert_array_equal(got[0], [101, 110, 125, 40])


@mimw.kernel
def changed(y, n, KIND: ml.constexpr):
    if KIND == "function":
        what = lambda: 1
    else:
        what = "a" if KIND == "text" else None
    i = 0
    while i < n:
        if KIND == "function":
            ml.store(y + i, what())
            what = lambda: 2
        elif KIND == "text":
            ml.store(y + i, 1 if what == "a" else 2)
            what = "b"
        else:
            ml.store(y + i, 1 if what is None else 2)
            what = ml.load(y + i)
        i += 1


@pytest.mark.parametrize(
    ("kind", "says"), [("function", "a function"), ("text", "the constant 'a'"), ("nothing", "the constant None")]
)
def test_what_a_loop_cannot_carry(kind: str, says: str) -> None:
    """The first trip would see what was before the loop, the others what the loop assigns."""
    with pytest.raises(CompilationError) as caught:
        changed[(1,)](np.zeros(4, np.int32), 3, KIND=kind)
    assert caught.value.code == "carried-type" and f"what is {says} before the loop" in str(caught.value)


@mimw.kernel
def writes(x, N: ml.constexpr):
    def add(a, b):
        if a > b:
            ml.store(x, 1.0)
        return a + b

    ml.store(x, ml.reduce(ml.load(x + ml.arange(0, N)), 0, add))


def test_a_combine_function_that_writes() -> None:
    with pytest.raises(CompilationError) as caught:
        writes[(1,)](np.zeros(16, np.float32), N=16)
    assert caught.value.code == "combine-effect" and "ml.store(x, 1.0)" in str(caught.value)
