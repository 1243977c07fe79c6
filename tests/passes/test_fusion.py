"""Sums of matrix products start from the other summand: which do, and that the loop's product then stays in flight."""

from __future__ import annotations

from typing import Any

import numpy as np

import mimw
import mimw.language as ml
from mimw.ir.types import shape_of
from mimw.passes import pipeline
from mimw.target import get_target
from tests.frontend.kernels import PI, build, count
from tests.language.engines_kit import both

FLOATS, INTS, BYTES = ml.float16, ml.int8, ml.float8e5


@mimw.kernel
def summed(x, TYPE: ml.constexpr, ACC: ml.constexpr, FORM: ml.constexpr):
    a = ml.full((16, 32), 1, TYPE)
    b = ml.full((32, 16), 1, TYPE)
    c = ml.full((16, 16), ml.load(x), ACC)
    p = ml.dot(a, b)
    if FORM == 0:
        c += p
    elif FORM == 1:
        c = p + c
    elif FORM == 2:
        c = c + p + p
    elif FORM == 3:
        c = ml.dot(a, b, c) + c
    else:
        c = c - p
    ml.store(x, ml.sum(c))


def sums(form: int, dtype: Any = FLOATS, acc: Any = ml.float32, on: bool = True) -> int:
    """How many additions are left."""
    module = build(summed.fn, x=PI, TYPE=dtype, ACC=acc, FORM=form)
    module.function.options["enable_fp_fusion"] = on
    pipeline.run(module, get_target("sm_90a"), passes=pipeline.SIMULATED)
    tiles = [
        op for op in module.function.walk() if op.name in ("arith.add", "arith.sub") and shape_of(op.results[0].type)
    ]
    assert count(module)["mma.dot"] == 1
    return len(tiles)


def test_which_sums() -> None:
    assert sums(0) == sums(1) == sums(0, INTS, ml.int32) == sums(0, INTS, ml.int32, on=False) == 0
    assert sums(0, on=False) == sums(0, BYTES) == 1
    assert sums(2) == 2  # the product is used twice
    assert sums(3) == sums(4) == 1


@mimw.kernel
def product(x, y, z, K, M: ml.constexpr, BK: ml.constexpr):
    rows, ks = ml.arange(0, M), ml.arange(0, BK)
    acc = ml.zeros((M, M), ml.float32)
    for k in range(0, K, BK):
        a = ml.load(x + rows[:, None] * K + (k + ks)[None, :])
        b = ml.load(y + (k + ks)[:, None] * M + rows[None, :])
        acc += ml.dot(a, b)
    ml.store(z + rows[:, None] * M + rows[None, :], acc)


def test_a_product_stays_in_flight() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, s).astype(np.float16) for s in ((64, 128), (128, 64)))
    args = [x, y, np.zeros((64, 64), np.float32), 128]
    got = both(product, (1,), args, M=64, BK=32)
    np.testing.assert_array_equal(got[2], x.astype(np.float32) @ y.astype(np.float32))
    signature = dict(zip("xyzK", ("*f16:16", "*f16:16", "*f32:16", "i32:16"), strict=True))
    compiled = product.compile(signature, {"M": 64, "BK": 32}, target="sm_90a")
    remarks = [r["text"] for r in compiled.metadata.extra["remarks"] if r["kind"] == "pipeline"]
    assert len(remarks) == 1 and "one product stays in flight" in remarks[0]
