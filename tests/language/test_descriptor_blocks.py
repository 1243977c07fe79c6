"""`desc.load`, `desc.store` and the atomic stores: tiles straight through a descriptor, by TMA or (sm_80) by addresses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.runtime.tensor_descriptor import TensorDescriptor
from tests.language.engines_kit import both, compile_for


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 251 - 100).astype(dtype)


@mimw.kernel
def doubled_blocks(src, dst, N, BM: ml.constexpr, BN: ml.constexpr):
    m = ml.program_id(0) * BM
    for n in range(0, N, BN):
        x = src.load([m, n])
        dst.store([m, n], x + x)


@pytest.mark.parametrize("shape", [(64, 96), (50, 72)])
def test_blocks_in_a_loop(shape: tuple[int, int]) -> None:
    src = numbers(shape)
    a = TensorDescriptor.from_tensor(src, [32, 32])
    b = TensorDescriptor.from_tensor(np.zeros_like(src), [32, 32])
    got = both(doubled_blocks, (2,), [a, b, shape[1]], BM=32, BN=32)
    np.testing.assert_array_equal(got[1], 2 * src)


@mimw.kernel
def made_on_the_device(src, dst, M, N, BM: ml.constexpr, BN: ml.constexpr, PAD: ml.constexpr):
    a = ml.make_tensor_descriptor(src, [M, N], [N, 1], [BM, BN], PAD)
    b = ml.make_tensor_descriptor(dst, [M, N], [N, 1], [BM, BN])
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    x = a.load([m - 16, n])
    y = a.load([m, n])
    b.store([m, n], ml.where(x != x, 7.0, x) + y)


@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_made_on_the_device_on_every_target(pad: str) -> None:
    src = numbers((80, 48))
    got = both(
        made_on_the_device,
        (3, 2),
        [src, np.zeros_like(src), 80, 48],
        ("sm_90a", "sm_80", "sm_100a"),
        BM=32,
        BN=32,
        PAD=pad,
    )
    above = np.vstack([np.full((16, 48), 7.0 if pad == "nan" else 0.0, np.float32), src[:-16]])
    np.testing.assert_array_equal(got[1], src + above)


@mimw.kernel
def tma_matmul(a, b, c, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr):
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    acc = ml.zeros((BM, BN), ml.float32)
    for k in range(0, K, BK):
        acc = ml.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(ml.float16))


@pytest.mark.parametrize("sizes", [(64, 64, 64), (64, 32, 16), (128, 64, 32)])
def test_a_product_of_blocks(sizes: tuple[int, int, int]) -> None:
    bm, bn, bk = sizes
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (2 * bm, 3 * bk)).astype(np.float16)
    b = rng.integers(-4, 5, (3 * bk, 2 * bn)).astype(np.float16)
    args = [
        TensorDescriptor.from_tensor(a, [bm, bk]),
        TensorDescriptor.from_tensor(b, [bk, bn]),
        TensorDescriptor.from_tensor(np.zeros((2 * bm, 2 * bn), np.float16), [bm, bn]),
        3 * bk,
    ]
    got = both(tma_matmul, (2, 2), args, BM=bm, BN=bn, BK=bk)
    np.testing.assert_array_equal(got[2], a.astype(np.float32) @ b.astype(np.float32))


@mimw.kernel
def tma_gram(a, c, K, B: ml.constexpr, BK: ml.constexpr):
    acc = ml.zeros((B, B), ml.float32)
    for k in range(0, K, BK):
        x = a.load([0, k])
        acc = ml.dot(x, x.T, acc)
    ml.store(c + ml.arange(0, B)[:, None] * B + ml.arange(0, B)[None, :], acc)


@pytest.mark.parametrize("dtype", ["float16", "float8_e5m2", "float32"])
def test_a_block_as_both_operands(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = np.random.default_rng(1).integers(-3, 4, (64, 96)).astype(kind)
    d = TensorDescriptor.from_tensor(a, [64, 32])
    got = both(tma_gram, (1,), [d, np.zeros((64, 64), np.float32), 96], B=64, BK=32)
    wide = a.astype(np.float32)
    np.testing.assert_array_equal(got[1], wide @ wide.T)


def test_products_take_blocks_where_tma_put_them() -> None:
    block = TensorDescriptor.from_tensor(np.zeros((64, 64), np.float16), [64, 64])
    compiled = compile_for(tma_matmul, [block, block, block, 64], {"BM": 64, "BN": 64, "BK": 64}, "sm_90a")
    text = compiled.asm["ptx"]
    assert "ld.shared" not in text and text.count("wgmma.mma_async") == 4


@mimw.kernel
def in_branches(src, out, N, B: ml.constexpr):
    i = 0
    total = ml.zeros((B,), ml.int32)
    while i < N:
        if i % 3 == 1:
            total += src.load([i * B])
        elif i == 5:
            i += 1
            continue
        else:
            total -= src.load([i * B])
        i += 1
    ml.store(out + ml.arange(0, B), total)


def test_loads_in_branches_keep_their_phases() -> None:
    src = numbers((7 * 32,), np.int32)
    got = both(in_branches, (1,), [TensorDescriptor.from_tensor(src, [32]), np.zeros(32, np.int32), 7], B=32)
    rows = src.reshape(7, 32)
    want = sum((1 if i % 3 == 1 else -1) * rows[i] for i in range(7) if i != 5)
    np.testing.assert_array_equal(got[1], want)


@mimw.kernel
def in_tasks(src, dst, N, B: ml.constexpr):
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(0, N, 2 * B):
                dst.store([i], src.load([i]) + 1)
        with ml.async_task(num_warps=1):
            for i in range(B, N, 2 * B):
                dst.store([i], src.load([i]) + 2)


def test_in_tasks() -> None:
    src = numbers((8 * 64,), np.int32)
    a, b = TensorDescriptor.from_tensor(src, [64]), TensorDescriptor.from_tensor(np.zeros_like(src), [64])
    got = both(in_tasks, (1,), [a, b, len(src)], B=64)
    np.testing.assert_array_equal(got[1].reshape(8, 64), src.reshape(8, 64) + np.array([[1], [2]] * 4))


@mimw.kernel
def combined(x, out, N, KIND: ml.constexpr, B: ml.constexpr):
    d = ml.make_tensor_descriptor(out, [N, 16], [16, 1], [B, 16])
    s = ml.make_tensor_descriptor(x, [N, 16], [16, 1], [B, 16])
    m = ml.program_id(0) * B
    tile = s.load([m, 0])
    if KIND == "add":
        d.atomic_add([m, 0], tile)
    elif KIND == "min":
        d.atomic_min([m, 0], tile)
    elif KIND == "max":
        d.atomic_max([m, 0], tile)
    elif KIND == "and":
        d.atomic_and([m, 0], tile)
    elif KIND == "or":
        d.atomic_or([m, 0], tile)
    else:
        d.atomic_xor([m, 0], tile)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor"])
def test_combined_with_what_is_there(kind: str) -> None:
    x, out = numbers((40, 16), np.int32), numbers((40, 16), np.int32)[::-1].copy()
    how: Any = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }[kind]  # fmt: skip
    got = both(combined, (2,), [x, out, 40], ("sm_90a", "sm_80"), KIND=kind, B=32)
    np.testing.assert_array_equal(got[1], how(x, out))


def test_host_descriptors_need_tma() -> None:
    src = numbers((64, 64))
    a = TensorDescriptor.from_tensor(src, [32, 32])
    with pytest.raises(CompilationError) as caught:
        compile_for(doubled_blocks, [a, a, 64], {"BM": 32, "BN": 32}, "sm_80")
    assert caught.value.code == "unsupported" and "sm_80 has no TMA engine" in str(caught.value)
    assert caught.value.loc.line == doubled_blocks.fn.__code__.co_firstlineno + 4


@mimw.kernel
def made_elsewhere(x, y, M, STEPS: ml.constexpr, B: ml.constexpr):
    """One task makes descriptors of ever later rows, the other copies through them."""
    room = ml.allocate_tensor_descriptor(2)
    buf = ml.local_alloc((B, 32), ml.float32, 1)
    made, taken, landed = ml.alloc_barriers(2), ml.alloc_barriers(2), ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(STEPS):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(made[slot], phase)
                d = ml.reinterpret_tensor_descriptor(room[slot], [B, 32], ml.float32)
                ml.barrier_expect_bytes(landed[0], B * 32 * 4)
                ml.async_descriptor_load(d, buf[0], [0, 0], landed[0])
                ml.barrier_wait(landed[0], i & 1)
                tile = ml.local_load(buf[0])
                ml.barrier_arrive(taken[slot])
                ml.store(y + (i * B + ml.arange(0, B)[:, None]) * 32 + ml.arange(0, 32)[None, :], tile)
        with ml.async_task(num_warps=1):
            for i in range(STEPS):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(taken[slot], phase ^ 1)
                ml.make_tensor_descriptor(room[slot], x + i * B * 32, [M - i * B, 32], [32, 1], [B, 32])
                ml.barrier_arrive(made[slot])


def test_descriptors_made_by_another_task() -> None:
    x = numbers((5 * 16, 32))
    got = both(made_elsewhere, (1,), [x, np.zeros_like(x), 80], ("sm_90a", "sm_100a"), STEPS=5, B=16)
    np.testing.assert_array_equal(got[1], x)
