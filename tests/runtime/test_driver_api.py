"""The driver file on the stand-in: what it asks once, what it answers, targets by capability."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from mimw.runtime import driver_api

from .fake_cuda import CUresult, FakeDriver


@pytest.fixture
def cuda() -> Iterator[FakeDriver]:
    fake = FakeDriver()
    driver_api.use_driver(fake)
    yield fake
    driver_api.use_driver(None)


def test_facts_of_a_device(cuda: FakeDriver):
    assert driver_api.available()
    assert driver_api.device_count() == 2
    assert driver_api.driver_version() == (13, 2)
    assert driver_api.device_name(0) == "Fake GPU"
    assert driver_api.capability(1) == (9, 0)
    assert driver_api.target_name(1) == "sm_90a"
    assert driver_api.memory_info(0) == (5, 10)


def test_attributes_are_asked_once(cuda: FakeDriver):
    for _ in range(3):
        driver_api.capability(0)
    assert len(cuda.named("cuDeviceGetAttribute")) == 2


def test_context_is_retained_once(cuda: FakeDriver):
    for _ in range(3):
        with driver_api.current(1):
            assert cuda.stack[-1] == 1001
            assert driver_api.current_device() == 1
    assert len(cuda.named("cuDevicePrimaryCtxRetain")) == 1
    assert cuda.stack == [0]
    assert driver_api.current_device() == 0


def test_context_is_given_back_after_an_error(cuda: FakeDriver):
    cuda.stack[-1] = 1000
    with pytest.raises(ZeroDivisionError), driver_api.current(1):
        raise ZeroDivisionError
    assert cuda.stack == [1000]


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((7, 5), None),
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 7), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100a"),
        ((10, 3), None),
        ((12, 0), "sm_120a"),
    ],
)
def test_target_of_a_capability(capability: tuple[int, int], target: str | None):
    assert driver_api.target_for(capability) == target


def test_error_has_number_name_text_and_call(cuda: FakeDriver):
    cuda.fail["cuCtxSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(driver_api.DriverError) as caught:
        driver_api.synchronize(0)
    error = caught.value
    assert (error.code, error.name, error.call) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuCtxSynchronize")
    assert str(error) == "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): illegal address"


def test_stream_handles_are_kept_but_not_for_ever(cuda: FakeDriver):
    driver_api.stream_handle(5)
    driver_api.stream_handle(5)
    assert cuda.named("CUstream") == [("CUstream", 5)]
    for raw in range(1000):
        driver_api.stream_handle(raw)
    assert len(driver_api._streams) < 300


def test_event_is_destroyed_when_the_wait_fails(cuda: FakeDriver):
    cuda.fail["cuStreamWaitEvent"] = CUresult.CUDA_ERROR_INVALID_HANDLE
    with pytest.raises(driver_api.DriverError, match="CUDA_ERROR_INVALID_HANDLE"):
        driver_api.wait_for_stream(0, 1, 2)
    assert cuda.named("cuEventDestroy")


def test_import_loads_no_binding():
    code = (
        "import sys, mimw.runtime.launch, mimw.runtime.cache\n"
        "heavy = {'cuda', 'numpy', 'ml_dtypes', 'torch', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
