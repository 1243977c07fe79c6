"""`@mimw.kernel`: from a call ``kernel[grid](*args, **options)`` to a launch on a device, or a run in a simulator.

Owns: launch syntax, the choice of where a kernel runs, the short way of launches that were seen before. Which code runs is `kernel_code.py`'s. Where
it runs is decided by the arguments: CUDA arrays run on their device, host arrays (NumPy, torch CPU tensors) in the tile simulator, or as
machine code in that of a target (`simulated_device`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, overload

from mimw.compiler import Options, check_protocol
from mimw.diagnostics import CompilationError, LaunchError
from mimw.kernel_code import CompilableKernel
from mimw.runtime.arrays import ArrayInfo, ScalarInfo
from mimw.runtime.drivers import device_driver
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.launch_errors import caller_loc, check_cluster, check_grid
from mimw.signature import is_meta, quick_key, with_bounds
from mimw.target import get_target

if TYPE_CHECKING:
    from mimw.sim.tile.check import Checked


def cdiv(a: int, b: int) -> int:
    """ceil(a / b) for integers, b > 0."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two not below n (1 for n <= 1)."""
    return 1 << max(0, n - 1).bit_length()


class Kernel(CompilableKernel):
    """A function under `@mimw.kernel`. ``kernel[grid](*args, **options)`` launches; `compile` needs no device."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self._quick: dict[tuple[Any, ...], _Seen] = {}

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            "launch-no-grid",
            f"kernel {self.name!r} is called without a grid",
            caller_loc(),
            hint=f"write {self.name}[grid](...), where grid is a tuple such as (num_blocks,)",
        )

    def __repr__(self) -> str:
        return f"<mimw.Kernel {self.name}>"

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch on a GPU or in the simulator of machine code (both return the `CompiledKernel`) or in the tile simulator (returns its report)."""
        key = quick_key(self, args, kwargs)
        seen = self._seen(key)
        if seen is not None:
            return seen.kernel.launch(
                self._quick_grid(grid, args, kwargs, seen), seen.passed(args, kwargs), kwargs.get("stream")
            )
        values, given = self.bind(args, dict(kwargs))
        options = self._options(given)
        shape = self._shape(grid, values, options)
        infos = self._infos(values)
        device = self._device(infos)
        if device is None:
            return self._simulate(shape, values, infos, options)
        name = device_driver().target_name(device)
        if name is None:
            raise self.refuse("launch-target", f"cannot run on cuda:{device}: mimw has no target for this device")
        kernel = self.compiled_for(values, options, get_target(name))
        special = self.specialise(values)
        passed = [v for k, v in zip(special, values, strict=True) if k[0] != "c"]
        done = kernel.launch(shape, passed, given.get("stream"))
        if key is not None:
            names = [n for n, k in zip(self.parameter_names, special, strict=True) if k[0] != "c"]
            places = [self._place(n, len(args), kwargs) for n in names]
            self._quick[key] = _Seen(kernel, places, options, self._version, os.environ.get("MIMW_DEBUG"))
        return done

    def _seen(self, key: tuple[Any, ...] | None) -> _Seen | None:
        """The launch of that key that went before, if what it stood on still holds."""
        try:
            seen = self._quick.get(key) if key is not None else None
        except TypeError:  # a constexpr that is not hashable: `bind` and `specialise` find the words
            return None
        if seen is None or seen.version != self.version() or seen.debug != os.environ.get("MIMW_DEBUG"):
            return None
        return seen

    def _place(self, name: str, positional: int, kwargs: dict[str, Any]) -> tuple[str, Any]:
        """Where a launch finds a run-time argument: ("args", index), ("kwargs", name) or ("default", value)."""
        index = self.parameter_names.index(name)
        if index < positional:
            return "args", index
        return ("kwargs", name) if name in kwargs else ("default", self.defaults[name])

    def _quick_grid(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seen: _Seen) -> Any:
        if not callable(grid):
            return grid
        meta = {**self.defaults, **dict(zip(self.parameter_names, args, strict=False)), **kwargs}
        o = seen.options
        meta.update(num_warps=o.num_warps, num_stages=o.num_stages, ctas_per_cga=o.ctas_per_cga)
        return self._grid(grid, meta)

    def check(self, *args: Any, grid: Any, schedules: int = 8, seed: int | None = None, **kwargs: Any) -> Checked:
        """Run in the tile simulator under `schedules` different interleavings of tasks and engines; raise the first fault.

        The arguments are those of a launch, with arrays in host memory. Before each run the arrays get back what they held; afterwards
        they hold what the last run left. Raises `SimulationError` for a race, a deadlock, a missing wait, a wrong byte count, ...,
        and what a launch raises; the protocol checks of a compile, which need no arrays, are done first. Returns what was found beside:
        its `findings` are warnings (reads of what was never written, races for global memory, ...). Errors, findings and what is
        returned have `to_json()`. `seed` runs one schedule only: that of the seed which an error (its attribute `seed`) was found under.
        """
        from mimw.sim.tile.check import check_launch

        if type(schedules) is not int or schedules < 1:
            raise self.refuse("launch-option", f"got schedules={schedules!r}; it is at least 1")
        if seed is not None and (type(seed) is not int or seed < 0):
            raise self.refuse("launch-option", f"got seed={seed!r}; it is 0 or more")
        values, given = self.bind(args, kwargs)
        options = self._options(given)
        shape = self._shape(grid, values, options)
        infos = self._infos(values)
        if any(isinstance(a, ArrayInfo) and a.kind == "cuda" for a in infos.values()):
            raise self.refuse("launch-device", "is checked in the simulator, which takes arrays of the host")
        try:
            check_protocol(self.fn, self.signature(self.specialise(values), values), options)
            module, passed = self.traced_for(values, infos, options)
        except CompilationError as error:
            raise error.with_traceback(None) from None
        seeds = range(schedules) if seed is None else [seed]
        checked = check_launch(module, passed, shape, seeds, to_the_end=False)
        if checked.fault is not None:
            raise checked.fault.with_traceback(None) from None
        return checked

    def _shape(self, grid: Any, values: list[Any], options: Options) -> tuple[int, int, int]:
        """The grid of a launch as three sizes that fit the cluster."""
        if callable(grid):
            meta = dict(zip(self.parameter_names, values, strict=True))
            meta.update(num_warps=options.num_warps, num_stages=options.num_stages, ctas_per_cga=options.ctas_per_cga)
            grid = self._grid(grid, meta)
        shape = check_grid(self.name, grid)
        check_cluster(self.name, shape, options.ctas_per_cga)
        return shape

    def _infos(self, values: list[Any]) -> dict[int, ArrayInfo | ScalarInfo]:
        """What the run-time arguments are, by their place."""
        runtime = [(i, v) for i, v in enumerate(values) if not self.constexpr_flags[i]]
        return {i: self.describe(i, v) for i, v in runtime if v is not None and not is_meta(v)}

    def _grid(self, grid: Callable[[dict[str, Any]], Any], meta: dict[str, Any]) -> Any:
        """What a grid function gives for the arguments by name."""
        try:
            return grid(meta)
        except KeyError as error:
            if not error.args or error.args[0] in meta:
                raise
            asked, known = error.args[0], ", ".join(meta)
            text = f"has no argument {asked!r} that its grid function asks for"
            raise self.refuse("launch-grid", text, hint=f"it may ask for {known}") from error

    def _device(self, infos: dict[int, Any]) -> int | None:
        """The CUDA device of the arguments; None for the simulator."""
        arrays = [(i, a) for i, a in infos.items() if isinstance(a, ArrayInfo)]
        devices = {a.device for _, a in arrays if a.kind == "cuda"}
        if not arrays:
            driver = device_driver()
            return driver.current_device() if driver.available() else None
        if not devices:
            return None
        host = [self.parameter_names[i] for i, a in arrays if a.kind != "cuda"]
        if host:
            raise self.refuse("launch-device", f"gets arrays of the host ({', '.join(host)}) beside arrays of a GPU")
        if len(devices) > 1:
            raise self.refuse("launch-device", f"gets arrays of several devices: {sorted(devices)}")
        return next(iter(devices))

    def _simulate(self, grid: tuple[int, int, int], values: list[Any], infos: dict[int, Any], options: Options) -> Any:
        from mimw.sim.tile import launch_on_host
        from mimw.simulated_device import chosen_target, launch

        target = chosen_target()
        if target is not None:
            special = with_bounds(self.specialise(values), values)
            passed = [infos[i] for i, k in enumerate(special) if k[0] != "c"]
            return launch(self.simulated_for(special, values, options, target), passed, grid)
        return launch_on_host(*self.traced_for(values, infos, options), grid)


