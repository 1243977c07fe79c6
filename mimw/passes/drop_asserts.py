"""Takes out run-time assertions of a kernel that is compiled without `debug`, before anything is kept alive for them.

Reads the function's option `debug`; a function without the option (one that no launch made) keeps its assertions.
"""

from __future__ import annotations

from mimw.ir.core import Module
from mimw.ir.ops.debug import DeviceAssertOp
from mimw.target import Target

NAME = "drop_asserts"


def run(module: Module, target: Target) -> None:
    """Erase every assertion, or none."""
    if module.function.options.get("debug", True):
        return
    for op in [op for op in module.function.walk() if isinstance(op, DeviceAssertOp)]:
        op.erase()
