"""What `test_hang_gpu` runs in a process of its own: one kernel that hangs, then the same kernel when it does not. Prints one line of JSON.

python -m tests.gpu.hang_child CASE SECONDS     # CASE of hang_kernels, or "endless", or "plain" (only the launch that ends)
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from mimw.diagnostics import LaunchError
from mimw.runtime.hang import KernelHang
from tests.gpu.hang_kernels import CASES, Case, endless


def launch(case: Case, good: int) -> Any:
    """One launch on the device; gives what it left in `out`."""
    import torch

    arrays = [torch.from_numpy(a).cuda() for a in case.arrays()]
    flag = torch.tensor([good], dtype=torch.int32, device="cuda")
    case.kernel[(case.grid,)](*arrays, flag, **case.options)
    return arrays[0].cpu().tolist()


def tell(error: KernelHang) -> dict[str, Any]:
    """What a report says, as JSON values."""
    rows = [
        {"task": r.task, "kind": r.kind, "barrier": r.barrier, "slot": r.slot, "line": r.line, "cta": r.cta[0], "warp": r.warp,
         "seconds": r.seconds, "after": r.after}
        for r in error.records
    ]  # fmt: skip
    return {"records": rows, "total": error.total, "lost": error.lost, "text": str(error), "line": error.loc.line}


def run(name: str) -> dict[str, Any]:
    """Hang, and go on."""
    case = Case(endless, 2, "default", "full", 0, 4) if name == "endless" else CASES[name]
    out: dict[str, Any] = {"first": launch(case, 1)}  # loads the kernel, so that what is timed is the hang
    start = time.perf_counter()
    try:
        launch(case, 0)
    except KernelHang as error:
        out["hang"] = tell(error)
    out["seconds"] = time.perf_counter() - start
    try:
        out["next"] = launch(case, 1)
    except (LaunchError, RuntimeError) as error:
        out["next"] = f"{type(error).__name__}"
    return out


if __name__ == "__main__":
    os.environ["MIMW_HANG_TIMEOUT"] = f"{sys.argv[2]}s"
    print("result " + json.dumps({"first": launch(CASES["cycle"], 1)} if sys.argv[1] == "plain" else run(sys.argv[1])))
