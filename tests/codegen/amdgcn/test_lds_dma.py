"""Copies from global memory straight into LDS: which instructions they are, and that what arrives is what the tile simulator says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from benchmarks import amd_gemm
from mimw.jit import Kernel
from mimw.runtime.launch import CompiledKernel
from mimw.sim.amdgcn.errors import SimulationError
from tests.amdgcn_kit import run_compiled, same_on_amd

TARGETS = ("gfx942", "gfx950")


def text_of(kernel: CompiledKernel) -> str:
    """The assembly text without comments."""
    return re.sub(r";.*", "", str(kernel.asm["amdgcn"]))


def count(kernel: CompiledKernel, pattern: str) -> int:
    """How many instructions match."""
    return len(re.findall(rf"^\s*{pattern}", text_of(kernel), re.MULTILINE))


def straight(kernel: CompiledKernel) -> int:
    """How many instructions load straight into LDS."""
    return count(kernel, r"(global_load_lds_|buffer_load_.*\blds\b)")


@mimw.kernel
def copy(x_ptr, out_ptr, stride, BM: ml.constexpr, BN: ml.constexpr):
    buffer = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), 1)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    ml.async_load(x_ptr + rows * stride + columns, buffer[0])
    ml.async_load_commit_group()
    ml.async_load_wait_group(0)
    ml.store(out_ptr + rows * BN + columns, ml.local_load(buffer[0]))


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers that tell places apart, small enough for every type."""
    found = np.random.default_rng(1).integers(0, 100, shape)
    if dtype in ("bfloat16", "float8_e4m3fn"):
        import ml_dtypes

        return (found % 16).astype(getattr(ml_dtypes, dtype))
    return found.astype(dtype)


# --- which instructions


def types(dtype: str) -> list[str]:
    return [f"*{dtype}:16", f"*{dtype}:16", "i32:16"]


@pytest.mark.parametrize(("dtype", "size"), [("f16", 2), ("i8", 1), ("f32", 4), ("f64", 8)])
def test_wide_copies(dtype: str, size: int) -> None:
    """16 bytes a lane on gfx950, and nothing goes through registers."""
    kernel = copy.compile(types(dtype), {"BM": 64, "BN": 64}, target="gfx950", num_warps=4)
    assert count(kernel, "global_load_lds_dwordx4 v") == 64 * 64 * size // (16 * 64 * 4)
    assert not count(kernel, "ds_write") and not count(kernel, "global_load_dword")


@pytest.mark.parametrize(("dtype", "size"), [("f16", 2), ("i8", 1), ("f32", 4)])
def test_copies_of_four_bytes(dtype: str, size: int) -> None:
    kernel = copy.compile(types(dtype), {"BM": 64, "BN": 64}, target="gfx942", num_warps=4)
    assert count(kernel, "global_load_lds_dword v") == 64 * 64 * size // (4 * 64 * 4)
    assert not count(kernel, "ds_write") and not count(kernel, "global_load_dword")


def test_what_goes_through_registers() -> None:
    """Elements wider than a lane's part, rows that are not aligned, tiles smaller than a wave's part."""
    wide = copy.compile(types("f64"), {"BM": 64, "BN": 64}, target="gfx942", num_warps=4)
    bytes_ = copy.compile(["*i8", "*i8", "i32"], {"BM": 64, "BN": 64}, target="gfx950", num_warps=4)
    small = copy.compile(types("f16"), {"BM": 4, "BN": 8}, target="gfx950", num_warps=4)
    for kernel in (wide, bytes_, small):
        assert count(kernel, "ds_write") and not count(kernel, "global_load_lds")


def test_narrow_alignment_means_narrow_copies() -> None:
    kernel = copy.compile(["*f16:4", "*f16", "i32:2"], {"BM": 64, "BN": 64}, target="gfx950", num_warps=4)
    assert count(kernel, "global_load_lds_dword v") == 8 and not count(kernel, "ds_write")


# --- what arrives


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "int64", "float8_e4m3fn"])  # fmt: skip
def test_every_type(dtype: str) -> None:
    x = numbers((64, 64), dtype)
    (_, out) = same_on_amd(copy, (1,), [x, np.zeros_like(x), 64], BM=64, BN=64, seeds=(0,))
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("shape", "num_warps"),
    [((16, 32), 1), ((8, 64), 4), ((128, 16), 2), ((96, 64), 4), ((32, 192), 2), ((64, 24), 2), ((40, 72), 4), ((2, 512), 8)],
)  # fmt: skip
def test_every_shape(shape: tuple[int, int], num_warps: int) -> None:
    x = numbers((shape[0], 1024), "float16")
    args = [x, np.zeros(shape, np.float16), 1024]
    (_, out) = same_on_amd(copy, (1,), args, BM=shape[0], BN=shape[1], num_warps=num_warps, seeds=(0,))
    np.testing.assert_array_equal(out, x[:, : shape[1]])


