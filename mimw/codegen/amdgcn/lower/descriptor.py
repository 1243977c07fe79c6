"""Tensor descriptors: what code knows of one, and where a host's lies among the arguments.

A descriptor is its fields: address, sizes, strides and padding, each one in the workgroup. An argument is a record of 128 bytes whose
fields the kernel loads at its start (`runtime.tensor_descriptor.encode_record` writes it):

    0   u64      address of the first element
    8   u32      1: what lies outside reads as NaN (of types that have it), 0: as zero
    16  i32 x 5  sizes, outermost dimension first
    40  u64 x 5  strides in bytes, outermost dimension first

A descriptor that the kernel makes in a room (``ml.allocate_tensor_descriptor``) is left in shared memory besides, for tasks that look it up.

As for TMA, the address and all strides but the last are multiples of 16 bytes, and the last stride is one element.
"""

from __future__ import annotations

from typing import Any

from mimw.codegen.amdgcn.builder.builder import AmdgcnBuilder
from mimw.codegen.amdgcn.lower.mma import amdgcn_builder
from mimw.codegen.lane import CTA, Lane, as_u32, bits_of
from mimw.codegen.lowering import Lowering, lowers
from mimw.diagnostics import CompilationError
from mimw.ir.core import Value
from mimw.ir.types import I1, I32, U32, U64, TensorDescType

_NAN, _SIZES, _STRIDES = 8, 16, 40
ROOM_BYTES = 80
"""Shared memory for one descriptor that other code may look up: its fields, one behind the other."""


class Fields:
    """What a descriptor says: `base` (u64), `nan` (i1), a size (i32) and a stride in bytes (u64) for every dimension, outermost first."""

    __slots__ = ("base", "nan", "sizes", "strides")

    def __init__(self, base: Lane, nan: Lane, sizes: list[Lane], strides: list[Lane]) -> None:
        self.base = base
        self.nan = nan
        self.sizes = sizes
        self.strides = strides

    def lanes(self) -> list[Lane]:
        """In the order of `AmdgcnBuilder.descriptor_words`."""
        return [self.base, self.nan, *self.sizes, *self.strides[:-1]]


def fields_of(ctx: Lowering, desc: Value) -> Fields:
    """The fields of a descriptor that was lowered."""
    t = desc.type
    assert isinstance(t, TensorDescType)
    rank = len(t.block_shape)
    base, nan, *rest = ctx.tile(desc)
    return Fields(base, nan, rest[:rank], [*rest[rank:], ctx.b.const(U64, t.dtype.itemsize)])


def argument_fields(b: AmdgcnBuilder, offset: int, t: TensorDescType) -> list[Lane]:
    """The fields of the record at a byte offset of the kernel's arguments."""
    rank = len(t.block_shape)

    def field(cls: str, at: int) -> Lane:
        dtype = U64 if cls == "s64" else I32
        return Lane(dtype, b.load_argument(cls, offset + at), uniform=CTA)

    flag = field("s32", _NAN)
    nan = (
        b.compare("ne", Lane(U32, flag.reg, uniform=CTA), b.const(U32, 0)) if t.dtype.is_floating() else b.const(I1, 0)
    )
    sizes = [field("s32", _SIZES + 4 * d) for d in range(rank)]
    strides = [field("s64", _STRIDES + 8 * d) for d in range(rank - 1)]
    return [field("s64", 0), nan, *sizes, *strides]


def made_fields(ctx: Lowering, op: Any) -> list[Lane]:
    """The fields of a descriptor made in the kernel: the op's operands, strides in bytes."""
    b = amdgcn_builder(ctx)
    t = op.type
    rank = len(t.block_shape)
    base = b.bitcast(ctx.scalar(op.ptr), U64)
    nan = b.const(I1, 1 if op.padding == "nan" and t.dtype.is_floating() else 0)
    sizes = [ctx.scalar(v) for v in op.shape[:rank]]
    strides = [b.times(b.bitcast(ctx.scalar(v), U64), t.dtype.itemsize) for v in op.shape[rank:]]
    return Fields(base, nan, sizes, strides).lanes()


@lowers("async_copy.make_descriptor", target="amd")
def lower_make_descriptor(ctx: Lowering, op: Any) -> None:
    """The fields; where other code may look a descriptor up, one lane of the task leaves them in its room, too."""
    b = amdgcn_builder(ctx)
    fields = made_fields(ctx, op)
    ctx.set(op.result, fields)
    if op.room < 0:
        return
    place = _slot(ctx, op)
    first = ctx.first_thread()
    for i, word in enumerate(_words(b, fields)):
        b.store("shared", b.plus(place, 4 * i), [word], first)


@lowers("async_copy.made_descriptor", target="amd")
def lower_made_descriptor(ctx: Lowering, op: Any) -> None:
    """Read from its room what `make_descriptor` left there."""
    b = amdgcn_builder(ctx)
    place = _slot(ctx, op)
    types = b.descriptor_words(len(op.type.block_shape))
    count = sum(2 if t is U64 else 1 for t in types)
    found: list[Lane] = []
    for i in range(count):
        (word,) = b.load("shared", U32, b.plus(place, 4 * i), 1, None, None, "")
        found.append(Lane(U32, b.scalar_register(word), uniform=CTA))
    words = iter(found)
    fields: list[Lane] = []
    for t in types:
        word = next(words)
        if t is U64:
            fields.append(b.wide(word, next(words), U64))
        else:
            fields.append(b.compare("ne", word, b.const(U32, 0)) if t is I1 else Lane(I32, word.reg, uniform=CTA))
    ctx.set(op.result, fields)


def _slot(ctx: Lowering, op: Any) -> Lane:
    """Where the descriptor lies in shared memory."""
    b = amdgcn_builder(ctx)
    if op.room not in b.rooms:
        hint = "ml.make_tensor_descriptor with the same desc_ptr"
        raise CompilationError("descriptor", "nothing makes a descriptor in this room", op.loc, hint=hint)
    place = b.const(U32, b.rooms[op.room])
    if op.slot is not None:
        place = b.add(place, b.times(as_u32(ctx.scalar(op.slot)), ROOM_BYTES))
    return place


def _words(b: AmdgcnBuilder, fields: list[Lane]) -> list[Lane]:
    """Fields as 32-bit words."""
    out: list[Lane] = []
    for lane in fields:
        if bits_of(lane.dtype) == 64:
            out += b.words(lane)
        elif lane.dtype is I1:
            out.append(b.select(lane, b.const(U32, 1), b.const(U32, 0)))
        else:
            out.append(as_u32(lane))
    return out


@lowers("async_copy.tma_prefetch", "async_copy.prefetch_descriptor", target="amd")
def lower_prefetch(ctx: Lowering, op: Any) -> None:
    """Nothing: there is no such instruction, and no value depends on it."""
    del ctx, op
