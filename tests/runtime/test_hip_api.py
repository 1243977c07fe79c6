"""HIP through the stand-in library: devices, the launch call, and the text of its errors."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mimw.diagnostics import InternalError, LaunchError
from mimw.runtime import driver_api, drivers, hip_api
from mimw.runtime import launch as launch_module
from mimw.runtime.arrays import ArrayInfo, describe
from mimw.runtime.convention import KernelMetadata, LaunchAttributes, Param, layout_params
from mimw.runtime.driver_api import DriverError
from mimw.runtime.launch import CompiledKernel, synchronize
from mimw.testing import do_bench

from .fake_cuda import F16, F32, Tensor
from .fake_hip import FakeHip


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    """A process with HIP and no CUDA."""
    fake = FakeHip()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(driver_api, "_probe", False)
    hip_api.use_library(fake)
    yield fake
    hip_api.use_library(None)


def compiled(*kinds: str, target: str = "gfx942", asm: dict[str, Any] | None = None, **meta: Any) -> CompiledKernel:
    """A kernel with a parameter a kind: ``f32*`` is a pointer to f32."""
    params: list[Param] = []
    for name, kind in zip("abcdefgh", kinds, strict=False):
        pointer = kind.endswith("*")
        params.append(Param(name, "pointer" if pointer else kind, 0, dtype=kind[:-1] if pointer else ""))
    layout_params(params)
    code: dict[str, Any] = {"hsaco": b"\x7fELF"} if asm is None else asm
    return CompiledKernel(code, KernelMetadata("add", "add_entry", target, params, **meta))


def fails(kernel: CompiledKernel, args: list[Any], grid: Any = 1) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        kernel.launch(grid, args)
    return caught.value


# Devices


def test_devices(hip: FakeHip) -> None:
    assert hip_api.available()
    assert hip_api.why_unavailable() == ""
    assert hip_api.device_count() == 2
    assert hip_api.driver_version() == (6, 4)
    assert hip_api.device_name(1) == "AMD Instinct MI300X"
    assert hip_api.architecture(0) == "gfx942"
    assert hip_api.target_name(0) == "gfx942"
    assert hip_api.memory_info(1) == (5, 10)
    assert hip.named("hipMemGetInfo") == [("hipMemGetInfo", 1)]
    assert hip_api.shared_limit(0) == hip_api.shared_limit(0) == 65536
    assert hip_api.device_attribute(0, "MULTIPROCESSOR_COUNT") == 304
    assert len(hip.named("hipDeviceGetAttribute")) == 2  # each asked once


@pytest.mark.parametrize(
    ("name", "target"), [("gfx950", "gfx950"), ("gfx90a:sramecc+:xnack-", None), ("gfx1100", None), ("strange", None)]
)
def test_targets_of_devices(hip: FakeHip, name: str, target: str | None) -> None:
    hip.architecture = name
    assert hip_api.target_name(0) == target


def test_current_device_is_restored(hip: FakeHip) -> None:
    with hip_api.current(1):
        assert hip_api.current_device() == 1
        with hip_api.current(1):
            pass
        assert hip_api.current_device() == 1
    assert hip_api.current_device() == 0
    with pytest.raises(ZeroDivisionError), hip_api.current(1):
        _ = 1 // 0
    assert hip.device == 0


def test_no_device(hip: FakeHip) -> None:
    hip.devices = 0
    assert not hip_api.available()
    assert hip_api.device_count() == 0
    assert hip_api.why_unavailable() == "HIP finds no device"
    with pytest.raises(DriverError, match="hipErrorNoDevice"):
        hip_api.current_device()


def test_a_refusal_to_start_is_told(hip: FakeHip) -> None:
    hip.fail["hipInit"] = 100
    assert hip_api.why_unavailable() == "HIP finds no device: hipErrorNoDevice"


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    hip_api.use_library(None)
    monkeypatch.setattr(hip_api, "library_paths", lambda: iter(["/nonexistent/libamdhip64.so", "libc.so.6"]))
    assert not hip_api.available()
    assert "comes with ROCm" in hip_api.why_unavailable()
    with pytest.raises(DriverError, match=r"libamdhip64.so is not here"):
        hip_api.driver_version()
    hip_api.use_library(None)


def test_paths_of_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "rocm" / "lib").mkdir(parents=True)
    torchs, rocms = tmp_path / "torch" / "lib" / "libamdhip64.so", tmp_path / "rocm" / "lib" / "libamdhip64.so.6"
    for path in (torchs, rocms):
        path.write_bytes(b"")
    program = "from mimw.runtime import hip_api\nprint(*hip_api.library_paths(), sep='\\n')\n"
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(hip_api.__file__).parents[2]}", "ROCM_PATH": str(tmp_path / "rocm")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:3] == [str(torchs), str(rocms), "libamdhip64.so.7"]


def test_a_library_with_all_functions_is_taken_and_typed(tmp_path: Path) -> None:
    """Built here from C, so that ctypes has a real library to bind: it says what it was given."""
    compiler = next((c for c in ("cc", "gcc", "clang") if _runs(c)), None)
    if compiler is None:
        pytest.skip("there is no C compiler on this machine")
    names = [*hip_api._ARGUMENTS, "hipSetDevice", "hipModuleLoadData", "hipDeviceSynchronize"]
    names.remove("hipModuleLaunchKernel")
    source = tmp_path / "hip.c"
    source.write_text(
        "#include <stdint.h>\n"
        + "".join(f"int {name}(void) {{ return 0; }}\n" for name in names)
        + "int hipInit(unsigned f) { return 0; }\n"
        "int hipGetDeviceCount(int *n) { *n = 1; return 0; }\n"
        "int hipGetDevice(int *n) { *n = 0; return 0; }\n"
        'const char *hipGetErrorName(int c) { return c == 700 ? "hipErrorIllegalAddress" : "?"; }\n'
        'const char *hipGetErrorString(int c) { return "words"; }\n'
        "int hipModuleLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,\n"
        "    unsigned shared, void *stream, void **params, void **extra) {\n"
        "  uint64_t *out = (uint64_t *)f;\n"
        "  out[0] = x; out[1] = y; out[2] = z; out[3] = bx; out[4] = by * bz; out[5] = shared; out[6] = (uint64_t)stream;\n"
        "  out[7] = (uint64_t)params; out[8] = *(uint64_t *)extra[1]; out[9] = *(uint64_t *)extra[3];\n"
        "  return x == 7 ? 700 : 0;\n}\n"
    )
    library = tmp_path / "libamdhip64.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    program = (
        "import ctypes\n"
        "from mimw.runtime import hip_api\n"
        "from mimw.runtime.convention import LaunchAttributes\n"
        f"hip_api.library_paths = lambda: iter([{str(library)!r}])\n"
        "out = (ctypes.c_uint64 * 10)()\n"
        "function = hip_api.Function(0, 1, 2)\n"
        "function.handle = ctypes.addressof(out)\n"
        "data = ctypes.c_uint64(0x1122334455667788)\n"
        "block, keep = hip_api.argument_block(ctypes.addressof(data), [0], 8)\n"
        "call = hip_api.bind_launch(function, 256, 0, LaunchAttributes())\n"
        "call(2**31 - 1, 2, 3, 2**47 + 5, block)\n"
        "assert list(out) == [2**31 - 1, 2, 3, 256, 1, 0, 2**47 + 5, 0, 0x1122334455667788, 8], list(out)\n"
        "try:\n"
        "    call(7, 1, 1, 0, block)\n"
        "except hip_api.DriverError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "hipModuleLaunchKernel: hipErrorIllegalAddress (700): words\n"


def _runs(compiler: str) -> bool:
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


# Launches


def test_launch_packs_and_calls(hip: FakeHip) -> None:
    kernel = compiled("f32*", "f32*", "i32", "f32", num_warps=8, shared_bytes=1024)
    for _ in range(3):  # the first goes the checked way, the others the quick one
        assert kernel.launch((3, 2), [Tensor(0x1000), Tensor(0x2000), -7, 0.5]) is kernel
    for launch in hip.launches:
        # Waves of 64 lanes; shared memory is the code object's own affair.
        assert (launch.grid, launch.threads, launch.shared, launch.stream) == ((3, 2, 1), 512, 0, 0)
        assert launch.packed == struct.pack("<QQif", 0x1000, 0x2000, -7, 0.5)
    assert hip.named("hipModuleLoadData") == [("hipModuleLoadData", b"\x7fELF")]
    assert hip.named("hipModuleGetFunction") == [("hipModuleGetFunction", 0xA000, b"add_entry")]


def test_a_kernel_without_parameters(hip: FakeHip) -> None:
    compiled().launch(5, [])
    assert hip.launches[0].packed == b""


def test_each_device_has_its_own_module_and_is_current(hip: FakeHip) -> None:
    kernel = compiled("f32*")
    for device in (0, 1, 0, 1):
        kernel.launch(1, [Tensor(16, device=device)])
    assert [launch.device for launch in hip.launches] == [0, 1, 0, 1]
    assert len(hip.named("hipModuleLoadData")) == 2
    assert hip.device == 0


def test_threads_launch_on_their_own_current_device(hip: FakeHip) -> None:
    kernel = compiled("f32*")
    kernel.launch(1, [Tensor(16, device=1)])

    def work() -> None:
        hip.hipSetDevice(1)
        kernel.launch(1, [Tensor(16, device=1)])

    before = len(hip.named("hipSetDevice"))
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [launch.device for launch in hip.launches] == [1, 1]
    assert len(hip.named("hipSetDevice")) == before + 1  # the thread's own call


def test_torchs_stream(hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = types.SimpleNamespace(cuda_stream=0x5555)
    cuda = types.SimpleNamespace(is_initialized=lambda: True, current_stream=lambda device: stream)
    torch = types.SimpleNamespace(cuda=cuda, version=types.SimpleNamespace(hip="6.4.1", cuda=None))
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel = compiled("f32*")
    for _ in range(2):
        kernel.launch(1, [Tensor(16)])
    kernel.launch(1, [Tensor(16)], stream=9)
    assert [launch.stream for launch in hip.launches] == [0x5555, 0x5555, 9]


def test_drivers(hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drivers.driver_of("gfx950") is hip_api
    assert drivers.driver_of("sm_90a") is driver_api
    assert drivers.device_driver() is hip_api  # no CUDA here
    monkeypatch.setattr(driver_api, "_probe", True)
    assert drivers.device_driver() is driver_api
    for version, expected in ((None, driver_api), ("6.4.1", hip_api)):
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(version=types.SimpleNamespace(hip=version)))
        assert drivers.device_driver() is expected


@pytest.mark.parametrize("stream", [None, 9])
def test_synchronize(hip: FakeHip, stream: int | None) -> None:
    synchronize(stream=stream)
    assert hip.calls[-1] == (("hipDeviceSynchronize", 0) if stream is None else ("hipStreamSynchronize", 9))


def test_measuring(hip: FakeHip) -> None:
    kernel = compiled("f32*")
    hip.durations = [2.0] * 1000
    times = do_bench(lambda: kernel.launch(1, [Tensor(16)]), warmup=10, rep=20, return_mode="all")
    assert times == [2.0] * 6  # 3 ms each with the fill before it, which is not measured
    assert hip.named("hipMalloc") == [("hipMalloc", 256 << 20)]
    assert hip.named("hipFree") == [("hipFree", 0xF000)]
    assert hip.named("hipMemsetD32Async")[0] == ("hipMemsetD32Async", 0xF000, 0, 64 << 20, 0)
    assert len(hip.named("hipEventDestroy")) == len(hip.named("hipEventCreateWithFlags"))


class _OfAnotherLibrary:
    """An array that states a stream of its own."""

    def __init__(self, stream: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (4,), "typestr": "<f4", "data": (64, False), "strides": None, "stream": stream,
        }  # fmt: skip


def test_producers_are_waited_for(hip: FakeHip) -> None:
    compiled("f32*").launch(1, [_OfAnotherLibrary(5)], stream=9)
    assert [call[0] for call in hip.calls if "Event" in call[0]] == [
        "hipEventCreateWithFlags",
        "hipEventRecord",
        "hipStreamWaitEvent",
        "hipEventDestroy",
    ]
    assert hip.named("hipEventRecord") == [("hipEventRecord", 77, 5)]
    assert hip.named("hipStreamWaitEvent") == [("hipStreamWaitEvent", 9, 77)]


class _Producer:
    """A DLPack producer of another library on a ROCm device; the capsule is NumPy's, with the device written over."""

    def __init__(self, device_type: int) -> None:
        self.device_type = device_type
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, 1

    def __dlpack__(self, stream: Any = None) -> Any:
        import numpy as np

        self.streams.append(stream)
        capsule = np.zeros((2, 3), np.float32).__dlpack__()
        get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        device = (ctypes.c_int32 * 2).from_address(get(capsule, b"dltensor") + 8)
        device[0], device[1] = self.device_type, 1
        return capsule


