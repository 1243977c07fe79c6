"""The four 8-bit floats as a kernel sees them: names, what they compute with, CDNA3's missing -0; on every engine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.ir.types import F8E4M3FNUZ, F8E5M2FNUZ
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.amdgcn_kit import run_compiled
from tests.language.engines_kit import NAMES, both, run_text

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FNUZ, FNUZ5 = ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz
KINDS = (E4M3, E5M2, FNUZ, FNUZ5)


def every_code(dtype: Any) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(dtype)


def run_everywhere(kernel: Any, args: list[Any], **constants: Any) -> list[Any]:
    """On the tile simulator, the PTX simulator and that of AMD's machine code: all agree bit by bit, any NaN like any other."""
    found = both(kernel, (1,), args, ("sm_90a", "sm_80"), **constants)
    for target in ("gfx942", "gfx950"):
        given = [a.copy() for a in args]
        types = [f"*{NAMES[a.dtype.name]}:16" for a in args]
        run_compiled(kernel.compile(types, constants, target=target), (1,), given)
        for x, y in zip(given, found, strict=True):
            np.testing.assert_array_equal(x.astype(np.float64), y.astype(np.float64))
    return found


def test_names() -> None:
    assert ml.float8e4b8 is ml.float8_e4m3fnuz is F8E4M3FNUZ and ml.float8e5b16 is ml.float8_e5m2fnuz is F8E5M2FNUZ
    assert [d.bias for d in (ml.float8e4nv, ml.float8e5, ml.float8e4b8, ml.float8e5b16)] == [7, 15, 8, 16]
    assert {"f8e4m3fnuz", "f8e5m2fnuz"} == {str(ml.float8e4b8), str(ml.float8e5b16)}


@mimw.kernel
def smaller(x, y, out):
    i = ml.arange(0, 256)
    a, b = ml.load(x + i), ml.load(y + 255 - i, mask=i > 15, other=0.5)
    kept = ml.where(a <= b, a.to(ml.float32), b.to(ml.float32))
    ml.store(out + i, kept, mask=(a == a) & (b == b))


@pytest.mark.parametrize(("left", "right"), [(E4M3, FNUZ), (FNUZ5, E5M2), (FNUZ, FNUZ5)])
def test_kinds_compare_and_are_selected(left: Any, right: Any) -> None:
    x, y = every_code(left), every_code(right)
    out = np.full(256, 7, np.float32)
    got = run_everywhere(smaller, [x, y, out])[2]
    a, b = x.astype(np.float32), np.where(np.arange(256) > 15, y[::-1].astype(np.float32), np.float32(0.5))
    np.testing.assert_array_equal(got, np.where(np.isnan(a) | np.isnan(b), 7, np.where(a <= b, a, b)))


@mimw.kernel
def through(x, out, back, VIA: ml.constexpr):
    i = ml.arange(0, 256)
    a = ml.load(x + i)
    narrow = a.to(VIA)
    ml.store(out + i, narrow, mask=a == a)  # there are several NaN
    ml.store(back + i, narrow.to(ml.float32), mask=narrow == narrow)


@pytest.mark.parametrize("to", KINDS)
def test_no_minus_zero(to: Any) -> None:
    """Small negative numbers, and -0, become 0 where there is no -0: its code would be NaN."""
    values = np.array([-0.0, 0.0, -(2.0**-18), -(2.0**-12), -1e-30, -np.inf, np.nan, 1e9], np.float32)
    x = np.tile(values, 32)
    via = {E4M3: ml.float8e4nv, E5M2: ml.float8e5, FNUZ: ml.float8e4b8, FNUZ5: ml.float8e5b16}[to]
    _, out, back = run_everywhere(through, [x, np.zeros(256, to), np.zeros(256, np.float32)], VIA=via)
    largest = np.float32(ml_dtypes.finfo(to).max)
    want = np.where(np.isnan(x), 0, np.clip(x, -largest, largest)).astype(to)
    np.testing.assert_array_equal(back, want.astype(np.float32))
    np.testing.assert_array_equal(out.view(np.uint8), want.view(np.uint8))
    assert to in (E4M3, E5M2) or 0x80 not in out.view(np.uint8)


@mimw.kernel
def constants(out, ZERO: ml.constexpr):
    ml.store(out, 1.0 / ml.full((), ZERO, ml.float8e4b8).to(ml.float32))
    ml.store(out + 1, 1.0 / ml.full((), ZERO, ml.float8e4nv).to(ml.float8e5b16).to(ml.float32))


def test_constants_have_no_minus_zero_either() -> None:
    for zero in (0.0, -0.0):
        assert (run_everywhere(constants, [np.zeros(2, np.float32)], ZERO=zero)[0] == np.inf).all()


