"""Tiles: making them, changing their shape, reducing and scanning along an axis, converting their layout.

`scratch` attributes are byte offsets into shared memory, set by the allocation pass (-1: not yet, or none needed).
"""

from __future__ import annotations

from mimw.ir.core import Region, Value
from mimw.ir.opdef import Op, attr, attr_default, op, operand, region, result, results, variadic
from mimw.ir.ops.arith import tensor_type
from mimw.ir.types import I32, TensorType, Type


@op("tensor.splat")
class SplatOp(Op):
    """A scalar (or pointer) repeated into `shape`."""

    src: Value = operand()
    shape: tuple[int, ...] = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = self.src.type
        if isinstance(t, TensorType):
            raise ValueError(f"splat takes a scalar, not {t}")
        return [TensorType(self.shape, t)]  # type: ignore[arg-type]


@op("tensor.arange")
class ArangeOp(Op):
    """start, start+1, ..., end-1 as i32."""

    start: int = attr()
    end: int = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        if self.end <= self.start:
            raise ValueError(f"arange({self.start}, {self.end}) is empty")
        return [TensorType((self.end - self.start,), I32)]


@op("tensor.expand_dims")
class ExpandDimsOp(Op):
    """Insert a dimension of size 1 before `axis`."""

    src: Value = operand()
    axis: int = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if not 0 <= self.axis <= t.rank:
            raise ValueError(f"axis {self.axis} is out of range for {t}")
        return [TensorType((*t.shape[: self.axis], 1, *t.shape[self.axis :]), t.element)]


@op("tensor.broadcast")
class BroadcastOp(Op):
    """Repeat dimensions of size 1 to the sizes of `shape` (same rank)."""

    src: Value = operand()
    shape: tuple[int, ...] = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if len(self.shape) != t.rank or any(a not in (1, b) for a, b in zip(t.shape, self.shape, strict=True)):
            raise ValueError(f"{t} does not broadcast to {self.shape}")
        return [TensorType(self.shape, t.element)]


@op("tensor.reshape")
class ReshapeOp(Op):
    """The same elements in row-major order under another shape. `can_reorder` allows any order."""

    src: Value = operand()
    shape: tuple[int, ...] = attr()
    can_reorder: bool = attr_default(default=False)
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        out = TensorType(self.shape, t.element)
        if out.numel != t.numel:
            raise ValueError(f"{t} cannot be reshaped to {self.shape}: {t.numel} against {out.numel} elements")
        return [out]


@op("tensor.trans")
class TransOp(Op):
    """Permute dimensions: dimension i of the result is dimension `order[i]` of the source."""

    src: Value = operand()
    order: tuple[int, ...] = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if sorted(self.order) != list(range(t.rank)):
            raise ValueError(f"{self.order} is not a permutation of the {t.rank} dimensions of {t}")
        return [TensorType(tuple(t.shape[i] for i in self.order), t.element)]


@op("tensor.join")
class JoinOp(Op):
    """Stack two tiles along a new last dimension of size 2."""

    a: Value = operand()
    b: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        t, u = tensor_type(self.a), tensor_type(self.b)
        if (t.shape, t.element) != (u.shape, u.element):
            raise ValueError(f"join of {t} and {u}")
        return [TensorType((*t.shape, 2), t.element)]


@op("tensor.split")
class SplitOp(Op):
    """The inverse of join: two tiles from one whose last dimension is 2."""

    src: Value = operand()
    first: Value = result()
    second: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if not t.shape or t.shape[-1] != 2:
            raise ValueError(f"split needs a last dimension of 2, not {t}")
        out = TensorType(t.shape[:-1], t.element)
        return [out, out]


SLICES = "the length is a power of two that divides the offset; or both are multiples of 2^a, where the whole is 2^a times an odd number up to 15"


