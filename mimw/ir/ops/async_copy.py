"""Asynchronous copies: from global to shared memory by threads (cp.async, in commit groups), by the TMA engine (descriptors), and in bulk.

Coordinates count elements, outermost dimension first, one i32 a dimension of the descriptor's block.

`block_load` and `block_store` move a tile through a descriptor at once; passes make copies, or plain loads and stores, of them.
"""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result, variadic
from mimw.ir.ops.barrier import barrier_type
from mimw.ir.ops.memory import memdesc_type
from mimw.ir.types import (
    I1,
    I32,
    I64,
    MemDescType,
    PointerType,
    TensorDescType,
    TensorType,
    Type,
    element_of,
    shape_of,
)

_READ = Effect("global", "read", "ptr", agent="cp_async", completion="cp_async")
_WRITE = Effect("shared", "write", "dst", agent="cp_async", completion="cp_async")


@op("async_copy.load", effects=[_READ, _WRITE])
class AsyncLoadOp(Op):
    """Start copying a tile of pointers into `dst`; elements whose mask is false become `other` (zero without one).

    Done when a later `async_copy.wait_group` of the same thread covers the group it was committed to; other threads also need a barrier.
    """

    ptr: Value = operand()
    dst: Value = operand()
    mask: Value | None = optional()
    other: Value | None = optional()
    cache: str = attr_default(default="")
    eviction: str = attr_default(default="")

    def infer(self) -> list[Type]:
        if shape_of(self.ptr.type) != memdesc_type(self.dst).shape:
            raise ValueError(f"async_load of {self.ptr.type} into {self.dst.type}")
        return []


@op(
    "async_copy.commit_group",
    effects=[Effect("shared", "write", agent="cp_async", completion="cp_async")],
    layout="none",
)
class CommitGroupOp(Op):
    """Close the group of all copies started since the last commit."""


@op("async_copy.wait_group", effects=[Effect("shared", "write")], layout="none")
class WaitGroupOp(Op):
    """Wait until at most `pendings` of this thread's groups are unfinished."""

    pendings: int = attr()


def desc_type(v: Value) -> TensorDescType:
    """The type of a value that must be a tensor descriptor; ValueError otherwise."""
    if not isinstance(v.type, TensorDescType):
        raise ValueError(f"a tensor descriptor is needed, not {v.type}")
    return v.type


def _check_copy(desc: Value, buffer: Value, coords: list[Value]) -> None:
    d = desc_type(desc)
    if buffer is not desc:
        m = memdesc_type(buffer)
        if (d.block_shape, d.dtype) != (m.shape, m.dtype):
            raise ValueError(f"a copy of {d} blocks does not fit {MemDescType(m.shape, m.dtype)}")
    if len(coords) != len(d.block_shape) or any(c.type is not I32 for c in coords):
        raise ValueError(f"{d} takes {len(d.block_shape)} i32 offsets, not {[str(c.type) for c in coords]}")


@op("async_copy.make_descriptor", effects=[Effect("global", "write", "ptr", proxy="tensormap")], layout="none")
class MakeDescriptorOp(Op):
    """A descriptor made on the device for a tensor at `ptr` with `sizes` and `strides` (i64 elements; the last stride is 1).

    `shape` holds the sizes (i32) then the strides (i64) in order. `type` gives the block. `padding` is "zero" or "nan".
    Each op has room for `slots` descriptors a CTA; `slot` (i32, 0 without one) picks the one that is written, so that copies that
    are under way through the others go on. Ops of one `room` (a number, -1: of its own) share that. `scratch` is the byte offset of the
    shared memory in which the map is edited (-1: not yet).
    """

    ptr: Value = operand()
    slot: Value | None = optional()
    shape: list[Value] = variadic()
    type: TensorDescType = attr()
    padding: str = attr_default(default="zero", choices=("zero", "nan"))
    slots: int = attr_default(default=1)
    scratch: int = attr_default(default=-1)
    room: int = attr_default(default=-1)
    result: Value = result()

    def infer(self) -> list[Type]:
        if not isinstance(self.ptr.type, PointerType) or self.ptr.type.pointee is not self.type.dtype:
            raise ValueError(f"a descriptor of {self.type.dtype} needs a pointer to it, not {self.ptr.type}")
        if self.slot is not None and self.slot.type is not I32:
            raise ValueError(f"the slot is i32, not {self.slot.type}")
        rank = len(self.type.block_shape)
        if [v.type for v in self.shape] != [I32] * rank + [I64] * rank:
            raise ValueError(f"{rank} i32 sizes and {rank} i64 strides are needed")
        return [self.type]


@op(
    "async_copy.tma_load",
    effects=[
        Effect("global", "read", "desc", proxy="async", agent="tma", completion="barrier"),
        Effect("shared", "write", "dst", proxy="async", agent="tma", completion="barrier"),
    ],
    layout="none",
)
class TmaLoadOp(Op):
    """Start copying the block at `coords` into `dst`; its bytes (the full box, holes filled with zero) count on `barrier`.

    `multicast` (i32 bit mask of CTA ranks) writes the block to the same place of several CTAs and counts on each one's barrier.
    `cta` pairs are not for Hopper. Issued by one elected thread.
    """

    desc: Value = operand()
    dst: Value = operand()
    barrier: Value = operand()
    pred: Value | None = optional()
    multicast: Value | None = optional()
    coords: list[Value] = variadic()
    eviction: str = attr_default(default="", choices=("", "evict_first", "evict_last", "evict_normal"))

    def infer(self) -> list[Type]:
        _check_copy(self.desc, self.dst, self.coords)
        barrier_type(self.barrier)
        if self.pred is not None and self.pred.type is not I1:
            raise ValueError(f"a predicate is i1, not {self.pred.type}")
        return []


