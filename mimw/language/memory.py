"""Global memory: `load`, `store` and `prefetch` through pointers and tiles of pointers."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.core import Value
from mimw.ir.ops.async_copy import PrefetchDescriptorOp
from mimw.ir.ops.memory import LoadOp, PrefetchOp, StoreOp
from mimw.ir.types import I1, PointerType, TensorDescType, shape_of
from mimw.language import semantic
from mimw.language.block_pointer import block_access, block_pointer
from mimw.language.core import TensorLike, as_value, const_bool, const_str, explain, method, operand, tensor
from mimw.language.errors import fail

_CACHE_LOAD = {"": "", ".ca": "ca", ".cg": "cg", ".cs": "cs", ".cv": "cv"}
_CACHE_STORE = {"": "", ".wb": "wb", ".cg": "cg", ".cs": "cs", ".wt": "wt"}
_EVICTION = ("", "evict_first", "evict_last", "evict_normal")


def _pointer(x: Any, what: str) -> tuple[Value, PointerType]:
    if isinstance(x, tensor):
        e = semantic.element(x.value)
        if isinstance(e, PointerType):
            return x.value, e
    return fail(
        "not-a-pointer",
        f"{what} takes a pointer or a tile of pointers, not {explain(x)}",
        "add offsets to a pointer argument first",
    )


def _mask(mask: Any, ptr: Value, what: str) -> Value | None:
    if mask is None:
        return None
    m = as_value(mask, f"{what}: mask")
    if semantic.element(m) is not I1:
        fail("bad-mask", f"{what}: the mask is {m.type}; it must be i1", "write a comparison, or mask != 0")
    return m


def _block(
    pointer: Any, mask: Any, other: Any, boundary_check: Any, padding_option: Any, what: str
) -> tuple[Any, Any, Any]:
    """Pointer, mask and other as they are, or those that a block pointer stands for."""
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            hint = "say with boundary_check which dimensions are masked, with padding_option what lies outside"
            fail("bad-argument", f"{what}: a block pointer takes no mask= and other=", hint)
        return block_access(pointer, boundary_check, padding_option, what)
    if boundary_check or padding_option:
        hint = "mask with mask= and other=, or make the pointer with ml.make_block_ptr"
        fail("bad-argument", f"{what}: boundary_check and padding_option belong to block pointers", hint)
    return pointer, mask, other


def _cache(modifier: Any, table: dict[str, str], what: str) -> str:
    m = const_str(modifier or "", f"{what}: cache_modifier", tuple(table))
    return table[m]


@method
def load(
    pointer: tensor,
    mask: TensorLike | None = None,
    other: TensorLike | None = None,
    boundary_check: tuple[int, ...] = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> tensor:
    """Read the elements that `pointer` names: a scalar for a pointer, a tile for a tile of pointers.

    Where `mask` (i1, broadcast to the pointers) is false nothing is read and the element is `other` (cast to the
    element type and broadcast; 0 without one). `cache_modifier` is "", ".ca", ".cg", ".cs", ".cv"; `eviction_policy`
    "", "evict_first", "evict_last", "evict_normal". A bool is read as a byte, any nonzero value being true.
    Of a block pointer the dimensions in `boundary_check` are masked; outside is 0, or NaN where `padding_option` is "nan".
    """
    b = current_builder("load")
    pointer, mask, other = _block(pointer, mask, other, boundary_check, padding_option, "load")
    p, pt = _pointer(pointer, "load")
    m = _mask(mask, p, "load")
    if other is not None and m is None:
        fail("bad-argument", "load: other= without mask= is never used", "give the mask that says where it applies")
    shape = shape_of(p.type)
    if m is not None:
        shape = semantic.broadcast_shapes(shape, shape_of(m.type), "load: mask")
        p, m = semantic.broadcast_to(p, shape), semantic.broadcast_to(m, shape)
    o = None
    if other is not None:
        raw = operand(other, "load: other")
        if isinstance(raw, (int, float)) and not (isinstance(raw, float) and not pt.pointee.is_floating()):
            o = semantic.to_shape_and_dtype(raw, shape, pt.pointee, "load: other")
        else:
            o = semantic.broadcast_to(semantic.cast(semantic.to_value(raw), pt.pointee), shape, "load: other")
    eviction = const_str(eviction_policy or "", "load: eviction_policy", _EVICTION)
    cache = _cache(cache_modifier, _CACHE_LOAD, "load")
    return tensor(b.insert(LoadOp(p, m, o, cache, eviction, const_bool(volatile, "load: volatile"), loc=b.loc)).result)


@method
def store(
    pointer: tensor,
    value: TensorLike,
    mask: TensorLike | None = None,
    boundary_check: tuple[int, ...] = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Write `value` (cast to the element type, broadcast to the pointers) where `mask` (i1) is true.

    `cache_modifier` is "", ".wb", ".cg", ".cs", ".wt". Two elements that go to one address leave either.
    Of a block pointer the dimensions in `boundary_check` are masked.
    """
    b = current_builder("store")
    pointer, mask, _ = _block(pointer, mask, None, boundary_check, "", "store")
    p, pt = _pointer(pointer, "store")
    m = _mask(mask, p, "store")
    raw = operand(value, "store: value")
    shape = semantic.broadcast_shapes(shape_of(p.type), semantic.operand_shape(raw), "store: value")
    if shape != shape_of(p.type):
        several = "a scalar pointer" if not shape_of(p.type) else f"pointers of shape {list(shape_of(p.type))}"
        fail(
            "shape-mismatch",
            f"store: {several} cannot take a value of shape {list(shape)}: its elements would go to one address",
            "add offsets to the pointer, such as ml.arange, first",
        )
    if m is not None:
        shape = semantic.broadcast_shapes(shape, shape_of(m.type), "store: mask")
    if shape != shape_of(p.type):
        p = semantic.broadcast_to(p, shape)
    if isinstance(raw, (bool, int)) or (isinstance(raw, float) and pt.pointee.is_floating()):
        v = semantic.to_shape_and_dtype(raw, shape, pt.pointee, "store: value")
    else:
        v = semantic.broadcast_to(semantic.cast(semantic.to_value(raw), pt.pointee), shape, "store: value")
    if m is not None:
        m = semantic.broadcast_to(m, shape)
    eviction = const_str(eviction_policy or "", "store: eviction_policy", _EVICTION)
    b.insert(StoreOp(p, v, m, _cache(cache_modifier, _CACHE_STORE, "store"), eviction, loc=b.loc))


