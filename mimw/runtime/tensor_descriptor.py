"""Tensor descriptors made on the host: a tensor that kernels copy in blocks through the TMA engine.

Owns: `TensorDescriptor` (Triton's API), what the hardware demands of one, the encoding of tensor maps and their cache. Assumes
the limits of the CUDA driver API (cuTensorMapEncodeTiled). Must not know layouts: box and swizzle are the code's, and
come as a `MapSpec`.

A descriptor is not yet a tensor map: the 128 bytes also depend on how the code cuts a block. A map is encoded at the
first launch that needs it and kept, by content, for the process; the descriptor remembers its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from mimw.diagnostics import InternalError, LaunchError
from mimw.runtime import driver_api
from mimw.runtime.arrays import ITEM_SIZE, ArrayInfo, DescriptorInfo, describe
from mimw.runtime.convention import MAP_BYTES, TENSOR_MAP, KernelMetadata
from mimw.runtime.launch_errors import caller_loc

MAX_RANK = 5
MAX_EXTENT = 1 << 32
MAX_STRIDE_BYTES = 1 << 40
ALIGNMENT = 16
PADDINGS = ("zero", "nan")

# dtype -> CUtensorMapDataType. Elements are only moved, so that signs and 8-bit formats do not matter.
_KINDS: dict[str, int] = {
    "i1": 0,
    "i8": 0,
    "u8": 0,
    "f8e4m3": 0,
    "f8e5m2": 0,
    "f8e4m3fnuz": 0,
    "f8e5m2fnuz": 0,
    "i16": 1,
    "u16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
# The map's element types that know what NaN is.
_NAN_TYPES = frozenset({"f16", "bf16", "f32", "f64"})
# Swizzle span in bytes -> CUtensorMapSwizzle.
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class MapSpec:
    """What code asks of a tensor map: element type, block (outermost first), box (innermost first), swizzle span in bytes.

    Interned: equal specs are one object.
    """

    __slots__ = ("block", "box", "dtype", "swizzle")

    dtype: str
    block: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @staticmethod
    def get(dtype: str, block: Sequence[int], box: Sequence[int], swizzle: int) -> MapSpec:
        """The one spec with this content."""
        key = (dtype, tuple(block), tuple(box), swizzle)
        found = _SPECS.get(key)
        if found is None:
            found = MapSpec()
            found.dtype, found.block, found.box, found.swizzle = key
            found = _SPECS.setdefault(key, found)
        return found

    def __repr__(self) -> str:
        return f"MapSpec({self.dtype}, block={self.block}, box={self.box}, swizzle={self.swizzle})"


_SPECS: dict[tuple[str, tuple[int, ...], tuple[int, ...], int], MapSpec] = {}


def map_specs(meta: KernelMetadata) -> dict[int, MapSpec]:
    """Index of a parameter to what the code asks of its tensor map, for all parameters that are one."""
    records = {r["param"]: r for r in meta.extra.get("descriptors", ())}
    out: dict[int, MapSpec] = {}
    for i, param in enumerate(meta.params):
        if param.kind == TENSOR_MAP:
            record = records.get(param.name)
            if record is None:
                raise InternalError(f"kernel {meta.name!r}: nothing says what box the tensor map {param.name!r} has")
            out[i] = MapSpec.get(record["elem"], record["block"], record["box"], record["swizzle"])
    return out


class TensorDescriptor:
    """A tensor for TMA copies: an argument for kernels that use `ml.async_descriptor_load` and its kin.

    ``TensorDescriptor(base, shape, strides, block_shape, padding="zero")``: `base` is an array (torch, NumPy, anything that
    kernels take), whose element (0, ..., 0) is the tensor's; `shape` and `strides` are in elements, outermost dimension
    first; a copy moves `block_shape` elements. Elements outside of `shape` read as the padding ("zero" or "nan") and are
    not written.

    The hardware asks for: 1 to 5 dimensions, a last stride of 1, the address and all other strides multiples of 16
    bytes. `LaunchError` says what is not so. `block_shape` may be assigned later (a configuration's pre_hook does).
    """

    __slots__ = (
        "_block_shape",
        "_data_ptr",
        "_maps",
        "base",
        "device",
        "dtype",
        "padding",
        "shape",
        "strides",
    )

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> None:
        self._fill(base, _array(base), _integers(shape, "shape"), _integers(strides, "strides"), block_shape, padding)

    def _fill(
        self,
        base: Any,
        info: ArrayInfo,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        block_shape: Sequence[int],
        padding: str,
    ) -> None:
        self.base = base
        self.dtype = info.dtype
        self.device = info.device
        self.shape = shape
        self.strides = strides
        self.padding = padding
        self._data_ptr = getattr(base, "data_ptr", None)
        self._maps: dict[MapSpec, tuple[int, bytes]] = {}
        self.block_shape = block_shape
        self._check(info)

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole array, with the array's own shape and strides."""
        info = _array(tensor)
        made = TensorDescriptor.__new__(TensorDescriptor)
        made._fill(tensor, info, info.shape, info.strides, block_shape, padding)
        return made

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Elements that a copy moves, outermost dimension first."""
        return self._block_shape

    @block_shape.setter
    def block_shape(self, value: Sequence[int]) -> None:
        block = _integers(value, "block_shape")
        if len(block) != len(self.shape):
            _refuse(f"block_shape {list(block)} has {len(block)} dimensions, the tensor has {len(self.shape)}")
        if any(n < 1 for n in block):
            _refuse(f"block_shape {list(block)}: no extent may be below 1")
        self._block_shape = block

    def get_device(self) -> int:
        """The number of the CUDA device that holds the tensor; -1 for memory of the host. (torch's name.)"""
        return self.device

    def describe_argument(self, stream: int | None = None) -> DescriptorInfo:
        """What this is as an argument; see `arrays.describe`."""
        info = _array(self.base, stream)
        self._check(info)
        return DescriptorInfo(info, self.shape, self.strides, self._block_shape, self.padding)

    def tensor_map(self, spec: MapSpec) -> bytes:
        """The 128 bytes that code with this spec takes for a torch tensor's descriptor; `DriverError` when the driver refuses."""
        address = self._data_ptr() if self._data_ptr is not None else _array(self.base).ptr
        found = self._maps.get(spec)
        if found is not None and found[0] == address:
            return found[1]
        data = encode_map(spec, address, self.shape, self.strides, self.padding)
        self._maps[spec] = (address, data)
        return data

    def __repr__(self) -> str:
        where = f"cuda:{self.device}" if self.device >= 0 else "host"
        return (
            f"TensorDescriptor({where}, {self.dtype}, shape={list(self.shape)}, strides={list(self.strides)}, "
            f"block_shape={list(self._block_shape)}, padding={self.padding!r})"
        )

    def _check(self, info: ArrayInfo) -> None:
        """`LaunchError` unless TMA can copy this tensor."""
        size = ITEM_SIZE[self.dtype]
        shape, strides = self.shape, self.strides
        if not 1 <= len(shape) <= MAX_RANK:
            _refuse(f"has 1 to {MAX_RANK} dimensions, not {len(shape)}", "fold dimensions that lie densely into one")
        if len(strides) != len(shape):
            _refuse(f"shape {list(shape)} and strides {list(strides)} differ in length")
        if any(not 0 <= n <= MAX_EXTENT for n in shape):
            _refuse(f"shape {list(shape)}: extents go from 0 to 2^32")
        if strides[-1] != 1 and shape[-1] > 1:
            hint = "describe the transposed tensor, and transpose the buffer in the kernel (ml.local_trans)"
            _refuse(f"the last stride must be 1, not {strides[-1]}", hint)
        for d, stride in enumerate(strides[:-1]):
            if shape[d] > 1 and (stride * size % ALIGNMENT or not 0 <= stride * size < MAX_STRIDE_BYTES):
                hint = f"pad the rows to a multiple of {ALIGNMENT // size or 1} elements"
                text = f"stride {d} is {stride} elements of {size} bytes; it must be a multiple of {ALIGNMENT} bytes from 0 up"
                _refuse(text, hint)
        if info.ptr % ALIGNMENT:
            _refuse(
                f"the tensor's address {info.ptr:#x} is not a multiple of {ALIGNMENT} bytes",
                "copy it to its own memory",
            )
        if self.padding not in PADDINGS:
            _refuse(f"padding is 'zero' or 'nan', not {self.padding!r}")
        if self.padding == "nan" and self.dtype not in _NAN_TYPES:
            _refuse(f"padding 'nan' is for {', '.join(sorted(_NAN_TYPES))}; the tensor is {self.dtype}")
        if info.kind == "host" and _span(shape, strides) > _span(info.shape, info.strides):
            _refuse(
                f"shape {list(shape)} with strides {list(strides)} reaches beyond the array of shape {list(info.shape)}"
            )


def _array(base: Any, stream: int | None = None) -> ArrayInfo:
    try:
        info = describe(base, stream)
    except (TypeError, RuntimeError, BufferError) as error:
        _refuse(f"cannot describe a tensor: {error}")
    if not isinstance(info, ArrayInfo) or isinstance(info, DescriptorInfo):
        _refuse(f"describes an array, not a {type(base).__name__}")
    return info


def _integers(values: Sequence[int], what: str) -> tuple[int, ...]:
    try:
        return tuple(int(cast("Any", v).__index__()) for v in values)
    except (TypeError, AttributeError):
        _refuse(f"{what} is a list of integers, not {values!r}")


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _refuse(text: str, hint: str | None = None) -> NoReturn:
    raise LaunchError("tensor-descriptor", f"tensor descriptor: {text}", caller_loc(), hint=hint)


_MapKey = tuple[MapSpec, int, tuple[int, ...], tuple[int, ...], str]
_MAPS: dict[_MapKey, bytes] = {}
_MOST_MAPS = 4096


def encode_map(spec: MapSpec, address: int, shape: tuple[int, ...], strides: tuple[int, ...], padding: str) -> bytes:
    """The driver's 128 bytes for a tensor (extents and strides in elements, outermost first); kept by content.

    `LaunchError` for an empty tensor, `DriverError` when the driver refuses.
    """
    key = (spec, address, shape, strides, padding)
    found = _MAPS.get(key)
    if found is None:
        found = _encode(spec, address, shape, strides, padding)
        if len(_MAPS) >= _MOST_MAPS:
            _MAPS.clear()
        _MAPS[key] = found
    return found


def _encode(spec: MapSpec, address: int, shape: tuple[int, ...], strides: tuple[int, ...], padding: str) -> bytes:
    if 0 in shape:
        _refuse(f"a kernel cannot copy from an empty tensor (shape {list(shape)})", "launch nothing for it")
    if not spec.box:
        return encode_record(address, shape, strides, ITEM_SIZE[spec.dtype], padding)
    size = ITEM_SIZE[spec.dtype]
    # The stride of a dimension with one element is never taken, but has to be in order.
    steps = [s * size if n > 1 else ALIGNMENT for n, s in zip(shape, strides, strict=True)]
    return driver_api.encode_tensor_map(
        _KINDS[spec.dtype], address, shape[::-1], steps[-2::-1], spec.box, _SWIZZLES[spec.swizzle], padding == "nan"
    )


def encode_record(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int, padding: str) -> bytes:
    """The 128 bytes of a tensor where no engine copies blocks, and the code itself takes them apart: u64 address, u32 whether the padding is
    NaN, u32 zero, 5 i32 sizes, u32 zero, 5 u64 strides in bytes; outermost dimension first (`shape` and `strides` in elements).

    `LaunchError` for a dimension of 2^31 elements or more.
    """
    if any(n >= 1 << 31 for n in shape):
        _refuse(f"shape {list(shape)}: extents go to 2^31 - 1 on this device")
    rest = [0] * (MAX_RANK - len(shape))
    steps = [s * itemsize for s in strides]
    packed = struct.pack("<QII5iI5Q", address, padding == "nan", 0, *shape, *rest, 0, *steps, *rest)
    return packed.ljust(MAP_BYTES, b"\0")