@pytest.mark.parametrize(("stream", "told"), [(None, -1), (0, 0), (5, 5)])
def test_dlpack_of_rocm(stream: int | None, told: int) -> None:
    producer = _Producer(10)
    info = describe(producer, stream)
    assert isinstance(info, ArrayInfo)
    assert (info.kind, info.device, info.shape) == ("cuda", 1, (2, 3))
    assert producer.streams == [told]


# Errors


def test_wrong_device(hip: FakeHip) -> None:
    hip.architecture = "gfx950:sramecc+:xnack-"
    error = fails(compiled("f32*"), [Tensor(16)])
    assert error.code == "launch-target"
    assert error.message == "kernel 'add' is compiled for gfx942; cuda:0 is a gfx950"
    assert error.hint == "compile with target='gfx950'"
    hip_api.use_library(hip)
    hip.architecture = "gfx1100"
    assert fails(compiled("f32*"), [Tensor(16)]).hint == "mimw has no target for this device"


def test_arguments_are_checked_as_on_cuda(hip: FakeHip) -> None:
    kernel = compiled("f32*")
    kernel.launch(1, [Tensor(16)])
    for args, code in (
        ([Tensor(16, F16)], "launch-dtype"),
        ([Tensor(16, device=-1)], "launch-host-array"),
        ([], "launch-arguments"),
        ([Tensor(16, F32), 1], "launch-arguments"),
    ):
        assert fails(kernel, args).code == code


