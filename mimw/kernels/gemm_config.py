# pyright: reportConstantRedefinition=false
"""Configurations of the GEMM kernels, and the choice of one by shape. Must not know arrays, devices or launches."""

from __future__ import annotations

from typing import Any

from mimw.jit import cdiv

_MOST_SPLITS = 16
_LEAST_STEPS = 8  # of BK, that a part of K has


class GemmConfig:
    """How a product is computed. `kernel` is "cooperative" or "pingpong"; BM x BN x BK elements a tile and step, STAGES slots.

    GROUP_M rows of tiles are walked together, results leave through buffers of COLUMNS columns (of a 16-bit type; half as many of f32), CLUSTER CTAs
    (1 or 2) share b, SPLITS parts of K are computed apart and added (cooperative only).
    """

    __slots__ = ("BK", "BM", "BN", "CLUSTER", "COLUMNS", "GROUP_M", "SPLITS", "STAGES", "kernel")

    def __init__(
        self, kernel: str, BM: int, BN: int, BK: int, STAGES: int,
        GROUP_M: int = 8, COLUMNS: int = 64, CLUSTER: int = 1, SPLITS: int = 1,
    ) -> None:  # fmt: skip
        if kernel not in ("cooperative", "pingpong"):
            raise ValueError(f"kernel is 'cooperative' or 'pingpong', not {kernel!r}")
        if STAGES < 2:
            raise ValueError(f"STAGES is at least 2, not {STAGES}: one slot is multiplied while the next is copied")
        if CLUSTER not in (1, 2):
            raise ValueError(f"CLUSTER is 1 or 2, not {CLUSTER}")
        if SPLITS < 1 or (SPLITS > 1 and kernel != "cooperative"):
            raise ValueError(f"SPLITS is 1, or more with the cooperative kernel, not {SPLITS}")
        self.kernel = kernel
        self.BM, self.BN, self.BK, self.STAGES = BM, BN, BK, STAGES
        self.GROUP_M, self.COLUMNS, self.CLUSTER, self.SPLITS = GROUP_M, COLUMNS, CLUSTER, SPLITS

    def __repr__(self) -> str:
        return f"GemmConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in self.key_names())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GemmConfig) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    @staticmethod
    def key_names() -> tuple[str, ...]:
        """The fields in the order of the constructor."""
        return ("kernel", "BM", "BN", "BK", "STAGES", "GROUP_M", "COLUMNS", "CLUSTER", "SPLITS")

    def key(self) -> tuple[Any, ...]:
        """The fields' values."""
        return tuple(getattr(self, name) for name in self.key_names())


def choose(M: int, N: int, K: int, item_size: int = 2, sms: int = 132) -> GemmConfig:
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
        splits = min(range(1, most + 1), key=lambda parts: _split_time(M, N, cdiv(K, BK), parts))
        return GemmConfig("cooperative", 128, BN, BK, 6, SPLITS=splits)
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


def _split_time(M: int, N: int, steps: int, splits: int) -> float:
    """About how many microseconds one wave of tiles takes with K in this many parts: steps, then a second kernel and f32 parts through L2."""
    alone = 0.3 * cdiv(steps, splits)
    return alone if splits == 1 else alone + 4.0 + 8e-6 * M * N * splits / 6.0
