"""`mimw sim`: runs a program and watches its launches on NumPy arrays in the tile simulator.

The program is executed as Python would execute it (`__main__`); every launch on host arrays comes here, through the one hook of `mimw.sim.tile.host`,
or that of `mimw.simulated_device` where they run as machine code for AMD. What the launches show is told for people, as JSON, and as a timeline.
`docs/simulators.md` is the manual.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import runpy
import sys
import traceback
import warnings
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from mimw.compiler import pipeline
from mimw.diagnostics import CompilationError, MimwWarning
from mimw.ir.core import Module
from mimw.ir.rewriter import clone_function
from mimw.runtime.arrays import ArrayInfo, ScalarInfo
from mimw.sim.errors import SimulationError
from mimw.sim.tile.check import Arguments, Checked, check_launch, time_launch
from mimw.sim.tile.host import run_on_host, watched
from mimw.sim.tile.interpreter import SimResult
from mimw.sim.tile.speeds import SPEEDS
from mimw.simulated_device import Grid, SimulatedKernel, check_code, engine
from mimw.simulated_device import watched as code_watched
from mimw.target import get_target
from mimw.tools import timeline

TIMED_CTAS = 4
"""Of a launch, in a timeline."""

SCHEDULES = 8
"""With --check, and nothing else said."""


class Settings:
    """What the command line asks for."""

    __slots__ = ("arguments", "check", "json", "kernel", "path", "schedules", "seed", "target", "timeline")

    def __init__(self, where: str, arguments: Sequence[str] = ()) -> None:
        self.path, self.kernel = _split(where)
        self.arguments = list(arguments)
        self.check = False
        self.schedules: int | None = None
        self.seed: int | None = None
        self.json: str | None = None
        self.timeline: str | None = None
        self.target = "sm_90a"

    @property
    def runs_code(self) -> bool:
        """Whether launches run as machine code for the target, not in the tile simulator."""
        return get_target(self.target).vendor == "amd"

    def seeds(self) -> list[int]:
        """The schedules that each launch runs under."""
        if self.seed is not None:
            return [self.seed]
        return list(range(self.schedules or (SCHEDULES if self.check else 1)))


def _split(where: str) -> tuple[str, str]:
    """``FILE.py[:kernel]`` as file and kernel."""
    path, _, name = where.rpartition(":")
    if where.endswith(".py") or not path:
        path, name = where, ""
    if not os.path.exists(path):
        raise CompilationError(
            "sim-file",
            f"there is no file {path!r}",
            hint="write FILE.py or FILE.py:KERNEL, as in examples/02_softmax.py",
        )
    return path, name


class _GivenUpError(BaseException):
    """A launch has failed, and the program with it: nothing of what it would do next means anything."""


class Watch:
    """Runs the launches of one program, and keeps what they show."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.launches: list[Checked] = []
        self.others: dict[str, int] = {}
        self.warned: list[SimulationError] = []
        self.raised: CompilationError | None = None
        self.timed: list[timeline.Launch] = []

    def launch(self, module: Module, args: Arguments, grid: tuple[int, ...]) -> SimResult:
        """One launch: under every schedule, from the same arrays."""
        name = module.function.name
        if self.settings.kernel and name != self.settings.kernel:
            self.others[name] = self.others.get(name, 0) + 1
            return run_on_host(module, args, grid)
        if self.settings.check:
            self.warned += check_protocol(module)
        if self.settings.timeline:
            self._time(module, args, grid)
        seeds = self.settings.seeds()
        checked = check_launch(module, args, grid, seeds, watch_global=self.settings.check)
        self.launches.append(checked)
        if checked.fault is not None or checked.result is None:
            raise _GivenUpError
        return checked.result

    def launch_code(self, kernel: SimulatedKernel, args: Sequence[ArrayInfo | ScalarInfo], grid: Grid) -> None:
        """One launch of machine code, likewise."""
        name = kernel.compiled.name
        if self.settings.kernel and name != self.settings.kernel:
            self.others[name] = self.others.get(name, 0) + 1
            kernel.launch(grid, args)
            return
        checked = check_code(kernel, args, grid, self.settings.seeds())
        self.launches.append(checked)
        if checked.fault is not None:
            raise _GivenUpError

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """While this lasts, launches come here: as machine code where the target is one of AMD's, else as tile IR."""
        if self.settings.runs_code:
            with code_watched(self.launch_code, self.settings.target):
                yield
        else:
            with engine("tile"), watched(self.launch):
                yield

    def _time(self, module: Module, args: Arguments, grid: tuple[int, ...]) -> None:
        """Add the launch to the timeline. One that fails is told of by the run that follows."""
        try:
            timed = time_launch(module, args, grid, SPEEDS[self.settings.target], TIMED_CTAS)
        except SimulationError:
            return
        self.timed.append(timeline.Launch(module.function.name, timed))

    @property
    def findings(self) -> list[SimulationError]:
        """Of all launches, each once."""
        out: dict[tuple[Any, ...], SimulationError] = {}
        for f in (*self.warned, *(f for launch in self.launches for f in launch.findings)):
            out.setdefault((f.code, str(f.loc), *(str(n.loc) for n in f.notes)), f)
        return list(out.values())


