"""Addresses as scalar bases and 32-bit offsets: what is emitted, and that the machine code reads and writes the right elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mimw
import mimw.language as ml
from tests.amdgcn_kit import run_compiled, same_on_amd

SMALL = "i32<1048576"


@mimw.kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: ml.constexpr):
    offsets = ml.program_id(0) * BLOCK + ml.arange(0, BLOCK)
    mask = offsets < n
    x = ml.load(x_ptr + offsets, mask=mask)
    y = ml.load(y_ptr + offsets, mask=mask)
    ml.store(out_ptr + offsets, x + y, mask=mask)


@mimw.kernel
def softmax(x_ptr, out_ptr, stride, n, BLOCK: ml.constexpr):
    cols = ml.arange(0, BLOCK)
    row = ml.program_id(0) * stride
    x = ml.load(x_ptr + row + cols, mask=cols < n, other=float("-inf"))
    e = ml.exp(x - ml.max(x, 0))
    ml.store(out_ptr + row + cols, e / ml.sum(e, 0), mask=cols < n)


@mimw.kernel
def gemm(a_ptr, b_ptr, c_ptr, K, lda, ldb, ldc, M: ml.constexpr, N: ml.constexpr, BK: ml.constexpr):
    m = ml.program_id(0) * M + ml.arange(0, M)
    n = ml.arange(0, N)
    k = ml.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * lda + k[None, :]
    b_ptrs = b_ptr + k[:, None] * ldb + n[None, :]
    acc = ml.zeros((M, N), dtype=ml.float32)
    for _ in range(0, K, BK):
        acc = ml.dot(ml.load(a_ptrs), ml.load(b_ptrs), acc)
        a_ptrs += BK
        b_ptrs += BK * ldb
    ml.store(c_ptr + m[:, None] * ldc + n[None, :], acc)


@mimw.kernel
def view(
    x_ptr, out_ptr, start, rows, cols, s0, s1, R: ml.constexpr, C: ml.constexpr, S0: ml.constexpr, OTHER: ml.constexpr
):
    i = ml.program_id(0) * R + ml.arange(0, R)
    j = ml.arange(0, C)
    mask = (i[:, None] < rows) & (j[None, :] < cols)
    s = s0 if S0 == 0 else S0
    x = ml.load(x_ptr + start + i[:, None] * s + j[None, :] * s1, mask=mask, other=OTHER)
    ml.store(out_ptr + i[:, None] * C + j[None, :], x, mask=i[:, None] < rows)


@mimw.kernel
def wrapped(a_ptr, b_ptr, c_ptr, M, N, K, lda, ldb, ldc, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr):
    """As in Triton's tutorial: rows and columns beyond the edge are taken from the beginning, K is masked."""
    m = (ml.program_id(0) * BM + ml.arange(0, BM)) % M
    n = (ml.program_id(1) * BN + ml.arange(0, BN)) % N
    k = ml.arange(0, BK)
    a_ptrs = a_ptr + (m[:, None] * lda + k[None, :])
    b_ptrs = b_ptr + (k[:, None] * ldb + n[None, :])
    acc = ml.zeros((BM, BN), dtype=ml.float32)
    for i in range(ml.cdiv(K, BK)):
        a = ml.load(a_ptrs, mask=k[None, :] < K - i * BK, other=0.0)
        b = ml.load(b_ptrs, mask=k[:, None] < K - i * BK, other=0.0)
        acc = ml.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * ldb
    rows = ml.program_id(0) * BM + ml.arange(0, BM)
    columns = ml.program_id(1) * BN + ml.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    ml.store(c_ptr + rows[:, None] * ldc + columns[None, :], acc, mask=inside)


def text_of(kernel: Any) -> str:
    return str(kernel.asm["amdgcn"])


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.MULTILINE))


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_vector_add_has_one_offset_and_no_wide_vector_sum(target: str) -> None:
    kernel = add.compile(["*f32:16"] * 3 + ["i32:16"], {"BLOCK": 1024}, target=target, num_warps=4)
    text = text_of(kernel)
    assert count(r"^\s*v_(lshl_add_u64|add_co|addc_co|mad_[iu]64)", text) == 0
    assert count(r"^\s*buffer_load_dwordx4 \S+ v\d+, s\[\d+:\d+\], 0 offen", text) == 2
    assert count(r"^\s*global_store_dwordx4 v\d+, v\[\d+:\d+\], s\[\d+:\d+\]", text) == 1
    n = 1024 + 16 * 5
    x, y = (np.random.default_rng(i).standard_normal(n).astype(np.float32) for i in range(2))
    out = np.full(2048, 7, np.float32)
    run_compiled(kernel, (2,), [x, y, out, n])
    assert np.array_equal(out[:n], x + y) and (out[n:] == 7).all()


