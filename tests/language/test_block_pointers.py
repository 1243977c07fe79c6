"""Block pointers: edges, advances, paddings and element types, on both simulators; and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from tests.language.engines_kit import both

TARGETS = ("sm_90a", "sm_80")


@mimw.kernel
def product(
    a, b, c, M, N, K, sam, sak, sbk, sbn, BM: ml.constexpr, BN: ml.constexpr, BK: ml.constexpr, BACK: ml.constexpr
):
    m, n = ml.program_id(0) * BM, ml.program_id(1) * BN
    first = K - BK if BACK else 0
    left = ml.make_block_ptr(a, (M, K), (sam, sak), (m, first), (BM, BK), (1, 0))
    right = ml.make_block_ptr(
        base=b, shape=(K, N), strides=(sbk, sbn), offsets=(first, n), block_shape=(BK, BN), order=(1, 0)
    )
    acc = ml.zeros((BM, BN), ml.float32)
    for _ in range(0, K, BK):
        x = ml.load(left, boundary_check=(0, 1), padding_option="zero")
        y = ml.load(right, boundary_check=[1, 0])
        acc += ml.dot(x, y)
        left = ml.advance(left, (0, -BK if BACK else BK))
        right = ml.advance(right, [-BK if BACK else BK, 0])
    out = ml.make_block_ptr(c, (M, N), (N, 1), (m, n), (BM, BN), (1, 0))
    ml.store(out, acc.to(out.dtype.element_ty), boundary_check=(0, 1))


@pytest.mark.parametrize(("m", "n", "k", "turned", "back"), [(40, 72, 50, False, False), (64, 16, 33, True, True)])
def test_product(m: int, n: int, k: int, turned: bool, back: bool) -> None:
    """With edges in all dimensions; backwards the last block begins before the tensor."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    strides = (1, m, 1, k) if turned else (k, 1, n, 1)
    given = [np.ascontiguousarray(x.T) if turned else x for x in (a, b)]
    sizes = {"BM": 32, "BN": 32, "BK": 16, "BACK": back}
    got = both(product, (2, 3), [*given, np.zeros((m, n), np.float16), m, n, k, *strides], TARGETS, **sizes)
    np.testing.assert_array_equal(got[2], (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


@mimw.kernel
def padded(x, y, n, at, N: ml.constexpr, NAN: ml.constexpr):
    p = ml.make_block_ptr(x, [n], [1], [at], [N], [0])
    for i in range(2):
        tile = ml.load(p, boundary_check=(0,), padding_option="nan" if NAN else "zero")
        ml.store(ml.make_block_ptr(y, (2, N), (N, 1), (i, 0), (1, N), (1, 0)), tile[None, :])
        p = ml.advance(p, (N // 2,))


@pytest.mark.parametrize("nan", [False, True])
def test_padding(nan: bool) -> None:
    x = np.arange(20, dtype=np.float32)
    got = both(padded, (1,), [x, np.zeros((2, 16), np.float32), 20, -3], TARGETS, N=16, NAN=nan)
    index = np.array([[i - 3 + s for i in range(16)] for s in (0, 8)])
    outside = np.float32("nan") if nan else 0
    want = np.where((index >= 0) & (index < 20), x[np.clip(index, 0, 19)], outside)
    np.testing.assert_array_equal(got[1], want)


@mimw.kernel
def far(x, y, big, N: ml.constexpr):
    p = ml.make_block_ptr(x, (1 << 40, N), (big, 1), (3, 0), (2, N), (1, 0))
    p = ml.advance(p, (-3, 0))
    ml.store(ml.make_block_ptr(y, (2, N), (N, 1), (0, 0), (2, N), (1, 0)), ml.load(p, boundary_check=(0,)))


def test_offsets_are_wide() -> None:
    """Sizes and strides may pass 2^31."""
    x = np.arange(64, dtype=np.int32)
    got = both(far, (1,), [x, np.zeros((2, 16), np.int32), 32], TARGETS, N=16)
    np.testing.assert_array_equal(got[1], [x[:16], x[32:48]])


@mimw.kernel
def wrong(x, CASE: ml.constexpr):
    p = ml.make_block_ptr(x, (16, 16), (16, 1), (0, 0), (16, 16), (1, 0))
    if CASE == "mask":
        ml.load(p, mask=True)
    if CASE == "axis":
        ml.load(p, boundary_check=(2,))
    if CASE == "rank":
        ml.advance(p, (16,))
    if CASE == "order":
        ml.make_block_ptr(x, (16, 16), (16, 1), (0, 0), (16, 16), (1, 1))
    if CASE == "pointer":
        ml.load(x, boundary_check=(0,))
    if CASE == "tile":
        ml.make_block_ptr(x + ml.arange(0, 16), (16,), (1,), (0,), (16,), (0,))
    if CASE == "nan":
        ml.load(p, boundary_check=(0,), padding_option="nan")
    if CASE == "advance":
        ml.advance(x, (16,))


@pytest.mark.parametrize(
    ("case", "code", "text"),
    [
        ("mask", "bad-argument", "load: a block pointer takes no mask= and other="),
        ("axis", "bad-axis", "load: boundary_check: axis 2"),
        ("rank", "rank", "advance: offsets has 1 items for a block of 2 dimensions"),
        ("order", "bad-axis", "make_block_ptr: order [1, 1] is no permutation of [0, 1]"),
        ("pointer", "bad-argument", "load: boundary_check and padding_option belong to block pointers"),
        ("tile", "not-a-pointer", "make_block_ptr: base takes a pointer"),
        ("nan", "bad-argument", "load: padding_option is 'nan' for a block of i32"),
        ("advance", "bad-argument", "advance takes a block pointer, not a ptr<i32>"),
    ],
)
def test_wrong(case: str, code: str, text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        wrong[(1,)](np.zeros(256, np.int32), CASE=case)
    assert caught.value.code == code and text in str(caught.value)


@mimw.kernel
def hinted(x, y, n, N: ml.constexpr):
    for i in ml.range(0, n, warp_specialize=True, flatten=True):
        ml.store(y + i * N + ml.arange(0, N), ml.load(x + i * N + ml.arange(0, N)))


def test_warp_specialize_is_a_hint() -> None:
    x: Any = np.arange(48, dtype=np.float32)
    got = both(hinted, (1,), [x, np.zeros_like(x), 3], TARGETS, N=16)
    np.testing.assert_array_equal(got[1], x)
    signature = {"x": "*f32", "y": "*f32", "n": "i32"}
    remarks = hinted.compile(signature, {"N": 16}, target="sm_90a").metadata.extra["remarks"]
    assert [r["text"][:31] for r in remarks if r["kind"] == "tasks"] == ["warp_specialize changes nothing"]


@mimw.kernel
def chosen(x, y, n, N: ml.constexpr):
    if n > 2:
        p = ml.make_block_ptr(x, (4 * N,), (1,), (N,), (N,), (0,))
    else:
        p = ml.make_block_ptr(y, (n,), (n,), (0,), (N,), (0,))
    ml.store(p, ml.full((N,), 1, ml.int32), boundary_check=(0,))


def test_a_branch_makes_the_pointer() -> None:
    for n, want in ((3, [[0, 1, 0, 0], [0] * 4]), (2, [[0] * 4, [1, 0, 0, 0]])):
        got = both(chosen, (1,), [np.zeros(64, np.int32), np.zeros(64, np.int32), n], TARGETS, N=16)
        np.testing.assert_array_equal(got[0], np.repeat(want[0], 16))
        np.testing.assert_array_equal(got[1][:4], [1, 0, 1, 0] if n == 2 else want[1])


@mimw.kernel
def of_two_shapes(x, n):
    if n > 2:
        p = ml.make_block_ptr(x, (16,), (1,), (0,), (4,), (0,))
    else:
        p = ml.make_block_ptr(x, (16,), (1,), (0,), (8,), (0,))
    ml.store(p, 1)


def test_blocks_of_two_shapes() -> None:
    with pytest.raises(CompilationError, match=r"a pointer to blocks of \[4\] on one side .* of \[8\] on the other"):
        of_two_shapes[(1,)](np.zeros(16, np.int32), 5)


@mimw.kernel
def in_turn(x, y, n, far, N: ml.constexpr):
    """The loop changes which tensor its pointer points into: with other strides after the second trip."""
    p = ml.make_block_ptr(x, (N, 2), (1, N), (0, 0), (N, 1), (0, 1))
    q = ml.make_block_ptr(y, (N, 8), (1, N), (0, 1), (N, 1), (0, 1))
    i = 0
    while i < n:
        ml.store(p, ml.full((N, 1), i + 1, ml.int32), boundary_check=(1,))
        if i == 1:
            p = ml.make_block_ptr(y, (N, 8), (far, N), (0, 6), (N, 1), (0, 1))
        else:
            p, q = q, ml.advance(p, (0, 1))
        i += 1


def test_a_loop_changes_the_tensor() -> None:
    x, y = np.zeros((2, 16), np.int32), np.zeros((8, 16), np.int32)
    got = both(in_turn, (1,), [x, y, 4, 1], TARGETS, N=16)
    x[0], x[1], y[1], y[6] = 1, 4, 2, 3
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], y)


@mimw.kernel
def sums(x):
    p = ml.make_block_ptr(x, (16,), (1,), (0,), (4,), (0,))
    ml.store(p + 4, 1)


def test_it_is_no_number() -> None:
    with pytest.raises(CompilationError, match=r"\+ of a block pointer and 4"):
        sums[(1,)](np.zeros(16, np.int32))
