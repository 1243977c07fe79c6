"""Parts of an accumulator narrower than what the threads of a quad hold together: it leaves its registers when it is finished, not before."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.kernels import gemm
from tests.language.engines_kit import TensorDescriptor, both


@pytest.mark.parametrize("width", [4, 8])
def test_columns_of_a_product_that_was_in_flight(width: int) -> None:
    a = (np.arange(64 * 192).reshape(64, 192) % 5 - 2).astype(np.float16)
    b = (np.arange(192 * 128).reshape(192, 128) % 7 - 3).astype(np.float16)
    c = np.full((64, 128), np.nan, np.float32)
    args = [
        TensorDescriptor(a, (64, 192), (192, 1), (64, 64)),
        TensorDescriptor(b, (192, 128), (128, 1), (64, 128)),
        TensorDescriptor(c, (64, 128), (128, 1), (64, width)),
        64, 128, 192,
    ]  # fmt: skip
    constants = {"BM": 64, "BN": 128, "BK": 64, "STAGES": 2, "GROUP_M": 1, "COLUMNS": width, "BUFFERS": 2}
    constants |= {"A_BY_COLUMNS": False, "B_BY_COLUMNS": False, "CLUSTER_M": 1, "CLUSTER_N": 1}
    got = both(gemm.gemm_pingpong, (1,), args, num_warps=4, **constants)
    np.testing.assert_array_equal(got[2], a.astype(np.float64) @ b.astype(np.float64))
