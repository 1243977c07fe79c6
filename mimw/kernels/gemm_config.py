# pyright: reportConstantRedefinition=false
"""Configurations of the GEMM kernels, and the choice of one by shape. Must not know arrays, devices or launches."""

from __future__ import annotations

from typing import Any

from mimw.jit import cdiv

_MOST_SPLITS = 8
_LEAST_STEPS = 8  # of BK, that a part of K has


KERNELS = ("cooperative", "pingpong", "split")


class GemmConfig:
    """How a product is computed. `kernel` is "cooperative", "pingpong" or "split"; BM x BN x BK elements a tile and step, STAGES slots.

    GROUP_M rows of tiles are walked together. In the first two kernels results leave COLUMNS columns at a time (of a 16-bit type; half as many of f32)
    through BUFFERS buffers a consumer, and CLUSTER_M x CLUSTER_N CTAs (each 1 or 2) share operands: those below each other b, those beside each
    other a. TRANSPOSED computes c.T = b.T @ a.T, with tiles of BM columns of a.T: BM is then what comes in steps of 8, and BN in steps of 64. Cooperating
    consumers take a tile's upper and lower half or, with SIDE_BY_SIDE, its left and right half (as they compute it). In the third kernel, SPLITS CTAs
    (2, 4 or 8: a cluster) share a tile, each with a part of K.
    """

    __slots__ = (
        "BK", "BM", "BN", "BUFFERS", "CLUSTER_M", "CLUSTER_N", "COLUMNS", "GROUP_M", "SIDE_BY_SIDE", "SPLITS", "STAGES", "TRANSPOSED", "kernel",
    )  # fmt: skip

    def __init__(
        self, kernel: str, BM: int, BN: int, BK: int, STAGES: int,
        GROUP_M: int = 8, COLUMNS: int = 64, CLUSTER_M: int = 1, CLUSTER_N: int = 1, SPLITS: int = 1,
        BUFFERS: int = 2, TRANSPOSED: bool = False, SIDE_BY_SIDE: bool = False,
    ) -> None:  # fmt: skip
        if kernel not in KERNELS:
            raise ValueError(f"kernel is {', '.join(map(repr, KERNELS))}, not {kernel!r}")
        if STAGES < 2:
            raise ValueError(f"STAGES is at least 2, not {STAGES}: one slot is multiplied while the next is copied")
        if CLUSTER_M not in (1, 2) or CLUSTER_N not in (1, 2):
            raise ValueError(f"CLUSTER_M and CLUSTER_N are 1 or 2, not {CLUSTER_M} and {CLUSTER_N}")
        if SPLITS not in ((2, 4, 8) if kernel == "split" else (1,)):
            raise ValueError(f"SPLITS is 2, 4 or 8 with the kernel 'split' and 1 without, not {SPLITS}")
        if kernel == "split" and (CLUSTER_M > 1 or CLUSTER_N > 1 or TRANSPOSED):
            raise ValueError(
                "the cluster of the kernel 'split' shares a tile: CLUSTER_M and CLUSTER_N are 1, and it has no TRANSPOSED"
            )
        if SIDE_BY_SIDE and kernel != "cooperative":
            raise ValueError("SIDE_BY_SIDE is for the kernel 'cooperative'")
        self.kernel = kernel
        self.BM, self.BN, self.BK, self.STAGES = BM, BN, BK, STAGES
        self.GROUP_M, self.COLUMNS, self.BUFFERS, self.SPLITS = GROUP_M, COLUMNS, BUFFERS, SPLITS
        self.CLUSTER_M, self.CLUSTER_N = CLUSTER_M, CLUSTER_N
        self.TRANSPOSED, self.SIDE_BY_SIDE = TRANSPOSED, SIDE_BY_SIDE

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
        )  # fmt: skip

    def key(self) -> tuple[Any, ...]:
        """The fields' values."""
        return tuple(getattr(self, name) for name in self.key_names())


def choose(M: int, N: int, K: int, item_size: int = 2, sms: int = 132, precise: bool = False) -> GemmConfig:
    """The configuration for a product of this shape: elements of `item_size` bytes, a device with `sms` multiprocessors.

    Ratios to cuBLAS measured on an H200: ping-pong 128x128 leads where K is short (1.08 at 8192x8192x512), cooperative 128x256 where it is long
    (1.02 at 8192^3, against 1.00) and a wave of large tiles fills the device; products with few tiles are bound by one CTA's loop, so that K is split.
    """
    BK = 128 // item_size
    small = cdiv(M, 128) * cdiv(N, 128)
    if 2 * small <= sms or N <= 64:
        BN = 64 if N <= 64 else 128
        tiles = cdiv(M, 128) * cdiv(N, BN)
        most = max(1, min(sms // tiles, cdiv(K, BK) // _LEAST_STEPS, _MOST_SPLITS))
        splits = max(s for s in (1, 2, 4, 8) if s <= most)
        if splits > 1:
            return GemmConfig("split", 128, BN, BK, 5, SPLITS=splits)
        return GemmConfig("cooperative", 128, BN, BK, 6)
    if small <= sms:
        return GemmConfig("cooperative", 128, 128, BK, 6)
    large = cdiv(M, 128) * cdiv(N, 256)
    # In units of 128x128 tiles: what the busiest CTA does.
    waves_small, waves_large = cdiv(small, sms), 2 * cdiv(large, sms)
    short = (
        K <= 2048 and N % 64 == 0
    )  # rows that are no multiple of 128 bytes favour fewer, larger tiles: 0.74 against 0.66
    if short or 1.05 * waves_small < waves_large:
        return GemmConfig("pingpong", 128, 128, BK, 5)
    return GemmConfig("cooperative", 128, 256, BK, 4)
