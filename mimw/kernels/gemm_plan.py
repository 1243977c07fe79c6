# pyright: basic
"""How products of one shape, with one set of strides and types, are launched.

Owns: which operands TMA can copy, grids, block shapes. Assumes operands that fit
together: `matmul` checks them. Must not know how a configuration is chosen beyond asking `choose`.
"""

from __future__ import annotations

import math
from typing import Any

from mimw.diagnostics import CompilationError, LaunchError
from mimw.jit import cdiv
from mimw.kernels import gemm, gemm_tiled
from mimw.kernels.gemm_choice import choose
from mimw.kernels.gemm_choice_tiled import choose_tiled
from mimw.kernels.gemm_config import GemmConfig
from mimw.kernels.gemm_workspace import Workspace
from mimw.runtime.arrays import ITEM_SIZE, ArrayInfo, describe
from mimw.runtime.drivers import device_driver
from mimw.runtime.launch import CompiledKernel, PreparedLaunch
from mimw.runtime.launch_errors import caller_loc
from mimw.runtime.tensor_descriptor import ALIGNMENT, TensorDescriptor
from mimw.target import Target, get_target

FNUZ = ("f8e4m3fnuz", "f8e5m2fnuz")
"""The 8-bit floats that only v_mfma takes; elsewhere the kernel for any strides multiplies them as f16."""

_FARTHEST = 2**22  # elements between lines: 256 lines are less than 2^31 apart
_SIMULATED_SMS = 2  # a simulated grid is small, so that persistent loops run more than one round


class Epilogue:
    """What happens to a product before it is rounded: activation(scale * product + bias) + residual. And how it is summed, where the launch goes.

    `special` is what of it becomes part of the code.
    """

    __slots__ = ("activation", "bias", "precise", "residual", "scale", "special", "stream")

    def __init__(
        self, bias: Any = None, scale: Any = None, residual: Any = None, activation: str | None = None, precise: bool = False,
        stream: Any = None, kinds: tuple[Any, ...] = (),
    ) -> None:  # fmt: skip
        self.bias, self.scale, self.residual, self.activation = bias, scale, residual, activation
        self.precise, self.stream = precise, stream
        self.special = (*kinds, activation, precise)

    def residual_strides(self) -> tuple[int, ...]:
        """Those of the residual, which must be there."""
        info = describe(self.residual)
        assert isinstance(info, ArrayInfo)
        return info.strides

    def steps(self, M: int, N: int) -> dict[str, int]:
        """STEP_M and STEP_N of the kernels' `finish`, for a result of M x N."""
        if self.residual is None:
            return {}
        row, column = self.residual_strides()
        if column == 1:
            return {"STEP_N": math.gcd(8, N, row)}
        return {"STEP_M": math.gcd(8, M, column)} if row == 1 else {}

    def arguments(self) -> dict[str, Any]:
        """As the kernels take it."""
        strides: Any = (None, None)
        if self.residual is not None:
            strides = self.residual_strides()
            if max(map(abs, strides)) >= _FARTHEST:  # as i64, which makes the kernels count in 64 bits
                import numpy as np

                strides = tuple(map(np.int64, strides))
        return {
            "bias": self.bias, "scale": self.scale, "residual": self.residual, "stride_rm": strides[0], "stride_rn": strides[1],
        }  # fmt: skip


def plan_for(a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig | None, precise: bool) -> Plan:
    """The plan for these operands, by `config` where it is given. Where no configuration fits it is a `PlainPlan`."""
    if a.shape[1] == 0:
        return PlainPlan(a, b, c)
    target, units = _machine(a)
    tiled = target.has("mfma") if config is None else config.kernel == "tiled"
    return (_tiled_plan if tiled else _tma_plan)(a, b, c, config, precise, target, units)


def simulated_machine() -> Target:
    """What products of host arrays are chosen for: the machine whose code launches run (``MIMW_SIM``), Hopper in the tile simulator."""
    from mimw.simulated_device import chosen_target  # at once, it would load the simulators where nothing is simulated

    return chosen_target() or get_target("sm_90a")


def _machine(a: ArrayInfo) -> tuple[Target, int]:
    """What the operands' device is, and how many multiprocessors or compute units it has; for host arrays what is simulated."""
    if a.kind != "cuda":
        return simulated_machine(), _SIMULATED_SMS
    driver = device_driver()
    name = driver.target_name(a.device)
    if name is None:
        text = f"matmul cannot run on cuda:{a.device}: mimw has no target for this device"
        raise LaunchError("launch-target", text, caller_loc())
    return get_target(name), driver.device_attribute(a.device, "MULTIPROCESSOR_COUNT")


