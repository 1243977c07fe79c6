"""Buffers that share memory: `storage_alias_spec`, `reuse_group`, `local_alloc(reuse=buffer)`; what the simulators say when that goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
import mimw.language as tlx
from mimw.sim.errors import SimulationError
from tests.language.engines_kit import both, compile_for


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape)).reshape(shape) % 251 - 100).astype(dtype)


@mimw.kernel
def one_after_the_other(x, y, N: ml.constexpr):
    a = ml.local_alloc((N, N), ml.float32, 1)
    b = ml.local_alloc((2 * N, N), ml.float16, 1, reuse=a)
    at = ml.arange(0, N)[:, None] * N + ml.arange(0, N)[None, :]
    ml.local_store(a[0], ml.load(x + at))
    tile = ml.local_load(a[0])
    high = ml.local_slice(b[0], [N, 0], [N, N])
    low = ml.local_slice(b[0], [0, 0], [N, N])
    ml.local_store(high, tile.to(ml.float16))
    ml.local_store(low, (2 * tile).to(ml.float16))
    ml.store(y + at, ml.local_load(high).to(ml.float32) + ml.local_load(low).to(ml.float32))


def test_upon_another_buffer() -> None:
    x = numbers((32, 32))
    got = both(one_after_the_other, (1,), [x, np.zeros_like(x)], ("sm_90a", "sm_80"), N=32)
    np.testing.assert_array_equal(got[1], 3 * x)
    compiled = compile_for(one_after_the_other, [x, x], {"N": 32}, "sm_90a")
    assert compiled.metadata.shared_bytes == 4096


@mimw.kernel
def widened(x, y, N: ml.constexpr):
    spec = ml.storage_alias_spec()
    wide = ml.local_alloc((N, N), ml.float32, 2, reuse=spec)
    half = ml.local_alloc((N, N), ml.float16, 4, reuse=spec)  # half[2 * i] and half[2 * i + 1] lie in wide[i]
    spec.set_buffer_overlap(ml.reuse_group(wide, ml.reuse_group(half, group_size=2)))
    at = ml.arange(0, N)[:, None] * N + ml.arange(0, N)[None, :]
    ml.local_store(half[1], ml.load(x + at))
    ml.local_store(half[3], ml.load(x + N * N + at))
    ml.local_store(wide[0], ml.local_load(half[1]).to(ml.float32))  # half[3] stays what it is
    ml.store(y + at, ml.local_load(wide[0]) + ml.local_load(half[3]).to(ml.float32))


def test_slots_overlap_slot_by_slot() -> None:
    x = numbers((2, 32, 32), np.float16)
    got = both(widened, (1,), [x, np.zeros((32, 32), np.float32)], ("sm_90a", "sm_80"), N=32)
    np.testing.assert_array_equal(got[1], x[0].astype(np.float32) + x[1])


@mimw.kernel
def grouped(x, y, N: ml.constexpr, SLOTS: ml.constexpr):
    spec = tlx.storage_alias_spec(storage=tlx.storage_kind.smem)
    big = tlx.local_alloc((N, N), ml.float32, SLOTS, reuse=spec)
    half = tlx.local_alloc((N // 2, N), ml.float16, 2 * SLOTS, reuse=spec)
    row = tlx.local_alloc((N,), ml.float32, SLOTS, reuse=spec)
    spec.set_buffer_overlap(
        tlx.reuse_group(
            big,
            tlx.reuse_group(tlx.reuse_group(half, group_size=2), row, group_type=tlx.reuse_group_type.distinct),
            group_type=tlx.reuse_group_type.shared,
        )
    )
    at = ml.arange(0, N)[:, None] * N + ml.arange(0, N)[None, :]
    upper = ml.arange(0, N // 2)[:, None] * N + ml.arange(0, N)[None, :]
    for i in range(SLOTS):
        tlx.local_store(big[i], ml.load(x + i * N * N + at))
    for i in range(SLOTS):
        tile = tlx.local_load(big[i])
        tlx.local_store(row[i], ml.sum(tile, 0))
        tlx.local_store(half[2 * i], ml.load(x + i * N * N + upper).to(ml.float16))
        tlx.local_store(half[2 * i + 1], ml.load(x + i * N * N + N * N // 2 + upper).to(ml.float16))
    for i in range(2 * SLOTS):
        total = tlx.local_load(row[i // 2])
        ml.store(y + i * N * N // 2 + upper, tlx.local_load(half[i]).to(ml.float32) + total[None, :])


@pytest.mark.parametrize("n", [32, 64])
def test_groups(n: int) -> None:
    x = numbers((3, n, n))
    got = both(grouped, (1,), [x, np.zeros_like(x)], N=n, SLOTS=3)
    np.testing.assert_array_equal(got[1], x + x.sum(1, keepdims=True))
    compiled = compile_for(grouped, [x, x], {"N": n, "SLOTS": 3}, "sm_90a")
    assert compiled.metadata.shared_bytes <= 3 * n * n * 4 + 1024


@mimw.kernel
def handed_over(x, y, N: ml.constexpr, STEPS: ml.constexpr):
    """One task copies in, the other adds one in a buffer over the same bytes, and the first takes it out by TMA."""
    spec = ml.storage_alias_spec()
    come = ml.local_alloc((N, N), ml.float32, 2, reuse=spec)
    go = ml.local_alloc((N, N), ml.float32, 2, reuse=spec)
    spec.set_buffer_overlap(ml.reuse_group(come, go))
    full, done = ml.alloc_barriers(2), ml.alloc_barriers(2)
    with ml.async_tasks():
        with ml.async_task("default"):
            for i in range(STEPS + 2):
                slot, phase = i % 2, (i // 2) & 1
                if i >= 2:
                    ml.barrier_wait(done[slot], phase ^ 1)
                    ml.async_descriptor_store(y, go[slot], [(i - 2) * N, 0])
                    ml.async_descriptor_store_wait(0)
                if i < STEPS:
                    ml.barrier_expect_bytes(full[slot], N * N * 4)
                    ml.async_descriptor_load(x, come[slot], [i * N, 0], full[slot])
        with ml.async_task(num_warps=4):
            for i in range(STEPS):
                slot, phase = i % 2, (i // 2) & 1
                ml.barrier_wait(full[slot], phase)
                tile = ml.local_load(come[slot])
                ml.local_store(go[slot], tile + 1)
                ml.barrier_arrive(done[slot])


def test_between_tasks() -> None:
    x = numbers((5 * 32, 32))
    a = mimw.TensorDescriptor.from_tensor(x, [32, 32])
    b = mimw.TensorDescriptor.from_tensor(np.zeros_like(x), [32, 32])
    got = both(handed_over, (1,), [a, b], N=32, STEPS=5)
    np.testing.assert_array_equal(got[1], x + 1)


@mimw.kernel
def overwritten(x, y, N: ml.constexpr):
    spec = ml.storage_alias_spec()
    first = ml.local_alloc((N,), ml.float32, 2, reuse=spec)
    second = ml.local_alloc((N,), ml.int32, 2, reuse=spec)
    at = ml.arange(0, N)
    ml.local_store(first[1], ml.load(x + at))
    ml.local_store(second[1], at)
    ml.store(y + at, ml.local_load(first[1]))


def test_reading_what_another_buffer_was_written_over() -> None:
    x = numbers((64,))
    with pytest.raises(SimulationError) as caught:
        overwritten[(1,)](x, x.copy(), N=64)
    e = caught.value
    line = overwritten.fn.__code__.co_firstlineno
    assert e.code == "overwritten" and e.loc is not None and e.loc.line == line + 8
    assert "first[1] is read, but second, which shares its memory, was written over it" in str(e)
    assert [n.loc.line for n in e.notes if n.loc is not None] == [line + 7]


@mimw.kernel
def raced(x, y, N: ml.constexpr, APART: ml.constexpr):
    spec = ml.storage_alias_spec()
    a = ml.local_alloc((N,), ml.float32, 1, reuse=spec)
    b = ml.local_alloc((N,), ml.float32, 1, reuse=spec)
    if APART:
        spec.set_buffer_overlap(ml.reuse_group(a, b, group_type="distinct"))
    with ml.async_tasks():
        with ml.async_task("default"):
            ml.local_store(a[0], ml.load(x + ml.arange(0, N)))
            ml.store(y + ml.arange(0, N), ml.local_load(a[0]))
        with ml.async_task(num_warps=4):
            ml.local_store(b[0], ml.load(x + N + ml.arange(0, N)))
            ml.store(y + N + ml.arange(0, N), ml.local_load(b[0]))


def test_races_through_shared_bytes() -> None:
    x = numbers((128,))
    with pytest.raises(SimulationError) as caught:
        raced.check(x, np.zeros_like(x), grid=(1,), schedules=4, N=64, APART=False)
    assert caught.value.code in ("race", "overwritten")
    got = both(raced, (1,), [x, np.zeros_like(x)], N=64, APART=True)
    np.testing.assert_array_equal(got[1], x)
