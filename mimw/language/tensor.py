"""Making tiles and changing their shape. No function here touches elements' values."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.tensor import (
    SLICES,
    ArangeOp,
    CatOp,
    ExpandDimsOp,
    ExtractSliceOp,
    JoinOp,
    ReshapeOp,
    SplitOp,
    TransOp,
    sliceable,
)
from mimw.ir.types import DType, TensorType, element_of, shape_of
from mimw.language import semantic
from mimw.language.core import (
    METHODS,
    TensorLike,
    as_tile,
    as_value,
    const_axis,
    const_dtype,
    const_int,
    const_shape,
    is_tuple,
    method,
    operand,
    tensor,
    unwrap,
)
from mimw.language.errors import fail


def arange(start: int, end: int) -> tensor:
    """start, start+1, ..., end-1: int32 of shape [end - start]. Any length of at least 1."""
    b = current_builder("arange")
    first, last = const_int(start, "arange: start"), const_int(end, "arange: end")
    if last <= first:
        fail("bad-shape", f"arange({first}, {last}) is empty")
    if not -(2**31) <= first < 2**31 or last > 2**31:
        fail("literal-range", f"arange({first}, {last}) leaves int32")
    semantic.check_size((last - first,), "arange")
    return tensor(b.insert(ArangeOp(first, last, loc=b.loc)).result)


def full(shape: Any, value: TensorLike, dtype: DType) -> tensor:
    """A tile of `shape` with `value` (a number or a run-time scalar, cast to `dtype`) everywhere."""
    d = const_dtype(dtype, "full: dtype")
    s = const_shape(shape, "full")
    v = operand(value, "full: value")
    if isinstance(v, float) and not d.is_floating():
        v = int(v)
    if isinstance(v, Value) and shape_of(v.type):
        fail("rank", f"full takes a scalar value, not {v.type}")
    return tensor(semantic.to_shape_and_dtype(v, s, d, "full"))


def zeros(shape: Any, dtype: DType) -> tensor:
    """A tile of `shape` filled with 0."""
    return full(const_shape(shape, "zeros"), 0, const_dtype(dtype, "zeros: dtype"))


def zeros_like(input: tensor) -> tensor:
    """Zeros of the shape and dtype of `input`."""
    v = as_value(input, "zeros_like")
    return full(shape_of(v.type), 0, semantic.dtype_of(v, "zeros_like"))


@method
def broadcast_to(input: TensorLike, *shape: Any) -> tensor:
    """`input` in `shape` (sizes, or one tuple): dimensions of size 1 repeat, missing leading ones are added."""
    return tensor(semantic.broadcast_to(as_value(input, "broadcast_to"), _shape_of_args(shape, "broadcast_to")))


def broadcast(input: TensorLike, other: TensorLike) -> tuple[tensor, tensor]:
    """Both in their common shape."""
    a, b = as_value(input, "broadcast"), as_value(other, "broadcast")
    shape = semantic.broadcast_shapes(shape_of(a.type), shape_of(b.type), "broadcast")
    return tensor(semantic.broadcast_to(a, shape)), tensor(semantic.broadcast_to(b, shape))


def _shape_of_args(shape: tuple[Any, ...], what: str) -> tuple[int, ...]:
    if len(shape) == 1 and is_tuple(unwrap(shape[0])):
        return const_shape(shape[0], what)
    return const_shape(shape, what)


@method
def expand_dims(input: tensor, axis: Any) -> tensor:
    """Insert a dimension of size 1 before `axis` (several when it is a tuple; negative from the end of the result)."""
    b = current_builder("expand_dims")
    v = as_value(input, "expand_dims")
    axis = unwrap(axis)
    axes = axis if is_tuple(axis) else (axis,)
    rank = len(shape_of(v.type)) + len(axes)
    places = sorted(const_axis(a, rank, "expand_dims") for a in axes)
    if len(set(places)) != len(places):
        fail("bad-axis", f"expand_dims: {list(axes)} names an axis twice")
    for a in places:
        if isinstance(v.type, TensorType):
            v = b.insert(ExpandDimsOp(v, a, loc=b.loc)).result
        else:
            v = semantic.broadcast_to(v, (1,))
    return tensor(v)


@method
def reshape(input: tensor, *shape: Any, can_reorder: bool = False) -> tensor:
    """The same elements in row-major order under another shape (sizes, or one tuple). `can_reorder` allows any
    order.
    """
    b = current_builder("reshape")
    s = _shape_of_args(shape, "reshape")
    v = as_value(input, "reshape")
    if shape_of(v.type) == s:
        return tensor(v)
    n = 1
    for x in shape_of(v.type):
        n *= x
    m = 1
    for x in s:
        m *= x
    if n != m:
        fail("shape-mismatch", f"reshape: {v.type} has {n} elements, the shape {list(s)} has {m}")
    if not isinstance(v.type, TensorType):
        return tensor(semantic.broadcast_to(v, s))
    return tensor(b.insert(ReshapeOp(v, s, bool(unwrap(can_reorder)), loc=b.loc)).result)


@method
def view(input: tensor, *shape: Any) -> tensor:
    """`reshape` that may reorder elements, as Triton's."""
    return reshape(input, *shape, can_reorder=True)


