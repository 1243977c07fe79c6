"""`@mimw.kernel`: binding, specialisation, launch errors at the caller's line, caches, offline compiles, threads."""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw import kernel_code
from mimw.compiler import Options
from mimw.jit import Kernel
from mimw.runtime import driver_api
from mimw.target import TARGETS
from tests.runtime.fake_cuda import F32, FakeDriver, Tensor


@mimw.kernel
def scale(x_ptr, out_ptr, n, factor, BLOCK: ml.constexpr = 64, SHIFT: "ml.constexpr" = 0):
    offsets = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offsets < n
    x = ml.load(x_ptr + offsets, mask=mask)
    ml.store(out_ptr + offsets, x * factor + SHIFT, mask=mask)


def arrays(n: int = 100) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.arange(n, dtype=np.float32), np.full(n, np.nan, np.float32)


def test_positional_keyword_and_default_arguments() -> None:
    x, out = arrays()
    scale[(2,)](x, out, 100, 3.0)
    np.testing.assert_array_equal(out, x * 3)
    scale[(2,)](x_ptr=x, out_ptr=out, n=100, factor=2.0, SHIFT=5)
    np.testing.assert_array_equal(out, x * 2 + 5)
    scale[(7,)](x, out, 100, 2.0, 16, 1)
    np.testing.assert_array_equal(out, x * 2 + 1)


def test_grid_may_be_a_number_a_tuple_or_a_function_of_the_arguments() -> None:
    x, out = arrays()
    seen: dict[str, Any] = {}

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.update(meta)
        return (mimw.cdiv(meta["n"], meta["BLOCK"]),)

    scale[grid](x, out, 100, 3.0, BLOCK=32, num_warps=2)
    np.testing.assert_array_equal(out, x * 3)
    assert (seen["BLOCK"], seen["n"], seen["num_warps"]) == (32, 100, 2)
    scale[2](x, out, 100, 4.0)
    np.testing.assert_array_equal(out, x * 4)


def test_an_empty_grid_does_nothing() -> None:
    x, out = arrays()
    scale[(0,)](x, out, 100, 3.0)
    assert np.isnan(out).all()


WRONG: list[tuple[str, str, Any]] = [
    ("launch-arguments", "misses 'factor'", lambda k, x, o: k[(1,)](x, o, 100)),
    ("launch-arguments", "takes 6 arguments", lambda k, x, o: k[(1,)](x, o, 100, 1.0, 64, 0, 7)),
    ("launch-arguments", "got two values for 'n'", lambda k, x, o: k[(1,)](x, o, 100, 1.0, n=3)),
    ("launch-option", "does not know 'num_warp'", lambda k, x, o: k[(1,)](x, o, 100, 1.0, num_warp=4)),
    ("launch-option", "num_warps=3", lambda k, x, o: k[(1,)](x, o, 100, 1.0, num_warps=3)),
    ("launch-option", "num_stages=-1", lambda k, x, o: k[(1,)](x, o, 100, 1.0, num_stages=-1)),
    ("launch-option", "maxnreg=8", lambda k, x, o: k[(1,)](x, o, 100, 1.0, maxnreg=8)),
    ("launch-option", "takes an integer", lambda k, x, o: k[(1,)](x, o, 100, 1.0, num_warps="4")),
    ("not-yet", "num_ctas > 1", lambda k, x, o: k[(1,)](x, o, 100, 1.0, num_ctas=2)),
    ("launch-option", "ctas_per_cga=(0, 1, 1)", lambda k, x, o: k[(1,)](x, o, 100, 1.0, ctas_per_cga=(0, 1, 1))),
    ("launch-grid", "", lambda k, x, o: k[(1, 1, 1, 1)](x, o, 100, 1.0)),
    ("launch-grid", "", lambda k, x, o: k[(-1,)](x, o, 100, 1.0)),
    ("launch-grid", "", lambda k, x, o: k[(1.5,)](x, o, 100, 1.0)),
    ("launch-grid", "no argument 'BLOCK_SIZE'", lambda k, x, o: k[lambda meta: (meta["BLOCK_SIZE"],)](x, o, 100, 1.0)),
    ("launch-argument-type", "cannot take 'x_ptr'", lambda k, x, o: k[(1,)]([1, 2], o, 100, 1.0)),
    ("launch-argument-type", "cannot take 'factor'", lambda k, x, o: k[(1,)](x, o, 100, 1j)),
    ("launch-constexpr", "must be hashable", lambda k, x, o: k[(1,)](x, o, 100, 1.0, BLOCK=[64])),
    ("launch-constexpr", "cannot take a ndarray for 'BLOCK'", lambda k, x, o: k[(1,)](x, o, 100, 1.0, BLOCK=x)),
    ("launch-argument-type", "no dtype complex64", lambda k, x, o: k[(1,)](x.astype("c8"), o, 100, 1.0)),
    ("launch-no-grid", "called without a grid", lambda k, x, o: k(x, o, 100, 1.0)),
    ("launch-signature", "misses the type of 'n'", lambda k, x, o: k.compile({"x_ptr": "*f32", "out_ptr": "*f32"})),
    ("launch-signature", "no parameter 'y'", lambda k, x, o: k.compile({"y": "*f32"})),
    ("launch-signature", "4 run-time parameters", lambda k, x, o: k.compile(["*f32"], {"BLOCK": 64, "SHIFT": 0})),
    ("launch-signature", "cannot take the type '*f31'", lambda k, x, o: k.compile(["*f31", "*f32", "i32", "f32"])),
    ("launch-target", "unknown target", lambda k, x, o: k.compile(["*f32", "*f32", "i32", "f32"], target="sm_1")),
    ("launch-target", "unknown target 90", lambda k, x, o: k.compile(["*f32", "*f32", "i32", "f32"], target=90)),
]


