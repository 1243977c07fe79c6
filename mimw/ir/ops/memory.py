"""Memory: global memory through pointers (pointer arithmetic, load, store) and shared memory through memdescs (alloc, view, load, store)."""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result, variadic
from mimw.ir.overlap import Group, parse
from mimw.ir.types import I1, I32, U8, DType, MemDescType, PointerType, TensorType, Type, element_of, like, shape_of


@op("memory.ptr_add", layout="elementwise")
class PtrAddOp(Op):
    """Pointer plus offset in elements. The offset is widened to 64 bits (by its signedness) before it is scaled."""

    ptr: Value = operand()
    offset: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        e, o = element_of(self.ptr.type), element_of(self.offset.type)
        if not isinstance(e, PointerType) or not isinstance(o, DType) or o.kind not in ("int", "uint"):
            raise ValueError(f"ptr_add of {self.ptr.type} and {self.offset.type}")
        if shape_of(self.ptr.type) != shape_of(self.offset.type):
            raise ValueError(f"ptr_add: shapes of {self.ptr.type} and {self.offset.type} differ")
        return [self.ptr.type]


def _pointee(ptr: Value) -> DType:
    e = element_of(ptr.type)
    if not isinstance(e, PointerType):
        raise ValueError(f"{ptr.type} is not a pointer")
    return e.pointee


def _check_mask(ptr: Value, mask: Value | None) -> None:
    if mask is not None and (element_of(mask.type) is not I1 or shape_of(mask.type) != shape_of(ptr.type)):
        raise ValueError(f"mask {mask.type} does not fit {ptr.type}")


@op("memory.load", effects=[Effect("global", "read", "ptr")])
class LoadOp(Op):
    """Read through `ptr` where `mask` is true (everywhere without one); elsewhere `other`, or zero when it is absent.

    `cache` is "", "ca", "cg", "cv"; `eviction` "", "evict_first", "evict_last". Scalars and tiles of pointers.
    """

    ptr: Value = operand()
    mask: Value | None = optional()
    other: Value | None = optional()
    cache: str = attr_default(default="", choices=("", "ca", "cg", "cs", "cv"))
    eviction: str = attr_default(default="", choices=("", "evict_first", "evict_last", "evict_normal"))
    volatile: bool = attr_default(default=False)
    result: Value = result()

    def infer(self) -> list[Type]:
        _check_mask(self.ptr, self.mask)
        out = like(self.ptr.type, _pointee(self.ptr))
        if self.other is not None and not _same(self.other.type, out):
            raise ValueError(f"other {self.other.type} does not fit the loaded {out}")
        return [out]


def _same(t: Type, u: Type) -> bool:
    return element_of(t) is element_of(u) and shape_of(t) == shape_of(u)


@op("memory.store", effects=[Effect("global", "write", "ptr")])
class StoreOp(Op):
    """Write `value` through `ptr` where `mask` is true (everywhere without one)."""

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = optional()
    cache: str = attr_default(default="", choices=("", "wb", "cg", "cs", "wt"))
    eviction: str = attr_default(default="", choices=("", "evict_first", "evict_last", "evict_normal"))

    def infer(self) -> list[Type]:
        _check_mask(self.ptr, self.mask)
        want = like(self.ptr.type, _pointee(self.ptr))
        if not _same(self.value.type, want):
            raise ValueError(f"stored {self.value.type} does not fit {self.ptr.type}")
        return []


@op("memory.prefetch", effects=[Effect("global", "read", "ptr")])
class PrefetchOp(Op):
    """Bring the cache lines of what `ptr` names, where `mask` is true, near: into "L1" or "L2". Changes no value."""

    ptr: Value = operand()
    mask: Value | None = optional()
    level: str = attr_default(default="L2", choices=("L1", "L2"))

    def infer(self) -> list[Type]:
        _pointee(self.ptr)
        _check_mask(self.ptr, self.mask)
        return []


def memdesc_type(v: Value) -> MemDescType:
    """The type of a value that must be a memdesc; ValueError otherwise."""
    if not isinstance(v.type, MemDescType):
        raise ValueError(f"a memdesc is needed, not {v.type}")
    return v.type


