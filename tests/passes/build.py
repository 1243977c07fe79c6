"""Small kernels built by hand, for the tests of the passes."""

from __future__ import annotations

from mimw.diagnostics import Loc
from mimw.ir.builder import Builder
from mimw.ir.core import Argument, Function, Module, Value
from mimw.ir.ops.arith import CastOp
from mimw.ir.ops.control import ForOp, ProgramIdOp, ReturnOp, YieldOp
from mimw.ir.ops.memory import LoadOp, PtrAddOp, StoreOp
from mimw.ir.ops.mma import DotOp
from mimw.ir.ops.tensor import ArangeOp, BroadcastOp, ExpandDimsOp, ReduceOp, SplatOp, TransOp
from mimw.ir.types import BF16, F32, I32, DType, PointerType, TensorType


class Kernel:
    """A function under construction, with short words for what tests say often. Every op gets a line of its own."""

    def __init__(self, *arguments: Argument, num_warps: int = 4) -> None:
        self.fn = Function("k", list(arguments), Loc("k.py", 1), num_warps=num_warps)
        self.b = Builder(self.fn.block, Loc("k.py", 2))
        self.args = self.fn.block.args

    def op(self, op: object) -> Value:
        """Insert; the first result."""
        self.b.loc = Loc("k.py", self.b.loc.line + 1)
        self.b.insert(op)  # type: ignore[type-var]
        return op.results[0] if op.results else None  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        """`k.add(x, y)`: an elementwise op of the arith family."""
        return lambda *values: self.b.elementwise(f"arith.{name}", *values)

    @property
    def loc(self) -> Loc:
        return self.b.loc

    def const(self, value: float, t: object) -> Value:
        return self.b.constant(value, t)  # type: ignore[arg-type]

    def arange(self, n: int) -> Value:
        return self.op(ArangeOp(0, n, loc=self.loc))

    def splat(self, v: Value, *shape: int) -> Value:
        return self.op(SplatOp(v, shape, loc=self.loc))

    def pid(self, axis: int = 0) -> Value:
        return self.op(ProgramIdOp(axis, loc=self.loc))

    def expand(self, v: Value, axis: int) -> Value:
        return self.op(ExpandDimsOp(v, axis, loc=self.loc))

    def broadcast(self, v: Value, *shape: int) -> Value:
        return self.op(BroadcastOp(v, shape, loc=self.loc)) if v.type.shape != shape else v  # type: ignore[union-attr]

    def trans(self, v: Value, *order: int) -> Value:
        return self.op(TransOp(v, order or (1, 0), loc=self.loc))

    def cast(self, v: Value, dtype: DType) -> Value:
        return self.op(CastOp(v, dtype, loc=self.loc))

    def ptr(self, base: Value, offsets: Value) -> Value:
        shape = offsets.type.shape  # type: ignore[union-attr]
        return self.op(PtrAddOp(self.splat(base, *shape), offsets, loc=self.loc))

    def grid(self, rows: int, cols: int, row_stride: Value | int, col_stride: Value | int = 1) -> Value:
        """Offsets row * row_stride + col * col_stride."""
        return self.add(self._scaled(rows, 1, row_stride, rows, cols), self._scaled(cols, 0, col_stride, rows, cols))

    def _scaled(self, n: int, axis: int, stride: Value | int, rows: int, cols: int) -> Value:
        v = self.expand(self.arange(n), axis)
        if stride != 1:
            s = self.const(stride, I32) if isinstance(stride, int) else stride
            v = self.mul(v, self.splat(s, *v.type.shape))  # type: ignore[union-attr]
        return self.broadcast(v, rows, cols)

    def load(self, ptr: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        return self.op(LoadOp(ptr, mask, other, loc=self.loc))

    def store(self, ptr: Value, value: Value, mask: Value | None = None) -> None:
        self.op(StoreOp(ptr, value, mask, loc=self.loc))

    def reduce(self, v: Value, axis: int, by: str = "arith.maxnum") -> Value:
        op = ReduceOp([v], axis, loc=self.loc)
        block = op.combine.block
        t = v.type
        assert isinstance(t, TensorType)
        x, y = block.add_arg(t.element), block.add_arg(t.element)
        with self.b.at(block):
            self.b.insert(YieldOp([self.b.elementwise(by, x, y)], loc=self.loc))
        return self.op(op)

    def finish(self) -> Module:
        """End the kernel."""
        self.op(ReturnOp([], loc=self.loc))
        return Module(self.fn)


def pointer(name: str, dtype: DType, divisor: int = 16) -> Argument:
    """A pointer argument."""
    return Argument(name, PointerType(dtype), divisor)


def scalar(name: str, divisor: int = 1) -> Argument:
    """An i32 argument."""
    return Argument(name, I32, divisor)


def matmul(
    m: int = 128,
    n: int = 128,
    k: int = 64,
    dtype: DType = BF16,
    out: DType = BF16,
    acc: DType = F32,
    precision: str = "tf32",
    num_warps: int = 4,
    b_turned: bool = False,
) -> Module:
    """C = A @ B over blocks of K with carried pointers; `b_turned`: B lies transposed in memory and is turned in the kernel."""
    names = ("kk", "lda", "ldb", "ldc")
    kernel = Kernel(
        pointer("a", dtype),
        pointer("b", dtype),
        pointer("c", out),
        *(scalar(s, 16) for s in names),
        num_warps=num_warps,
    )
    a, b, c, kk, lda, ldb, ldc = kernel.args
    pa = kernel.ptr(a, kernel.grid(m, k, lda))
    pb = kernel.ptr(b, kernel.grid(n, k, ldb) if b_turned else kernel.grid(k, n, ldb))
    zero = kernel.const(0.0 if acc.kind == "float" else 0, TensorType((m, n), acc))
    loop = ForOp(kernel.const(0, I32), kk, kernel.const(k, I32), [zero, pa, pb], loc=kernel.loc)
    body = loop.body.block
    iv, c0 = body.add_arg(I32, "k"), body.add_arg(zero.type, "acc")
    a0, b0 = body.add_arg(pa.type, "pa"), body.add_arg(pb.type, "pb")
    with kernel.b.at(body):
        va, vb = kernel.load(a0), kernel.load(b0)
        if b_turned:
            vb = kernel.trans(vb)
        c1 = kernel.op(DotOp(va, vb, c0, precision, loc=kernel.loc))
        a1 = kernel.op(PtrAddOp(a0, kernel.const(k, TensorType((m, k), I32)), loc=kernel.loc))
        step = kernel.const(k, I32) if b_turned else kernel.mul(ldb, kernel.const(k, I32))
        b1 = kernel.op(PtrAddOp(b0, kernel.splat(step, *b0.type.shape), loc=kernel.loc))  # type: ignore[union-attr]
        kernel.op(YieldOp([c1, a1, b1], loc=kernel.loc))
    del iv
    kernel.b.insert(loop)
    result = loop.outs[0]
    if out is not acc:
        result = kernel.cast(result, out)
    kernel.store(kernel.ptr(c, kernel.grid(m, n, ldc)), result)
    return kernel.finish()
