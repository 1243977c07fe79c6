"""Asynchronous copies between global and shared memory: by TMA through tensor descriptors, by threads (cp.async), and in bulk.

A copy by TMA or in bulk counts its bytes on a barrier, which must expect them (`barrier_expect_bytes`). Offsets count elements, outermost dimension
first; what lies outside of the tensor is read as zero (or NaN) and not written.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.async_copy import (
    AsyncLoadOp,
    BulkLoadOp,
    BulkStoreOp,
    CommitGroupOp,
    TmaLoadOp,
    TmaPrefetchOp,
    TmaStoreOp,
    TmaStoreWaitOp,
    WaitGroupOp,
)
from mimw.ir.types import I1, I32, PointerType, shape_of
from mimw.language import semantic
from mimw.language.core import (
    as_value,
    const_bool,
    const_int,
    const_str,
    explain,
    is_tuple,
    operand,
    tensor,
    unwrap,
)
from mimw.language.descriptor import as_descriptor, coordinates, tensor_descriptor
from mimw.language.errors import fail
from mimw.language.handles import (
    TOKEN,
    as_barrier,
    as_buffer,
    as_pointer,
    async_token,
    buffered_tensor,
    descriptor_type,
    mbarrier,
    memory_of,
    predicate,
    scalar_i32,
)

_EVICTION = ("", "evict_first", "evict_last", "evict_normal")
_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
_REDUCE = ("", "add", "min", "max", "and", "or", "xor")


# TMA.


def _block_fits(desc: Value, buffer: Value, what: str) -> None:
    d, m = descriptor_type(desc), memory_of(buffer)
    if d.block_shape != m.shape:
        hint = "pick one buffer of the ring, as in buf[0]" if m.shape[1:] == d.block_shape else None
        fail("shape-mismatch", f"{what}: blocks of {list(d.block_shape)} do not fit the buffer {m}", hint)
    if d.dtype is not m.dtype:
        fail("type-mismatch", f"{what}: blocks of {d.dtype} do not fit the buffer {m}")


def async_descriptor_load(
    desc: tensor_descriptor,
    result: buffered_tensor,
    offsets: Any,
    barrier: mbarrier,
    pred: Any = None,
    cache_modifier: str = "",
    eviction_policy: str = "",
    multicast_targets: Any = (),
    two_ctas: bool = False,
) -> None:
    """Start copying the block at `offsets` into buffer `result`; its bytes, those outside of the tensor too, count on `barrier`.

    The last offset is a multiple of 16 bytes (Hopper refuses others at run time, the simulators name the line).

    `multicast_targets` lists ranks of CTAs of the cluster: each gets the block in the same buffer and counts it on its own barrier.
    `barrier_expect_bytes` announces the bytes. `eviction_policy` is "", "evict_first", "evict_last" or "evict_normal".
    """
    what = "async_descriptor_load"
    b = current_builder(what)
    d, m = as_descriptor(desc, what), as_buffer(result, what)
    _block_fits(d, m, what)
    bar = as_barrier(barrier, what)
    if barrier.barrier.remote:
        fail("bad-argument", f"{what} counts on this CTA's barrier", "multicast_targets= names the other CTAs")
    if const_bool(two_ctas, f"{what}: two_ctas"):
        fail("not-yet", f"{what}: two_ctas=True is not there yet", "it belongs to Blackwell's CTA pairs")
    const_str(cache_modifier or "", f"{what}: cache_modifier", _CACHE)
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    at = coordinates(offsets, descriptor_type(d), what)
    b.insert(TmaLoadOp(d, m, bar, predicate(pred, what), _multicast(multicast_targets, what), at, eviction, loc=b.loc))


def _multicast(targets: Any, what: str) -> Value | None:
    """The bit mask of a list of CTA ranks; None when it is empty."""
    targets = unwrap(targets)
    items: tuple[Any, ...] = targets if is_tuple(targets) else () if targets is None else (targets,)
    fixed = 0
    moving: list[Any] = []
    for rank in map(unwrap, items):
        if isinstance(rank, tensor):
            moving.append(tensor(semantic.constant(1, I32)) << tensor(scalar_i32(rank, f"{what}: a multicast target")))
        else:
            n = const_int(rank, f"{what}: a multicast target")
            if not 0 <= n < 16:
                fail("bad-argument", f"{what}: multicast to CTA {n}; a cluster has at most 16")
            fixed |= 1 << n
    mask: Any = fixed
    for bit in moving:
        mask = bit | mask if mask is not fixed or fixed else bit
    return scalar_i32(mask, what) if items else None


def async_descriptor_store(
    desc: tensor_descriptor, source: buffered_tensor, offsets: Any, eviction_policy: str = "", store_reduce: str = ""
) -> None:
    """Start copying buffer `source` to the block at `offsets`. `store_reduce` combines with what is there: add, min, max, and, or, xor.

    No offset is negative (loads may begin outside of the tensor, stores may not), and the last one is a multiple of 16 bytes.

    `async_descriptor_store_wait` says when the buffer may be written again.
    """
    what = "async_descriptor_store"
    b = current_builder(what)
    swapped = None if not isinstance(desc, buffered_tensor) else "the descriptor comes first"
    if swapped:
        fail("not-a-descriptor", f"{what} takes a tensor descriptor, not {explain(desc)}", swapped)
    d, m = as_descriptor(desc, what), as_buffer(source, what)
    _block_fits(d, m, what)
    reduce = const_str(store_reduce or "", f"{what}: store_reduce", _REDUCE)
    dtype = descriptor_type(d).dtype
    if reduce in ("and", "or", "xor") and dtype.is_floating():
        fail("type-mismatch", f"{what}: store_reduce={reduce!r} takes integers, not {dtype}")
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    at = coordinates(offsets, descriptor_type(d), what)
    b.insert(TmaStoreOp(d, m, at, reduce, eviction, loc=b.loc))


def _pendings(pendings: Any, what: str) -> int:
    n = const_int(pendings, f"{what}: pendings")
    if n < 0:
        fail("bad-argument", f"{what}: {n} pendings")
    return n


def async_descriptor_store_wait(pendings: int) -> None:
    """Wait until at most `pendings` of this task's stores by TMA still read their buffers."""
    b = current_builder("async_descriptor_store_wait")
    b.insert(TmaStoreWaitOp(_pendings(pendings, "async_descriptor_store_wait"), loc=b.loc))


