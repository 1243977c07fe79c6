"""Warp-specialised GEMM (`mimw.kernels.matmul`) against cuBLAS in the same run. Needs a CUDA device and torch, except for `--lines` and `--compile`.

    python -m benchmarks.gemm [--quick] [--only table,random,skinny,fp8] [--sweep M,N,K[,NT]] [--lines] [--compile]

Bars (ratios of times, cuBLAS over mimw): table, geometric mean 1.04, least 0.97; random shapes 1.00 and 0.90; skinny 0.90 each; fp8 1.02. Candidates are CUDA
graphs of one product, interleaved, L2 flushed before each, medians; random normal inputs, two sets; results are checked against float64.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import random
import statistics
import textwrap
from collections.abc import Callable
from typing import Any

from benchmarks.compile_time import fresh
from benchmarks.harness import environment, interleaved
from mimw.kernels import GemmConfig, gemm, gemm_choice, matmul

TABLE = (
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 8192, 2048),
    (16384, 1280, 8192),
    (8192, 8192, 512),
    (16384, 1024, 4096),
)
SKINNY = ((512, 512, 8192), (128, 4096, 4096), (64, 8192, 8192), (4096, 256, 16384))
FP8 = ((4096, 4096, 4096), (8192, 8192, 8192))
MAJORS = ("NN", "NT", "TN", "TT")


def random_shapes(count: int = 10, seed: int = 0) -> list[tuple[int, int, int]]:
    """Shapes of multiples of 8 from 256 to 16384, evenly spread over their logarithms."""
    rng = random.Random(seed)
    return [tuple(8 * round(2 ** rng.uniform(5, 11)) for _ in range(3)) for _ in range(count)]  # type: ignore[misc]


def body_lines(kernel: Any) -> int:
    """Source lines of a kernel's body, from the first statement after the docstring to the last."""
    function = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


COMPILED = ("trace", "passes", "facts", "emit", "print ptx")
"""Stages from source to PTX."""


def compile_times(rounds: int = 9) -> None:
    """Print milliseconds from source to PTX (ptxas not counted) of the kernels, on fresh function objects."""
    for kernel, rows, columns in (
        (gemm.gemm_cooperative, 128, 256),
        (gemm.gemm_pingpong, 128, 192),
        (gemm.gemm_split, 128, 128),
    ):
        constants: dict[str, Any] = {"BM": rows, "BN": columns, "BK": 64, "STAGES": 4, "GROUP_M": 8}
        constants |= {"A_BY_COLUMNS": False, "B_BY_COLUMNS": False}
        signature = {
            "a": f"tensor_desc<{rows}x64xbf16>",
            "b": f"tensor_desc<64x{columns}xbf16>",
            "M": "i32:16",
            "N": "i32:16",
            "K": "i32:16",
        }
        if kernel is gemm.gemm_split:
            signature |= {"c": "*bf16:16", "parts": "*f32:16", "counters": "*i32:16", "stride_cm": "i32:16"}
            constants |= {"SPLITS": 4, "stride_cn": 1}
        else:
            store = (64, 64) if kernel is gemm.gemm_cooperative else (128, 32)
            signature["c"] = f"tensor_desc<{store[0]}x{store[1]}xbf16>"
            constants |= {"COLUMNS": store[1], "BUFFERS": 2, "CLUSTER_M": 1, "CLUSTER_N": 1}
        times: list[float] = []
        for _ in range(rounds + 1):
            stages = fresh(kernel).compile(signature, constants, num_warps=4).metadata.extra["stages"]
            times.append(sum(stages[name] for name in COMPILED))
        print(
            f"{kernel.name}: {statistics.median(times[1:]):.0f} ms from source to PTX, median of {rounds} (bar: 150)",
            flush=True,
        )