@mimw.kernel
def masked(x_ptr, out_ptr, M, N, stride, BM: ml.constexpr, BN: ml.constexpr, FILL: ml.constexpr):
    buffer = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), 1)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    mask = (rows < M) & (columns < N)
    if FILL == "zero":
        ml.async_load(x_ptr + rows * stride + columns, buffer[0], mask=mask)
    elif FILL == "number":
        ml.async_load(x_ptr + rows * stride + columns, buffer[0], mask=mask, other=7.0)
    else:
        other = (rows * 3 + columns).to(ml.dtype_of(x_ptr))
        ml.async_load(x_ptr + rows * stride + columns, buffer[0], mask=mask, other=other)
    ml.async_load_commit_group()
    ml.async_load_wait_group(0)
    ml.store(out_ptr + rows * BN + columns, ml.local_load(buffer[0]))


@pytest.mark.parametrize("fill", ["zero", "number", "tile"])
@pytest.mark.parametrize(("m", "n"), [(64, 64), (33, 48), (5, 17), (0, 64)])
def test_masks(fill: str, m: int, n: int) -> None:
    """The mask of 17 columns has no runs; that of 48 does, and both are right."""
    x = numbers((64, 64), "float16")
    rest = {"zero": np.zeros((64, 64)), "number": np.full((64, 64), 7.0)}.get(
        fill, np.arange(64)[:, None] * 3 + np.arange(64)
    )
    want = rest.astype(np.float16)
    want[:m, :n] = x[:m, :n]
    args = [x, np.zeros_like(x), m, n, 64]
    (_, out) = same_on_amd(masked, (1,), args, BM=64, BN=64, FILL=fill, seeds=(0,))
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("fill", ["zero", "number", "tile"])
def test_masked_copies_are_straight(fill: str) -> None:
    """Where the mask is known to come in runs, copies and stores of what is left out share the tile."""
    given = ["*f16:16", "*f16:16", "i32", "i32:16", "i32:16"]
    x = numbers((64, 64), "float16")
    rest = np.arange(64)[:, None] * 3 + np.arange(64)
    for target, opcode, copies in (
        ("gfx950", "global_load_lds_dwordx4 v", 2),
        ("gfx942", "global_load_lds_dword v", 8),
    ):
        kernel = masked.compile(given, {"BM": 64, "BN": 64, "FILL": fill}, target=target, num_warps=4)
        assert count(kernel, opcode) == copies == count(kernel, "ds_write_b")
        for m, n in ((33, 48), (64, 64), (1, 0)):
            want = (rest if fill == "tile" else np.full((64, 64), 7.0 * (fill == "number"))).astype(np.float16)
            want[:m, :n] = x[:m, :n]
            out = np.zeros_like(x)
            run_compiled(kernel, (1,), [x, out, m, n, 64])
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("shape", [(16, 64), (64, 48), (6, 64)])
@pytest.mark.parametrize("target", TARGETS)
def test_columns_that_are_moved_before_rows_join_them(target: str, shape: tuple[int, int]) -> None:
    """The buffer is swizzled, as it is read by columns: a register and a lane of the copy have the same columns, in other rows."""
    x = numbers((shape[0], 128), "float16")
    out = np.zeros(shape[::-1], np.float16)
    constants = {"BM": shape[0], "BN": shape[1]}
    kernel = by_columns.compile(["*f16:16", "*f16:16", "i32:16<1048576"], constants, target=target, num_warps=1)
    run_compiled(kernel, (1,), [x, out, 128])
    np.testing.assert_array_equal(out, x[:, : shape[1]].T)


@mimw.kernel
def by_columns(x_ptr, out_ptr, stride, BM: ml.constexpr, BN: ml.constexpr):
    buffer = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), 1)
    rows, columns = ml.arange(0, BM), ml.arange(0, BN)
    ml.async_load(x_ptr + rows[:, None] * stride + (columns + ml.program_id(0) * BN)[None, :], buffer[0])
    ml.async_load_commit_group()
    ml.async_load_wait_group(0)
    ml.store(out_ptr + columns[:, None] * BM + rows[None, :], ml.local_load(ml.local_trans(buffer[0])))