def test_limits(hip: FakeHip) -> None:
    error = fails(compiled("f32*", shared_bytes=65540), [Tensor(16)])
    assert error.code == "launch-shared-memory"
    assert "a CTA needs 65540 bytes of shared memory, the device has 65536" in error.message
    hip.static_shared = 65536  # what the code object states is not added to what the metadata says
    compiled("f32*", shared_bytes=65536).launch(1, [Tensor(16)])
    hip.max_threads = 256
    assert fails(compiled("f32*", num_warps=8), [Tensor(16)]).code == "launch-threads"


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        ("hipModuleLoadData", 209, "the code was compiled for another device"),
        ("hipModuleLoadData", 2, "the device has too little free memory"),
        ("hipModuleGetFunction", 500, "the compiled code has no kernel of that entry name"),
        ("hipModuleLaunchKernel", 9, "CTAs times threads of a CTA stay below 2^32 along x"),
        ("hipModuleLaunchKernel", 400, "the driver does not know the stream"),
        ("hipModuleLaunchKernel", 1, "sentence 1"),
    ],
)
def test_refusals_are_told_in_words(hip: FakeHip, call: str, status: int, words: str) -> None:
    hip.fail[call] = status
    error = fails(compiled("f32*"), [Tensor(16)], (3,))
    assert error.code == "launch-driver"
    assert words in error.message
    assert f"({call}: hip" in error.message
    assert error.loc.file == __file__


