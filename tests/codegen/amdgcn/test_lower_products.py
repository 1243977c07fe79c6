"""Matrix products for AMD: which instructions a loop consists of, and that their results are right for every type."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mimw
import mimw.language as ml
from tests.amdgcn_kit import run_compiled
from tests.test_examples import load

TYPES = {
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32,
}  # fmt: skip


def compiled(a: str, b: str, block: tuple[int, int, int], target: str, b_rows: bool = True) -> Any:
    """Example 03 for these types; B's rows contiguous, or its columns."""
    strides = ["i32:16", "=1"] if b_rows else ["=1", "i32:16"]
    types = [f"*{a}:16", f"*{b}:16", "*f32:16", *["i32:16"] * 3, "i32:16", "=1", *strides, "i32:16", "=1"]
    constants = {"BLOCK_M": block[0], "BLOCK_N": block[1], "BLOCK_K": block[2], "GROUP_M": 8}
    return load("03_matmul.py").matmul_kernel.compile(types, constants, target=target, num_warps=4, num_stages=2)


def loop_of(kernel: Any) -> Counter[str]:
    """How often each instruction stands in the loop."""
    lines = kernel.asm["amdgcn"].splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith("_loop:"))
    label = lines[start].removesuffix(":")
    end = next(i for i in range(start, len(lines)) if f" {label}" in lines[i])
    return Counter(line.split()[0] for line in lines[start:end] if line.startswith("  ") and not line.startswith("  ;"))


def test_a_loop_on_gfx942_reads_wide_and_turns_on_the_way_in() -> None:
    counts = loop_of(compiled("bf16", "bf16", (128, 128, 64), "gfx942"))
    assert counts["v_mfma_f32_32x32x8_bf16"] == 32
    assert counts["ds_read_b128"] == 16 and counts["ds_write_b64"] == 8 and counts["ds_write_b128"] == 4
    assert (
        counts["global_load_dwordx4"] == 8 and counts["s_barrier"] == 2
    )  # one slot: two would take all of shared memory
    assert not any(name.startswith(("ds_read_u", "ds_write_b16")) for name in counts)


def test_a_loop_on_gfx950_takes_twice_the_depth_and_turns_while_reading() -> None:
    counts = loop_of(compiled("f16", "f16", (128, 128, 64), "gfx950"))
    assert counts["v_mfma_f32_32x32x16_f16"] == 16
    assert counts["ds_read_b64_tr_b16"] == 16 and counts["ds_read_b128"] == 8 and counts["ds_write_b128"] == 8
    assert counts["s_barrier"] == 1


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_columns_of_b_need_no_turning(target: str) -> None:
    counts = loop_of(compiled("bf16", "bf16", (128, 128, 64), target, b_rows=False))
    assert counts["ds_read_b128"] == 16 and counts["ds_write_b128"] == 8 and not counts["v_perm_b32"]


def test_tiles_that_are_cast_are_loaded_ahead_too() -> None:
    kernel = compiled("f8e4m3", "f8e4m3", (128, 128, 64), "gfx942", b_rows=False)
    counts = loop_of(kernel)
    assert counts["s_barrier"] == 2 and counts["v_pk_fma_f16"] == 2 * 128 * 64 // 256 // 2
    order = list(counts)  # by first appearance: products while the loads are under way, casts behind them
    assert order.index("v_mfma_f32_32x32x8_f16") < order.index("v_pk_fma_f16")
    assert order.index("global_load_dwordx4") < order.index("v_pk_fma_f16")


PAIRS = [
    ("f8e4m3", "f8e4m3"),
    ("f8e4m3", "f8e5m2"),
    ("f8e5m2", "f8e4m3"),
    ("f8e5m2", "f8e5m2"),
    ("f8e4m3fnuz", "f8e4m3fnuz"),
    ("f8e4m3fnuz", "f8e5m2fnuz"),
    ("f8e5m2fnuz", "f8e4m3fnuz"),
    ("f8e5m2fnuz", "f8e5m2fnuz"),
    ("f8e4m3", "f8e5m2fnuz"),
    ("bf16", "bf16"),
    ("f32", "f32"),
]


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("a_type", "b_type"), PAIRS)
def test_every_float_type_multiplies(a_type: str, b_type: str, target: str) -> None:
    m, n, k = 80, 96, 192
    block = (64, 64, 128 if a_type[:2] == "f8" else 32)
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(TYPES[t]) for s, t in (((m, k), a_type), ((k, n), b_type)))
    c = np.zeros((m, n), np.float32)
    kernel = compiled(a_type, b_type, block, target)
    grid = -(-m // block[0]) * -(-n // block[1])
    run_compiled(kernel, (grid,), [a, b, c, m, n, k, k, n, n])
    wide = [x.astype(np.float64) for x in (a, b)]
    error = np.abs(c - wide[0] @ wide[1]) / (np.abs(wide[0]) @ np.abs(wide[1]))
    assert error.max() <= (2**-9 if a_type == "f32" else 2**-20)
    text = kernel.asm["amdgcn"]
    assert "v_mfma" in text
    if "f8" in (a_type[:2], b_type[:2]):  # by instructions for them where the machine has both formats
        fnuz = {t.endswith("fnuz") for t in (a_type, b_type)}
        assert ("v_mfma_f32_32x32x8_f16" not in text and "x16_f16" not in text) == (fnuz == {target == "gfx942"})


@mimw.kernel
def one_tile(a_ptr, b_ptr, c_ptr, M: ml.constexpr, N: ml.constexpr, K: ml.constexpr):
    rows, columns, depth = ml.arange(0, M)[:, None], ml.arange(0, N)[None, :], ml.arange(0, K)
    a = ml.load(a_ptr + rows * K + depth[None, :])
    b = ml.load(b_ptr + depth[:, None] * N + columns)
    acc = ml.load(c_ptr + rows * N + columns)
    ml.store(c_ptr + rows * N + columns, ml.dot(a, b, acc))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("name", "element", "out"), [("f64", np.float64, "f64"), ("i8", np.int8, "i32"), ("u8", np.uint8, "i32")]
)
@pytest.mark.parametrize("shape", [(32, 48, 64), (64, 32, 16)])
def test_doubles_and_bytes(name: str, element: Any, out: str, target: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 200, s).astype(element) for s in ((m, k), (k, n)))
    c = rng.integers(-9, 9, (m, n)).astype({"f64": np.float64, "i32": np.int32}[out])
    want = c + a.astype(c.dtype) @ b.astype(c.dtype)
    kernel = one_tile.compile(
        [f"*{name}:16", f"*{name}:16", f"*{out}:16"], dict(zip("MNK", shape, strict=True)), target=target
    )
    run_compiled(kernel, (1,), [a, b, c])
    np.testing.assert_array_equal(c, want)
    text = str(kernel.asm["amdgcn"])
    assert ("v_mfma" in text) == (name != "u8")  # bytes are signed in the instruction


