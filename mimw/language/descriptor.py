"""Tensor descriptors: what TMA copies through. An argument of the kernel, or made on the device.

Owns the descriptor's class, the room for descriptors, and the checks of a block's shape. The copies are in `async_copy`.
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.async_copy import BlockLoadOp, BlockStoreOp, MadeDescriptorOp, MakeDescriptorOp
from mimw.ir.types import BF16, F16, F32, I1, I32, I64, U32, U64, DType, MemDescType, TensorDescType
from mimw.language import semantic
from mimw.language.core import const_dtype, const_int, const_shape, const_str, explain, is_tuple, tensor, unwrap
from mimw.language.errors import fail
from mimw.language.handles import WRAPPERS, as_pointer, descriptor_type, handle, scalar_i32, traced
from mimw.language.local import tile_for

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
        """Read the block at `offsets` into a tile; what lies outside of the tensor is zero (or NaN, as the descriptor says).

        By TMA, through a buffer of the compiler's; loads that follow each other are under way together. Where there is no TMA, by
        plain loads, through descriptors that the kernel has made.
        """
        b = current_builder("load")
        t = descriptor_type(self.value)
        at = coordinates(offsets, t, "tensor_descriptor.load")
        return tensor(b.insert(BlockLoadOp(self.value, at, loc=b.loc)).result)

    def store(self, offsets: Any, value: tensor) -> None:
        """Write a tile to the block at `offsets` (none negative): through a buffer of the compiler's, waiting until it may be used again.

        What lies outside of the tensor is not written. Others see the block at the latest when the kernel ends.
        """
        self._combine("", offsets, value, "store")

    def atomic_add(self, offsets: Any, value: tensor) -> None:
        """Add a tile to the block at `offsets`, each element at once. 32-bit integers, uint64, f16, bf16, f32."""
        self._combine("add", offsets, value, "atomic_add")

    def atomic_min(self, offsets: Any, value: tensor) -> None:
        """The minimum of the block and a tile. 32- and 64-bit integers, f16, bf16."""
        self._combine("min", offsets, value, "atomic_min")

    def atomic_max(self, offsets: Any, value: tensor) -> None:
        """The maximum of the block and a tile. 32- and 64-bit integers, f16, bf16."""
        self._combine("max", offsets, value, "atomic_max")

    def atomic_and(self, offsets: Any, value: tensor) -> None:
        """The bitwise and of the block and a tile. 32- and 64-bit integers."""
        self._combine("and", offsets, value, "atomic_and")

    def atomic_or(self, offsets: Any, value: tensor) -> None:
        """The bitwise or of the block and a tile. 32- and 64-bit integers."""
        self._combine("or", offsets, value, "atomic_or")

    def atomic_xor(self, offsets: Any, value: tensor) -> None:
        """The bitwise exclusive or of the block and a tile. 32- and 64-bit integers."""
        self._combine("xor", offsets, value, "atomic_xor")

    def gather(self, x_offsets: Any, y_offset: Any) -> tensor:
        """Rows of a tensor, picked by a tile of indices: TMA has that on Blackwell only."""
        return _no_gather("gather", "ml.load of a tile of pointers reads any rows")

    def scatter(self, value: Any, x_offsets: Any, y_offset: Any) -> None:
        """Rows of a tensor, picked by a tile of indices: TMA has that on Blackwell only."""
        _no_gather("scatter", "ml.store through a tile of pointers writes any rows")

    def _combine(self, reduce: str, offsets: Any, value: Any, name: str) -> None:
        what = f"tensor_descriptor.{name}"
        b = current_builder(what)
        t = descriptor_type(self.value)
        _reducible(t.dtype, reduce, what)
        x = tile_for(value, MemDescType(t.block_shape, t.dtype), what, "a block of the descriptor,")
        b.insert(BlockStoreOp(self.value, x, coordinates(offsets, t, what), reduce, loc=b.loc))


WRAPPERS[TensorDescType] = tensor_descriptor


def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor:
    """``desc.load(offsets)``."""
    return desc.load(offsets)


def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: tensor) -> None:
    """``desc.store(offsets, value)``."""
    desc.store(offsets, value)


_REDUCIBLE = {
    "add": (I32, U32, U64, F16, BF16, F32),
    "min": (I32, U32, I64, U64, F16, BF16),
    "max": (I32, U32, I64, U64, F16, BF16),
    "and": (I32, U32, I64, U64),
    "or": (I32, U32, I64, U64),
    "xor": (I32, U32, I64, U64),
}
"""What TMA combines in memory (PTX ISA, cp.reduce.async.bulk)."""


def _reducible(d: DType, reduce: str, what: str) -> None:
    if reduce and d not in _REDUCIBLE[reduce]:
        fail("type-mismatch", f"{what} takes {', '.join(map(str, _REDUCIBLE[reduce]))}, not {d}")


def _no_gather(name: str, instead: str) -> Any:
    fail(
        "not-yet", f"tensor_descriptor.{name}: TMA picks rows on Blackwell only (tile::gather4): not there yet", instead
    )


# Descriptors made on the device.


class descriptor_slot(traced):
    """Room for one descriptor: slot `index` (None: 0) of `count` in room number `room`."""

    __slots__ = ("count", "index", "room")

    def __init__(self, count: int, index: Value | None, room: int) -> None:
        self.count = count
        self.index = index
        self.room = room


class descriptor_scratch(traced):
    """Room for `count` descriptors; ``scratch[i]`` picks one."""

    __slots__ = ("count", "room")

    def __init__(self, count: int, room: int) -> None:
        self.count = count
        self.room = room

    def __getitem__(self, index: Any) -> descriptor_slot:
        index = unwrap(index)
        if isinstance(index, int) and not 0 <= index < self.count:
            fail("bad-index", f"index {index} of room for {self.count} descriptors")
        return descriptor_slot(self.count, scalar_i32(index, "the index of a descriptor"), self.room)


def allocate_tensor_descriptor(num: int) -> descriptor_scratch:
    """Room in global memory for `num` descriptors, for `make_tensor_descriptor`: pick one as in ``scratch[i]``.

    Making a descriptor overwrites the one before in its slot: as many slots are needed as descriptors are in use at once.
    """
    b = current_builder("allocate_tensor_descriptor")
    n = const_int(num, "allocate_tensor_descriptor: num")
    if n < 1:
        fail("bad-argument", f"allocate_tensor_descriptor: room for {n}")
    return descriptor_scratch(n, int(b.fresh("")))


def reinterpret_tensor_descriptor(desc_ptr: descriptor_slot, block_shape: Any, dtype: DType) -> tensor_descriptor:
    """The descriptor that `make_tensor_descriptor` has left in a slot of `allocate_tensor_descriptor`, perhaps in another task.

    `block_shape` and `dtype` are those that it was made with. That it is made by then is for barriers to see to.
    """
    what = "reinterpret_tensor_descriptor"
    b = current_builder(what)
    slot = unwrap(desc_ptr)
    if not isinstance(slot, descriptor_slot):
        hint = "pick one of ml.allocate_tensor_descriptor, as in scratch[0]"
        fail("bad-argument", f"{what} takes room for a descriptor, not {explain(slot)}", hint)
    t = _block_type(const_dtype(dtype, f"{what}: dtype"), block_shape, what)
    return tensor_descriptor(b.insert(MadeDescriptorOp(slot.index, t, slot.room, loc=b.loc)).result)


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
    slot, slots, room = _slot(desc_ptr, what)
    op = MakeDescriptorOp(pointer, slot, [*sizes, *steps], t, padding, slots, room=room, loc=b.loc)
    return tensor_descriptor(b.insert(op).result)


def _slot(desc_ptr: Any, what: str) -> tuple[Value | None, int, int]:
    """Slot, how many there are, the room's number (-1: of its own)."""
    desc_ptr = unwrap(desc_ptr)
    if desc_ptr is None:
        return None, 1, -1
    if isinstance(desc_ptr, descriptor_slot):
        return desc_ptr.index, desc_ptr.count, desc_ptr.room
    if isinstance(desc_ptr, descriptor_scratch):
        fail("bad-argument", f"{what}: desc_ptr is room for {desc_ptr.count} descriptors", "pick one, as in scratch[0]")
    return fail(
        "bad-argument",
        f"{what}: desc_ptr is {explain(desc_ptr)}",
        "give None, or a slot of ml.allocate_tensor_descriptor",
    )


