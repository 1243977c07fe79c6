"""How a buffer lies in shared memory, when the kernel says so: ``ml.local_alloc(..., layout=...)``.

The names are TLX's. A layout is a recipe; `pinned` gives the map of one buffer's shape and element type. The compiler picks layouts from the uses
by itself; one that is given is kept, and a use that cannot take it is an error with both lines.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.shared_layout import SharedLayout
from mimw.ir.types import DType
from mimw.language.core import const_bool, const_dtype, const_int, const_shape, explain, is_tuple, unwrap
from mimw.language.errors import fail
from mimw.language.handles import not_on_hopper, traced

Dims = tuple[int, ...]


class shared_layout(traced):
    """Base of the layouts of buffers in shared memory."""

    __slots__ = ()

    def place(self, shape: Dims, d: DType) -> SharedLayout:
        """The map of a buffer of that shape. ValueError when the layout does not fit it."""
        raise NotImplementedError

    def pinned(self, shape: Dims, d: DType, what: str) -> SharedLayout:
        """`place`, with errors at the user's line."""
        try:
            return self.place(shape, d)
        except ValueError as error:
            fail("bad-shape", f"{what}: the layout does not fit {list(shape)} of {d}: {error}")


def _order(order: Any, rank: int) -> Dims:
    """Dimensions, the one with the nearest neighbours first; the last dimension first when absent."""
    order = unwrap(order)
    if order is None:
        return tuple(reversed(range(rank)))
    items = tuple(const_int(x, "layout: order") for x in (order if is_tuple(order) else (order,)))
    if sorted(items) != list(range(rank)):
        raise ValueError(f"the order {list(items)} does not name each of {rank} dimensions once")
    return items


