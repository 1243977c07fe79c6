"""Barriers, named barriers, syncs inside tasks and descriptors on AMD: as the tile simulator has it, whatever the order of the waves."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError, LaunchError
from mimw.runtime.tensor_descriptor import MapSpec, TensorDescriptor, encode_map
from mimw.sim.amdgcn.errors import SimulationError
from tests.amdgcn_kit import run_compiled, same_on_amd


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 251 - 100).astype(dtype)


@mimw.kernel
def three_writers(out, ROUNDS: ml.constexpr, W: ml.constexpr, FIRST: ml.constexpr):
    """Three tasks of W warps fill a slot together, one of them with FIRST arrivals; a phase is no power of two."""
    ring = ml.local_alloc((3, 64), ml.int32, 2)
    full, empty = ml.alloc_barriers(2, 2 + FIRST), ml.alloc_barriers(2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(ROUNDS):
                slot, phase = ml.warp_spec.get_bufidx_phase(i, 2)
                ml.barrier_wait(full[slot], phase)
                tile = ml.local_load(ring[slot])
                ml.barrier_arrive(empty[slot])
                ml.store(out + (i * 3 + ml.arange(0, 3)[:, None]) * 64 + ml.arange(0, 64)[None, :], tile)
        with ml.async_task(num_warps=W, replicate=3):
            r: ml.constexpr = ml.async_task_replica_id()
            for i in range(ROUNDS):
                slot, phase = ml.warp_spec.get_bufidx_phase(i, 2)
                ml.barrier_wait(empty[slot], phase ^ 1)
                row = (ml.arange(0, 64) * (r + 1) + i)[None, :]
                ml.local_store(ml.local_slice(ring[slot], [r, 0], [1, 64]), row)
                ml.barrier_arrive(full[slot], FIRST if r == 0 else 1)


@pytest.mark.parametrize(("warps", "first"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_phases_of_any_number_of_arrivals(warps: int, first: int) -> None:
    (got,) = same_on_amd(three_writers, (2,), [np.zeros((15, 64), np.int32)], ROUNDS=5, W=warps, FIRST=first)
    i, r = np.divmod(np.arange(15), 3)
    np.testing.assert_array_equal(got, np.arange(64) * (r[:, None] + 1) + i[:, None])


@mimw.kernel
def by_named_barriers(out, ROUNDS: ml.constexpr, NUMBER: ml.constexpr):
    """A writer of two warps hands a buffer to a reader of one: three warps a round, by name or by number."""
    buf = ml.local_alloc((128,), ml.int32, 1)
    written, taken = ml.named_barrier(96), ml.named_barrier(96)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(ROUNDS):
                if NUMBER:
                    ml.named_barrier_wait(NUMBER + i % 2, 96)
                else:
                    written.wait()
                ml.store(out + i * 128 + ml.arange(0, 128), ml.local_load(buf[0]))
                taken.arrive()
        with ml.async_task(num_warps=2):
            for i in range(ROUNDS):
                if i > 0:
                    taken.wait()
                ml.local_store(buf[0], ml.arange(0, 128) * 3 + i)
                if NUMBER:
                    ml.named_barrier_arrive(NUMBER + i % 2, 96)
                else:
                    written.arrive()
            taken.wait()


@pytest.mark.parametrize("number", [0, 6])
def test_named_barriers(number: int) -> None:
    (got,) = same_on_amd(
        by_named_barriers, (1,), [np.zeros((5, 128), np.int32)], (0, 1, 2), ROUNDS=5, NUMBER=number, num_warps=1
    )
    np.testing.assert_array_equal(got, np.arange(128) * 3 + np.arange(5)[:, None])


@mimw.kernel
def by_threads(out, N):
    """Every thread of the writer's two warps arrives by itself; waits and arrivals only where predicates hold."""
    buf = ml.local_alloc((128,), ml.int32, 1)
    full, empty = ml.alloc_warp_barrier(1, num_warps=2), ml.alloc_barriers(1)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(N):
                ml.barrier_wait(full[0], i & 1)
                ml.store(out + i * 128 + ml.arange(0, 128), ml.local_load(buf[0]))
                ml.barrier_arrive(empty[0], pred=i + 1 < N)
        with ml.async_task(num_warps=2):
            for i in range(N):
                ml.barrier_wait(empty[0], (i & 1) ^ 1, pred=i > 0)
                ml.local_store(buf[0], ml.arange(0, 128) - i)
                ml.barrier_arrive(full[0])


def test_threads_arrive_and_predicates() -> None:
    (got,) = same_on_amd(by_threads, (1,), [np.zeros((4, 128), np.int32), 4])
    np.testing.assert_array_equal(got, np.arange(128) - np.arange(4)[:, None])