class _Seen:
    """A launch that went well: its code, where its arguments come from, and what must not have changed since."""

    __slots__ = ("debug", "kernel", "options", "places", "version")

    def __init__(
        self, kernel: CompiledKernel, places: list[tuple[str, Any]], options: Options, version: int, debug: str | None
    ) -> None:
        self.kernel = kernel
        self.places = places
        self.options = options
        self.version = version
        self.debug = debug

    def passed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The run-time arguments in the order of the code's parameters."""
        return [args[at] if kind == "args" else kwargs[at] if kind == "kwargs" else at for kind, at in self.places]


class Runnable(Protocol):
    """A kernel, or what wraps one."""

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch; `kwargs` is the callee's own."""
        ...


class Launch:
    """A kernel with its grid: call it with the arguments."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: Runnable, grid: Any) -> None:
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch; see `Kernel`."""
        try:
            return self.kernel.run(self.grid, args, kwargs)
        except CompilationError as error:
            # The user's fault: the message names the user's line, the compiler's frames would only hide it.
            raise error.with_traceback(None) from None


def _later() -> None:
    """Stands for the function where the decorator gets keywords only."""


@overload
def kernel(fn: Callable[..., Any]) -> Kernel: ...


@overload
def kernel(
    *,
    debug: bool | None = None,
    do_not_specialize: Sequence[int | str] | None = None,
    do_not_specialize_on_alignment: Sequence[int | str] | None = None,
    noinline: bool | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    repr: Callable[..., Any] | None = None,
    version: Any = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(
    fn: Callable[..., Any] = _later, *, debug: bool | None = None, **accepted: Any
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Make a Python function a kernel. It is parsed at its first use, never run by Python. `TypeError` for anything else.

    `debug` is the launch option of that name where a launch does not say. The other keywords of ``triton.jit`` (`do_not_specialize`,
    `do_not_specialize_on_alignment`, `noinline`, `launch_metadata`, `repr`, `version`) are accepted and change nothing.
    """
    for name in accepted:
        if name not in _ACCEPTED:
            raise TypeError(f"@mimw.kernel has no keyword {name!r}; it has debug, {', '.join(_ACCEPTED)}")
    if fn is _later:

        def decorate(function: Callable[..., Any]) -> Kernel:
            made = kernel(function)
            made.debug = debug
            return made

        return decorate
    if isinstance(fn, Kernel):
        raise TypeError(f"{fn.name!r} is a kernel already: decorate it once")
    if not isinstance(fn, FunctionType):
        raise TypeError(f"@mimw.kernel takes a Python function, not a {type(fn).__name__}")
    return Kernel(fn)


_ACCEPTED = (
    "do_not_specialize", "do_not_specialize_on_alignment", "noinline", "launch_metadata", "repr", "version",
)  # fmt: skip