class swizzled_shared_layout_encoding(shared_layout):
    """Rows in which runs of `vectorSize` elements are exchanged: in row r, run c lies at c ^ ((r / perPhase) % maxPhase). All powers of two;
    ``(1, 1, 1)`` are plain rows. `order` names the dimensions, the contiguous one first. What TLX has beside that is about pairs of CTAs.
    """

    __slots__ = ("max_phase", "order", "per_phase", "vec")

    def __init__(
        self,
        vectorSize: int,
        perPhase: int,
        maxPhase: int,
        order: Any = None,
        numCTAs: Any = None,
        numCTAsPerCGA: Any = None,
        numCTASplit: Any = None,
        numCTAOrder: Any = None,
    ) -> None:
        current_builder("swizzled_shared_layout_encoding")
        names = ("vectorSize", "perPhase", "maxPhase")
        numbers = [const_int(x, f"layout: {n}") for n, x in zip(names, (vectorSize, perPhase, maxPhase), strict=True)]
        if any(n < 1 or n & (n - 1) for n in numbers):
            fail("bad-argument", f"swizzled_shared_layout_encoding: {numbers} are to be powers of two")
        self.vec, self.per_phase, self.max_phase = numbers
        self.order = unwrap(order)

    @staticmethod
    def make_default(rank: int) -> swizzled_shared_layout_encoding:
        """Plain rows."""
        return swizzled_shared_layout_encoding(1, 1, 1, tuple(reversed(range(const_int(rank, "make_default: rank")))))

    def make_permute(self, dims: Any) -> swizzled_shared_layout_encoding:
        """The layout of the permuted view."""
        return swizzled_shared_layout_encoding(self.vec, self.per_phase, self.max_phase, _permuted(self.order, dims))

    def place(self, shape: Dims, d: DType) -> SharedLayout:
        """Plain rows with the exchange XORed into the rows' bits."""
        order = _order(self.order, len(shape))
        plain = SharedLayout.row_major(shape, order)
        if self.max_phase == 1:
            return plain
        _powers_of_two(shape, "a swizzle")
        if len(shape) < 2 or self.vec * self.max_phase > shape[order[0]]:
            raise ValueError(f"rows of {shape[order[0]]} elements do not hold {self.max_phase} runs of {self.vec}")
        bases = [list(b) for b in plain.bases]
        row = order[1]
        for bit in range(len(bases[row])):
            bases[row][bit] ^= ((1 << bit) // self.per_phase % self.max_phase) * self.vec
        return SharedLayout.get(plain.dims, bases, plain.strides, plain.size)


class nv_mma_shared_layout_encoding(shared_layout):
    """What TMA and products take: the swizzle of 128, 64 or 32 bytes whose span divides the rows, else plain rows.

    `shape` and `elemType` are those of the buffer (they may be left to it), `order` names the dimensions, the contiguous one first. With
    ``swizzled=False`` plain rows. What TLX has beside that is about pairs of CTAs.
    """

    __slots__ = ("dtype", "order", "shape", "swizzled")

    def __init__(
        self,
        shape: Any = None,
        order: Any = None,
        elemType: Any = None,
        numCTAsPerCGA: Any = None,
        numCTASplit: Any = None,
        numCTAOrder: Any = None,
        fp4Padded: bool = False,
        swizzled: bool = True,
    ) -> None:
        what = "nv_mma_shared_layout_encoding"
        current_builder(what)
        if const_bool(fp4Padded, f"{what}: fp4Padded"):
            not_on_hopper(f"{what}: fp4Padded=True", "there are no 4-bit floats here")
        self.shape = None if unwrap(shape) is None else const_shape(shape, what)
        self.dtype = None if unwrap(elemType) is None else const_dtype(elemType, f"{what}: elemType")
        self.order = unwrap(order)
        self.swizzled = const_bool(swizzled, f"{what}: swizzled")

    @staticmethod
    def make_default(shape: Any, elemType: DType) -> nv_mma_shared_layout_encoding:
        """Swizzled, the last dimension contiguous."""
        return nv_mma_shared_layout_encoding(shape, None, elemType)

    def make_permute(self, dims: Any) -> nv_mma_shared_layout_encoding:
        """The layout of the permuted view."""
        items = tuple(const_int(x, "make_permute: dims") for x in unwrap(dims))
        shape = tuple(self.shape[i] for i in items) if self.shape is not None else None
        order = self.order if self.order is not None else tuple(reversed(range(len(items))))
        return nv_mma_shared_layout_encoding(shape, _permuted(order, dims), self.dtype, swizzled=self.swizzled)

    def place(self, shape: Dims, d: DType) -> SharedLayout:
        """The widest swizzle that divides the rows."""
        if self.shape is not None and self.shape != shape:
            raise ValueError(f"it was made for {list(self.shape)}")
        if self.dtype is not None and self.dtype is not d:
            raise ValueError(f"it was made for {self.dtype}")
        order = _order(self.order, len(shape))
        row = shape[order[0]] * d.itemsize
        span = next((s for s in (128, 64, 32) if row % s == 0), 0)
        if not self.swizzled or not span or len(shape) < 2:
            return SharedLayout.row_major(shape, order)
        return SharedLayout.swizzled(shape, order, d.itemsize, span)


class padded_shared_layout_encoding(shared_layout):
    """Rows with unused elements after each, so that a column lies on many banks: `with_identity_for` makes one."""

    __slots__ = ("order", "pad", "row")

    def __init__(self, row: int, pad: int, order: Any = None) -> None:
        current_builder("padded_shared_layout_encoding")
        self.row = const_int(row, "layout: the interval")
        self.pad = const_int(pad, "layout: the padding")
        self.order = unwrap(order)
        if self.row < 1 or self.pad < 0:
            fail("bad-argument", f"padded_shared_layout_encoding: {self.pad} elements after each {self.row}")

    @staticmethod
    def with_identity_for(
        interval_padding_pairs: Any, shape: Any = None, order: Any = None
    ) -> padded_shared_layout_encoding:
        """Of one pair [interval, padding], in elements: `padding` unused ones after each row, which has `interval`."""
        pairs = unwrap(interval_padding_pairs)
        if not is_tuple(pairs) or len(pairs) != 1 or not is_tuple(unwrap(pairs[0])) or len(unwrap(pairs[0])) != 2:
            fail(
                "not-yet",
                "padded_shared_layout_encoding: one pair [interval, padding] is there; more are not there yet",
            )
        interval, pad = unwrap(pairs[0])
        return padded_shared_layout_encoding(interval, pad, order)

    def place(self, shape: Dims, d: DType) -> SharedLayout:
        """Rows of whole intervals."""
        order = _order(self.order, len(shape))
        if shape[order[0]] != self.row:
            raise ValueError(f"paddings stand after each row, which has {shape[order[0]]} elements, not {self.row}")
        return SharedLayout.padded(shape, order, self.pad)


class swizzled_layout(shared_layout):
    """CuTe's ``Swizzle<bits, base, shift>`` over plain rows: bits [base, base + bits) of an element's offset are XORed with those `shift`
    higher. All sizes are powers of two."""

    __slots__ = ("base", "bits", "order", "shift")

    def __init__(self, bits: int, base: int = 0, shift: int = 0, order: Any = None) -> None:
        current_builder("swizzled_layout")
        self.bits, self.base = const_int(bits, "swizzled_layout: bits"), const_int(base, "swizzled_layout: base")
        self.shift = const_int(shift, "swizzled_layout: shift")
        self.order = unwrap(order)
        if self.bits < 0 or self.base < 0 or (self.bits and self.shift < self.bits):
            fail(
                "bad-argument",
                f"swizzled_layout: {self.bits} bits from {self.base}, {self.shift} higher: the shift is at least the bits",
            )

    def place(self, shape: Dims, d: DType) -> SharedLayout:
        """The swizzle on each basis: it is linear."""
        plain = SharedLayout.row_major(shape, _order(self.order, len(shape)))
        if not self.bits:
            return plain
        _powers_of_two(shape, "a swizzle")
        mask = (1 << self.bits) - 1 << self.base
        bases = [[b ^ (b >> self.shift & mask) for b in dim] for dim in plain.bases]
        return SharedLayout.get(plain.dims, bases, plain.strides, plain.size)


def _powers_of_two(shape: Dims, what: str) -> None:
    if any(n & (n - 1) for n in shape):
        raise ValueError(f"{what} needs sizes that are powers of two")


def _permuted(order: Any, dims: Any) -> Dims:
    """The order of the view whose dimension i is dimension dims[i]."""
    items = [const_int(x, "make_permute: dims") for x in unwrap(dims)]
    old = [const_int(x, "layout: order") for x in unwrap(order)]
    return tuple(items.index(x) for x in old)


def pinned_layout(layout: Any, shape: Dims, d: DType, what: str) -> SharedLayout | None:
    """The map that a layout argument asks for; None when there is none."""
    layout = unwrap(layout)
    if layout is None:
        return None
    if not isinstance(layout, shared_layout):
        hint = "such as ml.nv_mma_shared_layout_encoding.make_default(shape, dtype)"
        fail("bad-argument", f"{what} takes a layout of shared memory, not {explain(layout)}", hint)
    return layout.pinned(shape, d, what)
