"""What the frontend's tests share: a stand-in for the decorator, tracing with the verifier, counting ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mimw.frontend.source import KernelFunction
from mimw.frontend.trace import Arg, Const, trace
from mimw.ir.core import Module, OpBase
from mimw.ir.printer import print_module
from mimw.ir.types import F16, F32, I32, PointerType
from mimw.ir.verifier import verify


class kernel(KernelFunction):
    """The decorator, without the launcher."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("not launched in these tests")


P32 = Arg(PointerType(F32), 16)
P16 = Arg(PointerType(F16), 16)
PI = Arg(PointerType(I32), 16)
INT = Arg(I32)
FLOAT = Arg(F32)


def build(fn: Any, **signature: Any) -> Module:
    """The verified tile IR of a kernel; plain values are constants."""
    module = trace(fn, {k: v if isinstance(v, (Arg, Const)) else Const(v) for k, v in signature.items()})
    verify(module)
    return module


def ops(module: Module, name: str = "") -> list[OpBase]:
    """All ops of a name (or all) in program order."""
    return [op for op in module.function.walk() if not name or op.name == name]


def count(module: Module) -> Counter[str]:
    """How often each op occurs."""
    return Counter(op.name for op in module.function.walk())


def text(module: Module) -> str:
    """The module's text."""
    return print_module(module)
