"""The examples: as a user runs them, their emitted text in the PTX simulator, and on a GPU where there is one."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.errors import SimulationError
from mimw.sim.ptx.run import run_ptx
from tests.amdgcn_kit import run_compiled
from tests.test_descriptor_arguments import simulated_map

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = sorted(p.name for p in EXAMPLES.glob("*.py"))
TARGETS = ("sm_80", "sm_90a", "gfx942", "gfx950")


def load(name: str) -> Any:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name.removesuffix(".py"), EXAMPLES / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_runs_as_a_user_runs_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load(name).main()
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_stays_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 150


def clean(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel, when ptxas neither spilled nor warned."""
    assert kernel.metadata.spill_bytes == 0
    assert kernel.metadata.warnings == []
    return kernel


def in_simulator(kernel: CompiledKernel, grid: tuple[int, ...], args: list[Any]) -> None:
    if "hsaco" in kernel.asm:
        run_compiled(kernel, grid, args)
        return
    text = clean(kernel).asm["ptx"]
    assert isinstance(text, str)
    records = iter(kernel.metadata.extra.get("descriptors", ()))
    passed = [simulated_map(x, next(records)) if isinstance(x, TensorDescriptor) else x for x in args]
    run_ptx(text, None, (*grid, 1, 1)[:3], passed, shared_bytes=kernel.metadata.shared_bytes)


@pytest.mark.parametrize("target", TARGETS)
def test_vector_add_text(target: str) -> None:
    kernel = load("01_vector_add.py").add.compile(["*f32:16"] * 3 + ["i32"], {"BLOCK": 1024}, target=target)
    x, y, out = (np.random.default_rng(s).standard_normal(3000, dtype=np.float32) for s in range(3))
    in_simulator(kernel, (3,), [x, y, out, 3000])
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [33, 1024])
def test_softmax_text(target: str, width: int) -> None:
    integer = "i32:16" if width % 16 == 0 else "i32"
    types = ["*bf16:16", "*bf16:16", integer, integer, integer]
    kernel = load("02_softmax.py").softmax_rows.compile(types, {"BLOCK": 1 << (width - 1).bit_length()}, target=target)
    x = np.random.default_rng(0).standard_normal((4, width)).astype(ml_dtypes.bfloat16)
    out = np.full_like(x, np.nan)
    in_simulator(kernel, (4,), [x, out, width, width, width])
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(out.astype(np.float64), e / e.sum(axis=1, keepdims=True), rtol=2**-8)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "name"), [("bf16", "bfloat16"), ("f16", "float16"), ("f32", "float32"), ("f8e4m3", "float8_e4m3fn")]
)
def test_matmul_text(target: str, dtype: str, name: str) -> None:
    if dtype == "f8e4m3" and target == "sm_80":
        target = "sm_89"  # the first with fp8 products; on sm_80 fp8 goes through fp16
    element = np.dtype(getattr(ml_dtypes, name, None) or name)
    m, n, k = 144, 160, 192
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(element) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 128 // element.itemsize, "GROUP_M": 8}
    types = [f"*{dtype}:16", f"*{dtype}:16", "*f32:16", *["i32:16"] * 3, "i32:16", "=1", "i32:16", "=1", "i32:16", "=1"]
    kernel = load("03_matmul.py").matmul_kernel.compile(types, constants, target=target, num_warps=8, num_stages=3)
    in_simulator(kernel, (4,), [a, b, c, m, n, k, k, n, n])
    wide = [x.astype(np.float64) for x in (a, b)]
    error = np.abs(c - wide[0] @ wide[1]) / (np.abs(wide[0]) @ np.abs(wide[1]))
    assert error.max() < (2**-9 if dtype == "f32" else 2**-20)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [65, 336])
