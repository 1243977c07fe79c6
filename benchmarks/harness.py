"""How things are timed on a GPU: candidates take turns in one process, L2 is flushed before each run, several input sets, medians.

Figures of one run are compared as ratios only: machines are shared and power-limited.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any


def environment() -> str:
    """Device, clocks and versions, one line each."""
    import torch

    import mimw
    from mimw.codegen.ptx.assemble import ptxas_version
    from mimw.runtime import driver_api

    lines = [
        f"device {torch.cuda.get_device_name()}, driver {driver_api.driver_version()}, torch {torch.__version__}",
        f"mimw {mimw.__version__}, ptxas {ptxas_version()}",
    ]
    try:
        import subprocess

        query = "--query-gpu=clocks.sm,clocks.mem,power.limit,temperature.gpu"
        lines.append(
            "clocks " + subprocess.check_output(["nvidia-smi", query, "--format=csv,noheader"], text=True).strip()
        )
    except (OSError, subprocess.SubprocessError):
        lines.append("clocks unknown (no nvidia-smi)")
    return "\n".join(lines)


PAUSE_CYCLES = 600_000
"""Device clock cycles between the flush and the candidate: about 0.3 ms."""


def interleaved(
    candidates: dict[str, Sequence[Callable[[], Any]]], rounds: int = 60, warmup: int = 8
) -> dict[str, float]:
    """Median milliseconds of each candidate. A candidate is a list of closures, one an input set; they take turns.

    Every run starts with a flushed L2 (a 256 MiB fill) and a pause on the device, long enough for the host to have queued the candidate: times are
    CUDA events around the candidate alone, without the host's part.
    """
    import torch

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[tuple[Any, Any]]] = {name: [] for name in candidates}
    for i in range(warmup + rounds):
        for name, runs in candidates.items():
            flush.fill_(i & 1)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(PAUSE_CYCLES)
            start.record()
            runs[i % len(runs)]()
            end.record()
            if i >= warmup:
                times[name].append((start, end))
    torch.cuda.synchronize()
    return {name: statistics.median(s.elapsed_time(e) for s, e in pairs) for name, pairs in times.items()}
