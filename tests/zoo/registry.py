"""What a run case is: a kernel, arguments made from a seed, and what must stand in memory afterwards.

Owns `Run`, the table `ENTRIES`, the arrays (aligned, with guard bytes around them, outputs poisoned) and the comparison with the
reference. A case knows no engine: tests/zoo/engines.py runs it.

References are float64 NumPy, or exact. Tolerances come from what the ops declare: `exact` for integers, memory and single rounded
operations, `near` for the rest.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

GUARD = 64
POISON_BYTE = 0xCB

DTYPES: dict[str, Any] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e4m3z": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "e5m2z": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
# Mantissa bits without the leading one, and the exponent of the smallest normal number.
_FORMAT = {
    "f16": (10, -14),
    "bf16": (7, -126),
    "f32": (23, -126),
    "f64": (52, -1022),
    "e4m3": (3, -6),
    "e5m2": (2, -14),
    "e4m3z": (3, -7),
    "e5m2z": (2, -15),
}


def dtype_name(x: Any) -> str:
    """The short name of an array's dtype."""
    d = np.dtype(x.dtype)
    return next(name for name, found in DTYPES.items() if found == d)


def is_float(name: str) -> bool:
    """Whether a short name is a floating-point type."""
    return name in _FORMAT


# Arrays.