@mimw.kernel
def turned(x, out, B: ml.constexpr):
    """Each task's warps have to meet: its tile is turned through shared memory and summed."""
    with ml.async_tasks():
        with ml.async_task("default"):
            tile = ml.load(x + ml.arange(0, B)[:, None] * B + ml.arange(0, B)[None, :])
            ml.store(out + ml.arange(0, B)[:, None] * B + ml.arange(0, B)[None, :], ml.trans(tile))
        with ml.async_task(num_warps=2, replicate=2):
            r: ml.constexpr = ml.async_task_replica_id()
            tile = ml.load(x + ml.arange(0, B)[:, None] * B + ml.arange(0, B)[None, :])
            ml.store(out + (B + r) * B + ml.arange(0, B), ml.sum(ml.trans(tile), axis=r))


def test_the_waves_of_a_task_meet() -> None:
    x = numbers((64, 64))
    _, got = same_on_amd(turned, (1,), [x, np.zeros((66, 64), np.float32)], (0, 1, 2, 3), B=64)
    np.testing.assert_array_equal(got, np.vstack([x.T, x.sum(axis=1)[None], x.sum(axis=0)[None]]))


# ------------------------------------------------------------------------------------------------------------- descriptors


@mimw.kernel
def blocks(src, dst, total, N, BM: ml.constexpr, BN: ml.constexpr):
    """Tiles straight through descriptors of the host, one of them combining."""
    m = ml.program_id(0) * BM
    for n in range(0, N, BN):
        x = src.load([m, n])
        dst.store([m, n], x + x)
        total.atomic_add([0, n], x)


@pytest.mark.parametrize("shape", [(64, 96), (50, 72)])
def test_tiles_through_descriptors_of_the_host(shape: tuple[int, int]) -> None:
    src = numbers(shape)
    tensors = [src, np.zeros_like(src), np.zeros((32, shape[1]), np.float32)]
    args = [TensorDescriptor.from_tensor(t, [32, 32]) for t in tensors]
    got = same_on_amd(blocks, (2,), [*args, shape[1]], BM=32, BN=32)
    np.testing.assert_array_equal(got[1], 2 * src)
    padded = np.zeros((64, shape[1]), np.float32)
    padded[: shape[0]] = src
    np.testing.assert_array_equal(got[2], padded[:32] + padded[32:])


