"""Autotuning and heuristics, on the stand-in driver: which configuration wins, which are passed over, what is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw import testing
from mimw.diagnostics import CompilationError, LaunchError
from mimw.runtime import driver_api
from mimw.runtime import launch as launch_module
from mimw.tuning import Autotuner, Config

from .runtime.fake_cuda import F32, CUresult, FakeDriver, Tensor


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path))
    driver_api.use_driver(fake)
    for kernel in (fill, add_one):  # compiled once, loaded on each test's own driver
        for compiled in kernel._compiled.values():
            compiled._functions, compiled._launchers, compiled._latest = {}, {}, None
    yield fake
    driver_api.use_driver(None)


@mimw.kernel
def fill(out, n, BLOCK: ml.constexpr):
    i = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.store(out + i, ml.full((BLOCK,), BLOCK, ml.float32), mask=i < n)


@mimw.kernel
def add_one(out, n, BLOCK: ml.constexpr, EVEN: ml.constexpr):
    i = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.static_assert(BLOCK < 512, "too large a block")
    ml.store(out + i, ml.load(out + i, mask=i < n) + 1, mask=i < n)


class Bench:
    """A `do_bench` that knows each block's time, and counts."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times = times
        self.calls = 0
        self.runs = 0

    def __call__(self, call: Any, quantiles: Any) -> list[float]:
        assert quantiles == (0.5, 0.2, 0.8)
        self.calls += 1
        call()
        return [self.times[self.blocks[-1]]] * 3

    blocks: list[int]


def tuner(
    bench: Bench | None, configs: list[Config], key: tuple[str, ...] = ("n",), fn: Any = fill, **options: Any
) -> Autotuner:
    """A fresh tuner whose bench learns the block of a run through the grid."""
    return mimw.autotune(configs, key, do_bench=bench, **options)(fn)


def grid_of(bench: Bench) -> Any:
    bench.blocks = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        bench.blocks.append(meta["BLOCK"])
        return (mimw.cdiv(meta["n"], meta["BLOCK"]),)

    return grid


def blocks(*sizes: int, **options: Any) -> list[Config]:
    return [Config({"BLOCK": size}, **options) for size in sizes]


def test_the_fastest_wins_and_is_remembered(cuda: FakeDriver):
    bench = Bench({64: 3.0, 128: 1.0, 256: 2.0})
    tuned, grid = tuner(bench, blocks(64, 128, 256)), grid_of(bench)
    kernel = tuned[grid](Tensor(16, F32), 1000)
    assert isinstance(kernel, mimw.CompiledKernel)
    assert tuned.best_config is not None
    assert tuned.best_config.kwargs == {"BLOCK": 128}
    assert [t and t[0] for t in tuned.configs_timings.values()] == [3.0, 1.0, 2.0]
    assert bench.blocks == [64, 128, 256, 128]
    tuned[grid](Tensor(16, F32), 1000)
    assert (bench.calls, bench.blocks[4:]) == (3, [128])
    tuned[grid](Tensor(16, F32), 2000)
    assert bench.calls == 6
    tuned[grid](Tensor(16, F32, device=1), 1000)
    assert bench.calls == 6  # another device of the same name: from disk
    assert len(tuned.cache) == 3
    assert [launch.grid for launch in cuda.launches[-1:]] == [(8, 1, 1)]


def test_options_of_a_configuration_reach_the_launch(cuda: FakeDriver):
    tuned = tuner(None, [Config({"BLOCK": 256}, num_warps=8, num_stages=2, maxnreg=64, ctas_per_cga=(2, 1, 1))])
    kernel = tuned[(4,)](Tensor(16, F32), 1000)
    assert kernel.metadata.num_warps == 8
    assert cuda.launches[-1].threads == 256
    assert ".maxnreg 64" in kernel.asm["ptx"]
    assert ".reqnctapercluster 2" in kernel.asm["ptx"]
    assert kernel.metadata.attributes.cluster == (2, 1, 1)
    assert not cuda.named("cuLaunchKernelEx")


