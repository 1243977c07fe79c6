"""What a machine is: name, vendor, warp size, features, limits.

Owns: `Target`, the table of known targets, `get_target`. Imports nothing from the project; passes and lowerings receive a
`Target` value and ask it for features instead of comparing names.

Limits are those of the CUDA C++ Programming Guide, section "Compute Capabilities", of `ptxas` 13.0 for shared memory, and
of AMD's "CDNA3" and "CDNA4" instruction set documents. Feature words of AMD's targets:

    mfma            matrix products of a wave; `mfma_k2`: f16, bf16 and i8 forms of twice the depth; `xf32`, `f8f6f4`
    fp8_fnuz        instructions take 8-bit floats as f8e4m3fnuz and f8e5m2fnuz; `fp8_ocp`: as f8e4m3 and f8e5m2
    wave_barriers   tasks are waves that meet through words of shared memory, on which every wave arrives for itself; all have
                    the same number of registers, and copy by themselves what an engine copies elsewhere
    lds_dma         loads straight to shared memory, 4 bytes a lane; `lds_dma_wide`: 12 and 16 bytes
    scalar_bases    accesses take a scalar base and a 32-bit offset: pointers are taken apart so, and bounds of integers are worth code of their own
    ds_read_tr      transposed reads of shared memory; `permlane_swap`, `bitop3`: instructions of those names
    bf16_cvt        f32 to bf16 in one instruction; `fp8_cvt`: to and from fp8
    f32x2           two f32 in a register pair by one instruction (v_pk_fma_f32)
"""

from __future__ import annotations


class Target:
    """One machine that kernels are compiled for.

    `name` is what users say (``"sm_90a"``), `vendor` ``"nvidia"`` or ``"amd"``, `arch` the number in the name (90),
    `features` the words that lowerings ask for, `max_shared_bytes` what one CTA may use in bytes, `ptx_version` the
    smallest `.version` that knows the target, (0, 0) where there is no PTX. `warp_size` counts lanes, `max_threads` threads
    of a CTA; `max_registers` are the 32-bit registers of a multiprocessor, `thread_registers` those of one thread.
    """

    __slots__ = (
        "arch",
        "features",
        "max_registers",
        "max_shared_bytes",
        "max_threads",
        "name",
        "ptx_version",
        "thread_registers",
        "vendor",
        "warp_size",
    )

    def __init__(
        self,
        name: str,
        vendor: str,
        arch: int,
        features: frozenset[str],
        max_shared_bytes: int,
        ptx_version: tuple[int, int] = (0, 0),
        warp_size: int = 32,
        max_threads: int = 1024,
        max_registers: int = 65536,
        thread_registers: int = 255,
    ) -> None:
        self.name = name
        self.vendor = vendor
        self.arch = arch
        self.features = features
        self.max_shared_bytes = max_shared_bytes
        self.ptx_version = ptx_version
        self.warp_size = warp_size
        self.max_threads = max_threads
        self.max_registers = max_registers
        self.thread_registers = thread_registers

    def has(self, feature: str) -> bool:
        """Whether the machine has a feature: one of the words in the table below."""
        return feature in self.features

    @property
    def lane_copies(self) -> tuple[int, ...]:
        """Bytes a lane that one instruction can copy straight from global to shared memory, lane behind lane; most first."""
        if self.has("lds_dma_wide"):
            return (16, 4)
        return (4,) if self.has("lds_dma") else ()

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


_SM80 = frozenset({"mma_sync", "ldmatrix", "cp_async", "bf16", "redux"})
_SM89 = _SM80 | {"fp8_cvt", "fp8_mma_sync"}
_SM90 = _SM89 | {"stmatrix", "cluster", "elect", "mbarrier", "bf16_arith"}
_CDNA = frozenset({"mfma", "wave_barriers", "lds_dma", "scalar_bases", "fp8_cvt", "f32x2"})
_CDNA3 = _CDNA | {"xf32", "fp8_fnuz"}
_CDNA4 = _CDNA | {
    "mfma_k2",
    "f8f6f4",
    "fp8_ocp",
    "lds_dma_wide",
    "ds_read_tr",
    "permlane_swap",
    "bitop3",
    "minimum3",
    "bf16_cvt",
}


def _amd(name: str, arch: int, features: frozenset[str], max_shared_bytes: int) -> Target:
    """A machine of AMD's: waves of 64 lanes, each with 256 vector and 256 accumulation registers, four SIMDs a compute unit."""
    return Target(
        name, "amd", arch, features, max_shared_bytes, warp_size=64, max_registers=4 * 512 * 64, thread_registers=512
    )


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", "nvidia", 80, _SM80, 166_912, (7, 1)),
        Target("sm_86", "nvidia", 86, _SM80, 101_376, (7, 1)),
        Target("sm_89", "nvidia", 89, _SM89, 101_376, (8, 1)),
        Target("sm_90a", "nvidia", 90, _SM90 | {"wgmma", "setmaxnreg", "tma"}, 232_448, (8, 0)),
        Target("sm_100a", "nvidia", 100, _SM90 | {"tcgen05", "setmaxnreg", "tma", "f32x2"}, 232_448, (8, 6)),
        Target("sm_120a", "nvidia", 120, _SM90 | {"setmaxnreg", "tma", "f32x2"}, 101_376, (8, 7)),
        _amd("gfx942", 942, _CDNA3, 64 * 1024),
        _amd("gfx950", 950, _CDNA4, 160 * 1024),
    )
}


def get_target(name: str | Target) -> Target:
    """The target of that name (``"sm_90"`` is ``"sm_90a"``); `ValueError` lists the known names when there is none."""
    if isinstance(name, Target):
        return name
    found = TARGETS.get(name) or TARGETS.get(f"{name}a")
    if found is None:
        raise ValueError(f"unknown target {name!r}; known targets: {', '.join(TARGETS)}")
    return found