@mimw.kernel
def columns_used_twice(x_ptr, t_ptr, out_ptr, sums_ptr, stride, BM: ml.constexpr, BN: ml.constexpr):
    """What decides about a copy by columns is scanned and added, too."""
    buffer = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), 1)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    found = ml.load(t_ptr + columns)
    ml.async_load(x_ptr + rows * stride + columns, buffer[0], mask=(found + rows) % 3 == 0, other=1)
    ml.async_load_commit_group()
    ml.atomic_add(sums_ptr + columns, found)
    ml.store(sums_ptr + BN + ml.arange(0, BN), ml.cumsum(ml.sum(found + rows, 0), 0))
    ml.async_load_wait_group(0)
    turned = ml.arange(0, BN)[:, None] * BM + ml.arange(0, BM)[None, :]
    ml.store(out_ptr + turned, ml.local_load(ml.local_trans(buffer[0])))


@pytest.mark.parametrize("num_warps", [1, 2])
def test_a_copys_columns_may_be_scanned_and_added(num_warps: int) -> None:
    m, n = 64, 48
    x, t = numbers((m, n), "float32"), np.arange(n, dtype=np.int32) * 7 % 11
    types = ["*f32:16", "*i32:16", "*f32:16", "*i32:16", "i32:16<1048576"]
    for target in TARGETS:
        kernel = columns_used_twice.compile(types, {"BM": m, "BN": n}, target=target, num_warps=num_warps)
        out, sums = np.zeros((n, m), np.float32), np.zeros(2 * n, np.int32)
        run_compiled(kernel, (1,), [x, t, out, sums, n])
        q = t + np.arange(m)[:, None]
        np.testing.assert_array_equal(out, np.where(q % 3 == 0, x, 1).T)
        np.testing.assert_array_equal(sums, np.concatenate([t, np.cumsum(q.sum(0))]))


# --- groups


@mimw.kernel
def ring_of(x_ptr, out_ptr, trips, BLOCK: ml.constexpr, STAGES: ml.constexpr, NOISE: ml.constexpr):
    """Blocks come STAGES - 1 ahead, and every one is added up; with NOISE plain loads stand among the copies."""
    ring = ml.local_alloc((BLOCK,), ml.float32, STAGES)
    columns = ml.arange(0, BLOCK)
    for block in ml.static_range(STAGES - 1):
        ml.async_load(x_ptr + block * BLOCK + columns, ring[block], mask=block < trips)
        ml.async_load_commit_group()
    total = ml.zeros((BLOCK,), ml.float32)
    for block in range(trips):
        ml.async_load_wait_group(STAGES - 2)
        tile = ml.local_load(ring[block % STAGES])
        ahead = block + STAGES - 1
        ml.async_load(x_ptr + ahead * BLOCK + columns, ring[ahead % STAGES], mask=ahead < trips)
        ml.async_load_commit_group()
        if NOISE:
            total += ml.load(x_ptr + block * BLOCK + (BLOCK - 1 - columns))
        total = total * 2 + tile
    ml.store(out_ptr + columns, total)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("noise", [False, True])
def test_groups_in_loops(stages: int, noise: bool) -> None:
    for trips in range(6) if stages == 3 else (1, 4):
        x = numbers((6 * 256,), "float32")
        args = [x, np.zeros(256, np.float32), trips]
        same_on_amd(ring_of, (1,), args, BLOCK=256, STAGES=stages, NOISE=noise, num_warps=2, seeds=(trips,))


@pytest.mark.parametrize("target", TARGETS)
def test_waits_leave_younger_groups_under_way(target: str) -> None:
    constants = {"BLOCK": 1024, "STAGES": 3, "NOISE": False}
    kernel = ring_of.compile(["*f32:16", "*f32:16", "i32"], constants, target=target, num_warps=4)
    assert straight(kernel) and not count(kernel, "global_load_dword")
    assert count(kernel, {"gfx950": r"s_waitcnt vmcnt\(1\)", "gfx942": r"s_waitcnt vmcnt\(4\)"}[target])


@pytest.mark.parametrize("target", TARGETS)
def test_zeros_by_offsets_out_of_range(target: str) -> None:
    """Where a base and small offsets are known, what the mask leaves out needs no stores."""
    constants = {"BLOCK": 1024, "STAGES": 2, "NOISE": False}
    kernel = ring_of.compile(["*f32:16", "*f32:16", "i32"], constants, target=target, num_warps=4)
    assert count(kernel, r"buffer_load_.*\blds\b") and not count(kernel, "ds_write")


