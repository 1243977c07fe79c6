"""Random kernels give the same numbers as emitted text in the PTX simulator and as tile IR in the tile simulator."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.sim.tile import run
from tests.mir import run_in_ptx
from tests.passes.random_kernels import RandomKernel


@pytest.mark.parametrize("seed", range(100, 140))
def test_text_and_tile_ir_agree(seed: int) -> None:
    kernel = RandomKernel(seed)
    tile, text = kernel.arguments(), kernel.arguments()
    run(kernel.copy(), tile, (1, 1, 1))
    run_in_ptx(kernel.copy(), text, (1,), target="sm_80" if seed % 2 else "sm_90a")
    np.testing.assert_allclose(text[1], tile[1], rtol=1e-4, atol=1e-4)
