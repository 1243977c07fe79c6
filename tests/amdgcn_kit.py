"""Compiled kernels for AMD in the simulator of machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mimw.compiler import compile_kernel
from mimw.jit import Kernel
from mimw.runtime import device_print, hang
from mimw.runtime.convention import KINDS, Param
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import TensorDescriptor, encode_record
from mimw.signature import with_bounds
from mimw.sim.amdgcn.run import run
from mimw.sim.ptx.memory import GlobalMemory
from mimw.target import get_target
from tests.language.engines_kit import NAMES, arrays, copies


class Told:
    """What a run left in the kernel's hidden arguments, by name."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self.extra = kernel.metadata.extra
        sizes = {"print_records": 4 * device_print.WORDS, "print_state": device_print.STATE}
        sizes |= {"hang_records": hang.RECORD * hang.MAX_RECORDS, "hang_state": hang.STATE}
        hidden = [p.name for p in kernel.metadata.params if p.hidden]
        self.memory = {name: np.zeros(sizes[name], np.uint8) for name in hidden if name in sizes}
        self.arguments: list[Any] = [self.memory.get(name, 0) for name in hidden]

    @property
    def printed(self) -> list[str]:
        """The lines."""
        return device_print.read_all(self.extra["prints"], self.memory["print_records"].tobytes())

    @property
    def hang_first(self) -> int:
        """When the first wait gave up, in nanoseconds."""
        return int(self.memory["hang_state"].view(np.uint64)[0])

    @property
    def hang_total(self) -> int:
        """Waves that gave up."""
        return int(self.memory["hang_state"].view(np.uint32)[2])

    @property
    def hang_records(self) -> list[hang.HangRecord]:
        """Who waited where."""
        return hang.unpack_records(self.extra["hang"], self.memory["hang_records"].tobytes(), self.hang_first)

    @property
    def failed(self) -> int:
        """Threads that failed an assertion."""
        return int(self.memory["print_state"].view(np.uint32)[2])


def run_compiled(
    kernel: CompiledKernel, grid: tuple[int, ...], args: list[Any], seed: int = 0, text: str | None = None
) -> Told:
    """Execute the code object of a kernel (or `text` in its place) on arrays (in place), descriptors of some, and numbers; `seed` picks an
    order of the waves. What the kernel has to say is given back."""
    meta, image = kernel.metadata, kernel.asm["hsaco"]
    assert isinstance(image, bytes)
    memory = GlobalMemory()
    addresses = iter(memory.register([a.base for a in args if isinstance(a, TensorDescriptor)]))
    packed: list[Any] = []
    for param, a in zip(meta.arguments, args, strict=True):
        if isinstance(a, TensorDescriptor):
            packed.append(encode_record(next(addresses), a.shape, a.strides, a.base.itemsize, a.padding))
        else:
            packed.append(a if isinstance(a, np.ndarray) else _bytes(param, a))
    gx, gy, gz = (*grid, 1, 1)[:3]
    code = image if text is None else text
    told = Told(kernel)
    packed += told.arguments
    run(code, meta.entry, (gx, gy, gz), (meta.num_threads, 1, 1), packed, memory=memory, seed=seed, arch=meta.target)
    return told


def launch_in_amdgcn(monkeypatch: pytest.MonkeyPatch, target: str, seed: int = 0) -> list[CompiledKernel]:
    """From now on launches on host arrays compile for `target` and run the machine code. Gives the list of what ran."""
    ran: list[CompiledKernel] = []

    def simulate(self: Kernel, grid: Any, values: list[Any], infos: Any, options: Any) -> None:
        special = with_bounds(self.specialise(values), values)
        compiled = compile_kernel(self.fn, self.signature(special, values), get_target(target), options)
        passed = [v for key, v in zip(special, values, strict=True) if key[0] != "c"]
        run_compiled(compiled, grid, passed, seed)
        ran.append(compiled)

    monkeypatch.setattr(Kernel, "_simulate", simulate)
    return ran


def same_on_amd(
    kernel: Kernel, grid: tuple[int, ...], args: list[Any], seeds: tuple[int, ...] = (0, 3), **rest: Any
) -> list[np.ndarray]:
    """Run in the tile simulator, then as machine code of both targets under several orders of the waves; all must leave the same arrays,
    which are given back. `rest`: the constants, and ``num_warps``."""
    options = {k: rest.pop(k) for k in ("num_warps", "num_stages") if k in rest}
    mine = copies(args)
    kernel[grid](*mine, **rest, **options)
    want = arrays(mine)
    code = kernel.fn.__code__
    names = [n for n in code.co_varnames[: code.co_argcount] if n not in rest]
    types = {n: _type(a) for n, a in zip(names, args, strict=True)}
    for target in ("gfx942", "gfx950"):
        compiled = kernel.compile(types, rest, target=target, **options)
        for seed in seeds:
            again = copies(args)
            run_compiled(compiled, grid, again, seed)
            for a, b in zip(arrays(again), want, strict=True):
                np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), err_msg=target)
    return want


def _type(value: Any) -> Any:
    """An argument's type as `Kernel.compile` takes it."""
    if isinstance(value, np.ndarray):
        return f"*{NAMES[value.dtype.name]}:16"
    return "i32" if isinstance(value, int) else "f32" if isinstance(value, float) else value


def _bytes(param: Param, value: Any) -> bytes:
    """A number as it lies in the argument buffer."""
    if isinstance(value, np.generic):
        return value.tobytes()
    kind = param.kind
    if kind == "bf16":
        import ml_dtypes

        return np.array(value, ml_dtypes.bfloat16).tobytes()
    names = {"f": np.float32, "d": np.float64, "e": np.float16}
    code = KINDS[kind][1]
    if code in names:
        return np.array(value, names[code]).tobytes()
    return (int(value) & ((1 << 8 * param.size) - 1)).to_bytes(param.size, "little")
