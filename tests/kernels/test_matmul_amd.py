"""`mimw.kernels.matmul` as it is chosen for AMD's machines: in the tile simulator, and as machine code of both parts, against float64."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.diagnostics import LaunchError
from mimw.kernels import GemmConfig, gemm_tiled, matmul
from mimw.kernels.gemm_choice_tiled import TiledProduct, choose_tiled, tiled_candidates
from mimw.target import get_target
from tests.amdgcn_kit import launch_in_amdgcn
from tests.kernels.test_matmul import check, matrix

BF16, F16, F8, F8E5 = ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FNUZ, FNUZ5 = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
TARGETS = ("gfx942", "gfx950")
UNITS = {"gfx942": 304, "gfx950": 256}
MAJORS = tuple(itertools.product((False, True), repeat=2))


def small(splits: int = 1, rows: int = 32, item_size: int = 2, xcds: int = 3) -> GemmConfig:
    """A tile that a simulator multiplies quickly."""
    return GemmConfig("tiled", 64, 64, 64 // item_size, 2, SPLITS=splits, WARPS=4, ROWS=rows, XCDS=xcds)


def offered(target: str, dtype: Any = BF16, columns: int = 4096) -> list[GemmConfig]:
    """All that `choose_tiled` chooses from for so many columns, without equal tiles of other SPLITS."""
    found: dict[tuple[int, int, bool], GemmConfig] = {}
    size = np.dtype(dtype).itemsize
    for shape in ((4096, columns, 4096), (256, columns // 16, 8192)):
        for config, _ in tiled_candidates(TiledProduct(*shape, size, get_target(target), UNITS[target], dtype is FNUZ)):
            found.setdefault((config.BM, config.BN, config.SPLITS > 1), config)
    return list(found.values())


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("splits", [1, 3])
def test_majors(splits: int, majors: tuple[bool, bool]):
    a, b = matrix(136, 200, by_columns=majors[0]), matrix(200, 88, by_columns=majors[1], seed=1)
    check(matmul(a, b, np.full((136, 88), np.nan, BF16), config=small(splits)), a, b)


@pytest.mark.parametrize("majors", MAJORS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(128, 64, 64), (136, 88, 104), (77, 67, 35)], ids=str)
def test_machine_code(
    monkeypatch: pytest.MonkeyPatch, target: str, shape: tuple[int, int, int], majors: tuple[bool, bool]
):
    m, n, k = shape
    at = MAJORS.index(majors)
    dtype, splits = (BF16, F16)[at % 2], 1 + at // 2
    a, b = matrix(m, k, dtype, majors[0]), matrix(k, n, dtype, majors[1], seed=1)
    ran = launch_in_amdgcn(monkeypatch, target, seed=at)
    check(matmul(a, b, np.full((m, n), np.nan, dtype), config=small(splits)), a, b)
    assert [kernel.metadata.name for kernel in ran] == ["gemm_tiled"] and not ran[0].metadata.spill_bytes


def _each_tile() -> list[Any]:
    """Every configuration that is offered: small tiles on one part with every change, the rest with the long checks."""
    out: list[Any] = []
    for at, target in enumerate(TARGETS):
        for kind, dtype in enumerate((F8, BF16, FNUZ)):
            for i, config in enumerate(offered(target, dtype)):
                quick = config.BM * config.BN <= 128 * 128 and i % 4 == (at + 2 * kind + 2) % 4
                name = f"{target}-{('e4m3', 'bf16', 'e4m3fnuz')[kind]}-{config.BM}x{config.BN}x{config.SPLITS}"
                out.append(pytest.param(target, dtype, config, id=name, marks=() if quick else pytest.mark.deep))
    return out


@pytest.mark.parametrize("target, dtype, config", _each_tile())
@pytest.mark.parametrize("step", [8, 1])
def test_offered(monkeypatch: pytest.MonkeyPatch, target: str, dtype: Any, config: GemmConfig, step: int):
    """With edges in all directions and a whole epilogue; rows that are aligned, and rows that are not."""
    if step == 1 and config not in offered(target, dtype, 4095):
        pytest.skip("is not offered")
    m, n, k = config.BM - 3, config.BN - step, config.BK * config.SPLITS + 8 * step
    a, b = matrix(m, k, dtype, pitch=16), matrix(k, n, dtype, True, pitch=16, seed=1)
    bias, residual = matrix(1, n, np.float32, seed=2)[0], matrix(m, n, seed=3)
    ran = launch_in_amdgcn(monkeypatch, target)
    out = np.full((m, n), np.nan, BF16)
    check(matmul(a, b, out, bias=bias, scale=0.5, residual=residual, config=config), a, b, 0.5, bias, None, residual)
    assert not ran[0].metadata.spill_bytes and not ran[0].metadata.warnings


def _code() -> list[Any]:
    """The largest tiles of both parts with every change, all with the long checks."""
    out: list[Any] = []
    for target in TARGETS:
        for i, config in enumerate(offered(target)):
            name = f"{target}-{config.BM}x{config.BN}x{config.SPLITS}"
            quick = config.BM == config.BN == 256
            out.append(pytest.param(target, MAJORS[i % 4], config, id=name, marks=() if quick else pytest.mark.deep))
    return out


@pytest.mark.parametrize("target, majors, config", _code())
def test_code_without_spills(target: str, majors: tuple[bool, bool], config: GemmConfig):
    """All epilogues, with and without edges, for results of 16 and 32 bits.

    In the largest tile one that is dense along columns spills a few addresses, once a tile.
    """
    ends: tuple[dict[str, Any], ...] = (
        {},
        {"bias": "*f32:16", "scale": "f32", "residual": "*bf16:16", "stride_rm": "i32", "stride_rn": 1, "STEP_N": 8},
        {"residual": "*bf16:16", "stride_rm": 1, "stride_rn": "i32", "STEP_M": 8},
    )
    for end, whole, out in zip(ends, (True, False, False), ("bf16", "bf16", "f32"), strict=True):
        activation = ("gelu", "silu", None)[ends.index(end)]
        made = compiled(config, target, majors, whole, out, ACTIVATION=activation, **end)
        few = 160 if "stride_rm" in end and end["stride_rm"] == 1 and config.BM * config.BN > 256 * 128 else 0
        assert made.metadata.spill_bytes <= few and not made.metadata.warnings


def compiled(
    config: GemmConfig, target: str, majors: tuple[bool, bool], whole: bool, out: str, **end: Any
) -> Any:  # fmt: skip
    """The kernel of a configuration."""
    types = {"a": "*bf16:16", "b": "*bf16:16", "c": f"*{out}:16", "parts": None, "counters": None}
    if config.SPLITS > 1:
        types |= {"parts": "*f32:16", "counters": "*i32:16"}
    types |= dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_cm"), "i32")
    constants: dict[str, Any] = {
        "BM": config.BM, "BN": config.BN, "BK": config.BK, "GROUP_M": 8, "ROWS": config.ROWS, "SPLITS": config.SPLITS, "XCDS": 8, "STEP": 8,
        "C_BY_COLUMNS": False,
        "A_BY_COLUMNS": majors[0], "B_BY_COLUMNS": majors[1], "WHOLE_M": whole, "WHOLE_N": whole, "WHOLE_K": whole, "stride_cn": 1,
    }  # fmt: skip
    for name, value in end.items():
        (types if isinstance(value, str) and name != "ACTIVATION" else constants)[name] = value
    return gemm_tiled.gemm_tiled.compile(types, constants, target=target, num_warps=config.WARPS, num_stages=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 300, 520), (129, 24, 64)], ids=str)
def test_chosen(monkeypatch: pytest.MonkeyPatch, target: str, shape: tuple[int, int, int]):
    m, n, k = shape
    config = choose_tiled(m, n, k, 2, get_target(target), 8)
    a, b = matrix(m, k, pitch=16), matrix(k, n, pitch=16, seed=1)
    launch_in_amdgcn(monkeypatch, target)
    check(matmul(a, b, np.full((m, n), np.nan, BF16), config=config), a, b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [F8, F8E5, FNUZ, FNUZ5], ids=("e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"))
def test_fp8(monkeypatch: pytest.MonkeyPatch, target: str, dtype: Any):
    a, b = matrix(72, 136, dtype, pitch=16), matrix(136, 40, dtype, True, pitch=16, seed=1)
    ran = launch_in_amdgcn(monkeypatch, target)
    check(matmul(a, b, np.full((72, 40), np.nan, BF16), scale=0.5, config=small(item_size=1)), a, b, 0.5)
    native = (dtype in (FNUZ, FNUZ5)) == (target == "gfx942")
    products = set(re.findall(r"v_mfma_\w+", ran[0].asm["amdgcn"]))
    assert products and {name.endswith("_f16") for name in products} == {not native}


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
def test_epilogue(activation: str | None):
    a, b, bias = matrix(136, 72), matrix(72, 88, seed=1), matrix(1, 88, F16, seed=2)[0]
    residual = matrix(136, 88, by_columns=True, seed=3)
    for splits, out in ((1, BF16), (2, np.float32)):
        got = matmul(
            a, b, bias=bias, scale=np.array([0.125], np.float32), activation=activation, residual=residual,
            out_dtype=out, config=small(splits),
        )  # fmt: skip
        check(got, a, b, 0.125, bias, activation, residual)


def test_results_are_the_same_in_every_run_and_order():
    a, b = matrix(200, 520), matrix(520, 136, seed=1)
    first = matmul(a, b, config=small(4))
    assert matmul(a, b, config=small(4, xcds=1)).tobytes() == first.tobytes()


def test_any_program_and_number_of_xcds():
    """Every tile is computed once, however many programs there are for the XCDs."""
    for rows, columns, xcds in itertools.product((1, 3), (1, 2, 5), (2, 3, 8)):
        a, b = matrix(64 * rows, 32), matrix(32, 64 * columns, seed=1)
        check(matmul(a, b, np.full((64 * rows, 64 * columns), np.nan, BF16), config=small(xcds=xcds)), a, b)


def test_results_by_columns_and_strided_operands():
    a, b = matrix(136, 72), matrix(72, 88, seed=1)
    out = matrix(136, 88, by_columns=True)
    out[:] = np.nan
    assert matmul(a, b, out, config=small()) is out
    check(out, a, b)
    with pytest.raises(LaunchError, match="neither dimension is dense"):
        matmul(a[::2, ::2], b[::2], config=small())


def test_choice_by_shape():
    for target in TARGETS:
        machine = get_target(target)

        def chosen(*shape: int, machine: Any = machine, target: str = target) -> GemmConfig:
            return choose_tiled(*shape, 2, machine, UNITS[target])

        big, few, flat = chosen(8192, 8192, 8192), chosen(512, 512, 8192), chosen(16, 8192, 8192)
        assert (big.BM, big.SPLITS, big.XCDS) == (256, 1, 8) and big.BN >= 128
        assert few.SPLITS > 1 and flat.BM == 16
        assert chosen(8192, 8191, 8192).BN < 256  # rows of results that are stored one by one
        assert choose_tiled(512, 512, 512, 2, machine, UNITS[target] // 8).XCDS == 1  # a part of the device


@pytest.mark.parametrize("target", TARGETS)
def test_arrays_of_the_host_as_machine_code(monkeypatch: pytest.MonkeyPatch, target: str):
    a, b = matrix(70, 96), matrix(96, 40, seed=1)
    there, here = np.zeros((70, 40), BF16), np.zeros((70, 40), BF16)
    for _ in range(2):  # the second time by the plan that was kept
        monkeypatch.setenv("MIMW_SIM", target)
        there[:] = np.nan
        check(matmul(a, b, there), a, b)
        monkeypatch.delenv("MIMW_SIM")
        check(matmul(a, b, here), a, b)
