"""An AMDGCN module as data: one kernel and the facts of its descriptor. The printer prints it, the parser makes it."""

from __future__ import annotations

from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> KernelFacts:
        """The inverse of `to_dict`."""
        out = KernelFacts()
        for name in KernelFacts.__slots__:
            setattr(out, name, data[name])
        out.args = [(str(a), int(b), int(c), str(d)) for a, b, c, d in data["args"]]
        return out


class AmdgcnModule:
    """One kernel for `target` ("gfx942")."""

    __slots__ = ("facts", "function", "target")

    def __init__(self, target: str, function: FlatFunction, facts: KernelFacts) -> None:
        self.target = target
        self.function = function
        self.facts = facts
