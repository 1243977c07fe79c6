"""Buffers in shared memory: allocation, views, loads and stores.

A buffer's layout (swizzled, row-major) is chosen by the compiler from what uses it. Views cost nothing.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.memory import (
    LocalAllocOp,
    LocalGatherOp,
    LocalLoadOp,
    LocalReinterpretOp,
    LocalScatterOp,
    LocalSliceOp,
    LocalStoreOp,
    LocalTransOp,
    members_of,
)
from mimw.ir.types import I1, I32, DType, MemDescType, shape_of
from mimw.language import semantic
from mimw.language.core import (
    as_tile,
    const_axis,
    const_dtype,
    const_int,
    const_shape,
    explain,
    is_tuple,
    tensor,
    unwrap,
)
from mimw.language.errors import fail
from mimw.language.handles import (
    as_buffer,
    buffered_tensor,
    mbarrier,
    memory_of,
    not_on_hopper,
    scalar_i32,
)
from mimw.language.layouts import pinned_layout
from mimw.language.storage import storage_alias_spec, storage_for, storage_kind


def local_alloc(
    shape: Any, dtype: DType, num: int, storage: storage_kind = storage_kind.smem, reuse: Any = None, layout: Any = None
) -> buffered_tensor:
    """A ring of `num` buffers of `shape` and `dtype` in shared memory; ``buf[i]`` picks one. Stands outside of tasks.

    What is in it before the first store is undefined. `reuse` has it share memory: with the members of a `storage_alias_spec`, or with
    another buffer, upon which it then lies. `layout` (``nv_mma_shared_layout_encoding.make_default(shape, dtype)`` and its kin) says how a buffer
    lies; left away, the compiler picks that from the uses. `storage` other than shared memory is not there yet.
    """
    b = current_builder("local_alloc")
    sizes, d = const_shape(shape, "local_alloc"), const_dtype(dtype, "local_alloc: dtype")
    n = const_int(num, "local_alloc: num")
    if n < 1:
        fail("bad-argument", f"local_alloc: {n} buffers")
    if not sizes:
        fail("bad-shape", "local_alloc: the shape is empty", "a buffer has at least one dimension: (1,)")
    if d is I1:
        fail("bad-argument", "local_alloc of i1", "store bools as ml.int8")
    kind = unwrap(storage)
    if not isinstance(kind, storage_kind):
        fail("bad-argument", f"local_alloc: storage is {explain(kind)}", "write ml.storage_kind.smem")
    if kind is not storage_kind.smem:
        not_on_hopper(
            f"local_alloc in {kind.value}",
            "buffers stand in shared memory; accumulators in registers (ml.alloc_accumulator)",
        )
    pin = pinned_layout(layout, sizes, d, "local_alloc: layout")
    t = MemDescType((n, *sizes), d, "shared", pin)
    shared = storage_for(unwrap(reuse), t, "local_alloc: reuse")
    member = len(members_of(shared)) if shared is not None else 0
    buffer = buffered_tensor(
        b.insert(LocalAllocOp(None, t, member=member, pinned=pin is not None, storage=shared, loc=b.loc)).result
    )
    spec = unwrap(reuse)
    if isinstance(spec, storage_alias_spec):
        spec.members.append(buffer)
    return buffer


# Views.


def local_view(buf: Any, idx: Any) -> Any:
    """Buffer `idx` of a ring, or barrier `idx` of an array: ``buf[idx]``."""
    if not isinstance(buf, (buffered_tensor, mbarrier)):
        fail("not-a-buffer", f"local_view takes a ring of buffers or an array of barriers, not {explain(buf)}")
    return buf[idx]


def local_slice(buf: buffered_tensor, offset: Any, shape: Any) -> buffered_tensor:
    """The box of `shape` elements from `offset` (one integer a dimension): a view of the same memory.

    Along a swizzled dimension the offset is a constant.
    """
    b = current_builder("local_slice")
    v = as_buffer(buf, "local_slice")
    t = memory_of(v)
    sizes = const_shape(shape, "local_slice")
    offset = unwrap(offset)
    offsets = offset if is_tuple(offset) else (offset,)
    if len(sizes) != len(t.shape) or len(offsets) != len(t.shape):
        fail("rank", f"local_slice: {len(offsets)} offsets and {len(sizes)} sizes for {t}")
    values: list[Value] = []
    for i, (o, n, whole) in enumerate(zip(offsets, sizes, t.shape, strict=True)):
        o = unwrap(o)
        first = o if isinstance(o, int) else 0
        if first < 0 or first + n > whole:
            fail("bad-index", f"local_slice: {first} to {first + n} of dimension {i}, which has {whole} elements")
        values.append(scalar_i32(o, "local_slice: an offset"))
    return buffered_tensor(b.insert(LocalSliceOp(v, values, sizes, loc=b.loc)).result)


def subslice(tmem_buf: Any, offset: Any, size: Any) -> Any:
    """Columns of a buffer in tensor memory: not on this target."""
    return not_on_hopper("subslice of tensor memory", "ml.local_slice takes a part of a buffer in shared memory")


def _same_bytes(v: Value, shape: tuple[int, ...], d: DType, what: str) -> MemDescType:
    t = memory_of(v)
    have, want = t.dtype.itemsize, d.itemsize
    for s in t.shape:
        have *= s
    for s in shape:
        want *= s
    if have != want:
        fail("shape-mismatch", f"{what}: {t} has {have} bytes, {list(shape)} of {d} has {want}")
    return MemDescType(shape, d, t.space)


def local_reinterpret(buf: buffered_tensor, dtype: DType, shape: Any = None, layout: Any = None) -> buffered_tensor:
    """The same bytes as `dtype` in `shape` (the buffer's own when absent), in row-major order. The byte size stays."""
    b = current_builder("local_reinterpret")
    v = as_buffer(buf, "local_reinterpret")
    d = const_dtype(dtype, "local_reinterpret: dtype")
    sizes = memory_of(v).shape if unwrap(shape) is None else const_shape(shape, "local_reinterpret")
    if unwrap(layout) is not None:
        fail("not-yet", "local_reinterpret: layout= is not there yet", "leave it away: the compiler picks the layout")
    t = _same_bytes(v, sizes, d, "local_reinterpret")
    return buffered_tensor(b.insert(LocalReinterpretOp(v, t, loc=b.loc)).result)


def local_reshape(buf: buffered_tensor, shape: Any) -> buffered_tensor:
    """The same elements, in row-major order, under another shape."""
    b = current_builder("local_reshape")
    v = as_buffer(buf, "local_reshape")
    t = _same_bytes(v, const_shape(shape, "local_reshape"), memory_of(v).dtype, "local_reshape")
    return buffered_tensor(b.insert(LocalReinterpretOp(v, t, loc=b.loc)).result)


def local_trans(buf: buffered_tensor, dims: Any = (1, 0)) -> buffered_tensor:
    """The same buffer with permuted dimensions: a view, nothing moves."""
    b = current_builder("local_trans")
    v = as_buffer(buf, "local_trans")
    t = memory_of(v)
    order = tuple(const_int(d, "local_trans: dims") for d in (dims if is_tuple(dims) else (dims,)))
    if sorted(order) != list(range(len(t.shape))):
        fail("bad-axis", f"local_trans: {list(order)} is no permutation of the {len(t.shape)} dimensions of {t}")
    view = MemDescType(tuple(t.shape[i] for i in order), t.dtype, t.space, None, t.alloc_shape)
    return buffered_tensor(b.insert(LocalTransOp(v, order, view, loc=b.loc)).result)


# Loads and stores.


def local_load(
    src: buffered_tensor,
    token: Any = None,
    layout: Any = None,
    relaxed: bool = False,
    rematerialize_coordinates: bool = False,
    rematerialize_coordinates_group: Any = None,
) -> tensor:
    """A buffer's elements as a tile. The arguments after `src` are accepted for TLX's sake and change nothing; `layout` is not there yet."""
    b = current_builder("local_load")
    v = as_buffer(src, "local_load")
    if unwrap(layout) is not None:
        fail("not-yet", "local_load: layout= is not there yet", "leave it away: the compiler picks the layout")
    return tensor(b.insert(LocalLoadOp(v, loc=b.loc)).result)


def local_store(dst: buffered_tensor, src: Any) -> None:
    """Write tile `src` into buffer `dst` of its shape and dtype."""
    b = current_builder("local_store")
    swapped = "the destination comes first: ml.local_store(buffer, tile)" if isinstance(src, buffered_tensor) else None
    v = as_buffer(dst, "local_store", swapped)
    x = tile_for(src, memory_of(v), "local_store")
    b.insert(LocalStoreOp(v, x, loc=b.loc))


def tile_for(src: Any, t: MemDescType, what: str, into: str = "the buffer") -> Value:
    """A tile that goes into a buffer (or what `into` says): of its shape and dtype (numbers are spread)."""
    src = unwrap(src)
    if isinstance(src, (bool, int, float)):
        return semantic.to_shape_and_dtype(src, t.shape, t.dtype, what)
    x = as_tile(src, what)
    if shape_of(x.type) != t.shape:
        fail("shape-mismatch", f"{what}: {x.type} does not fit {into} {t}")
    if semantic.element(x) is not t.dtype:
        fail("type-mismatch", f"{what}: {x.type} does not fit {into} {t}", "convert it: .to(buf.dtype)")
    return x


def _gather(buf: Any, indices: Any, axis: Any, what: str) -> tuple[Value, Value, int]:
    v = as_buffer(buf, what)
    t = memory_of(v)
    x = as_tile(indices, f"{what}: indices")
    e = semantic.dtype_of(x, f"{what}: indices")
    if e.kind not in ("int", "uint"):
        fail("type-mismatch", f"{what}: the indices are integers, not {x.type}")
    if len(shape_of(x.type)) != len(t.shape):
        fail("rank", f"{what}: indices {x.type} for the buffer {t}")
    a = const_axis(axis, len(t.shape), what)
    for i, (n, whole) in enumerate(zip(shape_of(x.type), t.shape, strict=True)):
        if i != a and n > whole:
            fail("shape-mismatch", f"{what}: {n} indices along dimension {i} of the buffer {t}")
    return v, semantic.cast(x, I32), a


def local_gather(src: buffered_tensor, indices: tensor, axis: int, token: Any = None) -> tensor:
    """A tile of the shape of `indices`: element ``src[..., indices[i...], ...]`` along `axis` for each. Indices are in range."""
    b = current_builder("local_gather")
    v, x, a = _gather(src, indices, axis, "local_gather")
    return tensor(b.insert(LocalGatherOp(v, x, a, loc=b.loc)).result)


def local_scatter(dst: buffered_tensor, src: tensor, indices: tensor, axis: int, token: Any = None) -> None:
    """``dst[..., indices[i...], ...] = src[i...]`` along `axis`; which of two writes to one place stays is not defined."""
    b = current_builder("local_scatter")
    v, x, a = _gather(dst, indices, axis, "local_scatter")
    t = memory_of(v)
    tile = tile_for(src, MemDescType(shape_of(x.type), t.dtype), "local_scatter")
    b.insert(LocalScatterOp(v, tile, x, a, loc=b.loc))