@method
def ravel(input: tensor, can_reorder: bool = False) -> tensor:
    """All elements in one dimension, row-major."""
    v = as_value(input, "ravel")
    n = 1
    for x in shape_of(v.type):
        n *= x
    return reshape(input, n, can_reorder=can_reorder)


@method
def permute(input: tensor, *dims: Any) -> tensor:
    """Reorder dimensions: dimension i of the result is dimension ``dims[i]`` of `input`."""
    b = current_builder("permute")
    v = as_tile(input, "permute")
    items: tuple[Any, ...] = dims
    if len(dims) == 1 and is_tuple(unwrap(dims[0])):
        items = tuple(unwrap(dims[0]))
    rank = len(shape_of(v.type))
    order = tuple(const_axis(d, rank, "permute") for d in items)
    if sorted(order) != [*range(rank)]:
        fail("bad-axis", f"permute: {list(order)} is not a permutation of the {rank} dimensions of {v.type}")
    return tensor(b.insert(TransOp(v, order, loc=b.loc)).result)


@method
def trans(input: tensor, *dims: Any) -> tensor:
    """Permute dimensions; without `dims` the last two are swapped."""
    v = as_tile(input, "trans")
    if dims:
        return permute(input, *dims)
    rank = len(shape_of(v.type))
    if rank < 2:
        fail("rank", f"trans takes at least two dimensions, not {v.type}")
    return permute(input, (*range(rank - 2), rank - 1, rank - 2))


def join(a: TensorLike, b: TensorLike) -> tensor:
    """Stack two tiles (broadcast together, promoted) along a new last dimension of size 2."""
    at = current_builder("join")
    x, y = operand(a, "join"), operand(b, "join")
    d = semantic.common_dtype(x, y, "join")
    shape = semantic.broadcast_shapes(semantic.operand_shape(x), semantic.operand_shape(y), "join")
    scalar = not shape
    u, v = (semantic.to_shape_and_dtype(z, shape or (1,), d, "join") for z in (x, y))
    out = tensor(at.insert(JoinOp(u, v, loc=at.loc)).result)
    return reshape(out, 2) if scalar else out


@method
def split(a: tensor) -> tuple[tensor, tensor]:
    """The inverse of `join`: two tiles from one whose last dimension is 2."""
    b = current_builder("split")
    v = as_tile(a, "split")
    shape = shape_of(v.type)
    if shape[-1] != 2:
        fail("shape-mismatch", f"split needs a last dimension of 2, not {v.type}")
    scalar = len(shape) == 1
    if scalar:
        v = semantic.broadcast_to(v, (1, 2))
    op = b.insert(SplitOp(v, loc=b.loc))
    if scalar:
        return _only_element(op.first), _only_element(op.second)
    return tensor(op.first), tensor(op.second)


