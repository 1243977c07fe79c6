"""Reshapes and concatenations that go through shared memory keep their elements in order."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.tensor import CatOp, ReshapeOp
from mimw.ir.types import F32, I1, I32
from mimw.passes import pipeline
from mimw.sim.tile import run
from mimw.target import get_target
from tests.passes.build import Kernel, pointer


def ops_of(module: object) -> list[str]:
    """Names of all ops."""
    return [op.name for op in module.function.walk()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("old", "new", "renamed"),
    [
        ((33, 3), (99,), False),
        ((99,), (33, 3), False),
        ((6, 32), (3, 64), True),
        ((16, 8), (128,), True),
        ((7, 12), (12, 7), False),
        ((1, 31, 1), (31,), True),
    ],
)
def test_reshape(old: tuple[int, ...], new: tuple[int, ...], renamed: bool) -> None:
    n = int(np.prod(old))
    k = Kernel(pointer("x", F32), pointer("y", F32))
    x, y = k.args
    v = k.load(k.ptr(x, k.arange(n)))
    if old != (n,):
        v = k.op(ReshapeOp(v, old, loc=k.loc))
    v = k.op(ReshapeOp(v, new, loc=k.loc))
    if new != (n,):
        v = k.op(ReshapeOp(v, (n,), loc=k.loc))
    k.store(k.ptr(y, k.arange(n)), v)
    module = k.finish()
    pipeline.run(module, get_target("sm_80"))
    if renamed:
        assert "memory.local_alloc" not in ops_of(module)
    data, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    run(module, [data, out], (1, 1, 1))
    assert (out == data).all()


@pytest.mark.parametrize(
    ("a", "c", "axis", "renamed"),
    [((33,), (31,), 0, False), ((32,), (32,), 0, True), ((4, 3), (4, 5), 1, False), ((3, 5), (2, 5), 0, False)],
)
@pytest.mark.parametrize("predicate", [False, True])
def test_cat(a: tuple[int, ...], c: tuple[int, ...], axis: int, renamed: bool, predicate: bool) -> None:
    k = Kernel(pointer("x", F32), pointer("y", F32), pointer("z", F32))
    x, y, z = k.args
    na, nc = int(np.prod(a)), int(np.prod(c))

    def tile(p: object, n: int, shape: tuple[int, ...]) -> object:
        v = k.load(k.ptr(p, k.arange(n)))  # type: ignore[arg-type]
        if predicate:
            v = k.gt(v, k.const(0.0, v.type))  # type: ignore[operator]
        return k.op(ReshapeOp(v, shape, loc=k.loc)) if len(shape) > 1 else v

    v = k.op(CatOp(tile(x, na, a), tile(y, nc, c), axis, loc=k.loc))  # type: ignore[arg-type]
    if predicate:
        assert v.type.element is I1  # type: ignore[union-attr]
        v = k.op(CastOp(v, F32, loc=k.loc))
    total = na + nc
    if len(a) > 1:
        v = k.op(ReshapeOp(v, (total,), loc=k.loc))
    k.store(k.ptr(z, k.arange(total)), v)
    module = k.finish()
    pipeline.run(module, get_target("sm_80"))
    if renamed:
        assert "memory.local_alloc" not in ops_of(module)
    rng = np.random.default_rng(0)
    dx, dy = rng.standard_normal(na).astype(np.float32), rng.standard_normal(nc).astype(np.float32)
    out = np.zeros(total, np.float32)
    run(module, [dx, dy, out], (1, 1, 1))
    want = np.concatenate([dx.reshape(a), dy.reshape(c)], axis)
    assert (out == (want > 0 if predicate else want).reshape(-1)).all()


def test_the_index_type_of_reshapes_is_kept() -> None:
    k = Kernel(pointer("y", I32))
    v = k.op(ReshapeOp(k.arange(15), (5, 3), loc=k.loc))
    v = k.op(ReshapeOp(v, (15,), loc=k.loc))
    k.store(k.ptr(k.args[0], k.arange(15)), v)
    module = k.finish()
    pipeline.run(module, get_target("sm_90a"))
    out = np.zeros(15, np.int32)
    run(module, [out], (1, 1, 1))
    assert (out == np.arange(15)).all()
