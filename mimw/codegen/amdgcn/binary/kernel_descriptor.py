"""The 64 bytes that tell the hardware's dispatcher what a kernel needs.

Owns: `KernelDescriptor`, its bits, and where the initial values stand in scalar registers. Assumes gfx942 and gfx950 (waves
of 64 lanes, unified vector registers, architected flat scratch). Must not know ELF or metadata. Source of every bit: the
LLVM project's "User Guide for AMDGPU Backend", sections "Kernel Descriptor" and "Initial Kernel Execution State".
"""

from __future__ import annotations

import struct

DESCRIPTOR_BYTES = 64
DESCRIPTOR_ALIGN = 64

_LAYOUT = struct.Struct("<III4xq20xIIIHH4x")
_VGPR_GRANULE, _ACCUM_GRANULE, _SGPR_GRANULE = 8, 4, 8  # the last as LLVM writes it: the hardware takes 16 at a time
# Beyond the ones that a kernel names: VCC, FLAT_SCRATCH and XNACK_MASK stand at the end of its scalar registers.
EXTRA_SGPRS = 6
MAX_VGPRS, MAX_TOTAL_VGPRS, MAX_SGPRS = 256, 512, 102

# Field -> (lowest bit, width), for the three words of resources.
_RSRC1 = {
    "vgpr_blocks": (0, 6),
    "sgpr_blocks": (6, 4),
    "round_32": (12, 2),
    "round_16_64": (14, 2),
    "denorm_32": (16, 2),
    "denorm_16_64": (18, 2),
    "dx10_clamp": (21, 1),
    "ieee_mode": (23, 1),
    "fp16_overflow": (26, 1),
}
_RSRC2 = {
    "private_segment": (0, 1),
    "user_sgprs": (1, 5),
    "workgroup_id_x": (7, 1),
    "workgroup_id_y": (8, 1),
    "workgroup_id_z": (9, 1),
    "workgroup_info": (10, 1),
    "workitem_dims": (11, 2),
}
_RSRC3 = {"accum_offset": (0, 6), "tg_split": (16, 1)}

# What the dispatcher may put into user SGPRs, in this order: (bit of the properties, name, registers).
_USER_SGPRS = (
    (0, "private_segment_buffer", 4),
    (1, "dispatch_ptr", 2),
    (2, "queue_ptr", 2),
    (3, "kernarg_segment_ptr", 2),
    (4, "dispatch_id", 2),
    (5, "flat_scratch_init", 2),
    (6, "private_segment_size", 1),
)
KERNARG_SEGMENT_PTR = 1 << 3