def test_winners_are_kept_on_disk(
    cuda: FakeDriver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MIMW_PRINT_AUTOTUNING", "1")
    bench = Bench({64: 3.0, 128: 1.0})
    tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 2
    assert "autotune fill: BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3: 1.0000 ms" in capsys.readouterr().out
    again = tuner(bench, blocks(64, 128))
    again[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 2
    assert again.best_config is not None
    assert again.best_config.kwargs == {"BLOCK": 128}
    # Other configurations, another key: measured.
    tuner(bench, blocks(128, 64))[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 4
    tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1001)
    assert bench.calls == 6
    monkeypatch.setattr(cuda, "cuDeviceGetName", lambda size, device: (0, b"Another GPU\0"))
    tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 8
    monkeypatch.setenv("MIMW_CACHE", "0")
    tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 10


def test_configurations_that_do_not_fit_are_passed_over(cuda: FakeDriver):
    bench = Bench({64: 3.0, 128: 4.0})
    cuda.max_threads = 256
    configs = [Config({"BLOCK": 1024}, num_warps=16), *blocks(512, 128, 64)]
    tuned = tuner(bench, configs, fn=mimw.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})(add_one))
    tuned[grid_of(bench)](Tensor(16, F32), 1000)
    assert tuned.best_config is not None
    assert tuned.best_config.kwargs == {"BLOCK": 64}
    assert [t is None for t in tuned.configs_timings.values()] == [True, True, False, False]


def test_none_fits(cuda: FakeDriver):
    bench = Bench({})
    cuda.max_threads = 256
    configs = [Config({"BLOCK": 256}, num_warps=16), Config({"BLOCK": 512}), Config({"BLOCK": 256}, num_warps=32)]
    tuned = tuner(bench, configs, fn=mimw.heuristics({"EVEN": lambda args: True})(add_one))
    with pytest.raises(LaunchError) as caught:
        tuned[grid_of(bench)](Tensor(16, F32), 1000)
    error = caught.value
    assert error.code == "autotune"
    assert error.message == "autotune of kernel 'add_one': none of 3 configurations can run"
    assert "num_warps: 16" in error.notes[0].text
    assert "launch-threads: " in error.notes[0].text
    assert "static-assert: " in error.notes[1].text
    assert "too large a block" in error.notes[1].text


def test_a_fault_that_all_share_speaks_for_itself(cuda: FakeDriver):
    @mimw.kernel
    def wrong(out, n, BLOCK: ml.constexpr):
        ml.store(out, undefined_name)  # noqa: F821

    bench = Bench({})
    with pytest.raises(CompilationError) as caught:
        tuner(bench, blocks(64, 128), fn=wrong)[grid_of(bench)](Tensor(16, F32), 1000)
    assert caught.value.code == "undefined-name"


@pytest.mark.parametrize(
    ("result", "message"),
    [(CUresult.CUDA_ERROR_ILLEGAL_ADDRESS, "accessed memory"), (CUresult.CUDA_ERROR_INVALID_VALUE, "invalid value")],
)
def test_a_broken_device_ends_the_tuning(cuda: FakeDriver, result: CUresult, message: str):
    bench = Bench({64: 1.0, 128: 1.0})
    cuda.fail["cuLaunchKernel"] = result
    with pytest.raises(LaunchError, match=message):
        tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000)
    assert bench.calls == 1


def test_a_device_without_room_passes_a_configuration_over(cuda: FakeDriver):
    bench = Bench({64: 1.0, 128: 2.0})
    cuda.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    tuned = tuner(bench, blocks(64, 128))
    tuned[grid_of(bench)](Tensor(16, F32), 1000)
    assert tuned.best_config is not None
    assert tuned.best_config.kwargs == {"BLOCK": 128}


def test_wrong_arguments_are_not_the_configurations_fault(cuda: FakeDriver):
    bench = Bench({64: 1.0, 128: 2.0})
    with pytest.raises(LaunchError) as caught:
        tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000, 5, 6)
    assert caught.value.code == "autotune"  # BLOCK is given twice
    with pytest.raises(LaunchError) as caught:
        tuner(bench, blocks(64, 128))[grid_of(bench)](Tensor(16, F32), 1000, wrong=5)
    assert caught.value.code == "launch-option"