def _tma_plan(
    a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig | None, precise: bool, target: Target, sms: int
) -> Plan:  # fmt: skip
    """One of the warp-specialised kernels, chosen where the target has their instructions."""
    a_by_columns, b_by_columns = _operand_majors(a, b)
    if a_by_columns is None or b_by_columns is None or (config is None and not target.has("wgmma")):
        return PlainPlan(a, b, c)
    chosen = config or choose(
        a.shape[0], b.shape[1], a.shape[1], ITEM_SIZE[a.dtype], sms, precise, a_by_columns, b_by_columns
    )
    if chosen.kernel == "split":
        return SplitPlan(a, b, c, chosen, a_by_columns, b_by_columns)
    if _majors(c):
        return TilePlan(a, b, c, chosen, a_by_columns, b_by_columns, _majors(c)[0], sms)
    return PlainPlan(a, b, c)


def _tiled_plan(
    a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig | None, precise: bool, target: Target, units: int
) -> Plan:  # fmt: skip
    """The kernel for v_mfma, which takes operands that are dense along one dimension and not too far apart along the other."""
    a_by_columns, b_by_columns = _dense_along(a), _dense_along(b)
    if a_by_columns is None or b_by_columns is None:
        return PlainPlan(a, b, c)
    chosen = config or choose_tiled(
        a.shape[0], b.shape[1], a.shape[1], ITEM_SIZE[a.dtype], target, units, a.dtype in FNUZ
    )
    return TiledPlan(a, b, c, chosen, a_by_columns, b_by_columns)


class Plan:
    """Launches a kernel for operands of one kind. `K`, `M`, `N` are the extents, `strides` those of a, b, c; `takes_precise`: whether the kernel
    knows two ways to sum 8-bit floats."""

    __slots__ = ("K", "M", "N", "_on_device", "_prepared", "fn", "grid", "options", "strides")

    takes_precise = True

    fn: Any
    grid: tuple[int, ...]
    options: dict[str, Any]

    def __init__(self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo) -> None:
        (self.M, self.K), self.N = a.shape, b.shape[1]
        self.strides = (*a.strides, *b.strides, *c.strides)
        self._on_device = a.kind == "cuda"
        # Launches that need no specialisation any more, by what of the epilogue is code.
        self._prepared: dict[tuple[Any, ...], PreparedLaunch] = {}

    def operands(self, a: Any, b: Any, c: Any, stream: Any) -> tuple[list[Any], list[int]]:
        """What the kernel takes before the epilogue: arrays and descriptors, then integers."""
        raise NotImplementedError

    def arguments(self, end: Epilogue) -> dict[str, Any]:
        """The epilogue as the kernel takes it."""
        return end.arguments()

    def steps(self, end: Epilogue) -> dict[str, int]:
        """What the kernel may know of the residual's extents and strides."""
        return end.steps(self.M, self.N)

    def _launch(self, end: Epilogue, passed: list[Any], options: dict[str, Any]) -> Any:
        """Launch with as many slots as the options ask for, or fewer where the epilogue needs the shared memory."""
        while True:
            try:
                return self.fn[self.grid](*passed, ACTIVATION=end.activation, stream=end.stream, **options)
            except CompilationError as error:
                if error.code != "shared-memory" or options.get("STAGES", 0) <= 2:
                    raise
            options["STAGES"] -= 1

    def run(self, a: Any, b: Any, c: Any, end: Epilogue) -> None:
        """Launch for arrays of this plan's shapes and strides."""
        arrays, integers = self.operands(a, b, c, end.stream)
        ends = self.arguments(end)
        prepared = self._prepared.get(end.special)
        if prepared is not None:
            # Arguments that are None, and integers that are 1, are constants of the code.
            given = (*arrays, *integers, *ends.values())
            kept = [x for x in given if x is not None and not (type(x) is int and x == 1)]
            prepared(*kept, stream=end.stream)
            return
        options = {**self.options, **self.steps(end)}
        if self.takes_precise:
            options["PRECISE"] = end.precise
        kernel = self._launch(end, [*arrays, *integers], {**ends, **options})
        if self._on_device and isinstance(kernel, CompiledKernel):
            self._prepared[end.special] = kernel[self.grid]