@op("memory.storage", effects=[Effect("shared", "write")], layout="none")
class StorageOp(Op):
    """Shared memory that several buffers share: the `memory.local_alloc`s that name it as their storage, in order.

    `overlap` says how they lie in it (the text of a tree, `ir.overlap`; "": all at its start), `bytes` how large it is (0: as they need).
    `total` is its size with paddings, `offset` its byte offset (-1: not yet).
    """

    bytes: int = attr_default(default=0)
    overlap: str = attr_default(default="")
    total: int = attr_default(default=0)
    offset: int = attr_default(default=-1)
    result: Value = result()

    def infer(self) -> list[Type]:
        if self.overlap:
            parse(self.overlap)
        return [MemDescType((1,), U8)]


@op("memory.local_alloc", effects=[Effect("shared", "write", "src")])
class LocalAllocOp(Op):
    """A buffer in shared memory of `type`; `src`, when given, is stored into it at once. `offset` is its byte offset (-1: not yet).

    With a `storage` (a `memory.storage`, or another buffer, which it then lies upon) it shares the bytes of that, as `member` of it (a
    buffer that others lie upon is number 0). `slot` is then the bytes of one of its slots, whose distance is part of its layout, `total`
    those of the whole storage, when others lie upon it (0: not yet). `pinned`: the user chose the layout. `waited`: whoever copies into it
    or out of it by TMA waits for that right there, so that after its last use no copy is under way.
    """

    src: Value | None = optional()
    type: MemDescType = attr()
    offset: int = attr_default(default=-1)
    member: int = attr_default(default=0)
    slot: int = attr_default(default=0)
    total: int = attr_default(default=0)
    pinned: bool = attr_default(default=False)
    waited: bool = attr_default(default=False)
    storage: Value | None = optional(default=None)
    result: Value = result()

    def infer(self) -> list[Type]:
        if self.storage is not None:
            memdesc_type(self.storage)
        if self.src is not None and (shape_of(self.src.type), element_of(self.src.type)) != (
            self.type.shape,
            self.type.dtype,
        ):
            raise ValueError(f"local_alloc: {self.src.type} does not fit {self.type}")
        return [self.type]


@op("memory.local_view", layout="none")
class LocalViewOp(Op):
    """One slot of a ring: drops the first dimension of a memdesc at `index` (i32, in range)."""

    src: Value = operand()
    index: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        if self.index.type is not I32 or len(t.shape) < 2:
            raise ValueError(f"local_view of {t} at {self.index.type}")
        return [MemDescType(t.shape[1:], t.dtype, t.space, t.layout, t.alloc_shape)]


@op("memory.local_trans", layout="none")
class LocalTransOp(Op):
    """A view of the same buffer with permuted dimensions. `type` is the view's type: its layout is the source's, permuted."""

    src: Value = operand()
    order: tuple[int, ...] = attr()
    type: MemDescType = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        if tuple(t.shape[i] for i in self.order) != self.type.shape:
            raise ValueError(f"local_trans of {t} by {self.order} to {self.type}")
        return [self.type]


def members_of(storage: Value) -> list[LocalAllocOp]:
    """The buffers that share a storage, by number; first the one that is the storage itself, when it is a buffer."""
    own = storage.defining_op
    first = [own] if isinstance(own, LocalAllocOp) else []
    users = [op for op in dict.fromkeys(storage.users) if isinstance(op, LocalAllocOp) and op.storage is storage]
    return first + sorted(users, key=lambda op: op.member)


def overlap_of(storage: Value) -> Group:
    """How the members of a storage lie in it."""
    own = storage.defining_op
    if isinstance(own, StorageOp) and own.overlap:
        return parse(own.overlap)
    return Group(range(len(members_of(storage))))


def storage_of(v: LocalAllocOp) -> Value | None:
    """The storage that a buffer shares with others; its own value when others lie upon it, None when it is alone."""
    if v.storage is not None:
        return v.storage
    return v.result if len(members_of(v.result)) > 1 else None


def _bits(t: MemDescType) -> int:
    n = t.dtype.bits
    for s in t.shape:
        n *= s
    return n


