"""Kernels on an AMD device, launched through HIP; skipped where there is none."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import LaunchError
from mimw.runtime import drivers, hip_api
from mimw.runtime.device_print import WORDS
from mimw.runtime.hang import KernelHang
from mimw.runtime.launch import synchronize
from tests.codegen.ptx.print_kernels import check_positive, print_vector
from tests.gpu.hang_kernels import CASES

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


def test_printed_lines(capfd: pytest.CaptureFixture[str]) -> None:
    x = DeviceArray(np.arange(6, dtype=np.float32))
    print_vector[(2,)](x, 6, B=4, HEX=False)
    synchronize()
    expected = [f"pid ({i // 4}, 0, 0) idx ({i % 4}) x {i if i < 6 else 0}.000000" for i in range(8)]
    assert sorted(capfd.readouterr().out.splitlines()) == expected


def test_more_lines_than_there_is_room_for(capfd: pytest.CaptureFixture[str]) -> None:
    x = DeviceArray(np.zeros(1 << 17, np.float32))
    print_vector[(128,)](x, 1 << 17, B=1024, HEX=False)
    synchronize()
    told = capfd.readouterr()
    kept = told.out.count("\n")
    assert kept == WORDS // 6 and f"mimw: {(1 << 17) - kept} more lines" in told.err


def test_a_failed_assertion_leaves_the_device_usable() -> None:
    values = np.arange(1, 301, dtype=np.float32)
    values[211] = -3
    out = DeviceArray(np.zeros(300, np.float32))
    with pytest.raises(LaunchError, match=r"assertion failed: 100% positive, pid \(0, 0, 0\), idx \(211\)") as caught:
        check_positive[(1,)](DeviceArray(values), out, 300, B=512, debug=True)
    assert caught.value.code == "device-assert" and not out.numpy().any()
    good = DeviceArray(np.abs(values))
    check_positive[(1,)](good, out, 300, B=512, debug=True)
    np.testing.assert_array_equal(out.numpy(), np.abs(values))


@pytest.mark.parametrize(
    "name", ["never_arrived", "wrong_phase", "too_many_bytes", "named_count", "cycle", "arrive_count"]
)
def test_hangs_are_told(name: str) -> None:
    case = CASES[name]
    for good in (0, 1, 0):
        arrays = [DeviceArray(a) for a in case.arrays()]
        flag = DeviceArray(np.array([good], np.int32))
        if good:
            case.kernel[(case.grid,)](*arrays, flag, hang_timeout="300ms")
            assert (arrays[0].numpy() == 1).all()
            continue
        with pytest.raises(KernelHang) as caught:
            case.kernel[(case.grid,)](*arrays, flag, hang_timeout="300ms")
        waits = [r for r in caught.value.records if r.line == case.line()]
        assert len(waits) == case.warps * case.grid and not caught.value.lost
        assert all(0.29 < r.seconds < 1.0 for r in waits)


def test_the_clocks() -> None:
    """s_memrealtime, by which waits give up, is taken for 100 MHz: a wait that gave up says how long the host waited, too."""
    case = CASES["never_arrived"]
    start = time.monotonic()
    with pytest.raises(KernelHang) as caught:
        case.kernel[(1,)](DeviceArray(np.zeros(128, np.int32)), DeviceArray(np.zeros(1, np.int32)), hang_timeout="1s")
    assert 0.9 < caught.value.records[0].seconds < time.monotonic() - start


def test_device_facts() -> None:
    device = hip_api.current_device()
    assert hip_api.target_name(device) in ("gfx942", "gfx950", None)
    assert hip_api.device_attribute(device, "WARP_SIZE") == 64
    assert hip_api.shared_limit(device) >= 65536
    free, total = hip_api.memory_info(device)
    assert 0 < free <= total
