"""Atomic read-modify-write on global memory.

`scratch` is a byte offset into shared memory, set by the allocation pass (-1: not yet, or none needed): results travel there to
threads that hold copies of an element.
"""

from __future__ import annotations

from mimw.ir.core import Value
from mimw.ir.opdef import Effect, Op, attr, attr_default, op, operand, optional, result
from mimw.ir.types import I1, DType, PointerType, Type, element_of, like, shape_of

_EFFECTS = [Effect("global", "read", "ptr"), Effect("global", "write", "ptr")]
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")
KINDS = ("add", "max", "min", "and", "or", "xor", "xchg")


def _check(ptr: Value, values: list[Value], mask: Value | None) -> DType:
    e = element_of(ptr.type)
    if not isinstance(e, PointerType):
        raise ValueError(f"{ptr.type} is not a pointer")
    for v in values:
        if element_of(v.type) is not e.pointee or shape_of(v.type) != shape_of(ptr.type):
            raise ValueError(f"{v.type} does not fit {ptr.type}")
    if mask is not None and (element_of(mask.type) is not I1 or shape_of(mask.type) != shape_of(ptr.type)):
        raise ValueError(f"mask {mask.type} does not fit {ptr.type}")
    return e.pointee


@op("atomic.rmw", effects=_EFFECTS)
class AtomicRmwOp(Op):
    """old = *ptr; *ptr = old `kind` value, at once, where `mask` is true; gives old (zero where masked off).

    Every element of a tile happens exactly once, whatever copies its layout holds. max and min of floats: as IEEE maxNum, with -0 < +0.
    """

    ptr: Value = operand()
    value: Value = operand()
    mask: Value | None = optional()
    kind: str = attr(choices=KINDS)
    sem: str = attr_default(default="acq_rel", choices=SEMANTICS)
    scope: str = attr_default(default="gpu", choices=SCOPES)
    scratch: int = attr_default(default=-1)
    result: Value = result()

    def infer(self) -> list[Type]:
        dtype = _check(self.ptr, [self.value], self.mask)
        if dtype.kind == "float" and self.kind in ("and", "or", "xor"):
            raise ValueError(f"atomic {self.kind} takes integers, not {dtype}")
        return [like(self.ptr.type, dtype)]


@op("atomic.cas", effects=_EFFECTS)
class AtomicCasOp(Op):
    """old = *ptr; if old has the bits of `compare`, *ptr = value; gives old."""

    ptr: Value = operand()
    compare: Value = operand()
    value: Value = operand()
    sem: str = attr_default(default="acq_rel", choices=SEMANTICS)
    scope: str = attr_default(default="gpu", choices=SCOPES)
    scratch: int = attr_default(default=-1)
    result: Value = result()

    def infer(self) -> list[Type]:
        return [like(self.ptr.type, _check(self.ptr, [self.compare, self.value], None))]
