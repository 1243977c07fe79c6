# NumPy's stubs lose the dtype at every view and where.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
"""State spaces: global allocations over the caller's own arrays, shared memory per CTA, local memory per thread.

Global, const and param addresses are generic addresses; shared and local have windows in the generic space. Every
access is checked: alignment, bounds of the very allocation (guard gaps lie between), writability. The order of
accesses is the sanitizer's business, not this module's.
"""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.floats import Array
from mimw.sim.ptx.state import RANK_SHIFT, UNSIGNED, Ctx, Machine

GLOBAL_BASE = 0x7F2000000000
SHARED_WINDOW = 0x7E0000000000
LOCAL_WINDOW = 0x7D0000000000
WINDOW_SIZE = 1 << 32
# sm_90 keeps the first KiB of shared memory for the system: address 0 is never the program's.
SHARED_START = 1024
_GAP = 4096
_LANES = np.arange(32)


class Region:
    """Bytes that can be reached through one base address, with typed views made on demand."""

    __slots__ = ("base", "data", "keep", "name", "size", "views", "writable")

    def __init__(self, base: int, data: Array, name: str, writable: bool = True, keep: object = None) -> None:
        self.base, self.data, self.size, self.name, self.writable = base, data, len(data), name, writable
        self.keep = keep
        self.views: dict[int, Array] = {}

    def view(self, width: int) -> Array:
        """The bytes as unsigned integers of `width` bytes (a tail that does not fill one is left out)."""
        found = self.views.get(width)
        if found is None:
            found = self.data[: self.size // width * width].view(UNSIGNED[width * 8])
            self.views[width] = found
        return found


class GlobalMemory:
    """Allocations in the global space. Arrays are registered by their host memory and read and written in place.

    With `whole_words` arrays reach to the ends of the 4-byte words that their first and last bytes are in: atomics on narrower elements are made of
    those words' compare-and-swap, which leaves the bytes beyond as they are. A word lies in one page, so that the host has these bytes.
    """

    def __init__(self, whole_words: bool = False) -> None:
        self.whole_words = whole_words
        self.regions: list[Region] = []
        self._bases: list[int] = []
        self._host: list[tuple[int, int, Region]] = []
        self._next = GLOBAL_BASE

    def allocate(self, data: Array, name: str, writable: bool = True, shift: int = 0, keep: object = None) -> Region:
        """Give an address (256-byte aligned, plus `shift`) to a uint8 array."""
        region = Region(self._next + shift, data, name, writable, keep)
        self.regions.append(region)
        self._bases.append(region.base)
        self._next = (region.base + region.size + _GAP + 4095) // 4096 * 4096
        return region

    def register(self, arrays: Sequence[Array]) -> list[int]:
        """Device addresses of the first elements of `arrays`; arrays that share host memory share it here too."""
        spans: list[list[Any]] = []
        for array in arrays:
            low, high = byte_bounds(array)
            if self.whole_words and low != high:
                low, high = low // 4 * 4, -(-high // 4) * 4
            if low == high or any(a <= low and high <= b for a, b, _ in self._host):
                continue
            touching = [s for s in spans if s[0] < high and low < s[1]]
            spans = [s for s in spans if not (s[0] < high and low < s[1])]
            keep = [array] + [k for s in touching for k in s[2]]
            spans.append([min([low] + [s[0] for s in touching]), max([high] + [s[1] for s in touching]), keep])
        for low, high, keep in spans:
            data = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
            writable = all(bool(k.flags.writeable) for k in keep)
            shift = (low - _root_pointer(keep[0])) % 256
            self._host.append((low, high, self.allocate(data, f"array of {high - low} bytes", writable, shift, keep)))
        return [self._device_address(array) for array in arrays]

    def _device_address(self, array: Array) -> int:
        pointer = int(array.__array_interface__["data"][0])
        return self._translate(pointer) or GLOBAL_BASE - 256

    def _translate(self, pointer: int) -> int:
        for low, high, region in self._host:
            if low <= pointer < high:
                return region.base + pointer - low
        return 0

    def device_address(self, pointer: int) -> int:
        """The device address of host memory that belongs to a registered array; `SimulationError` for other memory."""
        found = self._translate(pointer)
        if not found:
            raise SimulationError("the tensor map points to host memory that was not given to the run")
        return found

    def find(self, address: int) -> Region | None:
        """The allocation that holds `address`."""
        i = bisect.bisect_right(self._bases, address) - 1
        if i < 0 or address >= self._bases[i] + self.regions[i].size:
            return None
        return self.regions[i]

    def nearest(self, address: int) -> str:
        """Words on the allocation next below `address`, for messages."""
        i = bisect.bisect_right(self._bases, address) - 1
        if i < 0:
            return "no allocation lies below it"
        region = self.regions[i]
        return f"{address - region.base} bytes from the start of {region.name}"


def byte_bounds(array: Any) -> tuple[int, int]:
    """First host byte of an array and the one after its last, negative strides included."""
    start = int(array.__array_interface__["data"][0])
    low = high = start
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size == 0:
            return start, start
        low, high = low + min(0, (size - 1) * stride), high + max(0, (size - 1) * stride)
    return low, high + array.itemsize


def _root_pointer(array: Any) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return int(array.__array_interface__["data"][0])


class Access:
    """One memory access of a group: warp and lane of each executing thread, and per region the byte index of each.

    `parts` holds (region, byte index array, positions in the flat lane order or None for all, is shared). `remote`
    holds (warp, CTA) pairs of threads that reach into another CTA of their cluster.
    """

    __slots__ = ("addr", "lanes", "parts", "remote", "rows")

    def __init__(self, addr: Array, lanes: Array, rows: Array) -> None:
        self.addr = addr
        self.lanes = lanes
        self.rows = rows
        self.parts: list[tuple[Region, Array, Array | None, bool]] = []
        self.remote: list[tuple[int, int]] = []


class Memory:
    """All spaces of a batch of CTAs on a machine."""

    def __init__(self, m: Machine, world: GlobalMemory, shared_bytes: int, local_bytes: int) -> None:
        self.m = m
        self.world = world
        self.shared_end = SHARED_START + shared_bytes
        self.stride = (self.shared_end + 1023) // 1024 * 1024
        self.shared = Region(0, np.zeros(m.ctas * self.stride, np.uint8), "shared memory")
        self.local_bytes = local_bytes
        self.local_stride = (local_bytes + 15) // 16 * 16
        self.local = Region(0, np.zeros(m.warps * 32 * self.local_stride, np.uint8), "local memory")

    def locate(self, x: Ctx, space: str, addr: Array, total: int, store: bool) -> Access:
        """Check an access of `total` bytes a lane at `addr` (integer array) and find its bytes.

        `space` is shared, cluster, local, global (also const, param) or generic. Raises `SimulationError` for the first bad lane.
        """
        addr = x.full(addr)
        if x.mask is None:
            flat, rows = addr.reshape(-1).astype(np.int64), x.rows.reshape(-1)
        else:
            flat, rows = addr[x.mask].astype(np.int64), x.rows[x.mask]
        access = Access(flat, np.tile(_LANES, x.n) if x.mask is None else np.nonzero(x.mask)[1], rows)
        if total > 1 and (flat & (total - 1)).any():
            raise self._fault(x, access, (flat & (total - 1)) != 0, f"misaligned {space} access of {total} bytes", "")
        if space == "generic":
            self._locate_generic(x, access, flat, total, store)
        elif len(flat):
            self._locate_in(x, access, space, flat, None, total, store)
        return access

    def place(self, warp: int, address: int, total: int, align: int) -> tuple[int, int]:
        """(CTA of the batch, offset) of `total` bytes of shared memory at a .shared::cluster, .shared::cta or generic address."""
        value = address - SHARED_WINDOW if SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_SIZE else address
        rank, offset = value >> RANK_SHIFT, value & ((1 << RANK_SHIFT) - 1)
        cta = warp // self.m.warps_per_cta
        if value < 0 or rank >= self.m.cluster or not SHARED_START <= offset <= self.shared_end - total:
            text = f"the CTA's shared memory is {SHARED_START:#x}..{self.shared_end:#x}"
            raise SimulationError(f"{total} bytes at {address:#x} are outside shared memory: {text}")
        if offset % align:
            raise SimulationError(f"shared address {offset:#x} is no multiple of {align}")
        return cta // self.m.cluster * self.m.cluster + rank, offset

    def _locate_generic(self, x: Ctx, access: Access, flat: Array, total: int, store: bool) -> None:
        shared = (flat >= SHARED_WINDOW) & (flat < SHARED_WINDOW + WINDOW_SIZE)
        local = (flat >= LOCAL_WINDOW) & (flat < LOCAL_WINDOW + WINDOW_SIZE)
        for space, chosen, base in (
            ("cluster", shared, SHARED_WINDOW),
            ("local", local, LOCAL_WINDOW),
            ("global", ~(shared | local), 0),
        ):
            if chosen.all() and len(flat):
                self._locate_in(x, access, space, flat - base, None, total, store)
            elif chosen.any():
                positions = np.nonzero(chosen)[0]
                self._locate_in(x, access, space, flat[positions] - base, positions, total, store)

    def _locate_in(
        self, x: Ctx, access: Access, space: str, flat: Array, positions: Array | None, total: int, store: bool
    ) -> None:
        if space in ("shared", "cluster"):
            rows = access.rows if positions is None else access.rows[positions]
            cta = self.m.cta_of[rows]
            bad = np.zeros(len(flat), np.bool_)
            if self.m.cluster > 1:
                rank, own = flat >> RANK_SHIFT, cta
                bad = rank >= self.m.cluster
                cta = own // self.m.cluster * self.m.cluster + rank
                flat = flat & ((1 << RANK_SHIFT) - 1)
                far = cta != own
                if space == "shared":
                    bad = bad | far
                access.remote = sorted({*zip(rows[far].tolist(), cta[far].tolist(), strict=True)})
            bad = bad | (flat < SHARED_START) | (flat + total > self.shared_end)
            if bad.any():
                size = self.shared_end - SHARED_START
                text = f"the CTA's {size} bytes of shared memory begin at {SHARED_START:#x}"
                raise self._fault(
                    x, access, _spread(bad, positions, len(access.addr)), _outside(space, total, store), text
                )
            access.parts.append((self.shared, cta * self.stride + flat, positions, True))
        elif space == "local":
            bad = (flat < 0) | (flat + total > self.local_bytes)
            if bad.any():
                text = f"{self.local_bytes} bytes are declared"
                raise self._fault(
                    x, access, _spread(bad, positions, len(access.addr)), _outside(space, total, store), text
                )
            pick = slice(None) if positions is None else positions
            rows, lane = access.rows[pick], access.lanes[pick]
            access.parts.append((self.local, (rows * 32 + lane) * self.local_stride + flat, positions, False))
        else:
            self._locate_global(x, access, flat, positions, total, store)

    def _locate_global(
        self, x: Ctx, access: Access, flat: Array, positions: Array | None, total: int, store: bool
    ) -> None:
        rest = np.arange(len(flat))
        while len(rest):
            todo = flat[rest]
            region = self.world.find(int(todo[0]))
            if region is None or int(todo[0]) + total > region.base + region.size:
                bad = np.zeros(len(access.addr), np.bool_)
                bad[int(rest[0]) if positions is None else int(positions[rest[0]])] = True
                raise self._fault(x, access, bad, _outside("global", total, store), self.world.nearest(int(todo[0])))
            inside = (todo >= region.base) & (todo + total <= region.base + region.size)
            if store and not region.writable:
                raise self._fault(
                    x, access, np.ones(len(access.addr), np.bool_), f"store to read-only {region.name}", ""
                )
            if inside.all() and len(rest) == len(flat):
                access.parts.append((region, flat - region.base, positions, False))
                return
            chosen = rest[inside]
            where = chosen if positions is None else positions[chosen]
            access.parts.append((region, flat[chosen] - region.base, where, False))
            rest = rest[~inside]

    def _fault(self, x: Ctx, access: Access, bad: Array, what: str, note: str) -> SimulationError:
        first = int(np.nonzero(bad)[0][0])
        lanes = np.argwhere(x.active())
        row, lane = (int(v) for v in lanes[first])
        text = f"{what} at {int(access.addr[first]):#x}" + (f": {note}" if note else "")
        return SimulationError(text, where=self.m.thread(int(x.warps[row]), lane))

    # -- data ----------------------------------------------------------------------------------------------------

    def load(self, x: Ctx, access: Access, width: int, count: int) -> list[Array]:
        """`count` unsigned integers of `width` bytes a lane, each (n, 32); lanes that do not execute get zero."""
        out: list[Array] = []
        for k in range(count):
            flat = np.zeros(len(access.addr), UNSIGNED[width * 8])
            for region, index, positions, _ in access.parts:
                flat[slice(None) if positions is None else positions] = gather(region, index + k * width, width)
            if x.mask is None:
                out.append(flat.reshape(x.n, 32))
            else:
                full = np.zeros((x.n, 32), flat.dtype)
                full[x.mask] = flat
                out.append(full)
        return out

    def store(self, x: Ctx, access: Access, width: int, values: list[Array]) -> None:
        """Write unsigned integers of `width` bytes, one array (n, 32) per consecutive element."""
        for k, value in enumerate(values):
            value = x.full(value)
            flat = value.reshape(-1) if x.mask is None else value[x.mask]
            for region, index, positions, _ in access.parts:
                scatter(region, index + k * width, width, flat if positions is None else flat[positions])


def _spread(bad: Array, positions: Array | None, count: int) -> Array:
    if positions is None:
        return bad
    full = np.zeros(count, np.bool_)
    full[positions] = bad
    return full


def _outside(space: str, total: int, store: bool) -> str:
    return f"{space} {'store' if store else 'load'} of {total} bytes outside every allocation"


def gather(region: Region, index: Array, width: int) -> Array:
    """Unsigned integers of `width` bytes at byte offsets `index` of a region."""
    if width == 1:
        return region.data[index]
    if region.base % width == 0:
        return region.view(width)[index // width]
    raw = region.data[index[..., None] + np.arange(width)]
    return np.ascontiguousarray(raw).view(UNSIGNED[width * 8])[..., 0]


def scatter(region: Region, index: Array, width: int, values: Array) -> None:
    """The reverse of `gather`; of two lanes that write one place the later wins."""
    if width == 1:
        region.data[index] = values
    elif region.base % width == 0:
        region.view(width)[index // width] = values
    else:
        raw = np.ascontiguousarray(values)[..., None].view(np.uint8)
        region.data[index[..., None] + np.arange(width)] = raw
