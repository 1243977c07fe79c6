"""All op declarations, one module a family. Importing this package fills `mimw.ir.opdef.OPS`."""

from mimw.ir.ops import (
    arith,
    async_copy,
    atomic,
    barrier,
    cluster,
    control,
    debug,
    inline,
    math,
    memory,
    mma,
    task,
    tensor,
)

__all__ = [
    "arith",
    "async_copy",
    "atomic",
    "barrier",
    "cluster",
    "control",
    "debug",
    "inline",
    "math",
    "memory",
    "mma",
    "task",
    "tensor",
]
