# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""Global memory over the caller's own arrays, and scratch memory of lanes. Every access is checked against the bounds of
the allocation that it falls into; guard gaps lie between allocations. Any alignment is allowed (HSA turns unaligned access on).
"""

from __future__ import annotations

import numpy as np

from mimw.sim.amdgcn.errors import SimulationError
from mimw.sim.amdgcn.state import LANES, Array, Ctx, Machine
from mimw.sim.ptx.memory import GlobalMemory, Region


class Memory:
    """What a batch of waves sees of the world: `world` has the allocations, `scratch` bytes belong to each lane."""

    def __init__(self, m: Machine, world: GlobalMemory, scratch: int) -> None:
        self.m, self.world = m, world
        self.scratch_size = scratch
        self.scratch_stride = (scratch + 15) // 16 * 16
        self.scratch: Array = np.zeros(m.waves * LANES * self.scratch_stride, np.uint8)
        self.changes = 0

    # -- global --------------------------------------------------------------------------------------------------

    def _parts(self, addr: Array, width: int, store: bool) -> list[tuple[Region, Array, Array]]:
        """(region, byte offsets, positions) that together hold an access at flat int64 addresses."""
        parts: list[tuple[Region, Array, Array]] = []
        rest = np.arange(len(addr))
        while len(rest):
            todo = addr[rest]
            first = int(todo[0])
            region = self.world.find(first)
            if region is None or first + width > region.base + region.size:
                what = "store" if store else "load"
                where = self.world.nearest(first)
                raise OutOfBounds(
                    f"global {what} of {width} bytes at {first:#x} outside every allocation: {where}", int(rest[0])
                )
            if store and not region.writable:
                raise OutOfBounds(f"store to read-only {region.name}", int(rest[0]))
            inside = (todo >= region.base) & (todo + width <= region.base + region.size)
            parts.append((region, todo[inside] - region.base, rest[inside]))
            rest = rest[~inside]
        return parts

    def load(self, x: Ctx, addr: Array, width: int, mask: Array | None) -> Array:
        """(words, n, 64) uint32 of `width` bytes at (n, 64) addresses; lanes that are off get 0."""
        flat = self._flat(x, addr, mask)
        out = np.zeros((len(flat), max(width, 4)), np.uint8)
        for region, offsets, positions in self._find(x, flat, mask, width, False):
            out[positions, :width] = _bytes(region.data, offsets, width)
        words = out.view(np.uint32)
        if mask is None:
            return np.moveaxis(words.reshape(x.n, LANES, -1), -1, 0)
        full = np.zeros((x.n, LANES, words.shape[1]), np.uint32)
        full[mask] = words
        return np.moveaxis(full, -1, 0)

    def store(self, x: Ctx, addr: Array, values: Array, width: int, mask: Array | None) -> None:
        """Write `width` bytes a lane from (words, n, 64) uint32; of two lanes at one place the later wins."""
        flat = self._flat(x, addr, mask)
        values = np.moveaxis(np.broadcast_to(values, (len(values), x.n, LANES)), 0, -1)
        raw = np.ascontiguousarray(values.reshape(-1, values.shape[-1]) if mask is None else values[mask]).view(
            np.uint8
        )
        for region, offsets, positions in self._find(x, flat, mask, width, True):
            region.data[offsets[:, None] + np.arange(width)] = raw[positions, :width]
        self.changes += 1

    def load_uniform(self, x: Ctx, addr: Array, width: int) -> Array:
        """(words, n) uint32 of `width` bytes at (n,) addresses: the scalar unit's reads."""
        out = np.zeros((x.n, width), np.uint8)
        try:
            for region, offsets, positions in self._parts(addr, width, False):
                out[positions] = _bytes(region.data, offsets, width)
        except OutOfBounds as error:
            raise error.located(self.m.wave_name(int(x.waves[error.position]))) from None
        return np.moveaxis(out.view(np.uint32), -1, 0)

    def _flat(self, x: Ctx, addr: Array, mask: Array | None) -> Array:
        full = x.full(addr)
        return (full.reshape(-1) if mask is None else full[mask]).astype(np.int64)

    def find_checked(self, x: Ctx, flat: Array, lanes: Array, width: int) -> list[tuple[Region, Array, Array]]:
        """(region, byte offsets, positions) for a read and write at the flat addresses of the lanes of a (n, 64) array."""
        return self._find(x, flat, lanes, width, True)

    def _find(
        self, x: Ctx, flat: Array, mask: Array | None, width: int, store: bool
    ) -> list[tuple[Region, Array, Array]]:
        try:
            return self._parts(flat, width, store)
        except OutOfBounds as error:
            lanes = np.argwhere(np.ones((x.n, LANES), np.bool_) if mask is None else mask)
            row, lane = (int(v) for v in lanes[error.position])
            raise error.located(f"{self.m.wave_name(int(x.waves[row]))} lane {lane}") from None

    # -- scratch -------------------------------------------------------------------------------------------------

    def scratch_at(self, x: Ctx, offset: Array, width: int, mask: Array | None) -> Array:
        """Byte positions (n, 64) in the scratch memory of each lane's own offsets."""
        offset = x.full(offset).astype(np.int64)
        active = np.ones(offset.shape, np.bool_) if mask is None else mask
        bad = active & ((offset < 0) | (offset + width > self.scratch_size))
        if bad.any():
            row, lane = (int(v) for v in np.argwhere(bad)[0])
            raise SimulationError(
                f"scratch access of {width} bytes at {int(offset[row, lane])}: {self.scratch_size} bytes are declared",
                "bounds",
                where=f"{self.m.wave_name(int(x.waves[row]))} lane {lane}",
            )
        lane = x.waves[:, None] * LANES + np.arange(LANES)
        return lane * self.scratch_stride + np.where(active, offset, 0)

    def scratch_load(self, x: Ctx, offset: Array, width: int, mask: Array | None) -> Array:
        """(words, n, 64) uint32 of `width` bytes of scratch."""
        at = self.scratch_at(x, offset, width, mask)
        raw = np.zeros((*at.shape, max(width, 4)), np.uint8)
        raw[..., :width] = self.scratch[at[..., None] + np.arange(width)]
        return np.moveaxis(raw.view(np.uint32), -1, 0)

    def scratch_store(self, x: Ctx, offset: Array, values: Array, width: int, mask: Array | None) -> None:
        """Write `width` bytes of scratch a lane."""
        at = self.scratch_at(x, offset, width, mask)[..., None] + np.arange(width)
        values = np.moveaxis(np.broadcast_to(values, (len(values), x.n, LANES)), 0, -1)
        raw = np.ascontiguousarray(values).view(np.uint8)[..., :width]
        if mask is None:
            self.scratch[at] = raw
        else:
            self.scratch[at[mask]] = raw[mask]


class OutOfBounds(SimulationError):
    """An access outside every allocation; `position` counts among the accesses of the instruction."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, "bounds")
        self.position = position

    def located(self, where: str) -> OutOfBounds:
        """The same with the lane in words."""
        self.where = where
        return self


def _bytes(data: Array, offsets: Array, width: int) -> Array:
    """(len(offsets), width) bytes, by words where the array and the offsets allow it."""
    if width % 4 == 0 and data.ctypes.data % 4 == 0 and len(data) >= 4 and not (offsets & 3).any():
        words = data[: len(data) // 4 * 4].view(np.uint32)
        index = offsets >> 2
        return np.ascontiguousarray(words[index[:, None] + np.arange(width // 4)]).view(np.uint8)
    return data[offsets[:, None] + np.arange(width)]
