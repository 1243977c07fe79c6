"""The layout of a tile over registers, lanes and warps: what a layout is, and the operations on it.

A `Layout` says which element of a tile each (register, lane, warp, cta) holds. It is pure mathematics: it knows no
op, no target and no text form of instructions. `SharedLayout` (memory) stands in `shared_layout.py`, ready-made
layouts in `layout_factories.py`, the way from one layout to another in `conversion.py`.

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
    "broadcast",
    "broadcast_registers",
    "expand",
    "free_registers",
    "hardware_columns",
    "invert",
    "join",
    "owner_mask",
    "pack_vector",
    "parse_layout",
    "parse_shared_layout",
    "product",
    "remove_reg_copies",
    "reshape",
    "slice_",
    "split",
    "squeeze",
    "tile_registers",
    "transpose",
    "transpose_registers",
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
# Operations. Each returns a layout; where registers are renumbered a companion says how.


def _map_vectors(layout: Layout, dims: Dims, change: dict[Vector, Vector]) -> Layout:
    def convert(vectors: Vectors) -> Vectors:
        return tuple(change[v] for v in vectors)

    return Layout.get(dims, convert(layout.reg), convert(layout.lane), convert(layout.warp), convert(layout.cta))


def _all_vectors(layout: Layout) -> set[Vector]:
    return {*layout.reg, *layout.lane, *layout.warp, *layout.cta}


def transpose(layout: Layout, perm: Sequence[int]) -> Layout:
    """Dimension i of the result is dimension perm[i]. Registers keep their index unless two dimensions have odd
    digits: then `transpose_registers` says where each one comes from."""
    if sorted(perm) != list(range(layout.rank)):
        raise ValueError(f"{tuple(perm)} does not permute {layout.rank} dimensions")
    change = {v: tuple(v[p] for p in perm) for v in _all_vectors(layout)}
    return _map_vectors(layout, tuple(layout.dims[p] for p in perm), change)


def transpose_registers(layout: Layout, perm: Sequence[int]) -> tuple[int, ...]:
    """For every register of `transpose(layout, perm)` the register of `layout` that holds the same element."""
    radix = [o for _, o in layout.dims]
    strides = [0] * layout.rank
    step = 1
    for d in reversed(range(layout.rank)):
        strides[d] = step
        step *= radix[d]
    digits = [0]
    for p in perm:
        digits = [head + q * strides[p] for head in digits for q in range(radix[p])]
    low = 1 << len(layout.reg)
    return tuple(digit * low + bits for digit in digits for bits in range(low))


def expand(layout: Layout, axis: int) -> Layout:
    """A new dimension of size 1 before position `axis`."""
    if not 0 <= axis <= layout.rank:
        raise ValueError(f"axis {axis} is outside 0..{layout.rank}")
    change = {v: (*v[:axis], 0, *v[axis:]) for v in _all_vectors(layout)}
    return _map_vectors(layout, (*layout.dims[:axis], (0, 1), *layout.dims[axis:]), change)


def squeeze(layout: Layout, axis: int) -> Layout:
    """Drop a dimension whose padded extent is 1. Use `slice_` for others."""
    if layout.dims[axis] != (0, 1):
        raise ValueError(f"dimension {axis} has padded extent {layout.shape_padded[axis]}, not 1")
    change = {v: (*v[:axis], *v[axis + 1 :]) for v in _all_vectors(layout)}
    return _map_vectors(layout, (*layout.dims[:axis], *layout.dims[axis + 1 :]), change)


def slice_(layout: Layout, axis: int) -> tuple[Layout, tuple[int, ...]]:
    """Drop `axis`, as the result of a reduction along it: its lane and warp bits become copies, register copies go
    away.

    Returns the layout and, for each of its registers, the register of `layout` with digit 0 and bits 0 along `axis`.
    """
    if not 0 <= axis < layout.rank:
        raise ValueError(f"axis {axis} is outside 0..{layout.rank - 1}")

    def drop(vectors: Vectors) -> Vectors:
        return tuple((*v[:axis], *v[axis + 1 :]) for v in vectors)

    digit_map = [0]
    for d, (_, o) in enumerate(layout.dims):
        digit_map = [head * o + q for head in digit_map for q in range(o if d != axis else 1)]
    full = Layout.get(
        (*layout.dims[:axis], *layout.dims[axis + 1 :]),
        drop(layout.reg),
        drop(layout.lane),
        drop(layout.warp),
        drop(layout.cta),
    )
    result, kept = remove_reg_copies(full)
    low_full, low = 1 << len(layout.reg), 1 << len(result.reg)
    table = f2.span_table([1 << bit for bit in range(len(full.reg)) if kept >> bit & 1])
    return result, tuple(digit * low_full + table[bits] for digit in digit_map for bits in range(low))


def remove_reg_copies(layout: Layout) -> tuple[Layout, int]:
    """Without register bits that repeat what other registers, lanes or warps hold: (layout, mask of the register
    bits kept)."""
    span = f2.Span(pack_vector(layout, v) for v in (*layout.lane, *layout.warp, *layout.cta))
    kept = 0
    for bit, vector in enumerate(layout.reg):
        if span.add(pack_vector(layout, vector)):
            kept |= 1 << bit
    if kept == (1 << len(layout.reg)) - 1:
        return layout, kept
    reg = tuple(v for bit, v in enumerate(layout.reg) if kept >> bit & 1)
    return Layout.get(layout.dims, reg, layout.lane, layout.warp, layout.cta), kept


def broadcast(layout: Layout, axis: int, dims: tuple[int, int]) -> Layout:
    """A dimension of extent 1 repeated to `dims` = (bits, odd digit), all in new registers above the old register bits.

    `broadcast_registers(layout, result)` says which register each one repeats.
    """
    if layout.dims[axis] != (0, 1):
        raise ValueError(f"dimension {axis} has padded extent {layout.shape_padded[axis]}, not 1")
    a, _ = dims
    new = tuple(tuple(1 << bit if d == axis else 0 for d in range(layout.rank)) for bit in range(a))
    return Layout.get(
        (*layout.dims[:axis], dims, *layout.dims[axis + 1 :]),
        layout.reg + new,
        layout.lane,
        layout.warp,
        layout.cta,
    )


def broadcast_registers(src: Layout, dst: Layout) -> tuple[int, ...] | None:
    """For each register of `dst` the register of `src` with its value, where dimensions of padded extent 1 in `src`
    repeat.

    None when some thread of `dst` needs a value that it does not hold in `src` (a conversion must come first).
    """
    if src.rank != dst.rank or len(src.lane) != len(dst.lane) or len(src.warp) != len(dst.warp):
        return None
    wide = [d for d in range(src.rank) if src.dims[d] != (0, 1)]
    for ours, theirs in ((src.lane, dst.lane), (src.warp, dst.warp), (src.cta, dst.cta)):
        if [tuple(v[d] for d in wide) for v in ours] != [tuple(v[d] for d in wide) for v in theirs]:
            return None
    place = {tuple(c[d] for d in wide): reg for reg, c in reversed(list(enumerate(src.reg_coords())))}
    result: list[int] = []
    for coordinate in dst.reg_coords():
        reg = place.get(tuple(coordinate[d] for d in wide))
        if reg is None:
            return None
        result.append(reg)
    return tuple(result)


def join(layout: Layout) -> Layout:
    """A new last dimension of size 2 in the lowest register bit: register 2r+j holds what register r of operand j
    held."""

    def widen(vectors: Vectors) -> Vectors:
        return tuple((*v, 0) for v in vectors)

    unit = (*(0,) * layout.rank, 1)
    return Layout.get(
        (*layout.dims, (1, 1)), (unit, *widen(layout.reg)), widen(layout.lane), widen(layout.warp), widen(layout.cta)
    )


def split(layout: Layout) -> tuple[Layout, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The inverse of `join`: (layout without the last dimension, registers of half 0, registers of half 1).

    ValueError unless the last dimension is 2 and one register bit alone decides it (convert first otherwise).
    """
    if not layout.rank or layout.dims[-1] != (1, 1):
        raise ValueError("split needs a last dimension of padded extent 2")
    deciding = [v for v in (*layout.reg, *layout.lane, *layout.warp, *layout.cta) if v[-1]]
    unit = (*(0,) * (layout.rank - 1), 1)
    if deciding != [unit] or unit not in layout.reg:
        raise ValueError("split needs the last dimension in one register bit of its own")
    bit = layout.reg.index(unit)

    def narrow(vectors: Vectors) -> Vectors:
        return tuple(v[:-1] for v in vectors)

    reg = narrow(layout.reg[:bit]) + narrow(layout.reg[bit + 1 :])
    result = Layout.get(layout.dims[:-1], reg, narrow(layout.lane), narrow(layout.warp), narrow(layout.cta))
    low = (1 << bit) - 1
    first = tuple((r & ~low) << 1 | (r & low) for r in range(result.num_regs))
    return result, (first, tuple(r | 1 << bit for r in first))


