"""`mimw.kernels.matmul` on host arrays: the tile simulator, and the emitted PTX in its own; NaN lies beyond the operands' edges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.diagnostics import LaunchError
from mimw.kernels import GemmConfig, matmul
from mimw.kernels import gemm as kernels
from tests.kernels.engines import launch_in_ptx

BF16, F8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
SMALL = GemmConfig("cooperative", 128, 64, 64, 2)
CONFIGS = (
    SMALL,
    GemmConfig("pingpong", 64, 64, 64, 2),
    GemmConfig("cooperative", 128, 64, 64, 3, COLUMNS=32, CLUSTER_M=2),
    GemmConfig("pingpong", 64, 64, 64, 3, GROUP_M=2, CLUSTER_N=2),
    GemmConfig("cooperative", 128, 64, 64, 2, CLUSTER_M=2, CLUSTER_N=2),
    GemmConfig("pingpong", 64, 96, 64, 2, COLUMNS=32),
    GemmConfig("pingpong", 72, 64, 64, 2, COLUMNS=24, TRANSPOSED=True, CLUSTER_M=2),
    GemmConfig("cooperative", 80, 64, 64, 3, COLUMNS=8, TRANSPOSED=True, SIDE_BY_SIDE=True, BUFFERS=3),
    GemmConfig("cooperative", 64, 128, 64, 2, COLUMNS=32, TRANSPOSED=True, CLUSTER_N=2),
    GemmConfig("split", 128, 64, 64, 2, SPLITS=2),
    GemmConfig("split", 64, 64, 64, 3, SPLITS=3),
)


def matrix(rows: int, columns: int, dtype: Any = BF16, by_columns: bool = False, pitch: int = 8, seed: int = 0) -> Any:
    """A random matrix inside a larger array of NaN, dense along its rows or columns, its lines a multiple of `pitch` elements apart."""
    lines, length = (columns, rows) if by_columns else (rows, columns)
    whole = np.full((lines + 1, -(-length // pitch) * pitch + pitch), np.nan, dtype)
    whole[:lines, :length] = np.random.default_rng(seed).standard_normal((lines, length)).astype(dtype)
    part = whole[:lines, :length]
    return part.T if by_columns else part


def check(
    got: Any, a: Any, b: Any, scale: float = 1.0, bias: Any = 0.0, activation: Any = None, residual: Any = 0.0
) -> None:
    """Against float64, within the sum's and the rounding's bounds. (The activations here do not stretch errors by more than 1.2.)"""
    a, b, bias = a.astype(float), b.astype(float), np.asarray(bias, float)
    want = scale * (a @ b) + bias
    reach = abs(scale) * (np.abs(a) @ np.abs(b)) + np.abs(bias)
    want = ACTIVATIONS[activation](want) + np.asarray(residual, float)
    reach = reach + np.abs(np.asarray(residual, float))
    ulp = float(ml_dtypes.finfo(got.dtype).eps)
    bound = 1.2 * (a.shape[1] + 4) * 2.0**-22 * reach + ulp * np.abs(want) + 1e-5
    error = np.abs(got.astype(float) - want)
    assert (error <= bound).all(), (error / bound).max()


def fitting(config: GemmConfig, majors: tuple[bool, bool]) -> GemmConfig:
    """The configuration, or where its steps of 8 meet an operand that is dense in that direction, one with steps of 64."""
    if config.TRANSPOSED and majors[0] and config.BM % 64:
        return GemmConfig(**{**dict(zip(config.key_names(), config.key(), strict=True)), "BM": 128, "COLUMNS": 32})
    return config


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


ACTIVATIONS: dict[Any, Any] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)))
def test_majors(config: GemmConfig, majors: tuple[bool, bool]):
    a, b = matrix(200, 168, by_columns=majors[0]), matrix(168, 136, by_columns=majors[1], seed=1)
    config = fitting(config, majors)
    out = matmul(a, b, np.full((200, 136), np.nan, BF16), config=config)
    check(out, a, b)
    if majors == (False, True):
        assert matmul(a, b, config=config).tobytes() == out.tobytes()


# Steps of K around the number of stages, and 1 to 9 tiles over two programs.
@pytest.mark.parametrize("k", [0, 1, 64, 65, 128, 192, 193])
@pytest.mark.parametrize("kernel", ["cooperative", "pingpong"])
def test_lengths_of_k(kernel: str, k: int):
    a, b = matrix(130, k), matrix(k, 72, seed=1)
    for stages in (2, 3, 4):
        config = GemmConfig(kernel, 128 if kernel == "cooperative" else 64, 64, 64, stages)
        check(matmul(a, b, np.full((130, 72), np.nan, BF16), config=config), a, b)


@pytest.mark.parametrize("tiles", [(m, n) for m in (1, 2, 3) for n in (1, 2, 3)])
@pytest.mark.parametrize("kernel", ["cooperative", "pingpong"])
def test_numbers_of_tiles(kernel: str, tiles: tuple[int, int]):
    rows = 128 if kernel == "cooperative" else 64
    m, n = rows * tiles[0] - 3, 64 * tiles[1] - 8
    a, b = matrix(m, 72), matrix(72, n, seed=1)
    check(matmul(a, b, np.full((m, n), np.nan, BF16), config=GemmConfig(kernel, rows, 64, 64, 2, GROUP_M=2)), a, b)


@pytest.mark.parametrize("shape", [(1, 1, 1), (77, 130, 201), (3, 500, 7), (129, 8, 64), (64, 24, 1000)])
def test_chosen_by_shape(shape: tuple[int, int, int]):
    m, n, k = shape
    for dtype in (BF16, np.float16):
        a, b = matrix(m, k, dtype), matrix(k, n, dtype, seed=1)
        got = matmul(a, b)
        assert got.dtype == dtype and got.shape == (m, n)
        check(got, a, b)


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.kernel != "split"][::2], ids=repr)
def test_result_by_columns(config: GemmConfig):
    a, b, bias = matrix(136, 72), matrix(72, 88, seed=1), matrix(1, 88, np.float16, seed=2)[0]
    out = matrix(136, 88, by_columns=True)
    out[:] = np.nan
    assert matmul(a, b, out, bias=bias, config=config) is out
    check(out, a, b, 1.0, bias)


def test_dense_operands_with_odd_extents_take_pointers():
    a, b = (np.ascontiguousarray(matrix(*shape)) for shape in ((77, 131), (131, 55)))
    check(matmul(a, b), a, b)
    c = np.full((55, 77), np.nan, np.float32).T
    assert matmul(a, b, c) is c
    check(c, a, b)
    assert not np.isnan(c).any()
    check(matmul(a[1:, ::2], b[::2]), a[1:, ::2], b[::2])


@pytest.mark.parametrize("m, n, k", [(0, 8, 8), (8, 0, 8), (0, 0, 0), (130, 70, 0)])
def test_empty(m: int, n: int, k: int):
    got = matmul(np.zeros((m, k), BF16), np.zeros((k, n), BF16), bias=np.ones(n, np.float32))
    assert got.shape == (m, n) and (got == 1).all()


# Every configuration with one activation, and every activation as chosen by shape.
ENDS = [
    *((c, name) for c, name in zip(CONFIGS, itertools.cycle(ACTIVATIONS), strict=False)),
    *((None, name) for name in ACTIVATIONS),
]


@pytest.mark.parametrize("config, activation", ENDS, ids=str)
def test_epilogue(config: GemmConfig | None, activation: str | None):
    a, b, bias = matrix(136, 72), matrix(72, 88, seed=1), matrix(1, 88, np.float16, seed=2)[0]
    for out in (BF16, np.float32):
        got = matmul(a, b, bias=bias, scale=0.125, activation=activation, out_dtype=out, config=config)
        check(got, a, b, 0.125, bias, activation)


@pytest.mark.parametrize("config", [*CONFIGS, None], ids=repr)
@pytest.mark.parametrize("by_columns", [False, True])
def test_residual(config: GemmConfig | None, by_columns: bool):
    a, b = matrix(136, 72), matrix(72, 88, seed=1)
    scale, residual = np.array([0.5], np.float32), matrix(136, 88, by_columns=by_columns, seed=2)
    got = matmul(a, b, scale=scale, residual=residual, activation="relu", config=config)
    check(got, a, b, 0.5, activation="relu", residual=residual)


@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("out", [None, np.float32])
def test_fp8(majors: tuple[bool, bool], out: Any):
    a, b = matrix(136, 304, F8, majors[0], 16), matrix(304, 72, F8, majors[1], 16, seed=1)
    got = matmul(a, b, scale=2.0, out_dtype=out)
    assert got.dtype == (out or BF16)
    check(got, a, b, 2.0)
    check(matmul(a, b, scale=2.0, out_dtype=out, fast_accumulation=False), a, b, 2.0)


def test_relu_keeps_nan():
    a = np.full((8, 8), np.nan, BF16)
    assert np.isnan(matmul(a, a, activation="relu").astype(float)).all()


@pytest.mark.parametrize("index, config", list(enumerate(CONFIGS)), ids=str)
def test_emitted_text(index: int, config: GemmConfig, monkeypatch: pytest.MonkeyPatch):
    majors = ((False, True), (True, False))[index % 2]
    a, b = matrix(200, 136, by_columns=majors[0]), matrix(136, 72, by_columns=majors[1], seed=1)
    config = fitting(config, majors)
    bias = matrix(1, 72, seed=2)[0]
    tile = matmul(a, b, bias=bias, activation="relu", config=config)
    ran = launch_in_ptx(monkeypatch)
    text = matmul(a, b, bias=bias, activation="relu", config=config)
    check(text, a, b, 1.0, bias, "relu")
    assert (np.abs(tile.astype(float) - text.astype(float)) <= 2.0**-7 * np.abs(tile.astype(float)) + 1e-4).all()
    assert ran == [getattr(kernels, f"gemm_{config.kernel}")]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"b": np.zeros((9, 8), BF16)}, "cannot multiply [8, 8] by [9, 8]: 8 columns meet 9 rows"),
    (
        {"b": np.zeros((8, 8), np.float16)},
        "one type, bf16, f16, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz; they are bf16 and f16",
    ),
    ({"b": np.zeros(8, BF16)}, "takes matrices; b has the shape [8]"),
    ({"b": "text"}, "b"),
    ({"out": np.zeros((8, 9), BF16)}, "result of shape [8, 8]; out has the shape [8, 9]"),
    ({"out": np.zeros((8, 8), np.int32)}, "out is i32"),
    ({"bias": np.zeros(9, BF16)}, "dense bias of shape [8]"),
    ({"bias": np.zeros(16, BF16)[::2]}, "dense bias of shape [8]"),
    ({"bias": np.zeros(8, np.int8)}, "takes a bias of bf16, f16, f32"),
    ({"activation": "swish"}, "it was given 'swish'"),
    ({"residual": np.zeros((8, 9), BF16)}, "residual of shape [8, 8], not [8, 9]"),
    ({"scale": np.zeros(2, np.float32)}, "one element as scale"),
    ({"scale": "2"}, "takes a number or an f32 array of one element as scale, not a str"),
]


@pytest.mark.parametrize("changed, text", REFUSED)
def test_refusals(changed: dict[str, Any], text: str):
    given: dict[str, Any] = {"a": np.zeros((8, 8), BF16), "b": np.zeros((8, 8), BF16), **changed}
    with pytest.raises(LaunchError) as caught:
        matmul(**given)
    assert caught.value.code == "matmul" and text in str(caught.value)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz])
def test_fp8_of_cdna3_is_multiplied_as_f16(dtype: Any):
    a, b = matrix(72, 136, dtype, pitch=16), matrix(136, 40, dtype, True, pitch=16, seed=1)
    check(matmul(a, b), a, b)
    with pytest.raises(LaunchError, match="wgmma does not take f8e"):
        matmul(a, b, config=SMALL)


def test_a_configuration_needs_tma():
    odd = np.ascontiguousarray(matrix(8, 9))
    with pytest.raises(LaunchError, match="TMA cannot copy"):
        matmul(odd, odd.T, config=SMALL)


@pytest.mark.parametrize(
    "bad",
    [
        {"kernel": "other"},
        {"CLUSTER_M": 3},
        {"STAGES": 1},
        {"SPLITS": 0},
        {"kernel": "pingpong", "SPLITS": 2},
        {"kernel": "split"},
    ],
)
def test_bad_configurations(bad: dict[str, Any]):
    with pytest.raises(ValueError):
        GemmConfig(**{"kernel": "cooperative", "BM": 128, "BN": 64, "BK": 64, "STAGES": 2, **bad})