@pytest.mark.parametrize(("code", "text", "call"), WRONG, ids=[f"{c}-{i}" for i, (c, _, _) in enumerate(WRONG)])
def test_wrong_launches_are_told_at_the_call(code: str, text: str, call: Any) -> None:
    x, out = arrays()
    with pytest.raises(mimw.LaunchError) as caught:
        call(scale, x, out)
    error = caught.value
    assert error.code == code
    assert text in error.message
    assert "scale" in error.message or code == "launch-target"
    line = inspect.getsourcelines(call)[1]
    assert (Path(error.loc.file).name, error.loc.line) == (Path(__file__).name, line)
    assert np.isnan(out).all()


HINTS: list[tuple[str, Any]] = [
    ("no parameter is named 'FACTOR'", lambda k, x, o: k[(1,)](x, o, 100, FACTOR=1.0)),
    ("convert the array first", lambda k, x, o: k[(1,)](x.astype(object), o, 100, 1.0)),
    ("make it an array", lambda k, x, o: k[(1,)](x.tolist(), o, 100, 1.0)),
    ("an array is passed to a parameter without annotation", lambda k, x, o: k[(1,)](x, o, 100, 1.0, BLOCK=x)),
]


@pytest.mark.parametrize(("hint", "call"), HINTS, ids=[h for h, _ in HINTS])
def test_wrong_launches_are_told_what_to_do(hint: str, call: Any) -> None:
    with pytest.raises(mimw.LaunchError) as caught:
        call(scale, *arrays())
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 600  # no dump of an array


