"""Atomic read-modify-write on global memory, with Triton's names.

`sem` is "relaxed", "acquire", "release" or "acq_rel" (the default), `scope` "cta", "gpu" (the default) or "sys".
"""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.atomic import SCOPES, SEMANTICS, AtomicCasOp, AtomicRmwOp
from mimw.ir.types import I1, DType, PointerType, shape_of
from mimw.language import semantic
from mimw.language.core import TensorLike, as_value, const_str, explain, method, operand, tensor, unwrap
from mimw.language.errors import fail


def _pointer(x: Any, what: str) -> tuple[Value, DType]:
    if isinstance(x, tensor):
        e = semantic.element(x.value)
        if isinstance(e, PointerType):
            if e.pointee is I1 or e.pointee.is_fp8():
                fail("type-mismatch", f"{what} on {e.pointee}: there are no atomics of this type")
            return x.value, e.pointee
    return fail(
        "not-a-pointer",
        f"{what} takes a pointer or a tile of pointers, not {explain(x)}",
        "add offsets to a pointer argument",
    )


def _order(sem: Any, scope: Any, what: str) -> tuple[str, str]:
    s, o = unwrap(sem), unwrap(scope)
    return (
        "acq_rel" if s is None else const_str(s, f"{what}: sem", SEMANTICS),
        "gpu" if o is None else const_str(o, f"{what}: scope", SCOPES),
    )


def _fit(x: Any, d: DType, shape: tuple[int, ...], what: str) -> Value:
    """A value cast to the pointee and spread over the pointers, as `store` does it."""
    raw = operand(x, what)
    if isinstance(raw, (bool, int)) or (isinstance(raw, float) and d.is_floating()):
        return semantic.to_shape_and_dtype(raw, shape, d, what)
    return semantic.broadcast_to(semantic.cast(semantic.to_value(raw), d), shape, what)


def _rmw(kind: str, pointer: Any, val: Any, mask: Any, sem: Any, scope: Any) -> tensor:
    what = f"atomic_{kind}"
    b = current_builder(what)
    p, d = _pointer(pointer, what)
    if d.is_floating() and kind in ("and", "or", "xor"):
        fail("type-mismatch", f"{what} takes integers, not {d}")
    m = None if unwrap(mask) is None else as_value(mask, f"{what}: mask")
    if m is not None and semantic.element(m) is not I1:
        fail("bad-mask", f"{what}: the mask is {m.type}; it must be i1", "write a comparison, or mask != 0")
    shape = semantic.broadcast_shapes(
        shape_of(p.type), semantic.operand_shape(operand(val, f"{what}: val")), f"{what}: val"
    )
    if m is not None:
        shape = semantic.broadcast_shapes(shape, shape_of(m.type), f"{what}: mask")
        m = semantic.broadcast_to(m, shape)
    p = semantic.broadcast_to(p, shape)
    v = _fit(val, d, shape, f"{what}: val")
    order, seen = _order(sem, scope, what)
    return tensor(b.insert(AtomicRmwOp(p, v, m, kind, order, seen, loc=b.loc)).result)


@method
def atomic_add(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer += val`` where `mask` is true, at once; the value before (0 where masked off)."""
    return _rmw("add", pointer, val, mask, sem, scope)


@method
def atomic_max(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer = max(*pointer, val)`` where `mask` is true, at once; the value before (0 where masked off)."""
    return _rmw("max", pointer, val, mask, sem, scope)


@method
def atomic_min(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer = min(*pointer, val)`` where `mask` is true, at once; the value before (0 where masked off)."""
    return _rmw("min", pointer, val, mask, sem, scope)


@method
def atomic_and(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer &= val`` where `mask` is true, at once; the value before (0 where masked off). Integers only."""
    return _rmw("and", pointer, val, mask, sem, scope)


@method
def atomic_or(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer |= val`` where `mask` is true, at once; the value before (0 where masked off). Integers only."""
    return _rmw("or", pointer, val, mask, sem, scope)


@method
def atomic_xor(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer ^= val`` where `mask` is true, at once; the value before (0 where masked off). Integers only."""
    return _rmw("xor", pointer, val, mask, sem, scope)


@method
def atomic_xchg(
    pointer: tensor, val: TensorLike, mask: Any = None, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``*pointer = val`` where `mask` is true, at once; the value before (0 where masked off)."""
    return _rmw("xchg", pointer, val, mask, sem, scope)


@method
def atomic_cas(
    pointer: tensor, cmp: TensorLike, val: TensorLike, sem: str | None = None, scope: str | None = None
) -> tensor:
    """``if *pointer == cmp: *pointer = val`` (compared by bits), at once; the value before."""
    b = current_builder("atomic_cas")
    p, d = _pointer(pointer, "atomic_cas")
    shape = shape_of(p.type)
    for x, word in ((cmp, "cmp"), (val, "val")):
        own = semantic.operand_shape(operand(x, f"atomic_cas: {word}"))
        shape = semantic.broadcast_shapes(shape, own, f"atomic_cas: {word}")
    p = semantic.broadcast_to(p, shape)
    c, v = _fit(cmp, d, shape, "atomic_cas: cmp"), _fit(val, d, shape, "atomic_cas: val")
    order, seen = _order(sem, scope, "atomic_cas")
    return tensor(b.insert(AtomicCasOp(p, c, v, order, seen, loc=b.loc)).result)
