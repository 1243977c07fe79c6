"""Where new ops go: an insertion point and the current source place.

`Builder` is handed along explicitly in passes. The functions of `mimw.language` find it through `current_builder`, a context variable, so two
threads trace kernels at once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from mimw.diagnostics import UNKNOWN, CompilationError, Loc
from mimw.ir.core import Block, OpBase, Value
from mimw.ir.opdef import elementwise
from mimw.ir.ops.arith import ConstantOp
from mimw.ir.types import DType, Type, element_of

_O = TypeVar("_O", bound=OpBase)


class Inliner(Protocol):
    """What the frontend installs so that `ml.reduce(x, axis, fn)` can trace `fn` into a region."""

    def __call__(self, fn: Any, args: list[Value], loc: Loc) -> list[Value]:
        """Trace a kernel function at the builder's insertion point on these values; the values that it returns."""
        ...


class Builder:
    """Appends ops to `block` (or inserts them before `anchor`), each at `loc`."""

    __slots__ = ("anchor", "block", "inline", "loc", "replica", "serial", "state")

    def __init__(self, block: Block, loc: Loc = UNKNOWN, anchor: OpBase | None = None) -> None:
        self.block = block
        self.loc = loc
        self.anchor = anchor
        self.inline: Inliner | None = None
        self.state: Any = None
        self.replica: int | None = None  # index of the task's replica; None outside of tasks
        self.serial = 0

    def insert(self, op: _O) -> _O:
        """Put an op at the insertion point."""
        if self.anchor is None:
            self.block.append(op)
        else:
            self.block.insert_before(self.anchor, op)
        return op

    def elementwise(self, name: str, *inputs: Value) -> Value:
        """Insert an elementwise op by name; its result."""
        return self.insert(elementwise(name, *inputs, loc=self.loc)).result

    def constant(self, value: int | float | bool, type: Type) -> Value:
        """Insert a constant, wrapped to an integer type's range."""
        e = element_of(type)
        if isinstance(e, DType):
            value = wrap(value, e)
        return self.insert(ConstantOp(value, type, loc=self.loc)).result

    def fresh(self, prefix: str) -> str:
        """A name that this builder did not give before."""
        self.serial += 1
        return f"{prefix}{self.serial}"

    @contextmanager
    def at(self, block: Block) -> Generator[Block]:
        """Append to another block for a while."""
        saved = self.block, self.anchor
        self.block, self.anchor = block, None
        try:
            yield block
        finally:
            self.block, self.anchor = saved


def wrap(value: int | float | bool, dtype: DType) -> int | float | bool:
    """A Python number as `dtype` holds it: integers wrap, bools become bool, floats stay."""
    if dtype.kind == "float":
        return float(value)
    if dtype.kind == "bool":
        return bool(value)
    v = int(value) & ((1 << dtype.bits) - 1)
    if dtype.kind == "int" and v >> (dtype.bits - 1):
        v -= 1 << dtype.bits
    return v


_CURRENT: ContextVar[Builder | None] = ContextVar("mimw_builder", default=None)


def current_builder(what: str = "this function") -> Builder:
    """The builder of the kernel being traced; `CompilationError` outside of one."""
    b = _CURRENT.get()
    if b is None:
        raise CompilationError(
            "outside-kernel", f"{what} only has a meaning inside a kernel (a function under @mimw.kernel)"
        )
    return b


@contextmanager
def building(builder: Builder) -> Generator[Builder]:
    """Make `builder` the current one."""
    token = _CURRENT.set(builder)
    try:
        yield builder
    finally:
        _CURRENT.reset(token)
