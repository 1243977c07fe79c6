"""Kernels of the MIMW layer from Python to PTX: all passes, ptxas, the PTX simulator against NumPy."""

# ruff: noqa: SIM113
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw.language as ml
import mimw.language as tlx
from mimw.codegen.ptx.assemble import assemble
from mimw.codegen.ptx.emit import emit_text
from mimw.frontend.trace import Arg, Const, trace
from mimw.ir.tma import box_plan
from mimw.ir.types import BF16, F16, F32, I32, PointerType, TensorDescType
from mimw.passes import facts, pipeline
from mimw.sim.ptx import tensor_map
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.language.test_mimw_runs import piped_matmul, raw_matmul

_TYPES = {"float16": F16, "bfloat16": BF16, "float32": F32, "int32": I32}


class Block:
    """An array as a descriptor argument."""

    def __init__(self, array: Any, block: tuple[int, ...]) -> None:
        self.array = array
        self.block = block


def execute(
    fn: Any, args: dict[str, Any], constants: dict[str, Any] | None = None, grid: Any = (1, 1, 1), seed: int = 0,
    num_warps: int = 4, cluster: tuple[int, int, int] = (1, 1, 1), warnings: int = 0,
) -> str:  # fmt: skip
    """Compile a kernel for the arguments and run its PTX; gives the text."""
    signature: dict[str, Any] = {}
    for name, v in args.items():
        if isinstance(v, Block):
            signature[name] = Arg(TensorDescType(v.block, _TYPES[v.array.dtype.name]))
        elif isinstance(v, np.ndarray):
            signature[name] = Arg(PointerType(_TYPES[v.dtype.name]), 16)
        else:
            signature[name] = Arg(I32)
    signature.update({k: Const(v) for k, v in (constants or {}).items()})
    module = trace(fn, signature, num_warps)
    if cluster != (1, 1, 1):
        module.function.options["ctas_per_cga"] = cluster
    target = get_target("sm_90a")
    pipeline.run(module, target)
    text = emit_text(module, target, facts.compute(module.function))
    done = assemble(text, "sm_90a")
    assert len(done.warnings) == warnings and not done.spill_stores, [str(w) for w in done.warnings]
    values: list[Any] = []
    for v, value in zip(args.values(), module.function.block.args, strict=True):
        if isinstance(v, Block):
            t: Any = value.type
            plan = box_plan(t.layout, t.block_shape, t.dtype.itemsize)
            a = v.array
            values.append(
                tensor_map.encode(
                    a, t.dtype.name, a.shape[::-1], a.strides[-2::-1], plan.box[::-1], [1] * a.ndim, plan.swizzle
                )
            )
        else:
            values.append(v)
    run_ptx(text, None, (*grid, 1, 1)[:3], values, shared_bytes=module.function.options["shared_bytes"], seed=seed)
    return text


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("stages", "steps"), [(2, 1), (2, 3), (3, 7)])
def test_matmul_with_raw_barriers(stages: int, steps: int, seed: int) -> None:
    _check(raw_matmul, 128, 32, 64 * steps, stages, (1, 1), {"a": (64, 64), "b": (64, 32), "c": (64, 32)}, seed)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 96, 320), (384, 64, 0), (256, 64, 128)])
@pytest.mark.parametrize("stages", [2, 3])
def test_persistent_matmul_with_a_pipeline(m: int, n: int, k: int, stages: int) -> None:
    _check(piped_matmul, m, n, k, stages, (2,), {"a": (128, 64), "b": (64, 32), "c": (128, 16)}, stages)


