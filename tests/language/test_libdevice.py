"""libdevice: errors against NumPy in f64, special values as C has them, agreement of the engines, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.language.extra import libdevice
from mimw.target import get_target
from tests.language.engines_kit import both, compile_for

N = 2048


def applied(name: str, *args: Any) -> Any:
    """A function of one or two arguments, in the tile simulator."""
    fn = getattr(libdevice, name)

    @mimw.kernel
    def one(x, out, N: ml.constexpr):
        at = ml.arange(0, N)
        ml.store(out + at, fn(ml.load(x + at)))

    @mimw.kernel
    def two(x, y, out, N: ml.constexpr):
        at = ml.arange(0, N)
        ml.store(out + at, fn(ml.load(x + at), ml.load(y + at)))

    out = np.zeros_like(args[0])
    (one if len(args) == 1 else two)[(1,)](*args, out, N=len(out))
    return out


def wide(low: float, high: float, seed: int = 0) -> Any:
    """Numbers of both signs whose sizes are spread over their logarithm."""
    rng = np.random.default_rng(seed)
    return (np.exp(rng.uniform(np.log(low), np.log(high), N)) * rng.choice([-1, 1], N)).astype(np.float32)


def flat(low: float, high: float) -> Any:
    return np.random.default_rng(1).uniform(low, high, N).astype(np.float32)


ERRORS: list[tuple[str, Any, list[Any], float]] = [
    ("asin", np.arcsin, [flat(-1, 1)], 2**-21),
    ("asin", np.arcsin, [wide(1e-6, 1)], 2**-21),
    ("acos", np.arccos, [flat(-1, 0.9999)], 2**-21),
    ("atan", np.arctan, [wide(1e-6, 1e6)], 2**-21),
    ("atan2", np.arctan2, [wide(1e-3, 1e3), wide(1e-3, 1e3, 1)], 2**-21),
    ("sinh", np.sinh, [wide(1e-5, 88)], 2**-20),
    ("cosh", np.cosh, [wide(1e-5, 88)], 2**-20),
    ("asinh", np.arcsinh, [wide(1e-5, 1e30)], 2**-20),
    ("acosh", np.arccosh, [abs(wide(1, 1e30))], 2**-20),
    ("acosh", np.arccosh, [flat(1, 3)], 2**-20),
    ("atanh", np.arctanh, [flat(-0.999, 0.999)], 2**-20),
    ("expm1", np.expm1, [wide(1e-6, 88)], 2**-21),
    ("exp10", lambda x: 10**x, [flat(-37, 38)], 2**-21),
    ("log1p", np.log1p, [abs(wide(1e-7, 1e30))], 2**-20),
    ("log1p", np.log1p, [-abs(wide(1e-7, 0.999))], 2**-20),
    ("log10", np.log10, [abs(wide(2, 1e30))], 2**-20),
    ("cbrt", np.cbrt, [wide(1e-30, 1e30)], 2**-22),
    ("hypot", np.hypot, [wide(1e-18, 1e30), wide(1e-18, 1e30, 1)], 2**-22),
    ("pow", np.power, [abs(wide(1e-3, 1e3)), flat(-8, 8)], 2**-22),
    ("pow", np.power, [wide(1e-3, 1e3), np.rint(flat(-8, 8))], 2**-22),
    ("tan", np.tan, [flat(-1.5, 1.5)], 2**-18),
]


@pytest.mark.parametrize(("name", "reference", "args", "bound"), ERRORS)
def test_errors(name: str, reference: Callable[..., Any], args: list[Any], bound: float) -> None:
    got = applied(name, *args)
    want = reference(*(a.astype(np.float64) for a in args))
    normal = np.abs(want) > 1.2e-38
    assert (np.abs(got - want)[normal] <= bound * np.abs(want)[normal]).all()


SPECIAL = np.array(
    [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 2.5, -2.5, 3, -3, 3e38, 0.49999997, 1e-42], np.float32
)
ONE: dict[str, Any] = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "expm1": np.expm1, "log1p": np.log1p,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt, "exp10": lambda x: 10.0**x,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), "isnan": np.isnan, "isinf": np.isinf, "isfinited": np.isfinite,
    "signbit": np.signbit, "saturatef": lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1) + 0.0),
}  # fmt: skip
TWO: dict[str, Any] = {
    "atan2": np.arctan2, "pow": np.power, "hypot": np.hypot, "fmod": np.fmod, "copysign": np.copysign,
}  # fmt: skip


def same(got: Any, want: Any) -> None:
    near = np.isclose(got, want, 1e-6, 0, equal_nan=True)
    signs = (np.signbit(got) == np.signbit(want)) | np.isnan(want)
    assert (near & signs).all(), (got[~(near & signs)], want[~(near & signs)])


@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_special_values(name: str) -> None:
    args = [SPECIAL] if name in ONE else [x.ravel() for x in np.meshgrid(SPECIAL, SPECIAL)]
    with np.errstate(all="ignore"):
        want = (ONE | TWO)[name](*(a.astype(np.float64) for a in args)).astype(np.float32)
    same(applied(name, *args), want)


def test_bits() -> None:
    x = np.array([0, 1, -1, 2**31 - 1, -(2**31), 12345, 8, 6], np.int32)
    bits = [f"{v & 0xFFFFFFFF:032b}" for v in x.tolist()]
    np.testing.assert_array_equal(applied("popc", x), [b.count("1") for b in bits])
    np.testing.assert_array_equal(applied("clz", x), [len(b) - len(b.lstrip("0")) for b in bits])
    np.testing.assert_array_equal(applied("ffs", x), [(32 - b.rindex("1")) if "1" in b else 0 for b in bits])


@mimw.kernel
def several(x, y, n, N: ml.constexpr):
    at = ml.arange(0, N)
    v = ml.load(x + at)
    a = libdevice.pow(v, 3) + ml.extra.cuda.libdevice.asin(v)
    b = libdevice.atan2(v, a) * libdevice.cosh(v)
    c = libdevice.pow(libdevice.fabs(v), n) + libdevice.cbrt(v) + libdevice.log1p(v)
    ml.store(y + at, (a + b + c).to(ml.float16))
    ml.store(y + N + at, libdevice.round(v.to(ml.float16) * 4))


def test_engines_agree() -> None:
    x = np.random.default_rng(0).uniform(-0.9, 0.9, 128).astype(np.float32)
    args = [x, np.zeros(256, np.float16), 1.5]
    got = both(several, (1,), args, ("sm_90a", "sm_80"), N=128)
    w = x.astype(np.float64)
    a = w**3 + np.arcsin(w)
    want = a + np.arctan2(w, a) * np.cosh(w) + np.abs(w) ** 1.5 + np.cbrt(w) + np.log1p(w)
    np.testing.assert_allclose(got[1][:128].astype(np.float64), want, rtol=1e-3, atol=1e-3)
    assert (
        "s_endpgm" in several.compile({"x": "*f32", "y": "*f16", "n": "f32"}, {"N": 128}, target="gfx942").asm["amdgcn"]
    )
    assert get_target("gfx942") and compile_for(several, args, {"N": 128}, "sm_80").metadata.spill_bytes == 0


@mimw.kernel
def refused(x, CASE: ml.constexpr):
    if CASE == 0:
        libdevice.asin(ml.load(x).to(ml.float64))
    if CASE == 1:
        libdevice.popc(1.0)
    libdevice.no_such(1.0)


@pytest.mark.parametrize(("case", "code"), [(0, "not-yet"), (1, "type-mismatch"), (2, "unknown-attribute")])
def test_refusals(case: int, code: str) -> None:
    with pytest.raises(CompilationError) as caught:
        refused[(1,)](np.zeros(1, np.float32), CASE=case)
    assert caught.value.code == code
