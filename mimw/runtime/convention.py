"""The calling convention, version 1: what a compiled kernel expects of whoever launches it.

Owns: `Param`, `layout_params`, `LaunchAttributes`, `KernelMetadata`. Assumes nothing but a 64-bit little-endian
machine. Must not know IR, a driver, or torch. The convention, shared by the launcher and the simulators:

* The parameters are the user's arguments in order, then hidden ones (scratch, hang, print, trace buffers), which are
  there only when the kernel uses them. Constexprs and arguments that were specialised to a constant are absent.
* A parameter has a *kind*: ``"pointer"`` (8 bytes, a generic address of global memory) or a scalar dtype name: ``i1``
  (one byte, 0 or 1), ``i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64``, or ``"tensormap"``: the 128 bytes of a TMA
  descriptor, whose box and swizzle are the code's (`descriptor_record`), its tensor and padding the launch's.
* In the argument buffer each parameter lies at the next multiple of its size (a tensor map: of 64); `Param.offset` and
  `Param.size` are in bytes. The buffer itself starts at a multiple of 64 when it holds a tensor map.
* Hidden today: ``hang_records`` and ``hang_state``, both pointers, of a kernel whose waits give up (`mimw.runtime.hang`);
  on AMD's targets the pointers ``print_records`` and ``print_state`` and the i32 ``print_texts`` of one that prints (`mimw.runtime.device_print`).
* The kernel runs with `num_warps` warps of the target's width along x, and `shared_bytes` of shared memory: on NVIDIA's
  targets dynamic (`.extern .shared`), and bytes that a kernel declares statically are not counted in it; on AMD's the
  code object states them, and the launch asks for none.
* The grid counts CTAs, also when there are clusters. The code states the size of its cluster itself when
  `LaunchAttributes.stated` says so.
* `Param.dtype` names the elements behind a pointer (empty: any). `Param.divisor` is what the compiler was promised: the
  address in bytes, or the integer, is a multiple of it; `Param.below`, where it is not 0: the integer is in [0, below).
  The launcher checks all of them.
"""

from __future__ import annotations

from typing import Any

from mimw.target import get_target

CONVENTION = 1
POINTER = "pointer"
TENSOR_MAP = "tensormap"
MAP_BYTES = 128
MAP_ALIGN = 64

# Kind -> (size in bytes, code of the struct module). bf16 travels as its 16 bits.
KINDS: dict[str, tuple[int, str]] = {
    POINTER: (8, "Q"),
    "i1": (1, "?"),
    "i8": (1, "b"),
    "u8": (1, "B"),
    "i16": (2, "h"),
    "u16": (2, "H"),
    "i32": (4, "i"),
    "u32": (4, "I"),
    "i64": (8, "q"),
    "u64": (8, "Q"),
    "f16": (2, "e"),
    "bf16": (2, "H"),
    "f32": (4, "f"),
    "f64": (8, "d"),
    TENSOR_MAP: (MAP_BYTES, f"{MAP_BYTES}s"),
}


class Param:
    """One parameter of a compiled kernel; the module's docstring says what the fields mean."""

    __slots__ = ("below", "divisor", "dtype", "hidden", "kind", "name", "offset", "size")

    def __init__(
        self,
        name: str,
        kind: str,
        offset: int,
        *,
        dtype: str = "",
        divisor: int = 1,
        below: int = 0,
        hidden: bool = False,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"parameter {name!r} has the unknown kind {kind!r}; kinds: {', '.join(KINDS)}")
        self.name = name
        self.kind = kind
        self.offset = offset
        self.size = KINDS[kind][0]
        self.dtype = dtype
        self.divisor = divisor
        self.below = below
        self.hidden = hidden

    @property
    def align(self) -> int:
        """What its offset is a multiple of, in bytes."""
        return MAP_ALIGN if self.kind == TENSOR_MAP else self.size

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "offset": self.offset,
            "dtype": self.dtype,
            "divisor": self.divisor,
            "below": self.below,
            "hidden": self.hidden,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Param:
        """The inverse of `to_dict`; `KeyError` or `ValueError` on anything else."""
        return Param(
            data["name"],
            data["kind"],
            data["offset"],
            dtype=data["dtype"],
            divisor=data["divisor"],
            below=data.get("below", 0),
            hidden=data["hidden"],
        )

    def describe(self) -> str:
        """The parameter in the words of an error: ``pointer to f16`` or ``i32``."""
        if self.kind == TENSOR_MAP:
            return f"tensor descriptor of {self.dtype}" if self.dtype else "tensor descriptor"
        if self.kind != POINTER:
            return self.kind
        return f"pointer to {self.dtype}" if self.dtype else POINTER

    def __repr__(self) -> str:
        return f"Param({self.name!r}, {self.describe()!r}, offset={self.offset})"


def layout_params(params: list[Param]) -> int:
    """Give every parameter its offset, in order; returns the size of the argument buffer in bytes."""
    end = 0
    for param in params:
        param.offset = (end + param.align - 1) // param.align * param.align
        end = param.offset + param.size
    return end


def buffer_size(params: list[Param]) -> int:
    """The bytes that an argument buffer for these parameters needs."""
    return max((p.offset + p.size for p in params), default=0)


