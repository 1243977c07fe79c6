"""Tensor descriptors as kernel arguments, from the launch to both simulators; clusters as a launch option."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError, LaunchError
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx


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


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 251).astype(dtype)


def simulated_map(d: TensorDescriptor, record: dict[str, Any]) -> bytes:
    """A descriptor as the PTX simulator takes it, in the box that the code asks for."""
    size = d.base.itemsize
    return tensor_map.encode(
        d.base,
        record["elem"],
        d.shape[::-1],
        [s * size for s in d.strides[-2::-1]],
        record["box"],
        None,
        record["swizzle"],
        d.padding,
    )


def in_ptx(
    kernel: Any,
    grid: tuple[int, int, int],
    signature: dict[str, Any],
    constants: dict[str, Any],
    args: list[Any],
    **options: Any,
) -> Any:
    """Compile for the descriptors among `args` and run the text."""
    compiled = kernel.compile(signature, constants, **options)
    records = iter(compiled.metadata.extra["descriptors"])
    passed = [simulated_map(a, next(records)) if isinstance(a, TensorDescriptor) else a for a in args]
    run_ptx(compiled.asm["ptx"], None, grid, passed, shared_bytes=compiled.metadata.shared_bytes)
    return compiled


@pytest.mark.parametrize("dtype", ["int8", "float8_e5m2", "float16", "bfloat16", "int32", "float32", "float64"])
def test_blocks_are_copied(dtype: str):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    src = numbers((100, 80), kind)
    for engine in ("tile", "ptx"):
        dst = np.zeros_like(src)
        a, b = TensorDescriptor.from_tensor(src, [32, 64]), TensorDescriptor.from_tensor(dst, [32, 64])
        if engine == "tile":
            copy_blocks[(4, 2)](a, b, 32, 64)
        else:
            compiled = in_ptx(copy_blocks, (4, 2, 1), {"src": a, "dst": b}, {"M": 32, "N": 64}, [a, b])
            for record in compiled.metadata.extra["descriptors"]:
                assert (record["rank"], record["block"], record["elem"]) == (2, [32, 64], a.dtype)
                assert 64 % record["box"][0] == 0
                assert record["box"][0] * kind.itemsize <= (record["swizzle"] or 256)
        assert dst.tobytes() == src.tobytes(), engine


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_the_padding_is_the_launchs(padding: str):
    src = numbers((40, 48), np.float32)
    want = np.full((32, 32), np.nan if padding == "nan" else 0, np.float32)
    want[:20, :16] = src[20:, 32:]
    for engine in ("tile", "ptx"):
        out = np.ones((32, 32), np.float32)
        d = TensorDescriptor.from_tensor(src, [32, 32], padding)
        if engine == "tile":
            read_block[(1,)](d, out, 20, 32, 32, 32)
        else:
            signature = {"src": "tensor_desc<32x32xf32>", "out": "*f32", "m": "i32", "n": "i32"}
            in_ptx(read_block, (1, 1, 1), signature, {"M": 32, "N": 32}, [d, out, 20, 32])
        np.testing.assert_array_equal(out, want, err_msg=engine)


def test_a_part_of_an_array_seen_in_other_dimensions():
    """A descriptor's shape and strides are its own: here rows 2 to 5 of a [6, 4, 16] array as [16, 16], its last columns cut off."""
    src = numbers((6, 4, 16), np.float32)
    d = TensorDescriptor(src[2:], [16, 12], [16, 1], [16, 16])
    out = np.ones((16, 16), np.float32)
    read_block[(1,)](d, out, 0, 0, 16, 16)
    assert (out[:, :12] == src[2:].reshape(16, 16)[:, :12]).all()
    assert (out[:, 12:] == 0).all()


# What becomes part of the code


def test_specialisation_of_descriptors():
    src = numbers((40, 48), np.float32)
    keys = {
        copy_blocks.specialise([TensorDescriptor(src, [40, n], [48, 1], block, padding), None, 32, 32])[0]
        for n, block, padding in [(48, (32, 32), "zero"), (40, [32, 32], "nan"), (48, (16, 32), "zero")]
    }
    assert keys == {("d", "f32", (32, 32)), ("d", "f32", (16, 32))}


