"""Kernels in the idioms that people use, in the tile simulator and the PTX simulator; for AMD their text is made."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.compiler import compile_kernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.idioms import attention, descriptors, model_layers, selection, sequences, tile_kernels  # noqa: F401  (they fill the list)
from tests.idioms.cases import CASES, Case, check
from tests.language.engines_kit import copies, encoded


def in_ptx(case: Case, compiled: Any, special: Any) -> list[Any]:
    """The arguments after a run of the text."""
    args = copies(case.args)
    records = iter(compiled.metadata.extra["descriptors"])
    given = [v for key, v in zip(special, args, strict=False) if key[0] != "c"]
    passed = [encoded(a, next(records)) if isinstance(a, TensorDescriptor) else a for a in given]
    grid = (*case.grid, 1, 1)[:3]
    run_ptx(compiled.asm["ptx"], None, grid, passed, shared_bytes=compiled.metadata.shared_bytes)
    return args


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_kernel(case: Case) -> None:
    args = copies(case.args)
    case.kernel[case.grid](*args, **case.constants)
    check(case, args, "tile simulator")
    kernel = case.kernel
    values, given = kernel.bind(tuple(case.args), dict(case.constants))
    special = kernel.specialise(values)
    signature, options = kernel.signature(special, values), kernel._options(given)
    for target in case.targets:
        compiled = compile_kernel(kernel.fn, signature, get_target(target), options, assembled=False)
        if "ptx" in compiled.asm:
            check(case, in_ptx(case, compiled, special), target)
        else:
            assert "s_endpgm" in compiled.asm["amdgcn"]


@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_a_table_of_pointers_compiles(target: str) -> None:
    """Addresses that lie in memory cannot be followed on arrays of the host."""
    signature = {"addresses": "*i64:16", "extents": "*i32:16", "count": "i32"}
    tile = {"BM": 128, "BN": 128, "BK": 32}
    compiled = descriptors.many_products.compile(signature, tile, target=target)
    assert compiled.metadata.spill_bytes == 0
