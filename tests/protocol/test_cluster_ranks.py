"""Ranks and multicast masks that the cluster does not have are refused at their line."""

from __future__ import annotations

from typing import Any

import pytest

import mimw
import mimw.language as ml


@mimw.kernel
def multicast(x, RANK: ml.constexpr):
    buf = ml.local_alloc((64, 64), ml.float16, 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], 8192)
    ml.async_descriptor_load(x, buf[0], [0, 0], full[0], multicast_targets=[0, RANK])
    ml.barrier_wait(full[0], 0)


@mimw.kernel
def remote(x, RANK: ml.constexpr):
    full = ml.alloc_barriers(1)
    ml.barrier_arrive(full[0], 1, remote_cta_rank=RANK)
    ml.barrier_wait(full[0], 0)


CASES: list[tuple[Any, dict[str, Any], int]] = [
    (multicast, {"x": "tensor_desc<64x64xf16>"}, 5),
    (remote, {"x": "*f16:16"}, 3),
]


@pytest.mark.parametrize(("kernel", "types", "line"), CASES, ids=["multicast", "remote"])
def test_ranks_outside_of_the_cluster(kernel: Any, types: dict[str, Any], line: int) -> None:
    for rank, cluster, fits in (
        (1, (1, 1, 1), False),
        (1, (2, 1, 1), True),
        (2, (2, 1, 1), False),
        (3, (2, 2, 1), True),
    ):
        if fits:
            kernel.compile(types, {"RANK": rank}, ctas_per_cga=cluster, assembled=False)
            continue
        with pytest.raises(mimw.CompilationError) as caught:
            kernel.compile(types, {"RANK": rank}, ctas_per_cga=cluster, assembled=False)
        error = caught.value
        assert error.code == "cluster-rank"
        assert f"rank {rank}; the cluster has {cluster[0] * cluster[1]}" in error.message
        assert error.loc.line == kernel.fn.__code__.co_firstlineno + line
        assert error.hint is not None and "ctas_per_cga" in error.hint
