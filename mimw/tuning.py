"""Choosing a kernel's configuration: `@mimw.autotune`, `mimw.Config`, `@mimw.heuristics`, with Triton's signatures.

Owns: the wrappers around kernels, which configurations are tried and which fit, the winners in memory and on disk. Assumes that a wrapped
kernel is launched as any other (`kernel[grid](...)`). Must not know how times are taken (`testing`) or how kernels are compiled.

A configuration is measured on the arguments of the launch that needs it: kernels that change what they read name those arguments in `restore_value`
or `reset_to_zero`. Where no GPU takes part (NumPy arrays: the simulator) nothing is measured, and the first configuration that pruning leaves runs.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from mimw import testing
from mimw.diagnostics import CompilationError, LaunchError, Note
from mimw.jit import Kernel, Launch, Runnable
from mimw.runtime import cache as disk
from mimw.runtime.arrays import ArrayInfo, describe
from mimw.runtime.drivers import device_driver
from mimw.runtime.launch_errors import caller_loc
from mimw.runtime.tensor_descriptor import TensorDescriptor

Hook = Callable[[dict[str, Any]], Any]
QUANTILES = (0.5, 0.2, 0.8)

# Refusals of a launch that are the configuration's fault, not the arguments'.
_UNFIT_LAUNCH = frozenset({"launch-shared-memory", "launch-threads", "launch-size", "launch-grid", "launch-option"})
_UNFIT_DRIVER = ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "CUDA_ERROR_INVALID_CLUSTER_SIZE")


class Config:
    """One configuration: values for constexpr parameters (`kwargs`), and launch options.

    `pre_hook` is called with all arguments by name before each launch with this configuration, for instance to set the `block_shape` of a
    descriptor.
    """

    __slots__ = ("ctas_per_cga", "kwargs", "maxnreg", "num_ctas", "num_stages", "num_warps", "pre_hook")

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Hook | None = None,
        ctas_per_cga: tuple[int, ...] | None = None,
    ) -> None:
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ctas_per_cga = ctas_per_cga

    def all_kwargs(self) -> dict[str, Any]:
        """The constexprs and the options that are set, as a launch takes them."""
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
            "ctas_per_cga": self.ctas_per_cga,
        }
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    def __str__(self) -> str:
        return ", ".join(f"{k}: {v}" for k, v in self.all_kwargs().items())

    def __repr__(self) -> str:
        return f"Config({self})"


class Tunable(Runnable, Protocol):
    """What can be wrapped: a kernel or another wrapper."""

    name: str
    parameter_names: tuple[str, ...]


class Wrapper:
    """Base of the wrappers: launches as a kernel does."""

    def __init__(self, fn: Tunable) -> None:
        self.fn = fn
        self.name = fn.name
        self.parameter_names = fn.parameter_names
        self.__doc__ = fn.__doc__

    @property
    def kernel(self) -> Kernel:
        """The kernel inside all wrappers."""
        inner: Any = self.fn
        while isinstance(inner, Wrapper):
            inner = inner.fn
        return cast("Kernel", inner)

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch; what `wrapper[grid](*args, **kwargs)` calls."""
        raise NotImplementedError

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            "launch-no-grid",
            f"kernel {self.name!r} is called without a grid",
            caller_loc(),
            hint=f"write {self.name}[grid](...), where grid is a tuple or a function of the arguments",
        )

    def __repr__(self) -> str:
        return f"<mimw.{type(self).__name__} of {self.fn!r}>"

    def refuse(self, text: str, hint: str | None = None, notes: list[Note] | None = None) -> LaunchError:
        """The error that tuning this kernel `text`, at the caller's line."""
        return LaunchError(
            "autotune", f"autotune of kernel {self.name!r}: {text}", caller_loc(), hint=hint, notes=notes
        )