def operands(torch: Any, shape: tuple[int, int, int], majors: str, dtype: str) -> tuple[Any, Any]:
    """a: [M, K] and b: [K, N], dense by rows (N) or by columns (T), random normal."""
    m, n, k = shape
    kind = getattr(torch, dtype)
    a = torch.randn((k, m) if majors[0] == "T" else (m, k), device="cuda").to(kind)
    b = torch.randn((n, k) if majors[1] == "T" else (k, n), device="cuda").to(kind)
    return a.T if majors[0] == "T" else a, b.T if majors[1] == "T" else b


def captured(torch: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    """A CUDA graph of `run`, warmed up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(
        torch.cuda.current_stream()
    )  # the operands are still being made, in memory that the result may have had
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    # What `run` holds (scales, workspaces) must live as long as the graph that reads it.
    return lambda graph=graph, run=run: graph.replay()


def vendor(torch: Any, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """cuBLAS's product: torch.matmul, for fp8 torch._scaled_mm with scales of 1 and fast accumulation."""
    if a.element_size() > 1:
        return lambda: torch.matmul(a, b, out=out)
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=True)


def candidates(
    torch: Any, sets: list[tuple[Any, Any, Any]], configs: dict[str, GemmConfig | None]
) -> dict[str, list[Any]]:  # fmt: skip
    """Graphs of cuBLAS and of each configuration, one for each set of inputs."""
    found = {"cuBLAS": [captured(torch, vendor(torch, *s)) for s in sets]}
    for name, config in configs.items():
        found[name] = [captured(torch, lambda s=s, c=config: matmul(*s, config=c)) for s in sets]
    return found


def check(torch: Any, a: Any, b: Any, out: Any) -> None:
    """A result against float64: within a rounding to its type and the tensor core's sums."""
    want = a.double() @ b.double()
    sums = 2.0**-10 if a.element_size() == 1 else (a.shape[1] + 4) * 2.0**-22  # as mma.dot states
    bound = sums * (a.double().abs() @ b.double().abs()) + torch.finfo(out.dtype).eps * want.abs()
    wrong = ~((out.double() - want).abs() <= bound)
    if wrong.any():
        rows, columns = torch.nonzero(wrong.any(1)).flatten(), torch.nonzero(wrong.any(0)).flatten()
        at = (rows[0], torch.nonzero(wrong[rows[0]]).flatten()[0])
        raise AssertionError(
            f"{int(wrong.sum())} wrong elements in rows {rows[0]} to {rows[-1]} ({len(rows)}), columns {columns[0]} to {columns[-1]} ({len(columns)}); "
            f"{int(out.isnan().sum())} are NaN; the first at {at[0]}, {at[1]}: {out[at]} instead of {want[at]}"
        )


def measure(
    torch: Any, shape: tuple[int, int, int], majors: str, dtype: str, rounds: int, configs: dict[str, GemmConfig | None]
) -> dict[str, float]:  # fmt: skip
    """Median milliseconds of cuBLAS and each configuration; the last one's result is checked."""
    m, n, _ = shape
    kind = torch.bfloat16 if dtype.startswith("float8") else getattr(torch, dtype)
    pairs = [operands(torch, shape, majors, dtype) for _ in range(2)]
    sets = [(*pair, torch.full((m, n), math.nan, device="cuda", dtype=kind)) for pair in pairs]
    times = interleaved(candidates(torch, sets, configs), rounds, 4)
    for s in sets:
        s[2].fill_(math.nan)
        matmul(*s, config=next(reversed(configs.values())))
        check(torch, *s)
    return times


