"""All op declarations, one module a family. Importing this package fills `mimw.ir.opdef.OPS`."""

from mimw.ir.ops import arith, async_copy, barrier, control, debug, math, memory, mma, tensor

__all__ = ["arith", "async_copy", "barrier", "control", "debug", "math", "memory", "mma", "tensor"]
