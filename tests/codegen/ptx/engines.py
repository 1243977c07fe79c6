"""Runs a kernel through passes, emission and the PTX simulator, and beside it in the tile simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mimw.codegen.ptx.emit import emit_text
from mimw.ir.core import Module
from mimw.passes import facts, pipeline
from mimw.sim.ptx.run import run_ptx
from mimw.sim.tile import run as run_tile
from mimw.target import get_target

Array = np.ndarray[Any, Any]


def compile_text(module: Module, target: str, **options: Any) -> tuple[str, int]:
    """(PTX text, bytes of shared memory) of a module without layouts."""
    machine = get_target(target)
    pipeline.run(module, machine)
    text = emit_text(module, machine, facts.compute(module.function), options)
    return text, int(module.function.options.get("shared_bytes", 0))


def both(
    build: Callable[[], Module], args: list[Any], grid: tuple[int, int, int] = (1, 1, 1), target: str = "sm_90a"
) -> tuple[list[Any], list[Any], str]:
    """(arguments after the tile simulator, after the PTX simulator, text)."""
    first = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    run_tile(build(), first, grid)
    second = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    text, shared = compile_text(build(), target)
    run_ptx(text, None, grid, second, shared_bytes=shared)
    return first, second, text


def assert_same(first: list[Any], second: list[Any], ulp: float = 0.0) -> None:
    """Arrays agree: bit for bit, or within so many units in the last place (of float arrays)."""
    for a, b in zip(first, second, strict=True):
        if not isinstance(a, np.ndarray):
            continue
        if ulp and a.dtype.kind in "fV":
            x, y = a.astype(np.float64), b.astype(np.float64)
            scale = np.maximum(np.abs(x), np.finfo(np.float32).tiny)
            eps = {2: 2.0**-7 if "bfloat" in a.dtype.name else 2.0**-10, 4: 2.0**-23, 8: 2.0**-52, 1: 2.0**-2}[
                a.dtype.itemsize
            ]
            bad = ~((np.abs(x - y) <= ulp * eps * scale) | (x == y) | (np.isnan(x) & np.isnan(y)))
        else:
            u = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
            bad = a.view(u) != b.view(u)
            if a.dtype.kind in "fV":
                x, y = a.astype(np.float64), b.astype(np.float64)
                bad &= ~(np.isnan(x) & np.isnan(y))
        assert not bad.any(), (
            f"{bad.sum()} of {bad.size} differ, first at {np.argwhere(bad)[0]}: {a[tuple(np.argwhere(bad)[0])]} {b[tuple(np.argwhere(bad)[0])]}"
        )
