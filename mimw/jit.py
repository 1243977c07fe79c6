"""`@mimw.kernel`: from a call ``kernel[grid](*args, **options)`` to compiled code, or to the tile simulator.

Owns: binding of arguments to parameters, the choice of where a kernel runs, the in-memory and disk caches. What of an argument becomes
part of the code is `signature.py`'s. Where it runs is decided by the arguments: CUDA arrays run on their device, host arrays (NumPy, torch
CPU tensors) in the tile simulator, or as machine code in that of a target (`simulated_device`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, cast, overload

from mimw.codegen.amdgcn.llvm import library_stamp
from mimw.codegen.ptx.assemble import ptxas_version
from mimw.compiler import Options, check_protocol, compile_kernel, simulated_kernel
from mimw.diagnostics import CompilationError, LaunchError
from mimw.frontend.dependencies import Dependencies, dependencies
from mimw.frontend.source import KernelFunction
from mimw.frontend.trace import Signature
from mimw.ir.core import Module
from mimw.runtime import cache as disk
from mimw.runtime import driver_api
from mimw.runtime.arrays import ArrayInfo, ScalarInfo, describe
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.drivers import device_driver
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.launch_errors import caller_loc, check_cluster, check_grid
from mimw.signature import is_constexpr, is_meta, parse_signature, quick_key, signature_of, specialise, with_bounds
from mimw.target import Target, get_target

if TYPE_CHECKING:
    from mimw.sim.tile.check import Checked
    from mimw.simulated_device import SimulatedKernel

_OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion", "debug", "ctas_per_cga", "hang_timeout")
_LAUNCH_ONLY = ("stream", "num_ctas")
MAX_CLUSTER = 16


def cdiv(a: int, b: int) -> int:
    """ceil(a / b) for integers, b > 0."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two not below n (1 for n <= 1)."""
    return 1 << max(0, n - 1).bit_length()