def prefetch(pointer: tensor, level: str = "L2", mask: TensorLike | None = None, tensormap: bool = False) -> None:
    """Bring what `pointer` (a pointer, or a tile of pointers) names into the cache `level`, "L1" or "L2", where `mask` is true.

    With ``tensormap=True`` the first argument is a tensor descriptor, and the descriptor itself comes near (those of arguments do so at the
    kernel's start). `async_descriptor_prefetch_tensor` brings a block of the tensor.
    """
    b = current_builder("prefetch")
    if const_bool(tensormap, "prefetch: tensormap"):
        if not isinstance(pointer, tensor) or not isinstance(pointer.value.type, TensorDescType):  # pyright: ignore[reportUnnecessaryIsInstance]
            fail("not-a-descriptor", f"prefetch: tensormap=True takes a tensor descriptor, not {explain(pointer)}")
        b.insert(PrefetchDescriptorOp(pointer.value, loc=b.loc))
        return
    where = const_str(level, "prefetch: level", ("L1", "L2"))
    if isinstance(pointer, tensor) and isinstance(pointer.value.type, TensorDescType):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = "tensormap=True brings the descriptor, ml.async_descriptor_prefetch_tensor a block of the tensor"
        fail("not-a-pointer", "prefetch takes a pointer or a tile of pointers, not a tensor descriptor", hint)
    p, _ = _pointer(pointer, "prefetch")
    m = _mask(mask, p, "prefetch")
    if m is not None:
        shape = semantic.broadcast_shapes(shape_of(p.type), shape_of(m.type), "prefetch: mask")
        p, m = semantic.broadcast_to(p, shape), semantic.broadcast_to(m, shape)
    b.insert(PrefetchOp(p, m, where, loc=b.loc))
