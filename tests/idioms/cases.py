"""The list of kernels in the idioms that people use: each with its arguments, what comes out, and the targets that it is compiled for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mimw.runtime.tensor_descriptor import TensorDescriptor


class Case(NamedTuple):
    """`want`: number of an argument to what it holds afterwards. `tolerance` is relative above 1, absolute below."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    args: list[Any]
    want: dict[int, Any]
    constants: dict[str, Any]
    tolerance: float
    targets: tuple[str, ...]


CASES: list[Case] = []


def case(
    name: str,
    kernel: Any,
    grid: tuple[int, ...],
    args: list[Any],
    want: dict[int, Any],
    constants: dict[str, Any],
    tol: float = 1e-4,
    targets: tuple[str, ...] = ("sm_90a", "gfx942"),
) -> None:
    """List a kernel."""
    CASES.append(Case(name, kernel, grid, args, want, constants, tol, targets))


def check(case: Case, args: list[Any], engine: str) -> None:
    """Compare the outputs."""
    for i, wanted in case.want.items():
        array = args[i].base if isinstance(args[i], TensorDescriptor) else args[i]
        got = array.astype(np.float64).reshape(np.shape(wanted))
        want = np.asarray(wanted).astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= case.tolerance * np.maximum(1, np.abs(want))
        assert (near | (got == want)).all(), f"{case.name}, {engine}: argument {i}"