class Heuristics(Wrapper):
    """A kernel some of whose constexprs are computed from the other arguments at each launch; see `heuristics`."""

    def __init__(self, fn: Tunable, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = dict(values)

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with the computed values."""
        given = dict(zip(self.parameter_names, args, strict=False))
        for name, compute in self.values.items():
            kwargs[name] = compute({**given, **kwargs})
        return self.fn.run(grid, args, kwargs)


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Tunable], Heuristics]:
    """Decorator: compute constexprs at each launch. `values` maps a parameter to a function of the arguments by name."""
    return lambda fn: Heuristics(fn, values)


class Autotuner(Wrapper):
    """A kernel that picks one of several configurations by measuring; see `autotune`.

    `cache` maps a key to its winner, `best_config` is that of the last launch, `configs_timings` maps the configurations of the last measurement to
    (median, 20 %, 80 %) ms or None when they do not fit.
    """

    def __init__(
        self,
        fn: Tunable,
        configs: Sequence[Config],
        key: Sequence[str],
        prune_configs_by: Mapping[str, Any] | None,
        reset_to_zero: Sequence[str] | None,
        restore_value: Sequence[str] | None,
        pre_hook: Callable[..., Any] | None,
        post_hook: Callable[..., Any] | None,
        bench: Callable[[Callable[[], Any]], Any],
    ) -> None:
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        self.key = tuple(key)
        self.best_config: Config | None = None
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.configs_timings: dict[Config, tuple[float, ...] | None] = {}
        self._reset, self._restore = tuple(reset_to_zero or ()), tuple(restore_value or ())
        self._pre_hook, self._post_hook = pre_hook, post_hook
        self._saved: dict[str, Any] = {}
        self._bench = bench
        self._prune = dict(prune_configs_by or {})
        self._lock = threading.RLock()
        for name in (*self.key, *self._reset, *self._restore):
            if name not in self.parameter_names:
                raise self.refuse(
                    f"it has no parameter {name!r}", f"its parameters are {', '.join(self.parameter_names)}"
                )
        for name in self._prune:
            if name not in ("early_config_prune", "perf_model", "top_k"):
                raise self.refuse(
                    f"prune_configs_by does not know {name!r}", "it takes early_config_prune, perf_model, top_k"
                )

    def run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch with the best configuration for these arguments, found now if it is not known."""
        given = {**dict(zip(self.parameter_names, args, strict=False)), **kwargs}
        taken = sorted({name for config in self.configs for name in config.kwargs if name in given})
        if taken:
            raise self.refuse(
                f"{', '.join(taken)} is set by the configurations and by the launch", "leave it to one of them"
            )
        call = Call(self.fn, grid, args, kwargs, given)
        config = self.configs[0] if len(self.configs) == 1 else self._winner(call)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**given, **config.all_kwargs()})
        return call.launch(config)

    def _winner(self, call: Call) -> Config:
        device = launch_device(call.given)
        key = self._key_of(call.given, device)
        found = self.cache.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self.cache.get(key)
            if found is None:
                configs = self._pruned(call)
                if len(configs) == 1 or device is None:
                    found = configs[0]
                else:
                    found = self._stored_or_measured(call, configs, key, device)
                self.cache[key] = found
        return found

    def _key_of(self, given: dict[str, Any], device: int | None) -> tuple[Any, ...]:
        """The values of the key's parameters, the element types of all arrays, the device."""
        parts: list[Any] = [given[name] for name in self.key if name in given]
        parts += [str(v.dtype) for n, v in given.items() if n in self.parameter_names and hasattr(v, "dtype")]
        out = (*parts, device)
        try:
            hash(out)
        except TypeError:
            raise self.refuse(
                f"the key {', '.join(self.key)} must have hashable values", "name scalars, not arrays"
            ) from None
        return out

    def _pruned(self, call: Call) -> list[Config]:
        configs = self.configs
        early = self._prune.get("early_config_prune")
        if early is not None:
            configs = list(early(configs, call.named, **call.kwargs))
            if not configs:
                raise self.refuse("early_config_prune leaves no configuration")
        model = self._prune.get("perf_model")
        if model is None:
            return configs
        top_k: Any = self._prune.get("top_k", 1.0)
        if isinstance(top_k, float) and 0 < top_k <= 1.0:
            top_k = max(1, int(len(configs) * top_k))
        if not isinstance(top_k, int) or top_k < 1:
            raise self.refuse(f"top_k is a positive number of configurations or a part up to 1.0, not {top_k!r}")
        if len(configs) <= top_k:
            return configs
        costs = {c: float(model(**{**call.named, **call.kwargs, **c.all_kwargs()})) for c in configs}
        return sorted(configs, key=costs.__getitem__)[:top_k]

    # Measuring

    def _stored_or_measured(self, call: Call, configs: list[Config], key: tuple[Any, ...], device: int) -> Config:
        store = disk.default_cache()
        digest = ""
        if store is not None:
            digest = disk.cache_key(self._digest_parts(store, configs, key, device))
            entry = store.get(digest)
            if entry is not None:
                for config in configs:
                    if repr(config) == entry.meta.get("winner"):
                        return config
        winner = self._measured(call, configs)
        if store is not None:
            timings = [[repr(c), t] for c, t in self.configs_timings.items()]
            store.put(digest, {"winner": repr(winner), "timings": timings}, {})
        return winner

    def _digest_parts(
        self, store: disk.DiskCache, configs: list[Config], key: tuple[Any, ...], device: int
    ) -> list[tuple[str, str]]:
        hooks = [c.pre_hook for c in configs] + [self._pre_hook, self._post_hook]
        driver = device_driver()
        parts = [("what", "autotune"), ("device", driver.device_name(device))]
        parts += [("target", str(driver.target_name(device))), ("driver", str(driver.driver_version()))]
        parts += [("key", repr(key[:-1])), ("configs", repr(configs)), ("hooks", "\n".join(map(_source, hooks)))]
        inner: Any = self.fn
        while isinstance(inner, Heuristics):
            parts += [(f"heuristic {name}", _source(f)) for name, f in inner.values.items()]
            inner = inner.fn
        return parts + self.kernel.fingerprint(store)

    def _measured(self, call: Call, configs: list[Config]) -> Config:
        timings: dict[Config, tuple[float, ...] | None] = {}
        failures: list[tuple[Config, CompilationError]] = []
        for config in configs:
            timings[config] = None
            try:
                timings[config] = self._time(call, config)
            except CompilationError as error:
                if not is_unfit(error):
                    raise
                failures.append((config, error))
            if os.environ.get("MIMW_PRINT_AUTOTUNING") == "1":
                print(f"autotune {self.name}: {config}: {_outcome(timings[config], failures)}")
        self.configs_timings = timings
        times = {c: t[0] for c, t in timings.items() if t is not None}
        if not times:
            raise self._all_failed(failures)
        winner = min(times, key=times.__getitem__)
        self._before({**call.given, **winner.all_kwargs()}, reset_only=True)
        return winner

    def _time(self, call: Call, config: Config) -> tuple[float, ...]:
        everything = {**call.given, **config.all_kwargs()}

        def once() -> None:
            if config.pre_hook is not None:
                config.pre_hook(everything)
            self._before(everything, reset_only=False)
            try:
                call.launch(config)
            except Exception as error:
                self._after(everything, error)
                raise
            self._after(everything, None)

        found = self._bench(once)
        return (
            tuple(float(t) for t in cast("list[Any]", found)) if isinstance(found, (tuple, list)) else (float(found),)
        )

    def _before(self, everything: dict[str, Any], reset_only: bool) -> None:
        if self._pre_hook is not None:
            self._pre_hook(everything, reset_only=reset_only)
            return
        for name in self._reset:
            _zero(everything[name])
        if not reset_only:
            self._saved = {name: _copy(everything[name]) for name in self._restore}

    def _after(self, everything: dict[str, Any], exception: Exception | None) -> None:
        if self._post_hook is not None:
            self._post_hook(everything, exception=exception)
            return
        for name, saved in self._saved.items():
            _write(everything[name], saved)
        self._saved = {}

    def _all_failed(self, failures: list[tuple[Config, CompilationError]]) -> CompilationError:
        """One fault that all share is the kernel's or the launch's: it speaks for itself."""
        first = failures[0][1]
        if all((e.code, e.message, e.loc) == (first.code, first.message, first.loc) for _, e in failures):
            return first
        notes = [Note(f"{config}: {error.code}: {error.message}", error.loc) for config, error in failures]
        return self.refuse(f"none of {len(failures)} configurations can run", notes=notes)


