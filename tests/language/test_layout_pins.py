"""`local_alloc(layout=...)`: layouts that the kernel chooses, kept where uses can take them, refused with both lines where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mimw
import mimw.language as ml
from mimw.diagnostics import CompilationError
from mimw.ir.shared_layout import SharedLayout
from tests.language.engines_kit import both, compile_for


@mimw.kernel
def turned(x, y, M: ml.constexpr, N: ml.constexpr, KIND: ml.constexpr):
    if KIND == "swizzled":
        layout = ml.swizzled_shared_layout_encoding(4, 1, 8, order=[1, 0])
    elif KIND == "plain":
        layout = ml.swizzled_shared_layout_encoding.make_default(rank=2)
    elif KIND == "columns":
        layout = ml.swizzled_shared_layout_encoding.make_default(2).make_permute((1, 0))
    elif KIND == "mma":
        layout = ml.nv_mma_shared_layout_encoding.make_default([M, N], ml.float32)
    elif KIND == "mma_columns":
        layout = ml.nv_mma_shared_layout_encoding.make_default([N, M], ml.float32).make_permute((1, 0))
    elif KIND == "padded":
        layout = ml.padded_shared_layout_encoding.with_identity_for([[N, 4]], [M, N], [1, 0])
    else:
        layout = ml.swizzled_layout(3, 2, 3)
    buf = ml.local_alloc((M, N), ml.float32, 2, layout=layout)
    at = ml.arange(0, M)[:, None] * N + ml.arange(0, N)[None, :]
    ml.local_store(buf[1], ml.load(x + at))
    back = ml.arange(0, N)[:, None] * M + ml.arange(0, M)[None, :]
    ml.store(y + back, ml.local_load(ml.local_trans(buf[1])))


KINDS = ["swizzled", "plain", "columns", "mma", "mma_columns", "padded", "cute"]


@pytest.mark.parametrize("kind", KINDS)
def test_threads_take_any_layout(kind: str) -> None:
    x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
    got = both(turned, (1,), [x, np.zeros((64, 32), np.float32)], ("sm_90a", "sm_80"), M=32, N=64, KIND=kind)
    np.testing.assert_array_equal(got[1], x.T)


def test_the_layout_is_kept() -> None:
    x = np.zeros((32, 64), np.float32)
    size = {}
    for kind in KINDS:
        compiled = compile_for(turned, [x, x], {"M": 32, "N": 64, "KIND": kind}, "sm_90a")
        size[kind] = compiled.metadata.shared_bytes
        wanted = {
            "padded": SharedLayout.padded((32, 64), (1, 0), 4),
            "mma": SharedLayout.swizzled((32, 64), (1, 0), 4, 128),
        }
        assert kind not in wanted or str(wanted[kind]) in compiled.asm["layouts"]
    assert size["padded"] > size["plain"]


@mimw.kernel
def product(x, y, z, LAYOUT: ml.constexpr):
    layout = ml.nv_mma_shared_layout_encoding.make_default([64, 64], ml.float16)
    if LAYOUT == "plain":
        layout = ml.swizzled_shared_layout_encoding.make_default(2)
    a = ml.local_alloc((64, 64), ml.float16, 1, layout=layout)
    b = ml.local_alloc((64, 64), ml.float16, 1)
    at = ml.arange(0, 64)[:, None] * 64 + ml.arange(0, 64)[None, :]
    ml.local_store(a[0], ml.load(x + at))
    ml.local_store(b[0], ml.load(y + at))
    ml.store(z + at, ml.async_dot_wait(0, ml.async_dot(a[0], b[0])))


def test_products_take_the_mma_layout() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, (64, 64)).astype(np.float16) for _ in range(2))
    got = both(product, (1,), [x, y, np.zeros((64, 64), np.float32)], LAYOUT="mma")
    np.testing.assert_array_equal(got[2], x.astype(np.float32) @ y.astype(np.float32))


def conflict(kernel: Any, args: list[Any], constants: dict[str, Any], use: int, pin: int, text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        compile_for(kernel, args, constants, "sm_90a")
    e, first = caught.value, kernel.fn.__code__.co_firstlineno
    assert e.code == "layout-conflict" and text in str(e)
    assert e.loc.line == first + use and e.notes[0].loc is not None and e.notes[0].loc.line == first + pin


def test_a_product_cannot_take_plain_rows() -> None:
    x, z = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)
    conflict(
        product, [x, x, z], {"LAYOUT": "plain"}, 10, 5, "mma.async_dot cannot take the layout that was chosen for a"
    )


@mimw.kernel
def copied(x, y, PAD: ml.constexpr):
    layout = ml.padded_shared_layout_encoding.with_identity_for([[64, 8]])
    if not PAD:
        layout = ml.swizzled_layout(3, 3, 3)
    buf = ml.local_alloc((64, 64), ml.float16, 1, layout=layout)
    bar = ml.alloc_barriers(1)
    ml.barrier_expect_bytes(bar[0], 64 * 64 * 2)
    ml.async_descriptor_load(x, buf[0], [0, 0], bar[0])
    ml.barrier_wait(bar[0], 0)
    at = ml.arange(0, 64)[:, None] * 64 + ml.arange(0, 64)[None, :]
    ml.store(y + at, ml.local_load(buf[0]))


def test_tma_takes_its_swizzle_and_no_paddings() -> None:
    x = np.arange(64 * 64).reshape(64, 64).astype(np.float16)
    d = mimw.TensorDescriptor.from_tensor(x, [64, 64])
    got = both(copied, (1,), [d, np.zeros_like(x)], PAD=False)
    np.testing.assert_array_equal(got[1], x)
    conflict(copied, [d, x], {"PAD": True}, 8, 5, "it copies boxes")
