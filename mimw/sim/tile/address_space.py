"""Global memory: the caller's arrays at made-up addresses, read and written in place.

Every array argument gets a region of the flat address space that spans exactly the bytes it reaches (through any
strides); arguments that share memory share the region. Regions lie far apart, so that an access past the end of one
is caught, not taken for another array. Addresses keep the host's alignment modulo 256.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimw.ir.types import DType
from mimw.sim.errors import SimulationError
from mimw.sim.tile.numerics import Array, numpy_dtype

_START = 0x10_0000_0000
_GAP = 1 << 24
_FAR = 1 << 40  # no offset of i32 reaches that far: an address of another kind
_FOREIGN = "arrays have addresses of the simulator's own: one that was put into memory by the host means nothing to it"


class Region:
    """Bytes [base, end) of the address space over host memory; `names` are the arguments that live in it."""

    __slots__ = ("base", "bytes", "end", "keep", "names", "views", "writable")

    def __init__(self, base: int, data: Array, names: list[str], keep: list[Array], writable: bool) -> None:
        self.base = base
        self.end = base + len(data)
        self.bytes = data
        self.names = names
        self.keep = keep
        self.writable = writable
        self.views: dict[Any, tuple[int, Array]] = {}

    def view(self, dtype: np.dtype[Any]) -> tuple[int, Array]:
        """The region as elements, and the address of the first one that is aligned."""
        found = self.views.get(dtype)
        if found is None:
            skip = -self.base % dtype.itemsize
            count = max(0, len(self.bytes) - skip) // dtype.itemsize
            found = (self.base + skip, self.bytes[skip : skip + count * dtype.itemsize].view(dtype))
            self.views[dtype] = found
        return found

    def __str__(self) -> str:
        return f"{' and '.join(self.names)} [{self.base:#x}, {self.end:#x})"


class AddressSpace:
    """All regions, sorted by address."""

    __slots__ = ("bases", "ends", "hosts", "regions")

    def __init__(self, arrays: Sequence[tuple[str, Array]]) -> None:
        spans: list[tuple[int, int, list[str], list[Array]]] = []
        for name, array in arrays:
            if array.size:
                spans = _merge(spans, (*_byte_bounds(array), [name], [array]))
        self.regions: list[Region] = []
        self.hosts: list[tuple[int, int, Region]] = []
        at = _START
        for low, high, names, keep in sorted(spans, key=lambda s: s[0]):
            data = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
            region = Region(at + low % 256, data, names, keep, all(bool(a.flags.writeable) for a in keep))
            self.regions.append(region)
            self.hosts.append((low, high, region))
            at = (region.end + _GAP + 0xFFF) & ~0xFFF
        self.bases = np.array([r.base for r in self.regions], np.int64)
        self.ends = np.array([r.end for r in self.regions], np.int64)

    def address_of(self, array: Array) -> int:
        """The address of an array's first element; of an empty array one where nothing lies."""
        pointer = int(array.__array_interface__["data"][0])
        for low, high, region in self.hosts:
            if low <= pointer < high and array.size:
                return region.base + pointer - low
        return 0x1000

    def load(self, ptr: Array, d: DType, mask: Array | None, fill: Array) -> Array:
        """Elements read through int64 addresses where the mask is true; elsewhere those of `fill`. All of one shape."""
        access = _Access(ptr, mask, numpy_dtype(d).itemsize)
        dtype = _memory_dtype(d)
        got = np.empty(len(access.at), dtype)
        for region, chosen in self._locate(access, "load"):
            first, view = region.view(dtype)
            got[chosen] = view[(access.at[chosen] - first) // dtype.itemsize]
        values = got != 0 if d.is_bool() else got
        if access.index is None:
            return values.reshape(ptr.shape)
        out = fill.flatten()
        out[access.index] = values
        return out.reshape(ptr.shape)

    def store(self, ptr: Array, d: DType, values: Array, mask: Array | None) -> None:
        """Write elements through int64 addresses where the mask is true; of two that meet, the later one stays."""
        dtype = _memory_dtype(d)
        access = _Access(ptr, mask, dtype.itemsize)
        flat = values.reshape(-1)
        kept = (flat if access.index is None else flat[access.index]).astype(dtype, copy=False)
        for region, chosen in self._locate(access, "store"):
            if not region.writable:
                raise SimulationError("read-only", f"store into {region}, which is read-only")
            first, view = region.view(dtype)
            view[(access.at[chosen] - first) // dtype.itemsize] = kept[chosen]

    def box(self, address: int, d: DType, shape: tuple[int, ...], strides: tuple[int, ...], what: str) -> Array:
        """A view of `shape` elements with `strides` (elements, none negative) from an address, as a copying engine sees it.

        `what` is "load" or "store", for messages. Bools are bytes.
        """
        dtype = _memory_dtype(d)
        last = address + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) * dtype.itemsize
        access = _Access(np.array([address, last], np.int64), None, dtype.itemsize)
        found = self._locate(access, what)
        if len(found) > 1:
            raise self._error(
                "out-of-bounds", f"{what} of a block over several arrays", access, np.array([False, True])
            )
        region = found[0][0]
        if what == "store" and not region.writable:
            raise SimulationError("read-only", f"store into {region}, which is read-only")
        first, view = region.view(dtype)
        part = view[(address - first) // dtype.itemsize :].view(np.uint8)
        # Not as_strided: it does not know float8_e5m2.
        return np.ndarray(shape, dtype, buffer=part, strides=tuple(s * dtype.itemsize for s in strides))

    def _locate(self, access: _Access, what: str) -> list[tuple[Region, Any]]:
        at, size = access.at, access.size
        if not len(at):
            return []
        bad = at % size != 0
        if bad.any():
            raise self._error("misaligned", f"misaligned {what} of {size} bytes", access, bad)
        slot = np.searchsorted(self.bases, at, "right") - 1
        first = int(slot[0])
        if first >= 0 and (slot == first).all() and int(at.max()) + size <= int(self.ends[first]):
            return [(self.regions[first], slice(None))]
        bad = slot < 0
        if self.regions:
            bad |= at + size > self.ends[slot]
        if bad.any():
            raise self._error("out-of-bounds", f"{what} of {size} bytes outside every array", access, bad)
        return [(self.regions[int(s)], np.nonzero(slot == s)[0]) for s in np.unique(slot)]

    def _error(self, code: str, text: str, access: _Access, bad: Array) -> SimulationError:
        first = int(np.nonzero(bad)[0][0])
        flat = first if access.index is None else int(access.index[first])
        element = tuple(int(i) for i in np.unravel_index(flat, access.shape)) if access.shape else ()
        which = f"element {list(element)} at " if element else ""
        address = int(access.at[first])
        hint = _FOREIGN if code == "out-of-bounds" and self.regions and address > self.regions[-1].end + _FAR else None
        return SimulationError(code, f"{text}: {which}address {address:#x}, {self._nearest(address)}", hint=hint)

    def _nearest(self, address: int) -> str:
        if not self.regions:
            return "the kernel has no array"
        distance = [max(r.base - address, address - r.end + 1, 0) for r in self.regions]
        region = self.regions[int(np.argmin(distance))]
        if address >= region.end:
            return f"{address - region.end} bytes past the end of {region}"
        if address < region.base:
            return f"{region.base - address} bytes before {region}"
        return f"{address - region.base} bytes into {region}"


def _byte_bounds(array: Array) -> tuple[int, int]:
    low = high = int(array.__array_interface__["data"][0])
    for n, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (n - 1) * stride)
        high += max(0, (n - 1) * stride)
    return low, high + array.itemsize


_Span = tuple[int, int, list[str], list[Array]]


def _merge(spans: list[_Span], new: _Span) -> list[_Span]:
    """Add a span; those that it touches become one with it."""
    low, high, names, keep = new
    apart: list[_Span] = []
    for span in spans:
        if span[0] < high and low < span[1]:
            low, high = min(low, span[0]), max(high, span[1])
            names, keep = span[2] + names, span[3] + keep
        else:
            apart.append(span)
    return [*apart, (low, high, names, keep)]


class _Access:
    """The addresses `at` of the elements whose mask is true, and their flat positions `index` (None: all)."""

    __slots__ = ("at", "index", "shape", "size")

    def __init__(self, ptr: Array, mask: Array | None, size: int) -> None:
        flat = ptr.reshape(-1)
        self.shape = ptr.shape
        self.size = size
        self.index: Array | None = None
        self.at = flat
        if mask is not None and not mask.all():
            self.index = np.nonzero(mask.reshape(-1))[0]
            self.at = flat[self.index]


def _memory_dtype(d: DType) -> np.dtype[Any]:
    return np.dtype(np.uint8) if d.is_bool() else numpy_dtype(d)