def section(
    torch: Any, title: str, cases: list[tuple[tuple[int, int, int], str, str]], rounds: int, bars: tuple[float, float]
) -> bool:  # fmt: skip
    """Measure cases (shape, majors, dtype), print their ratios, their geometric mean and least; whether both bars hold."""
    print(f"\n{title}: bars {bars[0]:.2f} (mean), {bars[1]:.2f} (least)")
    ratios: list[float] = []
    for shape, majors, dtype in cases:
        times = measure(torch, shape, majors, dtype, rounds, {"mimw": None})
        ratios.append(times["cuBLAS"] / times["mimw"])
        speed = 2e-9 * math.prod(shape) / times["mimw"]
        name = "x".join(map(str, shape))
        print(
            f"  {dtype:<14} {majors} {name:<18} cuBLAS {times['cuBLAS'] * 1e3:9.1f} us, mimw {times['mimw'] * 1e3:9.1f} us, "
            f"{speed:5.0f} TFLOP/s  {ratios[-1]:.3f}", flush=True,
        )  # fmt: skip
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    good = mean >= bars[0] and min(ratios) >= bars[1]
    print(f"  geometric mean {mean:.3f}, least {min(ratios):.3f}: {'holds' if good else 'MISSES'}", flush=True)
    return good


def sweep(torch: Any, text: str, rounds: int) -> None:
    """All configurations that `choose` chooses from for one shape, written M,N,K or M,N,K,NT; the fastest first."""
    m, n, k, *rest = text.split(",")
    shape, majors = (int(m), int(n), int(k)), rest[0] if rest else "NN"
    sms = torch.cuda.get_device_properties().multi_processor_count
    offered = gemm_choice.candidates(gemm_choice.Product(*shape, 2, sms, majors[0] == "T", majors[1] == "T"), False)
    times = measure(torch, shape, majors, "bfloat16", rounds, {**{repr(c): c for c, _ in offered}, "chosen": None})
    print(f"\nsweep {text}: ratio to cuBLAS ({times['cuBLAS'] * 1e3:.1f} us)")
    for name, ms in sorted(times.items(), key=lambda item: item[1]):
        print(f"  {times['cuBLAS'] / ms:.3f}  {ms * 1e3:9.1f} us  {name}", flush=True)


def sections(quick: bool) -> dict[str, tuple[list[tuple[tuple[int, int, int], str, str]], tuple[float, float]]]:
    """Cases and bars by name. A quick run takes fp16 in two majors only."""
    table = [(s, j, "bfloat16") for s in TABLE for j in MAJORS]
    table += [(s, j, "float16") for s in TABLE for j in (("NT",) if quick else MAJORS)]
    return {
        "table": (table, (1.04, 0.97)),
        "random": ([(s, "NN", "bfloat16") for s in random_shapes()], (1.00, 0.90)),
        "skinny": ([(s, j, "bfloat16") for s in SKINNY for j in ("NN", "NT")], (0.90, 0.90)),
        "fp8": ([(s, "NT", "float8_e4m3fn") for s in FP8], (1.02, 1.02)),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="GEMM against cuBLAS")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer fp16 cases")
    parser.add_argument("--only", default="table,random,skinny,fp8", help="sections, with commas")
    parser.add_argument("--sweep", action="append", help="M,N,K[,NT]: all configurations for a shape; may be repeated")
    parser.add_argument("--compile", action="store_true", help="print how long the kernels compile and end")
    parser.add_argument("--lines", action="store_true", help="print the kernels' body lines and end")
    given = parser.parse_args(arguments)
    if given.compile:
        compile_times()
        return
    if given.lines:
        for kernel in (gemm.gemm_cooperative, gemm.gemm_pingpong, gemm.gemm_split):
            print(f"{kernel.name}: {body_lines(kernel)} body lines (bar: under 80)")
        return
    import torch

    torch.manual_seed(0)
    print(environment())
    rounds = 20 if given.quick else 60
    for text in given.sweep or ():
        sweep(torch, text, rounds)
    if not given.sweep:
        known = sections(given.quick)
        held = {name: section(torch, name, known[name][0], rounds, known[name][1]) for name in given.only.split(",")}
        print("\n" + ", ".join(f"{name} {'holds' if good else 'MISSES'}" for name, good in held.items()))


if __name__ == "__main__":
    main()
