"""Loops and branches in PTX against the tile simulator, at the edges: bounds where a careless counter would wrap."""

from __future__ import annotations

import numpy as np
import pytest

from mimw.codegen.ptx.emit import emit_text
from mimw.ir.core import Block, Module
from mimw.ir.ops.control import ForOp, YieldOp
from mimw.ir.types import F32, I32, I64, U32, DType, PointerType
from mimw.passes import facts, pipeline
from mimw.sim.ptx.run import run_ptx
from mimw.target import get_target
from tests.codegen.ptx.lowering_kit import LOC, Kernel


def _range_kernel(dtype: DType, constant: tuple[int, int, int] | None) -> Module:
    """out[0] = number of trips, out[1] = sum of the induction values (wrapped)."""
    k = Kernel([("out", PointerType(dtype)), ("lo", dtype), ("hi", dtype), ("step", dtype)], num_warps=1)
    out, *bounds = k.args
    if constant is not None:
        bounds = [k.const(v, dtype) for v in constant]
    zero = k.const(0, dtype)
    loop = k.b.insert(ForOp(*bounds, [zero, zero], loc=LOC))
    loop.body.block = Block([dtype] * 3, ["i", "count", "total"])
    loop.body.block.parent = loop.body
    iv, count, total = loop.body.block.args
    with k.b.at(loop.body.block):
        count = k.op("arith.add", count, k.const(1, dtype))
        total = k.op("arith.add", total, iv)
        k.b.insert(YieldOp([count, total], loc=LOC))
    k.op("memory.store", out, loop.outs[0])
    k.op("memory.store", k.op("memory.ptr_add", out, k.const(1, dtype)), loop.outs[1])
    return k.module()


def _trips(lo: int, hi: int, step: int) -> range:
    return range(lo, hi, step)


_CASES = [
    (I32, 0, 10, 3),
    (I32, 5, 5, 1),
    (I32, 7, -7, 2),
    (I32, 10, -11, -3),
    (I32, 2**31 - 100, 2**31 - 1, 64),
    (I32, -(2**31) + 100, -(2**31), -64),
    (I32, -(2**31), 2**31 - 1, 2**30),
    (I64, 2**63 - 10, 2**63 - 1, 7),
    (I64, 5, -(2**62), -(2**61)),
    (U32, 2**32 - 10, 2**32 - 1, 8),
]


@pytest.mark.parametrize("known", [True, False], ids=["constant", "arguments"])
@pytest.mark.parametrize(("dtype", "lo", "hi", "step"), _CASES, ids=str)
def test_a_loop_makes_the_trips_of_range(dtype: DType, lo: int, hi: int, step: int, known: bool) -> None:
    module = _range_kernel(dtype, (lo, hi, step) if known else None)
    target = get_target("sm_90a")
    pipeline.run(module, target)
    text = emit_text(module, target, facts.compute(module.function))
    out = np.zeros(2, dtype.numpy_name)
    run_ptx(text, None, (1, 1, 1), [out, lo, hi, step])
    wanted = list(_trips(lo, hi, step))
    bits = dtype.bits
    assert int(out[0]) == len(wanted)
    assert int(out[1]) % (1 << bits) == sum(wanted) % (1 << bits)


def _walking_pointers() -> Kernel:
    k = Kernel([("x", PointerType(F32)), ("z", PointerType(F32)), ("n", I32)], num_warps=1)
    x, z, n = k.args
    offs = k.arange(512)
    start = k.pointers(x, offs)
    first = k.op("memory.load", start)
    loop = k.b.insert(ForOp(k.const(0, I32), n, k.const(1, I32), [start, first], loc=LOC))
    loop.body.block = Block([I32, start.type, first.type], ["i", "p", "acc"])
    loop.body.block.parent = loop.body
    _, p, acc = loop.body.block.args
    with k.b.at(loop.body.block):
        step = k.splat(k.const(512, I32), (512,), offs.type.layout)  # type: ignore[union-attr]
        p = k.op("memory.ptr_add", p, step)
        acc = k.op("arith.add", acc, k.op("memory.load", p))
        k.b.insert(YieldOp([p, acc], loc=LOC))
    for r, t in zip(loop.outs, (start.type, first.type), strict=True):
        r.type = t
    k.store(z, offs, loop.outs[1])
    return k


def test_carried_pointers_that_differ_by_constants_share_a_register() -> None:
    text = _walking_pointers().ptx()
    body = text[text.index("_loop:") :]
    adds = [line for line in body.splitlines() if "add.s64" in line or "add.u64" in line]
    assert body.count("ld.global") >= 4 and len(adds) <= 2
    x = np.arange(2048, dtype=np.float32)
    z = np.zeros(512, np.float32)
    run_ptx(text, None, (1, 1, 1), [x, z, 3])
    assert (z == x.reshape(4, 512).sum(0)).all()


def test_loops_are_not_unrolled_by_the_assembler() -> None:
    assert '.pragma "nounroll";' in _walking_pointers().ptx()