def empty(shape: tuple[int, ...] | int, dtype: str, *, strides: tuple[int, ...] | None = None, offset: int = 0) -> Any:
    """Poisoned memory: NaN where the type has one, else bytes 0xCB; guard bytes before and after.

    `strides` count elements (default: row-major). `offset` elements lie between a 16-byte boundary and element 0.
    """
    shape = (shape,) if isinstance(shape, int) else shape
    d = DTYPES[dtype]
    if strides is None:
        steps, n = [], 1
        for size in reversed(shape):
            steps.append(n)
            n *= max(size, 1)
        strides = tuple(reversed(steps))
    extent = offset + sum((max(n, 1) - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
    # The storage starts at a 64-byte boundary whatever malloc gave, so that alignment does not differ from run to run.
    raw = np.full(extent * d.itemsize + 2 * GUARD + 64, POISON_BYTE, np.uint8)
    start = -raw.ctypes.data % 64 + GUARD
    flat = raw[start : start + extent * d.itemsize].view(d)
    if is_float(dtype):
        flat[:] = np.nan
    first = start + offset * d.itemsize
    return np.ndarray(shape, d, buffer=raw, offset=first, strides=[s * d.itemsize for s in strides])


def array(values: Any, dtype: str, *, strides: tuple[int, ...] | None = None, offset: int = 0) -> Any:
    """Memory as `empty` makes it, holding `values` (converted to `dtype`)."""
    values = np.asarray(values)
    out = empty(values.shape, dtype, strides=strides, offset=offset)
    out[...] = values.astype(DTYPES[dtype])
    return out


def root(x: Any) -> Any:
    """The bytes that own an array's memory."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def randoms(rng: Any, shape: tuple[int, ...] | int, dtype: str) -> Any:
    """Normal floats, or integers over the type's whole range, as a plain array of `dtype`."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if is_float(dtype):
        return rng.standard_normal(shape).astype(np.float32 if dtype != "f64" else np.float64).astype(DTYPES[dtype])
    info = np.iinfo(DTYPES[dtype])
    return rng.integers(info.min, info.max, shape, dtype=DTYPES[dtype], endpoint=True)


def data(rng: Any, shape: tuple[int, ...] | int, dtype: str, **place: Any) -> Any:
    """Random input memory: `randoms` placed by `array`."""
    return array(randoms(rng, shape, dtype), dtype, **place)


def wide(x: Any) -> Any:
    """float64 of any float array."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.asarray(x).astype(np.float64)


def strides(x: Any) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // x.itemsize for s in x.strides)


# Comparison.


def ulp(want: Any, dtype: str) -> Any:
    """The distance of neighbours of `dtype` at each float64 value."""
    mantissa, smallest = _FORMAT[dtype]
    size = np.abs(np.where(np.isfinite(want), want, 0.0))
    _, exponent = np.frexp(size)
    return np.ldexp(1.0, np.maximum(np.where(size == 0, smallest, exponent - 1), smallest) - mantissa)


class Want:
    """What an output must hold: `value` (an array of the output's shape) within `ulps` units of its type plus `absolute`.

    Without tolerance the value, converted to the output's type, must be equal bit by bit (any NaN equals any NaN).
    `engines_bitwise` says whether engines must agree bit by bit: by default exactly when there is no tolerance.
    """

    __slots__ = ("absolute", "engines_bitwise", "ulps", "value")

    def __init__(self, value: Any, ulps: float = 0.0, absolute: Any = 0.0, engines_bitwise: bool | None = None) -> None:
        self.value = np.asarray(value)
        self.ulps = ulps
        self.absolute = absolute
        loose = ulps > 0 or bool(np.any(np.asarray(absolute) > 0))
        self.engines_bitwise = not loose if engines_bitwise is None else engines_bitwise

    def bound(self, dtype: str) -> Any:
        """The largest allowed distance, element by element."""
        return self.ulps * ulp(self.value.astype(np.float64), dtype) + self.absolute


def exact(value: Any) -> Want:
    """The very value, after rounding to the output's type."""
    return Want(value)


def near(value: Any, ulps: float = 0.5, absolute: Any = 0.0, engines_bitwise: bool = False) -> Want:
    """A float64 value within `ulps` units in the last place of the output's type, plus `absolute`."""
    return Want(value, ulps, absolute, engines_bitwise)


class Run:
    """One launch. `args` are the run-time arguments in order, `outputs` pairs of an array among them and its `Want`."""

    __slots__ = ("args", "constants", "grid", "kernel", "options", "outputs")

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        args: tuple[Any, ...],
        outputs: list[tuple[Any, Want]],
        constants: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.kernel = kernel
        self.grid = grid
        self.args = args
        self.outputs = outputs
        self.constants = constants or {}
        self.options = options

    def arrays(self) -> list[Any]:
        """The array arguments."""
        return [a for a in self.args if isinstance(a, np.ndarray)]


def same_bits(a: Any, b: Any) -> Any:
    """Where two arrays of one dtype hold the same bits, any NaN being like any other."""
    if is_float(dtype_name(a)):
        nan = np.isnan(wide(a)) & np.isnan(wide(b))
    else:
        nan = np.zeros(a.shape, np.bool_)
    word = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    return nan | (np.ascontiguousarray(a).view(word) == np.ascontiguousarray(b).view(word))


def check(run: Run, got: list[Any], engine: str) -> None:
    """Compare the outputs of an engine with the reference; AssertionError names the worst element."""
    for i, ((_, want), x) in enumerate(zip(run.outputs, got, strict=True)):
        name = dtype_name(x)
        assert want.value.shape == x.shape, f"the reference has shape {want.value.shape}, the output {x.shape}"
        loose = want.ulps > 0 or bool(np.any(np.asarray(want.absolute) > 0))
        if not loose:
            with np.errstate(all="ignore"):
                ok = same_bits(x, want.value.astype(x.dtype))
        else:
            value, have = want.value.astype(np.float64), wide(x)
            special = ~np.isfinite(value) | ~np.isfinite(have)
            with np.errstate(invalid="ignore"):
                close = np.abs(have - value) <= want.bound(name)
            ok = np.where(special, (have == value) | (np.isnan(have) & np.isnan(value)), close)
        report(ok, x, want.value, f"{engine}: output {i} ({name}) against the reference")


def agree(run: Run, got: list[Any], other: list[Any], engines: str) -> None:
    """Compare two engines' outputs: bit by bit where the case says so, else within the sum of both bounds."""
    for i, ((_, want), x, y) in enumerate(zip(run.outputs, got, other, strict=True)):
        name = dtype_name(x)
        if want.engines_bitwise:
            ok = same_bits(x, y)
        else:
            a, b = wide(x), wide(y)
            with np.errstate(invalid="ignore"):
                ok = (np.abs(a - b) <= 2 * want.bound(name)) | (a == b) | (np.isnan(a) & np.isnan(b))
        report(ok, x, y, f"{engines}: output {i} ({name})")


def report(ok: Any, got: Any, want: Any, title: str) -> None:
    """AssertionError with the count and the first three places where `ok` is false."""
    if np.all(ok):
        return
    bad = np.argwhere(~ok)
    lines = [f"  {tuple(int(c) for c in at)}: {got[tuple(at)]!r}, not {want[tuple(at)]!r}" for at in bad[:3]]
    raise AssertionError(f"{title}: {len(bad)} of {ok.size} elements differ\n" + "\n".join(lines))


# The table.


class Entry:
    """A family of run cases: `make(rng, **variant)` builds one `Run` for each of `variants`."""

    __slots__ = ("make", "name", "sm80", "variants")

    def __init__(self, name: str, make: Callable[..., Run], variants: list[dict[str, Any]], sm80: bool) -> None:
        self.name = name
        self.make = make
        self.variants = variants
        self.sm80 = sm80

    def run(self, index: int) -> Run:
        """A fresh `Run` of variant `index`: the same bytes each time."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), index])
        return self.make(rng, **self.variants[index])

    def ids(self) -> Iterator[tuple[int, str]]:
        """Index and name of each variant."""
        for i, variant in enumerate(self.variants):
            text = "-".join(f"{k}{_short(v)}" for k, v in variant.items())
            yield i, f"{self.name}-{text}" if text else self.name


def _short(v: Any) -> str:
    return "x".join(map(str, v)) if isinstance(v, tuple) else str(v)


ENTRIES: list[Entry] = []


def zoo(*variants: dict[str, Any], sm80: bool = False) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Enter a case builder into the table. The smallest variants stand first: slow engines run only those.

    With `sm80` the PTX for sm_80 is run too.
    """

    def enter(make: Callable[..., Run]) -> Callable[..., Run]:
        ENTRIES.append(Entry(make.__name__, make, list(variants) or [{}], sm80))
        return make

    return enter


def sizes(*values: int, key: str = "n") -> list[dict[str, Any]]:
    """Variants that differ in one size."""
    return [{key: v} for v in values]


def each(key: str, values: Any, **rest: Any) -> list[dict[str, Any]]:
    """Variants that differ in one value, the others fixed."""
    return [{key: v, **rest} for v in values]