# Pruning


def test_early_pruning(cuda: FakeDriver):
    bench = Bench({64: 3.0, 128: 2.0})
    seen: list[Any] = []

    def prune(configs: list[Config], named: dict[str, Any], **kwargs: Any) -> list[Config]:
        seen.append((named["n"], kwargs))
        return [c for c in configs if c.kwargs["BLOCK"] < 256]

    tuned = tuner(bench, blocks(64, 128, 256), prune_configs_by={"early_config_prune": prune})
    tuned[grid_of(bench)](Tensor(16, F32), 1000)
    assert (seen, bench.calls) == ([(1000, {})], 2)
    nothing = tuner(bench, blocks(64, 128), prune_configs_by={"early_config_prune": lambda configs, named: []})
    with pytest.raises(LaunchError, match="early_config_prune leaves no configuration"):
        nothing[grid_of(bench)](Tensor(16, F32), 1000)


@pytest.mark.parametrize(("top_k", "tried"), [(2, [128, 256]), (0.5, [128, 256]), (1, []), (9, [64, 128, 256, 512])])
def test_pruning_by_a_model(cuda: FakeDriver, top_k: Any, tried: list[int]):
    bench = Bench(dict.fromkeys((64, 128, 256, 512), 1.0))
    model = lambda n, BLOCK, num_warps, **rest: abs(BLOCK - 200)  # noqa: E731
    tuned = tuner(bench, blocks(64, 128, 256, 512), prune_configs_by={"perf_model": model, "top_k": top_k})
    grid = grid_of(bench)
    tuned[grid](Tensor(16, F32), 1000)
    assert sorted(bench.blocks[:-1]) == tried
    if not tried:
        assert bench.blocks == [256]


# Hooks


