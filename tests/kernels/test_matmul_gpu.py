"""`mimw.kernels.matmul` on a CUDA device against float64; every case runs twice and must give the same bits."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from mimw.kernels import GemmConfig, matmul
from mimw.kernels.gemm_choice import Product, candidates

pytestmark = pytest.mark.gpu


def matrix(rows: int, columns: int, dtype: Any, by_columns: bool = False) -> Any:
    """A random matrix inside a larger tensor of NaN, dense along its rows or columns."""
    import torch

    lines, length = (columns, rows) if by_columns else (rows, columns)
    whole = torch.full((lines + 1, -(-length // 16) * 16 + 16), float("nan"), device="cuda", dtype=torch.float32)
    whole[:lines, :length] = torch.randn(lines, length, device="cuda")
    part = whole.to(dtype)[:lines, :length]
    return part.T if by_columns else part


def check(a: Any, b: Any, scale: float = 1.0, bias: Any = None, **options: Any) -> None:
    """One product, twice, against float64 within the sum's and the rounding's bounds."""
    import torch

    got = matmul(a, b, scale=None if scale == 1.0 else scale, bias=bias, **options)
    assert torch.equal(got, matmul(a, b, scale=None if scale == 1.0 else scale, bias=bias, **options))
    want = scale * (a.double() @ b.double())
    reach = abs(scale) * (a.double().abs() @ b.double().abs())
    if bias is not None:
        want, reach = want + bias.double(), reach + bias.double().abs()
    sums = 2.0**-10 if a.element_size() == 1 else (a.shape[1] + 4) * 2.0**-22  # as mma.dot states
    bound = sums * reach + torch.finfo(got.dtype).eps * want.abs() + 1e-6
    assert ((got.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize(
    "shape", [(4096, 2048, 1024), (8192, 8192, 256), (512, 512, 8192), (1000, 1304, 520), (64, 4096, 4096)]
)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_majors(shape: tuple[int, int, int], majors: tuple[bool, bool], dtype: str):
    import torch

    m, n, k = shape
    check(matrix(m, k, getattr(torch, dtype), majors[0]), matrix(k, n, getattr(torch, dtype), majors[1]))


@pytest.mark.parametrize("shape", [(1, 1, 1), (77, 131, 201), (3, 500, 7), (129, 9, 64)])
def test_odd_shapes(shape: tuple[int, int, int]):
    import torch

    m, n, k = shape
    check(torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16())


@pytest.mark.parametrize("kernel", ["cooperative", "pingpong"])
@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("columns", [128, 192])
def test_trip_counts(kernel: str, cluster: tuple[int, int], columns: int):
    import torch

    config = GemmConfig(kernel, 128, columns, 64, 3, CLUSTER_M=cluster[0], CLUSTER_N=cluster[1])
    for m, n, k in itertools.product((100, 5000), (128, 2000), (8, 128, 192, 264)):
        check(matrix(m, k, torch.bfloat16), matrix(k, n, torch.bfloat16), config=config)


@pytest.mark.parametrize("splits", [2, 5, 8, 16])
@pytest.mark.parametrize("rows", [64, 128])
def test_split(splits: int, rows: int):
    import torch

    config = GemmConfig("split", rows, 128, 64, 4, SPLITS=splits)
    for m, n, k in ((64, 128, 64), (100, 200, 1000), (500, 512, 8192)):
        for majors in itertools.product((False, True), repeat=2):
            check(matrix(m, k, torch.bfloat16, majors[0]), matrix(k, n, torch.bfloat16, majors[1]), config=config)


@pytest.mark.parametrize("majors", list(itertools.product((False, True), repeat=2)))
def test_all_configurations(majors: tuple[bool, bool]):
    """Whatever `choose` may choose, with more tiles than a wave, and edges everywhere."""
    import torch

    m, n, k = 4000, 2072, 456
    a, b = matrix(m, k, torch.bfloat16, majors[0]), matrix(k, n, torch.bfloat16, majors[1])
    few = matrix(250, 8192, torch.bfloat16, majors[0]), matrix(8192, 264, torch.bfloat16, majors[1])
    for i, (config, _) in enumerate(candidates(Product(256, 256, 8192, 2, 132, *majors), False)):
        if i % 4 == 2 * majors[0] + majors[1]:  # compiling them takes longer than running them
            check(
                *(few if config.kernel == "split" else (a, b)),
                config=config,
                out_dtype=(torch.bfloat16, torch.float32)[i % 8 // 4],
            )


@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int):
    """Random extents, majors, types and epilogues, as they are chosen."""
    import torch

    rng = random.Random(seed)
    m, n, k = (8 * round(2 ** rng.uniform(0, 9.5)) for _ in range(3))
    dtype = rng.choice((torch.bfloat16, torch.float16, torch.float8_e4m3fn))
    a, b = matrix(m, k, dtype, rng.random() < 0.5), matrix(k, n, dtype, rng.random() < 0.5)
    bias = torch.randn(n, device="cuda") if rng.random() < 0.5 else None
    options = {"fast_accumulation": rng.random() < 0.5} if dtype is torch.float8_e4m3fn else {}
    check(a, b, rng.choice((1.0, 0.5)), bias, **options)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("shape", [(520, 4096, 264), (3000, 1304, 72), (256, 256, 8192)])
def test_residual_and_a_scale_of_the_device(shape: tuple[int, int, int], by_columns: bool):
    import torch

    m, n, k = shape
    a, b = matrix(m, k, torch.bfloat16), matrix(k, n, torch.bfloat16, True)
    scale, residual = torch.full((1,), 0.25, device="cuda"), matrix(m, n, torch.bfloat16, by_columns)
    out = matrix(m, n, torch.bfloat16, by_columns)
    got = matmul(a, b, out.fill_(float("nan")), scale=scale, residual=residual, activation="relu")
    want = torch.relu(0.25 * (a.double() @ b.double())) + residual.double()
    reach = a.double().abs() @ b.double().abs() + residual.double().abs()
    bound = (k + 4) * 2.0**-22 * reach + torch.finfo(got.dtype).eps * want.abs() + 1e-6
    assert ((got.double() - want).abs() <= bound).all()


@pytest.mark.parametrize("shape", [(512, 512, 4096), (2048, 2048, 512), (300, 72, 136)])
def test_epilogue(shape: tuple[int, int, int]):
    import torch

    m, n, k = shape
    a, b = matrix(m, k, torch.bfloat16), matrix(k, n, torch.bfloat16)
    bias = torch.randn(n, device="cuda").bfloat16()
    check(a, b, 0.25, bias)
    check(a, b, 0.25, bias, out_dtype=torch.float32)
    plain = matmul(a, b, bias=bias, out_dtype=torch.float32)
    for name, of in (("relu", torch.relu), ("gelu", torch.nn.functional.gelu), ("silu", torch.nn.functional.silu)):
        got = matmul(a, b, bias=bias, activation=name, out_dtype=torch.float32)
        torch.testing.assert_close(got, of(plain), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4096, 2048, 1024), (512, 512, 8192), (304, 72, 144)])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8(shape: tuple[int, int, int], dtype: str):
    import torch

    m, n, k = shape
    check(matrix(m, k, getattr(torch, dtype)), matrix(k, n, getattr(torch, dtype), True), 0.5)


def test_another_stream_and_an_empty_product():
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        check(matrix(512, 4096, torch.bfloat16), matrix(4096, 512, torch.bfloat16))
    a, b = torch.zeros(8, 0, device="cuda", dtype=torch.float16), torch.zeros(0, 8, device="cuda", dtype=torch.float16)
    assert (matmul(a, b) == 0).all()
    assert matmul(b, torch.zeros(8, 8, device="cuda", dtype=torch.float16)).shape == (0, 8)
