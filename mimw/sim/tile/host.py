"""Runs a kernel on arrays that are known by address only: what a launch on arrays in host memory comes down to."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import numpy as np

from mimw.ir.core import Module
from mimw.ir.types import DTYPES
from mimw.sim.tile.descriptor import TensorDescriptor
from mimw.sim.tile.interpreter import SimResult, run
from mimw.sim.tile.numerics import Array, numpy_dtype
from mimw.sim.tile.timeline import Timeline


class HostArray(Protocol):
    """An array in host memory: address of element (0, ..., 0), mimw's name of its dtype, shape, strides in elements.

    `owner` keeps the memory alive.
    """

    ptr: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    owner: Any


class HostBlocks(HostArray, Protocol):
    """A tensor descriptor over an array in host memory: `shape` and `strides` are the descriptor's."""

    block_shape: tuple[int, ...]
    padding: str


class HostScalar(Protocol):
    """A number."""

    value: bool | int | float


def run_on_host(
    module: Module,
    args: Sequence[HostArray | HostBlocks | HostScalar],
    grid: tuple[int, ...],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    cluster: tuple[int, ...] | None = None,
    checks: str = "shared",
    fences: bool = False,
    timeline: Timeline | None = None,
) -> SimResult:
    """Execute a kernel on host memory in place; `args` fit the kernel's arguments in order. See `run`."""
    values = [_value(a) for a in args]
    return run(
        module, values, grid, seed=seed, names=names, cluster=cluster, checks=checks, fences=fences, timeline=timeline
    )


def launch_on_host(
    module: Module, args: Sequence[HostArray | HostBlocks | HostScalar], grid: tuple[int, ...]
) -> SimResult:
    """A program's own launch: as `run_on_host`, unless somebody watches over launches, who then runs it."""
    return run_on_host(module, args, grid) if not _WATCHERS else _WATCHERS[-1](module, args, grid)


Watcher = Callable[[Module, Sequence[HostArray | HostBlocks | HostScalar], tuple[int, ...]], SimResult]
_WATCHERS: list[Watcher] = []


@contextmanager
def watched(by: Watcher) -> Generator[None]:
    """While this lasts, `by` gets every launch on host arrays of the whole process, and runs it."""
    _WATCHERS.append(by)
    try:
        yield
    finally:
        _WATCHERS.remove(by)


def _value(a: HostArray | HostBlocks | HostScalar) -> Any:
    if hasattr(a, "block_shape"):
        b = cast("HostBlocks", a)
        return TensorDescriptor(as_array(b), b.block_shape, b.shape, b.strides, b.padding)
    return as_array(cast("HostArray", a)) if hasattr(a, "ptr") else cast("HostScalar", a).value


def as_array(a: HostArray) -> Array:
    """A NumPy view of the memory that a record describes."""
    dtype = numpy_dtype(DTYPES[a.dtype])
    if 0 in a.shape:
        return np.empty(a.shape, dtype)
    strides = [s * dtype.itemsize for s in a.strides]
    low = sum(min(0, (n - 1) * s) for n, s in zip(a.shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(a.shape, strides, strict=True)) + dtype.itemsize
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(a.ptr + low))
    view: Array = np.ndarray(a.shape, dtype, buffer=memory, offset=-low, strides=strides)
    if a.readonly:
        view.flags.writeable = False
    return view
