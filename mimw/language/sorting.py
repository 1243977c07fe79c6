"""Moving elements by their value or index: `sort`, `topk`, `flip`, `gather`, `histogram`."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import Builder, current_builder
from mimw.ir.core import Value
from mimw.ir.ops.memory import LocalAllocOp, LocalCountOp, LocalGatherOp, LocalLoadOp
from mimw.ir.ops.tensor import (
    ArangeOp,
    BroadcastOp,
    ExpandDimsOp,
    ExtractSliceOp,
    JoinOp,
    ReshapeOp,
    SplitOp,
    TransOp,
)
from mimw.ir.types import I1, I8, I32, I64, U64, DType, MemDescType, TensorType, element_of, shape_of
from mimw.language import semantic
from mimw.language.core import as_tile, const_axis, const_bool, const_int, method, tensor, unwrap
from mimw.language.errors import fail

# Sorting: Batcher's bitonic network. Elements at distance d are brought side by side by reshaping to [..., 2, d].


def _log2(n: int, what: str) -> int:
    if n & (n - 1):
        fail("bad-shape", f"{what} along {n} elements: a power of two is needed")
    return n.bit_length() - 1


def _exchange(b: Builder, x: Value, distance: int, stage: int, last: bool, descending: bool) -> Value:
    """One step of the network on a flat tile: order the pairs at `distance`, up in one block of 2^(stage + 1), down in the next (all one way
    in the `last` stage)."""
    pairs = shape_of(x.type)[0] // (2 * distance)
    cut = b.insert(ReshapeOp(x, (pairs, 2, distance), loc=b.loc)).result
    halves = b.insert(SplitOp(b.insert(TransOp(cut, (0, 2, 1), loc=b.loc)).result, loc=b.loc))
    low, high = halves.first, halves.second
    swap = b.elementwise("arith.lt" if last and descending else "arith.gt", low, high)
    if not last:
        number = b.insert(ArangeOp(0, pairs, loc=b.loc)).result
        bit = b.elementwise("arith.shr", number, b.constant(stage - distance.bit_length() + 1, number.type))
        bit = b.elementwise("arith.and", bit, b.constant(1, bit.type))
        down = b.elementwise("arith.ne", bit, b.constant(0, bit.type))
        column = b.insert(ExpandDimsOp(down, 1, loc=b.loc)).result
        if distance > 1:
            column = b.insert(BroadcastOp(column, (pairs, distance), loc=b.loc)).result
        swap = b.elementwise("arith.xor", swap, column)
    first = b.elementwise("arith.select", swap, high, low)
    second = b.elementwise("arith.select", swap, low, high)
    joined = b.insert(JoinOp(first, second, loc=b.loc)).result
    back = b.insert(TransOp(joined, (0, 2, 1), loc=b.loc)).result
    return b.insert(ReshapeOp(back, shape_of(x.type), loc=b.loc)).result


def _sorted(v: Value, axis: int, descending: bool, what: str) -> Value:
    """The tile sorted along an axis, which comes last in the result."""
    b = current_builder(what)
    if isinstance(d := element_of(v.type), DType) and d.is_fp8():
        fail("fp8-arithmetic", f"{what} is not defined on {d}", "convert first: x.to(ml.float16)")
    rank = len(shape_of(v.type))
    if axis != rank - 1:
        order = (*(i for i in range(rank) if i != axis), axis)
        v = b.insert(TransOp(v, order, loc=b.loc)).result
    shape = shape_of(v.type)
    stages = _log2(shape[-1], what)
    total = 1
    for n in shape:
        total *= n
    x = v if rank == 1 else b.insert(ReshapeOp(v, (total,), loc=b.loc)).result
    for stage in range(stages):
        for step in reversed(range(stage + 1)):
            x = _exchange(b, x, 1 << step, stage, stage == stages - 1, descending)
    return x if rank == 1 else b.insert(ReshapeOp(x, shape, loc=b.loc)).result


def _back(v: Value, axis: int) -> tensor:
    """The last dimension where `axis` was."""
    b = current_builder("sort")
    rank = len(shape_of(v.type))
    if axis == rank - 1:
        return tensor(v)
    order = (*range(axis), rank - 1, *range(axis, rank - 1))
    return tensor(b.insert(TransOp(v, order, loc=b.loc)).result)


def _axis(dim: Any, v: Value, what: str) -> int:
    rank = len(shape_of(v.type))
    return rank - 1 if unwrap(dim) is None else const_axis(dim, rank, what)


@method
def sort(x: tensor, dim: int | None = None, descending: bool = False) -> tensor:
    """The elements in order along `dim` (the last dimension when None), whose length is a power of two. Where NaNs go is not defined.

    A bitonic network: for a row of n elements log2(n) * (log2(n) + 1) / 2 steps.
    """
    v = as_tile(x, "sort")
    axis = _axis(dim, v, "sort")
    return _back(_sorted(v, axis, const_bool(descending, "sort: descending"), "sort"), axis)


@method
def topk(x: tensor, k: int, dim: int | None = None) -> tensor:
    """The `k` largest elements along `dim` (the last dimension when None), largest first. `k` and the dimension are powers of two."""
    b = current_builder("topk")
    v = as_tile(x, "topk")
    axis = _axis(dim, v, "topk")
    count = const_int(k, "topk: k")
    _log2(max(count, 1), "topk")
    if not 1 <= count <= shape_of(v.type)[axis]:
        fail("bad-argument", f"topk: the {count} largest of {shape_of(v.type)[axis]} elements")
    out = _sorted(v, axis, True, "topk")
    shape = shape_of(out.type)
    if count != shape[-1]:
        out = b.insert(ExtractSliceOp(out, (0,) * len(shape), (*shape[:-1], count), loc=b.loc)).result
    return _back(out, axis)


# By index: through shared memory.


def _picked(x: Value, index: Value, axis: int) -> tensor:
    b = current_builder("gather")
    d = element_of(x.type)
    assert isinstance(d, DType)
    held = I8 if d is I1 else d
    buffer = b.insert(LocalAllocOp(semantic.cast(x, held), MemDescType(shape_of(x.type), held), loc=b.loc)).result
    out = b.insert(LocalGatherOp(buffer, index, axis, loc=b.loc)).result
    return tensor(semantic.cast(out, d))


@method
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """A tile of the shape of `index` (integers): ``src[..., index[i...], ...]`` along `axis` for each. Indices are in range.

    The other dimensions of `index` are those of `src`. Goes through shared memory.
    """
    x, at = as_tile(src, "gather"), as_tile(index, "gather: index")
    semantic.dtype_of(x, "gather")
    if semantic.dtype_of(at, "gather: index").kind not in ("int", "uint"):
        fail("type-mismatch", f"gather: the indices are integers, not {at.type}")
    a, b = shape_of(x.type), shape_of(at.type)
    if len(a) != len(b):
        fail("rank", f"gather: indices {at.type} for {x.type}")
    n = const_axis(axis, len(a), "gather")
    if any(p != q for i, (p, q) in enumerate(zip(a, b, strict=True)) if i != n):
        fail("shape-mismatch", f"gather along dimension {n}: the other dimensions of {x.type} and {at.type} differ")
    return _picked(x, semantic.cast(at, I32), n)


@method
def flip(x: tensor, dim: int | None = None) -> tensor:
    """The elements in reverse order along `dim` (the last dimension when None). Goes through shared memory."""
    b = current_builder("flip")
    v = as_tile(x, "flip")
    semantic.dtype_of(v, "flip")
    axis = _axis(dim, v, "flip")
    shape = shape_of(v.type)
    lanes = b.insert(ArangeOp(0, shape[axis], loc=b.loc)).result
    index = b.elementwise("arith.sub", b.constant(shape[axis] - 1, lanes.type), lanes)
    for d in range(len(shape)):
        if d != axis:
            index = b.insert(ExpandDimsOp(index, d, loc=b.loc)).result
    return _picked(v, semantic.broadcast_to(index, shape), axis)


@method
def histogram(input: tensor, num_bins: int, mask: Any = None) -> tensor:
    """How often each of the integers 0 to `num_bins` - 1 is in `input` (one dimension), where `mask` is true: int32. Others are not counted."""
    b = current_builder("histogram")
    x = as_tile(input, "histogram")
    if semantic.dtype_of(x, "histogram").kind not in ("int", "uint"):
        fail("type-mismatch", f"histogram takes integers, not {x.type}")
    if len(shape_of(x.type)) != 1:
        fail("rank", f"histogram takes a tile of one dimension, not {x.type}", "flatten it: ml.ravel(x)")
    bins = const_int(num_bins, "histogram: num_bins")
    if bins < 1:
        fail("bad-argument", f"histogram: {bins} bins")
    semantic.check_size((bins,), "histogram")
    wide = semantic.cast(x, I64)
    inside = b.elementwise(  # negative ones are large when unsigned
        "arith.lt", semantic.cast(wide, U64, bitcast=True), b.constant(bins, TensorType(shape_of(x.type), U64))
    )
    if unwrap(mask) is not None:
        m = semantic.broadcast_to(semantic.as_bool(as_tile(mask, "histogram: mask")), shape_of(x.type))
        inside = b.elementwise("arith.and", inside, m)
    t = MemDescType((bins,), I32)
    buffer = b.insert(LocalAllocOp(b.constant(0, TensorType((bins,), I32)), t, loc=b.loc)).result
    b.insert(LocalCountOp(buffer, semantic.cast(x, I32), inside, loc=b.loc))
    return tensor(b.insert(LocalLoadOp(buffer, loc=b.loc)).result)
