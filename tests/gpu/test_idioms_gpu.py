"""Kernels in the idioms that people use, on a CUDA device; products from blocks by TMA at sizes that fill several slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.idioms import attention, descriptors, model_layers, selection, sequences, tile_kernels  # noqa: F401  (they fill the list)
from tests.idioms.cases import CASES, Case, check

pytestmark = pytest.mark.gpu

_TORCH = {"bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


def on_device(torch: Any, x: np.ndarray) -> Any:
    """A copy on the device."""
    own = _TORCH.get(x.dtype.name)
    if own is None:
        return torch.from_numpy(x.copy()).cuda()
    bits = x.view(np.uint8 if x.itemsize == 1 else np.int16).copy()
    return torch.from_numpy(bits).cuda().view(getattr(torch, own))


def moved(torch: Any, a: Any) -> Any:
    """An argument with its array on the device."""
    if isinstance(a, TensorDescriptor):
        return TensorDescriptor(on_device(torch, a.base), a.shape, a.strides, a.block_shape, a.padding)
    return on_device(torch, a) if isinstance(a, np.ndarray) else a


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel(case: Case) -> None:
    import torch

    args = [moved(torch, a) for a in case.args]
    case.kernel[case.grid](*args, **case.constants)
    torch.cuda.synchronize()
    back = [getattr(a, "base", a) if isinstance(a, TensorDescriptor) else a for a in args]
    host = [a.double().cpu().numpy() if isinstance(a, torch.Tensor) else a for a in back]
    check(case, host, "device")


@mimw.kernel
def product(a, b, c, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr):
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    acc = ml.zeros((BM, BN), ml.float32)
    for k in range(0, K, BK):
        acc += ml.dot(a.load([m, k]), b.load([n, k]).T)
    c.store([m, n], acc.to(ml.float16))


@pytest.mark.parametrize(("warps", "stages", "bn"), [(4, 2, 128), (8, 3, 256), (8, 4, 128)])
def test_pipelined_blocks(warps: int, stages: int, bn: int) -> None:
    import torch

    size, bm, bk = 1024, 128, 64
    torch.manual_seed(0)
    a, b = (torch.randint(-3, 4, (size, size), device="cuda").half() for _ in range(2))
    c = torch.zeros(size, size, device="cuda", dtype=torch.float16)
    args = [
        TensorDescriptor(x, [size, size], [size, 1], block)
        for x, block in ((a, [bm, bk]), (b, [bn, bk]), (c, [bm, bn]))
    ]
    for _ in range(3):
        c.zero_()
        product[(size // bm, size // bn)](*args, size, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)
        torch.testing.assert_close(c.float(), a.float() @ b.float().T, rtol=0, atol=0.51)


def test_products_from_a_table_of_addresses() -> None:
    import torch

    torch.manual_seed(0)
    sizes = [(128, 256, 64), (256, 128, 160), (128, 128, 32)]
    problems = []
    for m, n, k in sizes:
        a, b = (torch.randint(-3, 4, shape, device="cuda").half() for shape in ((m, k), (k, n)))
        problems.append((a, b, torch.zeros(m, n, device="cuda", dtype=torch.float16)))
    addresses = torch.tensor([[x.data_ptr() for x in p] for p in problems], device="cuda")
    extents = torch.tensor([[m, n, k, k, n, n] for m, n, k in sizes], dtype=torch.int32, device="cuda")
    descriptors.many_products[(3,)](addresses, extents, len(sizes), BM=128, BN=128, BK=32)
    for a, b, c in problems:
        torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=0, atol=0.51)
