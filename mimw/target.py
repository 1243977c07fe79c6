"""What a machine is: name, vendor, warp size, features, limits.

Owns: `Target`, the table of known targets, `get_target`. Imports nothing from the project; passes and lowerings receive a
`Target` value and ask it for features instead of comparing names.

Limits are those of the CUDA C++ Programming Guide, section "Compute Capabilities", and of `ptxas` 13.0 for shared memory.
"""

from __future__ import annotations


class Target:
    """One machine that kernels are compiled for.

    `name` is what users say (``"sm_90a"``), `arch` the number in it (90), `features` the words that lowerings ask for,
    `max_shared_bytes` what one CTA may use in bytes, `ptx_version` the smallest `.version` that knows the target.
    """

    __slots__ = (
        "arch",
        "features",
        "max_registers",
        "max_shared_bytes",
        "max_threads",
        "name",
        "ptx_version",
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
        ptx_version: tuple[int, int],
        warp_size: int = 32,
        max_threads: int = 1024,
        max_registers: int = 65536,
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

    def has(self, feature: str) -> bool:
        """Whether the machine has a feature: one of the words in the table below."""
        return feature in self.features

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


_SM80 = frozenset({"mma_sync", "ldmatrix", "cp_async", "bf16", "redux"})
_SM89 = _SM80 | {"fp8_cvt", "fp8_mma_sync"}
_SM90 = _SM89 | {"stmatrix", "cluster", "elect", "mbarrier", "bf16_arith"}

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", "nvidia", 80, _SM80, 166_912, (7, 1)),
        Target("sm_86", "nvidia", 86, _SM80, 101_376, (7, 1)),
        Target("sm_89", "nvidia", 89, _SM89, 101_376, (8, 1)),
        Target("sm_90a", "nvidia", 90, _SM90 | {"wgmma", "setmaxnreg", "tma"}, 232_448, (8, 0)),
        Target("sm_100a", "nvidia", 100, _SM90 | {"tcgen05", "setmaxnreg", "tma", "f32x2"}, 232_448, (8, 6)),
        Target("sm_120a", "nvidia", 120, _SM90 | {"setmaxnreg", "tma", "f32x2"}, 101_376, (8, 7)),
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