def reshape(layout: Layout, old_shape: Sequence[int], new_shape: Sequence[int]) -> Layout | None:
    """The same registers seen as `new_shape` (row-major element order), or None where that is not free.

    Free when both shapes split into groups of equal size in which all but the leading dimension are unpadded powers
    of two.
    """
    if tuple(old_shape) == tuple(new_shape):
        return layout
    # Unpadded dimensions of size 1 carry no element order: they come and go freely.
    old = [d for d in range(layout.rank) if layout.dims[d] != (0, 1)]
    new = [d for d, size in enumerate(new_shape) if size != 1]
    groups = _reshape_groups(old, old_shape, new, new_shape)
    if groups is None:
        return None
    dims: list[tuple[int, int]] = [(0, 1)] * len(new_shape)
    for (lead, *tail), (new_lead, *new_tail) in groups:
        if any(layout.dims[d][1] != 1 or old_shape[d] != layout.shape_padded[d] for d in tail):
            return None
        if any(new_shape[d] & (new_shape[d] - 1) for d in new_tail):
            return None
        for d in new_tail:
            dims[d] = (new_shape[d].bit_length() - 1, 1)
        bits = layout.dims[lead][0] + sum(layout.dims[d][0] for d in tail) - sum(dims[d][0] for d in new_tail)
        if bits < 0:
            return None
        dims[new_lead] = (bits, layout.dims[lead][1])
    shifts: list[int] = []
    total = 0
    for a, _ in reversed(dims):
        shifts.append(total)
        total += a
    shifts.reverse()

    def convert(vector: Vector) -> Vector:
        packed = pack_vector(layout, vector)
        return tuple(packed >> s & ((1 << a) - 1) for s, (a, _) in zip(shifts, dims, strict=True))

    return _map_vectors(layout, tuple(dims), {v: convert(v) for v in _all_vectors(layout)})


