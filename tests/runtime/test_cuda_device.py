"""The runtime on a real driver: hand-written PTX, torch tensors, the driver's own errors."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mimw.diagnostics import LaunchError
from mimw.runtime import driver_api
from mimw.runtime.convention import KernelMetadata, LaunchAttributes, Param, buffer_size, layout_params
from mimw.runtime.launch import CompiledKernel, synchronize

pytestmark = pytest.mark.gpu

HEADER = """
.version {version}
.target {target}
.address_size 64
.extern .shared .align 16 .b8 smem[];
"""

# c[i] = a[i] + b[i] * scale for i < n
ADD = """
.visible .entry add_entry(.param .u64 a, .param .u64 b, .param .u64 c, .param .s32 n, .param .f32 scale)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .f32 %f<5>;
  .reg .b64 %d<8>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.s32 %r5, [n];
  setp.ge.s32 %p, %r4, %r5;
  @%p bra DONE;
  ld.param.u64 %d1, [a];
  ld.param.u64 %d2, [b];
  ld.param.u64 %d3, [c];
  ld.param.f32 %f1, [scale];
  mul.wide.s32 %d4, %r4, 4;
  add.s64 %d5, %d1, %d4;
  add.s64 %d6, %d2, %d4;
  add.s64 %d7, %d3, %d4;
  ld.global.f32 %f2, [%d5];
  ld.global.f32 %f3, [%d6];
  fma.rn.f32 %f4, %f3, %f1, %f2;
  st.global.f32 [%d7], %f4;
DONE:
  ret;
}
"""

# Stores every scalar at its offset, less the pointer's 8 bytes.
SCALARS = ("i1", "i8", "u16", "i32", "i64", "f16", "bf16", "f64", "u64")

# out[ctaid] = rank of the CTA in its cluster
RANK = """
.visible .entry rank_entry(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %d<3>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_ctarank;
  mad.wide.u32 %d2, %r1, 4, %d1;
  st.global.b32 [%d2], %r2;
  ret;
}
"""

# out[0] = the last word of the dynamic shared memory, after storing 42 there
SHARED = """
.visible .entry shared_entry(.param .u64 out)
{
  .reg .b32 %r<5>;
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [out];
  mov.u32 %r1, smem;
  mov.u32 %r2, %dynamic_smem_size;
  add.s32 %r3, %r1, %r2;
  mov.u32 %r4, 42;
  st.shared.b32 [%r3+-4], %r4;
  ld.shared.b32 %r4, [%r3+-4];
  st.global.b32 [%d1], %r4;
  ret;
}
"""


def params_of(*kinds: tuple[str, str]) -> list[Param]:
    """(name, kind) each; ``f32*`` is a pointer."""
    params = [
        Param(name, "pointer" if kind.endswith("*") else kind, 0, dtype=kind[:-1] if kind.endswith("*") else "")
        for name, kind in kinds
    ]
    layout_params(params)
    return params


def make(name: str, body: str, params: list[Param], target: str = "sm_80", **meta: Any) -> CompiledKernel:
    version = "7.1" if target == "sm_80" else "8.0"
    ptx = HEADER.format(version=version, target=target) + body
    return CompiledKernel({"ptx": ptx}, KernelMetadata(name, f"{name}_entry", target, params, **meta))


def add_kernel(**meta: Any) -> CompiledKernel:
    kinds = (("a", "f32*"), ("b", "f32*"), ("c", "f32*"), ("n", "i32"), ("scale", "f32"))
    return make("add", ADD, params_of(*kinds), **meta)


def scalars_kernel() -> CompiledKernel:
    params = params_of(("out", "u8*"), *((f"s{i}", kind) for i, kind in enumerate(SCALARS)))
    declared: list[str] = []
    moves: list[str] = []
    for param in params:
        bits = 8 * param.size
        declared.append(f".param .b{bits} {param.name}")
        if param.name != "out":
            register = {1: "%h", 2: "%h", 4: "%r", 8: "%d"}[param.size]
            moves.append(f"ld.param.b{bits} {register}, [{param.name}];")
            moves.append(f"st.global.b{bits} [%p+{param.offset - 8}], {register};")
    body = f"""
