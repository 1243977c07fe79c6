"""What `matmul` passes to the driver: the prepared launch of a later call gets what the checked launch of the first one got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mimw.jit import Kernel
from mimw.kernels import GemmConfig, gemm, matmul, matrix_product
from mimw.runtime import driver_api
from tests.runtime.fake_cuda import BF16, F16, F32, FakeDriver, Tensor

CONFIG = GemmConfig("cooperative", 128, 128, 64, 4)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    driver_api.use_driver(fake)
    asked = driver_api.device_attribute
    monkeypatch.setattr(
        driver_api, "device_attribute", lambda d, name: 132 if name.startswith("MULTI") else asked(d, name)
    )
    monkeypatch.setattr(matrix_product, "_PLANS", {})
    for name in ("gemm_cooperative", "gemm_plain"):  # what was loaded into this driver must not outlive it
        monkeypatch.setattr(gemm, name, Kernel(getattr(gemm, name).fn))
    yield fake
    driver_api.use_driver(None)


def operands(m: int, n: int, k: int, shift: int = 0) -> tuple[Any, ...]:
    return tuple(
        Tensor(at + shift, BF16, shape) for at, shape in ((1 << 20, (m, k)), (2 << 20, (k, n)), (3 << 20, (m, n)))
    )


def test_later_launches_pass_the_same(cuda: FakeDriver):
    x = operands(512, 256, 512)
    bias, other = Tensor(1 << 24, F32, (256,)), Tensor(1 << 24, F16, (256,))
    ends: list[dict[str, Any]] = [
        {},
        {"bias": bias},
        {"bias": other},
        {"bias": bias, "scale": 0.5},
        {"scale": 0.5, "activation": "relu"},
    ]
    first: list[bytes] = []
    for again in range(3):
        for i, end in enumerate(ends):
            cuda.param_count = 6 + ("bias" in end) + ("scale" in end)
            cuda.buffer_bytes = 3 * 128 + 3 * 4  # maps and extents; the rest differs by alignment
            matmul(*x, **end, config=CONFIG, stream=7)
            if not again:
                first.append(cuda.packed[-1])
            assert cuda.packed[-1] == first[i]
    assert len(cuda.launches) == 15
    assert {(launch.grid, launch.threads, launch.stream) for launch in cuda.launches} == {((8, 1, 1), 384, 7)}


def test_each_launch_passes_its_own_tensors(cuda: FakeDriver):
    cuda.param_count, cuda.buffer_bytes = 6, 3 * 128
    for shift in (0, 1 << 16, 0):  # a shape of this test's own: maps are kept by content
        matmul(*operands(384, 256, 512, shift), config=CONFIG)
    maps = cuda.packed
    assert maps[0] == maps[2] != maps[1]


def test_an_address_off_sixteen_bytes_takes_pointers(cuda: FakeDriver):
    cuda.param_count, cuda.buffer_bytes = 1, 8
    matmul(*operands(512, 256, 512), config=CONFIG)
    matmul(*operands(512, 256, 512, 2))
    assert [launch.threads for launch in cuda.launches] == [384, 128]
    assert int.from_bytes(cuda.packed[1], "little") == (1 << 20) + 2
