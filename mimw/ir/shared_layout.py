"""The layout of a tile in shared memory: coordinates to element offset.

Owns `SharedLayout` and its ready-made forms (row-major, padded, swizzled as TMA and wgmma swizzle). Pure
mathematics: knows no op and no target. Offsets are in elements; a view's base address is added by whoever holds it.

    offset(x) = (XOR over dimensions and bits of bases[d][i] where bit i of x[d] is set) + sum over d of (x[d] >>
    a_d) * strides[d]

The part below `a_d` bits is F2-linear (swizzles), the outer digit carries an integer stride (padding, box-to-box
jumps). The digit count need not be odd here, since a stride need not be a power of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Vector = tuple[int, ...]


class SharedLayout:
    """Where each element lies, in elements from the start. Immutable, interned: equal content is the same object."""

    __slots__ = ("bases", "dims", "rank", "shape_padded", "size", "strides")

    dims: tuple[tuple[int, int], ...]  # per dimension (bits a, digits n): coordinates below n << a exist
    bases: tuple[Vector, ...]  # per dimension, per bit: XORed into the offset
    strides: Vector  # per dimension: added per digit
    size: int  # elements to allocate
    rank: int
    shape_padded: Vector

    @staticmethod
    def get(
        dims: Iterable[tuple[int, int]], bases: Iterable[Sequence[int]], strides: Iterable[int], size: int
    ) -> SharedLayout:
        """The one layout with this content. ValueError when the parts do not fit each other."""
        key = (tuple(dims), tuple(tuple(b) for b in bases), tuple(strides), size)
        found = _INTERNED.get(key)
        if found is None:
            found = _INTERNED.setdefault(key, _build(key))
        return found

    def offset(self, coords: Sequence[int]) -> int:
        """Element offset of one element."""
        linear = digits = 0
        for x, (a, _), bases, stride in zip(coords, self.dims, self.bases, self.strides, strict=True):
            digits += (x >> a) * stride
            for bit in range(a):
                if x >> bit & 1:
                    linear ^= bases[bit]
        return linear + digits

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """One canonical line, e.g. ``shared<64x3*32; 64 128 ...; 1 2 4 8 16 +32; size 6144>``."""
        dims = "x".join(str(1 << a) if n == 1 else f"{n}*{1 << a}" for a, n in self.dims) or "scalar"
        parts = [dims]
        for bases, stride in zip(self.bases, self.strides, strict=True):
            words = [str(b) for b in bases]
            if stride:
                words.append(f"+{stride}")
            parts.append(" ".join(words) or ".")
        parts.append(f"size {self.size}")
        return f"shared<{'; '.join(parts)}>"

    def __reduce__(self) -> tuple[object, ...]:
        return (SharedLayout.get, (self.dims, self.bases, self.strides, self.size))

    def __copy__(self) -> SharedLayout:
        return self

    def __deepcopy__(self, memo: object) -> SharedLayout:
        return self

    # ----------------------------------------------------------------------------------------------------- ready-made

    @staticmethod
    def row_major(shape: Sequence[int], order: Sequence[int] | None = None) -> SharedLayout:
        """Dense, dimension order[0] fastest (default: the last dimension). Exact: no padding between elements."""
        return SharedLayout.padded(shape, order, 0)

    @staticmethod
    def padded(shape: Sequence[int], order: Sequence[int] | None, pad: int) -> SharedLayout:
        """As `row_major`, with `pad` unused elements after each run of the fastest dimension."""
        order = _check_order(shape, order)
        strides = [0] * len(shape)
        step = 1
        for position, d in enumerate(order):
            strides[d] = step
            step *= shape[d]
            if position == 0:
                step += pad
        return _from_strides(shape, order, strides, step)

    @staticmethod
    def swizzled(shape: Sequence[int], order: Sequence[int] | None, elem_bytes: int, span: int) -> SharedLayout:
        """The 128-, 64- or 32-byte swizzle of TMA, wgmma and tcgen05 (`span` bytes; `elem_bytes` 1, 2, 4 or 8).

        The fastest dimension order[0] is cut into spans; each span with all rows (the other dimensions) is one box
        [rows][span bytes], the boxes lie side by side, rows rounded up to 8 so that each box starts a swizzle
        period. Inside, ``phys = addr ^ (((addr >> 7) & m) << 4)`` with m = 7, 3, 1 on byte addresses. The tile must
        start at a multiple of 8 * span bytes. K-major operands have order[0] = K, MN-major ones order[0] = M or N.
        """
        order = _check_order(shape, order)
        if span not in (32, 64, 128) or elem_bytes not in (1, 2, 4, 8):
            raise ValueError(f"swizzle of {span} bytes over {elem_bytes}-byte elements")
        width = span // elem_bytes
        fast, *slow = order
        if not slow:
            raise ValueError("a swizzle needs two dimensions")
        if shape[fast] < width:
            raise ValueError(f"{shape[fast]} elements of {elem_bytes} bytes are less than the {span}-byte swizzle span")
        mask = span // 16 - 1

        def swizzle(offset: int) -> int:
            address = offset * elem_bytes
            return (address ^ (((address >> 7) & mask) << 4)) // elem_bytes

        dims: list[tuple[int, int]] = [(0, 1)] * len(shape)
        bases: list[Vector] = [()] * len(shape)
        strides = [0] * len(shape)
        rows = 1
        for d in slow:
            if rows % 8 and rows & (rows - 1):
                raise ValueError(f"swizzled rows must nest in powers of two or multiples of 8, not {rows}")
            # Below 8 rows the row index is XORed into the address; all above is a plain stride.
            bits = max(0, 3 - (rows.bit_length() - 1)) if rows < 8 else 0
            even = (shape[d] & -shape[d]).bit_length() - 1 if rows & (rows - 1) == 0 else 0
            bits = max(even, min(bits, (shape[d] - 1).bit_length()))
            dims[d] = (bits, -(-shape[d] >> bits))
            bases[d] = tuple(swizzle(rows * width << bit) for bit in range(bits))
            strides[d] = rows * width << bits if dims[d][1] > 1 else 0
            rows *= shape[d]
        box = -(-rows // 8) * 8 * width
        low = width.bit_length() - 1
        chunks = -(-shape[fast] // width)
        more = (chunks - 1).bit_length() if box & (box - 1) == 0 and chunks & (chunks - 1) == 0 else 0
        dims[fast] = (low + more, -(-chunks >> more))
        bases[fast] = tuple(1 << bit for bit in range(low)) + tuple(box << bit for bit in range(more))
        strides[fast] = box << more if dims[fast][1] > 1 else 0
        return SharedLayout.get(dims, bases, strides, chunks * box)


_Key = tuple[tuple[tuple[int, int], ...], tuple[Vector, ...], Vector, int]
_INTERNED: dict[_Key, SharedLayout] = {}


def _build(key: _Key) -> SharedLayout:
    self = SharedLayout()
    self.dims, self.bases, self.strides, self.size = key
    self.rank = len(self.dims)
    self.shape_padded = tuple(n << a for a, n in self.dims)
    if len(self.bases) != self.rank or len(self.strides) != self.rank:
        raise ValueError("dims, bases and strides must have one entry a dimension")
    for (a, n), bases in zip(self.dims, self.bases, strict=True):
        if a < 0 or n < 1 or len(bases) != a:
            raise ValueError(f"dimension {(a, n)} has {len(bases)} bases")
    return self


def _check_order(shape: Sequence[int], order: Sequence[int] | None) -> tuple[int, ...]:
    order = tuple(reversed(range(len(shape)))) if order is None else tuple(order)
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"order {order} does not name each of {len(shape)} dimensions once")
    if any(size < 1 for size in shape):
        raise ValueError(f"shape {tuple(shape)} has an empty dimension")
    return order


def _from_strides(shape: Sequence[int], order: Sequence[int], strides: Sequence[int], size: int) -> SharedLayout:
    """Plain strides, with as many coordinate bits in the F2 part as can be there without a carry."""
    dims: list[tuple[int, int]] = [(0, 1)] * len(shape)
    bases: list[Vector] = [()] * len(shape)
    digit_strides = [0] * len(shape)
    used = 0  # offset bits that the F2 part occupies
    for d in order:
        bits = (shape[d] & -shape[d]).bit_length() - 1
        stride = strides[d]
        mask = sum(stride << bit for bit in range(bits))
        if stride & (stride - 1) or mask & used:
            bits = mask = 0
        used |= mask
        dims[d] = (bits, shape[d] >> bits)
        bases[d] = tuple(stride << bit for bit in range(bits))
        digit_strides[d] = stride << bits if dims[d][1] > 1 else 0
    return SharedLayout.get(dims, bases, digit_strides, size)


def parse_shared_layout(text: str) -> SharedLayout:
    """The layout that prints as `text`. ValueError when the text is not one."""
    text = text.strip()
    if not (text.startswith("shared<") and text.endswith(">")):
        raise ValueError(f"not a shared layout: {text!r}")
    head, *sections = [part.strip() for part in text[len("shared<") : -1].split(";")]
    if not sections or not sections[-1].startswith("size "):
        raise ValueError(f"no size in {text!r}")
    size = int(sections.pop()[len("size ") :])
    dims: list[tuple[int, int]] = []
    for part in head.split("x") if head != "scalar" else ():
        count, _, power = part.rpartition("*")
        dims.append((int(power).bit_length() - 1, int(count) if count else 1))
    bases: list[Vector] = []
    strides: list[int] = []
    for section in sections:
        words = section.split()
        bases.append(tuple(int(w) for w in words if w[0] not in "+."))
        strides.append(next((int(w[1:]) for w in words if w[0] == "+"), 0))
    return SharedLayout.get(dims, bases, strides, size)
