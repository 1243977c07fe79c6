"""What canonicalize, carried tiles and fusion leave, and that constant folding computes what the simulator computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.core import Module, Value
from mimw.ir.ops.control import ForOp, IfOp, YieldOp
from mimw.ir.ops.memory import LoadOp, PtrAddOp
from mimw.ir.types import BF16, F32, I1, I8, I32, I64, U8, U32, DType, TensorType
from mimw.ir.verifier import verify
from mimw.passes import canonicalize, carried_tiles, folding, fusion
from mimw.sim.tile import run
from mimw.target import get_target
from tests.passes.build import Kernel, pointer, scalar

SM = get_target("sm_80")
NUMPY: dict[DType, Any] = {I8: np.int8, I32: np.int32, I64: np.int64, U8: np.uint8, U32: np.uint32, F32: np.float32}


def names(module: Module) -> list[str]:
    """The ops' names, constants left out."""
    return [op.name for op in module.function.walk() if op.name != "arith.constant"]


def tidy(k: Kernel, *passes: Any) -> Module:
    """Finish and run; verified."""
    module = k.finish()
    for each in passes or (canonicalize,):
        each.run(module, SM)
        verify(module)
    return module


def identity(make: Any) -> list[str]:
    """Ops left of `make(k, x)` stored, where x is a loaded i32 scalar."""
    k = Kernel(pointer("p", I32))
    (p,) = k.args
    x = k.load(p)
    k.store(p, make(k, x))
    return names(tidy(k))[1:-2]


@pytest.mark.parametrize(
    "make",
    [
        lambda k, x: k.add(x, k.const(0, I32)),
        lambda k, x: k.add(k.const(0, I32), x),
        lambda k, x: k.sub(x, k.const(0, I32)),
        lambda k, x: k.mul(x, k.const(1, I32)),
        lambda k, x: k.div(x, k.const(1, I32)),
        lambda k, x: k.shl(x, k.const(0, I32)),
        lambda k, x: getattr(k, "and")(x, k.const(-1, I32)),
        lambda k, x: getattr(k, "or")(x, x),
        lambda k, x: k.neg(k.neg(x)),
        lambda k, x: k.select(k.const(True, I1), x, k.const(3, I32)),
        lambda k, x: k.cast(k.cast(x, I64), I32),
        lambda k, x: k.minnum(x, x),
    ],
)
def test_identities(make: Any) -> None:
    assert identity(make) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda k, x: k.cast(k.cast(x, I8), I32),
        lambda k, x: k.sub(k.const(0, I32), x),
        lambda k, x: k.shl(k.const(1, I32), x),
        lambda k, x: k.div(k.const(1, I32), x),
    ],
)
def test_what_looks_like_an_identity_and_is_none(make: Any) -> None:
    assert identity(make) != []


def test_floats_keep_their_zeros_and_nans() -> None:
    k = Kernel(pointer("p", F32))
    (p,) = k.args
    x = k.load(p)
    k.store(p, k.add(k.mul(x, k.const(0.0, F32)), k.const(0.0, F32)))  # type: ignore[operator]
    assert names(tidy(k)) == ["memory.load", "arith.mul", "arith.add", "memory.store", "control.return"]


OPS = sorted(set(folding._FOLD) - {"arith.select", "arith.not"})


@given(st.data())
def test_folding_agrees_with_the_simulator(data: Any) -> None:
    dtype = data.draw(st.sampled_from([I8, I32, I64, U8, U32]))
    low, high = (
        (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
    )
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, 1, 2, min(31, high)]))
    a, b = data.draw(number), data.draw(number)
    for name in OPS:
        count = 1 if name in ("arith.neg", "arith.abs") else 2
        k = Kernel(pointer("x", dtype), pointer("y", dtype))
        x, y = k.args
        values: list[Value] = [k.load(k.op(PtrAddOp(x, k.const(i, I32), loc=k.loc))) for i in range(count)]
        result = k.b.elementwise(name, *values)
        k.store(y, k.cast(result, dtype) if result.type is I1 else result)
        out = np.zeros(1, NUMPY[dtype])
        run(k.finish(), [np.array([a, b], NUMPY[dtype]), out], (1, 1, 1))
        folded = folding.fold(name, [a, b][:count], dtype)
        if folded is not None:
            assert int(folded) == int(out[0]), (name, dtype, a, b)


def test_equal_ops_merge_but_tiles_not_into_loops() -> None:
    k = Kernel(pointer("x", F32), scalar("n"))
    x, n = k.args
    k.store(k.ptr(x, k.arange(64)), k.load(k.ptr(x, k.arange(64))))
    loop = ForOp(k.const(0, I32), n, k.const(1, I32), [], loc=k.loc)
    loop.body.block.add_arg(I32)
    with k.b.at(loop.body.block):
        k.store(k.ptr(x, k.arange(64)), k.const(0.0, TensorType((64,), F32)))
        k.op(YieldOp([], loc=k.loc))
    k.b.insert(loop)
    assert names(tidy(k)).count("tensor.arange") == 2


def test_negative_zero_is_another_constant() -> None:
    k = Kernel(pointer("x", F32))
    (x,) = k.args
    k.store(x, k.const(0.0, F32))
    k.store(k.op(PtrAddOp(x, k.const(1, I32), loc=k.loc)), k.const(-0.0, F32))
    out = np.ones(2, np.float32)
    run(tidy(k), [out], (1, 1, 1))
    assert np.signbit(out).tolist() == [False, True]


