"""Every synchronisation that the compiler puts into a text is missed by the simulator when it is gone, or nothing hangs on it."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.kernels import GemmConfig, matmul
from tests.zoo.registry import ENTRIES

from .dropped import Case

EXAMPLES = Path(__file__).parents[3] / "examples"
BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32
Entry = Callable[[], Any]


def whole(rows: int, columns: int, dtype: Any) -> Any:
    """Small integers: sums are exact, in whatever order."""
    return np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(dtype)


@functools.cache
def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", next(EXAMPLES.glob(f"{name}_*.py")))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gemm(*config: Any, k: int = 192, m: int = 256, out: Any = None, **more: Any) -> Entry:
    a, b = whole(m, k, BF16), whole(k, 128, BF16)
    return lambda: matmul(a, b, config=GemmConfig(*config, **more), **({} if out is None else {"out_dtype": out}))


def product(name: str, rows: int, k: int = 192, kernel: str | None = None, **more: Any) -> Entry:
    module = example(name)
    a, b, c = whole(4 * rows, k, F16), whole(k, 64, F16), np.zeros((4 * rows, 64), F16)
    constants = {"BM": rows, "BN": 64, "BK": 64, "STAGES": 2, **more}
    if kernel is not None:
        constants["kernel"] = getattr(module, kernel)
    return lambda: module.matmul(a, b, c, **constants)


def sums(columns: int, by_tma: bool) -> Entry:
    x = whole(64, columns, F32)
    return lambda: example("04").row_sums(x, np.zeros(64, F32), by_tma)


def rows(count: int) -> Entry:
    table, index = whole(16, 128, F32), np.arange(count, dtype=np.int32)[::-1].copy()
    return lambda: example("04").take_rows(table, index, np.zeros((count, 128), F32))


def zoo(name: str, index: int) -> Entry:
    run = next(e for e in ENTRIES if e.name == name).run(index)
    return lambda: run.kernel[run.grid](*run.args, **run.constants, **run.options)


CASES: dict[str, Callable[[], tuple[Entry, ...]]] = {
    "copies": lambda: (sums(512, False),),
    "tma_copies": lambda: (sums(640, True),),
    "rows": lambda: (rows(12),),
    "pipeline": lambda: (product("05", 128, kernel="with_pipeline"),),
    "barriers": lambda: (product("05", 128, kernel="with_barriers"),),
    "turns": lambda: (product("06", 64, programs=1), product("06", 64, 64, programs=1)),
    "multicast": lambda: (product("07", 128),),
    "cooperative": lambda: (gemm("cooperative", 128, 64, 64, 2),),
    "pingpong": lambda: (gemm("pingpong", 64, 64, 64, 2), gemm("pingpong", 64, 64, 64, 2, k=64)),
    "cluster": lambda: (gemm("cooperative", 128, 64, 64, 3, COLUMNS=32, CLUSTER_M=2),),
    "split": lambda: (gemm("split", 128, 64, 64, 2, SPLITS=2, k=384, m=128),),
    "layer_norm": lambda: (zoo("layer_norm_case", 1),),
    "chained": lambda: (zoo("product_then_everything_case", 0),),
    "transpose": lambda: (zoo("transpose_tile_case", 3),),
    "dot": lambda: (zoo("matmul_f16_case", 1),),
    "dot_by_column": lambda: (zoo("matmul_bf16_majors_case", 3),),
    "dot_ieee": lambda: (zoo("matmul_ieee_case", 0),),
    "attention": lambda: (zoo("attention_case", 1),),
}


@functools.cache
def case_of(name: str) -> Case:
    return Case(*CASES[name]())


def check(name: str, seeds: int) -> tuple[int, list[str]]:
    """How many syncs are missed when they are gone, and the lines of those that are not and should be."""
    case = case_of(name)
    assert not case.noticed((), seeds)
    unnoticed = [i for i in case.syncs() if not case.noticed((i,), seeds)]
    wrong = [i for i in unnoticed if not case.without_effect(i, unnoticed, seeds)]
    return len(case.syncs()) - len(unnoticed), [f"{i + 1}: {case.lines[i].strip()}" for i in wrong]


@pytest.mark.parametrize(
    ("name", "least"), [("tma_copies", 2), ("layer_norm", 3), ("chained", 3), ("dot_by_column", 5)]
)
def test_a_dropped_sync_is_noticed(name: str, least: int) -> None:
    found, wrong = check(name, 1)
    assert wrong == []
    assert found >= least


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_every_dropped_sync_is_noticed(name: str) -> None:
    found, wrong = check(name, 3)
    assert wrong == []
    assert found
    case = case_of(name)
    meetings = tuple(i for i in case.syncs() if "bar.sync" in case.lines[i])
    assert case.private() or not meetings or case.noticed(meetings, 1)  # of those that do the same, one is needed
