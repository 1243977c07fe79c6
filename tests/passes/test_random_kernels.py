"""Random kernels mean the same before and after all passes."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.passes import pipeline
from mimw.sim.tile import run
from mimw.target import get_target
from tests.passes.random_kernels import RandomKernel


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("seed", range(60))
def test_passes_keep_the_meaning(seed: int, target: str) -> None:
    kernel = RandomKernel(seed)
    before, after = kernel.arguments(), kernel.arguments()
    run(kernel.copy(), before, (1, 1, 1))
    module = kernel.copy()
    pipeline.run(module, get_target(target))
    run(module, after, (1, 1, 1))
    np.testing.assert_allclose(after[1], before[1], rtol=1e-4, atol=1e-4)