def test_sums_by_threads_text(target: str, width: int) -> None:
    integer = "i32:16" if width % 16 == 0 else "i32"
    types = ["*f32:16", "*f32:16", "i32", integer, integer]
    kernel = load("04_async_copy.py").sums_by_threads.compile(types, {"BM": 32, "BN": 64, "STAGES": 3}, target=target)
    x, out = numbers((50, width), "float32"), np.full(50, np.nan, np.float32)
    in_simulator(kernel, (2,), [x, out, 50, width, width])
    np.testing.assert_array_equal(out, x.sum(axis=1))


@pytest.mark.parametrize("width", [64, 336])
def test_sums_by_tma_text(width: int) -> None:
    types = ["tensor_desc<32x64xf32>", "*f32:16", "i32", "i32"]
    kernel = load("04_async_copy.py").sums_by_tma.compile(types, {"BM": 32, "BN": 64, "STAGES": 3}, target="sm_90a")
    x, out = numbers((50, width), "float32"), np.full(50, np.nan, np.float32)
    in_simulator(kernel, (2,), [TensorDescriptor.from_tensor(x, [32, 64]), out, 50, width])
    np.testing.assert_array_equal(out, x.sum(axis=1))


def test_gather_text() -> None:
    types = ["*f32:16", "*i32:16", "*f32:16", "i32"]
    kernel = load("04_async_copy.py").gather.compile(types, {"D": 96, "ROWS": 4}, target="sm_90a")
    table, index = numbers((50, 96), "float32"), np.random.default_rng(0).integers(0, 50, 30).astype(np.int32)
    out = np.zeros((30, 96), np.float32)
    in_simulator(kernel, (8,), [table, index, out, 30])
    np.testing.assert_array_equal(out, table[index])


MATMULS: list[tuple[str, str, dict[str, Any]]] = [
    ("05_warp_specialized_matmul.py", "with_pipeline", {}),
    ("05_warp_specialized_matmul.py", "with_barriers", {}),
    ("06_pingpong_matmul.py", "matmul_kernel", {}),
    ("07_cluster_multicast.py", "matmul_kernel", {"ctas_per_cga": (2, 1, 1)}),
]


@pytest.mark.parametrize(("name", "kernel", "options"), MATMULS, ids=[f"{n[:2]}-{k}" for n, k, _ in MATMULS])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmuls_of_tasks_text(name: str, kernel: str, options: dict[str, Any], dtype: str) -> None:
    example = load(name)
    m, n, k = 136, 136, 392  # seven steps through four slots, edges everywhere
    a, b = numbers((m, k), dtype), numbers((k, n), dtype)
    c = np.full((m, n), np.nan, a.dtype)
    programs = {"programs": 2} if name.startswith("06") else {}
    grid, args = example.plan(a, b, c, **programs, **example.CONSTANTS)
    types = [describe(x) if isinstance(x, TensorDescriptor) else "i32" for x in args]
    compiled = getattr(example, kernel).compile(types, example.CONSTANTS, target="sm_90a", **options)
    in_simulator(compiled, grid, args)
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype))


@pytest.mark.parametrize(("name", "kernel"), [m[:2] for m in MATMULS], ids=[f"{n[:2]}-{k}" for n, k, _ in MATMULS])
@pytest.mark.parametrize("stages", [2, 3])
def test_matmuls_of_tasks_in_every_round(name: str, kernel: str, stages: int) -> None:
    """Trips below, at and above the number of slots; ping-pong walks eight tiles in one program."""
    example = load(name)
    chosen: dict[str, Any] = {"kernel": getattr(example, kernel)} if name.startswith("05") else {}
    chosen |= {"programs": 1} if name.startswith("06") else {}
    for steps in (1, stages - 1, stages, stages + 1, 2 * stages + 1):
        a, b = numbers((200, 64 * steps), "float16"), numbers((64 * steps, 136), "float16")
        c = example.matmul(a, b, np.full((200, 136), np.nan, a.dtype), **chosen, STAGES=stages)
        np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32)).astype(a.dtype))


