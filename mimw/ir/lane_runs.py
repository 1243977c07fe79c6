"""Tiles whose lanes lie side by side in shared memory: what a copy needs whose instruction takes one address for all lanes of a warp.

Such an instruction puts lane l's bytes at ``base + l * run`` (`run` bytes a lane). A swizzle or padding of the buffer is therefore not made by
where a lane writes but by which element it takes: the layout of the tile is the buffer's own, read backwards. `run_layout` makes it,
`offsets_of` says of any layout whether it is of that form, and where the runs of its registers and warps begin. Pure mathematics: knows no op
and no target.
"""

from __future__ import annotations

from collections.abc import Sequence

from mimw.ir import f2
from mimw.ir.layout import Layout, Vector
from mimw.ir.layout_factories import pad_dims
from mimw.ir.shared_layout import SharedLayout


class RunOffsets:
    """Where a tile's runs lie, in bytes from the buffer's start.

    The lanes of warp w put their registers ``r, r + 1, .. r + width - 1`` (r a multiple of `width`) at ``registers[r // width] + sum of warps[k]
    over the set bits k of w + lane * run``.
    """

    __slots__ = ("registers", "warps", "width")

    def __init__(self, width: int, registers: list[int], warps: list[int]) -> None:
        self.width = width
        self.registers = registers
        self.warps = warps


def run_layout(
    shape: Sequence[int], shared: SharedLayout, elem_bytes: int, run: int, num_warps: int, lanes: int
) -> Layout | None:
    """The layout of a tile of `shape` in which each lane holds `run` bytes, lanes lie side by side in `shared`, then warps, then registers.

    None where there is none: fewer bytes than the lanes of a warp take, or an order in memory that is not that of bits. A tile
    smaller than all warps' lanes is repeated in warps.
    """
    if run < elem_bytes or len(shape) != shared.rank:
        return None
    for policy in ("odd", "pow2"):
        dims = tuple(pad_dims(n, policy) for n in shape)
        found = _run_layout(dims, shared, elem_bytes, run, num_warps.bit_length() - 1, lanes.bit_length() - 1)
        if found is not None and offsets_of(found, shared, elem_bytes, run) is not None:
            return found
    return None


def _run_layout(
    dims: tuple[tuple[int, int], ...], shared: SharedLayout, elem_bytes: int, run: int, warp_bits: int, lane_bits: int
) -> Layout | None:
    rank = len(dims)
    units = [tuple(1 << bit if e == d else 0 for e in range(rank)) for d in range(rank) for bit in range(dims[d][0])]
    offsets = [_offset(shared, unit) for unit in units]
    span = f2.Span(offsets)
    held = (run // elem_bytes).bit_length() - 1
    count = held + lane_bits
    low: list[Vector] = []
    for bit in range(count):
        made = span.solve(1 << bit)
        if made is None:
            return None
        low.append(_combined(units, made, rank))
    rest: list[Vector] = []
    known = f2.Span(_packed(v, dims) for v in low)
    for offset, unit in sorted(zip(offsets, units, strict=True)):
        vector = unit
        if _is_linear(shared, unit):  # what it shares with the lanes' bits goes
            for bit in range(count):
                if offset >> bit & 1:
                    vector = tuple(x ^ y for x, y in zip(vector, low[bit], strict=True))
        if known.add(_packed(vector, dims)):
            rest.append(vector)
    zero = (0,) * rank
    warp, more = rest[:warp_bits], rest[warp_bits:]
    warp += [zero] * (warp_bits - len(warp))
    return Layout.get(dims, (*low[:held], *more), low[held:], warp)


def offsets_of(layout: Layout, shared: SharedLayout, elem_bytes: int, run: int, mix: int = 0) -> RunOffsets | None:
    """Where the runs of a tile in `layout` lie in a buffer; None unless its lanes lie side by side there, `run` bytes each.

    `mix` as in a view of a swizzled buffer: an element at offset x lies at ``(mix ^ x) - mix``.
    """
    if run < elem_bytes or layout.rank != shared.rank:
        return None
    held = (run // elem_bytes).bit_length() - 1
    if len(layout.reg) < held or layout.cta:
        return None
    low = run << len(layout.lane)
    places = [_split(shared, v) for v in (*layout.reg, *layout.lane, *layout.warp)]
    first = len(layout.reg)
    side_by_side = [*places[:held], *places[first : first + len(layout.lane)]]
    for bit, (linear, digits) in enumerate(side_by_side):
        if (linear + digits) * elem_bytes != elem_bytes << bit or linear & digits:
            return None
    others = [*places[held:first], *places[first + len(layout.lane) :]]
    if mix & low - 1 or any(linear * elem_bytes & low - 1 for linear, _ in others):
        return None
    if not _digits_add(layout, shared):
        return None
    registers: list[int] = []
    for coords in layout.reg_coords()[:: 1 << held]:
        linear, digits = _split(shared, coords)
        registers.append((linear * elem_bytes ^ mix) - mix + digits * elem_bytes)
        if linear * elem_bytes & low - 1:
            return None
    warps = [(linear + digits) * elem_bytes for linear, digits in places[first + len(layout.lane) :]]
    if not _warps_add(layout, shared, elem_bytes, mix) or any(x % run for x in (*registers, *warps)):
        return None
    return RunOffsets(1 << held, registers, warps)


def _warps_add(layout: Layout, shared: SharedLayout, elem_bytes: int, mix: int) -> bool:
    """Whether what warps decide of the XORed part simply adds: no bit of it is decided by registers or another warp bit, too."""
    taken = mix
    for coords in layout.reg_coords():
        taken |= _split(shared, coords)[0] * elem_bytes
    for v in layout.warp:
        linear = _split(shared, v)[0] * elem_bytes
        if linear & taken:
            return False
        taken |= linear
    return True


def _digits_add(layout: Layout, shared: SharedLayout) -> bool:
    """Whether the digits of all parts of the hardware index simply add: no two of them have a bit of a digit in common."""
    for d, (a, _) in enumerate(shared.dims):
        if not shared.strides[d]:
            continue
        taken = 0
        for coords in layout.reg_coords():
            taken |= coords[d] >> a
        for v in (*layout.lane, *layout.warp):
            if v[d] >> a & taken:
                return False
            taken |= v[d] >> a
    return True


def _split(shared: SharedLayout, coords: Vector) -> tuple[int, int]:
    """(XORed part, added part) of an offset in elements."""
    linear = digits = 0
    for x, (a, _), bases, stride in zip(coords, shared.dims, shared.bases, shared.strides, strict=True):
        digits += (x >> a) * stride
        for bit in range(a):
            if x >> bit & 1:
                linear ^= bases[bit]
    return linear, digits


def _offset(shared: SharedLayout, coords: Vector) -> int:
    linear, digits = _split(shared, coords)
    return linear + digits


def _is_linear(shared: SharedLayout, coords: Vector) -> bool:
    return not _split(shared, coords)[1]


def _combined(units: list[Vector], which: int, rank: int) -> Vector:
    out = (0,) * rank
    for i, unit in enumerate(units):
        if which >> i & 1:
            out = tuple(x ^ y for x, y in zip(out, unit, strict=True))
    return out


def _packed(vector: Vector, dims: tuple[tuple[int, int], ...]) -> int:
    packed = 0
    for x, (a, _) in zip(vector, dims, strict=True):
        packed = packed << a | x
    return packed


__all__ = ["RunOffsets", "offsets_of", "run_layout"]