def _only_element(v: Value) -> tensor:
    """A tile of one element as a scalar."""
    return METHODS["sum"](tensor(v), 0, dtype=element_of(v.type))


def _offsets(offsets: Any) -> tuple[int, ...]:
    offsets = unwrap(offsets)
    items = offsets if is_tuple(offsets) else (offsets,)
    return tuple(const_int(o, "extract_slice: each offset") for o in items)


@method
def extract_slice(input: tensor, offsets: Any, shape: Any) -> tensor:
    """The part of a tile that begins at `offsets` and has `shape`, both constant. Along each dimension it is the whole; or a power of two long, at
    a multiple of that; or, where the whole is 2^a times an odd number up to 15, any multiples of 2^a. The part keeps its registers where it can: the
    columns of an accumulator are cut off without moving anything. An addition to Triton's names (Gluon's AMD part has it)."""
    b = current_builder("extract_slice")
    v = as_tile(input, "extract_slice")
    whole = shape_of(v.type)
    size, at = const_shape(shape, "extract_slice: shape"), _offsets(offsets)
    if not len(size) == len(at) == len(whole):
        fail("rank", f"extract_slice of {v.type} at {list(at)} of shape {list(size)}: the ranks differ")
    for d, (n, o, w) in enumerate(zip(size, at, whole, strict=True)):
        if not 0 <= o <= w - n:
            fail("bad-index", f"extract_slice: [{o}, {o + n}) leaves dimension {d} of {v.type}")
        if not sliceable(o, n, w):
            fail("bad-index", f"extract_slice: {n} at {o} along dimension {d} of {v.type}", SLICES)
    return tensor(v) if size == whole else tensor(b.insert(ExtractSliceOp(v, at, size, loc=b.loc)).result)


def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """Concatenate along dimension `dim`; both have one dtype and agree in the other sizes. Order is kept either way."""
    b = current_builder("cat")
    x, y = as_tile(input, "cat"), as_tile(other, "cat")
    axis = const_axis(dim, len(shape_of(x.type)), "cat")
    if element_of(x.type) is not element_of(y.type):
        fail("type-mismatch", f"cat of {x.type} and {y.type}", "cast one side with .to(...)")
    s, t = shape_of(x.type), shape_of(y.type)
    if len(s) != len(t) or any(i != axis and p != q for i, (p, q) in enumerate(zip(s, t, strict=True))):
        fail("shape-mismatch", f"cat of {x.type} and {y.type} along {axis}")
    return tensor(b.insert(CatOp(x, y, axis, loc=b.loc)).result)


def interleave(a: TensorLike, b: TensorLike) -> tensor:
    """Alternate the elements of two tiles along the last dimension, whose size doubles."""
    c = join(a, b)
    shape = c.shape
    if len(shape) == 1:
        return c
    return reshape(c, (*shape[:-2], 2 * shape[-2]))


@method
def unsqueeze(x: tensor, dim: int) -> tensor:
    """Insert a dimension of size 1 before `dim`: `expand_dims` of one axis."""
    return expand_dims(x, const_int(dim, "unsqueeze: dim"))


@method
def squeeze(x: tensor, dim: int) -> tensor:
    """Remove dimension `dim`, whose size is 1."""
    shape = shape_of(as_tile(x, "squeeze").type)
    axis = const_axis(dim, len(shape), "squeeze")
    if shape[axis] != 1:
        fail("bad-shape", f"squeeze: dimension {axis} has {shape[axis]} elements, not 1")
    if len(shape) == 1:
        return _only_element(as_tile(x, "squeeze"))
    return reshape(x, (*shape[:axis], *shape[axis + 1 :]))
