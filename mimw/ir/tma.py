"""How a block of a tensor is copied by TMA: boxes, swizzle, and where each box lies in shared memory.

Pure maths over `SharedLayout`, for whoever encodes descriptors and whoever issues copies: both must cut a block alike. A box is what
one copy moves; it lies densely in shared memory, its innermost dimension first, swizzled as the descriptor says. Limits: CUDA driver API,
cuTensorMapEncodeTiled (box extents at most 256; the innermost in bytes a multiple of 16 and at most the swizzle span).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from mimw.ir.shared_layout import SharedLayout

MAX_BOX = 256
MAX_RANK = 5


class BoxPlan:
    """A block as boxes.

    `box`: elements a dimension, outermost first; `swizzle`: bytes of the span, 0 for none; `pieces`: for each box (coordinates of its
    first element, offset of that in shared memory in bytes).
    """

    __slots__ = ("box", "pieces", "swizzle")

    def __init__(self, box: tuple[int, ...], swizzle: int, pieces: list[tuple[tuple[int, ...], int]]) -> None:
        self.box = box
        self.swizzle = swizzle
        self.pieces = pieces


def box_plan(layout: SharedLayout | None, shape: Sequence[int], itemsize: int) -> BoxPlan:
    """The boxes of a block of `shape` that lies in shared memory as `layout` says (None: row-major). ValueError when TMA cannot copy it."""
    shape = tuple(shape)
    key = (layout, shape, itemsize)
    found = _PLANS.get(key)
    if found is None:
        found = _PLANS[key] = _plan(layout or SharedLayout.row_major(shape), shape, itemsize)
    return found


_PLANS: dict[tuple[SharedLayout | None, tuple[int, ...], int], BoxPlan] = {}


def _plan(layout: SharedLayout, shape: tuple[int, ...], itemsize: int) -> BoxPlan:
    if not 1 <= len(shape) <= MAX_RANK:
        raise ValueError(f"TMA copies blocks of 1 to {MAX_RANK} dimensions, not {len(shape)}")
    if shape[-1] * itemsize % 16:
        raise ValueError(f"the innermost extent of a block must be a multiple of 16 bytes, not {shape[-1] * itemsize}")
    for swizzle in (128, 64, 32, 0):
        box = _box(shape, itemsize, swizzle)
        if box is not None and _fits(layout, shape, box, itemsize, swizzle):
            starts = product(*(range(0, n, b) for n, b in zip(shape, box, strict=True)))
            return BoxPlan(box, swizzle, [(at, layout.offset(at) * itemsize) for at in starts])
    raise ValueError(f"no box of TMA lies in shared memory as {layout}")


def _box(shape: tuple[int, ...], itemsize: int, swizzle: int) -> tuple[int, ...] | None:
    """The largest box: a dimension that has to be cut is cut evenly, and what is outside of it is copied one by one."""
    box = [1] * len(shape)
    if swizzle:
        width = swizzle // itemsize
        if shape[-1] % width:
            return None
        box[-1] = width
        cut = False  # spans lie side by side with all rows of each, so rows may still be whole
    else:
        box[-1] = _largest(shape[-1])
        cut = box[-1] != shape[-1]
    for d in reversed(range(len(shape) - 1)):
        if cut:
            break
        box[d] = _largest(shape[d])
        cut = box[d] != shape[d]
    return tuple(box)


def _largest(extent: int) -> int:
    """The largest divisor of an extent that a box may have."""
    return next(n for n in range(min(extent, MAX_BOX), 0, -1) if extent % n == 0)


def _fits(layout: SharedLayout, shape: tuple[int, ...], box: tuple[int, ...], itemsize: int, swizzle: int) -> bool:
    """Whether elements lie where the copy puts them: tried at the powers of two and the ends of every dimension."""
    period = 8 * swizzle if swizzle else 16
    mask = swizzle // 16 - 1 if swizzle else 0
    if len(layout.dims) != len(shape) or any(n << a < s for (a, n), s in zip(layout.dims, shape, strict=True)):
        return False
    strides = [itemsize] * len(box)
    for d in reversed(range(len(box) - 1)):
        strides[d] = strides[d + 1] * box[d + 1]
    for at in product(*(_samples(range(0, n, b)) for n, b in zip(shape, box, strict=True))):
        start = layout.offset(at) * itemsize
        # Unswizzled destinations must be aligned to 128 bytes where a block begins; its later boxes to that, too.
        if start % (period if swizzle else 128):
            return False
        for inside in product(*(_samples(range(b)) for b in box)):
            dense = sum(x * s for x, s in zip(inside, strides, strict=True))
            coords = [a + x for a, x in zip(at, inside, strict=True)]
            if layout.offset(coords) * itemsize != start + (dense ^ (dense >> 7 & mask) << 4):
                return False
    return True


def _samples(steps: range) -> list[int]:
    """First, last, and the powers of two between."""
    count = len(steps)
    picked = {0, count - 1, *(1 << i for i in range((count - 1).bit_length()))}
    return [steps[i] for i in sorted(picked)]
