"""`mimw.kernels.matmul` beside Triton's persistent TMA kernel, and cuBLAS, in the same run. Needs torch, triton 3.6 and a Hopper GPU.

    python -m benchmarks.gemm_peers [--quick] [--only table,skinny,fp8,fp8-skinny] [--forms flat,specialised] [--compile]

Bars (ratios of times, Triton over mimw): ahead in the geometric mean, nowhere behind by more than 2 %. Triton gets, for each shape and layout, the best of
the variants below: a first interleaved round chooses it, a second one gives the figures, so that it doesn't win by the luck of many draws. Candidates
are CUDA graphs of one product; every variant's result is checked against float64. `--compile` only compiles every variant, on any machine.

Two forms of the kernel, both with TMA descriptors:
- flat: loads and products in one software pipeline over all tiles (`flatten`), 4 or 8 warps that all do everything;
- specialised: `warp_specialize`, one producer and two consumer warp groups. Triton 3.6 does this on Hopper for 4 warps only, can then neither take a
  host's descriptor for the result (it halves the rows it stores) nor split the epilogue; so the kernel makes that descriptor, or stores by pointers.
Neither divides K among programs: on the skinny shapes, where mimw does, Triton has small tiles instead.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import triton
import triton.language as tl

from benchmarks.gemm import SKINNY, TABLE, captured, check, operands, vendor
from benchmarks.harness import environment, interleaved
from mimw.kernels import matmul

Shape = tuple[int, int, int]
MEAN_BAR, LEAST_BAR = 1.00, 0.98
PATIENCE_S = 20.0
"""How long a variant's first run may take. The longest product here takes 2 ms."""


class Variant(NamedTuple):
    """One way to run the Triton kernel. `depth` is BK in bytes; `store` is whole, halves (two stores a tile) or pointers (no TMA)."""

    form: str
    BM: int
    BN: int
    depth: int
    stages: int
    warps: int
    store: str

    def __str__(self) -> str:
        return f"{self.form} {self.BM}x{self.BN}x{self.depth}B {self.stages} stages {self.warps} warps, {self.store}"


