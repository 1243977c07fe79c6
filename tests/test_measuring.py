"""`mimw.testing`: what is timed and in which order, on the stand-in driver's clock; summaries, comparisons, tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
from mimw import testing
from mimw.diagnostics import LaunchError
from mimw.runtime import driver_api
from mimw.runtime import launch as launch_module
from mimw.runtime.timing import FLUSH_BYTES

from .runtime.fake_cuda import CUresult, FakeDriver


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver_api.use_driver(fake)
    yield fake
    driver_api.use_driver(None)


def work(cuda: FakeDriver, *durations: float) -> Any:
    """A function that takes the device so many ms, each in turn; the last from then on."""
    left = list(durations)

    def run() -> None:
        cuda.calls.append(("work",))
        cuda.clock += left.pop(0) if len(left) > 1 else left[0]

    return run


def test_runs_are_flushed_and_counted(cuda: FakeDriver):
    # A flush is 1 ms, the work 4: five runs say 5 ms each.
    assert mimw.do_bench(work(cuda, 4.0), warmup=20, rep=50) == 4.0
    names = [call[0] for call in cuda.calls if call[0] in ("work", "cuMemsetD32Async", "cuEventRecord")]
    flushed, alone = ["cuMemsetD32Async", "work"], ["cuMemsetD32Async", "cuEventRecord", "work", "cuEventRecord"]
    assert names == ["work", "cuEventRecord", *flushed * 5, "cuEventRecord", *["work"] * 4, *alone * 10]
    assert cuda.named("cuMemsetD32Async")[0] == ("cuMemsetD32Async", 0xF000, FLUSH_BYTES // 4, 0)


def test_everything_is_given_back(cuda: FakeDriver):
    testing.do_bench(work(cuda, 1.0), warmup=1, rep=4)
    assert len(cuda.named("cuEventCreate")) == len(cuda.named("cuEventDestroy"))
    assert len(cuda.named("cuMemAlloc")) == len(cuda.named("cuMemFree")) == 1

    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        testing.do_bench(fails)
    assert len(cuda.named("cuMemAlloc")) == len(cuda.named("cuMemFree")) == 2


def test_the_last_fault_is_told(cuda: FakeDriver):
    cuda.fail["cuStreamSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError, match="do_bench: a kernel accessed memory that is not its own"):
        testing.do_bench(work(cuda, 1.0))


def test_no_room_for_the_flush(cuda: FakeDriver):
    cuda.fail["cuMemAlloc"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(LaunchError, match="cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"):
        testing.do_bench(work(cuda, 1.0))


def test_gradients_are_dropped_before_each_run(cuda: FakeDriver):
    class Leaf:
        grad: Any = 1

    leaf = Leaf()
    seen: list[Any] = []

    def run() -> None:
        seen.append(leaf.grad)
        leaf.grad = 1
        cuda.clock += 2.0

    testing.do_bench(run, warmup=3, rep=9, grad_to_none=[leaf])
    assert seen == [1] * 7 + [None] * 3


def test_a_function_that_does_nothing_on_the_device(cuda: FakeDriver):
    runs: list[int] = []
    assert testing.do_bench(lambda: runs.append(1), warmup=2, rep=3) == 0.0
    assert len(runs) == 1 + 5 + 2 + 3


@pytest.mark.parametrize(
    ("mode", "want"), [("min", 1.0), ("max", 10.0), ("mean", 4.0), ("median", 2.5), ("all", [2.0, 10.0, 3.0, 1.0])]
)
def test_return_modes(mode: str, want: Any):
    assert testing.summarize([2.0, 10.0, 3.0, 1.0], None, mode) == want


def test_quantiles():
    times = [4.0, 2.0, 1.0, 3.0, 5.0]
    assert testing.summarize(times, [0.5]) == 3.0
    assert testing.summarize(times, [0.5, 0.2, 0.8, 0, 1]) == pytest.approx(np.quantile(times, [0.5, 0.2, 0.8, 0, 1]))
    assert testing.summarize([7.0], (0.5, 0.2)) == [7.0, 7.0]
    with pytest.raises(LaunchError, match="a quantile lies between 0 and 1, not 2"):
        testing.summarize(times, [2])


def test_wrong_modes_and_no_device(monkeypatch: pytest.MonkeyPatch, cuda: FakeDriver):
    with pytest.raises(LaunchError, match="return_mode is one of min, max, mean, median, all, not 'mode'"):
        testing.do_bench(lambda: None, return_mode="mode")
    with pytest.raises(LaunchError, match="needs torch, which is not imported"):
        testing.do_bench_cudagraph(lambda: None)
    driver_api.use_driver(None)
    monkeypatch.setattr(driver_api, "_probe", False)
    with pytest.raises(LaunchError, match="do_bench needs a CUDA device; there is none"):
        testing.do_bench(lambda: None)


def test_assert_close():
    x = np.array([1.0, np.nan, 3.0], np.float32)
    testing.assert_close(x, x + np.float32(0.005))
    testing.assert_close(x.astype(ml_dtypes.bfloat16), x)
    testing.assert_close(2, 2.001)
    testing.assert_close([100.0], [101.0], rtol=0.02)
    with pytest.raises(AssertionError):
        testing.assert_close(x, x + np.float32(0.02))
    with pytest.raises(AssertionError):
        testing.assert_close([0.0], [np.nan])
    with pytest.raises(AssertionError, match="of the third kind"):
        testing.assert_close([100.0], [101.0], err_msg="of the third kind")


def test_reports(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    bench = testing.Benchmark(
        x_names=["M", "N"], x_vals=[128, (256, 512)], line_arg="provider", line_vals=["a", "b"], line_names=["A", "B"],
        plot_name="sizes", args={"scale": 0.5},
    )  # fmt: skip

    @testing.perf_report(bench)
    def measure(M: int, N: int, provider: str, scale: float, shift: int = 0) -> Any:
        value = M * N * scale + shift
        return value if provider == "a" else (value + 1, value, value + 2)

    rows = measure.run(save_path=str(tmp_path), shift=3)
    assert rows == [
        {"M": 128, "N": 128, "A": 8195.0, "B": 8196.0},
        {"M": 256, "N": 512, "A": 65539.0, "B": 65540.0},
    ]
    assert capsys.readouterr().out == "sizes:\n  M    N      A      B\n128  128   8195   8196\n256  512  65539  65540\n"
    assert (tmp_path / "sizes.csv").read_text().splitlines() == [
        "M,N,A,B",
        "128,128,8195.0,8196.0",
        "256,512,65539.0,65540.0",
    ]
    assert measure.run(print_data=False) == [{**r, "A": r["A"] - 3, "B": r["B"] - 3} for r in rows]
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="2 lines have 1 names"):
        testing.Benchmark(["M"], [1], "p", [1, 2], ["one"], "x", {})
