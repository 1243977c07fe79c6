"""Tensor maps of the simulator: the 128 bytes that a descriptor argument carries, made here and read by the TMA engine.

The hardware's encoding is the driver's secret; this one is the simulator's own: a magic number and plain fields, in the
same 128 bytes, so that copies, kernel parameters and `tensormap.replace` work on it as on the real thing. Field codes
are the driver's (`cuTensorMapEncodeTiled`). Knows nothing of execution.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from mimw.sim.ptx.errors import SimulationError
from mimw.sim.ptx.memory import byte_bounds

SIZE = 128
_MAGIC = 0x50414D575F4D5458
# magic; kind, rank, interleave, swizzle, fill, host, two spare bytes; address; sizes; strides; box; element strides
_FORMAT = "<Q8BQ5Q4Q5H5Bx"
KINDS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32", "tf32_ftz")
_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
# The order in which tensormap.replace counts the element types (PTX ISA, table of new_val).
PTX_KINDS = (0, 1, 2, 3, 4, 5, 6, 7, 10, 8, 9, 11, 12)
_NAMES = {
    "int8": "u8", "uint8": "u8", "bool": "u8", "float8_e4m3fn": "u8", "float8_e5m2": "u8", "i1": "u8", "i8": "u8",
    "fp8e4m3": "u8", "fp8e5m2": "u8", "e4m3": "u8", "e5m2": "u8", "f8e4m3": "u8", "f8e5m2": "u8", "float8_e4m3fnuz": "u8",
    "float8_e5m2fnuz": "u8", "f8e4m3fnuz": "u8", "f8e5m2fnuz": "u8", "s8": "u8",
    "int16": "u16", "uint16": "u16", "i16": "u16", "s16": "u16", "int32": "s32", "uint32": "u32", "i32": "s32",
    "int64": "s64", "uint64": "u64", "i64": "s64", "float16": "f16", "fp16": "f16", "bfloat16": "bf16",
    "float32": "f32", "fp32": "f32", "float64": "f64", "fp64": "f64",
}  # fmt: skip
SPANS = {0: 0, 1: 32, 2: 64, 3: 128}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class TensorMap:
    """The fields of a map: `sizes`, `box`, `element_strides` innermost first, `strides` in bytes of dimensions 1 and up.

    `swizzle` is the span in bytes (0, 32, 64, 128), `fill` "zero" or "nan", `host` true while `address` is a host pointer.
    """

    __slots__ = (
        "address",
        "box",
        "element_strides",
        "fill",
        "host",
        "interleave",
        "kind",
        "sizes",
        "strides",
        "swizzle",
    )

    def __init__(
        self, kind: int, address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int],
        element_strides: Sequence[int], swizzle: int = 0, fill: str = "zero", host: bool = False,
    ) -> None:  # fmt: skip
        self.kind, self.address, self.swizzle, self.fill, self.host = kind, address, swizzle, fill, host
        self.sizes, self.strides, self.box = tuple(sizes), tuple(strides), tuple(box)
        self.element_strides = tuple(element_strides)
        self.interleave = 0

    @property
    def rank(self) -> int:
        """Number of dimensions, 1 to 5."""
        return len(self.sizes)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return _BYTES[self.kind]

    @property
    def type(self) -> str:
        """The element type as PTX names it (f32_ftz and tf32_ftz: types that only maps have)."""
        return KINDS[self.kind]

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements of a box that are copied, by dimension: with an element stride only every n-th."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-size // step) for size, step in zip(self.box, steps, strict=True))

    @property
    def box_bytes(self) -> int:
        """Bytes that one load brings, out-of-bounds elements included."""
        total = self.item_bytes
        for size in self.extents:
            total *= size
        return total

    def pack(self) -> bytes:
        """The 128 bytes."""

        def five(items: Sequence[int], count: int = 5) -> list[int]:
            return [*items, *([0] * (count - len(items)))]

        swizzle, fill = _SWIZZLES[self.swizzle], int(self.fill == "nan")
        head = (self.kind, self.rank, self.interleave, swizzle, fill, int(self.host), 0, 0, self.address)
        raw = struct.pack(_FORMAT, _MAGIC, *head, *five(self.sizes), *five(self.strides, 4), *five(self.box),
                          *five(self.element_strides))  # fmt: skip
        return raw.ljust(SIZE, b"\0")

    def span(self) -> tuple[int, int]:
        """First byte of the tensor and the one after its last."""
        last = self.item_bytes
        for size, stride in zip(self.sizes, (self.item_bytes, *self.strides), strict=True):
            last += (size - 1) * stride
        return self.address, self.address + last


def encode(
    pointer: int | Any,
    elem: str,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    element_strides: Sequence[int] | None = None,
    swizzle: int = 0,
    fill: str = "zero",
) -> bytes:
    """The 128 bytes of a tensor map, to be passed as a kernel argument to `run_ptx` or put into global memory.

    `pointer` is a NumPy array (whose memory must stay alive during the run) or a device address of the simulator.
    `elem` names the element type (a NumPy or PTX name: float16, bf16, u8, ...). `sizes`, `box` and `element_strides`
    count elements, innermost dimension first; `strides` are bytes, rank - 1 of them, innermost left out. `swizzle` is
    the span in bytes: 0, 32, 64, 128. `fill` is "zero" or "nan". Raises ValueError for what the driver would refuse.
    """
    name = _NAMES.get(elem, elem)
    if name not in KINDS:
        raise ValueError(f"no tensor map holds elements of type {elem}")
    host = not isinstance(pointer, int)
    address = int(pointer.__array_interface__["data"][0]) if not isinstance(pointer, int) else pointer
    ones = [1] * len(sizes) if element_strides is None else element_strides
    made = TensorMap(KINDS.index(name), address, sizes, strides, box, ones, swizzle, fill, host)
    problem = check(made)
    if not problem and not isinstance(pointer, int):
        low, high = byte_bounds(pointer)
        first, end = made.span()
        if first < low or end > high:
            problem = f"the tensor map covers {end - first} bytes, the array ends after {high - first}"
    if problem:
        raise ValueError(problem)
    return made.pack()


def check(t: TensorMap) -> str:
    """What is wrong with a map, empty when nothing is: the rules of `cuTensorMapEncodeTiled`."""
    if not 1 <= t.rank <= 5 or len(t.strides) != t.rank - 1 or len(t.box) != t.rank or len(t.element_strides) != t.rank:
        return f"a tensor map of rank {t.rank} with {len(t.strides)} strides, {len(t.box)} box extents"
    if t.swizzle not in _SWIZZLES:
        return f"swizzle span {t.swizzle}: 0, 32, 64 or 128 bytes"
    if t.address % 16:
        return f"the address of a tensor map must be a multiple of 16 bytes: {t.address:#x}"
    if any(not 1 <= size <= 1 << 32 for size in t.sizes):
        return f"sizes of a tensor map are 1 to 2^32: {t.sizes}"
    if any(stride % 16 or not 0 <= stride < 1 << 40 for stride in t.strides):
        return f"strides of a tensor map are multiples of 16 bytes below 2^40: {t.strides}"
    if any(not 1 <= size <= 256 for size in t.box):
        return f"box extents are 1 to 256: {t.box}"
    if any(not 1 <= step <= 8 for step in t.element_strides):
        return f"element strides are 1 to 8: {t.element_strides}"
    inner = t.box[0] * t.item_bytes
    if inner % 16:
        return f"the inner extent of a box must be a multiple of 16 bytes, not {inner}"
    if t.swizzle and inner > t.swizzle:
        return f"the inner extent of a box, {inner} bytes, exceeds the swizzle span of {t.swizzle}"
    if t.fill == "nan" and t.kind < 6:
        return "NaN fill exists for float types only"
    return ""


def is_map(data: bytes) -> bool:
    """Whether these bytes are a map that `encode` (or tensormap.replace) made."""
    return len(data) == SIZE and data[:8] == _MAGIC.to_bytes(8, "little")


def decode(data: bytes) -> TensorMap:
    """The fields of 128 bytes; `SimulationError` when they are no map."""
    if not is_map(data):
        raise SimulationError(
            "the bytes at the tensor-map operand are no tensor map (sim.ptx.tensor_map.encode makes them)"
        )
    _, kind, rank, interleave, swizzle, fill, host, _, _, address, *rest = struct.unpack_from(_FORMAT, data)
    if kind >= len(KINDS) or not 1 <= rank <= 5 or swizzle not in SPANS:
        raise SimulationError("the tensor map holds an element type, rank or swizzle that the simulator does not know")
    sizes, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    out = TensorMap(kind, address, sizes[:rank], strides[: rank - 1], box[:rank], steps[:rank], SPANS[swizzle],
                    "nan" if fill else "zero", bool(host))  # fmt: skip
    out.interleave = interleave
    return out


_OFFSETS = {
    "elemtype": (8, "B"), "rank": (9, "B"), "interleave_layout": (10, "B"), "swizzle_mode": (11, "B"),
    "fill_mode": (12, "B"), "global_address": (16, "Q"), "global_dim": (24, "Q"), "global_stride": (64, "Q"),
    "box_dim": (96, "H"), "element_stride": (106, "B"),
}  # fmt: skip


def replace(data: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The map with one field changed as tensormap.replace does it (zeroed bytes become a map by their first edit)."""
    if not is_map(data) and any(data):
        raise SimulationError("tensormap.replace on bytes that are neither zero nor a tensor map")
    if field not in _OFFSETS:
        raise SimulationError(f"tensormap.replace of .{field}: not yet in the PTX simulator")
    if field == "elemtype":
        if value >= len(PTX_KINDS):
            raise SimulationError(f"element type {value}: not yet in the PTX simulator")
        value = PTX_KINDS[value]
    elif field == "rank":
        value += 1
    offset, code = _OFFSETS[field]
    limit = 4 if field == "global_stride" else 5
    if not 0 <= ordinal < limit:
        raise SimulationError(f"ordinal {ordinal} of .{field}: 0 to {limit - 1}")
    out = bytearray(data)
    out[:8] = _MAGIC.to_bytes(8, "little")
    width = struct.calcsize(code)
    out[offset + ordinal * width : offset + (ordinal + 1) * width] = (value & ((1 << 8 * width) - 1)).to_bytes(
        width, "little"
    )
    if field == "global_address":
        out[13] = 0
    return bytes(out)
