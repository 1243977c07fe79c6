"""Integer facts hold: every fact of random index arithmetic is checked against the values themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mimw.diagnostics import UNKNOWN
from mimw.ir.builder import Builder
from mimw.ir.core import Argument, Function, Value
from mimw.ir.ops.arith import CastOp, HintOp
from mimw.ir.ops.control import ForOp, ProgramIdOp, ReturnOp, YieldOp
from mimw.ir.ops.memory import PtrAddOp
from mimw.ir.ops.tensor import ArangeOp, BroadcastOp, ExpandDimsOp, SplatOp, TransOp
from mimw.ir.types import F32, I32, I64, PointerType, TensorType, element_of
from mimw.passes import facts
from mimw.passes.fact import Fact

NP: dict[str, Any] = {"i32": np.int32, "i64": np.int64, "i1": np.bool_}


def make(arguments: list[Argument]) -> tuple[Function, Builder]:
    """An empty function and a builder at its end."""
    fn = Function("k", arguments, UNKNOWN)
    return fn, Builder(fn.block)


def check(fact: Fact, array: np.ndarray[Any, Any], step: int = 1) -> None:
    """Every claim of a fact, element by element."""
    array = np.atleast_1d(array)
    wide = array.astype(object)
    if fact.constant is not None:
        assert (array == fact.constant).all()
    if fact.lo is not None and fact.hi is not None:
        assert fact.lo <= wide.min() and wide.max() <= fact.hi
    for d in range(array.ndim):
        lines = np.moveaxis(wide, d, 0)
        c, k = fact.contiguity[d], fact.constancy[d]
        for i in range(lines.shape[0]):
            if i % c == 0:
                assert (lines[i] % fact.divisor[d] == 0).all(), (fact, d, i)
            else:
                assert (lines[i] == lines[i - 1] + step).all(), (fact, d, i)
            if i % k:
                assert (lines[i] == lines[i - 1]).all(), (fact, d, i)


def trunc_div(a: Any, b: Any) -> Any:
    q = np.abs(a.astype(np.int64)) // np.abs(b.astype(np.int64))
    return (q * np.sign(a) * np.sign(b)).astype(a.dtype)


def trunc_rem(a: Any, b: Any) -> Any:
    return (a - trunc_div(a, b) * b).astype(a.dtype)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "arith.add": lambda a, b: a + b,
    "arith.sub": lambda a, b: a - b,
    "arith.mul": lambda a, b: a * b,
    "arith.div": trunc_div,
    "arith.rem": trunc_rem,
    "arith.and": np.bitwise_and,
    "arith.or": np.bitwise_or,
    "arith.xor": np.bitwise_xor,
    "arith.shl": lambda a, b: np.where(b < 32, a << (b & 31), 0).astype(a.dtype),
    "arith.shr": lambda a, b: a >> np.minimum(b, 31),
    "arith.minnum": np.minimum,
    "arith.maxnum": np.maximum,
    "arith.lt": np.less,
    "arith.le": np.less_equal,
    "arith.gt": np.greater,
    "arith.ge": np.greater_equal,
    "arith.eq": np.equal,
}
CONSTANTS = [-16, -1, 0, 1, 2, 3, 8, 15, 16, 48, 64, 255]


class Expression:
    """Random index arithmetic over a 2-D tile, in IR and in NumPy at once."""

    def __init__(self, draw: Any, shape: tuple[int, int]) -> None:
        self.draw, self.shape = draw, shape
        self.numbers = {name: draw(st.integers(-300, 300)) * div for name, div in (("m", 16), ("n", 1))}
        self.fn, self.b = make([Argument("m", I32, 16), Argument("n", I32, 1)])
        self.pool: list[tuple[Value, Any]] = []
        for v, name in zip(self.fn.block.args, "mn", strict=True):
            self.pool.append((self.splat(v), np.full(shape, self.numbers[name], np.int32)))
        for axis in (0, 1):
            self.pool.append(self.index(axis))
        for c in draw(st.lists(st.sampled_from(CONSTANTS), min_size=2, max_size=4)):
            self.pool.append((self.b.constant(c, TensorType(shape, I32)), np.full(shape, c, np.int32)))
        pid = self.b.insert(ProgramIdOp(0, loc=UNKNOWN)).result
        self.pool.append((self.splat(pid), np.full(shape, draw(st.integers(0, 40)), np.int32)))

    def splat(self, v: Value) -> Value:
        return self.b.insert(SplatOp(v, self.shape, loc=UNKNOWN)).result

    def index(self, axis: int) -> tuple[Value, Any]:
        n = self.shape[axis]
        start = self.draw(st.sampled_from([0, 0, 4, 7]))
        v = self.b.insert(ArangeOp(start, start + n, loc=UNKNOWN)).result
        v = self.b.insert(ExpandDimsOp(v, 1 - axis, loc=UNKNOWN)).result
        v = self.b.insert(BroadcastOp(v, self.shape, loc=UNKNOWN)).result
        line = np.arange(start, start + n, dtype=np.int32)
        return v, np.broadcast_to(line[:, None] if axis == 0 else line[None, :], self.shape)

    def step(self) -> None:
        name = self.draw(st.sampled_from(sorted(BINARY)))
        ints = [(v, a) for v, a in self.pool if element_of(v.type) is I32]
        (x, a), (y, b) = self.draw(st.sampled_from(ints)), self.draw(st.sampled_from(ints))
        if name in ("arith.div", "arith.rem") and not b.all():
            return
        if name in ("arith.shl", "arith.shr") and (b < 0).any():
            return
        with np.errstate(over="ignore"):
            self.pool.append((self.b.elementwise(name, x, y), BINARY[name](a, b)))

    def select(self) -> None:
        masks = [(v, a) for v, a in self.pool if element_of(v.type) is not I32]
        if masks:
            c, m = self.draw(st.sampled_from(masks))
            ints = [(v, a) for v, a in self.pool if element_of(v.type) is I32]
            (x, a), (y, b) = self.draw(st.sampled_from(ints)), self.draw(st.sampled_from(ints))
            self.pool.append((self.b.elementwise("arith.select", c, x, y), np.where(m, a, b)))


@given(st.data())
def test_random_arithmetic(data: Any) -> None:
    shape = data.draw(st.sampled_from([(16, 32), (3, 33), (96, 4), (1, 64)]))
    e = Expression(data.draw, shape)
    for _ in range(data.draw(st.integers(1, 9))):
        e.step()
    e.select()
    wide = [
        (e.b.insert(CastOp(v, I64, loc=UNKNOWN)).result, a.astype(np.int64))
        for v, a in e.pool
        if element_of(v.type) is I32
    ]
    turned = [(e.b.insert(TransOp(v, (1, 0), loc=UNKNOWN)).result, a.T) for v, a in e.pool]
    table = facts.compute(e.fn)
    limit = 1 << 31
    for v, a in (*e.pool, *wide, *turned):
        if not np.array_equal(a, a.astype(np.int64)) or np.abs(a.astype(np.int64)).max() >= limit:
            continue
        check(table.of(v), a)


def test_masked_vector_access() -> None:
    fn, b = make([Argument("x", PointerType(F32), 16), Argument("n", I32, 16)])
    x, n = fn.block.args
    pid = b.insert(ProgramIdOp(0, loc=UNKNOWN)).result
    first = b.elementwise("arith.mul", pid, b.constant(256, I32))
    offs = b.elementwise(
        "arith.add",
        b.insert(SplatOp(first, (256,), loc=UNKNOWN)).result,
        b.insert(ArangeOp(0, 256, loc=UNKNOWN)).result,
    )
    mask = b.elementwise("arith.lt", offs, b.insert(SplatOp(n, (256,), loc=UNKNOWN)).result)
    ptr = b.insert(PtrAddOp(b.insert(SplatOp(x, (256,), loc=UNKNOWN)).result, offs, loc=UNKNOWN)).result
    table = facts.compute(fn)
    assert table.of(ptr).contiguity == (256,) and table.of(ptr).divisor == (16,)
    assert table.of(mask).constancy == (16,)
    assert table.of(offs).lo == 0


def test_loop_carried_pointer_keeps_its_alignment() -> None:
    fn, b = make([Argument("x", PointerType(F32), 16), Argument("n", I32, 1), Argument("stride", I32, 8)])
    x, n, stride = fn.block.args
    ptr = b.insert(
        PtrAddOp(
            b.insert(SplatOp(x, (64,), loc=UNKNOWN)).result, b.insert(ArangeOp(0, 64, loc=UNKNOWN)).result, loc=UNKNOWN
        )
    ).result
    loop = ForOp(b.constant(0, I32), n, b.constant(32, I32), [ptr], loc=UNKNOWN)
    body = loop.body.block
    iv, carried = body.add_arg(I32), body.add_arg(ptr.type)
    with b.at(body):
        step = b.insert(SplatOp(stride, (64,), loc=UNKNOWN)).result
        b.insert(YieldOp([b.insert(PtrAddOp(carried, step, loc=UNKNOWN)).result], loc=UNKNOWN))
    b.insert(loop)
    b.insert(ReturnOp([], loc=UNKNOWN))
    table = facts.compute(fn)
    assert table.of(iv).divisor == (32,)
    assert table.of(carried).contiguity == (64,) and table.of(carried).divisor == (16,)
    assert table.of(loop.outs[0]).divisor == (16,)


def test_hint_and_remainder() -> None:
    fn, b = make([Argument("n", I32, 64)])
    (n,) = fn.block.args
    pid = b.insert(ProgramIdOp(0, loc=UNKNOWN)).result
    first = b.insert(SplatOp(b.elementwise("arith.mul", pid, b.constant(128, I32)), (128,), loc=UNKNOWN)).result
    offs = b.elementwise("arith.add", first, b.insert(ArangeOp(0, 128, loc=UNKNOWN)).result)
    rem = b.elementwise("arith.rem", offs, b.insert(SplatOp(n, (128,), loc=UNKNOWN)).result)
    hinted = b.insert(HintOp(rem, divisor=(128,), contiguity=(128,), loc=UNKNOWN)).result
    table = facts.compute(fn)
    # n may be negative as far as anyone knows: the remainder of a number >= 0 has its runs all the same.
    assert table.of(rem).contiguity == (64,) and table.of(rem).divisor == (64,)
    assert table.of(hinted).contiguity == (128,) and table.of(hinted).divisor == (128,)