@op("memory.local_reinterpret", layout="none")
class LocalReinterpretOp(Op):
    """A view of the same bytes as `type`, beginning `start` elements of the view after the source's first. Source and view have plain
    strides (no swizzle; row-major where the view's layout is not given yet); the view stays inside the source."""

    src: Value = operand()
    type: MemDescType = attr()
    start: int = attr_default(default=0)
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        if self.type.layout is None and self.start * self.type.dtype.bits + _bits(self.type) > _bits(t):
            raise ValueError(f"local_reinterpret of {t} as {self.type}")
        return [self.type]


@op("memory.local_slice", layout="none")
class LocalSliceOp(Op):
    """A box of a buffer: `shape` elements from `offsets` (one i32 a dimension, inside the buffer; constants along swizzled dimensions)."""

    src: Value = operand()
    offsets: list[Value] = variadic()
    shape: tuple[int, ...] = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        if (
            len(self.shape) != len(t.shape)
            or len(self.offsets) != len(t.shape)
            or any(o.type is not I32 for o in self.offsets)
        ):
            raise ValueError(f"local_slice of {t} to {self.shape}")
        if any(a > b for a, b in zip(self.shape, t.shape, strict=True)):
            raise ValueError(f"local_slice: {self.shape} is larger than {t}")
        return [MemDescType(self.shape, t.dtype, t.space, t.layout, t.alloc_shape)]


@op("memory.local_gather", effects=[Effect("shared", "read", "src")])
class LocalGatherOp(Op):
    """out[i...] = src[..., indices[i...] along `axis`, ...]: `indices` (i32) has the result's shape."""

    src: Value = operand()
    indices: Value = operand()
    axis: int = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        shape = shape_of(self.indices.type)
        if element_of(self.indices.type) is not I32 or len(shape) != len(t.shape) or not 0 <= self.axis < len(shape):
            raise ValueError(f"local_gather of {t} by {self.indices.type} along {self.axis}")
        return [TensorType(shape, t.dtype)]


@op("memory.local_scatter", effects=[Effect("shared", "write", "dst")])
class LocalScatterOp(Op):
    """dst[..., indices[i...] along `axis`, ...] = src[i...]; which of several writes to one place wins is not defined."""

    dst: Value = operand()
    src: Value = operand()
    indices: Value = operand()
    axis: int = attr()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.dst)
        if shape_of(self.src.type) != shape_of(self.indices.type) or element_of(self.src.type) is not t.dtype:
            raise ValueError(f"local_scatter of {self.src.type} by {self.indices.type} into {t}")
        return []


@op("memory.local_count", effects=[Effect("shared", "read", "dst"), Effect("shared", "write", "dst")])
class LocalCountOp(Op):
    """dst[indices[i]] += 1 for each i whose mask is true (all without one), each at once; dst is a buffer of i32 with one dimension."""

    dst: Value = operand()
    indices: Value = operand()
    mask: Value | None = optional()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.dst)
        if t.dtype is not I32 or len(t.shape) != 1 or element_of(self.indices.type) is not I32:
            raise ValueError(f"local_count of {self.indices.type} into {t}")
        if self.mask is not None and (
            element_of(self.mask.type) is not I1 or shape_of(self.mask.type) != shape_of(self.indices.type)
        ):
            raise ValueError(f"mask {self.mask.type} does not fit {self.indices.type}")
        return []


@op("memory.local_load", effects=[Effect("shared", "read", "src")])
class LocalLoadOp(Op):
    """Read a buffer into registers."""

    src: Value = operand()
    result: Value = result()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.src)
        return [TensorType(t.shape, t.dtype)]


@op("memory.local_store", effects=[Effect("shared", "write", "dst")])
class LocalStoreOp(Op):
    """Write a tile into a buffer of its shape."""

    dst: Value = operand()
    src: Value = operand()

    def infer(self) -> list[Type]:
        t = memdesc_type(self.dst)
        if (shape_of(self.src.type), element_of(self.src.type)) != (t.shape, t.dtype):
            raise ValueError(f"local_store of {self.src.type} into {t}")
        return []
