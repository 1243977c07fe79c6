# pyright: basic
"""How products of one shape, with one set of strides and types, are launched.

Owns: which operands TMA can copy, grids, block shapes, the workspace of products whose K is split. Assumes operands that fit
together: `matmul` checks them. Must not know how a configuration is chosen beyond asking `choose`.
"""

from __future__ import annotations

from typing import Any

from mimw.jit import cdiv
from mimw.kernels import gemm
from mimw.kernels.gemm_config import GemmConfig, choose
from mimw.runtime import driver_api
from mimw.runtime.arrays import ITEM_SIZE, ArrayInfo
from mimw.runtime.launch import CompiledKernel, PreparedLaunch, raw_stream
from mimw.runtime.tensor_descriptor import ALIGNMENT, TensorDescriptor

_SIMULATED_SMS = 2  # a simulated grid is small, so that persistent loops run more than one round


class Epilogue:
    """What happens to a product before it is rounded: activation(scale * product + bias). And where the launch goes.

    `special` is what of it becomes part of the code.
    """

    __slots__ = ("activation", "bias", "scale", "special", "stream")

    def __init__(
        self, bias: Any, info: ArrayInfo | None, scale: float | None, activation: str | None, stream: Any
    ) -> None:  # fmt: skip
        self.bias, self.scale, self.activation, self.stream = bias, scale, activation, stream
        how = None if info is None else (info.dtype, info.ptr % ALIGNMENT == 0)
        self.special = (how, scale is None, activation)


def plan_for(a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig | None) -> TmaPlan | PlainPlan:
    """The plan for these operands, by `config` where it is given. Without TMA it is a `PlainPlan`."""
    (M, K), N = a.shape, b.shape[1]
    a_by_columns, b_by_columns = _operand_majors(a, b)
    if K > 0 and a_by_columns is not None and b_by_columns is not None:
        sms = _SIMULATED_SMS if a.kind != "cuda" else driver_api.device_attribute(a.device, "MULTIPROCESSOR_COUNT")
        chosen = config or choose(M, N, K, ITEM_SIZE[a.dtype], sms)
        if chosen.SPLITS > 1 or False in _majors(c):
            return TmaPlan(a, b, c, chosen, a_by_columns, b_by_columns, sms)
    return PlainPlan(a, b, c)


