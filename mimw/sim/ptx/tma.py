"""What a tensor copy moves: the box of a tensor map at given coordinates, its bytes in global and in shared memory.

A box lies densely in shared memory, innermost dimension first, its 16-byte chunks permuted by the swizzle. Elements that
lie outside the tensor are filled on loads and left out on stores. Knows no instruction and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.memory import GlobalMemory, Region
from mimw.sim.ptx.tensor_map import TensorMap

_XOR = {0: 0, 32: 1, 64: 3, 128: 7}
# What out-of-bounds elements become with NaN fill, by element bytes (read on an H200: 0x7FF7 over and over).
_NAN = {2: 0x7FF7, 4: 0x7FF77FF7, 8: 0x7FF77FF77FF77FF7}


@lru_cache(maxsize=256)
def chunk_offsets(base: int, count: int, span: int) -> Array:
    """Shared offsets of the 16-byte chunks of a box that begins at `base`, in the box's own order (do not write)."""
    flat = base + 16 * np.arange(count)
    return flat ^ (((flat >> 7) & _XOR[span]) << 4)


def _check_start(t: TensorMap, coords: Sequence[int]) -> None:
    """A box begins at a multiple of 16 bytes of its row: elsewhere an H200 stops with CUDA_ERROR_ILLEGAL_INSTRUCTION (715)."""
    at = coords[0] * t.item_bytes
    if at % 16:
        raise SimulationError(
            f"a tensor copy at innermost coordinate {coords[0]}, byte {at} of its row: TMA takes multiples of 16 bytes"
        )


def _window(t: TensorMap, coords: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """Per dimension (first, end, step): the elements of the box inside the tensor; None when there are none."""
    out: list[tuple[int, int, int]] = []
    for d in range(t.rank):
        step = t.element_strides[d] if d else 1
        first = max(0, -(coords[d] // step))
        end = min(t.extents[d], -((coords[d] - t.sizes[d]) // step))
        if end <= first:
            return None
        out.append((first, end, step))
    return out


def _view(
    world: GlobalMemory, t: TensorMap, coords: Sequence[int], window: list[tuple[int, int, int]], store: bool
) -> Any:
    """The part of a tensor in global memory that a box covers, outermost dimension first, and bytes of an element last."""
    strides = (t.item_bytes, *t.strides)
    address = t.address
    shape, steps = [t.item_bytes], [1]
    last = t.item_bytes
    for d, (first, end, step) in enumerate(window):
        address += (coords[d] + first * step) * strides[d]
        shape.insert(0, end - first)
        steps.insert(0, step * strides[d])
        last += (end - first - 1) * step * strides[d]
    region = region_of(world, address, last, store, "tensor")
    start = region.data[address - region.base :]
    return np.lib.stride_tricks.as_strided(start, shape, steps)


def region_of(world: GlobalMemory, address: int, count: int, store: bool, what: str) -> Region:
    """The allocation that holds `count` bytes at `address`; `SimulationError` when none does."""
    region = world.find(address)
    if region is None or address + count > region.base + region.size:
        raise SimulationError(
            f"{what} copy of {count} bytes at {address:#x} outside every allocation: {world.nearest(address)}"
        )
    if store and not region.writable:
        raise SimulationError(f"{what} copy into read-only {region.name}")
    return region


def _target(box: Any, window: list[tuple[int, int, int]]) -> Any:
    return box[tuple(slice(first, end) for first, end, _ in reversed(window))]


def load_box(world: GlobalMemory, t: TensorMap, coords: Sequence[int]) -> Array:
    """The bytes of the box at `coords` (innermost first), filled outside the tensor, in 16-byte chunks (n, 16)."""
    _check_start(t, coords)
    shape = (*reversed(t.extents), t.item_bytes)
    if t.fill == "nan":
        pattern = np.frombuffer(_NAN[t.item_bytes].to_bytes(t.item_bytes, "little"), np.uint8)
        box: Any = np.broadcast_to(pattern, shape).copy()
    else:
        box = np.zeros(shape, np.uint8)
    window = _window(t, coords)
    if window is not None:
        _target(box, window)[...] = _view(world, t, coords, window, False)
    return box.reshape(-1, 16)


def store_box(world: GlobalMemory, t: TensorMap, coords: Sequence[int], chunks: Array, combine: Any = None) -> None:
    """Write a box's chunks (n, 16) to global memory, clipped; `combine(old, new)` on unsigned integers reduces instead."""
    _check_start(t, coords)
    if min(coords) < 0:  # loads may begin outside; stores stop an H200 with CUDA error 715
        raise SimulationError(f"a tensor store at coordinates {tuple(coords)}: a store cannot begin below 0")
    window = _window(t, coords)
    if window is None:
        return
    box = chunks.reshape(*reversed(t.extents), t.item_bytes)
    new, place = _target(box, window), _view(world, t, coords, window, True)
    if combine is None:
        place[...] = new
        return
    unsigned = np.dtype(f"<u{t.item_bytes}")
    old = np.ascontiguousarray(place).view(unsigned)
    place[...] = np.ascontiguousarray(combine(old, np.ascontiguousarray(new).view(unsigned))).view(np.uint8)
