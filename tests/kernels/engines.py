"""Where a ready kernel's launches run in tests: in the PTX simulator in place of the tile simulator."""

from __future__ import annotations

from typing import Any

import pytest

from mimw.compiler import compile_kernel
from mimw.jit import Kernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target


def launch_in_ptx(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> list[Any]:
    """From now on launches on host arrays compile for sm_90a and run the text. Gives the list of kernels that ran."""
    ran: list[Any] = []

    def simulate(self: Kernel, grid: Any, values: list[Any], infos: Any, options: Any) -> None:
        special = self.specialise(values)
        target = get_target("sm_90a")
        compiled = compile_kernel(self.fn, self.signature(special, values), target, options, assembled=False)
        records = iter(compiled.metadata.extra.get("descriptors", ()))
        passed = [v for key, v in zip(special, values, strict=True) if key[0] != "c"]
        passed = [described(v, next(records)) if isinstance(v, TensorDescriptor) else v for v in passed]
        run_ptx(compiled.asm["ptx"], None, grid, passed, shared_bytes=compiled.metadata.shared_bytes, seed=seed)
        ran.append(self)

    monkeypatch.setattr(Kernel, "_simulate", simulate)
    return ran


def described(d: TensorDescriptor, record: dict[str, Any]) -> bytes:
    """A descriptor's tensor map, in the box that the code asks for."""
    steps = [s * d.base.itemsize for s in d.strides[-2::-1]]
    base = d.base.T if d.strides[-1] != 1 or d.base.strides[-1] != d.base.itemsize else d.base
    return tensor_map.encode(
        base, record["elem"], d.shape[::-1], steps, record["box"], None, record["swizzle"], d.padding
    )
