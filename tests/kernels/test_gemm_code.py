"""The code of the GEMM kernels: every configuration that `choose` can name assembles without spills and warnings, in all operand majors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from benchmarks.gemm import TABLE, body_lines, random_shapes
from mimw.kernels import GemmConfig, gemm
from mimw.kernels.gemm_choice import Product, candidates, choose

SHAPES = (
    (4096, 4096, 4096),
    (8192, 8192, 512),
    (512, 512, 8192),
    (64, 8192, 8192),
    (4096, 64, 256),
    (128, 64, 4096),
    (1280, 1280, 1280),
)


def compiled(config: GemmConfig, majors: tuple[bool, bool], dtype: str, out: str, **epilogue: Any) -> Any:
    """The kernel of a configuration."""
    BM, BN, BK, M, N = config.BM, config.BN, config.BK, config.CLUSTER_M, config.CLUSTER_N
    if config.TRANSPOSED:
        BM, BN, M, N, majors = BN, BM, N, M, (not majors[1], not majors[0])
    constants: dict[str, Any] = {
        "BM": BM, "BN": BN, "BK": BK, "STAGES": config.STAGES, "GROUP_M": config.GROUP_M, "PRECISE": epilogue.pop("precise", False),
        "A_BY_COLUMNS": majors[0], "B_BY_COLUMNS": majors[1], "ACTIVATION": epilogue.pop("activation", None),
        **epilogue.pop("steps", {}),
    }  # fmt: skip
    signature = {
        "a": block((BK // N, BM) if majors[0] else (BM // N, BK), dtype),
        "b": block((BN // M, BK) if majors[1] else (BK // M, BN), dtype),
        "M": "i32", "N": "i32", "K": "i32", **epilogue,
    }  # fmt: skip
    kernel = getattr(gemm, f"gemm_{config.kernel}")
    if config.kernel == "split":
        signature |= {"c": f"*{out}", "parts": "*f32", "counters": "*i32", "stride_cm": "i32"}
        constants |= {"SPLITS": config.SPLITS, "stride_cn": 1}
        return kernel.compile(signature, constants, num_warps=4)
    columns = config.columns_for(4 if out == "f32" else 2)
    rows = BM // 2 if config.kernel == "cooperative" and not config.SIDE_BY_SIDE else BM
    signature["c"] = block((columns, rows) if config.TRANSPOSED else (rows, columns), out)
    constants |= {"COLUMNS": columns, "BUFFERS": config.BUFFERS, "CLUSTER_M": M, "CLUSTER_N": N}
    constants |= {"C_BY_COLUMNS": config.TRANSPOSED, "BIAS_BY_ROWS": config.TRANSPOSED}
    if config.kernel == "cooperative":
        constants["SIDE_BY_SIDE"] = config.SIDE_BY_SIDE
    return kernel.compile(signature, constants, num_warps=4, ctas_per_cga=(M * N, 1, 1))


def block(shape: tuple[int, int], dtype: str) -> str:
    return f"tensor_desc<{shape[0]}x{shape[1]}x{dtype}>"


def clean(kernel: Any) -> None:
    assert not kernel.metadata.spill_bytes
    assert not kernel.metadata.warnings


MAJORS = list(itertools.product((False, True), repeat=2))


def offered(
    majors: tuple[bool, bool], item_size: int = 2, precise: bool = False, clusters: bool = False
) -> list[GemmConfig]:
    """What `choose` chooses from, for a product with few and one with many tiles."""
    found: dict[GemmConfig, None] = {}
    for shape in ((4096, 4096, 4096), (256, 256, 8192)):
        found.update((c, None) for c, _ in candidates(Product(*shape, item_size, 132, *majors), precise))
    return [c for c in found if clusters or c.CLUSTER_M * c.CLUSTER_N == 1]


def test_the_fastest_is_chosen():
    for shape in SHAPES:
        p = Product(*shape, 2, 132, False, False)
        times = dict(candidates(p, False))
        assert times[choose(*shape)] == min(times.values())


# A tile in one of the majors that it is offered for; `deep` takes all.
@pytest.mark.parametrize("index, config", list(enumerate(offered((False, True))[:21])), ids=str)
def test_tiles_without_spills(index: int, config: GemmConfig):
    majors = next(m for m in (*MAJORS[index % 4 :], *MAJORS) if config in offered(m))
    clean(compiled(config, majors, "bf16", "bf16"))


@pytest.mark.deep
@pytest.mark.parametrize("majors", MAJORS)
def test_all_without_spills(majors: tuple[bool, bool]):
    for config in offered(majors, clusters=True):
        clean(compiled(config, majors, "bf16", "bf16"))
        clean(compiled(config, majors, "bf16", "f32"))


@pytest.mark.parametrize("kernel", ["cooperative", "pingpong"])
def test_epilogues_without_spills(kernel: str):
    config = (
        GemmConfig("cooperative", 128, 256, 64, 4)
        if kernel == "cooperative"
        else GemmConfig("pingpong", 128, 128, 64, 5)
    )
    for activation in ("gelu", "silu"):
        clean(compiled(config, (False, True), "f16", "f16", activation=activation, bias="*f16", scale="f32"))


def _residuals() -> list[Any]:
    """Every tile with a residual that is dense along rows, and one along columns; those that once spilled with every change."""
    tiles: dict[tuple[Any, ...], GemmConfig] = {}
    for config in offered((False, True)):
        tiles.setdefault((config.kernel, config.BM, config.BN, config.TRANSPOSED), config)
    known = {("cooperative", 256, 192, False), ("pingpong", 128, 192, False), ("split", 128, 256, False)}
    return [
        pytest.param(config, by_columns, marks=() if key in known and by_columns == (key[0] == "split") else pytest.mark.deep)
        for key, config in tiles.items()
        for by_columns in (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize("config, by_columns", _residuals(), ids=str)
def test_residuals_without_spills(config: GemmConfig, by_columns: bool):
    """Its rows (or columns) are multiples of 8 elements, as the plan tells the kernel."""
    if config.kernel != "split":  # as a launch does where the conversion of the residual takes shared memory
        config = GemmConfig(**{**dict(zip(config.key_names(), config.key(), strict=True)), "STAGES": 3})
    seen_by_columns = by_columns != config.TRANSPOSED
    end: dict[str, Any] = {"residual": "*bf16:16", "stride_rm": "i32", "stride_rn": "i32"}
    end["stride_rm" if seen_by_columns else "stride_rn"] = 1
    steps = {"STEP_M" if seen_by_columns else "STEP_N": 8}
    clean(compiled(config, (False, True), "bf16", "bf16", steps=steps, **end))


@pytest.mark.parametrize("precise", [False, True])
def test_fp8_without_spills(precise: bool):
    for config in offered((False, True), 1, precise)[:: 3 if precise else 9]:
        assert config.BK == 128
        clean(compiled(config, (False, True), "f8e4m3", "bf16", precise=precise))


@pytest.mark.parametrize("kernel", ["cooperative", "pingpong"])
def test_clusters_without_spills(kernel: str):
    config = (
        GemmConfig("cooperative", 128, 256, 64, 4, CLUSTER_M=2)
        if kernel == "cooperative"
        else GemmConfig("pingpong", 128, 128, 64, 5, CLUSTER_N=2)
    )
    for majors in ((False, False), (True, True)):
        clean(compiled(config, majors, "bf16", "bf16"))


def test_columns_come_in_groups_of_eight():
    for columns in (0, 4, 12):
        with pytest.raises(ValueError, match="multiple of 8"):
            GemmConfig("pingpong", 128, 192, 64, 3, COLUMNS=columns)


def test_bodies_are_short():
    assert 20 < body_lines(gemm.gemm_cooperative) < 80
    assert 20 < body_lines(gemm.gemm_pingpong) < 80
    assert 20 < body_lines(gemm.gemm_split) < 80


def test_random_shapes_are_the_same_in_every_run():
    shapes = random_shapes()
    assert shapes == random_shapes() and len(set(shapes)) == 10 and not set(shapes) & set(TABLE)
    assert all(n % 8 == 0 and 256 <= n <= 16384 for shape in shapes for n in shape)
