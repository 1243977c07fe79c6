"""What uses want of a buffer's layout, and whether a layout that the user chose serves them: if not, an error with both lines."""

from __future__ import annotations

from mimw.diagnostics import CompilationError, Note
from mimw.ir.core import OpBase
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.shared_layout import SharedLayout
from mimw.passes.memdesc_flow import Dims


class Wish:
    """What one op wants of a home's layout: `fast` the dimension that must be contiguous (0: any), `row` bytes of a copied row."""

    __slots__ = ("fast", "multiples", "op", "order", "row")

    def __init__(self, op: OpBase, fast: int = 0, row: int = 0, order: Dims = ()) -> None:
        self.op = op
        self.fast = fast
        self.row = row
        self.order = order
        self.multiples: dict[int, int] = {}  # dimension -> rows of the instruction


def check_pin(
    pin: LocalAllocOp, layout: SharedLayout, slot: Dims, size: int, dots: list[Wish], plain: list[Wish]
) -> None:
    """Raise unless products and plain accesses can take the layout. Whether TMA can is seen from its boxes."""
    shape = layout.shape_padded
    if len(shape) != len(slot):
        first = (*dots, *plain)
        if first:
            raise pin_conflict(pin, first[0].op, "it looks at the ring as a whole")
        return
    for wish in plain:
        if not _alike(layout, SharedLayout.row_major(shape)):
            raise pin_conflict(pin, wish.op, "it sees plain rows")
    for wish in dots:
        _check_operand(pin, layout, wish, slot, size)


def _check_operand(pin: LocalAllocOp, layout: SharedLayout, wish: Wish, slot: Dims, size: int) -> None:
    """An operand of a product lies in a swizzle of its own, with rows filled up to the instruction's multiples."""
    shape = layout.shape_padded
    for fast in (len(shape) - 1, len(shape) - 2):
        if wish.fast and slot[fast] != wish.fast:
            continue
        order = (fast, *(d for d in reversed(range(len(shape))) if d != fast))
        for span in (128, 64, 32):
            if shape[fast] * size % span == 0 and _alike(layout, SharedLayout.swizzled(shape, order, size, span)):
                for dim, multiple in wish.multiples.items():
                    if shape[slot.index(dim)] % multiple:
                        raise pin_conflict(pin, wish.op, f"its rows come in multiples of {multiple}")
                return
    major = "contiguous along K, " if wish.fast else ""
    raise pin_conflict(pin, wish.op, f"an operand of a product lies {major}in a swizzle of 128, 64 or 32 bytes")


def _alike(a: SharedLayout, b: SharedLayout) -> bool:
    """Whether all elements lie at the same places."""
    return (a.dims, a.bases, a.strides) == (b.dims, b.bases, b.strides)


def pin_conflict(pin: LocalAllocOp, op: OpBase, why: str) -> CompilationError:
    """The error of a use that cannot take a chosen layout."""
    return CompilationError(
        "layout-conflict",
        f"{op.name} cannot take the layout that was chosen for {pin.result.name or 'the buffer'}: {why}",
        op.loc,
        notes=[Note("the layout is chosen here", pin.loc)],
        hint="leave layout= away: the compiler picks one that serves all uses; or take nv_mma_shared_layout_encoding",
    )
