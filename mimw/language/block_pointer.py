"""Block pointers: `make_block_ptr`, `advance`, and what `load` and `store` make of one: a tile of plain pointers and a mask.

A block pointer is a tuple of numbers that control flow carries around like any other: nothing of it is left in the IR.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from mimw.ir.types import I64, DType, PointerType
from mimw.language.core import const_axis, const_int, const_shape, const_str, explain, is_tuple, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.handles import as_pointer, merged, traced
from mimw.language.tensor import arange, expand_dims

_PADDING = ("", "zero", "nan")
_MOST_I32 = (1 << 31) - 1


class _Block(traced):
    """The shape of a block: one object a shape, since it must be the same on both sides of a branch."""

    __slots__ = ("shape",)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    @property
    def SAID(self) -> str:
        """How messages name what points to such blocks."""
        return f"a pointer to blocks of {list(self.shape)}"


_block = cache(_Block)


class _Tensor(merged):
    """What of a block pointer never changes: loops carry its offsets only, so that constant strides stay constant."""

    __slots__ = ("base", "block", "shape", "strides")
    FIELDS = __slots__
    SAID = "a block pointer into some tensor"

    def __init__(
        self, base: Any, shape: tuple[Any, ...], strides: tuple[Any, ...], block_shape: tuple[int, ...]
    ) -> None:
        self.base = base
        self.shape = shape
        self.strides = strides
        self.block = _block(block_shape)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The sizes of a block."""
        return self.block.shape


class block_pointer(NamedTuple):
    """A block of a tensor in global memory. `dtype.element_ty` is the type of an element, as for pointers."""

    of: _Tensor
    offsets: tuple[Any, ...]
    SAID = "a block pointer"  # pyright: ignore[reportUnannotatedClassAttribute]

    @property
    def dtype(self) -> PointerType:
        """The type of a pointer to an element."""
        t = self.of.base.value.type
        assert isinstance(t, PointerType)
        return t

    @property
    def type(self) -> PointerType:
        """As `dtype`."""
        return self.dtype


def make_block_ptr(base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    """A pointer to the block of `block_shape` (constants) at `offsets` of the tensor at `base`, for `load`, `store` and `advance`.

    `shape`, `strides` and `offsets` are integers, one a dimension, in elements. `order` is accepted for Triton's sake: which dimension is
    contiguous is seen from the strides.
    """
    what = "make_block_ptr"
    pointer, _ = as_pointer(base, f"{what}: base")
    block = const_shape(block_shape, f"{what}: block_shape")
    rank = len(block)
    if not rank:
        fail("rank", f"{what}: a block has one dimension at least")
    numbers = [
        _integers(x, rank, f"{what}: {n}") for n, x in (("shape", shape), ("strides", strides), ("offsets", offsets))
    ]
    if sorted(const_int(d, f"{what}: order") for d in _items(order, rank, f"{what}: order")) != list(range(rank)):
        fail("bad-axis", f"{what}: order {list(unwrap(order))} is no permutation of {list(range(rank))}")
    return block_pointer(_Tensor(tensor(pointer), numbers[0], numbers[1], block), numbers[2])


def advance(base: block_pointer, offsets: Any) -> block_pointer:
    """`base` moved by `offsets`, one integer a dimension: a new block pointer."""
    if not isinstance(base, block_pointer):  # pyright: ignore[reportUnnecessaryIsInstance]
        fail("bad-argument", f"advance takes a block pointer, not {explain(base)}", "make one with ml.make_block_ptr")
    steps = _integers(offsets, len(base.of.block_shape), "advance: offsets")
    moved = tuple(_moved(at, step) for at, step in zip(base.offsets, steps, strict=True))
    return block_pointer(base.of, moved)


def _moved(at: Any, step: Any) -> Any:
    return at if isinstance(step, int) and step == 0 else at + step


def _items(x: Any, rank: int, what: str) -> tuple[Any, ...]:
    x = unwrap(x)
    items = x if is_tuple(x) else (x,)
    if len(items) != rank:
        fail("rank", f"{what} has {len(items)} items for a block of {rank} dimensions")
    return tuple(unwrap(i) for i in items)


def _integers(x: Any, rank: int, what: str) -> tuple[Any, ...]:
    """One integer a dimension: constants, or scalars of 32 or 64 bits."""
    out: list[Any] = []
    for item in _items(x, rank, what):
        t = item.value.type if isinstance(item, tensor) else None
        if isinstance(item, int) and not isinstance(item, bool):
            out.append(item)
        elif isinstance(item, tensor) and isinstance(t, DType) and t.kind in ("int", "uint"):
            out.append(item if t.bits >= 32 else item.to(I64))
        else:
            fail("type-mismatch", f"{what}: {explain(item)} is no integer scalar")
    return tuple(out)


def block_access(p: block_pointer, boundary_check: Any, padding_option: Any, what: str) -> tuple[tensor, Any, Any]:
    """The pointers of the block's elements, the mask of those inside of the tensor (None: not asked), and what lies outside (None: 0)."""
    whole = p.of
    rank = len(whole.block_shape)
    padding = const_str(padding_option or "", f"{what}: padding_option", _PADDING)
    checked = boundary_check if is_tuple(boundary_check := unwrap(boundary_check)) else (boundary_check,)
    dims = {const_axis(d, rank, f"{what}: boundary_check") for d in checked}
    if padding == "nan" and not p.dtype.pointee.is_floating():
        fail("bad-argument", f"{what}: padding_option is 'nan' for a block of {p.dtype.pointee}")
    start: Any = whole.base
    tile: Any = None
    mask: Any = None
    for d in range(rank):
        start = _moved(start, _wide(p.offsets[d]) * _wide(whole.strides[d]))
        lanes = _along(arange(0, whole.block_shape[d]), d, rank)
        step = _lane_offsets(lanes, whole.strides[d], whole.block_shape[d])
        tile = step if tile is None else tile + step
        if d in dims:
            inside = _inside(lanes, p.offsets[d], whole.shape[d])
            mask = inside if mask is None else mask & inside
    return start + tile, mask, float("nan") if padding == "nan" and mask is not None else None


def _along(lanes: tensor, axis: int, rank: int) -> tensor:
    """A one-dimensional tile along one of `rank` dimensions."""
    return expand_dims(lanes, tuple(d for d in range(rank) if d != axis)) if rank > 1 else lanes


def _wide(x: Any) -> Any:
    return x.to(I64) if isinstance(x, tensor) else x


def _lane_offsets(lanes: tensor, stride: Any, extent: int) -> tensor:
    """Offsets of a block's rows from the first one: 64 bits wide unless they are known to fit 32."""
    if isinstance(stride, int) and abs(stride) * extent <= _MOST_I32:
        return lanes if stride == 1 else lanes * stride
    return lanes.to(I64) * _wide(stride)


def _inside(lanes: tensor, offset: Any, size: Any) -> Any:
    index = lanes + offset
    if isinstance(size, int) and size > _MOST_I32:
        index = index.to(I64)
    below = index < size
    return below if isinstance(offset, int) and offset >= 0 else below & (index >= 0)