@pytest.mark.parametrize("text", ["tensor_desc<32x64xbf16>", "tensordesc<bf16[32, 64]>", "tensordesc<bf16[32,64]>"])
def test_spellings_of_a_type(text: str):
    kernel = copy_blocks.compile({"src": text, "dst": text}, {"M": 32, "N": 64}, assembled=False)
    assert [p.describe() for p in kernel.metadata.params] == ["tensor descriptor of bf16"] * 2
    assert [p.offset for p in kernel.metadata.params] == [0, 128]
    assert [r["block"] for r in kernel.metadata.extra["descriptors"]] == [[32, 64]] * 2


@pytest.mark.parametrize(
    "text",
    ["tensor_desc<bf16>", "tensor_desc<32xbf15>", "tensor_desc<0x64xbf16>", "tensordesc<bf16[a]>", "tensor_desc<"],
)
def test_wrong_types(text: str):
    with pytest.raises(LaunchError) as caught:
        copy_blocks.compile({"src": text, "dst": text}, {"M": 32, "N": 64})
    assert caught.value.code == "launch-signature"
    assert caught.value.hint == "a descriptor is written 'tensor_desc<128x64xbf16>'"


def test_blocks_that_tma_cannot_copy():
    narrow = "tensor_desc<32x4xbf16>"
    with pytest.raises(CompilationError, match="multiple of 16 bytes"):
        copy_blocks.compile({"src": narrow, "dst": narrow}, {"M": 32, "N": 4})


def test_a_descriptor_that_is_not_used_is_passed_all_the_same():
    kernel = ranks_beside_a_descriptor.compile({"out": "*i32", "d": "tensor_desc<8x8xf32>"}, assembled=False)
    assert [p.kind for p in kernel.metadata.params] == ["pointer", "tensormap"]
    assert kernel.metadata.extra["descriptors"] == [
        {"param": "d", "elem": "f32", "rank": 2, "block": [8, 8], "box": [8, 8], "swizzle": 32}
    ]
    with pytest.raises(CompilationError, match="descriptor d cannot be copied by TMA: the innermost extent"):
        ranks_beside_a_descriptor.compile({"out": "*i32", "d": "tensor_desc<8x2xf32>"})


@mimw.kernel
def ranks_beside_a_descriptor(out, d):
    ml.store(out + ml.program_id(0), ml.cluster_cta_rank())


# Clusters


def test_clusters_in_both_simulators():
    for engine in ("tile", "ptx"):
        out = np.full(8, -1, np.int32)
        if engine == "tile":
            ranks[(8,)](out, ctas_per_cga=(4, 1, 1))
        else:
            compiled = in_ptx(ranks, (8, 1, 1), {"out": "*i32"}, {}, [out], ctas_per_cga=4)
            assert compiled.metadata.attributes.cluster == (4, 1, 1)
            assert compiled.metadata.attributes.plain
            assert ".reqnctapercluster 4, 1, 1" in compiled.asm["ptx"]
        assert out.tolist() == [0, 1, 2, 3, 0, 1, 2, 3], engine


def test_the_grid_must_be_whole_clusters():
    with pytest.raises(LaunchError, match=r"grid \(6, 1, 1\) is not a multiple of the cluster \(4, 1, 1\) along x"):
        ranks[(6,)](np.zeros(6, np.int32), ctas_per_cga=(4, 1, 1))


@pytest.mark.parametrize("given", [0, (2, 0), (1, 1, 1, 1), "2", (2.0,), (4, 4, 2)])
def test_wrong_clusters(given: Any):
    with pytest.raises(LaunchError) as caught:
        ranks[(32,)](np.zeros(32, np.int32), ctas_per_cga=given)
    assert caught.value.code == "launch-option"
    assert "ctas_per_cga" in caught.value.message


def test_num_ctas_points_to_ctas_per_cga():
    with pytest.raises(LaunchError) as caught:
        ranks[(2,)](np.zeros(2, np.int32), num_ctas=2)
    assert caught.value.code == "not-yet"
    assert "ctas_per_cga" in (caught.value.hint or "")


def test_targets_without_clusters():
    with pytest.raises(CompilationError, match="sm_80 has no clusters"):
        ranks.compile({"out": "*i32"}, target="sm_80", ctas_per_cga=(2, 1, 1))


def test_the_grid_function_sees_the_cluster():
    seen: list[Any] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.append(meta["ctas_per_cga"])
        return (2,)

    ranks[grid](np.zeros(2, np.int32), ctas_per_cga=2)
    assert seen == [(2, 1, 1)]
