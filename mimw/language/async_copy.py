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
    MakeDescriptorOp,
    TmaLoadOp,
    TmaPrefetchOp,
    TmaStoreOp,
    TmaStoreWaitOp,
    WaitGroupOp,
)
from mimw.ir.ops.memory import LocalAllocOp
from mimw.ir.types import I1, I32, I64, DType, MemDescType, PointerType, TensorDescType, shape_of
from mimw.language import semantic
from mimw.language.core import (
    as_value,
    const_bool,
    const_int,
    const_shape,
    const_str,
    explain,
    is_tuple,
    operand,
    tensor,
    unwrap,
)
from mimw.language.handles import (
    TOKEN,
    WRAPPERS,
    as_barrier,
    as_buffer,
    as_pointer,
    async_token,
    buffered_tensor,
    descriptor_type,
    handle,
    mbarrier,
    memory_of,
    predicate,
    scalar_i32,
    traced,
)
from mimw.language.local import tile_for
from mimw.language.semantic import fail

_EVICTION = ("", "evict_first", "evict_last", "evict_normal")
_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
_REDUCE = ("", "add", "min", "max", "and", "or", "xor")
MAX_BOX = 256
"""Elements of a block along one dimension (CUDA driver API, cuTensorMapEncodeTiled)."""


class tensor_descriptor(handle):
    """A TMA descriptor of a tensor in global memory: an argument (`mimw.TensorDescriptor`), or made by `make_tensor_descriptor`."""

    __slots__ = ()

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The block that a copy moves."""
        return descriptor_type(self.value).block_shape

    @property
    def block_type(self) -> TensorDescType:
        """The descriptor's type."""
        return descriptor_type(self.value)

    @property
    def dtype(self) -> DType:
        """The type of an element."""
        return descriptor_type(self.value).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Not known at compile time; `block_shape` is."""
        fail("not-yet", "the shape of a tensor descriptor is not at hand in the kernel", "pass the sizes as arguments")

    def load(self, offsets: Any) -> tensor:
        """Read the block at `offsets` into a tile: not there yet."""
        hint = "ml.async_descriptor_load into a buffer of ml.local_alloc, then barrier_wait and ml.local_load"
        fail("not-yet", "loading a tile straight through a descriptor is not there yet", hint)

    def store(self, offsets: Any, value: tensor) -> None:
        """Write a tile to the block at `offsets`: through a buffer of the compiler's, waiting until it may be used again."""
        b = current_builder("store")
        t = descriptor_type(self.value)
        memory = MemDescType(t.block_shape, t.dtype)
        x = tile_for(value, memory, "tensor_descriptor.store")
        at = _coordinates(offsets, t, "tensor_descriptor.store")
        buffer = b.insert(LocalAllocOp(x, memory, loc=b.loc)).result
        b.insert(TmaStoreOp(self.value, buffer, at, loc=b.loc))
        b.insert(TmaStoreWaitOp(0, loc=b.loc))


WRAPPERS[TensorDescType] = tensor_descriptor


def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor:
    """``desc.load(offsets)``."""
    return desc.load(offsets)


def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: tensor) -> None:
    """``desc.store(offsets, value)``."""
    desc.store(offsets, value)


# Descriptors made on the device.


class descriptor_slot(traced):
    """Room for one descriptor: slot `index` (None: 0) of `count`."""

    __slots__ = ("count", "index")

    def __init__(self, count: int, index: Value | None) -> None:
        self.count = count
        self.index = index


