"""Small kernels as tile IR with layouts, and their PTX: what the tests of lowerings share."""

from __future__ import annotations

from typing import Any

from mimw.codegen.ptx.emit import emit_text
from mimw.diagnostics import Loc
from mimw.ir.builder import Builder
from mimw.ir.core import Argument, Function, Module, Value
from mimw.ir.layout import Layout
from mimw.ir.layout_factories import blocked
from mimw.ir.opdef import OPS
from mimw.ir.types import I1, I32, PointerType, TensorType, Type, element_of
from mimw.passes.facts import compute
from mimw.target import get_target

LOC = Loc("kernel.py", 1, 1)
TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")


class Kernel:
    """Builds a kernel op by op; every tensor gets the layout that is asked for."""

    def __init__(self, arguments: list[tuple[str, Type]], num_warps: int = 4, divisor: int = 16) -> None:
        args = [Argument(n, t, divisor if isinstance(t, PointerType) else 1, LOC) for n, t in arguments]
        self.function = Function("kernel", args, LOC, num_warps)
        self.b = Builder(self.function.block, LOC)
        self.args = self.function.block.args
        self.num_warps = num_warps

    def op(self, name: str, *args: Any, layout: Layout | None = None, **attrs: Any) -> Any:
        """An op by name; its tensor results get `layout`, or that of the first tensor operand."""
        cls: Any = OPS[name].cls
        if cls.__mro__[1].__name__ == "ElementwiseOp":
            op = cls(list(args), loc=LOC)
        else:
            op = cls(*args, loc=LOC, **attrs)
        self.b.insert(op)
        if layout is None:
            layout = next((v.type.layout for v in op.operands if isinstance(v.type, TensorType)), None)
        for r in op.results:
            if isinstance(r.type, TensorType) and r.type.layout is None and layout is not None:
                r.type = r.type.with_layout(layout)
        return op.results[0] if len(op.results) == 1 else op

    def arange(self, size: int, layout: Layout | None = None) -> Value:
        """0 .. size-1."""
        return self.op("tensor.arange", 0, size, layout=layout or blocked((size,), (0,), self.num_warps, 4))

    def splat(self, value: Value, shape: tuple[int, ...], layout: Layout) -> Value:
        """A scalar everywhere."""
        return self.op("tensor.splat", value, shape, layout=layout)

    def const(self, value: int | float, t: Type) -> Value:
        """A constant (of a tensor type with its layout)."""
        return self.b.constant(value, t)

    def pointers(self, ptr: Value, offsets: Value) -> Value:
        """ptr + offsets for a tile of offsets."""
        t: Any = offsets.type
        return self.op("memory.ptr_add", self.splat(ptr, t.shape, t.layout), offsets)

    def load(self, ptr: Value, offsets: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        """A load through ptr + offsets."""
        return self.op("memory.load", self.pointers(ptr, offsets), mask, other)

    def store(self, ptr: Value, offsets: Value, value: Value, mask: Value | None = None) -> None:
        """A store through ptr + offsets."""
        self.op("memory.store", self.pointers(ptr, offsets), value, mask)

    def module(self) -> Module:
        """The finished module."""
        if self.function.block.terminator is None:
            self.op("control.return", [])
        return Module(self.function)

    def ptx(self, target: str = "sm_90a", **options: Any) -> str:
        """The PTX text."""
        module = self.module()
        return emit_text(module, get_target(target), compute(module.function), options)


def vector_add(size: int = 1024, n: bool = True, dtype: Type | None = None, warps: int = 4, vec: int = 4) -> Kernel:
    """z = x + y over blocks of `size`, masked by n."""
    from mimw.ir.types import F32

    e = dtype or F32
    k = Kernel([("x", PointerType(e)), ("y", PointerType(e)), ("z", PointerType(e)), ("n", I32)], warps)  # type: ignore[arg-type]
    x, y, z, count = k.args
    layout = blocked((size,), (0,), warps, vec)
    pid = k.op("control.program_id", 0)
    pid.name = "pid"
    start = k.op("arith.mul", pid, k.const(size, I32))
    offs = k.op("arith.add", k.splat(start, (size,), layout), k.arange(size, layout))
    offs.name = "offs"
    mask = k.op("arith.lt", offs, k.splat(count, (size,), layout)) if n else None
    a = k.load(x, offs, mask)
    a.name = "a"
    b = k.load(y, offs, mask)
    b.name = "b"
    c = k.op("arith.add", a, b)
    c.name = "c"
    k.store(z, offs, c, mask)
    return k


__all__ = ["I1", "LOC", "TARGETS", "Kernel", "element_of", "vector_add"]
