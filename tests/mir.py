"""Run cases: kernels in tile IR with inputs and what NumPy says of the outputs, for every engine that can execute them.

A ``tests/run/<family>.mir`` file::

    // engines: tile, ptx, gpu, gfx942, gfx950
    //
    // case: add
    // each T: f32 f16
    // run: grid=(2,) x=$T[200]:randn(1) n=200 y=$T[256]:poison -> y[:200] == x + x
    kernel @add(%x: ptr<$T>, ...) num_warps = 4 { ... }

`each` names a variable and its values: the case is repeated for every combination, with ``$T`` replaced everywhere. A
`run` line gives the grid, each argument of the kernel by name (``dtype[shape]:generator``, optionally ``.T`` or a
slice of it after the generator, or a number), and after ``->`` what holds then, several separated by ``;``:

    y == expression                     equal, after rounding the expression once to y's type
    y ~ expression                      equal within the sum of the error bounds that the kernel's ops declare
    y ~ expression within bound         ... plus this much, absolutely

Expressions are Python over NumPy: an argument's name is its content *before* the run (floats in float64, integers and
bools as they are; ``x0`` is that of `x` in its own type), left of the comparison after it. `raises` instead names the
error code of the simulator: ``-> raises out-of-bounds``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mimw.ir.ops  # noqa: F401  (fills the op table)
from mimw.codegen.ptx.emit import emit_text
from mimw.compiler import StageTimes, assemble_kernel, compile_module
from mimw.ir.core import Module
from mimw.ir.parser import parse_module
from mimw.ir.types import DTYPES, F32, F64, DType
from mimw.ir.verifier import verify
from mimw.passes import facts, pipeline
from mimw.sim.ptx.run import run_ptx
from mimw.sim.tile import SimulationError
from mimw.sim.tile import run as run_tile
from mimw.sim.tile.numerics import float_to_int, numpy_dtype, poison, to_float
from mimw.target import get_target
from tests.amdgcn_kit import run_compiled

RUN = Path(__file__).parent / "run"
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]:(\w+)(?:\(([^)]*)\))?(\[[^\]]*\]|\.T)?")


class Case:
    """One kernel with concrete values of its `each` variables."""

    def __init__(self, name: str, text: str, runs: list[str], engines: tuple[str, ...], file: str) -> None:
        self.name = name
        self.text = text
        self.runs = runs
        self.engines = engines
        self.file = file

    def module(self) -> Module:
        """The kernel, verified."""
        module = parse_module(self.text, file=self.file)
        verify(module)
        return module


def cases(pattern: str = "*.mir") -> Iterator[Case]:
    """All cases of the files in tests/run."""
    for path in sorted(RUN.glob(pattern)):
        yield from _cases_of(path)


def _cases_of(path: Path) -> Iterator[Case]:
    head, *parts = re.split(r"^// case: ", path.read_text(), flags=re.M)
    engines = tuple(re.search(r"^// engines: (.*)$", head, re.M)[1].replace(",", " ").split())  # type: ignore[index]
    for part in parts:
        name, _, body = part.partition("\n")
        each = [(m[1], m[2].split()) for m in re.finditer(r"^// each (\w+): (.*)$", body, re.M)]
        only = re.search(r"^// engines: (.*)$", body, re.M)
        here = tuple(only[1].replace(",", " ").split()) if only else engines
        for values in itertools.product(*[v for _, v in each]):
            text = body
            for (variable, _), value in zip(each, values, strict=True):
                text = text.replace(f"${variable}", value)
            runs = [m[1] for m in re.finditer(r"^// run: (.*)$", text, re.M)]
            assert runs, f"{path.name}: case {name} has no run line"
            suffix = "-".join(values)
            yield Case(f"{path.stem}-{name.strip()}{'-' + suffix if suffix else ''}", text, runs, here, path.name)


# -- inputs ------------------------------------------------------------------------------------------------------


def make_array(text: str) -> np.ndarray:
    """An argument from its ``dtype[shape]:generator`` text."""
    m = _ARRAY.fullmatch(text)
    assert m, f"not an array: {text}"
    d = DTYPES[m[1]]
    shape = tuple(int(n) for n in m[2].split(",") if n)
    given = [float(x) for x in m[4].split(",")] if m[4] else []
    array = np.ascontiguousarray(GENERATORS[m[3]](d, shape, *given))
    if m[5] == ".T":
        return array.T
    return eval(f"a{m[5]}", {"a": array}) if m[5] else array


def _typed(x: np.ndarray, d: DType) -> np.ndarray:
    if d.kind == "float":
        return to_float(np.asarray(x, np.float64), d)
    return np.asarray(x).astype(numpy_dtype(d))


def _randn(d: DType, shape: tuple[int, ...], seed: float = 0, scale: float = 1) -> np.ndarray:
    return _typed(np.random.default_rng(int(seed)).standard_normal(shape) * scale, d)


def _uniform(d: DType, shape: tuple[int, ...], seed: float, low: float, high: float) -> np.ndarray:
    return _typed(np.random.default_rng(int(seed)).uniform(low, high, shape), d)


def _ints(d: DType, shape: tuple[int, ...], seed: float, low: float, high: float) -> np.ndarray:
    return _typed(np.random.default_rng(int(seed)).integers(int(low), int(high), shape), d)


def _bits(d: DType, shape: tuple[int, ...], seed: float = 0) -> np.ndarray:
    """Any bits: NaN, infinities and denormals of floats, whole range of integers."""
    rng = np.random.default_rng(int(seed))
    if d.is_bool():
        return rng.integers(0, 2, shape).astype(np.bool_)
    raw = rng.integers(0, 256, (*shape, d.itemsize), np.uint8)
    return raw.view(numpy_dtype(d)).reshape(shape)


def _arange(d: DType, shape: tuple[int, ...], start: float = 0, step: float = 1) -> np.ndarray:
    return _typed(start + step * np.arange(int(np.prod(shape))).reshape(shape), d)


GENERATORS: dict[str, Any] = {
    "randn": _randn,
    "uniform": _uniform,
    "ints": _ints,
    "bits": _bits,
    "arange": _arange,
    "full": lambda d, shape, value: _typed(np.full(shape, value), d),
    "zeros": lambda d, shape: np.zeros(shape, numpy_dtype(d)),
    "poison": lambda d, shape: poison(shape, d),
}


# -- engines ------------------------------------------------------------------------------------------------------


def run_engine(name: str, module: Module, args: list[Any], grid: tuple[int, ...]) -> None:
    """Execute a module on arrays (in place) with one engine."""
    ENGINES[name](module, args, grid)


TARGET = "sm_90a"


def compile_text(module: Module, target: str = TARGET) -> tuple[str, int]:
    """All passes and the emission: (PTX, bytes of shared memory). The module is left as the passes make it."""
    machine = get_target(target)
    pipeline.run(module, machine)
    text = emit_text(module, machine, facts.compute(module.function), {})
    return text, int(module.function.options.get("shared_bytes", 0))


def run_in_ptx(module: Module, args: list[Any], grid: tuple[int, ...], target: str = TARGET) -> None:
    """Compile to PTX and execute the text in its simulator."""
    text, shared = compile_text(module, target)
    gx, gy, gz = (*grid, 1, 1)[:3]
    run_ptx(text, None, (gx, gy, gz), args, shared_bytes=shared)


def run_in_amdgcn(module: Module, args: list[Any], grid: tuple[int, ...], target: str) -> None:
    """Compile for an AMD target and execute the machine code in its simulator."""
    kernel = compile_module(module, get_target(target), {}, StageTimes(), keep_ir=False)
    assemble_kernel(kernel)
    run_compiled(kernel, grid, args)


def run_on_gpu(module: Module, args: list[Any], grid: tuple[int, ...]) -> None:
    """Compile for the current CUDA device and launch on copies of the arrays that lie in its memory as here; copy back."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    kernel = compile_module(module, get_target(f"sm_{major}{minor}"), {}, StageTimes(), keep_ir=False)
    assemble_kernel(kernel)
    roots = {id(r): r for r in (_root(a) for a in args if isinstance(a, np.ndarray))}
    device: dict[int, Any] = {}
    for key, r in roots.items():
        shift = r.ctypes.data % 64  # the same alignment as here
        device[key] = torch.zeros(r.nbytes + 64, dtype=torch.uint8, device="cuda")[shift : shift + r.nbytes]
        device[key].copy_(torch.from_numpy(r.reshape(-1).view(np.uint8)))
    kernel.launch(grid, [_tensor(torch, a, device) if isinstance(a, np.ndarray) else a for a in args])
    torch.cuda.synchronize()
    for key, r in roots.items():
        r.reshape(-1).view(np.uint8)[...] = device[key].cpu().numpy()


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _tensor(torch: Any, x: np.ndarray, device: dict[int, Any]) -> Any:
    """The tensor in device memory that corresponds to an array: same dtype, shape, strides, place in its root."""
    memory = device[id(_root(x))]
    start = x.ctypes.data - _root(x).ctypes.data
    items = memory[start : start + (len(memory) - start) // x.itemsize * x.itemsize].view(getattr(torch, x.dtype.name))
    return torch.as_strided(items, x.shape, [s // x.itemsize for s in x.strides], items.storage_offset())


ENGINES: dict[str, Any] = {
    "tile": run_tile,
    "ptx": run_in_ptx,
    "gpu": run_on_gpu,
    "gfx942": partial(run_in_amdgcn, target="gfx942"),
    "gfx950": partial(run_in_amdgcn, target="gfx950"),
}


# -- running ------------------------------------------------------------------------------------------------------


def run_case(case: Case, engine: str) -> None:
    """Execute all run lines of a case with an engine and check what they promise."""
    for line in case.runs:
        module = case.module()
        inputs, _, outcome = line.partition("->")
        grid, values = _arguments(inputs)
        names = [a.name for a in module.function.arguments]
        assert set(names) == set(values), f"the run line gives {sorted(values)}, the kernel takes {sorted(names)}"
        before = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in values.items()}
        args = [values[n] for n in names]
        if outcome.strip().startswith("raises"):
            _check_raises(engine, module, args, grid, outcome.split()[1])
            continue
        run_engine(engine, module, args, grid)
        for claim in outcome.split(";"):
            check(claim.strip(), before, values, module)


def _check_raises(engine: str, module: Module, args: list[Any], grid: tuple[int, ...], code: str) -> None:
    try:
        run_engine(engine, module, args, grid)
    except SimulationError as e:
        assert e.code == code, str(e)
        return
    raise AssertionError(f"no error[{code}]")


def _arguments(text: str) -> tuple[tuple[int, ...], dict[str, Any]]:
    grid: tuple[int, ...] = (1,)
    values: dict[str, Any] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        if key == "grid":
            grid = eval(value, {})
        elif ":" in value:
            values[key] = make_array(value)
        else:
            values[key] = eval(value, {"inf": np.inf, "nan": np.nan})
    return grid, values


def _namespace(values: dict[str, Any]) -> dict[str, Any]:
    names: dict[str, Any] = {k: getattr(np, k) for k in np.__all__ if not k.startswith("_")}
    names.update(FUNCTIONS)
    names.update({f"{k}0": v for k, v in values.items()})
    for k, v in values.items():
        floating = isinstance(v, np.ndarray) and v.dtype.kind not in "iub"
        names[k] = v.astype(np.float64) if floating else v
    return names


def toward_zero(x: Any, dtype: str) -> np.ndarray:
    """The largest number of a float dtype that is not above `x` (which is positive and in range), by search."""
    d = DTYPES[dtype]
    near = to_float(np.asarray(x), d)
    down = (near.view(f"uint{d.bits}") - 1).view(near.dtype)
    return np.where(near.astype(np.float64) > x, down.astype(np.float64), near.astype(np.float64))


def dtype_of(name: str) -> np.dtype:
    """The NumPy dtype of a type name."""
    return numpy_dtype(DTYPES[name])


def fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """a*b + c, exact as far as float64 holds it."""
    return a * b + c


def cast(x: Any, dtype: str) -> np.ndarray:
    """`x` rounded to a dtype; floats come back as float64."""
    d = DTYPES[dtype]
    out = _typed(np.asarray(x), d)
    return out.astype(np.float64) if d.kind == "float" else out


def saturated(x: Any, dtype: str) -> np.ndarray:
    """Float to integer, truncated and saturated."""
    return float_to_int(np.asarray(x), DTYPES[dtype])


def truncdiv(a: Any, b: Any) -> np.ndarray:
    """Integer quotient toward zero, by exact arithmetic; all bits set where b is zero."""
    return _each(lambda x, y: (abs(x) // abs(y)) * (-1 if (x < 0) != (y < 0) else 1) if y else -1, a, b)


def truncrem(a: Any, b: Any) -> np.ndarray:
    """Integer remainder with the sign of the dividend; all bits set where b is zero."""
    return _each(lambda x, y: (abs(x) % abs(y)) * (-1 if x < 0 else 1) if y else -1, a, b)


def shl(a: Any, b: Any) -> np.ndarray:
    """Shift left in a's width; a count at or above the width (or negative) gives 0."""
    width = np.asarray(a).dtype.itemsize * 8
    return _each(lambda x, n: x << n if 0 <= n < width else 0, a, b)


def shr(a: Any, b: Any) -> np.ndarray:
    """Shift right; a count at or above the width (or negative) gives 0, or the sign."""
    width = np.asarray(a).dtype.itemsize * 8
    return _each(lambda x, n: x >> (n if 0 <= n < width else width), a, b)


def mulhi(a: Any, b: Any) -> np.ndarray:
    """The high half of the product."""
    width = np.asarray(a).dtype.itemsize * 8
    return _each(lambda x, y: x * y >> width, a, b)


def _each(fn: Any, a: Any, b: Any) -> np.ndarray:
    """Element by element on Python integers, wrapped to a's type."""
    t = np.asarray(a).dtype
    bits = t.itemsize * 8
    exact = np.frompyfunc(lambda x, y: fn(int(x), int(y)) & ((1 << bits) - 1), 2, 1)(a, b)
    return np.asarray(exact).astype(f"uint{bits}").view(t)


FUNCTIONS: dict[str, Any] = {
    "abs": np.abs, "sum": np.sum, "max": np.max, "min": np.min, "rint": np.rint, "pi": np.pi,
    "cast": cast, "toward_zero": toward_zero, "dtype_of": dtype_of, "saturated": saturated, "fma": fma,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "div_rn": np.divide, "rem": np.fmod,
    "minnum": np.fmin, "maxnum": np.fmax, "minimum": np.minimum, "maximum": np.maximum, "neg": np.negative,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "bits_and": np.bitwise_and, "bits_or": np.bitwise_or, "bits_xor": np.bitwise_xor, "bits_not": np.invert,
    "truncdiv": truncdiv, "truncrem": truncrem, "shl": shl, "shr": shr, "mulhi": mulhi,
    "sqrt_rn": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip


def check(claim: str, before: dict[str, Any], after: dict[str, Any], module: Module) -> None:
    """Assert one ``left == right`` or ``left ~ right [within bound]``."""
    approximate = " ~ " in claim
    left, right = claim.split(" ~ " if approximate else " == ", 1)
    right, _, bound = right.partition(" within ")
    got = np.asarray(eval(left, {**_namespace({}), **after}))
    with np.errstate(all="ignore"):
        names = _namespace(before)
        want = np.broadcast_to(np.asarray(eval(right, names)), got.shape)
        d = next(d for d in DTYPES.values() if numpy_dtype(d) == got.dtype)
        if not approximate:
            _check_equal(got, _typed(want, d), claim)
            return
        slack = np.broadcast_to(np.asarray(eval(bound, names) if bound else 0.0), got.shape)
        close = slack + bound_of(module, d) * ulp(want, d)
        overflow = np.isinf(_typed(want, d).astype(np.float64))
        _check_close(got.astype(np.float64), np.where(overflow, np.copysign(np.inf, want), want), close, claim)


def _check_equal(got: np.ndarray, want: np.ndarray, claim: str) -> None:
    if got.dtype.kind in "iub":
        same = got == want
    else:
        g, w = got.astype(np.float64), want.astype(np.float64)
        same = (np.isnan(g) & np.isnan(w)) | ((g == w) & (np.signbit(g) == np.signbit(w)))
    if not same.all():
        i = tuple(int(k) for k in np.argwhere(~same)[0])
        raise AssertionError(
            f"{claim}: {int((~same).sum())} of {same.size} differ; at {i}: {got[i]!r}, not {want[i]!r}"
        )


def _check_close(got: np.ndarray, want: np.ndarray, slack: np.ndarray, claim: str) -> None:
    with np.errstate(invalid="ignore"):
        close = (np.abs(got - want) <= slack) | (got == want) | (np.isnan(got) & np.isnan(want))
    if not close.all():
        i = tuple(int(k) for k in np.argwhere(~close)[0])
        raise AssertionError(
            f"{claim}: {int((~close).sum())} of {close.size} differ; "
            f"at {i}: {got[i]!r}, not {want[i]!r} within {slack[i]!r}"
        )


def ulp(x: np.ndarray, d: DType) -> np.ndarray:
    """The unit in the last place of type `d` at float64 values (that of the smallest normal below it)."""
    _, e = np.frexp(np.where(np.isfinite(x), x, 1.0))
    smallest = 2 - (1 << (d.exponent - 1))
    return np.ldexp(1.0, np.maximum(e - 1, smallest) - d.mantissa)


def bound_of(module: Module, d: DType) -> float:
    """The sum of the declared error bounds of the kernel's float ops, in ulps of `d`, and one for the last rounding.

    An op that computes in f32 and rounds to 16 bits is off by a small part of an ulp before it rounds.
    """
    total = 1.0
    for op in module.function.walk():
        if op.results and op.spec.ulp:
            total += op.spec.ulp if d in (F32, F64) else 0.5 + op.spec.ulp * 2.0 ** (d.mantissa - F32.mantissa)
    return total
