# pyright: reportConstantRedefinition=false
"""Which configuration a product gets: the fastest by a model of what bounds a persistent GEMM, fitted to measurements.

Fitted to 3,300 timings on an H200 (59 products, bf16 and fp8, 64 tiles with and without clusters), first to the times themselves (root mean square
error 4 %), then gently to what is picked: on those products the picked configuration is 0.9 % slower than the best measured one in the geometric
mean, 7 % at most; on products held out of the second step 0.9 and 1.6 %. Times are microseconds. Must not know arrays, devices or launches.
"""

from __future__ import annotations

from collections.abc import Iterator

from mimw.jit import cdiv
from mimw.kernels.gemm_config import GemmConfig

# What one multiprocessor does a microsecond with 16-bit operands: multiply-adds alone, and as one of many that share the power limit; bytes it
# gets from L2.
_RATE_ALONE, _RATE_TOGETHER = 3.385e6, 3.221e6
_L2_BYTES = 200e3
_TORN_ROW = 1.95  # a block's row that is not aligned to 128 bytes costs this much more
_DRAM_BYTES = 4.06e6  # all multiprocessors together
_LAUNCH = 5.74
_CLUSTER = 2.47  # starting and ending together
# Of a 128x256 tile: cooperative consumers stand still for each tile, ping-pong ones for the last.
_EPILOGUE_EACH, _EPILOGUE_LAST = 0.701, 0.548
_STORE, _STORE_TORN, _STORE_NARROW = 2.158, 0.673, 0.039
_LONE_CONSUMER = 0.08  # ping-pong with one tile: nobody fills the gaps
_SPLIT, _PART = 2.45, 0.91  # counting; getting and adding one part
_LEAST_STEPS = 8  # that a part of K has

# kernel, BM, BN, COLUMNS, transposed, side by side; the last: how much slower than its size says.
_TILES = (
    ("cooperative", 128, 256, 64, False, False, 0.97),
    ("cooperative", 128, 128, 64, False, False, 1.006),
    ("cooperative", 128, 64, 64, False, False, 1.296),
    ("cooperative", 256, 192, 32, False, False, 0.98),
    ("cooperative", 128, 192, 64, False, False, 0.986),
    ("cooperative", 208, 192, 8, True, True, 0.967),
    ("cooperative", 240, 128, 48, True, False, 0.99),
    ("pingpong", 64, 64, 64, False, False, 1.35),
    ("pingpong", 64, 128, 64, False, False, 1.287),
    ("pingpong", 128, 128, 32, False, False, 1.02),
    ("pingpong", 128, 192, 32, False, False, 0.979),
    ("pingpong", 128, 192, 16, True, False, 0.993),
    ("pingpong", 144, 128, 16, True, False, 0.996),
    ("pingpong", 160, 128, 32, True, False, 0.985),
    ("pingpong", 176, 128, 16, True, False, 0.997),
    ("pingpong", 192, 128, 32, True, False, 0.963),
    ("pingpong", 208, 64, 16, True, False, 1.095),
    ("pingpong", 208, 128, 16, True, False, 0.967),
    ("pingpong", 240, 64, 48, True, False, 1.054),
)
# Rows of tiles that are walked together. Measured on 30 products: where all of the operand that the columns take stays in L2, short groups are up to
# 1 % faster than 8; else the best group's rows are 12 to 17 MB (4 % faster than 8 at 8576x5984x1472), of long ones the part that is being read.
_SHORT_GROUP, _GROUPS, _IN_L2, _ROW_PART = 4, (24, 16, 12, 8), 17e6, 8192
_SPLITS = (2, 3, 4, 6, 8)
_SPLIT_TILES = ((128, 256, 0.92), (128, 128, 1.0), (128, 64, 1.3), (64, 128, 1.282), (64, 64, 2.0))
_CLUSTERS = ((1, 1), (2, 1), (1, 2))
_SHARED_BYTES = 232_448 - 1_280  # for slots and store buffers
_MOST_STAGES = 12
_MOST_ACCUMULATOR = 96  # registers of a thread, where each slot's products are added to another set


class Product:
    """A product to choose for: extents, bytes of an element, which operands are dense along columns, multiprocessors."""

    __slots__ = (
        "K",
        "M",
        "N",
        "a_by_columns",
        "b_by_columns",
        "item_size",
        "sms",
        "steps",
        "torn_a",
        "torn_b",
        "torn_c",
    )

    def __init__(
        self, M: int, N: int, K: int, item_size: int, sms: int, a_by_columns: bool, b_by_columns: bool
    ) -> None:  # fmt: skip
        self.M, self.N, self.K = M, N, K
        self.item_size, self.sms = item_size, sms
        self.a_by_columns, self.b_by_columns = a_by_columns, b_by_columns
        self.steps = cdiv(K * item_size, 128)
        self.torn_a = (M if a_by_columns else K) * item_size % 128 != 0
        self.torn_b = (K if b_by_columns else N) * item_size % 128 != 0
        self.torn_c = N * 2 % 128 != 0


def choose(
    M: int, N: int, K: int, item_size: int = 2, sms: int = 132, precise: bool = False,
    a_by_columns: bool = False, b_by_columns: bool = False,
) -> GemmConfig:  # fmt: skip
    """The configuration for a product of this shape: elements of `item_size` bytes, a device with `sms` multiprocessors. `precise`: see `matmul`."""
    p = Product(M, N, K, item_size, sms, a_by_columns, b_by_columns)
    return min(candidates(p, precise), key=lambda found: found[1])[0]


