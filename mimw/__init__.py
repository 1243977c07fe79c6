"""mimw: a language and compiler for GPU kernels, in pure Python.

    import mimw
    import mimw.language as ml

    @mimw.kernel
    def add(x, y, out, n, BLOCK: ml.constexpr): ...

    add[(mimw.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)

The names below load on first use, so that importing mimw costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mimw.diagnostics import CompilationError, InternalError, LaunchError, MimwWarning
    from mimw.jit import Kernel, cdiv, kernel, next_power_of_2
    from mimw.runtime.hang import HangRecord, KernelHang
    from mimw.runtime.launch import CompiledKernel, synchronize
    from mimw.runtime.tensor_descriptor import TensorDescriptor
    from mimw.sim.errors import SimulationError
    from mimw.target import TARGETS, Target
    from mimw.testing import do_bench
    from mimw.tuning import Config, autotune, heuristics

__version__ = "0.1.0"

_HOME = {
    "CompilationError": "mimw.diagnostics",
    "CompiledKernel": "mimw.runtime.launch",
    "Config": "mimw.tuning",
    "HangRecord": "mimw.runtime.hang",
    "InternalError": "mimw.diagnostics",
    "Kernel": "mimw.jit",
    "KernelHang": "mimw.runtime.hang",
    "LaunchError": "mimw.diagnostics",
    "MimwWarning": "mimw.diagnostics",
    "SimulationError": "mimw.sim.errors",
    "TARGETS": "mimw.target",
    "Target": "mimw.target",
    "TensorDescriptor": "mimw.runtime.tensor_descriptor",
    "autotune": "mimw.tuning",
    "cdiv": "mimw.jit",
    "do_bench": "mimw.testing",
    "heuristics": "mimw.tuning",
    "kernel": "mimw.jit",
    "next_power_of_2": "mimw.jit",
    "synchronize": "mimw.runtime.launch",
}

_ELSEWHERE = {"jit": "kernel", "Autotuner": "autotune", "JITFunction": "Kernel", "compile": "kernel(fn).compile(...)"}
"""Triton's names that are spelled otherwise here."""

__all__ = [
    "TARGETS",
    "CompilationError",
    "CompiledKernel",
    "Config",
    "HangRecord",
    "InternalError",
    "Kernel",
    "KernelHang",
    "LaunchError",
    "MimwWarning",
    "SimulationError",
    "Target",
    "TensorDescriptor",
    "autotune",
    "cdiv",
    "do_bench",
    "heuristics",
    "kernel",
    "next_power_of_2",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name == "testing":
        return importlib.import_module("mimw.testing")
    home = _HOME.get(name)
    if home is None:
        hint = f"; write mimw.{_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"module 'mimw' has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