def struct_format(params: list[Param]) -> str:
    """The `struct` format that packs one value a parameter, in order, at their offsets."""
    out = ["<"]
    end = 0
    for param in params:
        if param.offset < end:
            raise ValueError(f"parameter {param.name!r} at byte {param.offset} overlaps the one before it")
        if param.offset > end:
            out.append(f"{param.offset - end}x")
        out.append(KINDS[param.kind][1])
        end = param.offset + param.size
    return "".join(out)


def descriptor_record(
    param: str, dtype: str, block: tuple[int, ...], box: tuple[int, ...], swizzle: int
) -> dict[str, Any]:
    """What code asks of one of its tensor maps, as an entry of ``extra["descriptors"]``.

    `block` is in elements, outermost dimension first, as the user gives it; `box` is one copy's, innermost first, as
    the driver takes it, empty where no engine copies: the 128 bytes are then what `tensor_descriptor.encode_record` makes.
    `swizzle` is the span in bytes, 0, 32, 64 or 128. No interleaving.
    """
    return {
        "param": param,
        "elem": dtype,
        "rank": len(block),
        "block": list(block),
        "box": list(box),
        "swizzle": swizzle,
    }


class LaunchAttributes:
    """What a launch asks beyond the grid: cluster size in CTAs, cooperative grid, programmatic dependent launch.

    `stated`: the code states the cluster's size itself, so that a launch need not.
    """

    __slots__ = ("cluster", "cooperative", "programmatic", "stated")

    def __init__(
        self,
        cluster: tuple[int, int, int] = (1, 1, 1),
        cooperative: bool = False,
        programmatic: bool = False,
        stated: bool = False,
    ) -> None:
        self.cluster = cluster
        self.cooperative = cooperative
        self.programmatic = programmatic
        self.stated = stated

    @property
    def plain(self) -> bool:
        """Whether nothing is asked, so that the plain launch call does."""
        return (self.stated or self.cluster == (1, 1, 1)) and not self.cooperative and not self.programmatic

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {
            "cluster": list(self.cluster),
            "cooperative": self.cooperative,
            "programmatic": self.programmatic,
            "stated": self.stated,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> LaunchAttributes:
        """The inverse of `to_dict`."""
        x, y, z = data["cluster"]
        return LaunchAttributes((x, y, z), data["cooperative"], data["programmatic"], data["stated"])


class KernelMetadata:
    """What is known of a compiled kernel besides its text.

    `name` is the Python function's, `entry` the symbol in the text. `registers` a thread and `spill_bytes` (stores and
    loads, static count) are the assembler's, None when the driver assembles. `warnings` are the assembler's and the
    compiler's, one text each. `extra` holds further JSON values: ``"descriptors"``, one `descriptor_record` a tensor map
    in the order of `params`, and others (barriers, constants, options) that a launch does not need.
    """

    __slots__ = (
        "attributes",
        "entry",
        "extra",
        "name",
        "num_warps",
        "params",
        "registers",
        "shared_bytes",
        "spill_bytes",
        "target",
        "warnings",
    )

    def __init__(
        self,
        name: str,
        entry: str,
        target: str,
        params: list[Param],
        *,
        num_warps: int = 4,
        shared_bytes: int = 0,
        registers: int | None = None,
        spill_bytes: int | None = None,
        warnings: list[str] | None = None,
        attributes: LaunchAttributes | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.entry = entry
        self.target = target
        self.params = params
        self.num_warps = num_warps
        self.shared_bytes = shared_bytes
        self.registers = registers
        self.spill_bytes = spill_bytes
        self.warnings = warnings or []
        self.attributes = attributes or LaunchAttributes()
        self.extra = extra or {}

    @property
    def arguments(self) -> list[Param]:
        """The parameters that a caller gives: all but the hidden ones, which come last."""
        return [p for p in self.params if not p.hidden]

    @property
    def num_threads(self) -> int:
        """Threads of one CTA."""
        return get_target(self.target).warp_size * self.num_warps

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "convention": CONVENTION,
            "name": self.name,
            "entry": self.entry,
            "target": self.target,
            "params": [p.to_dict() for p in self.params],
            "num_warps": self.num_warps,
            "shared_bytes": self.shared_bytes,
            "registers": self.registers,
            "spill_bytes": self.spill_bytes,
            "warnings": self.warnings,
            "attributes": self.attributes.to_dict(),
            "extra": self.extra,
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> KernelMetadata:
        """The inverse of `to_dict`; `ValueError` for another convention, `KeyError` for a missing field."""
        if data["convention"] != CONVENTION:
            raise ValueError(f"calling convention {data['convention']}, this mimw speaks {CONVENTION}")
        return KernelMetadata(
            data["name"],
            data["entry"],
            data["target"],
            [Param.from_dict(p) for p in data["params"]],
            num_warps=data["num_warps"],
            shared_bytes=data["shared_bytes"],
            registers=data["registers"],
            spill_bytes=data["spill_bytes"],
            warnings=data["warnings"],
            attributes=LaunchAttributes.from_dict(data["attributes"]),
            extra=data["extra"],
        )