def _block_type(d: DType, block_shape: Any, what: str) -> TensorDescType:
    block = const_shape(block_shape, f"{what}: block_shape")
    if not 1 <= len(block) <= 5:
        fail("rank", f"{what}: a block of {len(block)} dimensions; TMA has 1 to 5")
    if d is I1:
        fail("type-mismatch", f"{what}: there are no descriptors of i1")
    if block[-1] * d.itemsize % 16:
        fail(
            "bad-shape",
            f"{what}: the last dimension of the block {list(block)} has {block[-1] * d.itemsize} bytes; TMA moves multiples of 16",
        )
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
            if not last and x <= 0:
                fail("bad-argument", f"{what}: a stride of {x} elements; TMA needs positive ones")
            if not last and x * t.dtype.itemsize % 16:
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


def as_descriptor(desc: Any, what: str) -> Value:
    """The value of a descriptor."""
    if not isinstance(desc, tensor_descriptor):
        hint = "pass a mimw.TensorDescriptor, or make one with ml.make_tensor_descriptor"
        fail("not-a-descriptor", f"{what} takes a tensor descriptor, not {explain(desc)}", hint)
    return desc.value


def coordinates(offsets: Any, t: TensorDescType, what: str) -> list[Value]:
    """The offsets of a block, one i32 a dimension."""
    return [scalar_i32(x, f"{what}: an offset") for x in _items(offsets, len(t.block_shape), f"{what}: offsets")]
