"""The loop of a large product beside Triton's for the same machine, tile, waves and K step: not more instructions, not more turns of shared memory."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("triton", reason="needs the extra `peers`")

from benchmarks import amd_gemm

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def tritons() -> dict[str, list[amd_gemm.Candidate]]:
    return amd_gemm.tritons(sys.executable)


@pytest.mark.parametrize("target", amd_gemm.TARGETS)
def test_loop_is_not_longer(target: str, tritons: dict[str, list[amd_gemm.Candidate]]) -> None:
    ours = amd_gemm.ours(target)
    counts = amd_gemm.kinds_of(ours.loop)
    for other in tritons[target]:
        theirs = amd_gemm.kinds_of(other.loop)
        assert counts["mfma"] == theirs["mfma"] > 0
        assert len(ours.loop) <= len(other.loop)
        assert counts["LDS read"] <= theirs["LDS read"]
        assert counts["global"] <= theirs["global"]


@pytest.mark.parametrize("target", amd_gemm.TARGETS)
def test_shared_memory_takes_not_more_turns(target: str, tritons: dict[str, list[amd_gemm.Candidate]]) -> None:
    ours = amd_gemm.conflicts(amd_gemm.ours(target))
    theirs = amd_gemm.conflicts(tritons[target][1])
    for kind, (taken, least) in ours.items():
        assert least <= taken <= theirs[kind][0]
