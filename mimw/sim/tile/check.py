"""One launch under several schedules: every run starts from the same arrays, and what they show is put together.

A *finding* is a `SimulationError`: the fault that ended a run, or a warning that a run left. Warnings of our own: races for global memory
(`global_races`), and results that depend on the schedule.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any, cast

from mimw.diagnostics import Loc
from mimw.ir.core import Module
from mimw.sim.errors import SimulationError
from mimw.sim.tile.host import HostArray, HostBlocks, HostScalar, as_array, run_on_host
from mimw.sim.tile.interpreter import SimResult
from mimw.sim.tile.numerics import Array
from mimw.sim.tile.speeds import Speeds
from mimw.sim.tile.timeline import Timeline

Arguments = Sequence[HostArray | HostBlocks | HostScalar]


class Checked:
    """What the schedules of one launch have shown: `findings`, each once, in the order of the seeds. `result` is that of the first run,
    None when that one failed."""

    __slots__ = ("findings", "kernel", "result", "seeds")

    def __init__(self, kernel: str, seeds: Sequence[int]) -> None:
        self.kernel = kernel
        self.seeds = list(seeds)
        self.findings: list[SimulationError] = []
        self.result: SimResult | None = None

    @property
    def fault(self) -> SimulationError | None:
        """The first finding that is an error."""
        return next((f for f in self.findings if f.severity == "error"), None)

    def add(self, finding: SimulationError, seed: int) -> None:
        """Take a finding of a run, unless it is known: the same code at the same lines."""
        if any(key_of(f) == key_of(finding) for f in self.findings):
            return
        finding.kernel = self.kernel
        finding.seed = seed
        self.findings.append(finding)

    def to_json(self) -> dict[str, Any]:
        """In JSON's types: ``kernel``, ``seeds``, ``findings``."""
        return {"kernel": self.kernel, "seeds": self.seeds, "findings": [f.to_json() for f in self.findings]}

    def __str__(self) -> str:
        if not self.findings:
            return f"{self.kernel}: nothing found in {len(self.seeds)} schedules"
        return "\n".join(str(f) for f in self.findings)


def key_of(finding: SimulationError) -> tuple[str, Loc | None, tuple[Loc | None, ...]]:
    """What makes two findings one."""
    return finding.code, finding.loc, tuple(n.loc for n in finding.notes)


def check_launch(
    module: Module,
    args: Arguments,
    grid: tuple[int, ...],
    seeds: Sequence[int],
    *,
    to_the_end: bool = True,
    watch_global: bool = True,
    cluster: tuple[int, ...] | None = None,
) -> Checked:
    """Run a kernel under each seed; afterwards the arrays hold what the last run left. Without `to_the_end` the first fault ends it, without
    `watch_global` races for global memory are not looked for (which takes time and memory)."""
    checked = Checked(module.function.name, seeds)
    checks = "all" if watch_global else "shared"

    def run_one(seed: int) -> None:
        result = run_on_host(module, args, grid, seed=seed, cluster=cluster, checks=checks)
        if seed == seeds[0]:
            checked.result = result
        for finding in result.findings:
            checked.add(finding, seed)

    loc = None if _may_differ(module) else module.function.loc
    check_runs(checked, run_one, written(args), loc, to_the_end=to_the_end)
    return checked


def check_runs(
    checked: Checked, run_one: Callable[[int], None], arrays: list[Array], loc: Loc | None, *, to_the_end: bool = True
) -> None:
    """Call `run_one` with each seed, each time with what the arrays held, and keep the faults that it raises. Only the first run prints. A result
    that depends on the seed is told at `loc`; None: it may."""
    before = [a.copy() for a in arrays]
    first: list[Array] | None = None
    for n, seed in enumerate(checked.seeds):
        for a, old in zip(arrays, before, strict=True):
            a[...] = old
        silence = contextlib.redirect_stdout(io.StringIO()) if n else contextlib.nullcontext()
        try:
            with silence:
                run_one(seed)
        except SimulationError as e:
            checked.add(e, seed)
            if not to_the_end:
                break
            continue
        if first is None:
            first = [a.copy() for a in arrays]
        elif checked.fault is None and not _equal(arrays, first) and loc is not None:
            text = f"another result than under seed {checked.seeds[0]}: the outcome depends on who comes first"
            checked.add(SimulationError("schedule-result", text, loc, severity="warning"), seed)


def time_launch(module: Module, args: Arguments, grid: tuple[int, ...], speeds: Speeds, ctas: int) -> Timeline:
    """Run the first CTAs of a launch with times; the arrays get back what they held."""
    arrays = written(args)
    before = [a.copy() for a in arrays]
    timeline = Timeline(speeds, ctas)
    with contextlib.redirect_stdout(io.StringIO()):
        run_on_host(module, args, grid, timeline=timeline)
    for a, old in zip(arrays, before, strict=True):
        a[...] = old
    return timeline


def written(args: Arguments) -> list[Array]:
    """The arrays that a kernel may write."""
    return [as_array(cast("HostArray", a)) for a in args if hasattr(a, "ptr") and not cast("HostArray", a).readonly]


def _equal(arrays: list[Array], others: list[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(arrays, others, strict=True))


def _may_differ(module: Module) -> bool:
    """Whether results may depend on the schedule: by the order of roundings, by what atomics give back, by the clock."""
    names = ("atomic.", "debug.clock")
    return any(op.name.startswith(names) or op.attrs.get("reduce") for op in module.function.walk())
