"""The loop of a product of 256x256x64 on eight waves: it fits in the registers, holds little but products, and meets no bank twice."""

from __future__ import annotations

import re

import pytest

from benchmarks import amd_gemm

MOST = {"gfx942": 170, "gfx950": 124}
"""Instructions of the loop that the shorter of Triton 3.6's and 3.9's has (measured by `benchmarks.amd_gemm`)."""


@pytest.fixture(scope="module", params=amd_gemm.TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def kernel(target: str) -> amd_gemm.Candidate:
    return amd_gemm.ours(target)


def test_nothing_is_spilled(kernel: amd_gemm.Candidate) -> None:
    assert kernel.spills == 0
    assert re.search(r"\.amdhsa_private_segment_fixed_size 0\b", kernel.text)


def test_the_loop_is_short(kernel: amd_gemm.Candidate, target: str) -> None:
    counts = amd_gemm.kinds_of(kernel.loop)
    assert counts["mfma"] == {"gfx942": 64, "gfx950": 32}[target]
    assert counts["mfma"] < len(kernel.loop) <= MOST[target]
    assert counts["global"] == 8 and counts["barrier"] == 2 and not counts["nop"] and not counts["scratch"]


def test_reads_stand_among_products(kernel: amd_gemm.Candidate) -> None:
    """Between the first product and the last there is as much to read as before the first, or more."""
    products = [i for i, item in enumerate(kernel.loop) if item.startswith("v_mfma")]
    reads = [i for i, item in enumerate(kernel.loop) if item.startswith("ds_read")]
    assert 0 < sum(i < products[0] for i in reads) <= sum(products[0] < i < products[-1] for i in reads)


def test_no_bank_conflicts(kernel: amd_gemm.Candidate) -> None:
    """Found by running it, which also says that the product is right."""
    for kind, (taken, least) in amd_gemm.conflicts(kernel).items():
        assert taken == least > 0, kind


def test_conflicts_are_counted() -> None:
    """All lanes at one bank, at one word, side by side."""
    import numpy as np

    lanes = np.arange(64)
    assert amd_gemm.turns(lanes * 128, 4, True) == (64, 2)
    assert amd_gemm.turns(lanes * 0, 4, True) == (2, 2)
    assert amd_gemm.turns(lanes * 16, 16, False) == (8, 8)
    assert amd_gemm.turns(lanes * 8, 8, True) == (4, 4)
