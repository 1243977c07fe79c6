"""Kernels of the MIMW layer, from Python to the tile simulator: they compute what NumPy computes, whatever the schedule."""

# ruff: noqa: SIM113
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw.language as ml
import mimw.language as tlx
from mimw.frontend.trace import Arg, Const, trace
from mimw.ir.types import F16, F32, I32, PointerType, TensorDescType
from mimw.ir.verifier import verify
from mimw.sim.tile import TensorDescriptor, run
from tests.frontend.kernels import kernel

INT = Arg(I32)


def execute(
    fn: Any, args: dict[str, Any], constants: dict[str, Any] | None = None, seed: int = 0, grid: Any = (1,)
) -> None:
    """Trace a kernel and run it on arrays, numbers and descriptors."""
    signature: dict[str, Any] = {}
    for name, v in args.items():
        if isinstance(v, TensorDescriptor):
            signature[name] = Arg(TensorDescType(tuple(v.block_shape), F16))
        elif isinstance(v, np.ndarray):
            signature[name] = Arg(PointerType(F32 if v.dtype == np.float32 else I32), 16)
        else:
            signature[name] = INT
    signature.update({k: Const(v) for k, v in (constants or {}).items()})
    module = trace(fn, signature)
    verify(module)
    run(module, list(args.values()), grid, seed=seed)


