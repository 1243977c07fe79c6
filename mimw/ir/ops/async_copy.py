"""Asynchronous copies from global to shared memory by threads (cp.async), in commit groups."""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional
from mimw.ir.ops.memory import memdesc_type
from mimw.ir.types import Type, shape_of

_READ = Effect("global", "read", "ptr", agent="cp_async", completion="cp_async")
_WRITE = Effect("shared", "write", "dst", agent="cp_async", completion="cp_async")


@op("async_copy.load", effects=[_READ, _WRITE])
class AsyncLoadOp(Op):
    """Start copying a tile of pointers into `dst`; elements whose mask is false become `other` (zero without one).

    Done when a later `async_copy.wait_group` of the same thread covers the group it was committed to; other threads also need a barrier.
    """

    ptr: Value = operand()
    dst: Value = operand()
    mask: Value | None = optional()
    other: Value | None = optional()
    cache: str = attr_default(default="")
    eviction: str = attr_default(default="")

    def infer(self) -> list[Type]:
        if shape_of(self.ptr.type) != memdesc_type(self.dst).shape:
            raise ValueError(f"async_load of {self.ptr.type} into {self.dst.type}")
        return []


@op(
    "async_copy.commit_group",
    effects=[Effect("shared", "write", agent="cp_async", completion="cp_async")],
    layout="none",
)
class CommitGroupOp(Op):
    """Close the group of all copies started since the last commit."""


@op("async_copy.wait_group", effects=[Effect("shared", "write")], layout="none")
class WaitGroupOp(Op):
    """Wait until at most `pendings` of this thread's groups are unfinished."""

    pendings: int = attr()
