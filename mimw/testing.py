# pyright: basic
"""Measuring and comparing, for users and for the tuner: `do_bench`, `do_bench_cudagraph`, `assert_close`, `perf_report`.

Triton's names and signatures (`triton.testing`); times are in milliseconds, the default summary is the median. Assumes that the work
goes to torch's current stream, where launches go by default. Must not know kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from mimw.diagnostics import LaunchError
from mimw.runtime.driver_api import DriverError
from mimw.runtime.drivers import device_driver
from mimw.runtime.launch import synchronize
from mimw.runtime.launch_errors import caller_loc, explain_driver_error
from mimw.runtime.timing import DeviceTimer

RETURN_MODES = ("min", "max", "mean", "median", "all")


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> Any:
    """The time of `fn()` on the GPU, in ms: two events around each run, L2 flushed before it.

    It runs for about `warmup` ms unmeasured, then for about `rep` ms (at least once). `grad_to_none`: tensors whose gradients are dropped
    before each run. With `quantiles` (between 0 and 1) the result is a list of them, a number when it is one; else `return_mode` says what: "min", "max",
    "mean", "median", or "all" for the list of times. `LaunchError` without a CUDA device.
    """
    _check_mode(return_mode)
    device = _device("do_bench")
    try:
        with DeviceTimer(device, device_driver().torch_stream(device)) as timer:
            fn()
            timer.synchronize()
            estimate = max(timer.total(fn, 5) / 5, 1e-3)
            for _ in range(max(1, int(warmup / estimate))):
                fn()
            times = timer.each(fn, max(1, int(rep / estimate)), lambda: _drop_gradients(grad_to_none))
    except DriverError as error:
        raise explain_driver_error("do_bench", error.name, error.text, error.call, error.log, None) from None
    return summarize(times, quantiles, return_mode)


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> Any:
    """The time of `fn()` in ms without its launch: many runs captured in one CUDA graph, about `rep` ms long, replayed ten times.

    L2 stays warm between runs. Needs torch, whose graphs capture the work; results as `do_bench`.
    """
    _check_mode(return_mode)
    device = _device("do_bench_cudagraph")
    torch = sys.modules.get("torch")
    if torch is None:
        raise LaunchError(
            "bench", "do_bench_cudagraph needs torch, which is not imported", caller_loc(), hint="use do_bench"
        )
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream()):
        fn()
        for tensor in grad_to_none or ():
            tensor.detach_()
            tensor.requires_grad_(True)
            tensor.grad = None
        estimate = max(_replay(torch, _captured(torch, fn, 5, grad_to_none)) / 5, 1e-3)
        count = max(1, int(rep / estimate))
        graph = _captured(torch, fn, count, grad_to_none)
        times = [_replay(torch, graph) / count for _ in range(10)]
    return summarize(times, quantiles, return_mode)


def _captured(torch: Any, fn: Callable[[], Any], count: int, grad_to_none: Sequence[Any] | None) -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            _drop_gradients(grad_to_none)
            fn()
    torch.cuda.synchronize()
    return graph


def _replay(torch: Any, graph: Any) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def _drop_gradients(tensors: Sequence[Any] | None) -> None:
    for tensor in tensors or ():
        tensor.grad = None


def _check_mode(return_mode: str) -> None:
    if return_mode not in RETURN_MODES:
        raise LaunchError(
            "bench", f"return_mode is one of {', '.join(RETURN_MODES)}, not {return_mode!r}", caller_loc()
        )


def _device(what: str) -> int:
    driver = device_driver()
    if not driver.available():
        raise LaunchError("bench", f"{what} needs a CUDA device; there is none", caller_loc())
    device = driver.current_device()
    synchronize(device)  # faults of earlier launches are theirs
    return device


def summarize(times: Sequence[float], quantiles: Sequence[float] | None = None, return_mode: str = "median") -> Any:
    """Times as `do_bench` gives them back. `times` holds at least one."""
    ordered = sorted(times)
    if quantiles is not None:
        found = [_quantile(ordered, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return list(times)
    if return_mode == "mean":
        return sum(ordered) / len(ordered)
    return _quantile(ordered, {"min": 0.0, "median": 0.5, "max": 1.0}[return_mode])


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Linear between the two nearest, as NumPy's and torch's."""
    if not 0 <= q <= 1:
        raise LaunchError("bench", f"a quantile lies between 0 and 1, not {q}", caller_loc())
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """`AssertionError` unless ``|x - y| <= atol + rtol * |y|`` everywhere (NaN equals NaN); arrays, tensors or numbers.

    Defaults as Triton's: `atol` 1e-2, `rtol` 0.
    """
    import numpy as np

    atol, rtol = 1e-2 if atol is None else atol, 0.0 if rtol is None else rtol
    np.testing.assert_allclose(_as_numpy(x), _as_numpy(y), rtol=rtol, atol=atol, equal_nan=True, err_msg=err_msg)