def test_fewer_registers_where_they_are_asked_for() -> None:
    types = ["*bf16:16", "*bf16:16", "*f32:16", *["i32:16"] * 3, "i32:16", "=1", "i32:16", "=1", "i32:16", "=1"]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}
    kernel = load("03_matmul.py").matmul_kernel.compile(types, constants, target="gfx942", maxnreg=56, num_warps=4)
    assert kernel.metadata.registers <= 56
    m, n, k = 64, 64, 96
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float32)
    run_compiled(kernel, (1,), [a, b, c, m, n, k, k, n, n])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-4)


@mimw.kernel
def backwards(a_ptr, b_ptr, c_ptr, start, N: ml.constexpr, K: ml.constexpr):
    rows, depth = ml.arange(0, N), ml.arange(0, K)
    acc = ml.zeros((N, N), ml.float32)
    for k in range(start, 0, -K):
        a = ml.load(a_ptr + rows[:, None] * start + (k - K + depth)[None, :])
        b = ml.load(b_ptr + (k - K + depth)[:, None] * N + rows[None, :])
        acc = ml.dot(a, b, acc)
    ml.store(c_ptr + rows[:, None] * N + rows[None, :], acc)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_loops_of_few_trips(target: str) -> None:
    """The last trip stands behind the loop: none, one, two and three of them, forwards and backwards."""
    forwards = compiled("bf16", "bf16", (64, 64, 32), target)
    types = ["*bf16:16", "*bf16:16", "*f32:16", "i32:16"]
    downwards = backwards.compile(types, {"N": 64, "K": 32}, target=target, num_stages=2)
    assert "v_mfma" in str(downwards.asm["amdgcn"])
    rng = np.random.default_rng(7)
    for k in (0, 32, 64, 96):
        a, b = (rng.integers(-4, 5, s).astype(ml_dtypes.bfloat16) for s in ((64, max(k, 1)), (max(k, 1), 64)))
        want = a[:, :k].astype(np.float32) @ b[:k].astype(np.float32)
        c = np.full((64, 64), np.nan, np.float32)
        run_compiled(forwards, (1,), [a, b, c, 64, 64, k, max(k, 1), 64, 64])
        np.testing.assert_array_equal(c, want)
        c = np.full((64, 64), np.nan, np.float32)
        run_compiled(downwards, (1,), [a, b, c, k])
        np.testing.assert_array_equal(c, want)


@mimw.kernel
def weights_in_bytes(
    a_ptr, b_ptr, c_ptr, K, scale, M: ml.constexpr, N: ml.constexpr, BLOCK_K: ml.constexpr
):  # fmt: skip
    rows, columns, depth = ml.arange(0, M)[:, None], ml.arange(0, N)[None, :], ml.arange(0, BLOCK_K)
    acc = ml.zeros((M, N), ml.float32)
    for k in range(0, K, BLOCK_K):
        a = ml.load(a_ptr + rows * K + (k + depth)[None, :])
        b = ml.load(b_ptr + (k + depth)[:, None] * N + columns, mask=(k + depth)[:, None] < K - 8, other=0)
        acc = ml.dot(a, b.to(ml.bfloat16), acc)
    ml.store(c_ptr + rows * N + columns, acc * scale)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("name", ["i8", "fp8e4b8", "fp8e4nv"])
def test_any_number_of_trips_with_a_cast(name: str, target: str) -> None:
    m, n, block = 64, 64, 32
    element = {"i8": np.int8, "fp8e4b8": ml_dtypes.float8_e4m3fnuz, "fp8e4nv": ml_dtypes.float8_e4m3fn}[name]
    types = ["*bf16:16", f"*{name}:16", "*f32:16", "i32:16", "f32"]
    kernel = weights_in_bytes.compile(types, {"M": m, "N": n, "BLOCK_K": block}, target=target, num_stages=2)
    remarks = [r["text"] for r in kernel.metadata.extra["remarks"] if r["kind"] == "pipeline"]
    assert len(remarks) == 1 and remarks[0].startswith("pipelined: 1 slot"), remarks
    rng = np.random.default_rng(7)
    for trips in (0, 1, 2, 3):
        k = block * trips
        a = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
        b = (rng.standard_normal((k, n)) * 4).astype(element)
        c = np.full((m, n), np.nan, np.float32)
        run_compiled(kernel, (1,), [a, b, c, k, 0.5])
        used = b.astype(np.float64) * (np.arange(k) < k - 8)[:, None]
        np.testing.assert_allclose(c, 0.5 * a.astype(np.float64) @ used, rtol=1e-5, atol=1e-3)
