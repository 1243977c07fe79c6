"""The tile simulator: executes tile IR on NumPy arrays over a whole grid. It is the definition of the language.

CTAs run one after another, x fastest; those of a cluster run together, and so do some where the kernel polls memory. Every op
rounds to its declared type. Pointers are addresses of a flat space that holds the caller's arrays; an access outside of them,
or one that is misaligned, is a `SimulationError` at the Python line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from mimw.ir.core import Argument, Function, Module
from mimw.ir.types import DType, PointerType, TensorDescType
from mimw.sim.errors import SimulationError
from mimw.sim.orders import Timed, of_seed
from mimw.sim.scheduler import Scheduler
from mimw.sim.tile import (
    arith,
    async_copy,
    atomic,
    barrier,
    cluster,
    control,
    debug,
    inline,
    math,
    memory,
    mma,
    task,
    tensor,
)
from mimw.sim.tile.address_space import AddressSpace
from mimw.sim.tile.cta import Cluster, Cta
from mimw.sim.tile.deadlock import report
from mimw.sim.tile.descriptor import Descriptor
from mimw.sim.tile.global_races import GlobalRaces
from mimw.sim.tile.machine import Machine, Run
from mimw.sim.tile.numerics import Array, numpy_dtype, to_float
from mimw.sim.tile.timeline import Timeline

FAMILIES = (arith, async_copy, atomic, barrier, cluster, control, debug, inline, math, memory, mma, task, tensor)

_TOGETHER = 64  # CTAs that run side by side where the kernel polls memory

_Dim3 = tuple[int, int, int]


class SimResult:
    """What a run leaves besides the arrays: lines of `device_print`, and `findings` (warnings, as the errors that they are not)."""

    __slots__ = ("findings", "printed")

    def __init__(self, printed: list[str], findings: list[SimulationError]) -> None:
        self.printed = printed
        self.findings = findings

    @property
    def warnings(self) -> list[str]:
        """The findings in a line each: ``file:line:column: warning: ...``."""
        return [f"{f.loc}: warning: {f.message}" for f in self.findings]

    def __repr__(self) -> str:
        return f"SimResult({len(self.printed)} lines printed, {len(self.warnings)} warnings)"


def run(
    module: Module,
    args: Sequence[Any],
    grid: tuple[int, ...],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    cluster: tuple[int, ...] | None = None,
    checks: str = "shared",
    fences: bool = False,
    timeline: Timeline | None = None,
) -> SimResult:
    """Execute a kernel for every CTA of `grid` (up to three sizes), writing the arrays in place.

    `args` fit the kernel's arguments: arrays for pointers (any strides; the first element is what the pointer points
    to), numbers for scalars, `TensorDescriptor` (or what looks like one) for descriptors. `names` are the arrays' names in
    messages (default: the arguments'). `cluster` is the cluster's extent in CTAs (default: the function's option
    ``ctas_per_cga``, else 1). `seed` picks how tasks, CTAs that run together, and engines interleave: 0 is the plain order with
    engines as late as can be, any other number draws. A program that is right gives the same for every seed.

    `checks` says what is watched beside what ends every run: "shared" (waits and races for shared memory), "all" (races for global
    memory too), "none" (wrong orders show in the results, as on hardware).

    With `fences` the kernel must have the proxy fences that engines need (it comes out of the passes; what users write has only some of
    them). A `timeline` is filled with times; the schedule is then its own, and only its first CTAs are run.

    Raises `SimulationError` where the program goes wrong, TypeError when the arguments do not fit.
    """
    fn = module.function
    if len(args) != len(fn.arguments):
        raise TypeError(f"{fn.name} takes {len(fn.arguments)} arguments, not {len(args)}")
    titles = names or [a.name or f"argument {i}" for i, a in enumerate(fn.arguments)]
    arrays: list[tuple[str, Array]] = [
        (t, _array(x)) for t, x in zip(titles, args, strict=True) if _array(x) is not None
    ]
    space = AddressSpace(arrays)
    values = [_argument(a, x, space) for a, x in zip(fn.arguments, args, strict=True)]
    size = _dim3(grid)
    shape = _dim3(cluster or fn.options.get("ctas_per_cga") or (1,))
    if any(g % c for g, c in zip(size, shape, strict=True)):
        raise TypeError(f"a grid of {size} cannot be cut into clusters of {shape}")
    races = GlobalRaces() if checks == "all" else None
    state = Run(fn, space, size, watch=checks != "none", fences=fences, races=races, timeline=timeline)
    with np.errstate(all="ignore"):
        _Runner(state, shape, values, seed).all()
    return SimResult(state.printed, state.findings)


class _Runner:
    """Cuts the grid of a run into groups of CTAs that run together, and runs group after group."""

    __slots__ = ("cluster", "run", "seed", "values")

    def __init__(self, run: Run, cluster: _Dim3, values: list[Any], seed: int) -> None:
        self.run = run
        self.cluster = cluster
        self.values = values
        self.seed = seed

    def all(self) -> None:
        """Run all; with a timeline the first groups."""
        cx, cy, cz = self.cluster
        gx, gy, gz = self.run.grid
        corners = [(x, y, z) for z in range(0, gz, cz) for y in range(0, gy, cy) for x in range(0, gx, cx)]
        together = max(1, _TOGETHER // (cx * cy * cz)) if polls(self.run.function) else 1
        timeline = self.run.timeline
        for i in range(0, len(corners), together):
            if timeline is not None and i * cx * cy * cz >= timeline.ctas:
                break
            self._group(corners[i : i + together], self.seed * 1_000_003 + i if self.seed else 0)

    def _group(self, corners: list[_Dim3], seed: int) -> None:
        fn, timeline = self.run.function, self.run.timeline
        order = of_seed(seed) if timeline is None else Timed()
        scheduler = Scheduler(order, lambda agents: report(fn, agents), timeline)
        machines = [m for corner in corners for m in self._cluster(corner, scheduler)]
        first, *others = machines
        for m in others:
            task.start_task(m, fn.block)
        first.cta.cluster.sync.join()
        scheduler.run(
            first.agent_name,
            lambda: first.run_body(fn.block),
            first.cta.cluster.sync.leave,
            group=first.cta.name,
            trips=first.clock.trips,
        )
        for m in machines if self.run.watch else ():
            m.cta.leave()

    def _cluster(self, corner: _Dim3, scheduler: Scheduler) -> list[Machine]:
        cx, cy, cz = self.cluster
        x0, y0, z0 = corner
        cluster = Cluster(scheduler, self.run.order)
        places = [(x0 + x, y0 + y, z0 + z) for z in range(cz) for y in range(cy) for x in range(cx)]
        machines: list[Machine] = []
        for rank, pid in enumerate(places):
            cta = Cta(pid, rank, cluster)
            cluster.ctas.append(cta)
            m = Machine(self.run, cta)
            m.env = dict(zip(self.run.function.block.args, self.values, strict=True))
            machines.append(m)
        return machines


def polls(fn: Function) -> bool:
    """Whether a kernel waits in a loop for what another CTA writes: then CTAs must run side by side."""
    for op in fn.walk():
        if op.name == "control.while":
            for inner in op.walk():
                if inner.name.startswith("atomic.") or inner.attrs.get("volatile") or inner.attrs.get("cache") == "cv":
                    return True
    return False


def _dim3(sizes: Sequence[int]) -> _Dim3:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return (int(x), int(y), int(z))


def _array(x: Any) -> Any:
    """The array of an argument: itself, or a descriptor's; None for a number."""
    if isinstance(x, np.ndarray):
        return cast("Array", x)
    return getattr(x, "tensor", None)


def _descriptor(a: Argument, t: TensorDescType, x: Any, space: AddressSpace) -> Descriptor:
    if not isinstance(getattr(x, "tensor", None), np.ndarray):
        raise TypeError(f"{a.name} takes a tensor descriptor, not {type(x).__name__}")
    if tuple(x.block_shape) != t.block_shape or x.tensor.dtype.itemsize != t.dtype.itemsize:
        raise TypeError(f"{a.name} takes {t}, not blocks of {list(x.block_shape)} of {x.tensor.dtype}")
    return Descriptor(space.address_of(x.tensor), x.shape, x.strides, t, x.padding)


def _argument(a: Argument, x: Any, space: AddressSpace) -> Any:
    if isinstance(a.type, PointerType):
        if isinstance(x, np.ndarray):
            return np.array(space.address_of(cast("Array", x)), np.int64)
        if isinstance(x, int) and not isinstance(x, bool):
            return np.array(x, np.int64)
        raise TypeError(f"{a.name} takes an array, not {type(x).__name__}")
    if isinstance(a.type, TensorDescType):
        return _descriptor(a, a.type, x, space)
    if not isinstance(a.type, DType):
        raise TypeError(f"{a.name}: the tile simulator takes no argument of type {a.type}")
    if isinstance(x, np.ndarray) and cast("Array", x).shape != ():
        raise TypeError(f"{a.name} takes a number, not an array")
    return _number(x, a.type)


def _number(x: Any, d: DType) -> Array:
    if d.kind == "float":
        return to_float(np.array(float(x), np.float64), d)
    if d.kind == "bool":
        return np.array(bool(x))
    return np.array(int(x) & ((1 << d.bits) - 1), f"uint{d.bits}").view(numpy_dtype(d))


__all__ = ["SimResult", "SimulationError", "run"]