class Operand:
    """A matrix as a kernel takes it: `by_columns` says which dimension is dense, `block` what one copy moves, rows and columns."""

    __slots__ = ("block", "by_columns", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], by_columns: bool) -> None:
        self.shape, self.strides, self.by_columns = shape, strides, by_columns
        self.block: tuple[int, ...] = (0, 0)

    def transposed(self) -> Operand:
        """The same memory, rows and columns exchanged."""
        return Operand(self.shape[::-1], self.strides[::-1], not self.by_columns)

    def share(self, parts: int) -> None:
        """Of CTAs that share a block, each copies a part of it along the slower dimension."""
        rows, columns = self.block
        self.block = (rows, columns // parts) if self.by_columns else (rows // parts, columns)

    def described(self, x: Any) -> TensorDescriptor:
        """A descriptor of array x, the dense dimension last."""
        if self.by_columns:
            return TensorDescriptor(x, self.shape[::-1], self.strides[::-1], self.block[::-1])
        return TensorDescriptor(x, self.shape, self.strides, self.block)


class TmaPlan(Plan):
    """What the warp-specialised kernels have in common. `left` and `right` are the kernel's operands: a and b, or b.T and a.T."""

    __slots__ = ("config", "left", "right")

    def __init__(
        self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig, a_by_columns: bool, b_by_columns: bool
    ) -> None:  # fmt: skip
        super().__init__(a, b, c)
        self.config = config
        rows, columns = config.BM, config.BN
        left = Operand((self.M, self.K), self.strides[:2], a_by_columns)
        right = Operand((self.K, self.N), self.strides[2:4], b_by_columns)
        if config.TRANSPOSED:
            left, right, rows, columns = right.transposed(), left.transposed(), columns, rows
        left.block, right.block = (rows, config.BK), (config.BK, columns)
        self.left, self.right = left, right
        self.options = {
            "BM": rows, "BN": columns, "BK": config.BK, "STAGES": config.STAGES, "GROUP_M": config.GROUP_M,
            "A_BY_COLUMNS": left.by_columns, "B_BY_COLUMNS": right.by_columns, "num_warps": 4,
        }  # fmt: skip

    def descriptors(self, a: Any, b: Any) -> list[Any]:
        """Of the operands."""
        if self.config.TRANSPOSED:
            a, b = b, a
        return [self.left.described(a), self.right.described(b)]


class TilePlan(TmaPlan):
    """Launches one of the persistent kernels."""

    __slots__ = ("out",)

    def __init__(
        self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig,
        a_by_columns: bool, b_by_columns: bool, c_by_columns: bool, sms: int,
    ) -> None:  # fmt: skip
        super().__init__(a, b, c, config, a_by_columns, b_by_columns)
        cooperative = config.kernel == "cooperative"
        self.fn = gemm.gemm_cooperative if cooperative else gemm.gemm_pingpong
        out = Operand((self.M, self.N), self.strides[4:], c_by_columns)
        m, n = config.CLUSTER_M, config.CLUSTER_N
        if config.TRANSPOSED:
            out, m, n = out.transposed(), n, m
        self.left.share(n)
        self.right.share(m)
        columns = config.columns_for(ITEM_SIZE[c.dtype])
        halves = cooperative and not config.SIDE_BY_SIDE
        out.block = (self.options["BM"] // 2 if halves else self.options["BM"], columns)
        self.out = out
        tiles = cdiv(self.M, config.BM * config.CLUSTER_M) * cdiv(self.N, config.BN * config.CLUSTER_N)
        self.grid = (m * n * max(1, min(tiles, sms // (m * n))),)
        self.options |= {"COLUMNS": columns, "BUFFERS": config.BUFFERS, "CLUSTER_M": m, "CLUSTER_N": n}
        self.options |= {"C_BY_COLUMNS": out.by_columns, "BIAS_BY_ROWS": config.TRANSPOSED}
        if cooperative:
            self.options["SIDE_BY_SIDE"] = config.SIDE_BY_SIDE
        if m * n > 1:
            self.options["ctas_per_cga"] = (m * n, 1, 1)

    def operands(self, a: Any, b: Any, c: Any, stream: Any) -> tuple[list[Any], list[int]]:
        return [*self.descriptors(a, b), self.out.described(c)], [*self.out.shape, self.K]

    def arguments(self, end: Epilogue) -> dict[str, Any]:
        found = end.arguments()
        if self.config.TRANSPOSED:
            found["stride_rm"], found["stride_rn"] = found["stride_rn"], found["stride_rm"]
        return found

    def steps(self, end: Epilogue) -> dict[str, int]:
        exchanged = {"STEP_M": "STEP_N", "STEP_N": "STEP_M"}
        return {exchanged[k] if self.config.TRANSPOSED else k: n for k, n in end.steps(self.M, self.N).items()}


class SplitPlan(TmaPlan):
    """Launches the kernel whose CTAs share tiles; keeps its workspace."""

    __slots__ = ("device", "space")

    def __init__(
        self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig, a_by_columns: bool, b_by_columns: bool
    ) -> None:  # fmt: skip
        super().__init__(a, b, c, config, a_by_columns, b_by_columns)
        tiles = cdiv(self.M, config.BM) * cdiv(self.N, config.BN)
        self.fn = gemm.gemm_split
        self.grid = (tiles * config.SPLITS,)
        self.options["SPLITS"] = config.SPLITS
        self.device = a.device
        self.space = Workspace(tiles * config.SPLITS * config.BM * config.BN, 2 * tiles)

    def operands(self, a: Any, b: Any, c: Any, stream: Any) -> tuple[list[Any], list[int]]:
        parts, counters = self.space.take(self.device, stream)
        return [*self.descriptors(a, b), c, parts, counters], [self.M, self.N, self.K, *self.strides[4:]]


class TiledPlan(Plan):
    """Launches the kernel that all warps of a CTA share; keeps its workspace where CTAs share tiles."""

    __slots__ = ("device", "lines", "space", "widest")

    takes_precise = False  # v_mfma sums 8-bit floats in f32

    def __init__(
        self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo, config: GemmConfig, a_by_columns: bool, b_by_columns: bool
    ) -> None:  # fmt: skip
        super().__init__(a, b, c)
        self.fn = gemm_tiled.gemm_tiled
        self.widest = 16 // ITEM_SIZE[a.dtype]
        self.lines = (self.strides[1 if a_by_columns else 0], self.strides[3 if b_by_columns else 2])
        tiles = cdiv(self.M, config.BM) * cdiv(self.N, config.BN)
        self.grid = (tiles * config.SPLITS,)
        self.device = a.device
        c_by_columns = self.strides[4] == 1 and self.strides[5] != 1
        self.space = Workspace(tiles * config.SPLITS * config.BM * config.BN, tiles) if config.SPLITS > 1 else None
        self.options = {
            "BM": config.BM, "BN": config.BN, "BK": config.BK, "GROUP_M": config.GROUP_M, "ROWS": config.ROWS,
            "SPLITS": config.SPLITS, "XCDS": config.XCDS, "A_BY_COLUMNS": a_by_columns, "B_BY_COLUMNS": b_by_columns,
            "WHOLE_M": self.M % config.BM == 0, "WHOLE_N": self.N % config.BN == 0, "WHOLE_K": self.K % config.BK == 0,
            "STEP": self._step(a_by_columns, c_by_columns), "C_BY_COLUMNS": c_by_columns, "num_warps": config.WARPS, "num_stages": config.STAGES,
        }  # fmt: skip

    def _step(self, a_by_columns: bool, c_by_columns: bool) -> int:
        """What divides the extents and strides that decide how wide an access can be: at most 16 bytes of an operand."""
        beside, outer = self.strides[4:] if c_by_columns else self.strides[:3:-1]
        rows = self.M if a_by_columns or c_by_columns else 0
        return math.gcd(self.widest, rows, self.N, self.K, *self.lines, outer if beside == 1 else 1)

    def operands(self, a: Any, b: Any, c: Any, stream: Any) -> tuple[list[Any], list[int]]:
        parts, counters = (None, None) if self.space is None else self.space.take(self.device, stream)
        return [a, b, c, parts, counters], [self.M, self.N, self.K, *self.lines, *self.strides[4:]]


class PlainPlan(Plan):
    """Launches the kernel that takes any strides."""

    __slots__ = ()

    takes_precise = False

    def __init__(self, a: ArrayInfo, b: ArrayInfo, c: ArrayInfo) -> None:
        super().__init__(a, b, c)
        BM, BN = (128, 128) if min(self.M, self.N) > 64 else (64, 64)
        self.fn = gemm.gemm_plain
        self.grid = (cdiv(self.M, BM) * cdiv(self.N, BN),)
        self.options = {"BM": BM, "BN": BN, "BK": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}

    def operands(self, a: Any, b: Any, c: Any, stream: Any) -> tuple[list[Any], list[int]]:
        return [a, b, c], [self.M, self.N, self.K, *self.strides]


def _operand_majors(a: ArrayInfo, b: ArrayInfo) -> tuple[bool | None, bool | None]:
    """Whether a and b are copied by columns; None for one that TMA cannot copy, or wgmma not read."""
    if a.dtype in FNUZ:
        return None, None
    ways = _majors(a), _majors(b)
    if ITEM_SIZE[a.dtype] > 1:
        return ways[0][0] if ways[0] else None, ways[1][0] if ways[1] else None
    # wgmma takes 8-bit operands along K only.
    return False if False in ways[0] else None, True if True in ways[1] else None


def _dense_along(x: ArrayInfo) -> bool | None:
    """Whether a matrix is dense along its columns (True) or rows (False), its lines near enough that 32 bits count the elements of a block; None
    for one that is neither."""
    for by_columns in (False, True):
        outer, inner = (1, 0) if by_columns else (0, 1)
        if (x.strides[inner] == 1 or x.shape[inner] == 1) and (
            abs(x.strides[outer]) < _FARTHEST or x.shape[outer] == 1
        ):
            return by_columns
    return None


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
