# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false, reportUnknownMemberType=false
"""The shape of a launch (grid, block, cluster) and the special registers that tell each thread where it stands in it."""

from __future__ import annotations

import numpy as np

from mimw.codegen.machine import FlatFunction
from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.state import Machine

Dim = tuple[int, int, int]


class Geometry:
    """Grid and cluster in CTAs, block in threads; `explicit`: the launch has clusters at all."""

    __slots__ = ("block", "cluster", "explicit", "grid")

    def __init__(self, grid: Dim, block: Dim, cluster: Dim | None) -> None:
        self.grid, self.block, self.cluster, self.explicit = grid, block, cluster or (1, 1, 1), cluster is not None

    @property
    def ctas(self) -> int:
        """CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


def cluster_shape(fn: FlatFunction, given: Dim | None, grid: Dim) -> Dim | None:
    """The cluster of a launch: what the text demands, else what was given; None without any."""
    required = fn.directives.get("reqnctapercluster")
    if required is not None:
        required = (*required, 1, 1)[:3]
        if given is not None and tuple(given) not in (required, (1, 1, 1)):
            raise SimulationError(f"{fn.name} needs clusters of {required}, not {tuple(given)}")
        given = (required[0], required[1], required[2])
    if given is None:
        return None
    if any(size < 1 for size in given) or given[0] * given[1] * given[2] > 16:
        raise SimulationError(f"a cluster of {tuple(given)} CTAs")
    if any(total % size for total, size in zip(grid, given, strict=True)):
        raise SimulationError(f"a grid of {tuple(grid)} CTAs does not consist of clusters of {tuple(given)}")
    return given


def _split(index: Array, shape: Dim) -> list[Array]:
    return [index % shape[0], index // shape[0] % shape[1], index // (shape[0] * shape[1])]


def special_registers(m: Machine, geometry: Geometry, first: int, static: int, dynamic: int) -> dict[str, Array]:
    """Values of the special registers, each (warps, 32) or (1, 1). CTA `first` of the launch, cluster by cluster, comes first."""
    grid, block, cluster = geometry.grid, geometry.block, geometry.cluster
    warp = np.arange(m.warps)[:, None]
    lane = np.arange(32)[None, :]
    thread = warp % m.warps_per_cta * 32 + lane
    cta = np.broadcast_to(first + warp // m.warps_per_cta, thread.shape)
    number, rank = cta // m.cluster, cta % m.cluster
    one = np.ones((1, 1), np.uint64)
    out: dict[str, Array] = {
        "%laneid": np.broadcast_to(lane, thread.shape), "%warpid": np.broadcast_to(warp % m.warps_per_cta, thread.shape),
        "%nwarpid": one * m.warps_per_cta, "WARP_SZ": one * 32, "%smid": 0 * one, "%nsmid": 132 * one, "%gridid": one,
        "%clock": one, "%clock64": one, "%clock_hi": 0 * one, "%globaltimer": one, "%globaltimer_lo": one,
        "%globaltimer_hi": 0 * one, "%cluster_ctarank": rank, "%cluster_nctarank": one * m.cluster,
        "%is_explicit_cluster": np.full((1, 1), geometry.explicit), "%dynamic_smem_size": one * dynamic,
        "%total_smem_size": one * (static + dynamic), "%aggr_smem_size": one * (static + dynamic),
    }  # fmt: skip
    clusters = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
    places = {
        "tid": _split(thread, block),
        "clusterid": _split(number, clusters),
        "cluster_ctaid": _split(rank, cluster),
    }
    places["ctaid"] = [a * n + b for a, b, n in zip(places["clusterid"], places["cluster_ctaid"], cluster, strict=True)]
    for name, shape in (("tid", block), ("ctaid", grid), ("clusterid", clusters), ("cluster_ctaid", cluster)):
        for axis, part, size in zip("xyz", places[name], shape, strict=True):
            out[f"%{name}.{axis}"] = part
            out[f"%n{name}.{axis}" if name != "cluster_ctaid" else f"%cluster_nctaid.{axis}"] = one * size
    bit = np.uint64(1) << lane.astype(np.uint64)
    masks = {"eq": bit, "lt": bit - np.uint64(1), "le": 2 * bit - np.uint64(1)}
    masks["gt"], masks["ge"] = ~masks["le"] & np.uint64(0xFFFFFFFF), ~masks["lt"] & np.uint64(0xFFFFFFFF)
    for name, value in masks.items():
        out[f"%lanemask_{name}"] = np.broadcast_to(value, thread.shape)
    return out