@mimw.kernel
def mixed(x_ptr, y_ptr, out_ptr, n, ROWS: ml.constexpr):
    """One group with a copy that is straight and one that goes through registers."""
    a, b = ml.local_alloc((ROWS, 64), ml.float16, 1), ml.local_alloc((ROWS, 64), ml.float16, 1)
    rows, columns = ml.arange(0, ROWS)[:, None], ml.arange(0, 64)[None, :]
    total = ml.zeros((ROWS, 64), ml.float16)
    for _ in range(n):
        ml.async_load(x_ptr + rows * 64 + columns, a[0])
        ml.async_load(y_ptr + rows * 64 + columns, b[0])
        ml.async_load_commit_group()
        ml.async_load_wait_group(0)
        total += ml.local_load(a[0]) + ml.local_load(b[0])
    ml.store(out_ptr + rows * 64 + columns, total)


def test_both_ways_in_one_kernel() -> None:
    given = ["*f16:16", "*f16:2", "*f16:16", "i32"]
    x, y = numbers((32, 64), "float16"), numbers((32, 64), "float16")
    for target in TARGETS:
        kernel = mixed.compile(given, {"ROWS": 32}, target=target, num_warps=4)
        assert count(kernel, "global_load_lds") and count(kernel, "ds_write")
        out = np.zeros_like(x)
        run_compiled(kernel, (1,), [x, y, out, 3])
        np.testing.assert_array_equal(out, 3 * (x + y))


# --- what is told


def broken(kernel: Kernel, given: list[str], constants: dict[str, Any], pattern: str, args: list[Any]) -> str:
    """What the simulator says of a kernel whose text has lost the first line that matches."""
    compiled = kernel.compile(given, constants, target="gfx950", num_warps=4)
    text = str(compiled.asm["amdgcn"])
    found = re.search(rf"^\s*{pattern}.*\n", text, re.MULTILINE)
    assert found is not None
    run_compiled(compiled, (1,), args, text=text)
    with pytest.raises(SimulationError) as error:
        run_compiled(compiled, (1,), args, text=text[: found.start()] + text[found.end() :])
    return str(error.value)


def test_a_missing_wait_is_told() -> None:
    x = numbers((64, 64), "float16")
    args = [x, np.zeros_like(x), 64]
    where = r"s_waitcnt vmcnt\(0\)"
    assert "vmcnt" in broken(copy, types("f16"), {"BM": 64, "BN": 64}, where, args)


@mimw.kernel
def turn(x_ptr, out_ptr, stride, BM: ml.constexpr, BN: ml.constexpr):
    buffer = ml.local_alloc((BM, BN), ml.dtype_of(x_ptr), 1)
    rows, columns = ml.arange(0, BM)[:, None], ml.arange(0, BN)[None, :]
    ml.async_load(x_ptr + rows * stride + columns, buffer[0])
    ml.async_load_commit_group()
    ml.async_load_wait_group(0)
    ml.store(out_ptr + columns * BM + rows, ml.local_load(buffer[0]))


def test_a_missing_barrier_is_told() -> None:
    """Waves read what others have copied."""
    x = numbers((64, 64), "float16")
    args = [x, np.zeros_like(x), 64]
    assert "race" in broken(turn, types("f16"), {"BM": 64, "BN": 64}, "s_barrier", args)


# --- loops of products


def test_a_written_out_loop_holds_no_stores() -> None:
    """256x256x64 in two slots: what was loaded and stored is copied."""
    kernel = amd_gemm.by_copies("gfx950")
    kinds = amd_gemm.kinds_of(kernel.loop)
    assert kernel.spills == 0 and not kinds["LDS write"] and kinds["barrier"] == 1
    assert sum("load_lds" in line or " lds" in line for line in kernel.loop) == 8 == kinds["global"]
    assert len(kernel.loop) <= 128


@pytest.mark.parametrize("bound", ["", "<1048576"])
def test_pipelined_loops_copy_straight(bound: str) -> None:
    """With and without pointers that are known by their parts."""
    block = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    given = ["*f16:16"] * 3 + [f"i32:16{bound}"] * 6
    kernel = amd_gemm.gemm.compile(given, block, target="gfx950", num_warps=4, num_stages=2)
    loop = amd_gemm.hot_loop(str(kernel.asm["amdgcn"]))
    assert not amd_gemm.kinds_of(loop)["LDS write"]
    assert sum("load_lds" in line or " lds" in line for line in loop) == 4
    for trips in (1, 2, 5):
        a, b = numbers((64, 64 * trips), "float16") % 5, numbers((64 * trips, 64), "float16") % 3
        out = np.full((64, 64), np.nan, np.float16)
        run_compiled(kernel, (1,), [a, b, out, 64, 64, 64 * trips, 64 * trips, 64, 64], seed=trips)
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))