class descriptor_scratch(traced):
    """Room for `count` descriptors; ``scratch[i]`` picks one."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, index: Any) -> descriptor_slot:
        index = unwrap(index)
        if isinstance(index, int) and not 0 <= index < self.count:
            fail("bad-index", f"index {index} of room for {self.count} descriptors")
        return descriptor_slot(self.count, scalar_i32(index, "the index of a descriptor"))


def allocate_tensor_descriptor(num: int) -> descriptor_scratch:
    """Room in global memory for `num` descriptors, for `make_tensor_descriptor`: pick one as in ``scratch[i]``.

    Making a descriptor overwrites the one before in its slot: as many slots are needed as descriptors are in use at once.
    """
    current_builder("allocate_tensor_descriptor")
    n = const_int(num, "allocate_tensor_descriptor: num")
    if n < 1:
        fail("bad-argument", f"allocate_tensor_descriptor: room for {n}")
    return descriptor_scratch(n)


def make_tensor_descriptor(
    *args: Any,
    desc_ptr: Any = None,
    base: Any = None,
    shape: Any = None,
    strides: Any = None,
    block_shape: Any = None,
    padding_option: Any = None,
) -> tensor_descriptor:
    """A descriptor made on the device: ``make_tensor_descriptor(base, shape, strides, block_shape, padding_option="zero")``, as in Triton,
    or with `desc_ptr` (None, or a slot of `allocate_tensor_descriptor`) before `base`, as in TLX.

    1 to 5 dimensions; `shape` and `strides` are integers (strides in elements; the last is 1, the others multiples of 16 bytes), `block_shape`
    constants whose last dimension has at least 16 bytes. `padding_option` is what lies outside: "zero" or "nan".
    """
    what = "make_tensor_descriptor"
    b = current_builder(what)
    if args and (unwrap(args[0]) is None or isinstance(args[0], descriptor_slot)):
        desc_ptr, args = args[0], args[1:]
    given: dict[str, Any] = {
        "base": base, "shape": shape, "strides": strides, "block_shape": block_shape, "padding_option": padding_option,
    }  # fmt: skip
    if len(args) > len(given):
        fail("bad-call", f"{what}: {len(args)} positional arguments, it takes {len(given)} after desc_ptr")
    for name, v in zip(given, args, strict=False):
        if given[name] is not None:
            fail("bad-call", f"{what}: the argument {name} is given twice")
        given[name] = v
    for name in ("base", "shape", "strides", "block_shape"):
        if unwrap(given[name]) is None:
            fail("bad-call", f"{what}: the argument {name} is missing")
    pointer, pt = as_pointer(given["base"], f"{what}: base")
    t = _block_type(pt.pointee, given["block_shape"], what)
    rank = len(t.block_shape)
    sizes = [scalar_i32(x, f"{what}: a size") for x in _items(given["shape"], rank, f"{what}: shape")]
    steps = _strides(_items(given["strides"], rank, f"{what}: strides"), t, what)
    padding = const_str(given["padding_option"] or "zero", f"{what}: padding_option", ("zero", "nan"))
    slot, slots = _slot(desc_ptr, what)
    op = MakeDescriptorOp(pointer, slot, [*sizes, *steps], t, padding, slots, loc=b.loc)
    return tensor_descriptor(b.insert(op).result)


def _slot(desc_ptr: Any, what: str) -> tuple[Value | None, int]:
    desc_ptr = unwrap(desc_ptr)
    if desc_ptr is None:
        return None, 1
    if isinstance(desc_ptr, descriptor_slot):
        return desc_ptr.index, desc_ptr.count
    if isinstance(desc_ptr, descriptor_scratch):
        fail("bad-argument", f"{what}: desc_ptr is room for {desc_ptr.count} descriptors", "pick one, as in scratch[0]")
    return fail("bad-argument", f"{what}: desc_ptr is {explain(desc_ptr)}", "give None, or a slot of ml.allocate_tensor_descriptor")


def _block_type(d: DType, block_shape: Any, what: str) -> TensorDescType:
    block = const_shape(block_shape, f"{what}: block_shape")
    if not 1 <= len(block) <= 5:
        fail("rank", f"{what}: a block of {len(block)} dimensions; TMA has 1 to 5")
    if d is I1:
        fail("type-mismatch", f"{what}: there are no descriptors of i1")
    if block[-1] * d.itemsize % 16:
        fail("bad-shape", f"{what}: the last dimension of the block {list(block)} has {block[-1] * d.itemsize} bytes; TMA moves multiples of 16")
    for n in block[:-1]:
        if n > MAX_BOX:
            fail("bad-shape", f"{what}: {n} elements along a dimension of the block; TMA takes up to {MAX_BOX}")
    return TensorDescType(block, d)


def _strides(items: list[Any], t: TensorDescType, what: str) -> list[Value]:
    out: list[Value] = []
    for i, x in enumerate(items):
        x = unwrap(x)
        last = i == len(items) - 1
        if isinstance(x, int):
            if last and x != 1:
                fail("bad-argument", f"{what}: the last stride is {x}; TMA needs 1")
            if not last and (x <= 0 or x * t.dtype.itemsize % 16):
                fail("bad-argument", f"{what}: a stride of {x} elements is no multiple of 16 bytes")
            out.append(semantic.constant(x, I64))
        elif isinstance(x, tensor) and isinstance(x.value.type, DType) and not x.value.type.is_floating():
            out.append(semantic.cast(x.value, I64))
        else:
            fail("type-mismatch", f"{what}: a stride is an integer scalar, not {explain(x)}")
    return out


def _items(x: Any, rank: int, what: str) -> list[Any]:
    x = unwrap(x)
    items: list[Any] = list(x) if is_tuple(x) else [x]
    if len(items) != rank:
        fail("rank", f"{what} has {len(items)} items for a block of {rank} dimensions")
    return items


# TMA.


def _descriptor(desc: Any, what: str) -> Value:
    if not isinstance(desc, tensor_descriptor):
        hint = "pass a mimw.TensorDescriptor, or make one with ml.make_tensor_descriptor"
        fail("not-a-descriptor", f"{what} takes a tensor descriptor, not {explain(desc)}", hint)
    return desc.value


def _coordinates(offsets: Any, t: TensorDescType, what: str) -> list[Value]:
    return [scalar_i32(x, f"{what}: an offset") for x in _items(offsets, len(t.block_shape), f"{what}: offsets")]


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

    `multicast_targets` lists ranks of CTAs of the cluster: each gets the block in the same buffer and counts it on its own barrier.
    `barrier_expect_bytes` announces the bytes. `eviction_policy` is "", "evict_first", "evict_last" or "evict_normal".
    """
    what = "async_descriptor_load"
    b = current_builder(what)
    d, m = _descriptor(desc, what), as_buffer(result, what)
    _block_fits(d, m, what)
    bar = as_barrier(barrier, what)
    if barrier.barrier.remote:
        fail("bad-argument", f"{what} counts on this CTA's barrier", "multicast_targets= names the other CTAs")
    if const_bool(two_ctas, f"{what}: two_ctas"):
        fail("not-yet", f"{what}: two_ctas=True is not there yet", "it belongs to Blackwell's CTA pairs")
    const_str(cache_modifier or "", f"{what}: cache_modifier", _CACHE)
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    at = _coordinates(offsets, descriptor_type(d), what)
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

    `async_descriptor_store_wait` says when the buffer may be written again.
    """
    what = "async_descriptor_store"
    b = current_builder(what)
    swapped = None if not isinstance(desc, buffered_tensor) else "the descriptor comes first"
    if swapped:
        fail("not-a-descriptor", f"{what} takes a tensor descriptor, not {explain(desc)}", swapped)
    d, m = _descriptor(desc, what), as_buffer(source, what)
    _block_fits(d, m, what)
    reduce = const_str(store_reduce or "", f"{what}: store_reduce", _REDUCE)
    dtype = descriptor_type(d).dtype
    if reduce in ("and", "or", "xor") and dtype.is_floating():
        fail("type-mismatch", f"{what}: store_reduce={reduce!r} takes integers, not {dtype}")
    eviction = const_str(eviction_policy or "", f"{what}: eviction_policy", _EVICTION)
    at = _coordinates(offsets, descriptor_type(d), what)
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


def async_descriptor_prefetch_tensor(desc: tensor_descriptor, offsets: Any, pred: Any = None, eviction_policy: str = "") -> None:
    """Bring the block at `offsets` into the L2 cache."""
    what = "async_descriptor_prefetch_tensor"
    b = current_builder(what)
    d = _descriptor(desc, what)
    at = _coordinates(offsets, descriptor_type(d), what)
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
            fail("bad-argument", f"{what}: other= without mask= is never used", "give the mask that says where it applies")
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
