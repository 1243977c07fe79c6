# pyright: reportConstantRedefinition=false
"""Which configuration of `gemm_tiled` a product gets on machines with v_mfma: the fastest by a model.

The model is computed from AMD's documents ("CDNA 3" and "CDNA 4" white papers, data sheets of MI300X and MI350X), not fitted to measurements: nothing of
it has run on a device. Times are clocks of a compute unit. Must not know arrays, devices or launches.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimw.jit import cdiv
from mimw.kernels.gemm_config import GemmConfig
from mimw.target import Target

# BM, BN, WARPS, ROWS, and how many CTAs a compute unit holds, by registers (at most 256 a lane with two waves a SIMD, 128 with four) and by 64 KiB of
# shared memory. ROWS is what lies in whole registers of v_mfma's results, so that no part of the sums moves for the epilogue.
_TILES = (
    (256, 256, 8, 64, 1),
    (192, 256, 8, 64, 1),
    (256, 128, 8, 128, 1),
    (128, 256, 8, 64, 1),
    (128, 128, 4, 64, 2),
    (128, 64, 4, 64, 2),
    (64, 128, 4, 64, 2),
    (64, 64, 4, 32, 2),
    (32, 128, 4, 32, 3),
    (32, 64, 4, 32, 2),
    (16, 128, 4, 16, 3),
    (16, 64, 4, 16, 3),
)
_SPLITS = (2, 3, 4, 6, 8, 12, 16)
_LEAST_STEPS = 4  # that a part of K has
_MOST_SPLIT_TILES = 1024  # counters of a workspace
_MOST_NARROW = 256 * 128  # elements of a tile stored one by one: addresses and masks of more would be spilled
_GROUP = 8  # rows of tiles that are walked together

_LATENCY = 1000  # of the loads for one step, which stand one step ahead
_START = 2500  # a CTA's first loads and its index arithmetic
_SPLIT = 6000  # counting, and writing back caches for other XCDs' eyes
_SHARED_BYTES, _STORE_BYTES = 128, 64  # a clock, of a compute unit
_L2_BYTES = 2048  # a clock, of an XCD


class Machine:
    """What the model knows of one kind: compute units of a whole device and of an XCD, multiply-adds of 16 bits that a unit does in a clock, bytes of
    memory in a clock for each unit of a whole device."""

    __slots__ = ("memory", "rate", "units", "xcd_units")

    def __init__(self, units: int, xcd_units: int, rate: int, memory: float) -> None:
        self.units, self.xcd_units, self.rate, self.memory = units, xcd_units, rate, memory


# MI300X: 304 units at 2.1 GHz, 1307 TFLOP/s, 5.3 TB/s; MI350X: 256 units at 2.2 GHz, 2300 TFLOP/s, 8 TB/s.
_MACHINES = {"gfx942": Machine(304, 38, 1024, 8.3), "gfx950": Machine(256, 32, 2048, 14.2)}


class TiledProduct:
    """A product to choose for: extents, the operands' type, the target, how many compute units the device has. `fnuz`: 8-bit floats are CDNA3's."""

    __slots__ = ("BK", "K", "M", "N", "item_size", "machine", "rate", "units", "xcds")

    def __init__(self, M: int, N: int, K: int, item_size: int, target: Target, units: int, fnuz: bool = False) -> None:
        self.M, self.N, self.K, self.item_size, self.units = M, N, K, item_size, units
        self.machine = _MACHINES[target.name]
        self.xcds = max(1, units // self.machine.xcd_units)
        # fp8 in formats that the machine does not multiply is cast to f16, and takes as much shared memory as f16.
        narrow = item_size == 1 and target.has("fp8_fnuz" if fnuz else "fp8_ocp")
        self.BK = 128 if narrow else 64
        self.rate = self.machine.rate * (2 if narrow else 1)


def choose_tiled(M: int, N: int, K: int, item_size: int, target: Target, units: int, fnuz: bool = False) -> GemmConfig:
    """The configuration for a product of this shape: elements of `item_size` bytes (1: CDNA3's 8-bit floats with `fnuz`, else the others), a device of
    `target` with `units` compute units."""
    p = TiledProduct(M, N, K, item_size, target, units, fnuz)
    return min(tiled_candidates(p), key=lambda found: found[1])[0]


def tiled_candidates(p: TiledProduct) -> Iterator[tuple[GemmConfig, float]]:
    """Configurations that can compute the product, each with its clocks by the model."""
    for BM, BN, warps, rows, resident in _TILES:
        if p.N % 8 and BM * BN > _MOST_NARROW:
            continue
        tiles = cdiv(p.M, BM) * cdiv(p.N, BN)
        most = min(p.units * resident // tiles, cdiv(p.K, p.BK) // _LEAST_STEPS) if tiles <= _MOST_SPLIT_TILES else 1
        for splits in (1, *(s for s in _SPLITS if s <= most)):
            config = GemmConfig("tiled", BM, BN, p.BK, 2, _GROUP, SPLITS=splits, WARPS=warps, ROWS=rows, XCDS=p.xcds)
            yield config, tiled_clocks(p, config, resident)


def tiled_clocks(p: TiledProduct, c: GemmConfig, resident: int) -> float:
    """Clocks that the product takes; `resident`: CTAs that a compute unit holds."""
    tiles = cdiv(p.M, c.BM) * cdiv(p.N, c.BN)
    steps = cdiv(cdiv(p.K, c.BK), c.SPLITS)
    step = _step_clocks(p, c)
    end = c.BM * c.BN * (2 if c.SPLITS == 1 else 4) / _STORE_BYTES
    fullest = cdiv(tiles * c.SPLITS, p.units)
    rounds, rest = divmod(fullest, resident)
    busy = 0.0
    for n in [resident] * min(rounds, 1) + [rest] * (rest > 0):
        times = rounds if n == resident else 1
        busy += times * (_START + steps * (_LATENCY**4 + (n * step) ** 4) ** 0.25 + n * end)
    moved = p.item_size * (p.M * p.K + p.K * p.N) + 2 * p.M * p.N
    if c.SPLITS > 1:
        busy += _SPLIT + c.SPLITS * c.BM * c.BN * 4 / _STORE_BYTES
        moved += 8 * c.SPLITS * tiles * c.BM * c.BN
    memory = moved / (p.machine.memory * p.machine.units)
    return (busy**3 + memory**3) ** (1 / 3)


def _step_clocks(p: TiledProduct, c: GemmConfig) -> float:
    """Clocks that a compute unit is busy with one step of a tile: products, shared memory, L2."""
    products = c.BM * c.BN * c.BK / p.rate
    line = c.BK * (2 if p.rate == p.machine.rate else p.item_size)
    rows, columns = c.BM, c.BN
    for _ in range(c.WARPS.bit_length() - 1):  # a wave's part: as square as can be
        rows, columns = (rows // 2, columns) if rows > columns else (rows, columns // 2)
    shared = (c.BM + c.BN + c.WARPS * (rows + columns)) * line / _SHARED_BYTES
    cached = (c.BM + c.BN) * c.BK * p.item_size * p.machine.xcd_units / _L2_BYTES
    return (products**4 + shared**4 + cached**4) ** 0.25
