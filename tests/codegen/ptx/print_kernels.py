"""Kernels that print, with their launches: shared by the tests on the simulators and on a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import mimw
import mimw.language as ml

Array = np.ndarray[Any, Any]


@mimw.kernel
def print_vector(x, n, B: ml.constexpr, HEX: ml.constexpr):
    i = ml.program_id(0) * B + ml.arange(0, B)
    ml.device_print("x", ml.load(x + i, mask=i < n), hex=HEX)


@mimw.kernel
def print_matrix(x, n, R: ml.constexpr, C: ml.constexpr):
    rows = ml.arange(0, R)[:, None]
    tile = ml.load(x + rows * C + ml.arange(0, C)[None, :])
    print("100% \u00e9: tile,", tile, n, tile > n)
    ml.device_print("sum", ml.sum(tile, axis=1))
    if ml.program_id(1) == 1:
        ml.device_print("second")


@mimw.kernel
def print_scalars(x, n, f):
    for k in range(n):
        ml.device_print("k", k)
    ml.device_print("f", f, n == 3, -7, 2.5)
    ml.device_print("bits", f, n, n == 3, hex=True)


@mimw.kernel
def print_while_multiplying(a, b, out, K, BLOCK: ml.constexpr, EACH: ml.constexpr):
    i, j = ml.arange(0, 64), ml.arange(0, BLOCK)
    acc = ml.zeros((64, 64), ml.float32)
    for k in range(0, K, BLOCK):
        x = ml.load(a + i[:, None] * K + (k + j)[None, :])
        y = ml.load(b + (k + j)[:, None] * 64 + i[None, :])
        acc = ml.dot(x, y, acc)
        if EACH:
            ml.device_print("k", k)
    ml.store(out + i[:, None] * 64 + i[None, :], acc)


@mimw.kernel
def check_positive(x, out, n, B: ml.constexpr):
    i = ml.arange(0, B)
    v = ml.load(x + i, mask=i < n, other=-1.0)
    ml.device_assert(v > 0, "100% positive", i < n)
    ml.store(out + i, v, mask=i < n)


@mimw.kernel
def print_add(x, y):
    ml.device_print("x", x)
    return x + y


@mimw.kernel
def assert_add(x, y):
    ml.device_assert(x < y)
    return x + y


@mimw.kernel
def reduce_with(x, out, ADD: ml.constexpr):
    ml.store(out, ml.reduce(ml.load(x + ml.arange(0, 64)), 0, ADD))


_DTYPES: list[Any] = [
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip


def numbers(dtype: Any) -> Array:
    """Eight values with both signs, both ends and, of floats, what is no number."""
    t = np.dtype(dtype)
    if t.kind in "iu":
        info = np.iinfo(t)
        return np.array([info.min, info.max, 0, 1, 100, info.max - 1, info.min + 1, 7], t)
    values = np.array([-0.0, -0.5, 1.75, -448.0, np.inf, np.nan, -np.nan, -np.inf])
    return values.astype(t) if t.itemsize > 1 else values[[0, 1, 2, 3, 6, 5, 2, 1]].astype(t)


def cases() -> dict[str, tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]]:
    """Name -> (kernel, grid, arguments, constants), fresh arrays each time."""
    found: dict[str, tuple[Any, tuple[int, ...], list[Any], dict[str, Any]]] = {}
    for dtype in _DTYPES:
        for as_hex in (False, True):
            name = f"{np.dtype(dtype).name}{'-hex' if as_hex else ''}"
            found[name] = (print_vector, (2,), [numbers(dtype), 8], {"B": 4, "HEX": as_hex})
    found["odd"] = (print_vector, (2,), [np.arange(14, dtype=np.float32), 14], {"B": 7, "HEX": False})
    found["large"] = (print_vector, (1,), [np.arange(600, dtype=np.int32), 600], {"B": 512, "HEX": False})
    found["matrix"] = (print_matrix, (1, 2), [np.arange(40, dtype=np.int32), 9], {"R": 5, "C": 8})
    found["scalars"] = (print_scalars, (2, 1, 2), [np.zeros(1, np.float32), 3, 1.5], {})
    operands = [np.ones((64, 128), np.float16), np.ones((128, 64), np.float16), np.zeros((64, 64), np.float32)]
    found["matmul"] = (print_while_multiplying, (1,), [*operands, 128], {"BLOCK": 32, "EACH": True})
    return found
