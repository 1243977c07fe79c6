"""What `test_print_gpu` runs in a process of its own: printing kernels on the device, one section of output a case."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from mimw.diagnostics import LaunchError
from tests.codegen.ptx.print_kernels import cases, check_positive

MARK = "== "


def on_device(value: Any) -> Any:
    """A NumPy array as a CUDA tensor of the same bits; other values as they are."""
    import torch

    if not isinstance(value, np.ndarray):
        return value
    dtype = getattr(torch, value.dtype.name)
    return torch.from_numpy(value.view(np.uint8).copy()).cuda().view(dtype).reshape(value.shape)


def say(text: str) -> None:
    """A line between what the device prints: C's buffer is emptied first."""
    ctypes.CDLL(None).fflush(None)
    print(text, flush=True)


def run_cases() -> None:
    """Every case, each behind its name."""
    import torch

    for name, (kernel, grid, args, constants) in cases().items():
        say(MARK + name)
        kernel[grid](*[on_device(a) for a in args], **constants)
        torch.cuda.synchronize()
    say(MARK + "end")


def run_assertion(bad: int) -> None:
    """A failing assertion, and what the launches after it say."""
    import torch

    x = np.arange(1, 301, dtype=np.float32)
    x[bad] = -3
    args = [on_device(x), on_device(np.zeros_like(x)), 300]
    say(MARK + "off")
    check_positive[(1,)](*args, B=512)
    torch.cuda.synchronize()
    say(MARK + "on")
    check_positive[(1,)](*args, B=512, debug=True)
    try:
        torch.cuda.synchronize()
    except Exception as error:
        say(MARK + "torch")
        say(f"{type(error).__name__}: {error}")
    say(MARK + "launch")
    try:
        check_positive[(1,)](*args, B=512, debug=True)
    except LaunchError as error:
        say(str(error))
    say(MARK + "end")


if __name__ == "__main__":
    run_assertion(int(sys.argv[1])) if len(sys.argv) > 1 else run_cases()