def _as_numpy(x: Any) -> Any:
    import numpy as np

    if hasattr(x, "detach"):  # torch; NumPy has no bf16 and no fp8
        x = x.detach().cpu()
        x = (x.double() if x.is_floating_point() else x).numpy()
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype.kind not in "biuc" else x


class Benchmark:
    """One figure of `perf_report`: `x_names` take the values `x_vals` (numbers, or tuples of them), a line for each of `line_vals` of `line_arg`.

    `args` are the remaining arguments of the function. The names of axes and styles are kept for whoever draws.
    """

    def __init__(
        self,
        x_names: Sequence[str],
        x_vals: Sequence[Any],
        line_arg: str,
        line_vals: Sequence[Any],
        line_names: Sequence[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Sequence[tuple[str, str]] | None = None,
    ) -> None:
        if len(line_vals) != len(line_names):
            raise ValueError(f"{len(line_vals)} lines have {len(line_names)} names")
        self.x_names = list(x_names)
        self.x_vals = list(x_vals)
        self.line_arg = line_arg
        self.line_vals = list(line_vals)
        self.line_names = list(line_names)
        self.plot_name = plot_name
        self.args = args
        self.xlabel = xlabel
        self.ylabel = ylabel
        self.x_log = x_log
        self.y_log = y_log
        self.styles = styles


class Mark:
    """A function under `perf_report`; `run` measures."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = list(benchmarks)

    def run(self, print_data: bool = True, save_path: str = "", **kwargs: Any) -> list[dict[str, Any]]:
        """Call the function at every point; returns one row a point, names to values (of a tuple the first, the median).

        `print_data` prints a table, `save_path` is a folder that gets a CSV file a benchmark. `kwargs` go to the function. Nothing is drawn.
        """
        rows: list[dict[str, Any]] = []
        for bench in self.benchmarks:
            table = [self._row(bench, x, kwargs) for x in bench.x_vals]
            if print_data:
                print(f"{bench.plot_name}:\n{format_table(table)}")
            if save_path:
                _write_csv(save_path, bench.plot_name, table)
            rows += table
        return rows

    def _row(self, bench: Benchmark, x: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        values = list(x) if isinstance(x, (tuple, list)) else [x] * len(bench.x_names)
        row: dict[str, Any] = dict(zip(bench.x_names, values, strict=True))
        point = dict(row)
        for value, name in zip(bench.line_vals, bench.line_names, strict=True):
            measured = self.fn(**point, **{bench.line_arg: value}, **bench.args, **kwargs)
            row[name] = measured[0] if isinstance(measured, (tuple, list)) else measured
        return row


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: the function measures one point (returns a number, or median, min, max); ``fn.run()`` measures all."""
    found = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)
    return lambda fn: Mark(fn, found)


def format_table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the same names as aligned columns."""
    if not rows:
        return "(no rows)"
    lines = [list(rows[0])] + [[_cell(v) for v in row.values()] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _write_csv(folder: str, name: str, rows: Sequence[dict[str, Any]]) -> None:
    import csv
    import os

    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
