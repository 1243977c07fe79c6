"""Shared by all tests: the Hypothesis profile, and what happens to tests marked `gpu` where there is no GPU."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
    max_examples=50,
)
settings.register_profile("fuzz", derandomize=False, deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("MIMW_HYPOTHESIS", "ci"))


def _has_gpu() -> bool:
    import ctypes

    try:
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return lib.cuInit(0) == 0 and lib.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any(item.get_closest_marker("gpu") for item in items) or _has_gpu():
        return
    skip = pytest.mark.skip(reason="no CUDA device on this machine")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
