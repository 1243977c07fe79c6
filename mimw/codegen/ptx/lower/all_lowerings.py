"""Imports every family of PTX's own lowerings, so that the table is full."""

from mimw.codegen.ptx.lower import (
    async_copy,
    atomic,
    barrier,
    clock,
    cluster,
    inline,
    local_count,
    mma,
    prefetch,
    task,
    tensor_map,
    tma,
    wgmma,
)

__all__ = [
    "async_copy",
    "atomic",
    "barrier",
    "clock",
    "cluster",
    "inline",
    "local_count",
    "mma",
    "prefetch",
    "task",
    "tensor_map",
    "tma",
    "wgmma",
]
