# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""LDS of a batch of work-groups: bytes, bounds, and races between waves.

Races are found by vector clocks. Every access carries the time at which it began. A wave knows, for every agent of its
work-group, up to which time that agent's accesses are done: `clock[wave, agent]`. Agents are the waves (0 to n-1) and
their LDS DMA (n to 2n-1). A wave's own LDS instructions run in order and need no wait; what others see of them is what
an s_waitcnt had completed when they met at a barrier, or when an LDS atomic published it. DMA is ordered for nobody, not
even its own wave, before vmcnt says so. Locations that atomics touch are synchronisation: reading one acquires.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.state import Array, Ctx, Machine


class Lds:
    """`size` bytes a work-group. `check` turns race detection on; `granule` is the narrowest access in bytes."""

    def __init__(self, m: Machine, size: int, granule: int, check: bool) -> None:
        self.m, self.size, self.granule, self.check = m, size, granule, check
        self.stride = (size + 15) // 16 * 16 + 16
        self.data: Array = np.zeros(m.groups * self.stride, np.uint8)
        self.words: Array = self.data.view(np.uint32)
        self.time = 0
        n = m.waves_per_group
        self.clock: Array = np.zeros((m.waves, 2 * n), np.int64)
        self.local: Array = np.arange(m.waves) % n
        count = m.groups * self.stride // granule if check else 0
        self.write_agent: Array = np.zeros(count, np.int32)
        self.write_time: Array = np.zeros(count, np.int64)
        self.read_time: Array = np.zeros((n, count), np.int64)
        self.sync: dict[int, Array] = {}
        self.sync_any = False
        self.names: dict[int, str] = {}

    # -- clocks --------------------------------------------------------------------------------------------------

    def completed(self, waves: list[int], until: int | None, dma: bool) -> None:
        """The waves' own accesses (or their DMA) that began up to time `until` are done (None: all of them)."""
        rows = np.array(waves)
        agent = self.local[rows] + (self.m.waves_per_group if dma else 0)
        self.clock[rows, agent] = np.maximum(self.clock[rows, agent], self.time if until is None else until)

    def barrier(self, group: int) -> None:
        """All waves of a work-group met: each knows what any of them knew."""
        n = self.m.waves_per_group
        rows = slice(group * n, (group + 1) * n)
        self.clock[rows] = self.clock[rows].max(axis=0)

    # -- accesses ------------------------------------------------------------------------------------------------

    def place(self, x: Ctx, addr: Array, width: int, mask: Array | None) -> tuple[Array, Array | None]:
        """Byte positions (n, 64) of an access at LDS addresses; lanes that are off get position 0. Checks bounds.

        The sum of a register and an immediate has 32 bits (LLVM folds negative bases on everything after gfx6).
        """
        addr = x.full(addr).astype(np.int64) & 0xFFFFFFFF
        if mask is None:
            if addr.size and (int(addr.max()) + width > self.size or int(addr.min()) < 0):
                self._outside(x, addr, width, np.ones(addr.shape, np.bool_))
        else:
            inside = addr[mask]
            if inside.size and (int(inside.max()) + width > self.size or int(inside.min()) < 0):
                self._outside(x, addr, width, mask)
            addr = np.where(mask, addr, 0)
        return addr + (self.m.group_of[x.sel] * self.stride)[:, None], mask

    def _outside(self, x: Ctx, addr: Array, width: int, mask: Array) -> None:
        bad = mask & ((addr < 0) | (addr + width > self.size))
        row, lane = (int(v) for v in np.argwhere(bad)[0])
        raise SimulationError(
            f"LDS access of {width} bytes at {int(addr[row, lane])}: the work-group has {self.size} bytes",
            "bounds",
            where=f"{self.m.wave_name(int(x.waves[row]))} lane {lane}",
        )

    def read(self, x: Ctx, addr: Array, width: int, mask: Array | None) -> Array:
        """(words, n, 64) uint32 of `width` bytes a lane (narrow ones zero-extended)."""
        at, mask = self.place(x, addr, width, mask)
        if self.check:
            self._check(x, at, width, mask, None)
        return self.fetch(at, width)

    def fetch(self, at: Array, width: int) -> Array:
        """The bytes at positions, without checks."""
        if width % 4 == 0 and not (at & 3).any():
            word = at >> 2
            return np.stack([self.words[word + k] for k in range(width // 4)])
        raw = np.zeros((*at.shape, max(width, 4)), np.uint8)
        raw[..., :width] = self.data[at[..., None] + np.arange(width)]
        return np.moveaxis(raw.view(np.uint32), -1, 0)

    def write(self, x: Ctx, addr: Array, values: Array, width: int, mask: Array | None, dma: bool = False) -> None:
        """Write `width` bytes a lane from (words, n, 64) uint32."""
        at, mask = self.place(x, addr, width, mask)
        if not self.check:
            self.put(at, values, width, mask)
            return
        full = np.broadcast_to(values, (len(values), *at.shape))
        lanes = np.moveaxis(full, 0, -1).reshape(-1, len(values)) if mask is None else np.moveaxis(full, 0, -1)[mask]
        raw = np.ascontiguousarray(np.ascontiguousarray(lanes).view(np.uint8)[:, :width]).reshape(
            -1, min(width, self.granule)
        )
        first, waves = self._check(x, at, width, mask, raw, dma)
        self.put(at, values, width, mask)
        # Of waves that write one place in one step the last one is there now: the others must have written the same.
        clash = (self.write_agent[first] % self.m.waves_per_group != self.local[waves]) & self._differs(first, raw)
        if clash.any():
            self._race(int(np.nonzero(clash)[0][0]), first, waves, "write", "write", self.write_agent[first])

    def _differs(self, first: Array, raw: Array) -> Array:
        """Whether granules hold other bytes than `raw`."""
        return (self.data[first[:, None] * self.granule + np.arange(raw.shape[1])] != raw).any(axis=1)

    def put(self, at: Array, values: Array, width: int, mask: Array | None) -> None:
        """Bytes to positions, without checks."""
        if width % 4 == 0 and not (at & 3).any():
            for k in range(width // 4):
                v = np.broadcast_to(values[k], at.shape)
                if mask is None:
                    self.words[(at >> 2) + k] = v
                else:
                    self.words[(at[mask] >> 2) + k] = v[mask]
            return
        raw = np.ascontiguousarray(np.moveaxis(np.broadcast_to(values, (len(values), *at.shape)), 0, -1)).view(np.uint8)
        where = at[..., None] + np.arange(width)
        if mask is None:
            self.data[where] = raw[..., :width]
        else:
            self.data[where[mask]] = raw[..., :width][mask]

    # -- races ---------------------------------------------------------------------------------------------------

    def _check(
        self, x: Ctx, at: Array, width: int, mask: Array | None, raw: Array | None, dma: bool = False
    ) -> tuple[Array, Array]:
        """Check a read (`raw` None) or a write of the bytes `raw` against what others did, and note it.

        Returns the granules and their waves, one-dimensional. Two waves may write the same bytes without order.
        """
        g = self.granule
        rows = np.broadcast_to(x.waves[:, None], at.shape)
        flat, waves = (at.reshape(-1), rows.reshape(-1)) if mask is None else (at[mask], rows[mask])
        first = flat // g
        if width > g:
            first = (first[:, None] + np.arange(width // g)).reshape(-1)
            waves = np.repeat(waves, width // g)
        if self.sync_any and raw is None:
            self._acquire_plain(first, waves)
        own = self.local[waves]
        agent, stamp = self.write_agent[first], self.write_time[first]
        late = stamp > self.clock[waves, agent]
        if not dma:
            late &= agent != own
        if raw is not None and late.any():
            late &= self._differs(first, raw)
        if late.any():
            which = int(np.nonzero(late)[0][0])
            self._race(which, first, waves, "read" if raw is None else "write", "write", agent)
        if raw is None:
            self.read_time[own, first] = self.time
        else:
            self._check_readers(first, waves, own, dma)
            self.write_agent[first] = own + (self.m.waves_per_group if dma else 0)
            self.write_time[first] = self.time
        return first, waves

    def _check_readers(self, first: Array, waves: Array, own: Array, dma: bool) -> None:
        for reader in range(self.m.waves_per_group):
            late = self.read_time[reader][first] > self.clock[waves, reader]
            if not dma:
                late &= own != reader
            if late.any():
                which = int(np.nonzero(late)[0][0])
                self._race(which, first, waves, "write", "read", np.full(len(first), reader))

    def _race(self, which: int, first: Array, waves: Array, verb: str, other: str, agents: Array) -> None:
        n = self.m.waves_per_group
        wave, agent = int(waves[which]), int(agents[which])
        byte = int(first[which]) * self.granule % self.stride
        by = f"wave {agent % n}" + ("'s LDS DMA" if agent >= n else "")
        if agent % n == wave % n and agent >= n:
            text = f"LDS byte {byte}: {verb} while the LDS DMA that writes it is not waited for (s_waitcnt vmcnt)"
            raise SimulationError(text, "wait", where=self.m.wave_name(wave))
        raise SimulationError(
            f"race: {verb} of LDS byte {byte} is not ordered after the {other} of {by}"
            " (s_waitcnt for it, then s_barrier, must lie between)",
            "race",
            where=self.m.wave_name(wave),
        )

    # -- synchronisation through LDS atomics ---------------------------------------------------------------------

    def atomic(self, at: Array, wave: int, acquire: bool) -> None:
        """An atomic at byte positions `at` (one-dimensional) by a wave: publish what it knows; with a result, learn."""
        if not self.check:
            return
        self.sync_any = True
        for place in np.unique(at // self.granule).tolist():
            agent, n = int(self.write_agent[place]), self.m.waves_per_group
            if self.write_time[place] > self.clock[wave, agent] and agent != int(self.local[wave]):
                one: Any = np.array([place])
                self._race(0, one, np.array([wave]), "atomic", "write", np.array([agent]))
            known = self.sync.setdefault(place, np.zeros(2 * n, np.int64))
            np.maximum(known, self.clock[wave], out=known)
            if acquire:
                np.maximum(self.clock[wave], known, out=self.clock[wave])

    def _acquire_plain(self, first: Array, waves: Array) -> None:
        for place, wave in {*zip(first.tolist(), waves.tolist(), strict=True)}:
            known = self.sync.get(place)
            if known is not None:
                np.maximum(self.clock[wave], known, out=self.clock[wave])
