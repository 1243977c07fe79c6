"""Control flow means what Python means: each kernel runs in the tile simulator and as plain Python, on the same numbers.

The kernels use scalars only and small integers as floats, so that both sides are exact.
"""

# ruff: noqa: RET505
from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mimw
import mimw.language as ml


@dataclass
class Acc:
    total: Any
    steps: Any


class Pointer:
    """A pointer for plain Python: an array and an offset."""

    def __init__(self, data: Any, at: int = 0) -> None:
        self.data, self.at = data, at

    def __add__(self, i: int) -> Pointer:
        return Pointer(self.data, self.at + i)


def _store(p: Pointer, v: Any) -> None:
    p.data[p.at] = v


PYTHON = SimpleNamespace(load=lambda p: p.data[p.at], store=_store, static_range=range, range=range)


def as_python(kernel: Any) -> Any:
    """The kernel's function with a language for plain Python, and so for the kernels that it calls."""
    space = dict(kernel.fn.__globals__)
    out = FunctionType(kernel.fn.__code__, space, kernel.fn.__name__, kernel.fn.__defaults__)
    for name, v in space.items():
        if isinstance(v, type(kernel)):
            space[name] = FunctionType(v.fn.__code__, space, name, v.fn.__defaults__)
    space["ml"] = PYTHON
    return out


@mimw.kernel
def first_positive(x, n):
    for j in range(n):
        v = ml.load(x + j)
        if v > 0:
            return j, v
    return -1, 0.0


@mimw.kernel
def bump(s, v):
    if v > 6:
        return False
    s.total += v
    if s.total < 0:
        s.steps += 10
        return True
    s.steps += 1
    return True


@mimw.kernel
def search(x, o, n):
    j, v = first_positive(x, n)
    ml.store(o, j)
    ml.store(o + 1, v)


@mimw.kernel
def records(x, o, n):
    s = Acc(0.0, 0)
    for i in range(n):
        v = ml.load(x + i)
        if v == 3:
            continue
        if v == 7:
            s.total = s.total + 100
            break
        if v > 0:
            if not bump(s, v):
                s = Acc(s.total - 1, s.steps)
        else:
            s.total = s.total * 2 + v
    ml.store(o, s.total)
    ml.store(o + 1, s.steps)


@mimw.kernel
def nested_loops(x, o, n):
    a = 0
    for i in range(n):
        for q in range(i):
            v = ml.load(x + q)
            if v == -2 and q > 1:
                break
            if q % 2 == 0 and i > 2:
                a += v
        if a > 20:
            ml.store(o + 2, i)
            break
    ml.store(o, a)


@mimw.kernel
def while_loops(x, o, n):
    t = 0
    while t < n and ml.load(x + t) < 4:
        t += 1
    ml.store(o, t)
    a, b = 0, 1
    while True:
        a, b = b, a + b
        if a > 50 or b == 21 + n:
            break
    ml.store(o + 1, a)
    ml.store(o + 2, b)


@mimw.kernel
def exits(x, o, n):
    i = 5
    for i in range(n):
        v = ml.load(x + i)
        if v < -3:
            if v == -5:
                ml.store(o + 3, 1)
                return
            elif v == -4:
                continue
            else:
                break
        ml.store(o, v)
    ml.store(o + 1, i)


@mimw.kernel
def backwards(x, o, n):
    last = 100
    for z in range(n - 1, -1, -2):
        if ml.load(x + z) > 5:
            last = z
    ml.store(o, last)


@mimw.kernel
def choices(x, o, n):
    a, b, c = ml.load(x), ml.load(x + 1), ml.load(x + 2)
    ml.store(o, 1 if a < b < c else 2 if a < b or c < b else 3)
    ml.store(o + 1, 1 if a > 0 and not b > 0 else 0)
    if a > b:
        if b > c:
            k = a
        elif c == 0:
            k = c + 1
        else:
            k = 2.0
    else:
        k = b
    ml.store(o + 2, k)
    if a > 0:
        if b > 0:
            if c > 0:
                ml.store(o + 3, 1)
                return
        else:
            ml.store(o + 3, 2)
            return
    ml.store(o + 3, 3)


@mimw.kernel
def aliases(x, o, n):
    s = Acc(0.0, 0)
    t = s
    for i in range(n):
        if i % 3 == 0:
            t.total = s.total + ml.load(x + i)
        else:
            s.steps = t.steps + i
    ml.store(o, s.total)
    ml.store(o + 1, t.steps)


@mimw.kernel
def unrolled(x, o, n):
    total = 0
    for i in ml.static_range(4):
        if i == 2:
            continue
        v = ml.load(x + i)
        if v > n:
            total += i
        else:
            total = total * 2
    ml.store(o, total)


KERNELS = [search, records, nested_loops, while_loops, exits, backwards, choices, aliases, unrolled]
DATA = st.lists(st.integers(-6, 8), min_size=4, max_size=9)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.fn.__name__)
def test_as_in_python(kernel: Any) -> None:
    python = as_python(kernel)

    @given(DATA)
    def check(values: list[int]) -> None:
        # One element more than n, so that `x + n` may be read.
        x = np.array([*values, 0], np.float32)
        got, want = np.full(4, -9, np.float32), [-9.0] * 4
        kernel[(1,)](x, got, len(values))
        python(Pointer([float(v) for v in x]), Pointer(want), len(values))
        assert got.tolist() == want

    check()


@mimw.kernel
def values_of_constants(x, N: ml.constexpr, T: ml.constexpr):
    ml.store(x, N.value + T.value[1] + len(T))
    if N.value > 2 and ml.float32.value == ml.float32:
        ml.store(x + 1, 1.0)


def test_the_value_of_a_constexpr() -> None:
    """``N.value`` is what Triton's kernels write for the constant itself."""
    x = np.zeros(2, np.float32)
    values_of_constants[(1,)](x, N=3, T=(5, 6))
    np.testing.assert_array_equal(x, [11, 1])
