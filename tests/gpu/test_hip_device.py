"""Kernels on an AMD device, launched through HIP; skipped where there is none."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.runtime import drivers, hip_api
from mimw.runtime.launch import synchronize

pytestmark = pytest.mark.skipif(drivers.device_driver() is not hip_api, reason="no HIP device on this machine")


class DeviceArray:
    """A copy of a NumPy array in the device's memory, known to launches by the array interface."""

    def __init__(self, host: Any) -> None:
        self.host = host
        self.address = hip_api.allocate(host.nbytes)
        self._copy(self.address, host.ctypes.data)
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": host.shape,
            "typestr": host.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": None,
        }

    def _copy(self, to: int, source: int) -> None:
        size = ctypes.c_size_t(self.host.nbytes)
        assert hip_api._hip().hipMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), size, 4) == 0  # hipMemcpyDefault

    def numpy(self) -> Any:
        """What the device holds now, after all work on it."""
        synchronize()
        out = np.empty_like(self.host)
        self.host = out
        self._copy(out.ctypes.data, self.address)
        return out

    def __del__(self) -> None:
        hip_api.free(self.address)


@mimw.kernel
def scaled_sums(x_ptr, out_ptr, n, factor, BLOCK: ml.constexpr):
    row = ml.program_id(0)
    at = ml.arange(0, BLOCK)
    x = ml.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    ml.store(out_ptr + row, ml.sum(x) * factor)


@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_row_sums(num_warps: int) -> None:
    """Uses shared memory between the waves, arguments of three kinds, and a grid along x."""
    x = np.random.default_rng(0).standard_normal((37, 1000)).astype(np.float32)
    device, out = DeviceArray(x), DeviceArray(np.zeros(37, np.float32))
    compiled = scaled_sums[(37,)](device, out, 1000, 0.5, BLOCK=1024, num_warps=num_warps)
    assert compiled.metadata.target == hip_api.target_name(hip_api.current_device())
    np.testing.assert_allclose(out.numpy(), x.sum(1) * 0.5, rtol=1e-5, atol=1e-4)


def test_device_facts() -> None:
    device = hip_api.current_device()
    assert hip_api.target_name(device) in ("gfx942", "gfx950", None)
    assert hip_api.device_attribute(device, "WARP_SIZE") == 64
    assert hip_api.shared_limit(device) >= 65536
    free, total = hip_api.memory_info(device)
    assert 0 < free <= total
