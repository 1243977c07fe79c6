"""Random kernels over tiles of odd and even sizes: loads in both orders, shape changes, reductions, scans, products, stores of everything."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from mimw.ir.core import Module, Value
from mimw.ir.ops.control import YieldOp
from mimw.ir.ops.mma import DotOp
from mimw.ir.ops.tensor import CatOp, JoinOp, ReshapeOp, ScanOp, SplitOp
from mimw.ir.rewriter import clone_function
from mimw.ir.types import BF16, F32, TensorType
from tests.passes.build import Kernel, pointer

SIZES = [1, 2, 3, 4, 8, 16, 17, 32, 33, 48, 64, 96]
INPUTS = 30000


class RandomKernel:
    """The kernel of one seed: `module` and a fresh copy of it by `copy`, `arguments` with room for `outputs` numbers."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.seed = seed
        self.k = Kernel(pointer("x", F32), pointer("o", F32), num_warps=self.r.choice([1, 2, 4, 8]))
        self.pool: list[Any] = [self._load(), self._load()]
        for _ in range(self.r.randint(2, 9)):
            self._step()
        self.outputs = 0
        for v in self.pool:
            self._store(v)
        self.module = self.k.finish()

    def copy(self) -> Module:
        """The same kernel, sharing nothing that changes."""
        return Module(clone_function(self.module.function))

    def arguments(self) -> list[Any]:
        """Input numbers and room for the outputs."""
        data = np.random.default_rng(self.seed).standard_normal(INPUTS).astype(np.float32)
        return [data, np.zeros(max(1, self.outputs), np.float32)]

    def _load(self, rows: int = 0, cols: int = 0) -> Value:
        rows, cols = rows or self.r.choice(SIZES), cols or self.r.choice(SIZES)
        k = self.k
        by_rows = self.r.random() < 0.6
        offsets = k.grid(rows, cols, cols + self.r.randint(0, 1)) if by_rows else k.grid(rows, cols, 1, rows)
        return k.load(k.ptr(k.args[0], offsets))

    def _step(self) -> None:
        v = self.r.choice(self.pool)
        if not isinstance(v.type, TensorType):
            return
        actions = {1: _ONE, 2: _TWO, 3: _THREE}[v.type.rank]
        self.pool += actions[self.r.randrange(len(actions))](self, v, v.type.shape)

    def _store(self, v: Any) -> None:
        if not isinstance(v.type, TensorType) or self.outputs + v.type.numel > 100_000:
            return
        k, shape = self.k, v.type.shape
        if len(shape) == 3:
            v, shape = k.op(ReshapeOp(v, (v.type.numel,), loc=k.loc)), (v.type.numel,)
        offsets: Any = k.arange(shape[0]) if len(shape) == 1 else k.grid(*shape, shape[1])
        first = k.const(self.outputs, offsets.type)
        k.store(k.ptr(k.args[1], k.b.elementwise("arith.add", offsets, first)), v)
        self.outputs += v.type.numel

    # One action each: the new values.

    def negate(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.b.elementwise("arith.neg", v)]

    def add(self, v: Value, shape: Any) -> list[Any]:
        other = self.r.choice([u for u in self.pool if u.type is v.type])
        return [self.k.b.elementwise("arith.add", v, other)]

    def load(self, v: Value, shape: Any) -> list[Any]:
        return [self._load()]

    def trans(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.trans(v)]

    def reduce(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.reduce(v, self.r.randint(0, 1))]

    def centre(self, v: Value, shape: Any) -> list[Any]:
        axis = self.r.randint(0, 1)
        top = self.k.broadcast(self.k.expand(self.k.reduce(v, axis), axis), *shape)
        return [self.k.b.elementwise("arith.sub", v, top)]

    def scan(self, v: Value, shape: Any) -> list[Any]:
        op = ScanOp([v], self.r.randrange(len(shape)), loc=self.k.loc)
        block = op.combine.block
        x, y = block.add_arg(F32), block.add_arg(F32)
        with self.k.b.at(block):
            self.k.b.insert(YieldOp([self.k.b.elementwise("arith.maxnum", x, y)], loc=self.k.loc))
        return [self.k.op(op)]

    def dot(self, v: Value, shape: Any) -> list[Any]:
        n = self.r.choice(SIZES)
        acc = self.k.const(0.0, TensorType((shape[0], n), F32))
        a, b = self.k.cast(v, BF16), self.k.cast(self._load(shape[1], n), BF16)
        return [self.k.op(DotOp(a, b, acc, loc=self.k.loc))]

    def turn_shape(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.op(ReshapeOp(v, (shape[1], shape[0]), loc=self.k.loc))]

    def ravel(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.op(ReshapeOp(v, (shape[0] * shape[1],), loc=self.k.loc))]

    def cat(self, v: Value, shape: Any) -> list[Any]:
        negative = self.k.b.elementwise("arith.neg", v)
        return [self.k.op(CatOp(v, negative, self.r.randrange(len(shape)), loc=self.k.loc))]

    def expand(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.expand(v, self.r.randint(0, 1))]

    def join(self, v: Value, shape: Any) -> list[Any]:
        return [self.k.op(JoinOp(v, self.k.b.elementwise("arith.neg", v), loc=self.k.loc))]

    def split(self, v: Value, shape: Any) -> list[Any]:
        if shape[-1] != 2:
            return self.negate(v, shape)
        op = SplitOp(v, loc=self.k.loc)
        self.k.op(op)
        return [op.first, op.second]


_R = RandomKernel
_ONE = [_R.negate, _R.add, _R.load, _R.expand, _R.cat, _R.join, _R.scan]
_TWO = [_R.negate, _R.add, _R.trans, _R.reduce, _R.scan, _R.dot, _R.centre, _R.turn_shape, _R.cat, _R.ravel, _R.join]
_THREE = [_R.split]
