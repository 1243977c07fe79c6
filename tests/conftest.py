"""Shared by all tests: the Hypothesis profile, and what a skip may mean.

Tests marked `gpu` skip where there is no CUDA device; on a machine with one, a skipped gpu test is a failure. With MIMW_CI=1
(as `.ci/run` sets it) the tests do
not start without `ptxas` and LLVM: text that no assembler has seen is not tested.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mimw.codegen.amdgcn.binary.llvm import find_llvm
from mimw.codegen.ptx.assemble import find_ptxas

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
    max_examples=50,
)
settings.register_profile("fuzz", derandomize=False, deadline=None, max_examples=2000)
os.environ.setdefault("MIMW_VERIFY", "each")
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and item.get_closest_marker("gpu") and _has_gpu():
        report.outcome = "failed"
        report.longrepr = f"a gpu test was skipped on a machine with a CUDA device: {report.longrepr}"
    return report


def pytest_sessionstart(session: pytest.Session) -> None:
    if os.environ.get("MIMW_CI") == "1" and find_ptxas() is None:
        pytest.exit("there is no ptxas on this machine: `make test` brings it from PyPI", returncode=1)
    if os.environ.get("MIMW_CI") == "1" and find_llvm() is None:
        pytest.exit("there is no LLVM for AMD's targets on this machine: `make test` brings it from PyPI", returncode=1)
