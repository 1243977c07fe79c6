"""The zoo on a CUDA device: equal to the reference and to the tile simulator, and the same bits when run twice.

A fault on the device spoils the process's CUDA context: the tests after it fail at once and say which case did it.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.zoo import ALL, KERNELS
from tests.zoo.engines import run_gpu, run_tile
from tests.zoo.memory import strided_copy
from tests.zoo.registry import Entry, agree, check, report, same_bits

pytestmark = pytest.mark.gpu

_broken: list[str] = []


def _launch(run: Any, case: str) -> list[Any]:
    import torch

    if _broken:
        pytest.fail(f"the device's context was lost in {_broken[0]}", pytrace=False)
    try:
        return run_gpu(run)
    except Exception:
        try:
            torch.cuda.synchronize()
        except Exception:
            _broken.append(case)
        raise


@pytest.mark.parametrize(("entry", "index"), ALL)
def test_gpu(entry: Entry, index: int, request: pytest.FixtureRequest) -> None:
    case = request.node.name
    run = entry.run(index)
    got = _launch(run, case)
    check(run, got, "GPU")
    simulated = entry.run(index)
    agree(run, got, run_tile(simulated), "GPU and tile simulator")
    for i, (x, y) in enumerate(zip(got, _launch(entry.run(index), case), strict=True)):
        report(same_bits(x, y), y, x, f"GPU: output {i} of the second run")


def test_elements_two_gib_apart() -> None:
    """A stride beyond 2^31 in real memory: only one element of each 2 GiB is touched."""
    import torch

    far = (1 << 31) + 40
    store = torch.zeros(3 * far + 64, dtype=torch.int8, device="cuda")
    x = torch.as_strided(store, (4, 33), (far, 1))
    mark = (torch.arange(4 * 33, device="cuda") % 100 + 1).to(torch.int8).reshape(4, 33)
    args = (4, 33, 33, 1, far, 1)
    strided_copy[(2, 1)](mark, x, *args, ROWS=2, COLS=64)
    assert torch.equal(x, mark)
    back = torch.full_like(mark, -1)
    strided_copy[(2, 1)](x, back, 4, 33, far, 1, 33, 1, ROWS=2, COLS=64)
    assert torch.equal(back, mark)
    assert int(store.to(torch.bool).sum()) == 4 * 33  # nothing else was written


def test_enough_kernels() -> None:
    assert len(KERNELS) >= 60