def _reshape_groups(
    old: list[int], old_shape: Sequence[int], new: list[int], new_shape: Sequence[int]
) -> list[tuple[list[int], list[int]]] | None:
    """Runs of old and new dimensions with equal products, as short as can be; None when there are none."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        mine, theirs = [old[i]], [new[j]]
        left, right = old_shape[old[i]], new_shape[new[j]]
        i, j = i + 1, j + 1
        while left != right:
            if left < right and i < len(old):
                left *= old_shape[old[i]]
                mine.append(old[i])
                i += 1
            elif right < left and j < len(new):
                right *= new_shape[new[j]]
                theirs.append(new[j])
                j += 1
            else:
                return None
        groups.append((mine, theirs))
    return groups if i == len(old) and j == len(new) else None


def product(outer: Layout, inner: Layout) -> Layout:
    """`inner` repeated in the pattern of `outer`: per dimension inner's bits stay low, outer's are shifted above
    them; registers, lanes and warps of `inner` come first. Inner must have no odd digits (they must stay
    outermost)."""
    if outer.rank != inner.rank or any(o != 1 for _, o in inner.dims):
        raise ValueError("product needs equal ranks and an inner layout of powers of two")

    def lift(vectors: Vectors) -> Vectors:
        return tuple(tuple(x << a for x, (a, _) in zip(v, inner.dims, strict=True)) for v in vectors)

    dims = tuple((b + a, o) for (b, o), (a, _) in zip(outer.dims, inner.dims, strict=True))
    return Layout.get(
        dims,
        inner.reg + lift(outer.reg),
        inner.lane + lift(outer.lane),
        inner.warp + lift(outer.warp),
        inner.cta + lift(outer.cta),
    )


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
