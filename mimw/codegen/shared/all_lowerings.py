"""Imports every family, so that the table of lowerings is full."""

from mimw.codegen.shared import (
    casts,
    control,
    convert,
    debug,
    elementwise,
    memory,
    reduce,
    shared_memory,
    shared_views,
    sync,
    tensor,
)

__all__ = [
    "casts",
    "control",
    "convert",
    "debug",
    "elementwise",
    "memory",
    "reduce",
    "shared_memory",
    "shared_views",
    "sync",
    "tensor",
]
