"""The layout of a tile over registers, lanes and warps: what a layout is, and who holds what in it.

A `Layout` says which element of a tile each (register, lane, warp, cta) holds. It is pure mathematics: it knows no
op, no target and no text form of instructions. `SharedLayout` (memory) stands in `shared_layout.py`; what becomes of a
layout as a tile changes its shape in `layout_shapes.py`; ready-made layouts in `layout_factories.py`; the way from one
layout to another in `conversion.py`.

Dimension d of size S is laid out on P = o << a >= S coordinates: `a` low bits and one outermost odd digit q < o.
Coordinates x >= S are *holes*: they exist in registers and mean nothing. The map is

    coords(reg, lane, warp, cta)[d] = (XOR of the chosen basis vectors)[d] + (q_d << a_d)

where the register index is ``digit * 2^len(reg) + bits`` and `digit` is the mixed radix number of the odd digits,
last dimension fastest: odd digits live in registers only. A zero basis vector means copies. The map is always onto.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from mimw.ir import f2
from mimw.ir.shared_layout import SharedLayout, parse_shared_layout

Vector = tuple[int, ...]
Vectors = tuple[Vector, ...]
Dims = tuple[tuple[int, int], ...]

__all__ = [
    "Dims",
    "Layout",
    "SharedLayout",
    "Vector",
    "Vectors",
    "free_registers",
    "hardware_columns",
    "invert",
    "owner_mask",
    "pack_vector",
    "parse_layout",
    "parse_shared_layout",
    "tile_registers",
]


class Layout:
    """Which element each register of each thread holds. Immutable, interned: equal content is the same object."""

    __slots__ = (
        "cta",
        "dims",
        "lane",
        "num_lanes",
        "num_regs",
        "num_warps",
        "rank",
        "reg",
        "shape_padded",
        "shifts",
        "total_bits",
        "warp",
    )

    dims: Dims  # per dimension (bits a, odd o)
    reg: Vectors
    lane: Vectors
    warp: Vectors
    cta: Vectors
    rank: int
    shape_padded: Vector  # P per dimension
    num_regs: int  # elements a thread holds, copies and holes counted
    num_lanes: int
    num_warps: int
    shifts: Vector  # where each dimension's bits sit in a packed coordinate (last dimension lowest)
    total_bits: int

    @staticmethod
    def get(
        dims: Iterable[tuple[int, int]],
        reg: Iterable[Vector],
        lane: Iterable[Vector],
        warp: Iterable[Vector] = (),
        cta: Iterable[Vector] = (),
    ) -> Layout:
        """The one layout with this content. ValueError when it is not a layout (even digit, vector out of range,
        not onto)."""
        key = (tuple(dims), tuple(reg), tuple(lane), tuple(warp), tuple(cta))
        found = _INTERNED.get(key)
        if found is None:
            found = _INTERNED.setdefault(key, _build(key))
        return found

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """One canonical line, e.g. ``layout<16x3*32; reg 0,1 8,0; lane 0,2 0,4 1,0 2,0 4,0; warp .>``; `.` is a
        copy."""
        parts = [_dims_text(self.dims)]
        for name, vectors in (("reg", self.reg), ("lane", self.lane), ("warp", self.warp), ("cta", self.cta)):
            if vectors:
                parts.append(f"{name} {' '.join(_vector_text(v) for v in vectors)}")
        return f"layout<{'; '.join(parts)}>"

    def __reduce__(self) -> tuple[object, ...]:
        return (Layout.get, (self.dims, self.reg, self.lane, self.warp, self.cta))

    def __copy__(self) -> Layout:
        return self

    def __deepcopy__(self, memo: object) -> Layout:
        return self

    def coords(self, reg: int, lane: int = 0, warp: int = 0, cta: int = 0) -> Vector:
        """The coordinates of the element that this register of this thread holds."""
        thread = self.thread_coords(lane, warp, cta)
        own = self.reg_coords()[reg]
        return tuple(
            ((x & ((1 << a) - 1)) ^ t) + (x >> a << a) for x, t, (a, _) in zip(own, thread, self.dims, strict=True)
        )

    def thread_coords(self, lane: int, warp: int = 0, cta: int = 0) -> Vector:
        """The part of the coordinates that the thread decides (to be XORed below the digits, or added when
        `additive()`)."""
        result = [0] * self.rank
        for vectors, index in ((self.lane, lane), (self.warp, warp), (self.cta, cta)):
            for bit, vector in enumerate(vectors):
                if index >> bit & 1:
                    for d, component in enumerate(vector):
                        result[d] ^= component
        return tuple(result)

    def reg_coords(self) -> tuple[Vector, ...]:
        """The coordinates of every register of lane 0, warp 0, in register order, digits included. Cached."""
        return _reg_coords(self)

    def reg_bits(self) -> int:
        """log2 of the registers below the odd digits."""
        return len(self.reg)

    def additive(self) -> bool:
        """True when register bits and thread bits are disjoint: then coordinate = thread part + register part."""
        for d in range(self.rank):
            own = others = 0
            for v in self.reg:
                own |= v[d]
            for v in (*self.lane, *self.warp, *self.cta):
                others |= v[d]
            if own & others:
                return False
        return True

    def free_reg_bits(self) -> int:
        """Mask of register bits that are copies (zero vectors)."""
        return _zero_mask(self.reg)

    def free_lane_bits(self) -> int:
        """Mask of lane bits that are copies (zero vectors)."""
        return _zero_mask(self.lane)

    def free_warp_bits(self) -> int:
        """Mask of warp bits that are copies (zero vectors)."""
        return _zero_mask(self.warp)

    @property
    def is_replicated(self) -> bool:
        """True when some element is held more than once."""
        return len(self.reg) + len(self.lane) + len(self.warp) + len(self.cta) > self.total_bits

    def contiguity(self, dim: int) -> int:
        """Largest 2^k such that registers 0..2^k-1 hold consecutive elements along `dim`, aligned to 2^k in every
        thread."""
        k = 0
        while k < len(self.reg) and k < self.dims[dim][0]:
            vector = self.reg[k]
            if vector[dim] != 1 << k or any(x for d, x in enumerate(vector) if d != dim):
                break
            k += 1
        for vector in (*self.reg, *self.lane, *self.warp, *self.cta):
            component = vector[dim]
            if component and component & (component - 1):  # mixed bits: low ones would misalign other threads
                low = (component & -component).bit_length() - 1
                k = min(k, low)
        for vector in (*self.reg[k:], *self.lane, *self.warp, *self.cta):
            if vector[dim]:
                k = min(k, (vector[dim] & -vector[dim]).bit_length() - 1)
        return 1 << k


_Key = tuple[Dims, Vectors, Vectors, Vectors, Vectors]
_INTERNED: dict[_Key, Layout] = {}


def _build(key: _Key) -> Layout:
    self = Layout()
    self.dims, self.reg, self.lane, self.warp, self.cta = key
    self.rank = len(self.dims)
    shifts: list[int] = []
    total = 0
    for a, o in reversed(self.dims):
        if a < 0 or o < 1 or o % 2 == 0:
            raise ValueError(f"a dimension is (bits >= 0, odd digit count), not {(a, o)}")
        shifts.append(total)
        total += a
    self.shifts = tuple(reversed(shifts))
    self.total_bits = total
    self.shape_padded = tuple(o << a for a, o in self.dims)
    digits = 1
    for _, o in self.dims:
        digits *= o
    self.num_regs = digits << len(self.reg)
    self.num_lanes = 1 << len(self.lane)
    self.num_warps = 1 << len(self.warp)
    for vectors in key[1:]:
        for vector in vectors:
            if len(vector) != self.rank or any(x < 0 or x >> a for x, (a, _) in zip(vector, self.dims, strict=True)):
                raise ValueError(f"basis vector {vector} does not fit dimensions {_dims_text(self.dims)}")
    if f2.rank(hardware_columns(self)) != total:
        raise ValueError(f"not onto: some element of {_dims_text(self.dims)} has no place in {self}")
    return self


@functools.cache
def _reg_coords(layout: Layout) -> tuple[Vector, ...]:
    table = f2.span_table([pack_vector(layout, v) for v in layout.reg])
    fields = [(shift, (1 << a) - 1) for shift, (a, _) in zip(layout.shifts, layout.dims, strict=True)]
    if len(fields) == 2:
        (s0, _), (_, m1) = fields
        bits = [(x >> s0, x & m1) for x in table]
    else:
        bits = [tuple((x >> s) & m for s, m in fields) for x in table]
    digits: list[Vector] = [()]
    for a, o in layout.dims:
        digits = [(*head, q << a) for head in digits for q in range(o)]
    if len(digits) == 1:
        return tuple(bits)
    return tuple(tuple(b + q for b, q in zip(low, high, strict=True)) for high in digits for low in bits)


def _zero_mask(vectors: Vectors) -> int:
    return sum(1 << bit for bit, vector in enumerate(vectors) if not any(vector))


def pack_vector(layout: Layout, vector: Sequence[int]) -> int:
    """A coordinate vector (below the digits) as one integer, last dimension lowest."""
    packed = 0
    for component, shift in zip(vector, layout.shifts, strict=True):
        packed |= component << shift
    return packed


def hardware_columns(layout: Layout) -> list[int]:
    """The F2 matrix as packed columns in the order register bits, lane bits, warp bits, cta bits."""
    shifts = layout.shifts
    columns: list[int] = []
    for vectors in (layout.reg, layout.lane, layout.warp, layout.cta):
        for vector in vectors:
            packed = 0
            for component, shift in zip(vector, shifts, strict=True):
                packed |= component << shift
            columns.append(packed)
    return columns


# ---------------------------------------------------------------------------------------------------------------------
# Text


def _dims_text(dims: Dims) -> str:
    return "x".join(str(1 << a) if o == 1 else f"{o}*{1 << a}" for a, o in dims) or "scalar"


def _vector_text(vector: Vector) -> str:
    return ",".join(map(str, vector)) if any(vector) else "."


def _parse_dims(text: str) -> Dims:
    dims: list[tuple[int, int]] = []
    if text == "scalar":
        return ()
    for part in text.split("x"):
        odd, _, power = part.rpartition("*")
        extent = int(power)
        if extent < 1 or extent & (extent - 1):
            raise ValueError(f"{power} in layout dimensions is not a power of two")
        dims.append((extent.bit_length() - 1, int(odd) if odd else 1))
    return tuple(dims)


def parse_layout(text: str) -> Layout:
    """The layout that prints as `text`. ValueError when the text is not one."""
    text = text.strip()
    if not (text.startswith("layout<") and text.endswith(">")):
        raise ValueError(f"not a layout: {text!r}")
    head, *sections = [part.strip() for part in text[len("layout<") : -1].split(";")]
    dims = _parse_dims(head)
    zero = (0,) * len(dims)
    bases: dict[str, Vectors] = {"reg": (), "lane": (), "warp": (), "cta": ()}
    for section in sections:
        name, *words = section.split()
        if name not in bases:
            raise ValueError(f"unknown part {name!r} in {text!r}")
        bases[name] = tuple(zero if w == "." else tuple(int(x) for x in w.split(",")) for w in words)
    return Layout.get(dims, bases["reg"], bases["lane"], bases["warp"], bases["cta"])


# ---------------------------------------------------------------------------------------------------------------------
# Who holds what.


def invert(layout: Layout) -> tuple[tuple[tuple[int, int, int, int], ...], ...]:
    """Per dimension and coordinate bit the (register bits, lane, warp, cta) to XOR: the canonical owner of every
    element.

    The odd digits are the register digits, unchanged. A right inverse: coords(invert(x)) = x.
    """
    counts = (len(layout.reg), len(layout.lane), len(layout.warp), len(layout.cta))
    inverse = f2.right_inverse(hardware_columns(layout), layout.total_bits)

    def unpack(hardware: int) -> tuple[int, int, int, int]:
        fields: list[int] = []
        for count in counts:
            fields.append(hardware & ((1 << count) - 1))
            hardware >>= count
        return (fields[0], fields[1], fields[2], fields[3])

    return tuple(
        tuple(unpack(inverse[shift + bit]) for bit in range(a))
        for shift, (a, _) in zip(layout.shifts, layout.dims, strict=True)
    )


def owner_mask(layout: Layout) -> tuple[int, int, int, int]:
    """Masks of the (register, lane, warp, cta) bits that must be 0 in the canonical owner of an element.

    Of all copies of an element exactly one has these bits 0: the guard of stores and atomics, and the registers to
    skip.
    """
    span = f2.Span()
    masks: list[int] = []
    for vectors in (layout.reg, layout.lane, layout.warp, layout.cta):
        mask = 0
        for bit, vector in enumerate(vectors):
            if not span.add(pack_vector(layout, vector)):
                mask |= 1 << bit
        masks.append(mask)
    return (masks[0], masks[1], masks[2], masks[3])


def free_registers(layout: Layout) -> tuple[int, ...]:
    """The registers that are not copies of others in the same thread, in order."""
    mask = owner_mask(layout)[0]
    low = (1 << len(layout.reg)) - 1
    return tuple(r for r in range(layout.num_regs) if not r & low & mask)


def tile_registers(layout: Layout, tile: Sequence[int]) -> dict[Vector, tuple[int, ...]]:
    """Registers by instruction tile: {tile index per dimension: registers in index order}, at lane 0, warp 0.

    With the factories of `layout_factories` the registers of one entry are exactly the instruction's fragment, in
    its order.
    """
    tiles: dict[Vector, list[int]] = {}
    for reg, coordinate in enumerate(layout.reg_coords()):
        tiles.setdefault(tuple(x // t for x, t in zip(coordinate, tile, strict=True)), []).append(reg)
    return {index: tuple(regs) for index, regs in tiles.items()}
