"""A device that is a simulator: kernels compiled for AMD, launched on arrays in host memory, executed as machine code.

Owns: `chosen_target`, which says whether launches on host arrays do so (the environment variable ``MIMW_SIM``), the code object with its source
lines, the arguments as the calling convention has them, and what a kernel tells (prints, assertions, hangs). The arrays are read and written in place.
What runs is the code object that a device would load; nothing of the tile IR is left in it. Must not know Python functions or launch syntax: that is `jit`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from mimw.compiler import assemble_kernel
from mimw.diagnostics import LaunchError, Loc
from mimw.runtime import device_print, hang
from mimw.runtime.arguments import checked_value
from mimw.runtime.arrays import ArrayInfo, DescriptorInfo, ScalarInfo
from mimw.runtime.convention import KINDS
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.launch_errors import caller_loc
from mimw.runtime.tensor_descriptor import encode_map
from mimw.sim.amdgcn.errors import SimulationError as MachineFault
from mimw.sim.amdgcn.program import Program, parse_text
from mimw.sim.amdgcn.run import load_program, run
from mimw.sim.errors import SimulationError
from mimw.sim.ptx.memory import GlobalMemory
from mimw.sim.tile.check import Checked, check_runs, written
from mimw.sim.tile.host import as_array
from mimw.target import Target, get_target

Arguments = Sequence[ArrayInfo | ScalarInfo]
Grid = tuple[int, int, int]
Bytes = npt.NDArray[np.uint8]

VARIABLE = "MIMW_SIM"
_TILE = ("", "tile")


def chosen_target() -> Target | None:
    """The machine whose code launches on host arrays run, as ``MIMW_SIM`` names it; None: they run in the tile simulator."""
    name = os.environ.get(VARIABLE, "")
    return None if name in _TILE else simulated_target(name, VARIABLE)


def simulated_target(name: str, source: str) -> Target:
    """The target of that name, if its machine code can be run here. `source` is where the name comes from, for the `LaunchError`."""
    try:
        target = get_target(name)
    except ValueError as error:
        raise LaunchError("launch-target", f"{source}: {error}", caller_loc()) from None
    if target.vendor != "amd":
        text = f"{source}: launches cannot be run as code for {name}"
        raise LaunchError(
            "launch-target", text, caller_loc(), hint="name gfx942 or gfx950, or tile for the tile simulator"
        )
    return target


class SimulatedKernel:
    """A kernel for an AMD target as the simulator runs it: the code object, each instruction with the user's line."""

    __slots__ = ("atomics", "compiled", "program")

    def __init__(self, compiled: CompiledKernel) -> None:
        """`compiled` is not assembled yet: its text still knows where its lines come from."""
        places = {i: Loc(*place) for i, *place in compiled.metadata.extra["amdgcn_lines"]}
        assemble_kernel(compiled)
        self.compiled = compiled
        self.atomics = "atomic." in cast("str", compiled.asm["tile"])
        self.program = load_program(cast("bytes", compiled.asm["hsaco"]))
        _place(self.program, cast("str", compiled.asm["amdgcn"]), places)

    def launch(self, grid: Grid, args: Arguments, seed: int = 0) -> None:
        """Run on host memory in place; `args` fit the parameters of the code in order. `seed` other than 0 picks another order of the waves.

        Lines that the kernel prints go to standard output. Raises `SimulationError` at the user's line for a fault of the program,
        `KernelHang` where its waits give up, `LaunchError` when an assertion failed.
        """
        meta = self.compiled.metadata
        memory = GlobalMemory(whole_words=self.atomics)
        told = _hidden_memory(meta.params)
        packed = _pack(self.compiled, args, told, memory)
        try:
            run(self.program, meta.entry, grid, (meta.num_threads, 1, 1), packed, memory=memory, seed=seed)
        except MachineFault as fault:
            _tell(self.compiled, told, grid)
            _raise_at_line(fault)
        _tell(self.compiled, told, grid)


def _place(program: Program, text: str, places: dict[int, Loc]) -> None:
    """Give the instructions of a code object the places of the text's lines, a place holding until the next one."""
    at: list[Loc | None] = []
    for i in range(text.count("\n") + 1):
        at.append(places.get(i, at[-1] if at else None))
    for inst, told in zip(program.insts, parse_text(text).insts, strict=False):  # code objects end in padding
        inst.loc = at[told.line - 1]


# --- arguments