class KernelDescriptor:
    """What one kernel needs.

    `lds_bytes` shared memory of a workgroup, `scratch_bytes` private memory of a work-item, `kernarg_bytes` arguments.
    `vgprs` architectural and `agprs` accumulation registers, `sgprs` scalar ones without the six of VCC, FLAT_SCRATCH and
    XNACK_MASK; of a descriptor that was read they are the granted numbers, which are rounded up. `workgroup_ids`: which of
    x, y, z the kernel gets in scalar registers. `workitem_dims`: 1 to 3 ids packed in v0, 10 bits each.

    The rest is what mimw's kernels leave alone: `user_sgprs` registers filled by the dispatcher, `properties` which they
    are, `preload` (count and first dword of arguments that come in them), the modes of floating point (`denorm_…`: 3 keeps
    denormals; `round_…`: 0 is to nearest), `tg_split`.
    """

    __slots__ = (
        "agprs",
        "denorm_16_64",
        "denorm_32",
        "dx10_clamp",
        "fp16_overflow",
        "ieee_mode",
        "kernarg_bytes",
        "lds_bytes",
        "preload",
        "properties",
        "round_16_64",
        "round_32",
        "scratch_bytes",
        "sgprs",
        "tg_split",
        "user_sgprs",
        "vgprs",
        "workgroup_ids",
        "workgroup_info",
        "workitem_dims",
    )

    def __init__(
        self,
        *,
        lds_bytes: int = 0,
        scratch_bytes: int = 0,
        kernarg_bytes: int = 0,
        vgprs: int = 1,
        agprs: int = 0,
        sgprs: int = 1,
        workgroup_ids: str = "x",
        workitem_dims: int = 1,
    ) -> None:
        self.lds_bytes = lds_bytes
        self.scratch_bytes = scratch_bytes
        self.kernarg_bytes = kernarg_bytes
        self.vgprs = vgprs
        self.agprs = agprs
        self.sgprs = sgprs
        self.workgroup_ids = workgroup_ids
        self.workitem_dims = workitem_dims
        self.user_sgprs = 2
        self.properties = KERNARG_SEGMENT_PTR
        self.preload = (0, 0)
        self.workgroup_info = False
        self.denorm_32 = self.denorm_16_64 = 3
        self.round_32 = self.round_16_64 = 0
        self.dx10_clamp = self.ieee_mode = True
        self.fp16_overflow = self.tg_split = False

    @property
    def accum_offset(self) -> int:
        """The place of a0 among the unified vector registers: a multiple of 4."""
        return _round_up(max(1, self.vgprs), _ACCUM_GRANULE)

    @property
    def total_vgprs(self) -> int:
        """Unified vector registers that a work-item takes, before rounding."""
        return self.accum_offset + self.agprs if self.agprs else max(1, self.vgprs)

    @property
    def granted_vgprs(self) -> int:
        """Unified vector registers that a work-item gets."""
        return _round_up(self.total_vgprs, _VGPR_GRANULE)

    @property
    def waves_per_simd(self) -> int:
        """How many waves' vector registers a SIMD holds at once, at most 8."""
        return min(8, MAX_TOTAL_VGPRS // self.granted_vgprs)

    def check(self) -> None:
        """`ValueError` when the hardware has not as much as is asked for."""
        if self.vgprs > MAX_VGPRS or self.agprs > MAX_VGPRS or self.sgprs > MAX_SGPRS:
            raise ValueError(
                f"{self.vgprs} VGPRs, {self.agprs} AGPRs and {self.sgprs} SGPRs are more than {MAX_VGPRS}, {MAX_VGPRS} and {MAX_SGPRS}"
            )
        if self.workgroup_ids not in ("", "x", "y", "z", "xy", "xz", "yz", "xyz") or not 1 <= self.workitem_dims <= 3:
            raise ValueError(f"workgroup ids {self.workgroup_ids!r} or work-item dims {self.workitem_dims} are none")

    def initial_sgprs(self) -> dict[str, tuple[int, int]]:
        """What stands in scalar registers when a wave starts: name -> (first register, how many).

        The names are the guide's: ``kernarg_segment_ptr``, ``workgroup_id_x``, ``preloaded_kernargs``, ...
        """
        found: dict[str, tuple[int, int]] = {}
        at = 0
        for bit, name, count in _USER_SGPRS:
            if self.properties >> bit & 1:
                found[name] = (at, count)
                at += count
        if self.preload[0]:
            found["preloaded_kernargs"] = (at, self.preload[0])
        at = self.user_sgprs
        for axis in self.workgroup_ids:
            found[f"workgroup_id_{axis}"] = (at, 1)
            at += 1
        if self.workgroup_info:
            found["workgroup_info"] = (at, 1)
        return found

    def pack(self, entry_offset: int) -> bytes:
        """The 64 bytes; `entry_offset` is the address of the first instruction less the descriptor's own."""
        self.check()
        rsrc1 = _pack(
            _RSRC1,
            vgpr_blocks=self.granted_vgprs // _VGPR_GRANULE - 1,
            sgpr_blocks=_round_up(self.sgprs + EXTRA_SGPRS, _SGPR_GRANULE) // _SGPR_GRANULE - 1,
            round_32=self.round_32,
            round_16_64=self.round_16_64,
            denorm_32=self.denorm_32,
            denorm_16_64=self.denorm_16_64,
            dx10_clamp=self.dx10_clamp,
            ieee_mode=self.ieee_mode,
            fp16_overflow=self.fp16_overflow,
        )
        rsrc2 = _pack(
            _RSRC2,
            private_segment=self.scratch_bytes > 0,
            user_sgprs=self.user_sgprs,
            workgroup_id_x="x" in self.workgroup_ids,
            workgroup_id_y="y" in self.workgroup_ids,
            workgroup_id_z="z" in self.workgroup_ids,
            workgroup_info=self.workgroup_info,
            workitem_dims=self.workitem_dims - 1,
        )
        rsrc3 = _pack(_RSRC3, accum_offset=self.accum_offset // _ACCUM_GRANULE - 1, tg_split=self.tg_split)
        preload = self.preload[0] | self.preload[1] << 7
        sizes = (self.lds_bytes, self.scratch_bytes, self.kernarg_bytes)
        return _LAYOUT.pack(*sizes, entry_offset, rsrc3, rsrc1, rsrc2, self.properties, preload)

    @staticmethod
    def unpack(data: bytes) -> tuple[KernelDescriptor, int]:
        """(descriptor, entry offset) of 64 bytes, of any compiler."""
        lds, scratch, kernarg, entry, rsrc3, rsrc1, rsrc2, properties, preload = _LAYOUT.unpack(data)
        one, two, three = _unpack(_RSRC1, rsrc1), _unpack(_RSRC2, rsrc2), _unpack(_RSRC3, rsrc3)
        granted = (one["vgpr_blocks"] + 1) * _VGPR_GRANULE
        accum = (three["accum_offset"] + 1) * _ACCUM_GRANULE
        self = KernelDescriptor(
            lds_bytes=lds,
            scratch_bytes=scratch,
            kernarg_bytes=kernarg,
            vgprs=min(accum, granted),
            agprs=max(0, granted - accum),
            sgprs=min(MAX_SGPRS, (one["sgpr_blocks"] + 1) * _SGPR_GRANULE - EXTRA_SGPRS),
            workgroup_ids="".join(axis for axis in "xyz" if two[f"workgroup_id_{axis}"]),
            workitem_dims=min(two["workitem_dims"], 2) + 1,
        )
        self.user_sgprs = two["user_sgprs"]
        self.properties = properties
        self.preload = (preload & 127, preload >> 7)
        self.workgroup_info = bool(two["workgroup_info"])
        for name in ("round_32", "round_16_64", "denorm_32", "denorm_16_64"):
            setattr(self, name, one[name])
        for name in ("dx10_clamp", "ieee_mode", "fp16_overflow"):
            setattr(self, name, bool(one[name]))
        self.tg_split = bool(three["tg_split"])
        return self, entry


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _pack(fields: dict[str, tuple[int, int]], **values: int) -> int:
    word = 0
    for name, value in values.items():
        shift, width = fields[name]
        if not 0 <= value < 1 << width:
            raise ValueError(f"{name} of a kernel descriptor has {width} bits, {value} does not fit")
        word |= int(value) << shift
    return word


def _unpack(fields: dict[str, tuple[int, int]], word: int) -> dict[str, int]:
    return {name: word >> shift & (1 << width) - 1 for name, (shift, width) in fields.items()}