def async_descriptor_prefetch_tensor(
    desc: tensor_descriptor, offsets: Any, pred: Any = None, eviction_policy: str = ""
) -> None:
    """Bring the block at `offsets` into the L2 cache."""
    what = "async_descriptor_prefetch_tensor"
    b = current_builder(what)
    d = as_descriptor(desc, what)
    at = coordinates(offsets, descriptor_type(d), what)
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    b.insert(TmaPrefetchOp(d, predicate(pred, what), at, eviction, loc=b.loc))


# cp.async and bulk copies.


def async_load(
    src: tensor,
    result: buffered_tensor,
    mask: Any = None,
    other: Any = None,
    cache_modifier: str = "",
    eviction_policy: str = "",
    is_volatile: bool = False,
    bulk: bool = False,
    bulk_size: Any = None,
    barrier: Any = None,
) -> async_token:
    """Start copying the elements that the tile of pointers `src` names into buffer `result`; elements whose `mask` is false become `other`.

    Done when an `async_load_wait_group` covers the group (`async_load_commit_group`) that it belongs to. With ``bulk=True``, `src` is one pointer to
    `bulk_size` contiguous bytes (all of `result` when absent), a multiple of 16, which count on `barrier`.
    """
    what = "async_load"
    current_builder(what)
    m = as_buffer(result, what)
    if const_bool(is_volatile, f"{what}: is_volatile"):
        fail("bad-argument", f"{what}: there are no volatile asynchronous copies")
    if const_bool(bulk, f"{what}: bulk"):
        if mask is not None or other is not None:
            fail("bad-argument", f"{what}: a bulk copy has no mask and no other")
        _bulk_load(src, m, bulk_size, barrier)
        return TOKEN
    if unwrap(bulk_size) is not None or unwrap(barrier) is not None:
        fail("bad-argument", f"{what}: bulk_size and barrier belong to bulk=True", "wait with ml.async_load_wait_group")
    _thread_load(src, m, mask, other, cache_modifier, eviction_policy)
    return TOKEN


