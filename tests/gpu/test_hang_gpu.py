"""Hangs on a CUDA device: each kernel in a process of its own with a time limit; the report, the time it took, what works afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.hang_cost import Product
from tests.gpu.hang_kernels import CASES, Case, endless

pytestmark = pytest.mark.gpu

_ROOT = Path(__file__).parents[2]
_SECONDS = 1.0


def child(name: str, limit: float = 120.0) -> dict[str, Any]:
    """What the child found."""
    command = [sys.executable, "-m", "tests.gpu.hang_child", name, str(_SECONDS)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=limit, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("result ")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(lines[-1].removeprefix("result "))


@pytest.mark.parametrize("name", list(CASES))
def test_a_hang_is_told_and_the_process_goes_on(name: str) -> None:
    case = CASES[name]
    found = child(name)
    assert found["first"] == [1] * 128
    hang = found["hang"]
    assert not hang["lost"], hang["text"]
    assert _SECONDS <= found["seconds"] < _SECONDS + 3
    waits = [r for r in hang["records"] if r["line"] == case.line()]
    stuck = case.grid // 2 if name == "cluster" else case.grid
    assert len(waits) == case.warps * stuck, hang["text"]
    for r in waits:
        assert (r["task"], r["barrier"], r["slot"]) == (case.task, case.barrier, case.slot)
        assert case.first_warp <= r["warp"] < case.first_warp + case.warps
        assert 0.5 * _SECONDS < r["seconds"] < 2 * _SECONDS and not r["after"]
    assert "hangs: " in hang["text"] and f"hang_kernels.py:{case.line()}: " in hang["text"]
    assert hang["total"] == len(hang["records"])
    assert found["next"] == [1] * 128


def test_a_loop_that_never_ends_is_stopped_and_a_fresh_process_works() -> None:
    found = child("endless")
    line = Case(endless, 2, "", "", 0, 0).line()
    assert found["hang"]["lost"] and "restart the process" in found["hang"]["text"]
    assert {r["line"] for r in found["hang"]["records"]} == {line}
    assert found["seconds"] < _SECONDS + 12
    assert isinstance(found["next"], str)  # the context is gone
    assert child("plain")["first"] == [1] * 128


def test_a_large_grid_ends_soon_after_the_first_that_gave_up() -> None:
    """CTAs that start afterwards pass through: not every one of them waits its time."""
    import torch

    from mimw.runtime.hang import KernelHang

    out, flag = torch.zeros(128, dtype=torch.int32, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    with pytest.raises(KernelHang) as caught:
        CASES["never_arrived"].kernel[(20_000,)](out, flag, hang_timeout="300ms")
    assert caught.value.total == 80_000 and len(caught.value.records) == 4096
    assert not caught.value.lost


@pytest.mark.parametrize("shape", [(1000, 1000, 712), (512, 512, 4096), (4096, 4096, 512)])
def test_matrix_products_are_the_same(shape: tuple[int, int, int]) -> None:
    import torch

    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.integers(-3, 4, s).astype(np.float32)).cuda().bfloat16() for s in ((m, k), (k, n)))
    wanted = (a.float() @ b.float()).bfloat16()
    for timeout in ("2s", "0"):
        assert (Product(a, b, timeout)() == wanted).all()