WIDE = (
    Variant("flat", 128, 256, 128, 3, 8, "whole"),
    Variant("flat", 128, 256, 128, 3, 8, "halves"),
    Variant("flat", 128, 256, 128, 4, 8, "halves"),
    Variant("flat", 256, 128, 128, 4, 8, "halves"),
    Variant("flat", 128, 128, 128, 4, 8, "whole"),
    Variant("specialised", 128, 256, 128, 3, 4, "whole"),
    Variant("specialised", 128, 256, 128, 4, 4, "pointers"),
    Variant("specialised", 128, 128, 128, 4, 4, "whole"),
)
NARROW = (
    Variant("flat", 64, 32, 256, 6, 4, "whole"),
    Variant("flat", 64, 64, 256, 5, 4, "whole"),
    Variant("flat", 128, 64, 256, 4, 4, "whole"),
    Variant("flat", 64, 128, 256, 4, 4, "whole"),
    Variant("flat", 128, 128, 128, 4, 8, "whole"),
    Variant("specialised", 128, 128, 128, 4, 4, "whole"),
)


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile: bands of GROUP rows, column by column, so that neighbours share what L2 holds."""
    first = tile // (GROUP * tiles_n) * GROUP
    rows = min(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return first + within % rows, within // rows


@triton.jit
def flat(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
    TRANSPOSED: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """c = a @ b for descriptors; b's is of [N, K] when TRANSPOSED. Program i makes tiles i, i + PROGRAMS, ..."""
    tiles_m, tiles_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    # The epilogue counts tiles of its own: the flattened loop has by then moved on with the loads of the next tile.
    finished = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        m, n = place(tile, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            left = a.load([m * BM, step * BK])
            if TRANSPOSED:
                right = b.load([n * BN, step * BK]).T
            else:
                right = b.load([step * BK, n * BN])
            sums = tl.dot(left, right, sums)
        finished += PROGRAMS
        m, n = place(finished, tiles_m, tiles_n, GROUP)
        if STORE == "halves":
            low, high = sums.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
            c.store([m * BM, n * BN], low.to(c.dtype))
            c.store([m * BM, n * BN + BN // 2], high.to(c.dtype))
        else:
            c.store([m * BM, n * BN], sums.to(c.dtype))


@triton.jit
def specialised(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
    TRANSPOSED: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """As `flat`, but c is a pointer, and loads, and products with the epilogue, are work of different warp groups."""
    tiles_m, tiles_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    result = c.dtype.element_ty
    if STORE == "whole":
        out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, warp_specialize=True):
        m, n = place(tile, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for step in range(steps):
            left = a.load([m * BM, step * BK])
            if TRANSPOSED:
                right = b.load([n * BN, step * BK]).T
            else:
                right = b.load([step * BK, n * BN])
            sums = tl.dot(left, right, sums)
        if STORE == "whole":
            out.store([m * BM, n * BN], sums.to(result))
        else:
            rows, columns = (m * BM + tl.arange(0, BM))[:, None], (n * BN + tl.arange(0, BN))[None, :]
            tl.store(c + rows.to(tl.int64) * N + columns, sums.to(result), mask=(rows < M) & (columns < N))


KERNELS = {"flat": flat, "specialised": specialised}


def blocks(v: Variant, item_size: int, transposed: bool) -> tuple[list[int], list[int], list[int]]:
    """The blocks that the descriptors of a, b and c copy."""
    BK = v.depth // item_size
    return [v.BM, BK], [v.BN, BK] if transposed else [BK, v.BN], [v.BM, v.BN // 2 if v.store == "halves" else v.BN]


def constants(v: Variant, item_size: int, transposed: bool, programs: int) -> dict[str, Any]:
    return {
        "BM": v.BM, "BN": v.BN, "BK": v.depth // item_size, "GROUP": 8, "PROGRAMS": programs,
        "TRANSPOSED": transposed, "STORE": v.store,
    }  # fmt: skip


def compile_all() -> None:
    """Compile every variant for Hopper without a device; print its shared memory and threads."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for kind, item_size, transposed in (("bf16", 2, False), ("bf16", 2, True), ("fp8e4nv", 1, True)):
        for v in dict.fromkeys(WIDE + NARROW):
            of_a, of_b, of_c = (f"[{rows}, {columns}]" for rows, columns in blocks(v, item_size, transposed))
            signature = {"a": f"tensordesc<{kind}{of_a}>", "b": f"tensordesc<{kind}{of_b}>"}
            signature["c"] = f"tensordesc<bf16{of_c}>" if v.form == "flat" else "*bf16"
            given = constants(v, item_size, transposed, 132)
            signature |= {**dict.fromkeys("MNK", "i32"), **dict.fromkeys(given, "constexpr")}
            aligned = {(i,): [["tt.divisibility", 16]] for i in ((3, 4, 5) if v.form == "flat" else (2, 3, 4, 5))}
            started = time.perf_counter()
            kernel = triton.compile(
                ASTSource(KERNELS[v.form], signature, given, aligned), target=GPUTarget("cuda", 90, 32),
                options={"num_warps": v.warps, "num_stages": v.stages},
            )  # fmt: skip
            threads = kernel.asm["ptx"].split(".reqntid ")[1].split()[0]
            taken = time.perf_counter() - started
            print(
                f"  {kind} {'NT' if transposed else 'NN'} {v}: {kernel.metadata.shared} B, {threads} threads, {taken:.1f} s"
            )


def arguments(v: Variant, a: Any, b: Any, out: Any) -> tuple[Any, ...]:
    """The kernel's operands: descriptors that the host makes, then M, N, K."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    transposed = b.stride(0) == 1
    of_a, of_b, of_c = blocks(v, a.element_size(), transposed)
    left = TensorDescriptor.from_tensor(a, of_a)
    right = TensorDescriptor.from_tensor(b.T if transposed else b, of_b)
    result = TensorDescriptor.from_tensor(out, of_c) if v.form == "flat" else out
    return left, right, result, a.shape[0], b.shape[1], a.shape[1]


def launcher(torch: Any, v: Variant, a: Any, b: Any, out: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(compile, run) of one variant on one set of operands."""
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    programs = min(sms, math.ceil(a.shape[0] / v.BM) * math.ceil(b.shape[1] / v.BN))
    given = arguments(v, a, b, out)
    options = {**constants(v, a.element_size(), b.stride(0) == 1, sms), "num_warps": v.warps, "num_stages": v.stages}
    kernel = KERNELS[v.form]
    grid = (programs,)
    return (lambda: kernel.warmup(*given, grid=grid, **options)), (lambda: kernel[grid](*given, **options))


def finishes(torch: Any, run: Callable[[], Any], name: str) -> None:
    """Run once and wait; a kernel that hangs ends the process, which is all that can be done about it."""
    run()
    end = torch.cuda.Event()
    end.record()
    given_up = time.monotonic() + PATIENCE_S
    while not end.query():
        if time.monotonic() > given_up:
            print(f"{name} hangs: leave its form out (--forms)", flush=True)
            os._exit(1)


def usable(
    torch: Any, variants: tuple[Variant, ...], sets: list[tuple[Any, Any, Any]]
) -> Iterator[tuple[Variant, list[Any]]]:
    """Variants that compile and whose results are right, with a graph for each set of operands; others are reported."""
    with ThreadPoolExecutor(8) as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        for v in variants:
            launcher(torch, v, *sets[0])[0]()
    for v in variants:
        runs = [launcher(torch, v, *s)[1] for s in sets]
        try:
            sets[0][2].fill_(math.nan)
            finishes(torch, runs[0], str(v))
            check(torch, *sets[0])
            graphs = [captured(torch, run) for run in runs]
        except Exception as error:
            print(f"    left out: Triton {v}: {type(error).__name__} {str(error)[:200]}", flush=True)
            continue
        yield v, graphs


def measure(
    torch: Any, shape: Shape, majors: str, dtype: str, variants: tuple[Variant, ...], rounds: int
) -> tuple[dict[str, float], Variant]:  # fmt: skip
    """Median milliseconds of cuBLAS, mimw and Triton's best variant, and that variant; mimw's results are checked."""
    m, n, _ = shape
    pairs = [operands(torch, shape, majors, dtype) for _ in range(2)]
    sets = [(*pair, torch.empty((m, n), device="cuda", dtype=torch.bfloat16)) for pair in pairs]
    graphs = dict(usable(torch, variants, sets))
    if not graphs:
        raise RuntimeError("no Triton variant runs")
    trial = interleaved({str(v): runs for v, runs in graphs.items()}, max(10, rounds // 3), 3)
    best = min(graphs, key=lambda v: trial[str(v)])
    candidates = {
        "cuBLAS": [captured(torch, vendor(torch, *s)) for s in sets],
        "mimw": [captured(torch, lambda s=s: matmul(*s)) for s in sets],
        "Triton": graphs[best],
    }
    times = interleaved(candidates, rounds, 4)
    for s in sets:
        s[2].fill_(math.nan)
        matmul(*s)
        check(torch, *s)
    return times, best


def section(
    torch: Any, title: str, cases: list[tuple[Shape, str, str]], variants: tuple[Variant, ...], rounds: int
) -> list[float]:  # fmt: skip
    """Measure cases (shape, majors, dtype) and print them; the ratios, Triton's time over mimw's."""
    print(f"\n{title}: Triton over mimw, bars {MEAN_BAR:.2f} (mean), {LEAST_BAR:.2f} (least)")
    ratios: list[float] = []
    for shape, majors, dtype in cases:
        times, best = measure(torch, shape, majors, dtype, variants, rounds)
        ratios.append(times["Triton"] / times["mimw"])
        each = ", ".join(f"{name} {ms * 1e3:8.1f} us" for name, ms in times.items())
        name = "x".join(map(str, shape))
        print(f"  {dtype:<14} {majors} {name:<18} {each}  {ratios[-1]:.3f}  ({best})", flush=True)
    print(f"  {verdict(ratios)}", flush=True)
    return ratios


def verdict(ratios: list[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    good = mean > MEAN_BAR and min(ratios) >= LEAST_BAR
    return f"geometric mean {mean:.3f}, least {min(ratios):.3f}: {'holds' if good else 'MISSES'}"


def sections() -> dict[str, tuple[list[tuple[Shape, str, str]], tuple[Variant, ...]]]:
    """Cases and Triton's variants, by name."""
    return {
        "table": ([(s, j, "bfloat16") for s in TABLE for j in ("NN", "NT")], WIDE),
        "skinny": ([(s, j, "bfloat16") for s in SKINNY for j in ("NN", "NT")], NARROW),
        "fp8": ([(s, "NT", "float8_e4m3fn") for s in TABLE], WIDE),
        "fp8-skinny": ([(s, "NT", "float8_e4m3fn") for s in SKINNY], NARROW),
    }


def main(arguments: list[str] | None = None) -> None:
    known = sections()
    parser = argparse.ArgumentParser(description="GEMM beside Triton")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default=",".join(known), help="sections, with commas")
    parser.add_argument("--forms", default=",".join(KERNELS), help="forms of the Triton kernel, with commas")
    parser.add_argument("--compile", action="store_true", help="compile every variant, without a device, and end")
    given = parser.parse_args(arguments)
    if given.compile:
        compile_all()
        return
    import torch

    torch.manual_seed(0)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    print(f"{environment()}\ntriton {triton.__version__}")
    every: list[float] = []
    for name in given.only.split(","):
        cases, variants = known[name]
        kept = tuple(v for v in variants if v.form in given.forms.split(","))
        every += section(torch, name, cases, kept, 15 if given.quick else 40)
    print(f"\nall: {verdict(every)}")


if __name__ == "__main__":
    main()
