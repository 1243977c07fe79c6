"""Launching on the stand-in driver: what is packed and called, the quick way, contexts, and the text of every error."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mimw.diagnostics import InternalError, LaunchError
from mimw.runtime import driver_api
from mimw.runtime import launch as launch_module
from mimw.runtime.convention import KernelMetadata, LaunchAttributes, Param, buffer_size, layout_params
from mimw.runtime.launch import CompiledKernel, synchronize

from .fake_cuda import BF16, F16, F32, CUresult, FakeDriver, Tensor


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    monkeypatch.setattr(launch_module, "_last_launch", None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver_api.use_driver(fake)
    yield fake
    driver_api.use_driver(None)


def compiled(*kinds: str, asm: dict[str, Any] | None = None, target: str = "sm_90a", **meta: Any) -> CompiledKernel:
    """A kernel with a parameter a kind: ``f32*`` is a pointer to f32, ``*`` any pointer, ``i32/16`` has a divisor."""
    params: list[Param] = []
    for name, text in zip("abcdefgh", kinds, strict=False):
        kind, _, divisor = text.partition("/")
        pointer = kind.endswith("*")
        params.append(
            Param(
                name,
                "pointer" if pointer else kind,
                0,
                dtype=kind[:-1] if pointer else "",
                divisor=int(divisor or 1),
            )
        )
    layout_params(params)
    metadata = KernelMetadata("add", "add_entry", target, params, **meta)
    return CompiledKernel({"cubin": b"\x7fELF"} if asm is None else asm, metadata)


def watch(cuda: FakeDriver, kernel: CompiledKernel) -> None:
    """Have the launches record the argument buffer."""
    cuda.buffer_bytes, cuda.param_count = buffer_size(kernel.metadata.params), len(kernel.metadata.params)


def fails(kernel: CompiledKernel, args: list[Any], grid: Any = 1, stream: Any = None) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        kernel.launch(grid, args, stream)
    return caught.value


# What is called


def test_launch_packs_and_calls(cuda: FakeDriver):
    kernel = compiled("f32*", "f32*", "i32", "f32", num_warps=8, shared_bytes=1024)
    watch(cuda, kernel)
    for _ in range(3):  # the first goes the checked way, the others the quick one
        assert kernel.launch((3, 2), [Tensor(0x1000), Tensor(0x2000), -7, 0.5]) is kernel
    assert cuda.packed == [struct.pack("<QQif", 0x1000, 0x2000, -7, 0.5)] * 3
    for launch in cuda.launches:
        assert (launch.grid, launch.threads, launch.shared, launch.stream) == ((3, 2, 1), 256, 1024, 0)
        assert launch.offsets == [0, 8, 16, 20]


def test_module_is_loaded_once_a_device(cuda: FakeDriver):
    kernel = compiled("f32*")
    for device in (0, 1, 0, 1):
        kernel.launch(1, [Tensor(16, device=device)])
    assert cuda.named("cuModuleLoadDataEx") == [("cuModuleLoadDataEx", b"\x7fELF", 0)] * 2
    assert [launch.context for launch in cuda.launches] == [1000, 1001, 1000, 1001]
    assert cuda.named("cuModuleGetFunction")[0][2] == b"add_entry"


def test_devices_in_turn_go_the_quick_way(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    kernel = compiled("f32*", "f32*")
    for device in (0, 1):
        kernel.launch(1, [Tensor(16, device=device), Tensor(16, device=device)])
    checked: list[Any] = []
    original = CompiledKernel._launch_checked

    def spy(self: CompiledKernel, *arguments: Any) -> CompiledKernel:
        checked.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(CompiledKernel, "_launch_checked", spy)
    for device in (0, 1, 1, 0):
        kernel.launch(1, [Tensor(16, device=device), Tensor(16, device=device)])
    assert not checked
    assert [launch.context for launch in cuda.launches] == [1000, 1001, 1000, 1001, 1001, 1000]
    for first, second in ((0, 1), (1, 0)):
        assert fails(kernel, [Tensor(16, device=first), Tensor(16, device=second)]).code == "launch-device"
    assert len(checked) == 2


def test_prepared_form(cuda: FakeDriver):
    prepared = compiled("f32*", "i32")[4, 5, 6]
    prepared(Tensor(16), 1)
    prepared(Tensor(16), 1, stream=99)
    assert [(launch.grid, launch.stream) for launch in cuda.launches] == [((4, 5, 6), 0), ((4, 5, 6), 99)]


@pytest.mark.parametrize("grid", [5, (5,), [5, 1], np.int64(5), (np.int32(5), 1, 1)])
def test_spellings_of_a_grid(cuda: FakeDriver, grid: Any):
    compiled().launch(grid, [])
    assert cuda.launches[0].grid == (5, 1, 1)


@pytest.mark.parametrize("grid", [0, (0,), (3, 0), (1, 1, 0)])
def test_empty_grid_launches_nothing(cuda: FakeDriver, grid: Any):
    kernel = compiled("f32*")
    kernel.launch(grid, [Tensor(16)])
    kernel.launch(1, [Tensor(16)])
    kernel.launch(grid, [Tensor(16)])
    assert len(cuda.launches) == 1


def test_empty_grid_still_checks_arguments(cuda: FakeDriver):
    assert "too few" in str(fails(compiled("f32*"), [], grid=0))


def test_all_scalar_kinds(cuda: FakeDriver):
    kinds = ["i1", "i8", "u16", "i64", "u64", "f16", "bf16", "f64"]
    kernel = compiled(*kinds)
    watch(cuda, kernel)
    kernel.launch(1, [True, -1, 65535, -(2**63), 2**64 - 1, 1.5, -1.5, 0.1])
    assert cuda.packed == [struct.pack("<?bHxxxxqQeH4xd", True, -1, 65535, -(2**63), 2**64 - 1, 1.5, 0xBFC0, 0.1)]


def test_numpy_scalars_and_ints_for_floats(cuda: FakeDriver):
    kernel = compiled("f32*", "i32", "f32", "f32", "i1")
    watch(cuda, kernel)
    for _ in range(2):
        kernel.launch(1, [Tensor(16), np.int8(-3), np.float16(0.5), 3, np.True_])
    assert cuda.packed == [struct.pack("<Qiff?", 16, -3, 0.5, 3.0, True)] * 2


def test_infinities_and_nan_are_floats(cuda: FakeDriver):
    kernel = compiled("f32", "f16", "bf16")
    watch(cuda, kernel)
    kernel.launch(1, [float("inf"), float("-inf"), float("nan")])
    assert cuda.packed == [bytes.fromhex("0000807f00fcc07f")]


def test_quick_way_notices_another_signature(cuda: FakeDriver):
    kernel = compiled("f32*/16", "i32/16", "f32")
    kernel.launch(1, [Tensor(16), 16, 1.0])
    assert fails(kernel, [Tensor(16, F16), 16, 1.0]).code == "launch-dtype"
    assert fails(kernel, [Tensor(24), 16, 1.0]).code == "launch-alignment"
    assert fails(kernel, [Tensor(16), 17, 1.0]).code == "launch-alignment"
    assert fails(kernel, [Tensor(16), 16.0, 1.0]).code == "launch-dtype"
    assert fails(kernel, [Tensor(16), 2**31, 1.0]).code == "launch-dtype"
    assert fails(kernel, [Tensor(16), 16, 1e300]).code == "launch-dtype"
    assert fails(kernel, [Tensor(16), 16, Tensor(16)]).code == "launch-dtype"
    assert fails(kernel, [Tensor(16, device=-1), 16, 1.0]).code == "launch-host-array"
    assert fails(kernel, [Tensor(16), 16]).code == "launch-arguments"
    assert fails(kernel, [Tensor(16), 16, 1.0, 2]).code == "launch-arguments"
    assert len(cuda.launches) == 1


def test_untyped_pointer_takes_any_dtype(cuda: FakeDriver):
    kernel = compiled("*")
    kernel.launch(1, [Tensor(16, F32)])
    kernel.launch(1, [Tensor(16, BF16)])
    assert len(cuda.launches) == 2


def test_threads_have_their_own_buffers(cuda: FakeDriver):
    kernel = compiled("f32*", "i32")
    kernel.launch(1, [Tensor(16), 0])
    both_alive = threading.Barrier(2)

    def work() -> None:
        kernel.launch(1, [Tensor(16), 0])
        kernel.launch(1, [Tensor(16), 0])
        both_alive.wait(60)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    buffers = [launch.params for launch in cuda.launches[1:]]
    assert sorted(buffers.count(buffer) for buffer in set(buffers)) == [2, 2]


# Contexts


def test_thread_without_context_launches_and_keeps_device_0(cuda: FakeDriver):
    kernel = compiled("f32*")
    kernel.launch(1, [Tensor(16)])
    stacks: list[list[int]] = []

    def work() -> None:
        kernel.launch(1, [Tensor(16)])
        stacks.append(list(cuda.stack))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(cuda.launches) == 2
    assert stacks == [[1000]]


def test_other_device_leaves_the_current_context_alone(cuda: FakeDriver):
    kernel = compiled("f32*")
    cuda.stack[-1] = 1000
    for _ in range(3):
        kernel.launch(1, [Tensor(16, device=1)])
        assert cuda.stack == [1000]
    cuda.stack[-1] = 0
    kernel.launch(1, [Tensor(16, device=1)])
    assert cuda.stack == [0]
    assert {launch.context for launch in cuda.launches} == {1001}


def test_kernel_without_arrays_runs_on_the_current_device(cuda: FakeDriver):
    kernel = compiled("i32")
    kernel.launch(1, [1])
    cuda.stack.append(1001)
    kernel.launch(1, [1])
    assert [launch.context for launch in cuda.launches] == [1000, 1001]


# Streams


def fake_torch(raw: int, initialized: bool = True) -> types.ModuleType:
    torch = types.ModuleType("torch")
    stream = types.SimpleNamespace(cuda_stream=raw)
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: initialized, current_stream=lambda device: stream
    )
    return torch


def test_torchs_current_stream(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(55))
    kernel = compiled("f32*")
    kernel.launch(1, [Tensor(16)])
    kernel.launch(1, [Tensor(16)])
    assert [launch.stream for launch in cuda.launches] == [55, 55]


def test_torchs_raw_getter_is_used_by_the_quick_way(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    torch = fake_torch(55)
    current = [60]
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: current[0] + device)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    kernel = compiled("f32*")
    for raw in (60, 60, 61):
        current[0] = raw
        kernel.launch(1, [Tensor(16)])
    assert [launch.stream for launch in cuda.launches] == [55, 60, 61]


def test_torch_that_has_not_used_cuda(cuda: FakeDriver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(55, initialized=False))
    compiled("i32").launch(1, [1])
    assert cuda.launches[0].stream == 0


@pytest.mark.parametrize(
    "stream", [7, types.SimpleNamespace(cuda_stream=7), types.SimpleNamespace(ptr=7), ctypes.c_uint64(7)]
)
def test_spellings_of_a_stream(cuda: FakeDriver, stream: Any):
    kernel = compiled("f32*")
    if isinstance(stream, ctypes.c_uint64):
        error = fails(kernel, [Tensor(16)], stream=stream)
        assert error.code == "launch-stream"
        assert "is no CUDA stream" in error.message
        return
    kernel.launch(1, [Tensor(16)], stream)
    kernel.launch(1, [Tensor(16)], stream)
    assert [launch.stream for launch in cuda.launches] == [7, 7]


class CudaArray:
    """An array of another library that states the stream it is made on."""

    def __init__(self, stream: int | None) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (0x4000, False),
            "version": 3,
            "stream": stream,
        }


def test_stated_stream_is_launched_on(cuda: FakeDriver):
    compiled("f32*").launch(1, [CudaArray(9)])
    assert cuda.launches[0].stream == 9
    assert not cuda.named("cuStreamWaitEvent")


def test_other_stream_waits_for_the_stated_one(cuda: FakeDriver):
    compiled("f32*").launch(1, [CudaArray(9)], stream=5)
    assert cuda.named("cuEventRecord") == [("cuEventRecord", 77, 9)]
    assert cuda.named("cuStreamWaitEvent") == [("cuStreamWaitEvent", 5, 77)]
    assert cuda.named("cuEventDestroy")
    assert cuda.launches[0].stream == 5


def test_torch_array_decides_over_a_stated_stream(cuda: FakeDriver):
    compiled("f32*", "f32*").launch(1, [CudaArray(9), Tensor(16)])
    assert cuda.launches[0].stream == 0
    assert cuda.named("cuStreamWaitEvent") == [("cuStreamWaitEvent", 0, 77)]


# Attributes


def test_cluster_cooperative_and_programmatic(cuda: FakeDriver):
    attributes = LaunchAttributes((2, 1, 1), cooperative=True, programmatic=True)
    kernel = compiled("f32*", attributes=attributes, num_warps=2, shared_bytes=512)
    for _ in range(2):
        kernel.launch((4, 3), [Tensor(16)], stream=3)
    for launch in cuda.launches:
        assert (launch.grid, launch.threads, launch.shared, launch.stream) == ((4, 3, 1), 64, 512, 3)
        assert launch.attributes == [
            ("CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", (2, 1, 1)),
            ("CU_LAUNCH_ATTRIBUTE_COOPERATIVE", 1),
            ("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", 1),
        ]


def test_opt_ins(cuda: FakeDriver):
    compiled(shared_bytes=48 * 1024).launch(1, [])
    assert not cuda.named("cuFuncSetAttribute")
    compiled(shared_bytes=48 * 1024 + 1, attributes=LaunchAttributes((16, 1, 1))).launch(16, [])
    assert cuda.named("cuFuncSetAttribute") == [
        ("cuFuncSetAttribute", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 48 * 1024 + 1),
        ("cuFuncSetAttribute", "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1),
    ]


def test_grid_must_be_whole_clusters(cuda: FakeDriver):
    kernel = compiled("f32*", attributes=LaunchAttributes((2, 1, 1)))
    kernel.launch(2, [Tensor(16)])
    error = fails(kernel, [Tensor(16)], grid=(5, 1))
    assert error.message == "kernel 'add': grid (5, 1, 1) is not a multiple of the cluster (2, 1, 1) along x"
    assert error.hint == "the grid counts CTAs: round it up to 6 along x"


# Errors


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ((1, -1), "kernel 'add': grid (1, -1, 1) is negative along y"),
        ((1, 65536), "kernel 'add': grid (1, 65536, 1) exceeds the device's limit of 65535 along y"),
        ((2**31,), "kernel 'add': grid (2147483648, 1, 1) exceeds the device's limit of 2147483647 along x"),
        ((1, 1, 1, 1), "kernel 'add': a grid has one to three dimensions, not 4"),
        ((), "kernel 'add': a grid has one to three dimensions, not 0"),
        (1.5, "kernel 'add': the grid must be one to three integers, not 1.5"),
        ((1, None), "kernel 'add': the grid must be one to three integers, not (1, None)"),
    ],
)
def test_bad_grids(cuda: FakeDriver, grid: Any, text: str):
    error = fails(compiled(), [], grid=grid)
    assert (error.code, error.message) == ("launch-grid", text)


def test_grid_function_is_not_called(cuda: FakeDriver):
    error = fails(compiled(), [], grid=lambda meta: (1,))
    assert error.hint == "a grid that depends on the configuration is a function: call it first"


def test_the_place_is_the_callers_line(cuda: FakeDriver):
    try:
        compiled("f32*").launch(1, [])  # this line
    except LaunchError as error:
        assert error.loc.file == __file__
        with open(__file__) as file:
            assert "# this line" in file.read().split("\n")[error.loc.line - 1]
        assert "compiled(" in str(error)
        assert f"{__file__}:{error.loc.line}:{error.loc.col}: error[launch-arguments]: kernel 'add': too few" in str(
            error
        )
    else:
        pytest.fail("no error")


@pytest.mark.parametrize(
    ("kinds", "args", "code", "text"),
    [
        (["f32*", "i32"], [Tensor(16)], "launch-arguments", "too few arguments: it takes 2 (a, b), the launch gives 1"),
        ([], [1, 2], "launch-arguments", "too many arguments: it takes 0 (none), the launch gives 2"),
        (["f32*"], ["text"], "launch-arguments", "argument 'a': a str is neither an array nor a scalar"),
        (["f32*"], [Tensor(16, where="meta")], "launch-arguments", "argument 'a': a tensor on 'meta' cannot be passed"),
        (
            ["f32*"],
            [Tensor(16, F16)],
            "launch-dtype",
            "argument 'a' is a pointer to f32, the launch gives an array of f16",
        ),
        (["f32*"], [3], "launch-dtype", "argument 'a' is a pointer to f32, the launch gives the scalar 3"),
        (["i32"], [Tensor(16)], "launch-dtype", "argument 'a' is a i32, the launch gives an array of f32"),
        (["i32"], [1.0], "launch-dtype", "argument 'a' is a i32, the launch gives the float 1.0"),
        (["i32"], [2**31], "launch-dtype", "argument 'a' is a i32, the launch gives 2147483648, which does not fit"),
        (["u8"], [-1], "launch-dtype", "argument 'a' is a u8, the launch gives -1, which does not fit"),
        (["i1"], [2], "launch-dtype", "argument 'a' is a i1, the launch gives 2, which does not fit"),
        (
            ["f16"],
            [1e6],
            "launch-dtype",
            "argument 'a' is a f16, the launch gives 1000000.0, which is beyond its range",
        ),
        (["f32"], [1e300], "launch-dtype", "argument 'a' is a f32, the launch gives 1e+300, which is beyond its range"),
        (["i32/16"], [8], "launch-alignment", "the launch gives 8, but was compiled for multiples of 16"),
        (
            ["f32*/16"],
            [Tensor(8)],
            "launch-alignment",
            "gives an array at 0x8, but was compiled for addresses divisible by 16",
        ),
        (
            ["f32*"],
            [np.zeros(4, np.float32)],
            "launch-host-array",
            "compiled for sm_90a: argument 'a' lies in host memory",
        ),
        (["f32*"], [Tensor(16, device=-1)], "launch-host-array", "argument 'a' lies in host memory"),
        (
            ["f32*", "f32*"],
            [Tensor(16), Tensor(16, device=1)],
            "launch-device",
            "arguments lie on two devices: 'a' on cuda:0, 'b' on cuda:1",
        ),
    ],
)
def test_bad_arguments(cuda: FakeDriver, kinds: list[str], args: list[Any], code: str, text: str):
    error = fails(compiled(*kinds), args)
    assert error.code == code
    assert text in error.message
    assert error.message.startswith("kernel 'add'")
    assert not cuda.launches


def test_pending_negation_is_refused(cuda: FakeDriver):
    tensor = Tensor(16)
    tensor.negated = True
    assert "call resolve_neg() first" in fails(compiled("f32*"), [tensor]).message


def test_shared_memory_over_the_limit(cuda: FakeDriver):
    error = fails(compiled(shared_bytes=300_000), [])
    assert error.code == "launch-shared-memory"
    assert error.message == "kernel 'add' on cuda:0: a CTA needs 300000 bytes of shared memory, the device has 232448"
    assert error.hint == "use smaller tiles or fewer stages (num_stages)"
    cuda.static_shared = 1024
    assert "needs 233024 bytes" in fails(compiled(shared_bytes=232_000), []).message


def test_too_many_threads(cuda: FakeDriver):
    cuda.max_threads, cuda.registers = 256, 255
    error = fails(compiled(num_warps=16), [])
    assert error.code == "launch-threads"
    assert "a CTA has 512 threads, the device can run 256 of this kernel, which needs 255 registers" in error.message


@pytest.mark.parametrize(
    ("capability", "target", "stages", "loads"),
    [
        ((9, 0), "sm_90a", ("cubin", "ptx"), "cubin"),
        ((9, 0), "sm_90a", ("ptx",), "ptx"),
        ((8, 6), "sm_80", ("cubin", "ptx"), "cubin"),
        ((8, 9), "sm_86", ("cubin",), "cubin"),
        ((9, 0), "sm_80", ("cubin", "ptx"), "ptx"),
        ((9, 0), "sm_80", ("cubin",), None),
        ((8, 0), "sm_86", ("cubin", "ptx"), None),
        ((10, 0), "sm_90a", ("cubin", "ptx"), None),
    ],
)
def test_code_for_another_device(
    cuda: FakeDriver, capability: tuple[int, int], target: str, stages: tuple[str, ...], loads: str | None
):
    cuda.capability = capability
    texts: dict[str, Any] = {"cubin": b"CUBIN", "ptx": "PTX"}
    kernel = compiled(asm={stage: texts[stage] for stage in stages}, target=target)
    if loads is None:
        error = fails(kernel, [])
        assert error.code == "launch-target"
        major, minor = capability
        assert f"compiled for {target}; cuda:0 has compute capability {major}.{minor}" in error.message
        assert error.hint == f"compile with target={driver_api.target_for(capability)!r}"
        return
    kernel.launch(1, [])
    assert cuda.named("cuModuleLoadDataEx")[0][1] == (b"CUBIN" if loads == "cubin" else b"PTX\0")


def test_nothing_to_load_is_our_fault(cuda: FakeDriver):
    with pytest.raises(InternalError, match="neither cubin nor PTX to load, only tile"):
        compiled(asm={"tile": ""}).launch(1, [])


def test_driver_refuses_the_ptx(cuda: FakeDriver):
    cuda.fail["cuModuleLoadDataEx"] = CUresult.CUDA_ERROR_INVALID_PTX
    cuda.jit_log = b"line 3: no such instruction"
    error = fails(compiled(asm={"ptx": "junk"}), [])
    assert error.code == "launch-driver"
    assert error.message.startswith(
        "kernel 'add' on cuda:0: the driver's assembler refused the PTX (cuModuleLoadDataEx"
    )
    assert error.message.endswith("line 3: no such instruction")
    assert error.hint is not None
    assert "install ptxas" in error.hint


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "the device cannot give one CTA what the kernel needs"),
        (
            CUresult.CUDA_ERROR_ILLEGAL_ADDRESS,
            "a kernel accessed memory that is not its own; it may be an earlier launch",
        ),
        (CUresult.CUDA_ERROR_INVALID_VALUE, "invalid value (cuLaunchKernel: CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_driver_refuses_the_launch(cuda: FakeDriver, quick: bool, result: CUresult, text: str):
    kernel = compiled("f32*")
    if quick:
        kernel.launch(1, [Tensor(16)])
    cuda.fail["cuLaunchKernel"] = result
    error = fails(kernel, [Tensor(16)], grid=(2, 3))
    assert error.code == "launch-driver"
    assert error.message.startswith("kernel 'add' with grid (2, 3, 1): ")
    assert text in error.message
    assert result.name in error.message
    assert error.loc.file == __file__


def test_cooperative_grid_too_large(cuda: FakeDriver):
    cuda.fail["cuLaunchKernelEx"] = CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    error = fails(compiled(attributes=LaunchAttributes(cooperative=True)), [])
    assert "a cooperative grid must fit on the device at once" in error.message
    assert error.hint == "launch fewer CTAs and loop in the kernel"


def test_fault_that_comes_to_light_later(cuda: FakeDriver):
    compiled("f32*").launch((7, 1), [Tensor(16)])
    cuda.fail["cuCtxSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError) as caught:
        synchronize(0)
    assert "the last launch was 'add' with grid (7, 1, 1)" in caught.value.message
    assert caught.value.message.startswith("synchronize: a kernel accessed memory that is not its own")
    synchronize(0)
    synchronize(stream=7)
    assert cuda.named("cuStreamSynchronize") == [("cuStreamSynchronize", 7)]


def test_no_driver(monkeypatch: pytest.MonkeyPatch):
    driver_api.use_driver(None)
    monkeypatch.setattr(driver_api, "_probe", False)
    assert not driver_api.available()
    assert driver_api.device_count() == 0
    error = fails(compiled("f32*"), [Tensor(16)])
    assert "there is no CUDA device" in error.message
    assert error.hint == "pass NumPy arrays to run in the simulator"
