"""Refuses tiles that no machine could hold: the text for them would take minutes to make and run from spilled registers.

Stands after layout inference, which knows how many elements a thread holds. Shared memory has its own check, where it is allotted.
"""

from __future__ import annotations

from mimw.diagnostics import CompilationError
from mimw.ir.core import Module
from mimw.ir.types import DType, TensorType
from mimw.target import Target

NAME = "limits"

MAX_WORDS = 2048
"""32-bit words of one tile in one thread. The hardware has 255; eight times that still compiles in seconds."""


def run(module: Module, target: Target) -> None:
    """Raise CompilationError at the first op whose result is too large."""
    for op in module.function.walk():
        for r in op.results:
            t = r.type
            # Index arithmetic and pointers are kept as one base and constants; data is not.
            if not isinstance(t, TensorType) or t.layout is None or not isinstance(t.element, DType):
                continue
            if op.name != "memory.load" and not t.element.is_floating():
                continue
            words = t.layout.num_regs * t.element.bits // 32
            if words > MAX_WORDS:
                raise CompilationError(
                    "tile-too-large",
                    f"a {t.with_layout(None)} takes {words} registers of each of {module.function.num_warps * target.warp_size} threads",
                    op.loc,
                    hint=f"a thread has 255 registers: make the tile smaller, or num_warps larger ({module.function.num_warps} now)",
                )
