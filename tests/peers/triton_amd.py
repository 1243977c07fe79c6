"""Triton kernels as code objects for AMD's machines: compiled without a GPU, run in the AMDGCN simulator as Triton's launcher would.

Owns what the code object does not say by itself: the types of the arguments, shared memory, the two scratch pointers at the
end. Knows nothing of mimw's compiler.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mimw.sim.amdgcn.run import RunReport, run
from tests.peers.triton_text import type_of

triton = pytest.importorskip("triton", reason="needs the extra `peers`")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

_FNUZ = {"float8_e4m3fnuz": "*fp8e4b8", "float8_e5m2fnuz": "*fp8e5b16"}


@functools.cache
def _compiled(fn: Any, types: tuple[tuple[str, str], ...], constants: tuple[tuple[str, Any], ...], even: tuple[int, ...],
              arch: str, buffers: bool, options: tuple[tuple[str, Any], ...]) -> Any:  # fmt: skip
    kinds = dict(types)
    attrs = {(i,): [["tt.divisibility", 16]] for i in even}
    for i, kind in enumerate(kinds.values()):
        if buffers and kind[0] == "*":
            attrs[i,] = [*attrs.get((i,), []), ["tt.pointer_range", 32]]
    source = ASTSource(fn, signature=kinds, constexprs=dict(constants), attrs=attrs)
    return triton.compile(source, target=GPUTarget("hip", arch, 64), options=dict(options))


def launch(
    fn: Any,
    grid: Sequence[int],
    values: dict[str, Any],
    arch: str,
    *,
    buffers: bool = True,
    seed: int = 0,
    **options: Any,
) -> RunReport:
    """Compile for `arch` with Triton's options (num_warps, num_stages, ...) and run `grid` programs; arrays are written in place.

    `buffers` promises arrays below 2 GiB, for which Triton uses buffer instructions.
    """
    constexprs = {p.name for p in fn.params if p.is_constexpr}
    constexprs |= {name for name in fn.arg_names if type(values[name]) is int and values[name] == 1}
    types = tuple((name, "constexpr" if name in constexprs else _type(values[name])) for name in fn.arg_names)
    even = tuple(
        i for i, (name, kind) in enumerate(types) if kind[0] == "*" or (kind[0] == "i" and values[name] % 16 == 0)
    )
    constants = tuple((name, values[name]) for name in fn.arg_names if name in constexprs)
    made = _compiled(fn, types, constants, even, arch, buffers, tuple(sorted(options.items())))
    if os.environ.get("MIMW_SHOW_AMDGCN"):
        with open(os.environ["MIMW_SHOW_AMDGCN"], "w") as file:
            file.write(made.asm["amdgcn"])
    args = [_plain(values[name]) for name in fn.arg_names if name not in constexprs]
    x, y, z = (*grid, 1, 1)[:3]
    block = (64 * made.metadata.num_warps, 1, 1)
    return run(made.asm["hsaco"], None, (x, y, z), block, [*args, 0, 0], shared_bytes=made.metadata.shared, seed=seed)


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype.name in _FNUZ:
        return _FNUZ[value.dtype.name]
    return type_of(value)


def _plain(value: Any) -> Any:
    """Arrays of types that NumPy does not know by itself as their bytes."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        return value.view(np.uint8 if value.itemsize == 1 else np.uint16)
    return value