@op(
    "async_copy.tma_store",
    effects=[
        Effect("shared", "read", "src", proxy="async", agent="tma", completion="bulk"),
        Effect("global", "write", "desc", proxy="async", agent="tma", completion="bulk"),
    ],
    layout="none",
)
class TmaStoreOp(Op):
    """Start copying `src` to the block at `coords` (what lies outside the tensor is not written), as a bulk group of its own.

    `reduce` combines with what is there: "" (store), add, min, max, and, or, xor.
    """

    desc: Value = operand()
    src: Value = operand()
    coords: list[Value] = variadic()
    reduce: str = attr_default(default="", choices=("", "add", "min", "max", "and", "or", "xor"))
    eviction: str = attr_default(default="", choices=("", "evict_first", "evict_last", "evict_normal"))

    def infer(self) -> list[Type]:
        _check_copy(self.desc, self.src, self.coords)
        return []


@op("async_copy.tma_store_wait", effects=[Effect("shared", "read", completion="bulk")], layout="none")
class TmaStoreWaitOp(Op):
    """Wait until at most `pendings` of this task's bulk stores still read shared memory (`whole`: until they are done in global memory)."""

    pendings: int = attr()
    whole: bool = attr_default(default=False)


@op("async_copy.tma_prefetch", effects=[Effect("global", "read", "desc", agent="tma")], layout="none")
class TmaPrefetchOp(Op):
    """Bring the block at `coords` into L2."""

    desc: Value = operand()
    pred: Value | None = optional()
    coords: list[Value] = variadic()
    eviction: str = attr_default(default="")

    def infer(self) -> list[Type]:
        _check_copy(self.desc, self.desc, self.coords)
        return []


@op("async_copy.made_descriptor", effects=[Effect("global", "read", proxy="tensormap")], layout="none")
class MadeDescriptorOp(Op):
    """The descriptor that a `make_descriptor` of the same `room` (in whatever task, before this) has left in `slot` (i32, 0 without one)."""

    slot: Value | None = optional()
    type: TensorDescType = attr()
    room: int = attr()
    result: Value = result()

    def infer(self) -> list[Type]:
        if self.slot is not None and self.slot.type is not I32:
            raise ValueError(f"the slot is i32, not {self.slot.type}")
        return [self.type]


@op("async_copy.prefetch_descriptor", effects=[Effect("global", "read", "desc")], layout="none")
class PrefetchDescriptorOp(Op):
    """Bring a descriptor itself (not what it describes) near. Changes no value."""

    desc: Value = operand()

    def infer(self) -> list[Type]:
        desc_type(self.desc)
        return []


@op("async_copy.block_load", effects=[Effect("global", "read", "desc")], layout="none")
class BlockLoadOp(Op):
    """Read the block at `coords` into a tile; what lies outside of the tensor is the descriptor's padding."""

    desc: Value = operand()
    coords: list[Value] = variadic()
    result: Value = result()

    def infer(self) -> list[Type]:
        _check_copy(self.desc, self.desc, self.coords)
        t = desc_type(self.desc)
        return [TensorType(t.block_shape, t.dtype)]


@op("async_copy.block_store", effects=[Effect("global", "write", "desc")], layout="none")
class BlockStoreOp(Op):
    """Write a tile to the block at `coords`; what lies outside of the tensor is not written. `reduce` as in `async_copy.tma_store`."""

    desc: Value = operand()
    value: Value = operand()
    coords: list[Value] = variadic()
    reduce: str = attr_default(default="", choices=("", "add", "min", "max", "and", "or", "xor"))

    def infer(self) -> list[Type]:
        _check_copy(self.desc, self.desc, self.coords)
        t = desc_type(self.desc)
        if (shape_of(self.value.type), element_of(self.value.type)) != (t.block_shape, t.dtype):
            raise ValueError(f"{self.value.type} does not fit blocks of {t}")
        return []


@op(
    "async_copy.bulk_load",
    effects=[
        Effect("global", "read", "ptr", proxy="async", agent="tma", completion="barrier"),
        Effect("shared", "write", "dst", proxy="async", agent="tma", completion="barrier"),
    ],
    layout="none",
)
class BulkLoadOp(Op):
    """Start copying `bytes` contiguous bytes (i32, a multiple of 16, both sides 16-byte aligned) into a buffer; they count on `barrier`."""

    ptr: Value = operand()
    dst: Value = operand()
    barrier: Value = operand()
    bytes: Value = operand()
    pred: Value | None = optional()

    def infer(self) -> list[Type]:
        memdesc_type(self.dst)
        barrier_type(self.barrier)
        if not isinstance(self.ptr.type, PointerType) or self.bytes.type is not I32:
            raise ValueError(f"bulk load of {self.bytes.type} bytes through {self.ptr.type}")
        return []


@op(
    "async_copy.bulk_store",
    effects=[
        Effect("shared", "read", "src", proxy="async", agent="tma", completion="bulk"),
        Effect("global", "write", "ptr", proxy="async", agent="tma", completion="bulk"),
    ],
    layout="none",
)
class BulkStoreOp(Op):
    """Start copying `bytes` contiguous bytes (i32, a multiple of 16) from a buffer to `ptr`, as a bulk group of its own."""

    ptr: Value = operand()
    src: Value = operand()
    bytes: Value = operand()

    def infer(self) -> list[Type]:
        memdesc_type(self.src)
        if not isinstance(self.ptr.type, PointerType) or self.bytes.type is not I32:
            raise ValueError(f"bulk store of {self.bytes.type} bytes through {self.ptr.type}")
        return []