.visible .entry scalars_entry({", ".join(declared)})
{{
  .reg .b16 %h;
  .reg .b32 %r;
  .reg .b64 %d, %p;
  ld.param.u64 %p, [out];
  {" ".join(moves)}
  ret;
}}
"""
    return make("scalars", body, params)


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def data(torch: Any) -> tuple[Any, Any, Any]:
    """Three vectors of 1000 on device 0, the last one zero."""
    a, b = torch.randn(1000, device="cuda:0"), torch.randn(1000, device="cuda:0")
    return a, b, torch.zeros(1000, device="cuda:0")


def right(torch: Any, a: Any, b: Any, c: Any, scale: float) -> bool:
    return torch.allclose(c, a + b * scale, atol=1e-5)


def test_facts():
    assert driver_api.available()
    assert driver_api.device_count() >= 1
    assert driver_api.driver_version() >= (12, 0)
    assert driver_api.device_name(0)
    free, total = driver_api.memory_info(0)
    assert 0 < free <= total
    assert driver_api.capability(0) >= (8, 0)
    assert driver_api.shared_limit(0) > 64 * 1024


def test_vector_add_both_ways(torch: Any, data: Any):
    a, b, c = data
    kernel = add_kernel()
    for scale in (1.0, 2.0, -0.5):  # the first the checked way, then the quick one
        kernel[(8,)](a, b, c, 1000, scale)
        assert right(torch, a, b, c, scale)
    c.zero_()
    kernel.launch(8, (a, b, c, 10, 1.0))
    assert right(torch, a[:10], b[:10], c[:10], 1.0)
    assert not c[10:].any()


def test_cubin(torch: Any, data: Any, tmp_path: Path):
    import shutil

    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.fail("no ptxas on this machine")
    target = driver_api.target_name(0)
    assert target is not None
    kernel = make("add", ADD, add_kernel().metadata.params, target=target)
    (tmp_path / "add.ptx").write_text(str(kernel.asm["ptx"]))
    subprocess.run([ptxas, f"-arch={target}", "-o", tmp_path / "add.cubin", tmp_path / "add.ptx"], check=True)
    kernel.asm["cubin"] = (tmp_path / "add.cubin").read_bytes()
    a, b, c = data
    kernel.launch(8, (a, b, c, 1000, 3.0))
    assert right(torch, a, b, c, 3.0)
    assert kernel.load(0).registers > 0


def test_every_scalar_kind_arrives(torch: Any):
    kernel = scalars_kernel()
    out = torch.zeros(buffer_size(kernel.metadata.params) - 8, dtype=torch.uint8, device="cuda")
    kernel.launch(1, (out, True, -3, 65000, -7, -(2**40), 1.5, -1.5, 0.1, 2**64 - 2))
    want = struct.pack("<?bHiqeHxxxxdQ", True, -3, 65000, -7, -(2**40), 1.5, 0xBFC0, 0.1, 2**64 - 2)
    got = bytes(out.cpu().numpy())
    assert len(got) == len(want)
    assert got == want


def test_streams(torch: Any, data: Any):
    a, b, c = data
    kernel = add_kernel()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.cuda._sleep(20_000_000)
            kernel.launch(8, (a, b, c, 1000, 1.0))
            d = c.clone()  # on the same stream, so after the kernel
    side.synchronize()
    assert right(torch, a, b, d, 1.0)
    kernel.launch(8, (a, b, c, 1000, 2.0), stream=side)
    synchronize(0, side)
    assert right(torch, a, b, c, 2.0)


def test_graph_capture(torch: Any, data: Any):
    a, b, c = data
    kernel = add_kernel()
    kernel.launch(8, (a, b, c, 1000, 1.0))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.launch(8, (a, b, c, 1000, 4.0))
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert right(torch, a, b, c, 4.0)


def test_thread_without_context(torch: Any, data: Any):
    a, b, c = data
    kernel = add_kernel()
    kernel.launch(8, (a, b, c, 1000, 1.0))
    torch.cuda.synchronize()
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for scale in (5.0, 6.0):
                kernel.launch(8, (a, b, c, 1000, scale))
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not faults
    assert right(torch, a, b, c, 6.0)


def test_second_device(torch: Any):
    if torch.cuda.device_count() < 2:
        return  # nothing to see with one device; the stand-in's tests cover the calls
    kernel = add_kernel()
    for device in (1, 0, 1):
        a, b, c = (torch.ones(100, device=f"cuda:{device}") for _ in range(3))
        for scale in (1.0, 2.0):
            kernel.launch(1, (a, b, c, 100, scale))
        assert right(torch, a, b, c, 2.0)
        assert torch.cuda.current_device() == 0
    with pytest.raises(LaunchError, match="arguments lie on two devices"):
        kernel.launch(1, (a, b, c.to("cuda:0"), 100, 1.0))


class OnlyInterface:
    """A torch tensor that shows nothing but `__cuda_array_interface__`."""

    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class OnlyDlpack:
    """A torch tensor that shows nothing but DLPack."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("wrap", [OnlyInterface, OnlyDlpack])
