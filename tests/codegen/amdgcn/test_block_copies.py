"""Copies by descriptor and in bulk: straight into LDS where a block lies inside of the tensor, through registers at its edges."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.runtime.launch import CompiledKernel
from mimw.runtime.tensor_descriptor import TensorDescriptor
from mimw.sim.amdgcn.errors import SimulationError
from tests.amdgcn_kit import run_compiled
from tests.codegen.amdgcn.test_lds_dma import TARGETS, count, numbers

NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8", "int32": "i32"}


@mimw.kernel
def fetch(x, out_ptr, at_m, at_n, BM: ml.constexpr, BN: ml.constexpr):
    """One block, twice: what the second time comes is what is stored."""
    buffers, full = ml.local_alloc((BM, BN), ml.dtype_of(x), 2), ml.alloc_barriers(2)
    size: ml.constexpr = BM * BN * ml.size_of(ml.dtype_of(x))
    for i in ml.static_range(2):
        ml.barrier_expect_bytes(full[i], size)
        ml.async_descriptor_load(x, buffers[i], [at_m, at_n], full[i])
    ml.barrier_wait(full[0], 0)
    ml.barrier_wait(full[1], 0)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    ml.store(out_ptr + rows * BN + columns, ml.local_load(buffers[1]))


def fetched(dtype: str, block: tuple[int, int], target: str, align: int = 16, num_warps: int = 4) -> CompiledKernel:
    """The kernel for a block of so many rows and columns; `align` divides the second coordinate."""
    types = [f"tensor_desc<{block[0]}x{block[1]}x{NAMES[dtype]}>", f"*{NAMES[dtype]}:16", "i32", f"i32:{align}"]
    constants = {"BM": block[0], "BN": block[1]}
    return fetch.compile(types, constants, target=target, num_warps=num_warps)


def cut(x: Any, block: tuple[int, int], at: tuple[int, int], outside: float) -> Any:
    """The block of an array, with what lies outside of it."""
    m, n = block
    wide = np.full((x.shape[0] + 2 * m, x.shape[1] + 2 * n), outside, np.float64)
    wide[m : m + x.shape[0], n : n + x.shape[1]] = x.astype(np.float64)
    first, second = at[0] + m, at[1] + n
    return wide[first : first + m, second : second + n].astype(x.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NAMES)
def test_every_type(dtype: str, target: str) -> None:
    x = numbers((80, 128), dtype)
    kernel = fetched(dtype, (32, 64), target)
    straight = target == "gfx950" or x.itemsize <= 4
    assert bool(count(kernel, "global_load_lds_")) == straight
    for at in ((32, 64), (64, 0), (-16, 16), (0, 96)):
        out = np.zeros((32, 64), x.dtype)
        run_compiled(kernel, (1,), [TensorDescriptor.from_tensor(x, [32, 64]), out, *at])
        np.testing.assert_array_equal(out, cut(x, (32, 64), at, 0.0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("block", "num_warps"), [((8, 16), 4), ((64, 32), 1), ((48, 64), 2), ((16, 256), 4), ((64, 24), 4)]
)
def test_every_shape(block: tuple[int, int], num_warps: int, target: str) -> None:
    x = numbers((100, 320), "float16")
    kernel = fetched("float16", block, target, num_warps=num_warps)
    for at in ((0, 16), (36, 64), (90, 304)):
        out = np.zeros(block, x.dtype)
        run_compiled(kernel, (1,), [TensorDescriptor.from_tensor(x, [*block]), out, *at], seed=1)
        np.testing.assert_array_equal(out, cut(x, block, at, 0.0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nan_outside(dtype: str, target: str) -> None:
    kernel = fetched(dtype, (32, 64), target, align=8)
    base = numbers((40, 128), dtype)
    x = base[:, :101]
    described = TensorDescriptor(base, [40, 101], [128, 1], [32, 64], padding="nan")
    for at in ((0, 0), (8, 40), (-8, 64)):
        out = np.zeros((32, 64), base.dtype)
        run_compiled(kernel, (1,), [described, out, *at])
        want = cut(x, (32, 64), at, np.nan)
        np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_the_first_lands_while_the_second_is_under_way(target: str) -> None:
    kernel = fetched("float16", (64, 64), target)
    copies = {"gfx950": 2, "gfx942": 8}[target]
    assert count(kernel, "global_load_lds_") == 2 * copies
    assert count(kernel, rf"s_waitcnt vmcnt\({copies}\)") and count(kernel, r"s_waitcnt vmcnt\(0\)")


def test_nothing_is_stored_on_the_straight_way() -> None:
    """From the branch on whether a block is inside to the end of that side."""
    text = str(fetched("float16", (64, 64), "gfx950").asm["amdgcn"])
    sides = re.findall(r"s_cbranch_scc0 L\d+_at_edge\n(.*?)s_branch", text, re.DOTALL)
    assert len(sides) == 2
    for side in sides:
        assert side.count("global_load_lds_dwordx4") == 2 and "ds_write" not in side and "exec" not in side


@mimw.kernel
def wanted(x, out_ptr, flag, BM: ml.constexpr, BN: ml.constexpr):
    """Copies one block where a flag is set, another where it is not."""
    buffer, full = ml.local_alloc((BM, BN), ml.dtype_of(x), 1), ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], BM * BN * ml.size_of(ml.dtype_of(x)))
    ml.async_descriptor_load(x, buffer[0], [0, 0], full[0], pred=flag > 0)
    ml.async_descriptor_load(x, buffer[0], [BM, 0], full[0], pred=flag <= 0)
    ml.barrier_wait(full[0], 0)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    ml.store(out_ptr + rows * BN + columns, ml.local_load(buffer[0]))


@pytest.mark.parametrize("target", TARGETS)
def test_predicates(target: str) -> None:
    x = numbers((64, 64), "float16")
    kernel = wanted.compile(["tensor_desc<32x64xf16>", "*f16:16", "i32"], {"BM": 32, "BN": 64}, target=target)
    for flag, first in ((1, 0), (0, 32)):
        out = np.zeros((32, 64), x.dtype)
        run_compiled(kernel, (1,), [TensorDescriptor.from_tensor(x, [32, 64]), out, flag])
        np.testing.assert_array_equal(out, x[first : first + 32])


@mimw.kernel
def handed_on(x, out_ptr, trips, BM: ml.constexpr, BN: ml.constexpr, STAGES: ml.constexpr):
    """A task copies blocks for another, which adds them up."""
    ring = ml.local_alloc((BM, BN), ml.float16, STAGES)
    full, empty = ml.alloc_barriers(STAGES), ml.alloc_barriers(STAGES)
    with ml.async_tasks():
        with ml.async_task("default"):
            rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
            total = ml.zeros((BM, BN), ml.float16)
            for i in range(trips):
                slot, phase = ml.warp_spec.get_bufidx_phase(i, STAGES)
                ml.barrier_wait(full[slot], phase)
                total = total * 2 + ml.local_load(ring[slot])
                ml.barrier_arrive(empty[slot])
            ml.store(out_ptr + rows * BN + columns, total)
        with ml.async_task(num_warps=2):
            for i in range(trips):
                slot, phase = ml.warp_spec.get_bufidx_phase(i, STAGES)
                ml.barrier_wait(empty[slot], phase ^ 1)
                ml.barrier_expect_bytes(full[slot], BM * BN * 2)
                ml.async_descriptor_load(x, ring[slot], [i * BM, 0], full[slot])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_tasks_hand_blocks_on(stages: int, target: str) -> None:
    types = ["tensor_desc<16x64xf16>", "*f16:16", "i32"]
    kernel = handed_on.compile(types, {"BM": 16, "BN": 64, "STAGES": stages}, target=target, num_warps=4)
    x = numbers((72, 64), "float16") % 4
    for trips in (0, 1, 4, 5):
        out = np.full((16, 64), 9, np.float16)
        run_compiled(kernel, (1,), [TensorDescriptor.from_tensor(x, [16, 64]), out, trips], seed=trips)
        want = np.zeros((16, 64), np.float16)
        for i in range(trips):
            want = want * 2 + cut(x, (16, 64), (16 * i, 0), 0.0)
        np.testing.assert_array_equal(out, want)


def test_a_landing_without_its_wait_is_told() -> None:
    types = ["tensor_desc<16x64xf16>", "*f16:16", "i32"]
    kernel = handed_on.compile(types, {"BM": 16, "BN": 64, "STAGES": 2}, target="gfx950", num_warps=4)
    text = str(kernel.asm["amdgcn"])
    waits = re.finditer(r"^\s*s_waitcnt vmcnt\(0\)\n", text, re.MULTILINE)
    landing = text.rindex("ds_add_u32")
    found = [wait for wait in waits if wait.start() < landing][-1]
    x, out = numbers((72, 64), "float16"), np.zeros((16, 64), np.float16)
    args = [TensorDescriptor.from_tensor(x, [16, 64]), out, 4]
    with pytest.raises(SimulationError, match="LDS DMA"):
        run_compiled(kernel, (1,), args, text=text[: found.start()] + text[found.end() :])


@mimw.kernel
def bulk(x_ptr, out_ptr, count, BLOCK: ml.constexpr, COUNT: ml.constexpr):
    """COUNT bytes; the number that the copy is given may be known only when it runs."""
    buffer, full = ml.local_alloc((BLOCK,), ml.dtype_of(x_ptr), 1), ml.alloc_barriers(1)
    ml.barrier_expect_bytes(full[0], COUNT)
    ml.async_load(x_ptr, buffer[0], bulk=True, barrier=full[0], bulk_size=count)
    ml.barrier_wait(full[0], 0)
    columns = ml.arange(0, BLOCK)
    size: ml.constexpr = ml.size_of(ml.dtype_of(x_ptr))
    ml.store(out_ptr + columns, ml.local_load(buffer[0]), mask=columns * size < COUNT)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_bytes_in_a_row(dtype: str, target: str) -> None:
    name = {"uint8": "u8", "float64": "f64"}[dtype]
    x = numbers((1024,), dtype)
    for size in (16, 512, 1008):
        constants = {"BLOCK": 1024, "COUNT": size}
        for given in ("i32:16", f"={size}"):
            kernel = bulk.compile([f"*{name}:16", f"*{name}:16", given], constants, target=target, num_warps=2)
            assert count(kernel, "global_load_lds_") and count(kernel, "ds_write") == 1  # the barrier's word
            out = np.full_like(x, 77)
            run_compiled(kernel, (1,), [x, out, *([size] if given == "i32:16" else [])])
            n = size // x.itemsize
            np.testing.assert_array_equal(out[:n], x[:n])
            np.testing.assert_array_equal(out[n:], np.full_like(x[n:], 77))