def test_a_fault_names_the_last_launch(hip: FakeHip) -> None:
    compiled("f32*").launch((4, 2), [Tensor(16)])
    hip.fail["hipDeviceSynchronize"] = 700
    with pytest.raises(LaunchError) as caught:
        synchronize()
    assert "a kernel accessed memory that is not its own" in caught.value.message
    assert "the last launch was 'add' with grid (4, 2, 1)" in caught.value.message
    assert caught.value.hint == "run the kernel on NumPy arrays: the simulator names the access"


def test_what_amd_does_not_have_is_refused(hip: FakeHip) -> None:
    for attributes in (LaunchAttributes(cooperative=True), LaunchAttributes(programmatic=True)):
        error = fails(compiled("f32*", attributes=attributes), [Tensor(16)])
        assert "AMD's devices do not have what the launch asks for" in error.message


def test_kernels_without_code(hip: FakeHip) -> None:
    with pytest.raises(InternalError, match="no code object to load, only amdgcn"):
        compiled("f32*", asm={"amdgcn": "s_endpgm"}).launch(1, [Tensor(16)])
    with pytest.raises(TypeError, match="code objects"):
        hip_api.load_function(0, "text", "k")


def test_without_hip_the_launch_says_so(hip: FakeHip) -> None:
    hip.devices = 0
    error = fails(compiled("f32*"), [Tensor(16)])
    assert "there is no HIP device" in error.message
    assert error.hint is not None and "mimw doctor" in error.hint