def test_unused_loads_go_and_volatile_ones_stay() -> None:
    k = Kernel(pointer("x", F32))
    (x,) = k.args
    k.load(x)
    k.op(LoadOp(x, volatile=True, loc=k.loc))
    assert names(tidy(k)) == ["memory.load", "control.return"]


def test_known_branches_open() -> None:
    k = Kernel(pointer("x", F32))
    (x,) = k.args
    branch = IfOp(k.const(True, I1), types=(F32,), loc=k.loc)
    with k.b.at(branch.then.block):
        k.op(YieldOp([k.load(x)], loc=k.loc))
    with k.b.at(branch.orelse.block):
        k.op(YieldOp([k.const(1.0, F32)], loc=k.loc))
    k.b.insert(branch)
    k.store(x, branch.outs[0])
    assert names(tidy(k)) == ["memory.load", "memory.store", "control.return"]


def counting_loop(k: Kernel, inits: list[Value], body: Any) -> ForOp:
    """A loop to the second argument with carried values; `body(args)` gives the next ones."""
    loop = ForOp(k.const(0, I32), k.args[1], k.const(1, I32), inits, loc=k.loc)
    block = loop.body.block
    block.add_arg(I32)
    args = [block.add_arg(v.type) for v in inits]
    with k.b.at(block):
        k.op(YieldOp(body(*args), loc=k.loc))
    k.b.insert(loop)
    return loop


def test_carried_values_that_nobody_needs_go() -> None:
    k = Kernel(pointer("x", I32), scalar("n"))
    x, _ = k.args
    one, zero = k.const(1, I32), k.const(0, I32)
    loop = counting_loop(
        k,
        [zero, zero, one],  # needed, needed by itself only, never changed
        lambda a, dead, same: [k.add(a, same), k.add(dead, one), same],  # type: ignore[operator]
    )
    k.store(x, k.add(loop.outs[0], loop.outs[2]))  # type: ignore[operator]
    module = tidy(k)
    (left,) = [op for op in module.function.walk() if op.name == "control.for"]
    assert len(left.results) == 1
    out = np.zeros(1, np.int32)
    run(module, [out, 5], (1, 1, 1))
    assert out[0] == 6


def test_scalars_leave_loops() -> None:
    k = Kernel(pointer("x", I32), scalar("n"))
    x, n = k.args
    loop = counting_loop(k, [k.const(0, I32)], lambda a: [k.add(a, k.mul(n, n))])  # type: ignore[operator]
    k.store(x, loop.outs[0])
    module = tidy(k)
    (left,) = [op for op in module.function.walk() if op.name == "control.for"]
    assert [op.name for op in left.regions[0].block.ops] == ["arith.add", "control.yield"]


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_carried_pointers_become_steps(trips: int) -> None:
    k = Kernel(pointer("x", F32), scalar("n"), pointer("y", F32), scalar("s"))
    x, _, y, s = k.args
    start = k.ptr(x, k.arange(16))
    zero = k.const(0.0, TensorType((16,), F32))

    def body(p: Value, acc: Value) -> list[Value]:
        step = k.splat(s, 16)
        on = k.op(PtrAddOp(p, step, loc=k.loc))
        return [k.op(PtrAddOp(on, k.const(4, TensorType((16,), I32)), loc=k.loc)), k.add(acc, k.load(p))]  # type: ignore[operator]

    loop = counting_loop(k, [start, zero], body)
    k.store(k.ptr(y, k.arange(16)), k.add(loop.outs[1], k.load(loop.outs[0])))  # type: ignore[operator]
    module = tidy(k, canonicalize, carried_tiles, canonicalize)
    (left,) = [op for op in module.function.walk() if op.name == "control.for"]
    assert [r.type for r in left.results] == [I64, zero.type]
    data = np.arange(100, dtype=np.float32)
    out = np.zeros(16, np.float32)
    run(module, [data, trips, out, 2], (1, 1, 1))
    assert (out == sum(data[6 * i : 6 * i + 16] for i in range(trips + 1))).all()


def fused(make: Any, dtype: DType = F32, on: bool = True) -> list[str]:
    k = Kernel(pointer("x", dtype))
    (x,) = k.args
    a, b, c = (k.load(k.op(PtrAddOp(x, k.const(i, I32), loc=k.loc))) for i in range(3))
    k.store(x, make(k, a, b, c))
    k.fn.options["enable_fp_fusion"] = on
    return [n for n in names(tidy(k, fusion)) if n.startswith("arith.")]


def test_fusion() -> None:
    assert fused(lambda k, a, b, c: k.add(k.mul(a, b), c)) == ["arith.fma"]
    assert fused(lambda k, a, b, c: k.add(c, k.mul(a, b))) == ["arith.fma"]
    assert fused(lambda k, a, b, c: k.sub(k.mul(a, b), c)) == ["arith.neg", "arith.fma"]
    assert fused(lambda k, a, b, c: k.sub(c, k.mul(a, b))) == ["arith.neg", "arith.fma"]
    assert fused(lambda k, a, b, c: k.add(k.mul(a, b), c), on=False) == ["arith.mul", "arith.add"]
    assert fused(lambda k, a, b, c: k.add(k.mul(a, b), c), dtype=BF16) == ["arith.mul", "arith.add"]
    assert fused(lambda k, a, b, c: k.add(k.mul(a, b), k.mul(a, b))) == ["arith.mul", "arith.fma"]
    shared = fused(lambda k, a, b, c: (lambda p: k.add(k.add(p, c), p))(k.mul(a, b)))
    assert "arith.fma" not in shared
