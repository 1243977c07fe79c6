"""Tensor descriptors, clusters and tuning on a CUDA device: the driver's tensor maps, its clocks, its refusals."""

from __future__ import annotations

from typing import Any

import pytest

import mimw
import mimw.language as ml
from mimw import testing
from mimw.diagnostics import LaunchError
from mimw.runtime import launch as launch_module
from mimw.runtime.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu


@mimw.kernel
def copy_blocks(src, dst, M: ml.constexpr, N: ml.constexpr):
    """dst = src, block by block."""
    buf = ml.local_alloc((M, N), src.dtype, 1)
    bar = ml.alloc_barriers(1)
    m, n = ml.program_id(0) * M, ml.program_id(1) * N
    ml.barrier_expect_bytes(bar[0], M * N * ml.size_of(src.dtype))
    ml.async_descriptor_load(src, buf[0], [m, n], bar[0])
    ml.barrier_wait(bar[0], 0)
    ml.async_descriptor_store(dst, buf[0], [m, n])
    ml.async_descriptor_store_wait(0)


@mimw.kernel
def copy_cube(src, dst, A: ml.constexpr, B: ml.constexpr, C: ml.constexpr):
    """dst = src for three dimensions."""
    buf = ml.local_alloc((A, B, C), src.dtype, 1)
    bar = ml.alloc_barriers(1)
    a, b, c = ml.program_id(0) * A, ml.program_id(1) * B, ml.program_id(2) * C
    ml.barrier_expect_bytes(bar[0], A * B * C * ml.size_of(src.dtype))
    ml.async_descriptor_load(src, buf[0], [a, b, c], bar[0])
    ml.barrier_wait(bar[0], 0)
    ml.async_descriptor_store(dst, buf[0], [a, b, c])
    ml.async_descriptor_store_wait(0)


@mimw.kernel
def read_block(src, out, m, n, M: ml.constexpr, N: ml.constexpr):
    """out = the block of src at (m, n), what lies outside of src included."""
    buf = ml.local_alloc((M, N), src.dtype, 1)
    bar = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(bar[0], M * N * ml.size_of(src.dtype))
    ml.async_descriptor_load(src, buf[0], [m, n], bar[0])
    ml.barrier_wait(bar[0], 0)
    where = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    ml.store(out + where, ml.local_load(buf[0]))


@mimw.kernel
def ranks(out):
    """out[cta] = rank of the CTA in its cluster."""
    ml.store(out + ml.program_id(0), ml.cluster_cta_rank())


@mimw.kernel
def scale(x, out, n, BLOCK: ml.constexpr):
    i = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    ml.store(out + i, ml.load(out + i, mask=i < n) + ml.load(x + i, mask=i < n), mask=i < n)


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, device="cuda") % 120).reshape(shape).to(dtype)


def same(x: Any, y: Any) -> bool:
    import torch

    return torch.equal(x.view(torch.uint8), y.view(torch.uint8))


@pytest.mark.parametrize(
    "dtype", ["int8", "float8_e5m2", "float16", "bfloat16", "int32", "float32", "float64", "int64"]
)
@pytest.mark.parametrize("block", [(32, 64), (64, 32), (16, 16), (8, 96), (512, 16)])
def test_blocks_are_copied(dtype: str, block: tuple[int, int]) -> None:
    import torch

    src = numbers((100, 208), getattr(torch, dtype))
    dst = torch.zeros_like(src)
    a, b = TensorDescriptor.from_tensor(src, block), TensorDescriptor.from_tensor(dst, block)
    grid = (mimw.cdiv(100, block[0]), mimw.cdiv(208, block[1]))
    for _ in range(2):
        copy_blocks[grid](a, b, *block)
        torch.cuda.synchronize()
        assert same(src, dst)
        dst.zero_()


def test_three_dimensions() -> None:
    import torch

    src = numbers((5, 33, 72), torch.bfloat16)
    dst = torch.zeros_like(src)
    a, b = TensorDescriptor.from_tensor(src, [2, 16, 64]), TensorDescriptor.from_tensor(dst, [2, 16, 64])
    copy_cube[(3, 3, 2)](a, b, 2, 16, 64)
    assert same(src, dst)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_the_padding_is_the_launchs(padding: str) -> None:
    import torch

    src = numbers((40, 48), torch.float32)
    out = torch.ones(32, 32, device="cuda")
    read_block[(1,)](TensorDescriptor.from_tensor(src, [32, 32], padding), out, 20, 32, 32, 32)
    want = torch.full((32, 32), float("nan") if padding == "nan" else 0.0, device="cuda")
    want[:20, :16] = src[20:, 32:]
    assert torch.equal(out.nan_to_num(-1.0), want.nan_to_num(-1.0))