class Call:
    """A launch but for its configuration: `named` the positional arguments by name, `given` all arguments by name."""

    __slots__ = ("args", "fn", "given", "grid", "kwargs", "named")

    def __init__(
        self, fn: Tunable, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
    ) -> None:
        self.fn = fn
        self.grid = grid
        self.args = args
        self.kwargs = kwargs
        self.given = given
        self.named = dict(zip(fn.parameter_names, args, strict=False))

    def launch(self, config: Config) -> Any:
        """Launch with a configuration."""
        return self.fn.run(self.grid, self.args, {**self.kwargs, **config.all_kwargs()})


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
) -> Callable[[Tunable], Autotuner]:
    """Decorator: measure `configs` at the first launch for each value of the parameters in `key`, and use the fastest from then on.

    `prune_configs_by`: ``"early_config_prune"`` (configs, named arguments, **kwargs -> configs), ``"perf_model"`` (all arguments by name
    -> cost) with ``"top_k"``.
    `reset_to_zero` names arrays that are zeroed before each measured run, `restore_value` arrays that get their content back after it;
    `pre_hook(args, reset_only)` and `post_hook(args, exception)` do it by hand instead. `warmup` and `rep` are in ms. `do_bench(call, quantiles=...)`
    takes the place of `mimw.testing.do_bench`, `use_cuda_graph` that of `do_bench_cudagraph`.

    Configurations that do not compile or do not fit the device are passed over; `LaunchError` when none is left. Winners are kept on disk
    for the same device, driver, assembler, mimw and kernel source. ``MIMW_PRINT_AUTOTUNING=1`` prints each time.
    """

    for c in configs:
        if not isinstance(c, Config):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"autotune takes a list of mimw.Config, this one holds a {type(c).__name__}: Config({{...}}, num_warps=...)"
            )

    def bench(call: Callable[[], Any]) -> Any:
        if do_bench is not None:
            return do_bench(call, quantiles=QUANTILES)
        if use_cuda_graph:
            return testing.do_bench_cudagraph(call, rep=20 if rep is None else rep, quantiles=QUANTILES)
        unmeasured, measured = 25 if warmup is None else warmup, 100 if rep is None else rep
        return testing.do_bench(call, warmup=unmeasured, rep=measured, quantiles=QUANTILES)

    return lambda fn: Autotuner(
        fn, configs, key, prune_configs_by, reset_to_zero, restore_value, pre_hook, post_hook, bench
    )