class TmaPlan:
    """Launches one of the warp-specialised kernels; where K is split, the sum of the parts after it."""

    __slots__ = (
        "K",
        "M",
        "N",
        "_extents",
        "_prepared",
        "a_by_columns",
        "b_by_columns",
        "config",
        "device",
        "fn",
        "grid",
        "options",
        "strides",
        "workspace",
    )

    def __init__(
        self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig, a_by_columns: bool, b_by_columns: bool, sms: int
    ) -> None:  # fmt: skip
        (self.M, self.K), self.N = a.shape, b.shape[1]
        self.strides = (*a.strides, *b.strides, *c.strides)
        self.device = a.device
        # Launches that need no specialisation any more, by what of the epilogue is code; an extent of 1 is a constant of the code.
        self._prepared: dict[tuple[Any, ...], PreparedLaunch] = {}
        self._extents = [n for n in (self.M, self.N, self.K) if n != 1]
        self.config, self.a_by_columns, self.b_by_columns = config, a_by_columns, b_by_columns
        self.fn = gemm.gemm_cooperative if config.kernel == "cooperative" else gemm.gemm_pingpong
        tiles_m, tiles_n = cdiv(self.M, config.BM * config.CLUSTER), cdiv(self.N, config.BN)
        items = tiles_m * tiles_n * config.SPLITS
        self.grid = (config.CLUSTER * max(1, min(items, sms // config.CLUSTER)),)
        # Parts of whole tiles: a store at a part's lower edge must not reach the next one. Rows of 16 bytes, for TMA.
        self.workspace = (config.SPLITS, tiles_m * config.CLUSTER * config.BM, cdiv(self.N, 4) * 4)
        wide = ITEM_SIZE[c.dtype] == 4 or config.SPLITS > 1
        self.options: dict[str, Any] = {
            "BM": config.BM, "BN": config.BN, "BK": config.BK, "STAGES": config.STAGES, "GROUP_M": config.GROUP_M,
            "COLUMNS": config.COLUMNS // 2 if wide else config.COLUMNS,
            "A_BY_COLUMNS": a_by_columns, "B_BY_COLUMNS": b_by_columns, "CLUSTER": config.CLUSTER, "num_warps": 4,
        }  # fmt: skip
        if config.kernel == "cooperative":
            self.options["SPLITS"] = config.SPLITS
        if config.CLUSTER > 1:
            self.options["ctas_per_cga"] = (config.CLUSTER, 1, 1)

    def run(self, a: Any, b: Any, c: Any, end: Epilogue) -> None:
        """Launch for arrays of this plan's shapes and strides."""
        if self.config.SPLITS == 1:
            return self._multiply(
                a, b, TensorDescriptor(c, (self.M, self.N), self.strides[4:], self._store_block()), end
            )
        splits, rows, columns = self.workspace
        parts = self._parts(a, (splits * rows, columns), end.stream)
        whole = TensorDescriptor.from_tensor(parts, self._store_block())
        self._multiply(a, b, whole, Epilogue(None, None, None, None, end.stream))
        gemm.sum_parts[(cdiv(self.M, 8), cdiv(self.N, 128))](
            parts, c, self.M, self.N, rows * columns, columns, *self.strides[4:], end.bias, end.scale,
            SPLITS=splits, ROWS=8, COLUMNS=128, ACTIVATION=end.activation, num_warps=4, stream=end.stream,
        )  # fmt: skip
        return None

    def _multiply(self, a: Any, b: Any, c: TensorDescriptor, end: Epilogue) -> None:
        left = _described(a, (self.M, self.K), self.strides[:2], self.a_block(), self.a_by_columns)
        right = _described(b, (self.K, self.N), self.strides[2:4], self.b_block(), self.b_by_columns)
        prepared = self._prepared.get(end.special)
        if prepared is not None:
            ends = [x for x in (end.bias, end.scale) if x is not None]
            prepared(left, right, c, *self._extents, *ends, stream=end.stream)
            return
        kernel = self.fn[self.grid](
            left, right, c, self.M, self.N, self.K, bias=end.bias, scale=end.scale, ACTIVATION=end.activation,
            stream=end.stream, **self.options,
        )  # fmt: skip
        if isinstance(kernel, CompiledKernel):  # not in the simulator
            self._prepared[end.special] = kernel[self.grid]

    def a_block(self) -> tuple[int, int]:
        """Rows and columns of a that one copy moves."""
        return self.config.BM, self.config.BK

    def b_block(self) -> tuple[int, int]:
        """Rows and columns of b that one copy moves: in a cluster, half along the slower dimension."""
        BK, BN, CLUSTER = self.config.BK, self.config.BN, self.config.CLUSTER
        return (BK, BN // CLUSTER) if self.b_by_columns else (BK // CLUSTER, BN)

    def _store_block(self) -> tuple[int, int]:
        rows = self.config.BM // 2 if self.config.kernel == "cooperative" else self.config.BM
        return rows, self.options["COLUMNS"]

    def _parts(self, a: Any, shape: tuple[int, int], stream: Any) -> Any:
        """f32 memory beside a."""
        if self.device < 0:
            import numpy as np

            return np.empty(shape, np.float32)
        import torch  # pyright: ignore[reportMissingImports]

        parts = torch.empty(shape, dtype=torch.float32, device=f"cuda:{self.device}")
        if stream is not None:  # torch may give memory of its current stream to others too early
            parts.record_stream(torch.cuda.ExternalStream(raw_stream(stream), device=self.device))
        return parts


class PlainPlan:
    """Launches the kernel that takes any strides."""

    __slots__ = ("K", "M", "N", "strides")

    def __init__(self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo) -> None:
        (self.M, self.K), self.N = a.shape, b.shape[1]
        self.strides = (*a.strides, *b.strides, *c.strides)

    def run(self, a: Any, b: Any, c: Any, end: Epilogue) -> None:
        """Launch for arrays of this plan's shapes and strides."""
        BM, BN = (128, 128) if min(self.M, self.N) > 64 else (64, 64)
        gemm.gemm_plain[(cdiv(self.M, BM) * cdiv(self.N, BN),)](
            a, b, c, self.M, self.N, self.K, *self.strides, end.bias, end.scale,
            BM=BM, BN=BN, BK=64, GROUP_M=8, ACTIVATION=end.activation, num_warps=4, num_stages=3, stream=end.stream,
        )  # fmt: skip


def _operand_majors(a: ArrayInfo, b: ArrayInfo) -> tuple[bool | None, bool | None]:
    """Whether a and b are copied by columns; None for one that TMA cannot copy, or wgmma not read."""
    ways = _majors(a), _majors(b)
    if ITEM_SIZE[a.dtype] > 1:
        return ways[0][0] if ways[0] else None, ways[1][0] if ways[1] else None
    # wgmma takes 8-bit operands along K only.
    return False if False in ways[0] else None, True if True in ways[1] else None


def _majors(x: ArrayInfo) -> tuple[bool, ...]:
    """How TMA can copy a matrix: by rows (False), by columns (True), both or neither."""
    if x.ptr % ALIGNMENT:
        return ()
    return tuple(by_columns for by_columns in (False, True) if _dense(x, by_columns))


def _dense(x: ArrayInfo, by_columns: bool) -> bool:
    """Whether one dimension's elements lie beside each other, and the other's stride suits TMA."""
    outer, inner = (1, 0) if by_columns else (0, 1)
    step = x.strides[outer] * ITEM_SIZE[x.dtype]
    beside = x.strides[inner] == 1 or x.shape[inner] == 1
    return beside and (x.shape[outer] == 1 or (step > 0 and step % ALIGNMENT == 0))


def _described(
    x: Any, shape: tuple[int, int], strides: tuple[int, ...], block: tuple[int, int], by_columns: bool
) -> TensorDescriptor:  # fmt: skip
    """The descriptor of a matrix, transposed where its columns are dense."""
    if by_columns:
        return TensorDescriptor(x, shape[::-1], strides[::-1], block[::-1])
    return TensorDescriptor(x, shape, strides, block)