def test_views_and_sizes_that_are_not_the_arrays() -> None:
    import torch

    whole = numbers((64, 256), torch.bfloat16)
    out = torch.ones(32, 64, device="cuda", dtype=torch.bfloat16)
    read_block[(1,)](TensorDescriptor.from_tensor(whole[16:, 64:], [32, 64]), out, 0, 0, 32, 64)
    assert torch.equal(out, whole[16:48, 64:128])
    read_block[(1,)](TensorDescriptor(whole, [1, 40], [3, 1], [32, 64]), out, 0, 0, 32, 64)
    assert torch.equal(out[0, :40], whole[0, :40])
    assert not out[1:].any()
    assert not out[0, 40:].any()


def test_quick_launches_follow_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    out = torch.zeros(32, 64, device="cuda")
    sources = [torch.full((32, 64), float(i), device="cuda") for i in range(4)]
    compiled = read_block[(1,)](TensorDescriptor.from_tensor(sources[0], [32, 64]), out, 0, 0, 32, 64)
    monkeypatch.setattr(launch_module, "describe_arguments", None)
    for i, source in enumerate(sources):
        compiled[1](TensorDescriptor.from_tensor(source, [32, 64]), out, 0, 0)
        assert out.eq(i).all(), i


@pytest.mark.parametrize("cluster", [2, (4, 1, 1), 8, 16])
def test_clusters(cluster: Any) -> None:
    import torch

    size = cluster if isinstance(cluster, int) else cluster[0]
    out = torch.full((32,), -1, device="cuda", dtype=torch.int32)
    ranks[(32,)](out, ctas_per_cga=cluster)
    assert out.tolist() == [i % size for i in range(32)]


def test_do_bench_and_graphs_agree_with_bandwidth() -> None:
    """256 MiB copied: between 60 % of what an H100 has and more than any GPU has."""
    import torch

    x, y = (torch.empty(64 << 20, device="cuda") for _ in range(2))
    for bench in (testing.do_bench, testing.do_bench_cudagraph):
        ms = bench(lambda: y.copy_(x))
        assert 1e12 < 2 * 4 * x.numel() / (ms * 1e-3) < 2e13, bench.__name__
    times = testing.do_bench(lambda: y.copy_(x), rep=5, quantiles=[0.5, 0.2, 0.8])
    assert times[1] <= times[0] <= times[2]


@pytest.mark.parametrize("graph", [False, True])
def test_autotune(graph: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("MIMW_CACHE_DIR", str(tmp_path))
    configs = [mimw.Config({"BLOCK": 32}, num_warps=1), mimw.Config({"BLOCK": 1024}, num_warps=4)]
    tuned = mimw.autotune(configs, ["n"], restore_value=["out"], use_cuda_graph=graph, rep=10)(scale)
    n = 1 << 24
    x, out = torch.ones(n, device="cuda"), torch.zeros(n, device="cuda")
    tuned[lambda meta: (mimw.cdiv(n, meta["BLOCK"]),)](x, out, n)
    assert out.eq(1).all()
    assert tuned.best_config is configs[1]
    assert all(times is not None and len(times) == 3 for times in tuned.configs_timings.values())
    again = mimw.autotune(configs, ["n"], do_bench=lambda call, quantiles: pytest.fail("measured again"))(scale)
    again[lambda meta: (mimw.cdiv(n, meta["BLOCK"]),)](x, out, n)
    assert again.best_config is configs[1]
    assert out.eq(2).all()


def test_a_hook_sets_the_blocks_of_descriptors() -> None:
    import torch

    def blocks(args: dict[str, Any]) -> None:
        for name in ("src", "dst"):
            args[name].block_shape = [args["M"], args["N"]]

    configs = [mimw.Config({"M": m, "N": 64}, pre_hook=blocks) for m in (16, 64, 1 << 14)]
    tuned = mimw.autotune(configs, [], rep=5)(copy_blocks)
    src = numbers((1000, 1024), torch.bfloat16)
    dst = torch.zeros_like(src)
    a, b = TensorDescriptor.from_tensor(src, [1, 1]), TensorDescriptor.from_tensor(dst, [1, 1])
    tuned[lambda meta: (mimw.cdiv(1000, meta["M"]), mimw.cdiv(1024, meta["N"]))](a, b)
    assert same(src, dst)
    assert list(tuned.configs_timings.values())[-1] is None  # more shared memory than there is


def test_the_drivers_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box that the hardware does not take (its innermost extent is no multiple of 16 bytes), as no compile would ask for."""
    import torch

    from mimw.runtime.convention import descriptor_record
    from mimw.runtime.launch import CompiledKernel

    compiled = copy_blocks.compile(dict.fromkeys(("src", "dst"), "tensor_desc<32x64xf32>"), {"M": 32, "N": 64})
    meta = compiled.metadata
    meta.extra["descriptors"] = [descriptor_record(n, "f32", (32, 64), (3, 32), 0) for n in ("src", "dst")]
    d = TensorDescriptor.from_tensor(torch.zeros(32, 64, device="cuda"), [32, 64])
    with pytest.raises(LaunchError, match="cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE"):
        CompiledKernel(compiled.asm, meta).launch(1, [d, d])