def candidates(p: Product, precise: bool) -> Iterator[tuple[GemmConfig, float]]:
    """Configurations that can compute the product, each with its time by the model."""
    BK = 128 // p.item_size
    for kernel, BM, BN, columns, transposed, side_by_side, factor in _TILES:
        if not _fits(p, kernel, BM, BN, transposed, side_by_side, precise):
            continue
        stages = _stages(kernel, BM, BN, columns, transposed, side_by_side)
        for m, n in _CLUSTERS:
            group = _group(p, BN * n if transposed else BM * m, p.M if transposed else p.N)
            config = GemmConfig(kernel, BM, BN, BK, stages, group, columns, m, n, 1, 2, transposed, side_by_side)
            yield config, tile_time(p, config, factor)
    for BM, BN, factor in _SPLIT_TILES:
        if precise and BM * BN // (128 * (2 if BM > 64 else 1)) > _MOST_ACCUMULATOR:
            continue
        most = min(p.sms // (cdiv(p.M, BM) * cdiv(p.N, BN)), p.steps // _LEAST_STEPS)
        for splits in (s for s in _SPLITS if s <= most):
            config = GemmConfig(
                "split", BM, BN, BK, min(_MOST_STAGES, _SHARED_BYTES // ((BM + BN) * 128)), SPLITS=splits
            )
            yield config, split_time(p, config, factor)


def _fits(
    p: Product, kernel: str, BM: int, BN: int, transposed: bool, side_by_side: bool, precise: bool
) -> bool:  # fmt: skip
    """Whether a tile's steps suit the operands: what is dense along the wrong dimension comes in chunks of 128 bytes."""
    chunk = 128 // p.item_size
    if (p.a_by_columns and BM % chunk) or (not p.b_by_columns and BN % chunk):
        return False
    if (
        side_by_side
        and (p.a_by_columns if transposed else not p.b_by_columns)
        and (BM if transposed else BN) // 2 % chunk
    ):
        return False
    halves = 2 if kernel == "cooperative" else 1
    return not precise or BM * BN // (128 * halves) <= _MOST_ACCUMULATOR


def _group(p: Product, rows: int, columns: int) -> int:
    """How many rows of tiles are walked together, each of `rows` rows as the kernel computes them; `columns`: all of the other side."""
    if columns * p.K * p.item_size <= _IN_L2:
        return _SHORT_GROUP
    most = _IN_L2 / (rows * min(p.K * p.item_size, _ROW_PART))
    return next((group for group in _GROUPS if group <= most), _GROUPS[-1])


def _stages(kernel: str, BM: int, BN: int, columns: int, transposed: bool, side_by_side: bool) -> int:
    """Slots that shared memory holds beside the store buffers (of 16-bit results, two a consumer)."""
    rows = BN if transposed else BM
    if kernel == "cooperative" and not side_by_side:
        rows //= 2
    return min(_MOST_STAGES, (_SHARED_BYTES - rows * columns * 2 * 4) // ((BM + BN) * 128))


def tile_time(p: Product, c: GemmConfig, factor: float) -> float:
    """Microseconds that one of the persistent kernels takes; `factor`: of its tile."""
    cluster = c.CLUSTER_M * c.CLUSTER_N
    tiles = cdiv(p.M, c.BM * c.CLUSTER_M) * cdiv(p.N, c.BN * c.CLUSTER_N)
    slots = p.sms // cluster
    waves, exact = cdiv(tiles, slots), tiles / slots
    work = c.BM * c.BN * 64 * p.steps * factor
    lone = c.kernel == "pingpong" and waves <= 1
    alone = waves * work / _RATE_ALONE * (1 + _LONE_CONSUMER if lone else 1.0)
    together = exact * work / _RATE_TOGETHER
    memory = p.item_size * (p.M * p.K + p.K * p.N) + 2 * p.M * p.N
    size = c.BM * c.BN / 32768
    narrow = 0.0 if c.TRANSPOSED else max(0.0, 64 / c.COLUMNS - 1)
    store = waves * size * (_STORE + p.torn_c * _STORE_TORN * (1 + narrow) + _STORE_NARROW * narrow)
    core = (alone**3 + together**3 + (memory / _DRAM_BYTES) ** 3 + store**3) ** (1 / 3)
    core = (core**5 + (waves * p.steps * _load_time(p, c)) ** 5) ** 0.2
    epilogue = size * (_EPILOGUE_LAST if c.kernel == "pingpong" else _EPILOGUE_EACH * waves)
    return _LAUNCH + core + epilogue + (_CLUSTER if cluster > 1 else 0.0)


def _load_time(p: Product, c: GemmConfig) -> float:
    """Microseconds until a slot's bytes come out of L2."""
    rows = c.BM / c.CLUSTER_N * (1 + _TORN_ROW * p.torn_a) + c.BN / c.CLUSTER_M * (1 + _TORN_ROW * p.torn_b)
    return rows * 128 / _L2_BYTES


def split_time(p: Product, c: GemmConfig, factor: float) -> float:
    """Microseconds that the kernel whose CTAs share tiles takes."""
    steps = cdiv(p.steps, c.SPLITS)
    work = steps * c.BM * c.BN * 64 * factor
    busy = cdiv(p.M, c.BM) * cdiv(p.N, c.BN) * c.SPLITS / p.sms
    memory = p.item_size * (p.M * p.K + p.K * p.N) / _DRAM_BYTES
    core = ((work / _RATE_ALONE) ** 3 + (busy * work / _RATE_TOGETHER) ** 3 + memory**3) ** (1 / 3)
    core = (core**5 + (steps * _load_time(p, c)) ** 5) ** 0.2
    return _LAUNCH + core + _SPLIT + _PART * c.SPLITS