def is_unfit(error: CompilationError) -> bool:
    """Whether an error says that a configuration does not fit, so that others may be tried.

    An error of a launch may also be the arguments', or a broken context: then trying on would only hide it.
    """
    if not isinstance(error, LaunchError):
        return True
    if error.code == "launch-driver":
        return any(name in error.message for name in _UNFIT_DRIVER)
    return error.code in _UNFIT_LAUNCH


def launch_device(given: Mapping[str, Any]) -> int | None:
    """The CUDA device that a launch with these arguments runs on; None for the simulator."""
    arrays = False
    for value in given.values():
        if isinstance(value, (int, float, str, tuple)) or value is None:
            continue
        try:
            info = describe(value)
        except (TypeError, RuntimeError, BufferError):
            continue  # dtypes and the like; the launch itself says what it cannot take
        if isinstance(info, ArrayInfo):
            if info.kind == "cuda":
                return info.device
            arrays = True
    driver = device_driver()
    return driver.current_device() if not arrays and driver.available() else None


def _outcome(times: tuple[float, ...] | None, failures: list[tuple[Config, CompilationError]]) -> str:
    return f"{times[0]:.4f} ms" if times is not None else f"does not fit: {failures[-1][1].message}"


def _source(function: Any) -> str:
    """A function's source as part of a key; its name where there is none."""
    if function is None:
        return ""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return getattr(function, "__qualname__", repr(function))


def _array(value: Any) -> Any:
    return value.base if isinstance(value, TensorDescriptor) else value


def _zero(value: Any) -> None:
    array = _array(value)
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array.fill(0)


def _copy(value: Any) -> Any:
    array = _array(value)
    return array.clone() if hasattr(array, "clone") else array.copy()


def _write(value: Any, saved: Any) -> None:
    array = _array(value)
    if hasattr(array, "copy_"):
        array.copy_(saved)
    else:
        array[...] = saved