def test_a_row_of_softmax_has_a_scalar_base() -> None:
    kernel = softmax.compile(["*f32:16", "*f32:16", "i32", "i32"], {"BLOCK": 512}, target="gfx942", num_warps=4)
    text = text_of(kernel)
    assert count(r"^\s*v_(lshl_add_u64|add_co|addc_co|mad_[iu]64)", text) == 0
    assert count(r"^\s*global_load.*\boff\b", text) == 0
    x = np.random.default_rng(0).standard_normal((3, 400)).astype(np.float32)
    out = np.zeros_like(x)
    run_compiled(kernel, (3,), [x, out, 400, 400])
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(out, e / e.sum(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_a_loop_moves_the_base_alone(target: str) -> None:
    sizes = {"M": 64, "N": 64, "BK": 32}
    types = ["*bf16:16", "*bf16:16", "*f32:16", "i32:16", *["i32:16<1048576"] * 3]
    kernel = gemm.compile(types, sizes, target=target, num_warps=4, num_stages=2)
    text = text_of(kernel)
    assert count(r"^\s*v_(lshl_add_u64|add_co|addc_co|mad_[iu]64)", text) == 0
    assert count(r"^\s*(buffer_load_dword|global_load_lds_dwordx4 v\d+, s\[)", text) >= 4
    assert count(r"^\s*global_load.*\boff\b", text) == 0
    import ml_dtypes

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((128, 96), (96, 64)))
    c = np.zeros((128, 64), np.float32)
    run_compiled(kernel, (2,), [a.view(np.uint16), b.view(np.uint16), c, 96, 96, 64, 64])
    assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_rows_that_begin_again_stay_near_where_sizes_are_small(target: str) -> None:
    sizes = {"BM": 64, "BN": 64, "BK": 32}
    types = ["*bf16:16", "*bf16:16", "*f32:16", *["i32<32768"] * 3, *["i32:8<32768"] * 3]
    kernel = wrapped.compile(types, sizes, target=target, num_warps=4, num_stages=2)
    text = text_of(kernel)
    assert count(r"^\s*v_(lshl_add_u64|add_co|addc_co|mad_[iu]64)", text) == 0
    assert count(r"^\s*buffer_load_", text) >= 4 and count(r"^\s*global_load", text) == 0
    import ml_dtypes

    rng = np.random.default_rng(0)
    m, n, k = 70, 90, 72
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, 96)))
    c = np.zeros((m, 96), np.float32)
    run_compiled(kernel, (2, 2), [a.view(np.uint16), b.view(np.uint16), c, m, n, k, k, 96, 96])
    assert np.allclose(c[:, :n], a.astype(np.float32) @ b.astype(np.float32)[:, :n], atol=1e-3) and not c[:, n:].any()


R, C = 16, 16


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("fixed", [0, -24])
@settings(max_examples=6)
@given(data=st.data())
def test_views_of_any_strides(bounded: bool, fixed: int, data: st.DataObject) -> None:
    """Steps backwards too, with masks whose false elements lie anywhere."""
    low = 0 if bounded else -24
    s0 = fixed or data.draw(st.integers(low, 24))
    s1 = data.draw(st.integers(low, 12))
    rows, cols = data.draw(st.integers(0, 2 * R)), data.draw(st.integers(0, C))
    other = data.draw(st.sampled_from([0.0, 5.0]))
    i, j = np.arange(rows)[:, None], np.arange(cols)[None, :]
    steps = i * s0 + j * s1
    start = -int(steps.min()) if steps.size else 0
    start += data.draw(st.integers(0, 9))
    x = np.random.default_rng(3).standard_normal(int(steps.max()) + start + 1 if steps.size else 1).astype(np.float32)
    kind = SMALL if bounded else "i32"
    constants = {"R": R, "C": C, "S0": fixed, "OTHER": other}
    kernel = _views(kind, tuple(constants.items()))
    out = np.full((2 * R, C), 9, np.float32)
    run_compiled(kernel, (2,), [x, out, start, rows, cols, s0 if not fixed else 0, s1])
    want = np.full((2 * R, C), 9, np.float32)
    want[:rows] = other
    want[:rows, :cols] = x[steps + start]
    assert np.array_equal(out, want)


_MADE: dict[Any, Any] = {}


def _views(kind: str, constants: tuple[tuple[str, Any], ...]) -> Any:
    """Each variant is compiled once."""
    key = (kind, constants)
    if key not in _MADE:
        types = ["*f32", "*f32", "i32", "i32", "i32", kind, kind]
        _MADE[key] = view.compile(types, dict(constants), target="gfx942", num_warps=4)
    return _MADE[key]


def test_small_strides_take_buffers_and_others_do_not() -> None:
    constants = (("R", R), ("C", C), ("S0", 0), ("OTHER", 0.0))
    assert count(r"^\s*buffer_load", text_of(_views(SMALL, constants)))
    assert not count(r"^\s*buffer_load", text_of(_views("i32", constants)))


@mimw.kernel
def left_early(x_ptr, out_ptr, n, at, HOW: ml.constexpr):
    """A distance that a loop moves by, and that `break` or `continue` gives another value, or leaves."""
    i = ml.arange(0, 64)
    far = ml.program_id(0).to(ml.int64) * 64
    total = ml.zeros((64,), ml.int32)
    for k in range(n):
        total = total * 3 + ml.load(x_ptr + far + i)
        if k == at:
            if HOW == "start again":
                far = (at + ml.program_id(0)).to(ml.int64)
                continue
            if HOW == "stay":
                continue
            if HOW == "reset":
                far = far * 0
            break
        far += 64
    ml.store(out_ptr + ml.program_id(0) * 64 + i, total)


@pytest.mark.parametrize("how", ["start again", "stay", "reset", "leave"])
def test_loops_that_are_left_early(how: str) -> None:
    x = np.random.default_rng(0).integers(0, 100, 512).astype(np.int32)
    same_on_amd(left_early, (2,), [x, np.zeros(128, np.int32), 4, 2], HOW=how, num_warps=1, seeds=(0,))