def test_ping_pong_needs_its_turns(tmp_path: Path) -> None:
    """As the example says: without them a consumer takes an older phase of a slot for its own. With them it is right (above)."""
    source = (EXAMPLES / "06_pingpong_matmul.py").read_text()
    wait = "ml.barrier_wait(turn[r], phase)"
    assert source.count(wait) == 1
    file = tmp_path / "without_turns.py"
    file.write_text(source.replace(wait, "pass"))
    with pytest.raises(SimulationError) as caught:
        load(str(file)).main()
    assert caught.value.code == "read-before-wait"


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Small integers: their sums of products are exact."""
    element = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(element)


def describe(d: TensorDescriptor) -> str:
    return f"tensor_desc<{'x'.join(map(str, d.block_shape))}x{d.dtype}>"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_on_a_gpu(dtype: str) -> None:
    torch: Any = importlib.import_module("torch")
    kind = getattr(torch, dtype)
    x, y = (torch.randn(100_003, device="cuda").to(kind) for _ in range(2))
    out = load("01_vector_add.py").vector_add(x, y, torch.full_like(x, float("nan")))
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)
    rows = torch.randn(37, 781, device="cuda").to(kind)
    out = load("02_softmax.py").softmax(rows, torch.full_like(rows, float("nan")))
    torch.testing.assert_close(out.double(), torch.softmax(rows.double(), 1), rtol=2**-8, atol=1e-6)
    matmul = load("03_matmul.py").matmul
    for m, n, k in ((128, 128, 64), (77, 130, 200), (1000, 500, 333), (16, 8, 1), (512, 512, 0)):
        a, b = torch.randn(m, k, device="cuda").to(kind), torch.randn(k, n, device="cuda").to(kind)
        for left, right in ((a, b), (a.T.contiguous().T, b), (a, b.T.contiguous().T)):
            c = matmul(left, right, torch.full((m, n), float("nan"), device="cuda"))
            again = matmul(left, right, torch.full((m, n), float("nan"), device="cuda"))
            assert torch.equal(c, again)
            bound = left.double().abs() @ right.double().abs()
            tolerance = 2**-9 if dtype == "float32" else 2**-18
            assert ((c.double() - left.double() @ right.double()).abs() <= tolerance * bound + 1e-30).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_async_copies_on_a_gpu(dtype: str) -> None:
    torch: Any = importlib.import_module("torch")
    example, kind = load("04_async_copy.py"), getattr(torch, dtype)
    for shape, by_tma in (((100, 333), False), ((1000, 336), False), ((100, 336), True), ((1000, 64), True)):
        if dtype == "float16" and shape[1] % 2:
            continue  # cp.async copies 4 bytes or more
        x = torch.randint(-4, 5, shape, device="cuda").to(kind)
        out = example.row_sums(x, torch.full((shape[0],), float("nan"), device="cuda"), by_tma)
        assert torch.equal(out, x.float().sum(dim=1)), (shape, by_tma)
    table = torch.randn(500, 96, device="cuda").to(kind)
    index = torch.randint(0, 500, (777,), device="cuda", dtype=torch.int32)
    out = example.take_rows(table, index, torch.zeros(777, 96, device="cuda", dtype=kind))
    assert torch.equal(out, table[index.long()])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "kernel", "options"), MATMULS, ids=[f"{n[:2]}-{k}" for n, k, _ in MATMULS])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmuls_of_tasks_on_a_gpu(name: str, kernel: str, options: dict[str, Any], dtype: str) -> None:
    torch: Any = importlib.import_module("torch")
    example, kind = load(name), getattr(torch, dtype)
    chosen = {"kernel": example.with_barriers} if kernel == "with_barriers" else {}
    for m, n, k in ((128, 128, 64), (136, 136, 392), (2000, 1000, 1024), (512, 256, 8)):
        a, b = (torch.randint(-4, 5, s, device="cuda").to(kind) for s in ((m, k), (k, n)))
        c = example.matmul(a, b, torch.full((m, n), float("nan"), device="cuda", dtype=kind), **chosen)
        assert torch.equal(c, (a.double() @ b.double()).to(kind)), (m, n, k)
