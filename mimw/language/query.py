"""Questions that are answered at compile time."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.types import DType, PointerType
from mimw.language.core import explain, tensor, unwrap
from mimw.language.semantic import fail


def dtype_of(x: Any) -> DType:
    """The dtype of a tile, scalar, buffer or tensor descriptor; what a pointer points to."""
    current_builder("dtype_of")
    x = unwrap(x)
    d: Any = x if isinstance(x, (DType, PointerType)) else x.dtype if isinstance(x, tensor) else None
    if isinstance(d, PointerType):
        d = d.pointee
    if not isinstance(d, DType):
        fail("type-mismatch", f"dtype_of {explain(x)}")
    return d


def size_of(dtype: Any) -> int:
    """Bytes of one element of a dtype."""
    current_builder("size_of")
    d = unwrap(dtype)
    if not isinstance(d, DType):
        fail(
            "bad-argument", f"size_of takes a dtype such as ml.float16, not {explain(d)}", "ml.size_of(ml.dtype_of(x))"
        )
    return d.itemsize