class Array(Tensor):
    """A tensor with content, as far as resetting and restoring look at it."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(16, F32)
        self.log = log

    def zero_(self) -> None:
        self.log.append("zero")

    def clone(self) -> str:
        self.log.append("clone")
        return "saved"

    def copy_(self, saved: str) -> None:
        self.log.append(f"restore {saved}")


@pytest.mark.parametrize(
    ("options", "log"),
    [
        ({"reset_to_zero": ["out"]}, ["zero", "zero", "zero"]),
        ({"restore_value": ["out"]}, ["clone", "restore saved"] * 2),
    ],
)
def test_outputs_are_reset_or_restored(cuda: FakeDriver, options: dict[str, Any], log: list[str]):
    bench, found = Bench({64: 1.0, 128: 2.0}), []
    tuned, grid = tuner(bench, blocks(64, 128), **options), grid_of(bench)
    for _ in range(2):
        tuned[grid](Array(found), 1000)
    assert found == log


def test_a_failing_run_still_restores(cuda: FakeDriver):
    bench, found = Bench({64: 1.0, 128: 2.0}), []
    cuda.fail["cuLaunchKernel"] = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    tuner(bench, blocks(64, 128), restore_value=["out"])[grid_of(bench)](Array(found), 1000)
    assert found == ["clone", "restore saved"] * 2


def test_hooks_of_the_user(cuda: FakeDriver):
    bench, log = Bench({64: 1.0, 128: 2.0}), []
    tuned = tuner(
        bench,
        [
            Config({"BLOCK": b}, pre_hook=lambda args: log.append(("config", args["BLOCK"], args["n"])))
            for b in (64, 128)
        ],
        pre_hook=lambda args, reset_only=False: log.append(("pre", args["BLOCK"], reset_only)),
        post_hook=lambda args, exception: log.append(("post", args["BLOCK"], exception)),
    )
    tuned[grid_of(bench)](Tensor(16, F32), 1000)
    assert log == [
        ("config", 64, 1000),
        ("pre", 64, False),
        ("post", 64, None),
        ("config", 128, 1000),
        ("pre", 128, False),
        ("post", 128, None),
        ("pre", 64, True),
        ("config", 64, 1000),
    ]


# Heuristics


def test_heuristics_see_arguments_and_configuration(cuda: FakeDriver):
    seen: list[dict[str, Any]] = []

    def even(args: dict[str, Any]) -> bool:
        seen.append(args)
        return args["n"] % args["BLOCK"] == 0

    wrapped = mimw.heuristics({"EVEN": even})(add_one)
    wrapped[(4,)](Tensor(16, F32), 1000, BLOCK=256)
    tuner(None, blocks(128), fn=wrapped)[(8,)](Tensor(16, F32), 1024)
    assert [(s["n"], s["BLOCK"]) for s in seen] == [(1000, 256), (1024, 128)]
    assert wrapped.kernel is add_one


# Without a GPU


def test_the_simulator_runs_the_first_configuration_that_is_left(cuda: FakeDriver):
    bench = Bench({})
    out = np.zeros(100, np.float32)
    tuner(bench, blocks(64, 128))[grid_of(bench)](out, 100)
    assert bench.calls == 0
    assert (out == 64).all()
    prune = {"early_config_prune": lambda configs, named, **kwargs: configs[1:]}
    tuner(bench, blocks(64, 128), prune_configs_by=prune)[grid_of(bench)](out, 100)
    assert (out == 128).all()
    assert not cuda.launches


# Mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": ["m"]}, "it has no parameter 'm'"),
        ({"key": ["n"], "reset_to_zero": ["x"]}, "it has no parameter 'x'"),
        ({"key": ["n"], "prune_configs_by": {"early": 1}}, "prune_configs_by does not know 'early'"),
    ],
)
def test_decorators_are_checked(options: dict[str, Any], text: str):
    with pytest.raises(LaunchError, match=text) as caught:
        mimw.autotune(blocks(64), **options)(fill)
    assert caught.value.loc.file == __file__


def test_mistakes_at_a_launch(cuda: FakeDriver):
    bench = Bench({64: 1.0, 128: 2.0})
    with pytest.raises(LaunchError, match="is called without a grid"):
        tuner(bench, blocks(64))(1)
    with pytest.raises(LaunchError, match="BLOCK is set by the configurations and by the launch"):
        tuner(bench, blocks(64))[(1,)](Tensor(16, F32), 1000, BLOCK=64)
    array = tuner(bench, blocks(64, 128), key=("out",))

    class Unhashable(Tensor):
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(LaunchError, match="the key out must have hashable values"):
        array[grid_of(bench)](Unhashable(16, F32), 1000)
    model = {"perf_model": lambda **all: 1, "top_k": 0}
    with pytest.raises(LaunchError, match="top_k is a positive number"):
        tuner(bench, blocks(64, 128), prune_configs_by=model)[grid_of(bench)](Tensor(16, F32), 1000)


# With the real do_bench on the stand-in's clock


def test_measured_by_do_bench(cuda: FakeDriver):
    tuned = mimw.autotune(blocks(64, 128), ["n"], warmup=1, rep=5)(fill)

    class Slow(list[float]):
        """The device takes 2 ms for blocks of 64 and 0.5 ms for others."""

        def __bool__(self) -> bool:
            return True

        def pop(self, index: Any = 0) -> float:
            return 2.0 if cuda.calls[-1][1] == (16, 1, 1) else 0.5

    cuda.durations = Slow()
    tuned[lambda meta: (mimw.cdiv(meta["n"], meta["BLOCK"]),)](Tensor(16, F32), 1000)
    assert [t and t[0] for t in tuned.configs_timings.values()] == [2.0, 0.5]
    assert testing.do_bench(lambda: fill[(16,)](Tensor(16, F32), 1000, BLOCK=64), rep=1) == 2.0


def test_configurations_are_objects() -> None:
    with pytest.raises(TypeError, match=r"a list of mimw\.Config, this one holds a dict"):
        mimw.autotune([{"BLOCK": 16}], ["n"])  # pyright: ignore[reportArgumentType]