@mimw.kernel
def adds(x):
    ml.atomic_add(x, ml.load(x))


@mimw.kernel
def sums(x):
    ml.store(x, ml.load(x) + ml.load(x))


@pytest.mark.parametrize("name", ["fp8e4b8", "fp8e5b16"])
def test_what_they_do_not_compute(name: str) -> None:
    for kernel, code in ((adds, "type-mismatch"), (sums, "fp8-arithmetic")):
        with pytest.raises(CompilationError) as caught:
            kernel.compile([f"*{name}"], {}, target="gfx942")
        assert caught.value.code == code


@mimw.kernel
def asynchronous(x, out):
    left, right = ml.local_alloc((64, 32), x.dtype.element_ty, 1), ml.local_alloc((32, 64), x.dtype.element_ty, 1)
    rows = ml.arange(0, 64)[:, None]
    tile = ml.load(x + rows * 32 + ml.arange(0, 32)[None, :])
    ml.local_store(left[0], tile)
    ml.local_store(right[0], tile.T)
    acc = ml.alloc_accumulator((64, 64), ml.float32)
    product = ml.async_dot(left[0], right[0], acc)
    ml.store(out + rows * 64 + ml.arange(0, 64)[None, :], ml.async_dot_wait(0, product))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_asynchronous_products_on_amd(target: str, dtype: Any) -> None:
    x = np.random.default_rng(1).standard_normal((64, 32)).astype(dtype)
    out = np.zeros((64, 64), np.float32)
    compiled = asynchronous.compile([f"*{NAMES[x.dtype.name]}:16", "*f32:16"], {}, target=target)
    run_compiled(compiled, (1,), [x, out])
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out, wide @ wide.T, rtol=1e-5, atol=1e-4)


def test_wgmma_does_not_take_them() -> None:
    with pytest.raises(CompilationError, match="wgmma does not take f8e4m3fnuz") as caught:
        asynchronous.compile(["*fp8e4b8:16", "*f32:16"], {}, target="sm_90a")
    assert caught.value.loc.line == asynchronous.fn.__code__.co_firstlineno + 8


@mimw.kernel
def copied(x, out):
    x.store([0, 0], x.load([0, 0]))
    rows, columns = ml.arange(0, 16)[:, None], ml.arange(0, 16)[None, :]
    tile = x.load([0, 0])
    ml.store(out + rows * 16 + columns, tile.to(ml.float32), mask=tile == tile)


@pytest.mark.parametrize("dtype", [FNUZ, FNUZ5])
def test_descriptors(dtype: Any) -> None:
    x = every_code(dtype).reshape(16, 16).copy()
    out = np.zeros((16, 16), np.float32)
    got = both(copied, (1,), [TensorDescriptor.from_tensor(x, [16, 16]), out], ("sm_90a",))
    np.testing.assert_array_equal(got[1], np.nan_to_num(x.astype(np.float32), posinf=np.inf))


@mimw.kernel
def narrowed(x, out, TO: ml.constexpr):
    i = ml.arange(0, 256)
    a = ml.load(x + i)
    ml.store(out + i, a.to(TO), mask=a == a)


_COMPILED: dict[tuple[str, Any], Any] = {}
_NARROW = [(target, dtype) for target in ("sm_80", "gfx942", "gfx950") for dtype in KINDS]


@pytest.mark.parametrize(("target", "dtype"), _NARROW)
@given(data=st.binary(min_size=1024, max_size=1024), low=st.integers(100, 120))
def test_any_f32_is_rounded_once(target: str, dtype: Any, data: bytes, low: int) -> None:
    """Half of the numbers have exponents near those of the type."""
    bits = np.frombuffer(data, np.uint32).copy()
    bits[::2] = bits[::2] & 0x807FFFFF | (low + (bits[::2] >> 23 & 31)) << 23
    x = bits.view(np.float32)
    to = {E4M3: ml.float8e4nv, E5M2: ml.float8e5, FNUZ: ml.float8e4b8, FNUZ5: ml.float8e5b16}[dtype]
    out = np.zeros(256, dtype)
    types = ["*f32:16", f"*{NAMES[out.dtype.name]}:16"]
    if (target, to) not in _COMPILED:
        _COMPILED[target, to] = narrowed.compile(types, {"TO": to}, target=target)
    compiled = _COMPILED[target, to]
    (run_text if target == "sm_80" else run_compiled)(compiled, (1,), [x.copy(), out])
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    want = np.where(np.isnan(x), 0, np.clip(x, -largest, largest)).astype(np.float32).astype(dtype)
    np.testing.assert_array_equal(out.view(np.uint8), want.view(np.uint8))
