"""Questions that are answered at compile time."""

from __future__ import annotations

from typing import Any

from mimw.ir.builder import current_builder
from mimw.ir.types import F8E4M3, F8E5M2, DType, PointerType
from mimw.language.core import explain, tensor, unwrap
from mimw.language.errors import fail


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


def get_fp8_format_name(dtype: Any) -> str:
    """The name that products with scales have for an fp8 dtype: "e4m3" or "e5m2"."""
    current_builder("get_fp8_format_name")
    d = unwrap(dtype)
    names = {F8E4M3: "e4m3", F8E5M2: "e5m2"}
    if not isinstance(d, DType) or d not in names:
        fail("bad-argument", f"get_fp8_format_name takes ml.float8e4nv or ml.float8e5, not {explain(d)}")
    return names[d]


def thread_id(axis: int) -> int:
    """The index of a thread: refused. A program says what all its threads do together; which of them holds an element is the compiler's."""
    current_builder("thread_id")
    fail(
        "unsupported",
        "thread_id: a program says what its threads do together, and none of them has a value of its own",
        "a scalar is stored once, whoever does it; ml.arange numbers elements, ml.async_task_replica_id tasks",
    )
