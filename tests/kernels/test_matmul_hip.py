"""What `matmul` passes to HIP for arrays of an AMD device: the kernel for v_mfma, its grid, and the same arguments in a later launch."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mimw.jit import Kernel
from mimw.kernels import gemm, gemm_tiled, matmul, matrix_product
from mimw.runtime import driver_api, hip_api
from mimw.runtime import launch as launch_module
from tests.runtime.fake_cuda import BF16, F32, Tensor
from tests.runtime.fake_hip import FakeHip


@pytest.fixture(params=["gfx942", "gfx950"])
def hip(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeHip]:
    """A process with two devices of AMD's, 304 compute units each, and no CUDA."""
    fake = FakeHip(f"{request.param}:sramecc+:xnack-", 65536 if request.param == "gfx942" else 163840)
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(driver_api, "_probe", False)
    monkeypatch.setattr(matrix_product, "_PLANS", {})
    for module, name in (
        (gemm, "gemm_plain"),
        (gemm_tiled, "gemm_tiled"),
    ):  # what was loaded must not outlive the driver
        monkeypatch.setattr(module, name, Kernel(getattr(module, name).fn))
    hip_api.use_library(fake)
    yield fake
    hip_api.use_library(None)


def operands(m: int, n: int, k: int, shift: int = 0) -> tuple[Any, ...]:
    return tuple(
        Tensor(at + shift, BF16, shape) for at, shape in ((1 << 20, (m, k)), (2 << 20, (k, n)), (3 << 20, (m, n)))
    )


def test_launches(hip: FakeHip):
    bias = Tensor(1 << 24, F32, (4096,))
    for shift in (0, 0, 1 << 16):
        matmul(*operands(4864, 4096, 128, shift), bias=bias, scale=0.5, stream=7)
    first, again, moved = hip.launches
    assert first.packed == again.packed != moved.packed
    assert struct.unpack_from("<QQQ", first.packed) == (1 << 20, 2 << 20, 3 << 20)
    assert first.stream == 7 and first.shared == 0 and first.threads in (256, 512)
    config = matrix_product._PLANS[next(iter(matrix_product._PLANS))].options
    assert config["XCDS"] == 304 // (38 if hip.shared == 65536 else 32)
    assert first.grid == (-(-4864 // config["BM"]) * -(-4096 // config["BN"]), 1, 1)


def test_strided_operands_take_pointers(hip: FakeHip, monkeypatch: pytest.MonkeyPatch):
    x = operands(256, 128, 128)
    monkeypatch.setattr(x[0], "stride", lambda: (512, 2))
    matmul(*x)
    assert hip.named("hipModuleGetFunction")[0][2].endswith(b"gemm_plain")
