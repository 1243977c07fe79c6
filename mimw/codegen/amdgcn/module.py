"""An AMDGCN module as data: one kernel and the facts of its descriptor. The printer prints it, the parser makes it."""

from __future__ import annotations

from mimw.codegen.machine import FlatFunction


class KernelFacts:
    """What the descriptor and the metadata of a kernel say.

    `lds_bytes` of shared memory, `scratch_bytes` a lane, `kernarg_bytes` of arguments; registers counted from 0: `vgprs`, `agprs`, `sgprs`
    (without VCC); `workgroup_ids` such as "xy" (in s2, s3, ..); `threads` of a workgroup; `args`: (name, offset, size, kind as in metadata).
    """

    __slots__ = (
        "agprs",
        "args",
        "kernarg_bytes",
        "lds_bytes",
        "scratch_bytes",
        "sgprs",
        "spilled_words",
        "threads",
        "vgprs",
        "workgroup_ids",
    )

    def __init__(self) -> None:
        self.lds_bytes = 0
        self.scratch_bytes = 0
        self.kernarg_bytes = 0
        self.vgprs = 1
        self.agprs = 0
        self.sgprs = 1
        self.spilled_words = 0
        self.workgroup_ids = "x"
        self.threads = 64
        self.args: list[tuple[str, int, int, str]] = []


class AmdgcnModule:
    """One kernel for `target` ("gfx942")."""

    __slots__ = ("facts", "function", "target")

    def __init__(self, target: str, function: FlatFunction, facts: KernelFacts) -> None:
        self.target = target
        self.function = function
        self.facts = facts
