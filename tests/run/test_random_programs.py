"""Random kernels of exact ops: the tile simulator on what was written, the same after all passes, and the simulators of PTX and of AMD's
machine code agree bit for bit (any NaN equals any NaN)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimw.diagnostics import Loc
from mimw.ir.builder import Builder
from mimw.ir.core import Argument, Block, Function, Module, Value
from mimw.ir.opdef import OPS
from mimw.ir.ops.arith import BitcastOp, CastOp
from mimw.ir.ops.control import BreakOp, ContinueOp, ForOp, IfOp, InlinedOp, ReturnOp, YieldOp
from mimw.ir.ops.memory import LoadOp, PtrAddOp, StoreOp
from mimw.ir.ops.mma import DotOp
from mimw.ir.ops.tensor import (
    ArangeOp,
    BroadcastOp,
    CatOp,
    ExpandDimsOp,
    JoinOp,
    ReduceOp,
    ReshapeOp,
    ScanOp,
    SplatOp,
    SplitOp,
    TransOp,
)
from mimw.ir.printer import print_module
from mimw.ir.rewriter import clone_function
from mimw.ir.types import (
    BF16,
    F8E4M3,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    DType,
    PointerType,
    TensorType,
    element_of,
)
from mimw.ir.verifier import verify
from mimw.passes import pipeline
from mimw.sim.tile import run as run_tile
from mimw.sim.tile.numerics import numpy_dtype, poison
from mimw.target import get_target
from tests.mir import GENERATORS, run_in_amdgcn, run_in_ptx

HERE = Loc("random", 1, 1)
INTS = [I8, I16, I32, I64, U8, U16, U32]
FLOATS = [F16, BF16, F32, F64]
SHAPES = [(1,), (3,), (31,), (33,), (96,), (128,), (4, 8), (5, 24), (16, 33), (1, 7), (2, 3, 5), (8, 1, 4)]
EXACT_FLOAT = ["add", "sub", "mul", "minnum", "maxnum", "minimum", "maximum", "neg", "abs", "fma"]
EXACT_INT = ["add", "sub", "mul", "minnum", "maxnum", "neg", "abs", "and", "or", "xor", "not", "shl", "shr"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


class Program:
    """A kernel under construction; `tiles` are the values that later ops may take."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inputs: list[np.ndarray] = []
        self.late: list[tuple[int, np.ndarray]] = []
        self.outputs: list[tuple[tuple[int, ...], DType]] = []
        self.tiles: list[Value] = []
        shapes = [self.random.choice(SHAPES) for _ in range(2)]
        types = [self.random.choice(INTS + FLOATS + [I1]) for _ in range(3)]
        loads = [(self.random.choice(shapes), t) for t in types]
        steps = self.random.randrange(4, 12)
        self.plan = loads, steps
        self.build()

    def build(self) -> None:
        loads, steps = self.plan
        arguments = [Argument(f"in{i}", PointerType(t), 16) for i, (_, t) in enumerate(loads)]
        arguments += [Argument("n", I32)]
        self.function = Function("random", arguments, HERE, self.random.choice([1, 2, 4, 8]))
        self.function.options["enable_fp_fusion"] = False
        self.b = Builder(self.function.block, HERE)
        for i, (shape, t) in enumerate(loads):
            self.inputs.append(GENERATORS["bits"](t, shape, i + self.random.randrange(1000)))
            self.tiles.append(self.load(self.function.block.args[i], shape, t))
        for _ in range(steps):
            self.step()
        for v in self.tiles[-3:]:
            self.store(v)
        self.b.insert(ReturnOp([], loc=HERE))

    def pointers(self, base: Value, shape: tuple[int, ...]) -> Value:
        """Pointers to a row-major array."""
        count = int(np.prod(shape))
        flat = self.b.insert(ArangeOp(0, count, loc=HERE)).result
        offsets = self.b.insert(ReshapeOp(flat, shape, loc=HERE)).result
        spread = self.b.insert(SplatOp(base, shape, loc=HERE)).result
        return self.b.insert(PtrAddOp(spread, offsets, loc=HERE)).result

    def load(self, base: Value, shape: tuple[int, ...], t: DType) -> Value:
        """A whole array, or the part under a mask, with or without values for the rest."""
        pointers = self.pointers(base, shape)
        if self.random.random() < 0.5:
            return self.b.insert(LoadOp(pointers, loc=HERE)).result
        other = self.b.constant(5, TensorType(shape, t)) if self.random.random() < 0.5 else None
        return self.b.insert(LoadOp(pointers, self.mask(shape), other, loc=HERE)).result

    def mask(self, shape: tuple[int, ...]) -> Value:
        """True up to some element, in row-major order, or at every third."""
        count = int(np.prod(shape))
        flat = self.b.insert(ArangeOp(0, count, loc=HERE)).result
        if self.random.random() < 0.5:
            limit = self.b.insert(
                SplatOp(self.b.constant(self.random.randrange(count + 1), I32), (count,), loc=HERE)
            ).result
            on = self.b.elementwise("arith.lt", flat, limit)
        else:
            rest = self.b.elementwise("arith.rem", flat, self.b.constant(3, flat.type))
            on = self.b.elementwise("arith.eq", rest, self.b.constant(1, flat.type))
        return self.b.insert(ReshapeOp(on, shape, loc=HERE)).result

    def dot(self, x: Value | None = None) -> Value:
        """A product of small whole numbers, which every order of summation gives exactly."""
        m, n, k = (self.random.choice([1, 3, 8, 16, 17, 32, 33, 64]) for _ in range(3))
        t, out = self.random.choice(
            [(F16, F32), (BF16, F32), (F32, F32), (I8, I32), (U8, I32), (F8E4M3, F32), (F16, F16)]
        )
        low = 0 if t is U8 else -4
        operands: list[Value] = []
        for shape in ((m, k), (k, n)):
            argument = Argument(f"dot{len(self.late)}", PointerType(t), 16)
            self.function.arguments.append(argument)
            base = self.function.block.add_arg(argument.type, argument.name)
            self.late.append(
                (len(self.function.arguments) - 1, GENERATORS["ints"](t, shape, self.random.randrange(99), low, 5))
            )
            operands.append(self.load(base, shape, t))
        return self.b.insert(DotOp(*operands, self.b.constant(2, TensorType((m, n), out)), loc=HERE)).result

    def store(self, v: Value) -> None:
        t: Any = v.type
        e, shape = element_of(t), t.shape if isinstance(t, TensorType) else ()
        argument = Argument(f"out{len(self.outputs)}", PointerType(e), 16)  # type: ignore[arg-type]
        self.function.arguments.append(argument)
        base = self.function.block.add_arg(argument.type, argument.name)
        self.outputs.append((shape, e))  # type: ignore[arg-type]
        mask = self.mask(shape) if shape and self.random.random() < 0.5 else None
        self.b.insert(StoreOp(self.pointers(base, shape) if shape else base, v, mask, loc=HERE))

    def arguments(self) -> list[Any]:
        """Fresh arrays for a run."""
        args: list[Any] = [*[x.copy() for x in self.inputs], 3]
        late = {at: x.copy() for at, x in self.late}
        outputs = iter(self.outputs)
        while len(args) < len(self.function.arguments):
            at = len(args)
            if at in late:
                args.append(late[at])
            else:
                shape, e = next(outputs)
                args.append(poison(shape or (1,), e))
        return args

    # -- one step: each adds at least one value to `tiles`, or does nothing when the tile at hand does not suit -------------

    def step(self) -> None:
        x = self.random.choice(self.tiles)
        made = self.random.choice(STEPS)(self, x)
        if made is not None:
            self.tiles.append(made)

    def elementwise(self, x: Value) -> Value | None:
        e: Any = element_of(x.type)
        names = EXACT_FLOAT if e.kind == "float" else ["and", "or", "xor", "not"] if e is I1 else EXACT_INT
        name = self.random.choice(names)
        row: Any = OPS[f"arith.{name}"].cls
        if name == "fma" and e is F64:
            return None
        others = [v for v in self.tiles if v.type is x.type]
        return self.b.elementwise(f"arith.{name}", x, *[self.random.choice(others) for _ in range(row.row.arity - 1)])

    def compare_select(self, x: Value) -> Value:
        y = self.random.choice([v for v in self.tiles if v.type is x.type])
        how = "ne" if element_of(x.type) is I1 else self.random.choice(COMPARISONS)
        c = self.b.elementwise(f"arith.{how}", x, y)
        self.tiles.append(c)
        return self.b.elementwise("arith.select", c, x, y)

    def cast(self, x: Value) -> Value:
        return self.b.insert(CastOp(x, self.random.choice(INTS + FLOATS), loc=HERE)).result

    def bitcast(self, x: Value) -> Value | None:
        """The bits of integers and of what was loaded: those of a computed NaN are nobody's promise."""
        e: Any = element_of(x.type)
        if e.kind == "float" and not isinstance(x.owner, LoadOp):
            return None
        same = [d for d in INTS + FLOATS if d.bits == e.bits and e is not I1]
        return self.b.insert(BitcastOp(x, self.random.choice(same), loc=HERE)).result if same else None

    def trans(self, x: Value) -> Value | None:
        if not isinstance(x.type, TensorType):
            return None
        order = list(range(x.type.rank))
        self.random.shuffle(order)
        return self.b.insert(TransOp(x, tuple(order), loc=HERE)).result

    def reshape(self, x: Value) -> Value | None:
        if not isinstance(x.type, TensorType):
            return None
        n = x.type.numel
        small = self.random.choice([d for d in (1, 2, 3, 4, 8, n) if n % d == 0])
        return self.b.insert(ReshapeOp(x, self.random.choice([(n,), (small, n // small)]), loc=HERE)).result

    def reduce_back(self, x: Value) -> Value | None:
        """Reduce along an axis; then often repeat the result along it."""
        if not isinstance(x.type, TensorType):
            return None
        axis = self.random.randrange(x.type.rank)
        op = ReduceOp([x], axis, loc=HERE)
        self.combine(op, element_of(x.type))
        r = self.b.insert(op).outs[0]
        if not isinstance(r.type, TensorType):
            return self.b.insert(SplatOp(r, x.type.shape, loc=HERE)).result
        self.tiles.append(r)
        return self.b.insert(
            BroadcastOp(self.b.insert(ExpandDimsOp(r, axis, loc=HERE)).result, x.type.shape, loc=HERE)
        ).result

    def scan(self, x: Value) -> Value | None:
        if not isinstance(x.type, TensorType):
            return None
        op = ScanOp([x], self.random.randrange(x.type.rank), reverse=self.random.random() < 0.5, loc=HERE)
        self.combine(op, element_of(x.type))
        return self.b.insert(op).outs[0]

    def combine(self, op: Any, e: Any) -> None:
        block = op.combine.block
        a, b = block.add_arg(e), block.add_arg(e)
        name = "xor" if e is I1 else "maximum" if e.kind == "float" else self.random.choice(["add", "maxnum", "xor"])
        with self.b.at(block):
            self.b.insert(YieldOp([self.b.elementwise(f"arith.{name}", a, b)], loc=HERE))

    def join_split(self, x: Value) -> Value | None:
        if not isinstance(x.type, TensorType) or x.type.rank > 2:
            return None
        y = self.random.choice([v for v in self.tiles if v.type is x.type])
        j = self.b.insert(JoinOp(x, y, loc=HERE)).result
        if self.random.random() < 0.5:
            return j
        return self.random.choice(self.b.insert(SplitOp(j, loc=HERE)).results)

    def cat(self, x: Value) -> Value | None:
        if not isinstance(x.type, TensorType):
            return None
        y = self.random.choice([v for v in self.tiles if v.type is x.type])
        return self.b.insert(CatOp(x, y, axis=self.random.randrange(x.type.rank), loc=HERE)).result

    def loop(self, x: Value) -> Value | None:
        """Three trips over a carried tile."""
        e: Any = element_of(x.type)
        if e is I1:
            return None
        zero, one = self.b.constant(0, I32), self.b.constant(1, I32)
        op = ForOp(zero, self.function.block.args[3], one, [x], loc=HERE)
        block = op.body.block
        block.add_arg(I32, "i")
        carried = block.add_arg(x.type, "carried")
        with self.b.at(block):
            self.b.insert(YieldOp([self.b.elementwise("arith.sub", x, carried)], loc=HERE))
        return self.b.insert(op).outs[0]

    def exits(self, x: Value) -> Value | None:
        """A loop in an inlined function that is left by break, continue and return at some depth of branches."""
        e: Any = element_of(x.type)
        if e is I1:
            return None
        call = InlinedOp(types=(x.type,), callee="f", loc=HERE)
        with self.b.at(call.body.block):
            zero, one = self.b.constant(0, I32), self.b.constant(1, I32)
            loop = ForOp(zero, self.b.constant(self.random.randrange(7), I32), one, [x], loc=HERE)
            block = loop.body.block
            i, carried = block.add_arg(I32, "i"), block.add_arg(x.type, "carried")
            with self.b.at(block):
                self.leave_at(i, carried, 3)
                self.b.insert(YieldOp([self.b.elementwise("arith.add", carried, x)], loc=HERE))
            self.b.insert(loop)
            self.b.insert(ReturnOp([self.b.elementwise("arith.neg", loop.outs[0])], loc=HERE))
        return self.b.insert(call).outs[0]

    def leave_at(self, i: Value, carried: Value, depth: int) -> None:
        """Branches on the trip's number, some of which leave."""
        cond = self.b.elementwise(
            f"arith.{self.random.choice(COMPARISONS)}", i, self.b.constant(self.random.randrange(5), I32)
        )
        op = IfOp(cond, loc=HERE)
        left = [self.side(region.block, i, carried, depth) for region in op.regions]
        if all(left):  # the loop must go on somewhere
            op.regions[1].block.ops[-1].erase()
            with self.b.at(op.regions[1].block):
                self.b.insert(YieldOp([], loc=HERE))
        self.b.insert(op)

    def side(self, block: Block, i: Value, carried: Value, depth: int) -> bool:
        """One side of a branch; whether it leaves."""
        with self.b.at(block):
            if depth and self.random.random() < 0.5:
                self.leave_at(i, carried, depth - 1)
            leave = self.random.choice([YieldOp, YieldOp, BreakOp, ContinueOp, ReturnOp])
            values = [] if leave is YieldOp else [self.b.elementwise("arith.sub", carried, carried)]
            if values and self.random.random() < 0.5:
                values = [carried]
            self.b.insert(leave(values, loc=HERE))
        return leave is not YieldOp

    def branch(self, x: Value) -> Value:
        n = self.function.block.args[3]
        c = self.b.elementwise("arith.gt", n, self.b.constant(self.random.choice([0, 9]), I32))
        y = self.random.choice([v for v in self.tiles if v.type is x.type])
        op = IfOp(c, types=(x.type,), loc=HERE)
        for region, v in zip(op.regions, (x, y), strict=True):
            with self.b.at(region.block):
                e: Any = element_of(v.type)
                name = "arith.not" if e is I1 else "arith.neg"
                self.b.insert(YieldOp([self.b.elementwise(name, v)], loc=HERE))
        return self.b.insert(op).outs[0]


STEPS = [
    Program.elementwise,
    Program.elementwise,
    Program.elementwise,
    Program.compare_select,
    Program.cast,
    Program.bitcast,
    Program.trans,
    Program.reshape,
    Program.reduce_back,
    Program.scan,
    Program.join_split,
    Program.cat,
    Program.loop,
    Program.branch,
    Program.dot,
    Program.exits,
]


def _outputs(p: Program, args: list[Any]) -> list[np.ndarray]:
    return args[len(args) - len(p.outputs) :]


def _assert_same(p: Program, got: list[Any], want: list[Any], who: str, module: Module) -> None:
    for i, (a, b) in enumerate(zip(_outputs(p, got), _outputs(p, want), strict=True)):
        floating = a.dtype.kind not in "iub"
        same = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
        if floating:
            with np.errstate(all="ignore"):
                same |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
        if not same.all():
            at = tuple(int(k) for k in np.argwhere(~same)[0])
            raise AssertionError(
                f"out{i}{list(at)}: {a[at]!r} in {who}, {b[at]!r} in the tile simulator\n{print_module(module)}"
            )
    for x, y in zip(got[: len(p.inputs)], p.inputs, strict=True):
        assert np.array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}")), "an input was written"


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@settings(max_examples=40)
@given(seed=st.integers(0, 10**9))
def test_engines_agree(target: str, seed: int) -> None:
    _check(Program(seed), target)


def _check(p: Program, target: str) -> None:
    module = Module(p.function)
    verify(module)
    want = p.arguments()
    run_tile(module, want, (1,))
    passed = Module(clone_function(p.function))
    pipeline.run(passed, get_target(target))
    got = p.arguments()
    run_tile(passed, got, (1,))
    _assert_same(p, got, want, f"the tile simulator after the passes for {target}", module)
    got = p.arguments()
    run = run_in_amdgcn if get_target(target).vendor == "amd" else run_in_ptx
    run(Module(clone_function(p.function)), got, (1,), target)
    _assert_same(p, got, want, f"the simulator of code for {target}", module)


class Product(Program):
    """One product of small whole numbers, of sizes that are odd or those of the instructions."""

    def build(self) -> None:
        self.function = Function("product", [Argument("n", I32)], HERE, self.random.choice([1, 2, 4, 8]))
        self.b = Builder(self.function.block, HERE)
        self.store(self.dot())
        self.b.insert(ReturnOp([], loc=HERE))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@settings(max_examples=30)
@given(seed=st.integers(0, 10**9))
def test_products_agree(target: str, seed: int) -> None:
    _check(Product(seed), target)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@settings(max_examples=12)
@given(seed=st.integers(0, 10**9))
def test_engines_agree_on_amd(target: str, seed: int) -> None:
    _check(Product(seed) if seed % 3 == 0 else Program(seed), target)


@pytest.mark.deep
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@settings(max_examples=300)
@given(seed=st.integers(0, 10**9))
def test_engines_agree_on_amd_for_long(target: str, seed: int) -> None:
    _check(Product(seed) if seed % 3 == 0 else Program(seed), target)


def test_inputs_cover_all_types() -> None:
    seen = {numpy_dtype(t) for seed in range(60) for _, t in Program(seed).plan[0]}
    assert len(seen) == len(INTS + FLOATS) + 1
