"""What a kernel is compiled to: from arguments and options to code, which is kept in memory and on disk.

Owns: binding of arguments to parameters, the launch options that change code, and the caches with all that code depends on. What of an argument
becomes part of the code is `signature.py`'s; how code is made, `compiler.py`'s. Must not know grids, or where a kernel runs: that is `jit.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from mimw.codegen.amdgcn.binary.llvm import library_stamp
from mimw.codegen.ptx.assemble import ptxas_version
from mimw.compiler import Options, compile_kernel, simulated_kernel
from mimw.diagnostics import CompilationError, LaunchError
from mimw.frontend.dependencies import Dependencies, dependencies
from mimw.frontend.source import KernelFunction
from mimw.frontend.trace import Signature
from mimw.ir.core import Module
from mimw.runtime import cache as disk
from mimw.runtime import driver_api
from mimw.runtime.arrays import ArrayInfo, ScalarInfo, describe
from mimw.runtime.convention import KernelMetadata
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.launch_errors import caller_loc
from mimw.signature import is_constexpr, parse_signature, signature_of, specialise, with_bounds
from mimw.target import Target, get_target

if TYPE_CHECKING:
    from mimw.simulated_device import SimulatedKernel

_OPTIONS = ("num_warps", "num_stages", "maxnreg", "enable_fp_fusion", "debug", "ctas_per_cga", "hang_timeout")
_LAUNCH_ONLY = ("stream", "num_ctas")
MAX_CLUSTER = 16


class CompilableKernel(KernelFunction):
    """A function under `@mimw.kernel`, as something that is compiled: `Kernel` adds its launches."""

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
        self._compiled: dict[Any, CompiledKernel] = {}
        self._traced: dict[Any, Any] = {}
        self._simulated: dict[Any, SimulatedKernel] = {}
        self._captured: Dependencies | None = None
        self._version = 0
        self._versions: dict[tuple[Any, ...], int] = {}
        self._lock = threading.RLock()

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

    def is_constant(self, name: str) -> bool:
        """Whether a keyword of a launch is a constexpr parameter or an option, not a run-time parameter."""
        return name not in self._runtime_names

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
        if target.has("scalar_bases"):
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

    def simulated_for(
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

    def traced_for(self, values: list[Any], infos: dict[int, Any], options: Options) -> tuple[Module, list[Any]]:
        """The tile IR that the simulator runs for these arguments, and those of them that it takes."""
        special = self.specialise(values)
        key = (special, options.key(), self.version())
        module = self._traced.get(key)
        if module is None:
            module = simulated_kernel(self.fn, self.signature(special, values), options)
            self._traced[key] = module
        return module, [infos[i] for i, k in enumerate(special) if k[0] != "c"]


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