@mimw.kernel
def copied_beyond(src, out, start, B: ml.constexpr):
    """A block that begins before the tensor and ends behind it, as the copy leaves it."""
    buf = ml.local_alloc((B, B), ml.dtype_of(src), 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], B * B * ml.size_of(ml.dtype_of(src)))
    ml.async_descriptor_load(src, buf[0], [start, -8], full[0])
    ml.barrier_wait(full[0], 0)
    ml.store(out + ml.arange(0, B)[:, None] * B + ml.arange(0, B)[None, :], ml.local_load(buf[0]))


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "float64"])
def test_padding(padding: str, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    base = numbers((20, 16)).astype(kind)
    src = TensorDescriptor(base, [19, 13], [16, 1], [32, 32], padding)
    got = np.zeros((32, 32), kind)
    out = same_on_amd(copied_beyond, (1,), [src, got, -3], B=32)[1].astype(np.float64)
    want = np.full((32, 32), np.nan if padding == "nan" else 0.0)
    want[3:22, 8:21] = base[:19, :13].astype(np.float64)
    np.testing.assert_array_equal(out, want)


@mimw.kernel
def of_two(a, b, out, N, B: ml.constexpr):
    """A descriptor that a loop and a branch hand on."""
    buf = ml.local_alloc((B, B), ml.float32, 1)
    full = ml.alloc_barriers(1)
    d = a
    for i in range(N):
        ml.barrier_expect_bytes(full[0], B * B * 4)
        ml.async_descriptor_load(d, buf[0], [0, 0], full[0])
        ml.barrier_wait(full[0], i & 1)
        ml.store(out + (i * B + ml.arange(0, B)[:, None]) * B + ml.arange(0, B)[None, :], ml.local_load(buf[0]))
        if i % 2 == 0:
            d = b
        else:
            d = a


def test_descriptors_go_around_loops() -> None:
    a, b = numbers((32, 32)), -numbers((32, 32))
    args = [TensorDescriptor.from_tensor(x, [32, 32]) for x in (a, b)]
    got = same_on_amd(of_two, (1,), [*args, np.zeros((3 * 32, 32), np.float32), 3], B=32)
    np.testing.assert_array_equal(got[2], np.vstack([a, b, a]))


# ------------------------------------------------------------------------------------------------------------ what is wrong


@mimw.kernel
def two_counts(out):
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(2):
                ml.named_barrier_wait(3 + i, 96)
            ml.store(out, 1)
        with ml.async_task(num_warps=1):
            for i in range(2):
                ml.named_barrier_arrive(3 + i, 64)


def test_one_named_barrier_has_one_count() -> None:
    with pytest.raises(CompilationError) as caught:
        two_counts.compile(["*i32"], {}, target="gfx942", num_warps=2)
    assert "a named barrier counts 64 threads here and 96 elsewhere" in str(caught.value)
    assert caught.value.loc.line == two_counts.fn.__code__.co_firstlineno + 9


@mimw.kernel
def greedy(out, REGS: ml.constexpr):
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.store(out, 1)
        with ml.async_task(num_warps=1, num_regs=REGS):
            ml.store(out + 1, 2)


def test_registers_are_advice() -> None:
    kernel = greedy.compile(["*i32"], {"REGS": 232}, target="gfx950")
    out = np.zeros(2, np.int32)
    run_compiled(kernel, (1,), [out])
    np.testing.assert_array_equal(out, [1, 2])
    assert kernel.metadata.num_threads == 5 * 64


@mimw.kernel
def without_arrival(out, GIVEN: ml.constexpr):
    bar = ml.alloc_barriers(1)
    buf = ml.local_alloc((64,), ml.int32, 1)
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.barrier_wait(bar[0], 0 if GIVEN else 1)
            ml.store(out + ml.arange(0, 64), ml.local_load(buf[0]))
        with ml.async_task(num_warps=1):
            ml.local_store(buf[0], ml.arange(0, 64))
            ml.barrier_arrive(bar[0])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_the_simulator_sees_a_wait_for_the_wrong_phase(target: str) -> None:
    """The barrier is what orders the two: the same kernel without its wait is a race."""
    for given in (True, False):
        kernel = without_arrival.compile(["*i32"], {"GIVEN": given}, target=target, num_warps=1)
        out = np.zeros(64, np.int32)
        if given:
            run_compiled(kernel, (1,), [out], seed=2)
            np.testing.assert_array_equal(out, np.arange(64))
        else:
            with pytest.raises(SimulationError, match="race"):
                run_compiled(kernel, (1,), [out])


# --------------------------------------------------------------------------------------------------------- shapes of blocks


@mimw.kernel
def line_through(src, dst, at, B: ml.constexpr):
    buf = ml.local_alloc((B,), ml.dtype_of(src), 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], B * ml.size_of(ml.dtype_of(src)))
    ml.async_descriptor_load(src, buf[0], [16 * at], full[0])
    ml.barrier_wait(full[0], 0)
    ml.async_descriptor_store(dst, buf[0], [16 * at + 16])
    ml.async_descriptor_store_wait(0)


@mimw.kernel
def box_through(src, dst, at, A: ml.constexpr, B: ml.constexpr, C: ml.constexpr):
    buf = ml.local_alloc((A, B, C), ml.dtype_of(src), 1)
    full = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], A * B * C * ml.size_of(ml.dtype_of(src)))
    ml.async_descriptor_load(src, buf[0], [at, at - 2, 16 * at], full[0])
    ml.barrier_wait(full[0], 0)
    ml.async_descriptor_store(dst, buf[0], [at, 1, 0])
    ml.async_descriptor_store_wait(0)


@pytest.mark.parametrize("at", [0, -1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_blocks_of_one_dimension(dtype: str, at: int) -> None:
    src, dst = numbers((101,), dtype), np.zeros(101, dtype)
    args = [TensorDescriptor.from_tensor(x, [64]) for x in (src, dst)]
    same_on_amd(line_through, (1,), [*args, at], (0,), B=64)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("block", "dtype"), [((2, 3, 24), "float16"), ((3, 2, 16), "uint8"), ((4, 8, 40), "float32")])
def test_blocks_of_three_dimensions(block: tuple[int, int, int], dtype: str, at: int) -> None:
    src, dst = numbers((3, 7, 48), dtype), np.zeros((3, 7, 48), dtype)
    args = [TensorDescriptor(x, [3, 6, 43], [7 * 48, 48, 1], list(block)) for x in (src, dst)]  # ends inside of vectors
    a, b, c = block
    same_on_amd(box_through, (1,), [*args, at], (0,), A=a, B=b, C=c)


def test_the_record_of_a_descriptor() -> None:
    spec = MapSpec.get("f16", (32, 64), (), 0)
    data = encode_map(spec, 0x1000, (100, 72), (80, 1), "nan")
    assert len(data) == 128
    base, nan, _, rows, columns = struct.unpack_from("<QIIii", data)
    assert (base, nan, rows, columns) == (0x1000, 1, 100, 72)
    assert struct.unpack_from("<QQ", data, 40) == (160, 2)
    with pytest.raises(LaunchError, match=r"extents go to 2\^31 - 1"):
        encode_map(spec, 0x1000, (1 << 31, 72), (80, 1), "zero")