class Kernel(KernelFunction):
    """A function under `@mimw.kernel`. ``kernel[grid](*args, **options)`` launches; `compile` needs no device."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        code = fn.__code__
        self.fn = fn
        self.name = fn.__name__
        self.__doc__ = fn.__doc__
        self.parameter_names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.constexpr_flags = tuple(is_constexpr(fn.__annotations__.get(n)) for n in self.parameter_names)
        positional = code.co_varnames[: code.co_argcount]
        self.defaults = dict(zip(reversed(positional), reversed(fn.__defaults__ or ()), strict=False))
        self.defaults.update(fn.__kwdefaults__ or {})
        self.debug: bool | None = None  # of the decorator
        self._runtime_names = {n for n, c in zip(self.parameter_names, self.constexpr_flags, strict=True) if not c}
        self._quick: dict[tuple[Any, ...], _Seen] = {}
        self._compiled: dict[Any, CompiledKernel] = {}
        self._traced: dict[Any, Any] = {}
        self._simulated: dict[Any, SimulatedKernel] = {}
        self._captured: Dependencies | None = None
        self._version = 0
        self._versions: dict[tuple[Any, ...], int] = {}
        self._lock = threading.RLock()

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

    # Binding

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments in the order of the parameters, and the launch options; `LaunchError` when they do not fit."""
        names, defaults = self.parameter_names, self.defaults
        if len(args) > len(names):
            raise self.refuse(
                "launch-arguments", f"takes {len(names)} arguments ({', '.join(names)}), {len(args)} were given"
            )
        values = list(args)
        for name in names[: len(args)]:
            if name in kwargs:
                raise self.refuse("launch-arguments", f"got two values for {name!r}")
        missing: list[str] = []
        for name in names[len(args) :]:
            if name in kwargs:
                values.append(kwargs.pop(name))
            elif name in defaults:
                values.append(defaults[name])
            else:
                missing.append(name)
        if missing:
            strange = [key for key in kwargs if key not in _OPTIONS and key not in _LAUNCH_ONLY]
            hint = f"no parameter is named {', '.join(map(repr, strange))}" if strange else None
            raise self.refuse("launch-arguments", f"misses {', '.join(map(repr, missing))}", hint=hint)
        for key in kwargs:
            if key not in _OPTIONS and key not in _LAUNCH_ONLY:
                raise self.refuse(
                    "launch-option",
                    f"does not know {key!r}",
                    hint=f"its parameters are {', '.join(names)}; options are {', '.join(_OPTIONS + _LAUNCH_ONLY)}",
                )
        return values, kwargs

    def refuse(self, code: str, text: str, hint: str | None = None) -> LaunchError:
        """The error that this kernel `text`, at the caller's line."""
        return LaunchError(code, f"kernel {self.name!r} {text}", caller_loc(), hint=hint)

    def _options(self, given: dict[str, Any]) -> Options:
        if given.get("num_ctas", 1) != 1:
            hint = "state the cluster with ctas_per_cga=(x, y, z); the grid then counts CTAs"
            raise self.refuse(
                "not-yet", "is launched with num_ctas > 1: tiles spread over a cluster are not yet supported", hint
            )
        chosen = {k: given[k] for k in _OPTIONS if given.get(k) is not None}
        if self.debug is not None:
            chosen.setdefault("debug", self.debug)
        for name in ("num_warps", "num_stages", "maxnreg"):
            if name in chosen and type(chosen[name]) is not int:
                raise self.refuse("launch-option", f"got {name}={chosen[name]!r}; it takes an integer")
        if "ctas_per_cga" in chosen:
            chosen["ctas_per_cga"] = self._cluster(chosen["ctas_per_cga"])
        options = Options(**chosen)
        if options.num_warps not in (1, 2, 4, 8, 16, 32):
            raise self.refuse("launch-option", f"got num_warps={options.num_warps}; it is a power of two from 1 to 32")
        if options.num_stages < 1:
            raise self.refuse("launch-option", f"got num_stages={options.num_stages}; it is 0 or more")
        if options.maxnreg and not 24 <= options.maxnreg <= 255:
            raise self.refuse("launch-option", f"got maxnreg={options.maxnreg}; it is from 24 to 255")
        return options

    def _cluster(self, given: Any) -> tuple[int, int, int]:
        """The option ctas_per_cga as three numbers."""
        dims: tuple[Any, ...] = tuple(cast("list[Any]", given)) if isinstance(given, (tuple, list)) else (given,)
        if not 1 <= len(dims) <= 3 or any(type(n) is not int or n < 1 for n in dims):
            raise self.refuse("launch-option", f"got ctas_per_cga={given!r}; it is one to three positive integers")
        x, y, z = (*dims, 1, 1)[:3]
        if x * y * z > MAX_CLUSTER:
            raise self.refuse("launch-option", f"got ctas_per_cga={given!r}: a cluster has at most {MAX_CLUSTER} CTAs")
        return x, y, z

    # Specialisation

    def specialise(self, values: list[Any]) -> tuple[Any, ...]:
        """What of the values becomes part of the code, as a hashable key: one entry a parameter."""
        return specialise(self, values)

    def signature(self, key: tuple[Any, ...], values: list[Any]) -> Signature:
        """The frontend's signature for a specialisation."""
        return signature_of(self.parameter_names, key, values)

    # Compilation

    def compile(
        self,
        signature: dict[str, Any] | list[Any] | tuple[Any, ...],
        constants: dict[str, Any] | None = None,
        *,
        target: str | Target = "sm_90a",
        assembled: bool = True,
        **options: Any,
    ) -> CompiledKernel:
        """Compile without a device.

        `signature` gives each run-time parameter its type: ``"*bf16"`` (pointer; ``"*bf16:16"`` promises 16-byte alignment),
        ``"i32"``, ``"i32:16"`` (a multiple of 16), ``"i32<1024"`` (in [0, 1024)), ``"f32"``, ...; an array or a descriptor stands for its type; ``"=1"`` or any
        other Python value makes it a constant. A dictionary by name, or a sequence in order. `constants` gives the constexprs.
        Unknown names, types and targets raise `LaunchError`.
        """
        spec = parse_signature(self, signature, constants or {})
        try:
            where = get_target(target)
        except ValueError as error:
            raise LaunchError("launch-target", str(error), caller_loc()) from None
        for key in options:
            if key not in _OPTIONS and key not in _LAUNCH_ONLY:
                raise self.refuse("launch-option", f"does not know the option {key!r}")
        try:
            return compile_kernel(self.fn, spec, where, self._options(options), assembled=assembled)
        except CompilationError as error:
            raise error.with_traceback(None) from None

    def compiled_for(self, values: list[Any], options: Options, target: Target) -> CompiledKernel:
        """The code for these arguments on `target`: from memory, from disk, or compiled now."""
        special = self.specialise(values)
        if target.vendor == "amd":
            special = with_bounds(special, values)
        key = (special, options.key(), target.name, self.version())
        found = self._compiled.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._compiled.get(key)
            if found is None:
                found = self._compiled[key] = self._load_or_compile(special, values, options, target)
        return found

    def _load_or_compile(
        self, special: tuple[Any, ...], values: list[Any], options: Options, target: Target
    ) -> CompiledKernel:
        store = disk.default_cache()
        digest = ""
        if store is not None:
            digest = disk.cache_key(self._cache_parts(special, options, target, store))
            entry = store.get(digest)
            if entry is not None:
                return CompiledKernel(dict(entry.files), KernelMetadata.from_dict(entry.meta))
        kernel = compile_kernel(self.fn, self.signature(special, values), target, options)
        if store is not None:
            store.put(digest, kernel.metadata.to_dict(), kernel.asm)
        return kernel

    def _cache_parts(
        self, special: tuple[Any, ...], options: Options, target: Target, store: disk.DiskCache
    ) -> list[tuple[str, str]]:
        code = self.fn.__code__
        parts = [("special", repr(special)), ("options", repr(options.key())), ("target", target.name)]
        if target.vendor == "amd":
            parts.append(("llvm", library_stamp()))
        parts.append(("place", f"{code.co_filename}:{code.co_firstlineno}"))  # the text carries line numbers
        passed = [k[2] for k in special if k[:2] == ("c", "kernel")]
        parts += [(f"passed {i}", repr(dependencies(f.fn).key())) for i, f in enumerate(passed)]
        return parts + self.fingerprint(store)

    def captured(self) -> Dependencies:
        """What the code depends on beside arguments and options, as it is now: sources of functions, captured constants."""
        found = self._captured
        if found is None or not found.unchanged():
            found = dependencies(self.fn)
            with self._lock:
                self._version = self._versions.setdefault(found.key(), len(self._versions))
                self._captured = found
        return found

    def version(self) -> int:
        """A number for what the kernel captures: code compiled with other constants or functions has another one."""
        self.captured()
        return self._version

    def fingerprint(self, store: disk.DiskCache | None = None) -> list[tuple[str, str]]:
        """What compiled code depends on beside arguments, options and target, as parts of a cache key."""
        parts = [("assembler", assembler_version()), ("package", disk.package_fingerprint(store))]
        found = self.captured()
        parts += [(f"source {name}", text) for name, text in found.sources.items()]
        return parts + [(f"constant {name}", text) for name, text in found.constants.items()]

    # Running

    def is_constant(self, name: str) -> bool:
        """Whether a keyword of a launch is a constexpr parameter or an option, not a run-time parameter."""
        return name not in self._runtime_names

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
            module, passed = self._traced_for(values, infos, options)
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

    def describe(self, index: int, value: Any) -> ArrayInfo | ScalarInfo:
        """What an argument is; `LaunchError` when it is neither array nor scalar."""
        try:
            return describe(value)
        except TypeError as error:
            name = self.parameter_names[index]
            hint = f"annotate {name} as ml.constexpr if it is a compile-time value"
            if hasattr(value, "dtype"):
                hint = "convert the array first"
            elif isinstance(value, list):
                hint = "make it an array, or a tuple of constants"
            raise self.refuse("launch-argument-type", f"cannot take {name!r}: {error}", hint=hint) from None

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
            return launch(self._simulated_for(special, values, options, target), passed, grid)
        return launch_on_host(*self._traced_for(values, infos, options), grid)

    def _simulated_for(
        self, special: tuple[Any, ...], values: list[Any], options: Options, target: Target
    ) -> SimulatedKernel:
        """The code for these arguments as the simulator of `target` runs it."""
        from mimw.simulated_device import SimulatedKernel

        key = (special, options.key(), target.name, self.version())
        found = self._simulated.get(key)
        if found is None:
            signature = self.signature(special, values)
            try:
                compiled = compile_kernel(self.fn, signature, target, options, assembled=False)
            except CompilationError as error:
                raise error.with_traceback(None) from None
            found = self._simulated[key] = SimulatedKernel(compiled)
        return found

    def _traced_for(self, values: list[Any], infos: dict[int, Any], options: Options) -> tuple[Module, list[Any]]:
        """The tile IR that the simulator runs for these arguments, and those of them that it takes."""
        special = self.specialise(values)
        key = (special, options.key(), self.version())
        module = self._traced.get(key)
        if module is None:
            module = simulated_kernel(self.fn, self.signature(special, values), options)
            self._traced[key] = module
        return module, [infos[i] for i, k in enumerate(special) if k[0] != "c"]


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


def assembler_version() -> str:
    """What turns PTX into machine code here: ptxas's version, or the driver's where there is no ptxas."""
    from_ptxas = _ptxas_version()
    if from_ptxas:
        return f"ptxas {from_ptxas}"
    return f"driver {driver_api.driver_version()}" if driver_api.available() else "none"


def _ptxas_version() -> str:
    from_tool = _ASSEMBLER.get("version")
    if from_tool is None:
        from_tool = _ASSEMBLER["version"] = ptxas_version() or ""
    return from_tool


_ASSEMBLER: dict[str, str] = {}