def _check(fn: Any, m: int, n: int, k: int, stages: int, grid: Any, blocks: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-4, 5, (m, max(k, 64))).astype(np.float16)
    b = rng.integers(-4, 5, (max(k, 64), n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    args: dict[str, Any] = {name: Block(v, blocks[name]) for name, v in (("a", a), ("b", b), ("c", c))}
    execute(fn, {**args, "M": m, "N": n, "K": k}, {"BM": 128, "BN": 32, "BK": 64, "S": stages, "R": 2}, grid, seed)
    want = a[:, :k].astype(np.float32) @ b[:k].astype(np.float32)
    np.testing.assert_array_equal(c.astype(np.float32), want)


@pytest.mark.parametrize("n", [0, 1, 3, 8])
@pytest.mark.parametrize("stages", [1, 3])
def test_slots_that_are_stored(n: int, stages: int) -> None:
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
    for seed in (0, 3):
        execute(fn, {"x": x, "y": y, "n": n}, {"S": stages}, seed=seed)
        np.testing.assert_array_equal(y[: 64 * n], 2 * x[: 64 * n])


def test_ping_pong_by_named_barriers() -> None:
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
    text = execute(fn, {"x": x, "n": 4})
    want = 1.0
    for _ in range(4):
        for r in range(2):
            want = want * 3.0 + r
    assert x[0] == want
    assert text.count("bar.arrive") == 3


def test_a_persistent_loop_over_an_atomic_counter() -> None:
    def fn(counter, x, n):
        tile = ml.atomic_add(counter, 1)
        while tile < n:
            ml.store(x + tile * 64 + ml.arange(0, 64), tile)
            tile = ml.atomic_add(counter, 1)

    counter, x = np.zeros(1, np.int32), np.full(64 * 7, -1, np.int32)
    execute(fn, {"counter": counter, "x": x, "n": 7}, grid=(3,))
    assert counter[0] == 10
    np.testing.assert_array_equal(x, np.repeat(np.arange(7), 64))


def test_a_loaded_scalar_reaches_every_task() -> None:
    def fn(x, y):
        n = ml.load(x)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                ml.store(y, n)
            with tlx.async_task(num_warps=1):
                ml.store(y + 1, n + 1)
            with tlx.async_task(num_warps=4):
                ml.store(y + 2, n + 2)

    x, y = np.array([40], np.int32), np.zeros(3, np.int32)
    execute(fn, {"x": x, "y": y})
    assert list(y) == [40, 41, 42]


def test_attention_like_use_of_a_product_as_operand() -> None:
    """A second product takes its left operand from the registers of the first."""

    def fn(q, k, v, out, N, D: ml.constexpr, B: ml.constexpr):
        q_buf = tlx.local_alloc((64, D), tlx.dtype_of(q), 1)
        k_buf = tlx.local_alloc((B, D), tlx.dtype_of(k), 2)
        v_buf = tlx.local_alloc((B, D), tlx.dtype_of(v), 2)
        q_full, kv_full, kv_empty = tlx.alloc_barriers(1), tlx.alloc_barriers(2), tlx.alloc_barriers(2)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.barrier_wait(q_full[0], 0)
                acc = tlx.alloc_accumulator((64, D), ml.float32)
                count = 0
                for _ in range(0, N, B):
                    slot, phase = tlx.warp_spec.get_bufidx_phase(count, 2)
                    tlx.barrier_wait(kv_full[slot], phase)
                    s = tlx.async_dot_wait(
                        0, tlx.async_dot(q_buf[0], tlx.local_trans(k_buf[slot]), out_dtype=ml.float32)
                    )
                    p = (s * 0.5).to(tlx.dtype_of(v))
                    acc = tlx.async_dot_wait(0, tlx.async_dot(p, v_buf[slot], acc))
                    tlx.barrier_arrive(kv_empty[slot])
                    count += 1
                at = out + ml.arange(0, 64)[:, None] * D + ml.arange(0, D)[None, :]
                ml.store(at, acc)
            with tlx.async_task(num_warps=1):
                tlx.barrier_expect_bytes(q_full[0], 64 * D * 2)
                tlx.async_descriptor_load(q, q_buf[0], [0, 0], q_full[0])
                count = 0
                for n in range(0, N, B):
                    slot, phase = tlx.warp_spec.get_bufidx_phase(count, 2)
                    tlx.barrier_wait(kv_empty[slot], phase ^ 1)
                    tlx.barrier_expect_bytes(kv_full[slot], B * D * 4)
                    tlx.async_descriptor_load(k, k_buf[slot], [n, 0], kv_full[slot])
                    tlx.async_descriptor_load(v, v_buf[slot], [n, 0], kv_full[slot])
                    count += 1

    d, b, n = 64, 64, 192
    rng = np.random.default_rng(0)
    q, k, v = (rng.integers(-2, 3, (m, d)).astype(ml_dtypes.bfloat16) for m in (64, n, n))
    out = np.zeros((64, d), np.float32)
    execute(
        fn, {"q": Block(q, (64, d)), "k": Block(k, (b, d)), "v": Block(v, (b, d)), "out": out, "N": n}, {"D": d, "B": b}
    )
    f = np.float32
    p = ((q.astype(f) @ k.astype(f).T) * 0.5).astype(ml_dtypes.bfloat16).astype(f)
    np.testing.assert_array_equal(out, p @ v.astype(f))


def test_multicast_in_a_cluster() -> None:
    def fn(a, out, D: ml.constexpr):
        buf = tlx.local_alloc((16, D), tlx.dtype_of(a), 1)
        full = tlx.alloc_barriers(1)
        rank = tlx.cluster_cta_rank()
        with tlx.async_tasks():
            with tlx.async_task("default"):
                tlx.barrier_wait(full[0], 0)
                at = out + rank * 16 * D + ml.arange(0, 16)[:, None] * D + ml.arange(0, D)[None, :]
                ml.store(at, tlx.local_load(buf[0]))
            with tlx.async_task(num_warps=1):
                tlx.barrier_expect_bytes(full[0], 16 * D * 2)
                if rank == 0:
                    tlx.async_descriptor_load(a, buf[0], [0, 0], full[0], multicast_targets=[0, 1])

    a = np.arange(16 * 64, dtype=np.float32).reshape(16, 64).astype(ml_dtypes.bfloat16)
    out = np.zeros((2, 16, 64), ml_dtypes.bfloat16)
    execute(fn, {"a": Block(a, (16, 64)), "out": out}, {"D": 64}, (2,), cluster=(2, 1, 1))
    assert (out == a).all()


def test_views_of_buffers() -> None:
    def fn(x, y):
        buf = tlx.local_alloc((64, 32), ml.float32, 1)
        at = ml.arange(0, 64)[:, None] * 32 + ml.arange(0, 32)[None, :]
        tlx.local_store(buf[0], ml.load(x + at))
        part = tlx.local_slice(buf[0], [32, 0], [32, 32])
        small = ml.arange(0, 32)[:, None] * 32 + ml.arange(0, 32)[None, :]
        tlx.local_store(tlx.local_slice(buf[0], [0, 0], [32, 32]), tlx.local_load(part) * 2.0)
        ml.store(y + small, tlx.local_load(tlx.local_slice(buf[0], [0, 0], [32, 32])))

    x = np.arange(64 * 32, dtype=np.float32)
    y = np.zeros(32 * 32, np.float32)
    execute(fn, {"x": x, "y": y})
    np.testing.assert_array_equal(y, 2 * x[32 * 32 :])


@pytest.mark.parametrize("rows", [20, 24])
def test_a_descriptor_made_in_the_kernel(rows: int) -> None:
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

    x = np.arange(rows * 64, dtype=np.float32).reshape(rows, 64) % 7
    before, y = x.copy(), np.zeros(1, np.float32)
    execute(fn, {"x": x, "y": y, "n": rows}, grid=(3,))
    assert y[0] == before.sum()
    np.testing.assert_array_equal(x, before + 1.0)


def test_descriptors_made_inside_and_outside_of_tasks() -> None:
    def fn(x, y, n):
        out = ml.make_tensor_descriptor(y, [n, 64], [64, 1], [8, 64])
        buf = tlx.local_alloc((8, 64), ml.float32, 2)
        full, empty = tlx.alloc_barriers(2), tlx.alloc_barriers(2)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                count = 0
                for row in range(0, n, 8):
                    slot, phase = tlx.warp_spec.get_bufidx_phase(count, 2)
                    tlx.barrier_wait(full[slot], phase)
                    tlx.async_descriptor_store(out, buf[slot], [row, 0])
                    tlx.async_descriptor_store_wait(0)
                    tlx.barrier_arrive(empty[slot])
                    count += 1
            with tlx.async_task(num_warps=1):
                count = 0
                for row in range(0, n, 8):
                    slot, phase = tlx.warp_spec.get_bufidx_phase(count, 2)
                    d = ml.make_tensor_descriptor(x + row * 64, [8, 64], [64, 1], [8, 64])
                    tlx.barrier_wait(empty[slot], phase ^ 1)
                    tlx.barrier_expect_bytes(full[slot], 8 * 64 * 4)
                    tlx.async_descriptor_load(d, buf[slot], [0, 0], full[slot])
                    tlx.barrier_wait(full[slot], phase)
                    count += 1

    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    y = np.zeros_like(x)
    execute(fn, {"x": x, "y": y, "n": 32})
    np.testing.assert_array_equal(x, y)