def test_other_protocols(torch: Any, data: Any, wrap: Any):
    kernel = add_kernel()
    for scale in (1.0, 2.0):
        kernel.launch(8, (*(wrap(t) for t in data), 1000, scale))
    synchronize(0)
    assert right(torch, *data, 2.0)


def test_large_shared_memory(torch: Any):
    size = driver_api.shared_limit(0)
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    make("shared", SHARED, params_of(("out", "i32*")), shared_bytes=size).launch(1, (out,))
    assert out.item() == 42
    with pytest.raises(LaunchError, match=f"a CTA needs {size + 16} bytes of shared memory, the device has {size}"):
        make("shared", SHARED, params_of(("out", "i32*")), shared_bytes=size + 16).launch(1, (out,))


def needs_clusters() -> None:
    if driver_api.capability(0) < (9, 0):
        pytest.skip("no clusters before compute capability 9.0")


@pytest.mark.parametrize("size", [2, 4, 16])
def test_clusters(torch: Any, size: int):
    needs_clusters()
    out = torch.full((32,), -1, dtype=torch.int32, device="cuda")
    attributes = LaunchAttributes((size, 1, 1))
    target = driver_api.target_name(0)
    assert target is not None
    kernel = make("rank", RANK, params_of(("out", "i32*")), target=target, attributes=attributes, num_warps=1)
    for _ in range(2):
        out.fill_(-1)
        kernel.launch(32, (out,))
        assert out.tolist() == [i % size for i in range(32)]


def test_cooperative_and_programmatic(torch: Any, data: Any):
    a, b, c = data
    add_kernel(attributes=LaunchAttributes(cooperative=True)).launch(8, (a, b, c, 1000, 1.5))
    assert right(torch, a, b, c, 1.5)
    with pytest.raises(LaunchError, match="a cooperative grid must fit on the device at once"):
        add_kernel(attributes=LaunchAttributes(cooperative=True)).launch(10**6, (a, b, c, 1000, 1.5))
    needs_clusters()
    kernel = add_kernel(attributes=LaunchAttributes(programmatic=True))
    for scale in (1.0, 2.0):
        kernel.launch(8, (a, b, c, 1000, scale))
    torch.cuda.synchronize()
    assert right(torch, a, b, c, 2.0)


def test_errors_that_leave_the_context_whole(torch: Any, data: Any):
    a, b, c = data
    kernel = add_kernel()
    with pytest.raises(LaunchError, match="argument 'c' lies in host memory"):
        kernel.launch(8, (a, b, np.zeros(1000, np.float32), 1000, 1.0))
    with pytest.raises(LaunchError, match="argument 'c' lies in host memory"):
        kernel.launch(8, (a, b, c.cpu(), 1000, 1.0))
    with pytest.raises(LaunchError, match="'b' is a pointer to f32, the launch gives an array of f16"):
        kernel.launch(8, (a, b.half(), c, 1000, 1.0))
    with pytest.raises(LaunchError, match="a CTA has 2048 threads"):
        add_kernel(num_warps=64).launch(8, (a, b, c, 1000, 1.0))
    with pytest.raises(LaunchError, match="the driver's assembler refused the PTX") as caught:
        make("add", ADD.replace("setp.ge.s32", "setp.zz.s32"), kernel.metadata.params).launch(1, (a, b, c, 1, 1.0))
    assert "line" in caught.value.message  # the assembler's log
    with pytest.raises(LaunchError, match="the compiled code has no kernel of that entry name"):
        make("add", ADD.replace("add_entry", "other"), kernel.metadata.params).launch(1, (a, b, c, 1, 1.0))
    kernel.launch(8, (a, b, c, 1000, 7.0))
    assert right(torch, a, b, c, 7.0)


ILLEGAL = """
import torch
from mimw.diagnostics import LaunchError
from mimw.runtime.launch import synchronize
from tests.runtime.test_cuda_device import add_kernel
a = torch.zeros(8, device="cuda")
kernel = add_kernel()
kernel.launch(8000000, (a, a, a, 2**31 - 1, 1.0))
for call in (lambda: synchronize(0), lambda: kernel.launch(1, (a, a, a, 8, 1.0))):
    try:
        call()
    except LaunchError as error:
        print(error.message)
"""


def test_illegal_address(torch: Any):
    """In a process of its own, for it loses the context."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", ILLEGAL], capture_output=True, text=True, cwd=root, timeout=300)
    lines = [line for line in done.stdout.split("\n") if line]
    assert len(lines) == 2, done.stdout + done.stderr
    assert lines[0].startswith("synchronize: a kernel accessed memory that is not its own")
    assert "the last launch was 'add' with grid (8000000, 1, 1)" in lines[0]
    assert lines[1].startswith("kernel 'add' with grid (1, 1, 1): a kernel accessed memory that is not its own")