@pytest.mark.parametrize(
    ("thing", "text"), [(scale, "is a kernel already"), (np.exp, "not a ufunc"), (None, "not a NoneType")]
)
def test_only_functions_become_kernels(thing: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        mimw.kernel(thing)


def test_language_functions_outside_of_kernels_are_told_without_a_made_up_place() -> None:
    with pytest.raises(mimw.CompilationError) as caught:
        ml.arange(0, 4)
    assert str(caught.value).startswith("error[outside-kernel]: arange only has a meaning inside a kernel")


def test_a_users_error_shows_no_frames_of_the_compiler() -> None:
    @mimw.kernel
    def wrong(x_ptr):
        ml.store(x_ptr, undefined_name)  # noqa: F821

    with pytest.raises(mimw.CompilationError) as caught:
        wrong[(1,)](np.zeros(4, np.float32))
    files = {Path(str(e.path)).name for e in caught.traceback}
    assert files <= {Path(__file__).name, "jit.py"}


def test_a_foreign_function_in_a_kernel_is_told_what_to_call() -> None:
    @mimw.kernel
    def wrong(x_ptr):
        ml.store(x_ptr, np.exp(ml.load(x_ptr)))

    with pytest.raises(mimw.CompilationError, match="exp is a ufunc from outside") as caught:
        wrong[(1,)](np.zeros(4, np.float32))
    assert caught.value.hint == "call functions of mimw.language, or other kernels"


def test_specialisation_sees_alignment_divisibility_one_and_width() -> None:
    x, out = arrays()
    base = scale.specialise([x, out, 100, 1.0, 64, 0])
    assert scale.specialise([x[1:], out, 100, 1.0, 64, 0]) != base
    assert scale.specialise([x, out, 96, 1.0, 64, 0])[2] == ("s", "i32", True)
    assert scale.specialise([x, out, 1, 1.0, 64, 0])[2] == ("c", "int", 1)
    assert scale.specialise([x, out, 1 << 40, 1.0, 64, 0])[2] == ("s", "i64", True)
    assert scale.specialise([x, out, (1 << 63) + 1, 1.0, 64, 0])[2] == ("s", "u64", False)
    assert scale.specialise([x, out, True, 1.0, 64, 0])[2] == ("s", "i1", False)
    assert scale.specialise([x, out, 100, None, 64, 0])[3][0] == "c"
    assert scale.specialise([x.astype(ml_dtypes.bfloat16), out, 100, 1.0, 64, 0])[0][1] == "bf16"
    # 1 and True and 1.0 are equal in Python and different constants in a kernel.
    keys = {scale.specialise([x, out, 100, 1.0, 64, c])[5] for c in (1, True, 1.0)}
    assert len(keys) == 3


@pytest.mark.parametrize("target", sorted(t.name for t in TARGETS.values() if t.vendor == "nvidia"))
def test_compiles_for_every_target_without_a_device(target: str) -> None:
    kernel = scale.compile(["*f32:16", "*f32:16", "i32:16", "f32"], target=target)
    assert f".target {target}" in str(kernel.asm["ptx"])
    assert kernel.metadata.spill_bytes == 0
    assert [p.kind for p in kernel.metadata.params] == ["pointer", "pointer", "i32", "f32"]
    assert set(kernel.asm) >= {"tile", "layouts", "ptx", "cubin"}


def test_disk_cache_is_used_and_sees_every_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MIMW_CACHE", raising=False)
    compiled: list[str] = []
    real = kernel_code.compile_kernel

    def counting(*args: Any, **kwargs: Any) -> Any:
        compiled.append("")
        return real(*args, **kwargs)

    monkeypatch.setattr(kernel_code, "compile_kernel", counting)
    x, out = arrays()
    target = TARGETS["sm_90a"]

    def get(values: list[Any], **options: Any) -> Any:
        return Kernel(scale.fn).compiled_for(values, Options(**options), target)

    first = get([x, out, 100, 1.0, 64, 0])
    again = get([x, out, 100, 1.0, 64, 0])
    assert len(compiled) == 1
    assert again.asm == first.asm
    assert again.metadata.to_dict()["params"] == first.metadata.to_dict()["params"]
    for values, options in (
        ([x, out, 100, 1.0, 128, 0], {}),
        ([x, out, 100, 1.0, 64, 1], {}),
        ([x, out, 96, 1.0, 64, 0], {}),
        ([x[1:], out, 100, 1.0, 64, 0], {}),
        ([x, out, 100, 1.0, 64, 0], {"num_warps": 8}),
        ([x, out, 100, 1.0, 64, 0], {"enable_fp_fusion": False}),
    ):
        before = len(compiled)
        get(values, **options)
        assert len(compiled) == before + 1, (values[2:], options)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in driver with devices, and what makes tensors on them."""
    fake = FakeDriver()
    monkeypatch.setenv("MIMW_CACHE", "0")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver_api.use_driver(fake)
    yield fake
    driver_api.use_driver(None)


def test_a_launch_that_was_seen_before_describes_nothing(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(scale.fn)
    x, out = (Tensor(0x1000 * i, F32, (256,), 0) for i in (1, 2))
    first = kernel[(2,)](x, out, 100, 1.0, BLOCK=64)
    monkeypatch.setattr(Kernel, "describe", None)
    again = kernel[lambda meta: (mimw.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 200, 2.0, BLOCK=64)
    assert again is first
    assert [launch.grid for launch in cuda.launches] == [(2, 1, 1), (4, 1, 1)]
    for args, kwargs in (
        ((x, out, 96, 1.0), {"BLOCK": 64}),  # divisible by 16
        ((x, out, 100, 1.0), {"BLOCK": 128}),
        ((x, out, 100, 1.0), {"BLOCK": 64, "num_warps": 8}),
        ((Tensor(0x1008, F32, (256,), 0), out, 100, 1.0), {"BLOCK": 64}),  # not aligned
        ((x, out, True, 1.0), {"BLOCK": 64}),
        ((x, out, 100, 1.0, 64, 1), {}),
    ):
        with pytest.raises(TypeError):  # goes the long way, which `describe` opens
            kernel[(2,)](*args, **kwargs)


def test_a_changed_environment_is_seen_by_quick_launches(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(scale.fn)
    x, out = (Tensor(0x1000 * i, F32, (256,), 0) for i in (1, 2))
    first = kernel[(2,)](x, out, 100, 1.0, BLOCK=64)
    monkeypatch.setenv("MIMW_DEBUG", "1")
    assert kernel[(2,)](x, out, 100, 1.0, BLOCK=64) is not first


def test_threads_compile_at_once_and_agree() -> None:
    texts: list[str] = []
    signature = ["*f32:16", "*f32:16", "i32:16", "f32"]

    def work() -> None:
        for block in (64, 128, 256):
            texts.append(f"{block} {Kernel(scale.fn).compile(signature, {'BLOCK': block}, assembled=False).asm['ptx']}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(texts) == 12
    assert len(set(texts)) == 3


def test_importing_mimw_loads_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, mimw, mimw.language; print([m for m in ('numpy','ml_dtypes','cuda','rich','torch') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_other_name_of_the_decorator_is_told() -> None:
    with pytest.raises(AttributeError, match=r"module 'mimw' has no attribute 'jit'; write mimw.kernel"):
        mimw.__getattr__("jit")


WIDTH = np.int64(3)


@mimw.kernel
def _clipped(rows: ml.constexpr, below: ml.constexpr, LIMIT: ml.constexpr):
    return ml.where(rows < below, rows, LIMIT)


@mimw.kernel
def clip(out, below, N: ml.constexpr, LIMITS: ml.constexpr, FACTOR: ml.constexpr = WIDTH):
    rows = ml.arange(0, N)
    for _ in ml.range(0, 1, flatten=True, disable_licm=True):
        ml.store(out + rows, _clipped(rows, below, LIMITS[1]) * FACTOR + WIDTH)


@pytest.mark.parametrize("size", [8, np.int32(8), np.uint8(8)])
def test_numbers_of_numpy_are_constants_and_a_called_kernels_constants_may_be_run_time_values(size: Any) -> None:
    out = np.zeros(8, np.int32)
    clip[(1,)](out, 5, size, (0, np.int64(7)))
    np.testing.assert_array_equal(out, [3 * (i if i < 5 else 7) + 3 for i in range(8)])


def test_no_stages_are_one_stage() -> None:
    x, out = arrays()
    scale[(2,)](x, out, 100, 3.0, num_stages=0)
    np.testing.assert_array_equal(out, x * 3)
    none, one = (
        scale.compile(["*f32", "*f32", "i32", "f32"], num_stages=n, assembled=False).asm["ptx"] for n in (0, 1)
    )
    assert none == one


def test_an_array_in_a_signature_stands_for_its_type() -> None:
    x = np.zeros(65, np.float16)
    (at,) = (i for i in range(8) if x[i:].ctypes.data % 16 == 2)
    by_array = scale.compile([x[at:], x[at + 7 :], "i32", "f32"], assembled=False)
    by_text = scale.compile(["*f16", "*f16:16", "i32", "f32"], assembled=False)
    assert by_array.asm["ptx"] == by_text.asm["ptx"]
    with pytest.raises(mimw.LaunchError, match="kernels know no dtype complex64"):
        scale.compile([x.astype(np.complex64), x, "i32", "f32"], assembled=False)


@mimw.kernel(
    do_not_specialize=["n"],
    launch_metadata=lambda grid, kernel, args: {},
    debug=True,
)
def _checked(out, n):
    ml.device_assert(n > 0, "n is positive")
    ml.store(out, n)


def test_the_decorator_takes_the_keywords_of_tritons() -> None:
    out = np.zeros(1, np.int32)
    _checked[(1,)](out, 3)
    assert out[0] == 3
    code = _checked.compile(["*i32", "i32"], assembled=False).asm["ptx"]
    assert "trap" in code
    assert "trap" not in _checked.compile(["*i32", "i32"], assembled=False, debug=False).asm["ptx"]
    with pytest.raises(TypeError, match="no keyword 'debg'; it has debug, do_not_specialize"):
        mimw.kernel(debg=True)  # pyright: ignore[reportCallIssue, reportArgumentType]