def check_protocol(module: Module) -> list[SimulationError]:
    """What a compile says of tasks and barriers: `CompilationError`, or warnings, as findings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.run(Module(clone_function(module.function)), get_target("sm_90a"), passes=pipeline.PROTOCOL)
    out: list[SimulationError] = []
    for w in (c.message for c in caught):
        if isinstance(w, MimwWarning):
            hint = f"{w.hint}; " if w.hint else ""
            hint += f"# mimw: ignore[{w.code}] at this line silences it"
            out.append(SimulationError(w.code, w.message, w.loc, notes=w.notes, hint=hint, severity="warning"))
            out[-1].kernel = module.function.name
    return out


def sim(settings: Settings) -> int:
    """Run the program; the exit status: 0 when nothing is reported, else 1. Where JSON goes to stdout, all else goes to stderr."""
    if settings.timeline:  # before anything runs
        timeline.check(settings.timeline)
        if settings.target not in SPEEDS:
            text = f"there is no model of the times on {settings.target}"
            raise CompilationError("sim-timeline", text, hint=f"name one of {', '.join(SPEEDS)} as --target")
    for path in (settings.json, settings.timeline):
        if path and not Path(path).absolute().parent.is_dir():
            raise CompilationError("sim-file", f"{path!r} cannot be written: there is no such folder")
    watch = Watch(settings)
    aside = contextlib.redirect_stdout(sys.stderr) if settings.json == "-" else contextlib.nullcontext()
    with aside:
        failed = _run(watch)
        _tell(watch)
    if settings.json:
        _write(settings.json, json.dumps(_as_json(watch), indent=1) + "\n")
    if settings.timeline:
        timeline.write(settings.timeline, watch.timed)
    return 1 if failed or watch.findings else 0


def _run(watch: Watch) -> bool:
    """Execute the program under watch; whether it failed."""
    settings = watch.settings
    linecache.checkcache(settings.path)
    failed = False
    with _as_program(settings), watch.watching():
        try:
            runpy.run_path(settings.path, run_name="__main__")
        except _GivenUpError:
            failed = True
        except SystemExit as e:
            failed = e.code not in (None, 0)
        except CompilationError as e:
            watch.raised, failed = e, True
        except Exception:
            traceback.print_exc()
            failed = True
    if settings.kernel and not watch.launches and not failed:
        others = ", ".join(watch.others) or "nothing on NumPy arrays"
        text = f"the program does not launch a kernel {settings.kernel!r}"
        watch.raised, failed = CompilationError("sim-kernel", text, hint=f"it launches {others}"), True
    return failed


@contextlib.contextmanager
def _as_program(settings: Settings) -> Generator[None]:
    """`sys.argv` and `sys.path` as the program would find them; warnings are always told."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [settings.path, *settings.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(settings.path)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _tell(watch: Watch) -> None:
    """The report for people."""
    settings = watch.settings
    out = io.StringIO()
    if watch.raised is not None:
        out.write(f"\n{watch.raised}\n")
    for finding in watch.findings:
        out.write(f"\n{finding}\n")
        if finding.seed is not None:
            out.write(f"found under seed {finding.seed}; again: {_again(settings, finding.kernel, finding.seed)}\n")
    seeds = settings.seeds()
    runs = f"seed {seeds[0]}" if settings.seed is not None else f"{_count(len(seeds), 'schedule')} each"
    names: dict[str, int] = {}
    for launch in watch.launches:
        names[launch.kernel] = names.get(launch.kernel, 0) + 1
    told = ", ".join(f"{name} ({count})" for name, count in names.items()) or "no launches on NumPy arrays"
    errors = sum(f.severity == "error" for f in watch.findings) + (watch.raised is not None)
    found = len(watch.findings) - sum(f.severity == "error" for f in watch.findings)
    code = f" as code for {settings.target}" if settings.runs_code else ""
    out.write(f"\nmimw sim: {told}{code}; {runs}: {_count(errors, 'error')}, {_count(found, 'warning')}\n")
    print(out.getvalue(), end="")


def _again(settings: Settings, kernel: str, seed: int) -> str:
    """How to run under that seed only."""
    how = f"mimw sim {settings.path}:{kernel}"
    if settings.runs_code:
        return f"{how} --target {settings.target} --seed {seed}"
    return f"{how} --check --seed {seed}, or {kernel}.check(..., seed={seed})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _as_json(watch: Watch) -> dict[str, Any]:
    settings = watch.settings
    return {
        "program": settings.path,
        "seeds": settings.seeds(),
        "launches": [{"kernel": c.kernel, "findings": len(c.findings)} for c in watch.launches],
        "findings": [f.to_json() for f in watch.findings],
        "compilation_error": str(watch.raised) if watch.raised is not None else None,
    }


def _write(where: str, text: str) -> None:
    if where == "-":
        print(text, end="")
    else:
        Path(where).write_text(text)
