# pyright: reportConstantRedefinition=false
"""Configurations of the GEMM kernels. Must not know arrays, devices or launches."""

from __future__ import annotations

from typing import Any

KERNELS = ("cooperative", "pingpong", "split", "tiled")


class GemmConfig:
    """How a product is computed. `kernel` is "cooperative", "pingpong", "split" or "tiled"; BM x BN x BK elements a tile and step, STAGES slots
    (fewer where the epilogue needs the shared memory).

    GROUP_M rows of tiles are walked together. In the first two kernels results leave COLUMNS columns at a time (of a 16-bit type; half as many of f32)
    through BUFFERS buffers a consumer, and CLUSTER_M x CLUSTER_N CTAs (each 1 or 2) share operands: those below each other b, those beside each
    other a. TRANSPOSED computes c.T = b.T @ a.T, with tiles of BM columns of a.T: BM is then what comes in steps of 8, and BN in steps of 64. Cooperating
    consumers take a tile's upper and lower half or, with SIDE_BY_SIDE, its left and right half (as they compute it). In the last two kernels, SPLITS
    CTAs share a tile, each with a part of K.

    "tiled" is for machines without copies by descriptor: WARPS warps compute a tile together, ROWS rows of results leave at a time, and programs are
    numbered so that neighbours meet in one of XCDS parts of the device, to which programs are dealt in turn.
    """

    __slots__ = (
        "BK", "BM", "BN", "BUFFERS", "CLUSTER_M", "CLUSTER_N", "COLUMNS", "GROUP_M", "SIDE_BY_SIDE", "ROWS", "SPLITS", "STAGES", "TRANSPOSED", "WARPS",
        "XCDS", "kernel",
    )  # fmt: skip

    def __init__(
        self, kernel: str, BM: int, BN: int, BK: int, STAGES: int,
        GROUP_M: int = 8, COLUMNS: int = 64, CLUSTER_M: int = 1, CLUSTER_N: int = 1, SPLITS: int = 1,
        BUFFERS: int = 2, TRANSPOSED: bool = False, SIDE_BY_SIDE: bool = False,
        WARPS: int = 4, ROWS: int = 64, XCDS: int = 1,
    ) -> None:  # fmt: skip
        if kernel not in KERNELS:
            raise ValueError(f"kernel is {', '.join(map(repr, KERNELS))}, not {kernel!r}")
        if STAGES < 2:
            raise ValueError(f"STAGES is at least 2, not {STAGES}: one slot is multiplied while the next is copied")
        if CLUSTER_M not in (1, 2) or CLUSTER_N not in (1, 2):
            raise ValueError(f"CLUSTER_M and CLUSTER_N are 1 or 2, not {CLUSTER_M} and {CLUSTER_N}")
        if SPLITS < 1 or (kernel != "tiled" and (SPLITS > 1) != (kernel == "split")):
            raise ValueError(f"SPLITS is at least 2 with the kernel 'split' and 1 without, not {SPLITS}")
        if kernel in ("split", "tiled") and (CLUSTER_M > 1 or CLUSTER_N > 1 or TRANSPOSED):
            raise ValueError(f"the kernel {kernel!r} has no clusters and no TRANSPOSED")
        if kernel == "tiled" and (ROWS < 1 or BM % ROWS):
            raise ValueError(f"ROWS divides BM; {ROWS} does not divide {BM}")
        if SIDE_BY_SIDE and kernel != "cooperative":
            raise ValueError("SIDE_BY_SIDE is for the kernel 'cooperative'")
        if COLUMNS < 8 or COLUMNS % 8:
            raise ValueError(f"COLUMNS is a multiple of 8, not {COLUMNS}: wgmma's results come in groups of 8 columns")
        self.kernel = kernel
        self.BM, self.BN, self.BK, self.STAGES = BM, BN, BK, STAGES
        self.GROUP_M, self.COLUMNS, self.BUFFERS, self.SPLITS = GROUP_M, COLUMNS, BUFFERS, SPLITS
        self.CLUSTER_M, self.CLUSTER_N = CLUSTER_M, CLUSTER_N
        self.TRANSPOSED, self.SIDE_BY_SIDE = TRANSPOSED, SIDE_BY_SIDE
        self.WARPS, self.ROWS, self.XCDS = WARPS, ROWS, XCDS

    def columns_for(self, out_size: int) -> int:
        """Columns that leave at a time in results of `out_size` bytes an element: of 4 bytes about half as many, and still a part of the tile."""
        if out_size < 4:
            return self.COLUMNS
        whole = self.BM if self.TRANSPOSED else self.BN
        if self.SIDE_BY_SIDE:
            whole //= 2
        half, unit = self.COLUMNS // 2, whole & -whole
        return half if half % unit == 0 or (half & (half - 1) == 0 and half >= 8) else min(unit, self.COLUMNS)

    def __repr__(self) -> str:
        return f"GemmConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in self.key_names())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GemmConfig) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    @staticmethod
    def key_names() -> tuple[str, ...]:
        """The fields in the order of the constructor."""
        return (
            "kernel", "BM", "BN", "BK", "STAGES", "GROUP_M", "COLUMNS", "CLUSTER_M", "CLUSTER_N", "SPLITS", "BUFFERS", "TRANSPOSED", "SIDE_BY_SIDE",
            "WARPS", "ROWS", "XCDS",
        )  # fmt: skip

    def key(self) -> tuple[Any, ...]:
        """The fields' values."""
        return tuple(getattr(self, name) for name in self.key_names())
