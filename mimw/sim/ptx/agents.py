"""Numbers and names of all who touch the shared memory of a cluster: the columns of the vector clocks.

In this order: its warps, one wgmma engine per warp group, one cp.async copier per warp; then, as they turn up, one agent
per mbarrier (what bulk copies write and read until the barrier's phase completes) and one per thread that uses bulk
groups (what its bulk stores read). The clusters of a batch share the numbering. Knows no clocks.
"""

from __future__ import annotations

from mimw.sim.ptx.floats import Array


class Agents:
    """`ctas` CTAs of `wpc` warps form a cluster; `static` is the number of agents known from the start."""

    def __init__(self, ctas: int, wpc: int) -> None:
        self.ctas, self.wpc = ctas, wpc
        self.groups = (wpc + 3) // 4
        self.warps = ctas * wpc
        self.engines = ctas * self.groups
        self.static = 2 * self.warps + self.engines
        self.dynamic: dict[tuple[str, int, int], int] = {}
        self._keys: list[tuple[str, int, int]] = []

    @property
    def count(self) -> int:
        """All agents so far."""
        return self.static + len(self._keys)

    def warp(self, rows: Array) -> Array:
        """Agents of warps, by their rows in the batch."""
        return rows % self.warps

    def engine(self, row: int) -> int:
        """The wgmma engine of a warp's group."""
        cta, local = divmod(row % self.warps, self.wpc)
        return self.warps + cta * self.groups + local // 4

    def copier(self, row: int) -> int:
        """The cp.async copier of a warp."""
        return self.warps + self.engines + row % self.warps

    def barrier(self, rank: int, offset: int) -> int:
        """The agent of the mbarrier at `offset` of the CTA with that rank."""
        return self._number(("barrier", rank, offset))

    def bulk(self, row: int, lane: int) -> int:
        """The agent of a thread's bulk groups."""
        return self._number(("bulk", row % self.warps, lane))

    def _number(self, key: tuple[str, int, int]) -> int:
        found = self.dynamic.get(key)
        if found is None:
            found = self.dynamic[key] = self.count
            self._keys.append(key)
        return found

    def home(self, agent: int) -> tuple[int, int] | None:
        """(CTA rank, column among that CTA's own readers) of a warp or engine; None for the others."""
        if agent < self.warps:
            return divmod(agent, self.wpc)
        if agent < self.warps + self.engines:
            cta, group = divmod(agent - self.warps, self.groups)
            return cta, self.wpc + group
        return None

    def describe(self, agent: int) -> tuple[str, str]:
        """An agent in words, and what is missing when another races with it."""
        if agent < self.warps:
            return f"warp {self._at(*divmod(agent, self.wpc))}", "no barrier lies between them"
        agent -= self.warps
        if agent < self.engines:
            name = self._at(*divmod(agent, self.groups))
            return f"the wgmma of warp group {name}", "wgmma.wait_group (and a barrier) is missing"
        agent -= self.engines
        if agent < self.warps:
            name = self._at(*divmod(agent, self.wpc))
            hint = "cp.async.wait_group (and, for another warp, a barrier) is missing"
            return f"the cp.async of warp {name}", hint
        kind, a, b = self._keys[agent - self.warps]
        if kind == "barrier":
            place = f"the mbarrier at {b:#x}" + (f" of CTA rank {a}" if self.ctas > 1 else "")
            return f"the bulk copy that signals {place}", f"a wait for that phase of {place} is missing"
        name = self._at(*divmod(a, self.wpc))
        return f"the bulk store of warp {name} lane {b}", "cp.async.bulk.wait_group (and a barrier) is missing"

    def _at(self, cta: int, local: int) -> str:
        return f"{local} of CTA rank {cta}" if self.ctas > 1 else str(local)