def _thread_load(src: Any, m: Value, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any) -> None:
    what = "async_load"
    b = current_builder(what)
    t = memory_of(m)
    if not isinstance(src, tensor) or not isinstance(semantic.element(src.value), PointerType):
        fail("not-a-pointer", f"{what} takes a tile of pointers, not {explain(src)}")
    p = src.value
    e = semantic.element(p)
    assert isinstance(e, PointerType)
    if e.pointee is not t.dtype:
        fail("type-mismatch", f"{what}: elements of {e.pointee} do not fit the buffer {t}")
    if shape_of(p.type) != t.shape:
        if semantic.broadcast_shapes(shape_of(p.type), t.shape, what) != t.shape:
            fail("shape-mismatch", f"{what}: {p.type} does not fit the buffer {t}")
        p = semantic.broadcast_to(p, t.shape)
    ms = None
    if unwrap(mask) is not None:
        ms = as_value(mask, f"{what}: mask")
        if semantic.element(ms) is not I1:
            fail("bad-mask", f"{what}: the mask is {ms.type}; it must be i1", "write a comparison, or mask != 0")
        ms = semantic.broadcast_to(ms, t.shape, f"{what}: mask")
    o = None
    if unwrap(other) is not None:
        if ms is None:
            fail(
                "bad-argument",
                f"{what}: other= without mask= is never used",
                "give the mask that says where it applies",
            )
        raw = operand(other, f"{what}: other")
        if isinstance(raw, Value):
            o = semantic.broadcast_to(semantic.cast(raw, t.dtype), t.shape, f"{what}: other")
        else:
            o = semantic.to_shape_and_dtype(raw, t.shape, t.dtype, f"{what}: other")
    cache = const_str(cache_modifier or "", f"{what}: cache_modifier", _CACHE).removeprefix(".")
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    b.insert(AsyncLoadOp(p, m, ms, o, cache, eviction, loc=b.loc))


def _byte_size(size: Any, m: Value, what: str) -> Value:
    t = memory_of(m)
    whole = t.dtype.itemsize
    for s in t.shape:
        whole *= s
    size = unwrap(size)
    size = whole if size is None else size
    if isinstance(size, int) and not isinstance(size, bool):
        if size <= 0 or size % 16:
            fail("bad-argument", f"{what}: {size} bytes; a bulk copy moves multiples of 16")
        if size > whole:
            fail("bad-argument", f"{what}: {size} bytes, the buffer {t} has {whole}")
    return scalar_i32(size, f"{what}: the size")


def _bulk_load(src: Any, m: Value, size: Any, barrier: Any) -> None:
    b = current_builder("async_load")
    p, _ = as_pointer(src, "async_load with bulk=True")
    if unwrap(barrier) is None:
        fail("bad-argument", "async_load: bulk=True needs the barrier= that its bytes count on")
    bar = as_barrier(barrier, "async_load")
    b.insert(BulkLoadOp(p, m, bar, _byte_size(size, m, "async_load"), None, loc=b.loc))


def _tokens(tokens: Any, what: str) -> None:
    tokens = unwrap(tokens)
    for x in tokens if is_tuple(tokens) else (tokens,):
        if x is not None and not isinstance(x, async_token):
            fail("type-mismatch", f"{what}: tokens are what ml.async_load gives, not {explain(x)}")


def async_load_commit_group(tokens: Any = ()) -> async_token:
    """Close the group of all `async_load` copies started since the last one."""
    b = current_builder("async_load_commit_group")
    _tokens(tokens, "async_load_commit_group")
    b.insert(CommitGroupOp(loc=b.loc))
    return TOKEN


def async_load_wait_group(pendings: int, tokens: Any = ()) -> async_token:
    """Wait until at most `pendings` of the groups committed by this task are unfinished; what they wrote can be read then."""
    b = current_builder("async_load_wait_group")
    _tokens(tokens, "async_load_wait_group")
    b.insert(WaitGroupOp(_pendings(pendings, "async_load_wait_group"), loc=b.loc))
    return TOKEN


def async_store(dst_gptr: tensor, src_smem: buffered_tensor, size: Any) -> None:
    """Start copying `size` bytes (a multiple of 16) from a buffer to `dst_gptr`; `async_descriptor_store_wait` waits for it too."""
    b = current_builder("async_store")
    p, _ = as_pointer(dst_gptr, "async_store")
    m = as_buffer(src_smem, "async_store")
    b.insert(BulkStoreOp(p, m, _byte_size(size, m, "async_store"), loc=b.loc))