def sliceable(at: int, size: int, whole: int) -> bool:
    """Whether [at, at + size) of a dimension of `whole` elements can be told by bits of a layout, or by its odd digit: `SLICES`."""
    unit = whole & -whole
    return (
        size == whole
        or not (size & (size - 1) or at % size)
        or (whole // unit <= 15 and not (size % unit or at % unit))
    )


@op("tensor.extract_slice")
class ExtractSliceOp(Op):
    """The part of a tile that begins at `offsets` and has `shape`: see `sliceable` for what it may be along each dimension."""

    src: Value = operand()
    offsets: tuple[int, ...] = attr()
    shape: tuple[int, ...] = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if not len(self.offsets) == len(self.shape) == t.rank:
            raise ValueError(f"a slice of {t} at {self.offsets} of shape {self.shape}: the ranks differ")
        for at, size, whole in zip(self.offsets, self.shape, t.shape, strict=True):
            if not 0 <= at <= whole - size or size < 1:
                raise ValueError(f"a slice of {t} at {self.offsets} of shape {self.shape} leaves the tile")
            if not sliceable(at, size, whole):
                raise ValueError(f"a slice of {size} at {at} of {whole}: {SLICES}")
        return [TensorType(self.shape, t.element)]


@op("tensor.cat")
class CatOp(Op):
    """Concatenate two tiles along dimension `axis`."""

    a: Value = operand()
    b: Value = operand()
    axis: int = attr_default(default=0)
    result: Value = result()

    def infer(self) -> list[Type]:
        t, u = tensor_type(self.a), tensor_type(self.b)
        k = self.axis
        same = t.rank == u.rank and all(
            i == k or x == y for i, (x, y) in enumerate(zip(t.shape, u.shape, strict=False))
        )
        if not same or t.element is not u.element or not 0 <= k < t.rank:
            raise ValueError(f"cat of {t} and {u} along {k}")
        return [TensorType((*t.shape[:k], t.shape[k] + u.shape[k], *t.shape[k + 1 :]), t.element)]


@op("tensor.reduce")
class ReduceOp(Op):
    """Combine all elements along `axis` with the region, which takes (a..., b...) scalars and yields as many; one result per source.

    The combine function must be associative and commutative; the order is fixed by the layout. Reducing a one-dimensional tile
    gives scalars. Holes of padded layouts take no part.
    """

    srcs: list[Value] = variadic()
    axis: int = attr()
    combine: Region = region()
    scratch: int = attr_default(default=-1)
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        return [_reduced(tensor_type(v), self.axis) for v in self.srcs]


@op("tensor.scan")
class ScanOp(Op):
    """Inclusive prefix combination along `axis` (from the end when `reverse`); the region as in reduce, associative."""

    srcs: list[Value] = variadic()
    axis: int = attr()
    combine: Region = region()
    reverse: bool = attr_default(default=False)
    scratch: int = attr_default(default=-1)
    outs: list[Value] = results()

    def infer(self) -> list[Type]:
        for v in self.srcs:
            _reduced(tensor_type(v), self.axis)
        return [v.type for v in self.srcs]


def _reduced(t: TensorType, axis: int) -> Type:
    if not 0 <= axis < t.rank:
        raise ValueError(f"axis {axis} is out of range for {t}")
    shape = (*t.shape[:axis], *t.shape[axis + 1 :])
    return TensorType(shape, t.element) if shape else t.element


@op("tensor.convert_layout")
class ConvertLayoutOp(Op):
    """The same tile in another layout (the result type's). `reason` says why inference put it there. `budget`: bytes of shared memory
    that it may take, 0 for what it likes; with fewer it goes in rounds."""

    src: Value = operand()
    type: TensorType = attr()
    reason: str = attr_default(default="")
    scratch: int = attr_default(default=-1)
    budget: int = attr_default(default=0)
    result: Value = result()

    def infer(self) -> list[Type]:
        t = tensor_type(self.src)
        if (t.shape, t.element) != (self.type.shape, self.type.element):
            raise ValueError(f"convert_layout from {t} to {self.type}")
        return [self.type]