def _hidden_memory(params: Sequence[Any]) -> dict[str, Bytes]:
    """Memory for what the kernel tells, by the name of the parameter that points to it."""
    sizes = {"print_records": 4 * device_print.WORDS, "print_state": device_print.STATE}
    sizes |= {"hang_records": hang.RECORD * hang.MAX_RECORDS, "hang_state": hang.STATE}
    return {p.name: np.zeros(sizes[p.name], np.uint8) for p in params if p.hidden and p.name in sizes}


def _pack(kernel: CompiledKernel, args: Arguments, told: dict[str, Bytes], memory: GlobalMemory) -> list[bytes]:
    """The arguments as they lie in the argument buffer, with the arrays' addresses in the simulated memory."""
    meta = kernel.metadata
    arrays = {i: _array(a) for i, a in enumerate(args) if isinstance(a, ArrayInfo)}
    found = memory.register([*arrays.values(), *told.values()])
    addresses = dict(zip([*arrays, *told], found, strict=True))
    values: list[Any] = []
    for i, (param, a) in enumerate(zip(meta.arguments, args, strict=True)):
        value = checked_value(meta.name, param, a)
        if isinstance(a, DescriptorInfo):
            value = encode_map(kernel.map_specs[i], addresses[i], a.shape, a.strides, a.padding)
        values.append(addresses[i] if i in arrays and not isinstance(value, bytes) else value)
    values += [addresses.get(p.name, 0) for p in meta.params if p.hidden]
    return [struct.pack(f"<{KINDS[p.kind][1]}", value) for p, value in zip(meta.params, values, strict=True)]


def _array(a: ArrayInfo) -> npt.NDArray[Any]:
    """The caller's own array where it is NumPy's, which knows how it lies in its memory; else a view of the memory."""
    owner: Any = a.owner
    whole = isinstance(owner, np.ndarray) and not isinstance(a, DescriptorInfo)
    return cast("npt.NDArray[Any]", owner) if whole else as_array(cast("Any", a))


# --- what a run tells


def _tell(kernel: CompiledKernel, told: dict[str, Bytes], grid: Grid) -> None:
    """Print the kernel's lines; raise what it reports of assertions and hangs."""
    meta = kernel.metadata
    head = f"kernel {meta.name!r} with grid {grid}"
    if "print_records" in told:
        lines = device_print.read_all(meta.extra["prints"], told["print_records"].tobytes())
        if lines:
            print("\n".join(lines))
        failed = int(told["print_state"].view(np.uint32)[2])
        if failed:
            raise device_print.assertion_error(head, lines, failed, caller_loc())
    if "hang_records" in told:
        state = told["hang_state"].view(np.uint64)
        records = hang.unpack_records(meta.extra["hang"], told["hang_records"].tobytes(), int(state[0]))
        if records:
            total = int(told["hang_state"].view(np.uint32)[2])
            raise hang.explain(head, meta.extra["hang"], records, total or len(records), "", caller_loc())


def _raise_at_line(fault: MachineFault) -> NoReturn:
    """The fault of an instruction, told at the line that it was made for."""
    where = f" [{fault.where}]" if fault.where else ""
    inst = f", at `{fault.inst.text}`" if fault.inst is not None else ""
    raise SimulationError(fault.code, f"{fault.message}{where}{inst}", fault.loc, kind=fault.kind) from None


# --- who watches


def check_code(kernel: SimulatedKernel, args: Arguments, grid: Grid, seeds: Sequence[int]) -> Checked:
    """Run a kernel under each order of the waves, each time from the same arrays, which then hold what the last run left."""
    checked = Checked(kernel.compiled.name, seeds)
    loc = next((i.loc for i in kernel.program.insts if i.loc is not None), None)

    def run_one(seed: int) -> None:
        kernel.launch(grid, args, seed)

    check_runs(checked, run_one, written(cast("Any", args)), None if kernel.atomics else loc)
    return checked


Watcher = Callable[[SimulatedKernel, Arguments, Grid], None]
_WATCHERS: list[Watcher] = []


def launch(kernel: SimulatedKernel, args: Arguments, grid: Grid) -> CompiledKernel:
    """A program's own launch, unless somebody watches over launches, who then makes it. Returns the kernel, as launches on devices do."""
    if _WATCHERS:
        _WATCHERS[-1](kernel, args, grid)
    else:
        kernel.launch(grid, args)
    return kernel.compiled


@contextmanager
def watched(by: Watcher, target: str) -> Generator[None]:
    """While this lasts, launches on host arrays run the machine code of `target`, and `by` makes them."""
    _WATCHERS.append(by)
    try:
        with engine(target):
            yield
    finally:
        _WATCHERS.remove(by)


@contextmanager
def engine(name: str) -> Generator[None]:
    """While this lasts, ``MIMW_SIM`` is `name`: a target, or ``"tile"``."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