def descriptor(a: Any, block: tuple[int, ...]) -> TensorDescriptor:
    return TensorDescriptor(a, block, a.shape, tuple(s // a.itemsize for s in a.strides))


@kernel
def raw_matmul(
    a, b, c, M, N, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, S: ml.constexpr, R: ml.constexpr
):
    a_ring = tlx.local_alloc((BM // R, BK), tlx.dtype_of(a), S * R)
    b_ring = tlx.local_alloc((BK, BN), tlx.dtype_of(b), S)
    c_tile = tlx.local_alloc((BM // R, BN), tlx.dtype_of(c), R)
    full = tlx.alloc_barriers(S)
    empty = tlx.alloc_barriers(S, R)
    m = ml.program_id(0) * BM
    n = ml.program_id(1) * BN
    with tlx.async_tasks():
        with tlx.async_task("default"):
            count = 0
            for k in range(0, K, BK):
                slot, phase = tlx.warp_spec.get_bufidx_phase(count, S)
                tlx.barrier_wait(empty[slot], phase ^ 1)
                tlx.barrier_expect_bytes(full[slot], (BM + BN) * BK * tlx.size_of(tlx.dtype_of(a)))
                for r in ml.static_range(R):
                    tlx.async_descriptor_load(a, a_ring[slot * R + r], [m + r * (BM // R), k], full[slot])
                tlx.async_descriptor_load(b, b_ring[slot], [k, n], full[slot])
                count += 1
        with tlx.async_task(num_warps=4, num_regs=232, replicate=R):
            r = tlx.async_task_replica_id()
            acc = tlx.alloc_accumulator((BM // R, BN), ml.float32)
            count = 0
            for k in range(0, K, BK):
                slot, phase = tlx.warp_spec.get_bufidx_phase(count, S)
                tlx.barrier_wait(full[slot], phase)
                acc = tlx.async_dot(a_ring[slot * R + r], b_ring[slot], acc, use_acc=k > 0)
                acc = tlx.async_dot_wait(1, acc)
                if count > 0:
                    before, _ = tlx.warp_spec.get_bufidx_phase(count - 1, S)
                    tlx.barrier_arrive(empty[before])
                count += 1
            acc = tlx.async_dot_wait(0, acc)
            tlx.local_store(c_tile[r], acc.to(tlx.dtype_of(c)))
            tlx.fence_async_shared()
            tlx.async_descriptor_store(c, c_tile[r], [m + r * (BM // R), n])
            tlx.async_descriptor_store_wait(0)


@kernel
def piped_matmul(
    a, b, c, M, N, K, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, S: ml.constexpr, R: ml.constexpr
):
    pipe = ml.pipeline(S, a=((BM, BK), tlx.dtype_of(a)), b=((BK, BN), tlx.dtype_of(b)), consumers=R)
    c_tile = tlx.local_alloc((BM, BN // R), tlx.dtype_of(c), R)
    tiles_n = ml.cdiv(N, BN)
    tiles = ml.cdiv(M, BM) * tiles_n
    with tlx.async_tasks():
        with tlx.async_task("default"):
            for tile in range(ml.program_id(0), tiles, ml.num_programs(0)):
                for k in range(0, K, BK):
                    with pipe.produce() as s:
                        tlx.async_descriptor_load(a, s.a, [tile // tiles_n * BM, k], s.full)
                        tlx.async_descriptor_load(b, s.b, [k, tile % tiles_n * BN], s.full)
        with tlx.async_task(num_warps=4, replicate=R):
            r = tlx.async_task_replica_id()
            for tile in range(ml.program_id(0), tiles, ml.num_programs(0)):
                acc = tlx.alloc_accumulator((BM, BN // R), ml.float32)
                for k in range(0, K, BK):
                    s = pipe.wait()
                    part = tlx.local_slice(s.b, [0, r * (BN // R)], [BK, BN // R])
                    acc = tlx.async_dot_wait(1, tlx.async_dot(s.a, part, acc))
                    if k > 0:
                        pipe.release()
                acc = tlx.async_dot_wait(0, acc)
                if K > 0:
                    pipe.release()
                tlx.async_descriptor_store_wait(0)
                tlx.local_store(c_tile[r], acc.to(tlx.dtype_of(c)))
                tlx.fence_async_shared()
                tlx.async_descriptor_store(c, c_tile[r], [tile // tiles_n * BM, tile % tiles_n * BN + r * (BN // R)])
            tlx.async_descriptor_store_wait(0)


def check_matmul(fn: Any, m: int, n: int, k: int, stages: int, seed: int, grid: Any) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (m, max(k, 64))).astype(np.float16)
    b = rng.integers(-4, 5, (max(k, 64), n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    args = {"a": a, "b": b, "c": c}
    block = {
        "a": (64 if fn is raw_matmul else 128, 64),
        "b": (64, 32),
        "c": (64, 32) if fn is raw_matmul else (128, 16),
    }
    values: dict[str, Any] = {name: descriptor(v, block[name]) for name, v in args.items()}
    values.update(M=m, N=n, K=k)
    execute(fn, values, {"BM": 128, "BN": 32, "BK": 64, "S": stages, "R": 2}, seed, grid)
    want = a[:, :k].astype(np.float32) @ b[:k].astype(np.float32)
    np.testing.assert_array_equal(c.astype(np.float32), want)


# A slot is given back one step late: one stage does for one step only.
@pytest.mark.parametrize(("stages", "steps"), [(1, 1), (2, 1), (2, 2), (2, 3), (2, 7), (3, 2), (3, 3), (3, 7)])
@pytest.mark.parametrize("seed", [0, 5])
def test_matmul_with_raw_barriers(stages: int, steps: int, seed: int) -> None:
    check_matmul(raw_matmul, 128, 32, 64 * steps, stages, seed, (1, 1))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 32, 64), (128, 96, 320), (384, 64, 0), (256, 64, 128)])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("seed", [0, 7])
def test_persistent_matmul_with_a_pipeline(m: int, n: int, k: int, stages: int, seed: int) -> None:
    check_matmul(piped_matmul, m, n, k, stages, seed, (2,))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 3])
def test_stored_slots(n: int, stages: int, seed: int) -> None:
    def fn(x, y, n, S: ml.constexpr):
        pipe = ml.pipeline(S, a=((64,), ml.float32), tma=False)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                at = x + ml.arange(0, 64)
                for k in range(n):
                    with pipe.produce() as s:
                        tlx.local_store(s.a, ml.load(at + k * 64))
            with tlx.async_task(num_warps=1):
                at = y + ml.arange(0, 64)
                for k in range(n):
                    with pipe.consume() as s:
                        ml.store(at + k * 64, tlx.local_load(s.a) * 2.0)

    x = np.arange(64 * max(n, 1), dtype=np.float32)
    y = np.zeros_like(x)
    execute(fn, {"x": x, "y": y, "n": n}, {"S": stages}, seed)
    np.testing.assert_array_equal(y[: 64 * n], 2 * x[: 64 * n])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ping_pong_by_symbolic_named_barriers(seed: int) -> None:
    def fn(x, n):
        turn = tlx.named_barrier(256), tlx.named_barrier(256)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                pass
            with tlx.async_task(num_warps=4, replicate=2):
                r = tlx.async_task_replica_id()
                if r == 1:
                    turn[0].arrive()
                for _ in range(n):
                    turn[r].wait()
                    ml.store(x, ml.load(x) * 3.0 + r)
                    turn[1 - r].arrive()
                if r == 0:
                    turn[0].wait()

    x = np.ones(1, np.float32)
    execute(fn, {"x": x, "n": 4}, seed=seed)
    want = 1.0
    for _ in range(4):
        for r in range(2):
            want = want * 3.0 + r
    assert x[0] == want


def test_atomics_and_a_descriptor_made_in_the_kernel() -> None:
    def fn(x, y, n):
        d = ml.make_tensor_descriptor(x, [n, 64], [64, 1], [8, 64])
        buf = tlx.local_alloc((8, 64), ml.float32, 1)
        bars = tlx.alloc_barriers(1)
        tlx.barrier_expect_bytes(bars[0], 8 * 64 * 4)
        tlx.async_descriptor_load(d, buf[0], [ml.program_id(0) * 8, 0], bars[0])
        tlx.barrier_wait(bars[0], 0)
        tile = tlx.local_load(buf[0])
        ml.atomic_add(y, ml.sum(tile))
        d.store([ml.program_id(0) * 8, 0], tile + 1.0)

    x = np.arange(20 * 64, dtype=np.float32).reshape(20, 64) % 7
    before = x.copy()
    y = np.zeros(1, np.float32)
    execute(fn, {"x": x, "y": y, "n": 20}, grid=(3,))
    assert y[0] == before.sum()
    np.testing.assert_array_equal(x, before + 1.0)
