"""Pointer tiles split into a scalar base and small offsets: the form, what is left alone, and that every address stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mimw.ir.core import Argument, Module, OpBase, Value
from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.control import ForOp, YieldOp
from mimw.ir.ops.memory import LoadOp, PtrAddOp
from mimw.ir.ops.tensor import ArangeOp, SplatOp
from mimw.ir.printer import print_module
from mimw.ir.types import F32, I8, I32, I64, DType, TensorType
from mimw.ir.verifier import verify
from mimw.passes import address_split, canonicalize
from mimw.passes.fact import step_of
from mimw.passes.facts import compute
from mimw.sim.tile import run
from mimw.target import get_target
from tests.passes.build import Kernel, matmul, pointer, scalar

AMD = get_target("gfx942")


def bounded(name: str, below: int) -> Argument:
    """An i32 argument in [0, below)."""
    return Argument(name, I32, 1, None, below)


def split(module: Module) -> str:
    """The module after the pass, its text."""
    address_split.run(module, AMD)
    verify(module)
    canonicalize.run(module, AMD)
    return print_module(module)


def accesses(module: Module) -> list[OpBase]:
    """How the pointers of all loads and stores are made."""
    found: list[OpBase] = []
    for op in module.function.walk():
        if op.name in ("memory.load", "memory.store"):
            made = op.operands[0].defining_op
            assert made is not None
            found.append(made)
    return found


def small(module: Module) -> list[bool]:
    """Whether each load and store takes one pointer and offsets that provably lie in [0, 2^31) bytes."""
    facts = compute(module.function)
    found: list[bool] = []
    for made in accesses(module):
        if isinstance(made, PtrAddOp):
            fact, size = facts.of(made.offset), step_of(made.result.type)
            assert fact.lo is not None and fact.hi is not None
            near = fact.lo >= 0 and (fact.hi + 1) * size <= address_split.REACH
            found.append(near and isinstance(made.ptr.defining_op, SplatOp))
        else:
            found.append(isinstance(made, SplatOp))
    return found


def test_the_block_of_a_program_joins_the_base() -> None:
    k = Kernel(pointer("x", F32))
    offsets = k.add(k.splat(k.mul(k.pid(), k.const(128, I32)), 128), k.arange(128))
    pointers = k.ptr(k.args[0], offsets)
    k.store(pointers, k.load(pointers))
    text = split(k.finish())
    body = [line.strip() for line in text.splitlines()[1:-1]]
    assert body == [
        "%0 = control.program_id {axis = 0} : i32",
        "%1 = arith.constant {value = 128} : i32",
        "%2 = arith.mul %0, %1 : i32",
        "%3 = arith.cast %2 {dtype = i64} : i64",
        "%4 = tensor.arange {start = 0, end = 128} : tensor<128xi32>",
        "%5 = memory.ptr_add %x, %3 : ptr<f32>",
        "%6 = tensor.splat %5 {shape = [128]} : tensor<128xptr<f32>>",
        "%7 = memory.ptr_add %6, %4 : tensor<128xptr<f32>>",
        "%8 = memory.load %7 : tensor<128xf32>",
        "memory.store %7, %8",
        "control.return",
    ]


def test_other_machines_keep_their_addresses() -> None:
    module = matmul()
    before = print_module(module)
    address_split.run(module, get_target("sm_90a"))
    assert print_module(module) == before


def test_a_loop_carries_the_moved_pointer() -> None:
    k = Kernel(pointer("x", F32), scalar("n"))
    x, n = k.args
    base = k.ptr(x, k.arange(64))
    zero = k.const(0, I32)
    loop = ForOp(zero, n, k.const(1, I32), [k.const(0, I64)], loc=k.loc)
    iv, step = loop.body.block.add_arg(I32, "i"), loop.body.block.add_arg(I64, "step")
    del iv
    with k.b.at(loop.body.block):
        pointers = k.op(PtrAddOp(base, k.splat(step, 64), loc=k.loc))
        k.store(pointers, k.load(pointers))
        k.op(YieldOp([k.add(step, k.const(64, I64))], loc=k.loc))
    k.op(loop)
    text = split(k.finish())
    assert "[%x] body(" in text and ": ptr<f32>) {" in text
    assert "arith.add" not in text, "the base moves by itself"


def test_a_stride_needs_a_bound() -> None:
    def kernel(stride: Argument) -> Module:
        k = Kernel(pointer("x", F32), stride)
        x, s = k.args
        rows = k.mul(k.add(k.splat(k.pid(), 64), k.arange(64)), k.splat(s, 64))
        pointers = k.ptr(x, rows)
        k.store(pointers, k.load(pointers))
        return k.finish()

    free, short, long = kernel(scalar("s")), kernel(bounded("s", 1 << 20)), kernel(bounded("s", 1 << 24))
    for module in (free, short, long):
        split(module)
    assert [small(m)[0] for m in (free, short, long)] == [False, True, False], "64 rows of 2^24 floats are 4 GiB"


def test_steps_backwards_start_at_the_lowest_element() -> None:
    k = Kernel(pointer("x", F32))
    offsets = k.mul(k.arange(64), k.const(-4, TensorType((64,), I32)))
    pointers = k.ptr(k.args[0], offsets)
    k.store(pointers, k.load(pointers))
    module = k.finish()
    text = split(module)
    assert "arith.constant {value = -252} : i64" in text and all(small(module))
    fact = compute(module.function).of(accesses(module)[0].operands[1])
    assert (fact.lo, fact.hi) == (0, 252)


def test_the_lowest_offset_of_all() -> None:
    """From -2^31 on: what moves it up is 2^31, which i32 only has as -2^31."""
    k = Kernel(pointer("x", I8), pointer("out", I64), scalar("u"))
    x, out, u = k.args
    offsets = k.minnum(k.splat(u, 64), k.const(-1, TensorType((64,), I32)))
    pointers = k.ptr(x, k.op(CastOp(offsets, I64, loc=k.loc)))
    origin = k.splat(k.op(CastOp(x, I64, loc=k.loc)), 64)
    k.store(k.ptr(out, k.arange(64)), k.sub(k.op(CastOp(pointers, I64, loc=k.loc)), origin))
    module = k.finish()
    text = split(module)
    assert f"value = {-(1 << 31)}}} : i64" in text, "the base moves to the lowest"
    for value in (-(1 << 31), -5, 7):
        got = np.zeros(64, np.int64)
        run(module, [np.zeros(8, np.int8), got, value], (1,))
        assert (got == min(value, -1)).all()


def test_offsets_from_memory_stay() -> None:
    k = Kernel(pointer("x", F32), pointer("i", I32))
    x, i = k.args
    pointers = k.ptr(x, k.load(k.ptr(i, k.arange(64))))
    k.store(pointers, k.load(pointers))
    module = k.finish()
    split(module)
    assert small(module) == [True, False, False]
    assert all(isinstance(made.operands[1].defining_op, LoadOp) for made in accesses(module)[1:])


# --- every address stays the same

ROWS, COLS = 8, 16
ARGUMENTS = {"u": (-(1 << 20), 1 << 20), "s": (0, 999), "w": (0, (1 << 20) - 1)}
"""Scalar arguments: their values; the latter two have bounds in the kernel."""


class Drawn:
    """A random offset tile, and what its magnitude is below: products and sums stay inside 31 bits."""

    def __init__(self, k: Kernel, draw: Any) -> None:
        self.k = k
        self.draw = draw

    def tile(self, depth: int) -> tuple[Value, int]:
        """An i32 tile, ROWS x COLS."""
        k, draw = self.k, self.draw
        kind = draw(
            st.sampled_from(["row", "col", "const", "splat"] if depth == 0 else ["add", "sub", "scale", "shape"])
        )
        if kind in ("row", "col"):
            start = draw(st.sampled_from([0, 0, 3, -5]))
            n, axis = (ROWS, 1) if kind == "row" else (COLS, 0)
            line = k.op(ArangeOp(start, start + n, loc=k.loc))
            return k.broadcast(k.expand(line, axis), ROWS, COLS), 32
        if kind == "const":
            return k.const(draw(st.integers(-(1 << 20), 1 << 20)), TensorType((ROWS, COLS), I32)), 1 << 21
        if kind == "splat":
            name = draw(st.sampled_from(list(ARGUMENTS)))
            return k.splat(k.args[1 + list(ARGUMENTS).index(name)], ROWS, COLS), 1 << 21
        a, most = self.tile(depth - 1)
        if kind == "scale":
            number = draw(st.integers(-9, 9))
            s = k.args[2]
            factor, by = (k.splat(s, ROWS, COLS), 1000) if draw(st.booleans()) else (k.const(number, a.type), 16)
            return (k.mul(a, factor), most * by) if most * by < 1 << 31 else (a, most)
        if kind == "shape":
            turned = k.trans(k.trans(a, 1, 0), 1, 0)
            return turned, most
        c, more = self.tile(draw(st.integers(0, depth - 1)))
        if most + more >= 1 << 31:
            return a, most
        return (k.add(a, c), most + more) if kind == "add" else (k.sub(a, c), most + more)


def addresses(module: Module, args: list[Any]) -> Any:
    """What the kernel stores, in the tile simulator."""
    out = np.zeros((ROWS, COLS), np.int64)
    x = np.zeros(64, np.int8)
    run(module, [x, *args, out], (1,))
    return out


@given(st.data())
def test_every_address_stays_the_same(data: st.DataObject) -> None:
    dtype: DType = data.draw(st.sampled_from([I8, F32, I64]))
    k = Kernel(pointer("x", dtype), scalar("u"), bounded("s", 1000), bounded("w", 1 << 20), pointer("out", I64))
    drawn = Drawn(k, data.draw)
    pointers = k.splat(k.args[0], ROWS, COLS)
    for _ in range(data.draw(st.integers(1, 3))):
        offsets, _ = drawn.tile(data.draw(st.integers(0, 3)))
        if data.draw(st.booleans()):  # in 64 bits, anything goes
            offsets = k.op(CastOp(offsets, I64, loc=k.loc))
            far = data.draw(st.integers(-(1 << 62), 1 << 62))
            offsets = k.add(offsets, k.const(far, TensorType((ROWS, COLS), I64)))
        pointers = k.op(PtrAddOp(pointers, offsets, loc=k.loc))
    origin = k.splat(k.op(CastOp(k.args[0], I64, loc=k.loc)), ROWS, COLS)
    numbers = k.sub(k.op(CastOp(pointers, I64, loc=k.loc)), origin)
    k.store(k.ptr(k.args[4], k.grid(ROWS, COLS, COLS)), numbers)
    module = k.finish()
    args = [data.draw(st.integers(*limits)) for limits in ARGUMENTS.values()]
    before = addresses(module, args)
    split(module)
    after = addresses(module, args)
    assert np.array_equal(before, after)
